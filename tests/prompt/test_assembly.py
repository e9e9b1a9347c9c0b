"""Sections become one prompt: order, scope, gates and variables."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.errors import AgentClosing, BadInput, DuplicateName, PromptError
from retinue.prompt.assembly import assemble, render
from retinue.prompt.sections import AssemblyContext, PromptRegistry, Section, SectionText

CONTEXT = AssemblyContext(
    provider="ollama", model="m", cwd=Path("/p"), tools={"bash"}, variables={"name": "{{model}}", "gone": None}
)


def _registry(*sections: Section) -> PromptRegistry:
    registry = PromptRegistry()
    for section in sections:
        registry.add(section)
    return registry


def _section(
    name: str, order: float = 0, text: SectionText | None = None, *, tool: str | None = None, complete: bool = False
) -> Section:
    return Section(name=name, order=order, text=name if text is None else text, tool=tool, complete=complete)


def test_sections_stand_in_order_and_ties_keep_registration_order() -> None:
    registry = _registry(_section("c", 2), _section("a", -100), _section("z", 1), _section("b", 1), _section("d", 1.5))
    assert assemble(registry, CONTEXT) == "a\n\nz\n\nb\n\nd\n\nc"


def test_empty_sections_vanish() -> None:
    registry = _registry(_section("a", text=""), _section("b", text=" \n"), _section("c", text="\n  c\n\n"))
    assert assemble(registry, CONTEXT) == "  c"
    assert assemble(PromptRegistry(), CONTEXT) == ""


@pytest.mark.parametrize("order", [math.nan, math.inf, -math.inf])
def test_an_order_that_is_not_finite_is_refused(order: float) -> None:
    with pytest.raises(BadInput):
        _section("a", order)


def test_a_scoped_section_replaces_the_inherited_one_of_its_name() -> None:
    registry = _registry(_section("persona", 0, "you are global"), _section("rest", 0))
    child = registry.child()
    with child.add(_section("persona", 0, "you are scoped")):
        assert assemble(child, CONTEXT) == "you are scoped\n\nrest"
        assert assemble(registry, CONTEXT) == "you are global\n\nrest"
    assert assemble(child, CONTEXT) == assemble(registry, CONTEXT)
    with pytest.raises(DuplicateName):
        registry.add(_section("rest"))


def test_a_change_takes_effect_at_the_next_assembly() -> None:
    registry = _registry(_section("a"))
    child = registry.child()
    undo = registry.add(_section("b", 1))
    assert assemble(child, CONTEXT) == "a\n\nb"
    undo()
    assert assemble(child, CONTEXT) == "a"


def test_guidance_goes_with_its_tool() -> None:
    registry = _registry(_section("tool:bash", tool="bash"), _section("tool:edit", text="{{unknown}}", tool="edit"))
    assert assemble(registry, CONTEXT) == "tool:bash"


def test_a_complete_section_is_the_only_one() -> None:
    registry = _registry(_section("a"), _section("whole", 5, complete=True), _section("z", 9))
    assert assemble(registry, CONTEXT) == "whole"


def test_two_effective_complete_sections_fail() -> None:
    registry = _registry(_section("one", complete=True), _section("two", tool="edit", complete=True))
    registry.add(_section("three", text="", complete=True))
    assert assemble(registry, CONTEXT) == "one"
    registry.add(_section("four", complete=True))
    with pytest.raises(PromptError, match="'one' and 'four'"):
        assemble(registry, CONTEXT)


def test_a_section_function_sees_the_context_and_its_text_is_not_scanned() -> None:
    registry = _registry(_section("f", text=lambda c: f"{sorted(c.tools)} {{{{any}}}}"))
    assert assemble(registry, CONTEXT) == "['bash'] {{any}}"


def test_a_section_function_that_fails_is_named() -> None:
    registry = _registry(_section("f", text=lambda c: str(1 // len(c.variables.get("gone") or ""))))
    with pytest.raises(PromptError, match="'f' failed: ZeroDivisionError"):
        assemble(registry, CONTEXT)


@pytest.mark.parametrize(
    ("text", "rendered"),
    [
        ("{{provider}}:{{model}} in {{cwd}}", "ollama:m in /p"),
        ("{{name}}", "{{model}}"),
        ("open {{ and nothing", "open {{ and nothing"),
        ("closed }} {{model}} then {{", "closed }} m then {{"),
        ("{{model}}{{model}}", "mm"),
        ("{ {model} }", "{ {model} }"),
        ("", ""),
    ],
)
def test_variables_are_put_in(text: str, rendered: str) -> None:
    assert render(text, CONTEXT) == rendered


@pytest.mark.parametrize(
    "text", ["{{unknown}}", "{{gone}}", "{{ model }}", "{{Model}}", "{{1a}}", "{{}}", "{{a-b}}", "{{{model}}}"]
)
def test_a_reference_that_cannot_be_resolved_fails_the_assembly(text: str) -> None:
    with pytest.raises(PromptError, match="prompt section 'a'"):
        assemble(_registry(_section("a", text=text)), CONTEXT)


def test_built_in_variables_cannot_be_redefined() -> None:
    with pytest.raises(BadInput):
        AssemblyContext(provider="p", model="m", cwd=Path("/"), variables={"cwd": "elsewhere"})


def test_a_closed_scope_has_no_sections() -> None:
    registry = _registry(_section("a"))
    child = registry.child()
    child.close()
    assert child.sections == ()
    with pytest.raises(AgentClosing):
        child.add(_section("b"))


@given(st.text(alphabet="ab {}\n"))
def test_text_without_a_closed_reference_is_kept_as_it_is(text: str) -> None:
    start = text.find("{{")
    if start < 0 or "}}" not in text[start + 2 :]:
        assert render(text, CONTEXT) == text


@given(st.lists(st.text(alphabet="xy{ ", max_size=4)), st.text())
def test_a_value_is_put_in_literally(pieces: list[str], value: str) -> None:
    pieces = [piece.replace("{", "") for piece in pieces]
    context = AssemblyContext(provider="p", model="m", cwd=Path("/"), variables={"v": value})
    assert render("{{v}}".join(pieces), context) == value.join(pieces)
