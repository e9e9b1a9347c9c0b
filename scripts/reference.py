"""Write docs/reference from the code: configuration, events, errors, commands. `--check` only compares.

What a page says is what the code says: fields and defaults come from structs, descriptions from docstrings and from the
string literal after a field, commands from their own help.
"""

from __future__ import annotations

import ast
import difflib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator, Sequence
from copy import copy
from functools import cache
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, get_type_hints

import click
import msgspec
from msgspec import NODEFAULT, Struct, StructMeta

from retinue.compose.forms import form_of

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "docs" / "reference"
_WIDTH = 100
_NOTE = "<!-- Written by scripts/reference.py from the code; change that and run `make docs`. -->"


# --- docstrings ---


@cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(import_module(module)))


@cache
def _own_field_texts(cls: type) -> dict[str, str]:
    """The string literal after each field that the class itself declares."""
    (node,) = [n for n in ast.walk(_tree(cls.__module__)) if isinstance(n, ast.ClassDef) and n.name == cls.__name__]
    texts: dict[str, str] = {}
    for field, after in zip(node.body, node.body[1:], strict=False):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            match after:
                case ast.Expr(value=ast.Constant(value=str(text))):
                    texts[field.target.id] = _line(text)
                case _:
                    pass
    return texts


def _field_text(cls: type, field: str) -> str:
    own = (_own_field_texts(base) for base in cls.__mro__ if base.__module__.startswith("retinue."))
    return next((texts[field] for texts in own if field in texts), "")


def _line(text: str) -> str:
    """One line of Markdown, without the notes that are for the code's own readers."""
    return re.sub(r"\s*\bSource: .*?(\.(?=\s|$)|$)", "", " ".join(text.split()))


def _doc(thing: object) -> str:
    """The docstring as paragraphs."""
    text = inspect.getdoc(thing) or ""
    assert text, f"{thing!r} has no docstring, and its reference would be empty"
    return "\n\n".join(filter(None, (_line(paragraph) for paragraph in text.split("\n\n"))))


def _summary(thing: object) -> str:
    return " ".join(_doc(thing).split("\n\n"))


# --- types and defaults ---


def _type(hint: Any, links: set[type[Struct]]) -> str:
    """`hint` as a reader of YAML or JSON knows it. Structs that it names are added to `links`."""

    def linked(struct: type[Struct]) -> str:
        links.add(struct)
        return f"[{struct.__name__}](#{struct.__name__.lower()})"

    return form_of(hint, linked)


def _default(field: msgspec.structs.FieldInfo) -> str:
    if field.required:
        return "required"
    value = field.default_factory() if field.default is NODEFAULT else field.default
    match value:
        case None:
            return "none"
        case bool():
            return f"`{str(value).lower()}`"
        case Struct():
            return "its defaults"
        case () | [] | {}:
            return "empty"
        case str() | int() | float():
            return f"`{value}`" if value != "" else "empty"
        case _:
            return f"`{msgspec.json.encode(value).decode()}`"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines)


def _fields(cls: type[Struct], links: set[type[Struct]], *, prefix: str = "", skip: Sequence[str] = ()) -> str:
    hints = get_type_hints(cls, include_extras=True)
    fields = [field for field in msgspec.structs.fields(cls) if field.name not in skip]
    rows = [
        [f"`{prefix}{field.name}`", _type(hints[field.name], links), _default(field), _field_text(cls, field.name)]
        for field in fields
    ]
    return _table(["field", "type", "default", "meaning"], rows)


def _page(title: str, *parts: str) -> str:
    return "\n\n".join([f"# {title}", _NOTE, *(part.strip("\n") for part in parts if part)]) + "\n"


# --- configuration ---


