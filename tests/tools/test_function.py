"""Typed functions become tools: schema, validation, results."""

import threading
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

import anyio
import jsonschema_rs
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import Meta, Struct

from retinue.base.ids import SessionId
from retinue.base.json import JSONObject, encode
from retinue.errors import BadInput, ToolFailure
from retinue.model.content import Text, text_of
from retinue.tools.arguments import parse_arguments
from retinue.tools.function import schema_tool, tool
from retinue.tools.tool import CallKey, Tool, ToolContext, ToolResult


def _context(name: str = "t") -> ToolContext:
    key = CallKey(session_id=SessionId("s"), seq=1, index=0)
    return ToolContext(caller=None, key=key, name=name, call_id="c", turn=1, step=1)


async def _call(made: Tool, **arguments: Any) -> ToolResult:
    return await made.body(_context(made.name), arguments)


async def _refusal(made: Tool, arguments: JSONObject) -> ToolFailure:
    with pytest.raises(ToolFailure) as caught:
        await made.body(_context(made.name), arguments)
    with pytest.raises(ToolFailure):
        made.validate(arguments)
    return caught.value


class Range(Struct):
    start: Annotated[int, Meta(description="first line", ge=1)]
    end: int | None = None


class Tree(Struct):
    name: str
    children: list["Tree"] = []


class Found(Struct):
    path: str
    lines: list[int]


@dataclass
class Point:
    x: int
    y: int


@tool(safe=True)
async def look(
    ctx: ToolContext,
    path: Annotated[str, "where to look"],
    mode: Literal["files", "content"] = "content",
    within: Range | None = None,
    count: Annotated[int, "how many", Meta(ge=1, le=9)] = 3,
    tags: list[str] = ["a"],  # noqa: B006
) -> str:
    """Look at a place.

    It also may look elsewhere.

    Args:
        path: not part of the description.
    """
    return f"{ctx.name} {path} {mode} {within} {count} {tags}"


def test_the_schema_comes_from_the_signature() -> None:
    assert look.name == "look"
    assert look.spec.description == "Look at a place.\n\nIt also may look elsewhere."
    schema: Any = look.spec.parameters
    assert list(schema["properties"]) == ["path", "mode", "within", "count", "tags"]
    assert schema["required"] == ["path"]
    assert schema["properties"]["path"] == {"description": "where to look", "type": "string"}
    assert schema["properties"]["mode"] == {"enum": ["content", "files"], "default": "content"}
    assert schema["properties"]["count"]["description"] == "how many"
    assert schema["properties"]["count"]["maximum"] == 9
    assert schema["properties"]["within"]["anyOf"][0]["properties"]["start"]["description"] == "first line"
    assert b"$ref" not in encode(schema)
    assert "title" not in schema
    jsonschema_rs.Draft202012Validator(schema)


async def test_arguments_arrive_typed_and_defaults_apply() -> None:
    got = await _call(look, path="p", within={"start": 2}, count=4.0)
    assert got.content == (Text("look p content Range(start=2, end=None) 4 ['a']"),)
    assert not got.is_error


async def test_a_default_that_is_a_list_is_not_shared_between_calls() -> None:
    @tool
    async def grow(items: list[int] = [1]) -> list[int]:  # noqa: B006
        """Grow."""
        items.append(2)
        return items

    assert (await _call(grow)).value == [1, 2]
    assert (await _call(grow)).value == [1, 2]


async def test_every_violation_is_listed_with_its_path() -> None:
    refusal = await _refusal(
        look, {"mode": "lines", "within": {"start": 0}, "count": "many", "tags": ["a", 1], "file": "x"}
    )
    assert refusal.name == "INVALID_ARGS"
    text = str(refusal)
    assert "- path: required, but missing" in text
    assert '- mode: expected one of "content", "files", got a string ("lines")' in text
    assert "- within.start: 0 is less than the minimum of 1" in text
    assert '- count: expected integer, got a string ("many")' in text
    assert "- tags[1]: expected string, got a number (1)" in text
    assert "path (string, required)" in text
    assert "Not a parameter: 'file'" in text


