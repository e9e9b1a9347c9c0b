"""The code has the shape that ARCHITECTURE.md and the decision records promise."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.checkout import PACKAGE, ROOT, module_name, parsed, place, project, source_files

ARCHITECTURE = ROOT / "ARCHITECTURE.md"

FEATURE_WORDS = re.findall(
    r"\w+",
    "acp approval background bash child children cluster compaction deepseek delegate delegation fork mcp openai "
    "parent permission plugin ralph report sandbox settlement skill spawn subagent task todo workflow",
)


# --- ARCHITECTURE.md ---


def _fences(text: str) -> list[list[str]]:
    return [body.splitlines() for body in re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL)]


def _layers_in_page(text: str) -> list[set[str]]:
    pictures = [lines for lines in _fences(text) if lines and lines[0].lstrip().startswith("cli >")]
    assert len(pictures) == 1, "ARCHITECTURE.md needs exactly one fenced block that begins with `cli >`"
    return [{name.strip() for name in layer.split("|")} for layer in " ".join(pictures[0]).split(">")]


def _layers_in_contract() -> list[set[str]]:
    (contract,) = [c for c in project()["tool"]["importlinter"]["contracts"] if c["type"] == "layers"]
    return [{name.strip(" ()") for name in layer.split("|")} for layer in contract["layers"]]


def _paths_in_text(text: str) -> Iterator[str]:
    """Yield each path in backticks: it ends in a slash or a file's suffix, or begins with a top-level folder."""
    prose = re.sub(r"^```\w*\n.*?^```", "", text, flags=re.MULTILINE | re.DOTALL)
    links = re.findall(r"\]\(([^)#:\s]+)(?:#[^)]*)?\)", prose)
    for token in [*re.findall(r"`([^`\s]+)`", prose), *links]:
        if re.fullmatch(r"[\w.*-]+(/[\w.*-]+)*/?", token) and (
            token.endswith("/")
            or re.search(r"\.(py|md|toml|sql|yaml|yml|json|js|html|txt)$", token)
            or re.match(r"(\.ci|docs|examples|requirements|scripts|src|tests)/", token)
        ):
            yield token


def _paths_in_trees(text: str) -> Iterator[str]:
    """Yield each path of the fenced folder trees: a first line that is a folder, then indented names."""
    for lines in _fences(text):
        if not lines or not re.fullmatch(r"[\w./-]+/", lines[0].strip()):
            continue
        open_folders = [(0, lines[0].strip())]
        yield lines[0].strip()
        for line in lines[1:]:
            indent = len(line) - len(line.lstrip())
            names: list[str] = []
            for word in line.split():
                if not re.fullmatch(r"[\w.-]+(/|\.\w+)", word):
                    break
                names.append(word)
            if not names:
                continue  # the rest of a description
            if indent > max(level for level, _ in open_folders) + 4:
                continue  # a description that goes on, and happens to begin with a path
            while indent <= open_folders[-1][0] and len(open_folders) > 1:
                open_folders.pop()
            for name in names:
                yield open_folders[-1][1] + name
            open_folders.append((indent, open_folders[-1][1] + names[-1]))


def _exists(name: str) -> bool:
    return any(list(folder.glob(name.rstrip("/"))) for folder in (ROOT, PACKAGE))


def test_the_layers_in_the_page_are_the_layers_that_the_linter_checks() -> None:
    in_page = _layers_in_page(ARCHITECTURE.read_text(encoding="utf-8"))
    contract = _layers_in_contract()

    assert contract[-1] == {"errors"}
    assert in_page == contract[:-1]


def test_every_path_that_the_page_names_exists() -> None:
    text = ARCHITECTURE.read_text(encoding="utf-8")
    named = {*_paths_in_text(text), *_paths_in_trees(text)}

    assert any(path.endswith("agent/loop.py") for path in named), (
        "the page must name the loop; if it does, the search for paths is broken"
    )
    assert [name for name in sorted(named) if not _exists(name)] == []


def test_the_page_is_short_enough_to_be_read() -> None:
    assert len(ARCHITECTURE.read_text(encoding="utf-8").split()) <= 1300


# --- tasks have owners, cancellation gets through ---


def _spawns(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(attr="create_task" | "ensure_future")):
                yield node
            case ast.Call(func=ast.Name(id="create_task" | "ensure_future")):
                yield node
            case ast.Attribute(value=ast.Name(id="asyncio"), attr="gather"):
                yield node
            case _:
                pass


def _catches_cancellation(caught: ast.expr | None) -> bool:
    if caught is None:
        return True
    if isinstance(caught, ast.Tuple):
        return any(_catches_cancellation(part) for part in caught.elts)
    if isinstance(caught, ast.Call):
        return _catches_cancellation(caught.func)
    name = caught.attr if isinstance(caught, ast.Attribute) else getattr(caught, "id", "")
    return name in {"BaseException", "BaseExceptionGroup", "CancelledError", "get_cancelled_exc_class"}


def _raises_if_cancelled(statement: ast.stmt) -> bool:
    """It is `await reraise_if_cancelled()`: what goes on after it was no cancellation of the caller."""
    match statement:
        case ast.Expr(value=ast.Await(value=ast.Call(func=ast.Name(id="reraise_if_cancelled")))):
            return True
        case _:
            return False