def configuration() -> str:
    """docs/reference/configuration.md"""
    from retinue.compose import config as module
    from retinue.compose.bundles import BUNDLES
    from retinue.compose.plugins import PLUGINS
    from retinue.model.adapters.providers import PROVIDERS

    seen: set[type[Struct]] = set()
    parts = [
        "A configuration is a YAML file. The nearest `retinue.yaml` counts, looked for in the working folder and then "
        "in its parents; without one, `retinue/retinue.yaml` in the user's configuration folder. `--config FILE` and "
        "`RETINUE_CONFIG` name another one.",
        _paragraphs(module)[1],
        "One option is set on the command line with `--set plugins.subagent.max_depth=2`; the value is YAML.",
        "## Top level",
        _fields(module.Config, seen, skip=("plugins",)),
        "`plugins` holds the options of each plugin by name. A plugin that the bundle does not have is added by naming "
        "it (`report: {}`); `null` leaves one out.",
        *_nested(
            seen,
            {module.Config},
            prefixes={module.StoreConfig: "store.", module.RecoveryConfig: "recovery.", module.RetryConfig: "retry."},
        ),
        "## Plugins",
    ]
    for name in PLUGINS:
        plugin = import_module(f"retinue.plugins.{name}")
        below: set[type[Struct]] = set()
        parts += [f"### {name}", *_about(plugin)]
        if msgspec.structs.fields(plugin.OPTIONS):
            parts.append(_fields(plugin.OPTIONS, below, prefix=f"plugins.{name}."))
        parts += _nested(below, seen | {plugin.OPTIONS}, level=4)
        seen |= below
    parts += ["## Bundles", "What a configuration starts from. Options that are not named have their defaults."]
    for name, bundle in BUNDLES.items():
        yaml = msgspec.yaml.encode(msgspec.to_builtins(bundle["plugins"])).decode()
        shown = textwrap.indent(yaml.strip("\n"), "  ")
        parts.append(f"```yaml\n# {name}\nplugins:\n{shown}\n```")
    parts += ["## Environment", _variables(), "## Model providers"]
    parts.append(
        "A model is written `PROVIDER:NAME`. Keys come from the environment or from a `.env` file in the working "
        "folder. Of that file only names that end in `_API_KEY` or `_BASE_URL`, and `RETINUE_MODEL`, are read."
    )
    rows = [
        [
            f"`{provider.name}`",
            f"`{provider.base_url}`" if provider.base_url else "set `base_url`",
            " or ".join(f"`{name}`" for name in provider.key_variables) + ("" if provider.needs_key else " (optional)"),
            f"`{provider.base_url_variable}`" if provider.base_url_variable else "",
        ]
        for provider in PROVIDERS.values()
    ]
    parts.append(_table(["provider", "address", "key", "another address"], rows))
    return _page("Configuration", *parts)


def _paragraphs(module: ModuleType) -> list[str]:
    """The module's docstring; tables and lists keep their lines."""
    paragraphs = (inspect.getdoc(module) or "").split("\n\n")
    return [p if p.startswith(("|", "-")) else _line(p) for p in paragraphs]


def _about(module: ModuleType) -> Iterator[str]:
    """What the module is, and its table with what must be read beside it."""
    paragraphs = _paragraphs(module)
    yield paragraphs[0]
    for before, paragraph in zip(["", *paragraphs], paragraphs, strict=False):
        if paragraph.startswith("|") or before.startswith("|"):
            yield paragraph


def _nested(
    found: set[type[Struct]],
    known: set[type[Struct]],
    *,
    prefixes: dict[type[Struct], str] | None = None,
    level: int = 3,
) -> Iterator[str]:
    """A section for each struct in `found`, and for those that these name."""
    done, todo = set(known), sorted(found - known, key=lambda cls: cls.__name__)
    for cls in todo:
        if cls in done:
            continue
        done.add(cls)
        more: set[type[Struct]] = set()
        table = _fields(cls, more, prefix=(prefixes or {}).get(cls, ""))
        yield "\n\n".join([f"{'#' * level} {cls.__name__}", _doc(cls), table])
        found |= more
        todo += sorted(more - done, key=lambda cls: cls.__name__)


def _variables() -> str:
    from retinue.compose import config

    rows = [[f"`{name}`", f"`{path}`"] for name, path in config._VARIABLES.items()]
    rows += [
        ["`RETINUE_CONFIG`", "the configuration file"],
        ["`RETINUE_CWD`", "working folder of the root agent; for the command line"],
        ["`RETINUE_SET`", "options as `--set` takes them, one a line; for the command line"],
        ["`RETINUE_DEBUG`", "if set, failures show their traceback; for the command line"],
    ]
    return _table(["variable", "sets"], rows)


# --- events ---

_SIGNALS = ("retinue.agent.signals", "retinue.subagent.lifecycle")


def events() -> str:
    """docs/reference/events.md"""
    from retinue.session.events import EVENT_TYPES, SessionHeader

    seen: set[type[Struct]] = set()
    parts = [
        "A session is a header and a log of events. `retinue log ID --json` shows a log as one object a line, with "
        "`type`, `seq` (from 0, without gaps), `time` (epoch milliseconds) and `data`. Fields that have their default "
        "are left out of `data`. Events are never changed or removed.",
        "## Header",
        _doc(SessionHeader),
        _fields(SessionHeader, seen),
        "## Events",
    ]
    for name, cls in EVENT_TYPES.items():
        # Some docstrings begin with the name that the heading has already.
        text = re.sub(rf"^`{re.escape(name)}`: (.)", lambda m: m.group(1).upper(), _doc(cls))
        parts += [f"### `{name}`", text]
        if msgspec.structs.fields(cls):
            parts.append(_fields(cls, seen))
    parts += ["## Values inside", "Blocks of content carry their kind as `type`, messages carry theirs as `role`."]
    parts += _nested(seen, set())
    parts += [
        "## Live notifications",
        "Not durable and not in the log. `agent.bus.on(TYPE, listener)` hears those of one agent, and what becomes of "
        "the children that it started; `app.host.bus.on` hears all of them. Listeners are called synchronously, and "
        "one that fails is logged and starves nobody.",
    ]
    for module in map(import_module, _SIGNALS):
        rows = [
            [f"`{name}`", ", ".join(f"`{f}`" for f in cls.__struct_fields__), _summary(cls)]
            for name in module.__all__
            if isinstance(cls := getattr(module, name), StructMeta)
        ]
        parts += [f"From `{module.__name__}`:", _table(["type", "fields", "meaning"], rows)]
    return _page("Events", *parts)