async def test_a_value_that_fits_no_alternative_is_told_all_of_them() -> None:
    @tool
    async def either(a: int | list[str] | None = None) -> str:
        """Either."""
        return str(a)

    assert "- a: expected integer or array or null, got a boolean (true)" in str(await _refusal(either, {"a": True}))


async def test_undeclared_keys_are_tolerated() -> None:
    assert not (await _call(look, path="p", surprise={"x": 1})).is_error


async def test_a_huge_wrong_value_is_not_repeated_in_full() -> None:
    assert len(str(await _refusal(look, {"path": ["x" * 10_000]}))) < 1_000


async def test_a_recursive_type_keeps_a_legal_definition() -> None:
    @tool
    async def plant(tree: Tree) -> Tree:
        """Plant."""
        return tree

    jsonschema_rs.Draft202012Validator(plant.spec.parameters)
    value = {"name": "a", "children": [{"name": "b", "children": []}]}
    assert (await _call(plant, tree=value)).value == value
    assert "tree.children[0].name: required" in str(await _refusal(plant, {"tree": {"name": "a", "children": [{}]}}))


async def test_a_struct_is_shown_as_json_and_kept_as_value() -> None:
    @tool
    async def find() -> Found:
        """Find."""
        return Found("a", [1, 2])

    got = await _call(find)
    assert text_of(got.content) == '{"path":"a","lines":[1,2]}'
    assert got.value == {"path": "a", "lines": [1, 2]}


async def test_a_renderer_words_the_value() -> None:
    @tool(render=lambda point: f"at {point.x}")
    async def locate() -> Point:
        """Locate."""
        return Point(1, 2)

    got = await _call(locate)
    assert (text_of(got.content), got.value) == ("at 1", {"x": 1, "y": 2})


async def test_a_tool_result_passes_through() -> None:
    @tool
    async def give(bad: bool) -> str | ToolResult:
        """Give."""
        return ToolResult.error("NO", "not now") if bad else "fine"

    assert (await _call(give, bad=True)).code == "NO"
    assert text_of((await _call(give, bad=False)).content) == "fine"


async def test_a_return_value_that_breaks_its_declaration_is_refused() -> None:
    wrong: Any = {"path": 1}

    @tool
    async def one() -> Found:
        """One."""
        return Found(wrong, wrong)

    @tool
    async def two() -> str:
        """Two."""
        return wrong

    @tool
    async def three() -> ToolResult:
        """Three."""
        return wrong

    @tool
    async def four() -> dict[str, Any]:
        """Four."""
        return {"a": object()}

    for made in (one, two, three, four):
        with pytest.raises(ToolFailure) as caught:
            await _call(made)
        assert caught.value.name == "INVALID_TOOL_OUTPUT"


def test_what_cannot_be_a_tool_is_refused_at_decoration() -> None:
    async def silent(a: int):
        """Silent."""

    async def untyped(a) -> str:
        """Untyped."""
        return ""

    async def variadic(*a: int) -> str:
        """Variadic."""
        return ""

    async def foreign(a: threading.Lock) -> str:
        """Foreign."""
        return ""

    async def opaque() -> threading.Thread:
        """Opaque."""
        return threading.current_thread()

    async def wordless() -> str:
        return ""

    for function, reason in (
        (silent, "return annotation"),
        (untyped, "'a' needs a type"),
        (variadic, "passed by name"),
        (foreign, "foreign"),
        (opaque, "opaque"),
        (wordless, "description"),
    ):
        with pytest.raises(BadInput, match=reason):
            tool(function)
    with pytest.raises(BadInput, match="letters, digits"):
        tool(name="a b")(silent_ok)


async def silent_ok() -> None:
    """Do nothing."""


async def test_a_tool_without_a_result_says_that_it_is_done() -> None:
    got = await _call(tool(silent_ok))
    assert (got.content, got.value) == ((Text("(done)"),), None)


async def test_a_function_that_is_not_async_runs_in_a_worker_thread() -> None:
    @tool
    def where() -> bool:
        """Where."""
        return threading.current_thread() is threading.main_thread()

    assert (await _call(where)).value is False