def _swallows(tree: ast.Module) -> Iterator[ast.excepthandler | ast.expr]:
    """Yield each handler that catches cancellation without raising it again at its end."""
    for node in ast.walk(tree):
        match node:
            case ast.ExceptHandler(type=caught, body=[*_, last]) if _catches_cancellation(caught):
                returns = any(isinstance(inner, ast.Return) for part in node.body for inner in ast.walk(part))
                raises = isinstance(last, ast.Raise) and last.exc is None
                if (returns or not raises) and not any(map(_raises_if_cancelled, node.body)):
                    yield node
            case ast.Call(func=ast.Name(id="suppress") | ast.Attribute(attr="suppress"), args=caught):
                if any(_catches_cancellation(part) for part in caught):
                    yield node
            case _:
                pass


def test_no_task_is_started_without_an_owner() -> None:
    assert [place(path, node) for path in source_files() for node in _spawns(parsed(path))] == []


def test_no_handler_swallows_cancellation() -> None:
    assert [place(path, node) for path in source_files() for node in _swallows(parsed(path))] == []


@pytest.mark.parametrize(
    "code",
    [
        "loop.create_task(f())",
        "asyncio.ensure_future(f())",
        "create_task(f())",
        "await asyncio.gather(f(), g())",
    ],
)
def test_the_search_for_ownerless_tasks_finds(code: str) -> None:
    assert list(_spawns(ast.parse(code)))


@pytest.mark.parametrize(
    ("code", "swallows"),
    [
        ("try: f()\nexcept: pass", True),
        ("try: f()\nexcept BaseException as e: log(e)", True),
        ("try: f()\nexcept (ValueError, asyncio.CancelledError): pass", True),
        ("try: f()\nexcept anyio.get_cancelled_exc_class(): return_early()", True),
        ("with suppress(BaseException): f()", True),
        ("try: f()\nexcept BaseException:\n  undo()\n  raise", False),
        ("try: f()\nexcept Exception as e: log(e)", False),
    ],
)
def test_the_search_for_swallowed_cancellation_judges(code: str, swallows: bool) -> None:
    assert bool(list(_swallows(ast.parse(code)))) is swallows


# --- modules ---


def _is_empty(path: Path) -> bool:
    statements = parsed(path).body
    return not statements or (len(statements) == 1 and ast.get_docstring(parsed(path)) is not None)


def _exported(tree: ast.Module) -> list[str] | None:
    """Return what a literal `__all__` lists, or None if there is none."""
    for node in tree.body:
        targets = (
            node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
        )
        if any(isinstance(target, ast.Name) and target.id == "__all__" for target in targets):
            value = node.value if isinstance(node, ast.Assign | ast.AnnAssign) else None
            return None if value is None else list(ast.literal_eval(value))
    return None


def test_every_module_opens_with_a_docstring() -> None:
    assert [
        str(path.relative_to(ROOT))
        for path in source_files()
        if not ast.get_docstring(parsed(path)) and not (path.name == "__init__.py" and _is_empty(path))
    ] == []


def test_every_public_module_says_what_it_exports() -> None:
    silent: list[str] = []
    for path in source_files():
        private = _is_empty(path) if path.name == "__init__.py" else path.name.startswith("_")
        if not private and _exported(parsed(path)) is None:
            silent.append(str(path.relative_to(ROOT)))
    assert silent == []


def test_no_module_reaches_around_the_layers_through_the_package_root() -> None:
    """`from retinue import Host` would import from every layer at once; only submodules may be named so."""
    children = {path.stem for path in PACKAGE.iterdir()}
    around = [
        place(path, node)
        for path in source_files()
        if path != PACKAGE / "__init__.py"
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.ImportFrom)
        and node.module == "retinue"
        and not all(name.name in children or name.name == "__version__" for name in node.names)
    ]
    assert around == []


def test_errors_import_nothing_of_the_package() -> None:
    path = PACKAGE / "errors.py"
    relative = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ImportFrom) and node.level]
    assert relative == []
    assert [name for _, name in _imports(path) if name.split(".")[0] == "retinue"] == []


def _imports(path: Path) -> Iterator[tuple[ast.stmt, str]]:
    for node in ast.walk(parsed(path)):
        if isinstance(node, ast.Import):
            yield from ((node, name.name) for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0:
            yield node, node.module or ""


def test_only_the_stores_know_the_database_binding() -> None:
    outside = [path for path in source_files() if not path.is_relative_to(PACKAGE / "store")]
    assert [
        place(path, node)
        for path in outside
        for node, name in _imports(path)
        if name.split(".")[0] in {"apsw", "sqlite3", "psycopg"}
    ] == []


def test_every_folder_is_a_package() -> None:
    """The linter does not look into a folder without `__init__.py`, so its imports would go unchecked."""
    folders = {path.parent for path in source_files()}
    assert [str(folder.relative_to(ROOT)) for folder in folders if not (folder / "__init__.py").exists()] == []


def test_every_module_belongs_to_a_layer() -> None:
    layers = set[str]().union(*_layers_in_contract())
    strays = {module_name(path).split(".")[1] for path in source_files() if path != PACKAGE / "__init__.py"} - layers
    assert strays <= {"__main__"}


# --- the loop ---


def _feature_words(text: str) -> list[str]:
    """Return the feature words in the text, split at underscores and capitals; a task group is no feature."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|_", " ", text).lower()
    words = re.sub(r"\btask (group|status)\b", "", words)
    return re.findall(rf"\b(?:{'|'.join(FEATURE_WORDS)})s?\b", words)


def test_the_loop_names_no_feature() -> None:
    assert _feature_words((PACKAGE / "agent" / "loop.py").read_text(encoding="utf-8")) == []


def test_the_search_for_feature_words_splits_names() -> None:
    assert _feature_words("SubagentTool(task_list, mcpServer) # reports") == ["subagent", "task", "mcp", "reports"]
    assert _feature_words("async with create_task_group() as tg: TaskGroup; TaskStatus; multitasking") == []