# --- errors ---


def errors() -> str:
    """docs/reference/errors.md"""
    from retinue import errors as module

    parts = [
        "Everything that Retinue raises is a `RetinueError` from `retinue.errors` with a stable `code`. How a turn, a "
        "child or a task ended is never an exception but a value. On the command line an error is one line on stderr, "
        "`retinue: CODE: message`, and the exit code is 2 for what the caller can fix and 1 otherwise.",
        "## Classes",
        _table(["code", "class", "is a", "meaning"], list(_classes(module))),
        _doc(module.ModelError).partition("\n\n")[2] + " Its code is shown with the kind, as in `MODEL_RATE_LIMIT`.",
        "## Codes of tool results",
        "What a tool answers when it refuses or fails. The model sees `Error: ` and a message; the code stands in the "
        "log under `error` of the `tool/result`. An error of the table above that a tool raises appears with its own "
        "code. A foreground delegation that did not complete has `SUBAGENT_` and its ending.",
        _table(
            ["code", "comes from"],
            [[f"`{code}`", ", ".join(f"`{m}`" for m in sorted(where))] for code, where in _tool_codes()],
        ),
    ]
    return _page("Errors", *parts)


def _classes(module: ModuleType) -> Iterator[list[str]]:
    classes = [cls for cls in vars(module).values() if isinstance(cls, type) and issubclass(cls, module.RetinueError)]
    for cls in classes:
        above = cls.__mro__[1].__name__ if cls is not module.RetinueError else "Exception"
        yield [f"`{cls.code}`", f"`{cls.__name__}`", f"`{above}`", _doc(cls).partition("\n\n")[0]]


def _tool_codes() -> list[tuple[str, set[str]]]:
    """Every literal code with which a tool fails, and the modules that use it."""
    found: dict[str, set[str]] = {}
    package = ROOT / "src" / "retinue"
    for path in sorted(package.rglob("*.py")):
        if path.is_relative_to(package / "testing") or path.is_relative_to(package / "cli"):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Call(
                    func=ast.Name(id="ToolFailure") | ast.Attribute(value=ast.Name(id="ToolResult"), attr="error"),
                    args=[ast.Constant(value=str(code)), *_],
                ):
                    # Folders alone: where in a layer a check stands is nobody's business.
                    folders = path.relative_to(package.parent).parts[:3]
                    where = folders[:2] if folders[1] != "plugins" else (*folders[:2], folders[2].removesuffix(".py"))
                    found.setdefault(code, set()).add(".".join(where))
                case _:
                    pass
    return sorted(found.items())


# --- scenarios ---


def scenarios() -> str:
    """docs/reference/scenarios.md"""
    from retinue.testing.scenario import form as module

    seen: set[type[Struct]] = set()
    parts = [
        "A scenario is a folder with a `scenario.yaml`. It says what is asked of a configuration and what the model "
        "answers; the other files say what comes of it. [Pinning what your agents see](../guides/pinning.md) shows how "
        "one is made.",
        "## Files",
        _table(["file", "holds"], [[f"`{name}`", holds] for name, holds in _FILES]),
        "## Fields of scenario.yaml",
        _fields(module.ScenarioForm, seen),
        *_nested(seen, {module.ScenarioForm}),
    ]
    return _page("Scenarios", *parts)


_FILES = (
    ("scenario.yaml", "the form below"),
    ("scripts.yaml", "the list `scripts` of the form, in place of it; `retinue scenario record` writes it"),
    ("files/", "what the working folder begins with"),
    ("stdout.expected", "what the front end showed"),
    ("session.jsonl", "the root's log, without seqs and times; ids and paths have names such as `<session.1>`"),
    ("session.N.jsonl", "the logs of its descendants, parents before children, in the order of the calls"),
    ("request-header.expected.json", "the class of the root's requests, and their options"),
    ("system-prompt.expected.md", "the system prompt of the class, where it is pinned"),
    ("tool-schemas.expected.json", "the tools of the class, where it is pinned"),
    ("system-prompt.N.expected.md", "the system prompt of session N, if `pins_child_system_prompts` names it"),
    ("tool-schemas.N.expected.json", "the tools of session N, if `pins_child_tool_schemas` names it"),
)