async def test_a_threaded_body_with_a_timeout_lets_its_call_go_on() -> None:
    release = threading.Event()

    @tool(timeout_s=5)
    def stuck() -> None:
        """Stuck."""
        release.wait(30)

    with anyio.move_on_after(0.05) as scope:
        await _call(stuck)
    assert scope.cancelled_caught
    release.set()


def test_a_predicate_is_asked_only_about_valid_arguments() -> None:
    asked: list[JSONObject] = []

    def safe(arguments: JSONObject) -> bool:
        asked.append(arguments)
        return arguments["n"] == 1

    @tool(safe=safe)
    async def counted(n: int) -> None:
        """Count."""

    assert [counted.is_safe({"n": 1}), counted.is_safe({"n": 2}), counted.is_safe({"n": "1"})] == [True, False, False]
    assert asked == [{"n": 1}, {"n": 2}]
    assert look.is_safe({})
    assert not tool(silent_ok).is_safe({})


async def test_a_tool_from_a_schema_checks_its_arguments() -> None:
    async def body(_: ToolContext, arguments: JSONObject) -> ToolResult:
        return ToolResult.text(str(arguments["q"]))

    made = schema_tool(
        name="search",
        description="Search.",
        parameters={"properties": {"q": {"type": "string", "minLength": 1}}, "required": ["q"]},
        body=body,
        safe=True,
    )
    assert text_of((await _call(made, q="x", more=1)).content) == "x"
    assert (await _refusal(made, {"q": ""})).name == "INVALID_ARGS"
    assert made.is_safe({"q": "x"})
    assert not made.is_safe({})


@pytest.mark.parametrize(
    "schema",
    [
        {"type": "array"},
        {"type": "object", "properties": {"a": {"type": "nonsense"}}},
        {"type": "object", "properties": {"a": {"$ref": "https://example.org/schema.json"}}},
        {"type": "object", "properties": {"a": {"$ref": "#/$defs/missing"}}},
    ],
)
def test_an_unusable_schema_is_refused_when_the_tool_is_made(schema: JSONObject) -> None:
    async def body(_: ToolContext, __: JSONObject) -> ToolResult:
        return ToolResult.text("")

    with pytest.raises(BadInput):
        schema_tool(name="x", description="X.", parameters=schema, body=body)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        ('{"a" 1}', "character 5"),
        ('{"path": "x", "content": "unfin', "cut off"),
        ('{"a":', "cut off"),
        ("[1]", "an array"),
        ("null", "null"),
        ('"text"', "a string"),
        ('{"a":"\\ud800"}', "not valid JSON"),
        ('{"a":NaN}', "not valid JSON"),
        ('{"a":' * 100_000, "nested too deeply"),
    ],
)
def test_text_that_is_no_object_is_refused_with_the_reason(raw: str, said: str) -> None:
    with pytest.raises(ToolFailure, match=said) as caught:
        parse_arguments(raw)
    assert caught.value.name == "INVALID_ARGS"


def test_empty_text_is_an_empty_object() -> None:
    assert parse_arguments("") == parse_arguments(" \n") == {}
    assert parse_arguments('{"a": [1, "é"]}') == {"a": [1, "é"]}


@given(st.text())
def test_any_text_is_parsed_or_refused(raw: str) -> None:
    with suppress(ToolFailure):
        assert isinstance(parse_arguments(raw), dict)


_json = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | st.floats(allow_nan=False, width=16) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["start", "end", "a"]), inner),
)


@given(st.dictionaries(st.sampled_from(["path", "mode", "within", "count", "tags", "extra"]), _json))
def test_the_converter_and_the_schema_agree(arguments: dict[str, Any]) -> None:
    valid = jsonschema_rs.is_valid(look.spec.parameters, arguments)
    try:
        look.validate(arguments)
    except ToolFailure:
        assert not valid
    else:
        assert valid


def test_annotations_that_cannot_be_resolved_are_refused() -> None:
    async def lost(a: str) -> str:
        """Lost."""
        return a

    lost.__annotations__["a"] = "Nowhere"
    with pytest.raises(BadInput, match="Nowhere"):
        tool(lost)


def test_paths_are_no_json_and_refused() -> None:
    async def here(a: Path) -> str:
        """Here."""
        return ""

    with pytest.raises(BadInput):
        tool(here)
