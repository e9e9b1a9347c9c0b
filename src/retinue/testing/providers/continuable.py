"""Checks of continuable children, for providers that have them. Their names are sentences about every such provider."""

from __future__ import annotations

from retinue.agent.agent import Agent
from retinue.base.ids import SessionId
from retinue.session.events import ActivationEnd
from retinue.testing.providers.world import ANSWER, BAD_ENDS, Check, OpenWorld, World
from retinue.tools.tool import CallKey

__all__ = ["CONTINUABLE_CHECKS"]


async def _settlements(world: World, parent: SessionId, child: SessionId) -> list[str]:
    """How the activations of the child ended; the parent has one notice of each."""
    ends = [event.data.outcome for event in await world.events(child) if isinstance(event.data, ActivationEnd)]
    notices = await world.rows(parent, "subagent-settled")
    of_child = [row for row in notices if row.delivery.message.source.sender_session_id == child]
    assert len(of_child) == len(ends), f"{len(ends)} activations ended, and the parent was told of {len(of_child)}"
    return ends


async def _quiet(world: World, parent: Agent) -> None:
    await world.continuations.wait_quiet(parent)


async def an_accepted_child_settles_once(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        accepted = await world.continuations.start(world.provider, world.request(parent, "answer"))
        await _quiet(world, parent)
        assert await _settlements(world, parent.id, accepted.child_id) == ["completed"]
        (notice,) = await world.rows(parent.id, "subagent-settled")
        assert ANSWER in str(notice.delivery.message.content)


async def the_same_call_starts_a_child_once(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        request = world.request(parent, "answer", key=CallKey(session_id=parent.id, seq=1, index=0))
        first = await world.continuations.start(world.provider, request)
        await _quiet(world, parent)
        assert await world.continuations.start(world.provider, request) == first
        await _quiet(world, parent)
        assert await _settlements(world, parent.id, first.child_id) == ["completed"]


async def every_way_to_end_settles_with_its_name(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        for behaviour, ending in BAD_ENDS:
            accepted = await world.continuations.start(world.provider, world.request(parent, behaviour))
            await _quiet(world, parent)
            assert await _settlements(world, parent.id, accepted.child_id) == [ending]


async def a_message_to_a_settled_child_is_another_activation(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        accepted = await world.continuations.start(world.provider, world.request(parent, "fail"))
        await _quiet(world, parent)
        await world.continuations.send(parent, accepted.child_id, world.prompt("answer"))
        await _quiet(world, parent)
        assert await _settlements(world, parent.id, accepted.child_id) == ["error", "completed"]


async def a_message_to_a_busy_child_waits_for_its_turn(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        accepted = await world.continuations.start(world.provider, world.request(parent, "hang"))
        await world.wait_hanging(1)
        await world.continuations.send(parent, accepted.child_id, world.prompt("answer"))
        world.continuations.interrupt(accepted.child_id, parent)
        await _quiet(world, parent)
        assert await _settlements(world, parent.id, accepted.child_id) == ["aborted"], "the queue is parked"
        await world.continuations.send(parent, accepted.child_id, world.prompt("answer"))
        await _quiet(world, parent)
        assert await _settlements(world, parent.id, accepted.child_id) == ["aborted", "completed"]
        rows = await world.rows(accepted.child_id, "coordinator")
        assert [row.state for row in rows] == ["claimed", "claimed"]


async def draining_settles_whatever_hangs(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        request = world.request(parent, "hang")
        accepted = [await world.continuations.start(world.provider, request) for _ in range(2)]
        await world.wait_hanging(2)
        await world.continuations.drain_below(parent)
        for one in accepted:
            assert await _settlements(world, parent.id, one.child_id) == ["aborted"]
        assert [agent for agent in world.host.agents.list() if agent is not parent] == []


async def a_child_goes_on_after_a_restart_and_settles_once(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        accepted = await world.continuations.start(world.provider, world.request(parent, "hang"))
        await world.wait_hanging(1)
        await parent.wait_idle()
    async with open_world() as world:
        root = await world.again(parent.id)
        await world.wait_hanging(1)
        assert await _settlements(world, root.id, accepted.child_id) == []
        world.continuations.interrupt(accepted.child_id, root)
        await _quiet(world, root)
        assert await _settlements(world, root.id, accepted.child_id) == ["aborted"]
        await world.continuations.send(root, accepted.child_id, world.prompt("answer"))
        await _quiet(world, root)
        assert await _settlements(world, root.id, accepted.child_id) == ["aborted", "completed"]


async def a_settled_child_takes_a_message_after_a_restart(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        accepted = await world.continuations.start(world.provider, world.request(parent, "answer"))
        await _quiet(world, parent)
    async with open_world() as world:
        root = await world.again(parent.id)
        await world.continuations.send(root, accepted.child_id, world.prompt("answer"))
        await _quiet(world, root)
        assert await _settlements(world, root.id, accepted.child_id) == ["completed", "completed"]


CONTINUABLE_CHECKS: tuple[Check, ...] = (
    an_accepted_child_settles_once,
    the_same_call_starts_a_child_once,
    every_way_to_end_settles_with_its_name,
    a_message_to_a_settled_child_is_another_activation,
    a_message_to_a_busy_child_waits_for_its_turn,
    draining_settles_whatever_hangs,
    a_child_goes_on_after_a_restart_and_settles_once,
    a_settled_child_takes_a_message_after_a_restart,
)