# --- commands ---

_STREAMS = """\
With `--output text` the answer alone is on stdout; progress and diagnostics are on stderr. With `--output json` stdout
is one result object. With `--output jsonl` it is one object a line as things happen, each with `type`, `session_id` and
`time` (seconds since the epoch):

- `event`: one event of the root or of any descendant, under `event`; see [events](events.md).
- `chunk`: live text, only with `--stream`. It is provisional: one of kind `withdrawn` says that what came before it,
  since the last reply of that session, counts for nothing.
- `external-call`: an agent that works in another program makes a call of its own there, or has got on with it. Under
  `call` it is as it stands now: `turn`, `step`, the program's `id`, `title`, `kind` and `status` (`pending`,
  `in_progress`, `completed` or `failed`). Nothing of it is logged; of a call that was under way when its step ended no
  more is said.
- `result`: last, and once. `session_id`, `outcome`, `output` (text), `usage` of the whole tree, `agents` (`id`,
  `parent_id`, `label`, `mode`, `outcome` and `usage` of each), `abandoned` and `stopped` (ids), and `error` (`code` and
  `message`, or null).

A consumer skips types that it does not know."""

_EXIT_CODES = """\
| code | meaning |
|---|---|
| 0 | the last turn completed and nothing was abandoned |
| 1 | the last turn failed, was refused or was cut off |
| 2 | usage or configuration |
| 3 | it completed, but children or tasks were still at work when the wait for them ended |
| 130, 143 | ended by SIGINT or SIGTERM; everything is kept as it is, and `retinue resume` goes on |"""


def command_line() -> str:
    """docs/reference/command-line.md"""
    from retinue.cli.group import COMMANDS, retinue

    parts = [
        "An id may be shortened to a unique prefix. Views never take a lease and work beside a live process.",
        "The common options stand under `retinue` alone; every command but those of `scenario` takes them too.",
    ]
    parts += ["## retinue", _help(retinue, "retinue")]
    for name in COMMANDS:
        parent = click.Context(retinue, info_name="retinue")
        command = retinue.get_command(parent, name)
        assert command is not None
        parts += [f"## retinue {name}", _help(command, name, parent)]
        if isinstance(command, click.Group):
            group = click.Context(command, info_name=name, parent=parent)
            for below, sub in command.commands.items():
                parts += [f"### retinue {name} {below}", _help(sub, below, group)]
    parts += ["## Output of run and resume", _STREAMS, "## Exit codes of run and resume", _EXIT_CODES]
    return _page("Command line", *parts)


def _help(command: click.Command, name: str, parent: click.Context | None = None) -> str:
    settings: dict[str, Any] = {**command.context_settings, "terminal_width": _WIDTH, "max_content_width": _WIDTH}
    if parent is not None:
        settings["help_option_names"] = ["-h", "--help"]
        command = _own(command)
    context = click.Context(command, info_name=name, parent=parent, **settings)
    text = "\n".join(line.rstrip() for line in command.get_help(context).splitlines())
    return f"```text\n{text}\n```"


def _own(command: click.Command) -> click.Command:
    """The command without the common options, if it takes them, and without `--help`."""
    common = {option.name for option in _plain_command().params}
    if not common <= {option.name for option in command.params}:
        return command
    command = copy(command)
    command.params = [option for option in command.params if option.name not in common]
    command.add_help_option = False
    return command


def _plain_command() -> click.Command:
    from retinue.cli.options import common_options

    return click.command(common_options(lambda: None))


# --- files ---

PAGES = {
    "configuration": configuration,
    "events": events,
    "errors": errors,
    "command-line": command_line,
    "scenarios": scenarios,
}


def stale() -> dict[Path, str]:
    """What each page that differs from the code should say."""
    wanted = {FOLDER / f"{name}.md": page() for name, page in PAGES.items()}
    return {
        path: text for path, text in wanted.items() if not path.is_file() or path.read_text(encoding="utf-8") != text
    }


def differences() -> str:
    """What `make docs` would change, as a diff."""
    lines: list[str] = []
    for path, text in stale().items():
        have = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        name = path.relative_to(ROOT).as_posix()
        lines += difflib.unified_diff(have, text.splitlines(), name, "the code", lineterm="", n=1)
    return "\n".join(lines)


def main() -> int:
    if sys.argv[1:] == ["--check"]:
        found = differences()
        print(found or "docs/reference agrees with the code")
        return 1 if found else 0
    FOLDER.mkdir(parents=True, exist_ok=True)
    for path, text in stale().items():
        path.write_text(text, encoding="utf-8")
        print(f"wrote {path.relative_to(ROOT).as_posix()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
