"""Who sees which tool, and in which order the model is offered them."""

import pytest

from retinue.errors import AgentClosing, BadInput, ConfigError, DuplicateName, NotFound
from retinue.tools.function import tool
from retinue.tools.registry import ToolRegistry
from retinue.tools.tool import Tool


def _tool(name: str, text: str = "X.") -> Tool:
    @tool(name=name, description=text)
    async def body() -> str:
        return name

    return body


def _registry(*names: str) -> ToolRegistry:
    registry = ToolRegistry()
    for name in names:
        registry.add(_tool(name))
    return registry


def _names(registry: ToolRegistry, order: list[str] | None = None) -> list[str]:
    return [spec.name for spec in registry.specs(order)]


def test_tools_are_offered_in_code_unit_order() -> None:
    assert _names(_registry("write", "Edit", "a_b", "aB", "read")) == ["Edit", "aB", "a_b", "read", "write"]


def test_the_nearest_scope_wins_and_undo_brings_the_inherited_one_back() -> None:
    registry = _registry("read")
    child = registry.child()
    mine = _tool("read", "Mine.")
    with child.add(mine):
        assert child.get("read") is mine
        assert registry.get("read") is not mine
    assert child.get("read") is registry.get("read")


def test_a_name_is_taken_once_per_scope() -> None:
    registry = _registry("read")
    with pytest.raises(DuplicateName):
        registry.add(_tool("read"))


def test_a_childs_tool_is_invisible_to_parent_and_siblings() -> None:
    registry = _registry("read")
    one, two = registry.child(), registry.child()
    one.add(_tool("report"))
    assert (_names(one), _names(two), _names(registry)) == (["read", "report"], ["read"], ["read"])


def test_restrictions_intersect_and_spare_own_tools() -> None:
    registry = _registry("bash", "edit", "read", "write")
    child = registry.child()
    child.add(_tool("report"))
    undo = child.restrict(allow=["read", "edit", "bash"])
    child.restrict(deny=["bash"])
    assert _names(child) == ["edit", "read", "report"]
    assert child.get("bash") is None
    grandchild = child.child()
    grandchild.restrict(allow=["read"])
    assert _names(grandchild) == ["read"]
    undo()
    assert _names(child) == ["edit", "read", "report", "write"]


def test_an_empty_allow_list_hides_everything_inherited() -> None:
    child = _registry("read", "edit").child()
    child.add(_tool("report"))
    child.restrict(allow=[])
    assert _names(child) == ["report"]


def test_a_filter_that_says_nothing_or_names_nothing_is_refused() -> None:
    registry = _registry("read", "edit")
    child = registry.child()
    with pytest.raises(BadInput):
        child.restrict()
    with pytest.raises(BadInput):
        registry.restrict(deny=["read"])
    with pytest.raises(NotFound, match=r"'grep'.*'edit', 'read'"):
        child.restrict(allow=["read", "grep"])
    assert _names(child) == ["edit", "read"]


def test_a_tool_added_later_is_seen_by_a_deny_list_and_not_by_an_allow_list() -> None:
    registry = _registry("read")
    denying, allowing = registry.child(), registry.child()
    denying.restrict(deny=["read"])
    allowing.restrict(allow=["read"])
    registry.add(_tool("late"))
    assert (_names(denying), _names(allowing)) == (["late"], ["read"])


def test_a_closed_scope_sees_nothing_and_takes_nothing() -> None:
    registry = _registry("read", "bash")
    child = registry.child()
    child.restrict(deny=["bash"])
    child.close()
    assert child.get("bash") is None
    assert child.specs() == ()
    with pytest.raises(AgentClosing):
        child.add(_tool("x"))
    with pytest.raises(AgentClosing):
        child.restrict(deny=["read"])


def test_an_order_places_named_tools_and_the_rest() -> None:
    registry = _registry("bash", "edit", "read", "write")
    assert _names(registry, ["write", "<unlisted-tools>", "bash"]) == ["write", "edit", "read", "bash"]
    child = registry.child()
    child.restrict(deny=["bash"])
    assert _names(child, ["write", "<unlisted-tools>", "bash"]) == ["write", "edit", "read"]


@pytest.mark.parametrize(
    "order",
    [[], ["read"], ["<unlisted-tools>", "<unlisted-tools>"], ["<unlisted-tools>", "grep"], ["read", "read"]],
)
def test_an_order_that_makes_no_sense_is_refused(order: list[str]) -> None:
    with pytest.raises(ConfigError):
        _registry("read").specs(order)


def test_an_order_may_hold_what_another_scope_registers() -> None:
    registry = _registry("read")
    registry.declare("report")
    order = ["report", "<unlisted-tools>"]
    assert _names(registry, order) == ["read"]
    child = registry.child()
    child.add(_tool("report"))
    assert _names(child, order) == ["report", "read"]


def test_an_order_may_hold_what_some_scope_has_but_a_filter_may_not() -> None:
    registry = _registry("read")
    other, child = registry.child(), registry.child()
    other.offer(_tool("agent_x"))
    registry.expect("report")
    assert _names(child, ["agent_x", "report", "<unlisted-tools>"]) == ["read"]
    for name in ("agent_x", "report"):
        with pytest.raises(NotFound, match=name):
            child.restrict(deny=[name])


def test_the_list_is_one_object_until_something_changes() -> None:
    registry = _registry("read")
    order = ["<unlisted-tools>", "read"]
    first, ordered = registry.specs(), registry.specs(order)
    assert registry.specs() == first
    assert registry.specs() is registry.specs()
    assert registry.specs(list(order)) is registry.specs(tuple(order))
    with registry.add(_tool("edit")):
        assert registry.specs() != first
    assert registry.specs() == first
    assert registry.specs(order) == ordered


def test_children_that_see_the_same_share_one_list() -> None:
    registry = _registry("read", "bash")
    plain = [registry.child() for _ in range(1000)]
    for child in plain:
        assert child.specs() is registry.specs()
    narrowed = [registry.child() for _ in range(1000)]
    report = _tool("report")
    for child in narrowed:
        child.restrict(deny=["bash"])
        child.add(report)
    assert len({id(child.specs()) for child in narrowed}) == 1
    assert _names(narrowed[0]) == ["read", "report"]
