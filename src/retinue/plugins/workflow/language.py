"""What a workflow script may say: a part of Python from which nothing but the hooks can be reached.

It runs in the interpreter of the script, before the script does, and imports nothing but the standard library. It is
the inner of two walls: the process that it runs in has no files, no network and little memory.
"""

from __future__ import annotations

import ast
import builtins
import collections
import functools
import itertools
import json
import math
import re
import statistics
import string
import textwrap
from collections.abc import Callable, Iterator
from types import CodeType, ModuleType, SimpleNamespace
from typing import Any, cast

__all__ = ["SCRIPT", "Refused", "compile_script", "scope"]

SCRIPT = "<script>"
"""The file name that stands for the script in tracebacks."""

_FUNCTION = "workflow"

_NODES: tuple[type[ast.AST], ...] = (
    # Statements.
    ast.FunctionDef, ast.AsyncFunctionDef, ast.Return, ast.Delete, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For,
    ast.While, ast.If, ast.Match, ast.Raise, ast.Try, ast.Assert, ast.Import, ast.ImportFrom, ast.Global, ast.Nonlocal,
    ast.Expr, ast.Pass, ast.Break, ast.Continue,
    # Expressions.
    ast.BoolOp, ast.NamedExpr, ast.BinOp, ast.UnaryOp, ast.Lambda, ast.IfExp, ast.Dict, ast.Set, ast.ListComp,
    ast.SetComp, ast.DictComp, ast.GeneratorExp, ast.Await, ast.Yield, ast.YieldFrom, ast.Compare, ast.Call,
    ast.FormattedValue, ast.JoinedStr, ast.Constant, ast.Attribute, ast.Subscript, ast.Starred, ast.Name, ast.List,
    ast.Tuple, ast.Slice,
    # What these are made of.
    ast.Module, ast.expr_context, ast.boolop, ast.operator, ast.unaryop, ast.cmpop, ast.comprehension,
    ast.ExceptHandler, ast.arguments, ast.arg, ast.keyword, ast.alias, ast.match_case, ast.pattern,
)  # fmt: skip

_FRAMES = ("gi_", "cr_", "ag_", "f_", "tb_", "co_")
"""Attributes that begin so lead from a generator, coroutine or traceback to the frames of others."""
_ATTRIBUTES = frozenset({"format", "format_map", "mro"})
"""`format` reads attributes that stand in a string, where nobody sees them; an f-string does the same openly."""

_BUILTINS = """
    abs all any ascii bin bool bytearray bytes callable chr dict divmod enumerate filter float frozenset hash hex int
    isinstance issubclass iter len list map max min next oct ord pow range repr reversed round set slice sorted str sum
    tuple zip
    ArithmeticError AssertionError AttributeError Exception IndexError KeyError LookupError NameError
    NotImplementedError OverflowError RuntimeError StopIteration TypeError UnicodeError ValueError ZeroDivisionError
"""


def _public(module: ModuleType) -> dict[str, Any]:
    return {name: value for name, value in vars(module).items() if not name.startswith("_")}


def _some(module: ModuleType, names: str) -> dict[str, Any]:
    return {name: getattr(module, name) for name in names.split()}


_MODULES: dict[str, dict[str, Any]] = {
    "collections": _some(collections, "Counter OrderedDict defaultdict deque"),
    "functools": _some(functools, "cmp_to_key partial reduce"),
    "itertools": _public(itertools),
    "json": _some(json, "JSONDecodeError dumps loads"),
    "math": _public(math),
    "re": _some(
        re,
        "ASCII DOTALL I IGNORECASE M MULTILINE S VERBOSE X compile escape findall finditer fullmatch match search "
        "split sub subn",
    ),
    "statistics": _some(statistics, "StatisticsError fmean mean median mode multimode pstdev quantiles stdev variance"),
    "string": _some(string, "ascii_letters ascii_lowercase ascii_uppercase digits hexdigits punctuation whitespace"),
    "textwrap": _some(textwrap, "dedent fill indent shorten wrap"),
}
"""Values, so that no way leads from a module to those that it uses itself."""


class Refused(Exception):
    """The script says what it may not say."""

    def __init__(self, line: int | None, message: str) -> None:
        super().__init__(message)
        self.line = line


def compile_script(source: str) -> CodeType:
    """Code that defines the script as an async function, for `scope`. Raises: Refused, SyntaxError, ValueError."""
    tree = ast.parse(source, SCRIPT)
    for node in ast.walk(tree):
        _check(node)
    body = tree.body or [ast.Pass()]
    arguments = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    function = ast.AsyncFunctionDef(name=_FUNCTION, args=arguments, body=body, decorator_list=[])
    if "type_params" in ast.AsyncFunctionDef._fields:
        function.type_params = []  # type: ignore[attr-defined]
    whole = ast.fix_missing_locations(ast.Module(body=[function], type_ignores=[]))
    return compile(whole, SCRIPT, "exec", dont_inherit=True)


def scope(code: CodeType, hooks: dict[str, Any]) -> Callable[[], Any]:
    """The script as a function, whose world is the hooks and the harmless builtins."""
    allowed: dict[str, Any] = {name: getattr(builtins, name) for name in _BUILTINS.split()}
    world: dict[str, Any] = {"__builtins__": {**allowed, "__import__": _import}, "__name__": SCRIPT, **hooks}
    exec(code, world)
    return world[_FUNCTION]


def _import(name: str, *_: Any, **__: Any) -> SimpleNamespace:
    return SimpleNamespace(**_MODULES[name])


def _check(node: ast.AST) -> None:
    line = getattr(node, "lineno", None)
    if not isinstance(node, _NODES):
        raise Refused(line, f"{type(node).__name__} is not part of what a workflow may say")
    if isinstance(node, ast.Import | ast.ImportFrom):
        _check_import(node, line)
    for name in _identifiers(node):
        if name.startswith("__"):
            raise Refused(line, f"{name}: names with two underscores at the front are not available")
    for name in _attributes(node):
        if name.startswith(("_", *_FRAMES)) or name in _ATTRIBUTES:
            hint = "; use an f-string" if name in ("format", "format_map") else ""
            raise Refused(line, f"the attribute {name} is not available{hint}")


def _check_import(node: ast.Import | ast.ImportFrom, line: int | None) -> None:
    asked = [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module or "."]
    for name in asked:
        if name not in _MODULES:
            raise Refused(line, f"{name} cannot be imported; there are {', '.join(_MODULES)}")
    if isinstance(node, ast.ImportFrom):
        for alias in node.names:
            if alias.name not in _MODULES[asked[0]] or node.level:
                raise Refused(line, f"{alias.name} of {asked[0]} is not available")


def _identifiers(node: ast.AST) -> Iterator[str]:
    """Every name in the node, whatever kind of name it is."""
    if isinstance(node, ast.Constant):
        return
    for _, value in ast.iter_fields(node):
        items = cast("list[object]", value) if isinstance(value, list) else [value]
        yield from [item for item in items if isinstance(item, str)]


def _attributes(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Attribute):
        return [node.attr]
    return node.kwd_attrs if isinstance(node, ast.MatchClass) else []
