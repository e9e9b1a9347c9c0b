"""Checks of one-shot runs. Their names are sentences about every provider."""

from __future__ import annotations

import anyio

from retinue.errors import DepthExceeded, UnsupportedCapability
from retinue.session.events import ToolFilter, TurnEnd, TurnStart
from retinue.session.folds import descriptor
from retinue.testing.providers.world import ANSWER, BAD_ENDS, Check, OpenWorld
from retinue.tools.tool import CallKey

__all__ = ["ONE_SHOT_CHECKS"]


async def a_run_completes_with_the_words_of_its_child(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        run = await world.providers.start(world.provider, world.request(parent, "answer"))
        outcome = await run.result()
        await run.dispose()
        assert outcome.ending == "completed", outcome
        assert ANSWER in outcome.text, outcome


async def every_way_to_end_has_its_name(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        for behaviour, ending in BAD_ENDS:
            run = await world.providers.start(world.provider, world.request(parent, behaviour))
            outcome = await run.result()
            await run.dispose()
            assert outcome.ending == ending, f"{behaviour}: {outcome}"
            assert behaviour != "fail" or outcome.diagnostic, "a failure says what went wrong"


async def the_log_of_a_child_says_what_it_is(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        run = await world.providers.start(world.provider, world.request(parent, "answer"))
        await run.result()
        stored = await world.host.sessions.store.read(run.id)
        await run.dispose()
        assert await world.children(parent.id) == [run.id]
        header, made = stored.header, descriptor(stored.header, stored.events)
        assert (header.origin, header.parent_session, header.delegation_depth) == ("subagent", parent.id, 1)
        assert made is not None
        assert (made.mode, made.provider, made.label) == ("one-shot", world.provider, "answer")


async def the_same_call_finds_the_same_child_again(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        request = world.request(parent, "answer", key=CallKey(session_id=parent.id, seq=1, index=0))
        run = await world.providers.start(world.provider, request)
        came_to = await run.result()
        await run.dispose()
        again = await world.providers.start(world.provider, request)
        assert (again.id, await again.result()) == (run.id, came_to)
        await again.dispose()
        first = (await world.host.sessions.store.read(run.id)).header.seed_length or 0
        turns = [e for e in await world.events(run.id) if e.seq >= first and type(e.data) is TurnStart]
        assert len(turns) == 1, "it worked once"


async def a_run_that_is_cancelled_is_aborted_and_leaves_nothing(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        run = await world.providers.start(world.provider, world.request(parent, "hang"))
        async with anyio.create_task_group() as group:
            group.start_soon(run.result)
            await world.wait_hanging(1)
            group.cancel_scope.cancel()
        await run.dispose()
        await run.dispose()
        last = (await world.events(run.id))[-1].data
        assert isinstance(last, TurnEnd), last
        assert (last.reason, last.cause) == ("aborted", "parent")
        assert world.host.agents.list() == (parent,)


async def a_child_too_deep_is_refused_and_leaves_nothing(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        if not world.tested.capabilities.depth_limit:
            return
        try:
            await world.providers.start(world.provider, world.request(parent, "answer", max_depth=0))
        except DepthExceeded:
            assert await world.children(parent.id) == []
        else:
            raise AssertionError("a child of depth 1 was started where 0 is the most")


async def what_a_provider_cannot_honour_is_refused_and_leaves_nothing(open_world: OpenWorld) -> None:
    async with open_world() as world:
        parent = await world.parent()
        capabilities = world.tested.capabilities
        wishes: dict[str, object] = {
            "output_schema": {"type": "object"},
            "tool_filter": ToolFilter(deny=()),
            "persona": "You are terse.",
            "max_depth": 3,
        }
        has = {**{wish: getattr(capabilities, wish, False) for wish in wishes}, "max_depth": capabilities.depth_limit}
        for wish in (wish for wish in wishes if not has[wish]):
            try:
                await world.providers.start(world.provider, world.request(parent, "answer", **{wish: wishes[wish]}))
            except UnsupportedCapability:
                continue
            raise AssertionError(f"{wish} is not supported, and was not refused")
        assert await world.children(parent.id) == []


ONE_SHOT_CHECKS: tuple[Check, ...] = (
    a_run_completes_with_the_words_of_its_child,
    every_way_to_end_has_its_name,
    the_log_of_a_child_says_what_it_is,
    the_same_call_finds_the_same_child_again,
    a_run_that_is_cancelled_is_aborted_and_leaves_nothing,
    a_child_too_deep_is_refused_and_leaves_nothing,
    what_a_provider_cannot_honour_is_refused_and_leaves_nothing,
)
