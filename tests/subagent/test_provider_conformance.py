"""Every provider that ships with Retinue passes the public checks of providers."""

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from retinue.session.store import SessionStore
from retinue.testing.clock import FakeClock
from retinue.testing.gate import Gate
from retinue.testing.keys import prompt
from retinue.testing.model import ScriptedModel
from retinue.testing.providers import (
    ANSWER,
    CONTINUABLE_CHECKS,
    ONE_SHOT_CHECKS,
    Behaviour,
    Check,
    OpenWorld,
    World,
    passes,
)
from retinue.testing.request import SeenRequest
from retinue.testing.script import Reply, fail, hold, refuse, text, truncated
from tests.support.delegation import delegating
from tests.support.external import external, notes, program, wait_note
from tests.support.stores import store_opener

CHECKS = (*ONE_SHOT_CHECKS, *CONTINUABLE_CHECKS)
DIRECTIVES: dict[Behaviour, str] = {
    "answer": f"say {ANSWER}",
    "truncate": "truncate too long",
    "refuse": "refuse",
    "fail": "fail",
    "hang": "hang",
}


def in_process(provider: str, open_store: Callable[[], SessionStore]) -> OpenWorld:
    @asynccontextmanager
    async def open_world() -> AsyncGenerator[World]:
        hanging = Gate()

        def behave(seen: SeenRequest) -> Reply:
            match next((said.strip() for said in reversed(seen.new) if said.startswith("please ")), ""):
                case "please answer":
                    return text(ANSWER)
                case "please truncate":
                    return truncated("too lo")
                case "please refuse":
                    return refuse()
                case "please fail":
                    return fail("bad-request")
                case "please hang":
                    return hold(hanging, text("never"))
                case _:
                    return text("Noted.")

        model = ScriptedModel()
        model.script(prompt(""), *[behave] * 20, every=True)
        async with delegating(model, open_store(), at_rest=False) as host:
            yield World(
                host=host,
                provider=provider,
                prompt=lambda behaviour: f"please {behaviour}",
                wait_hanging=hanging.wait_reached,
            )

    return open_world


@pytest.fixture(params=["spawn", "fork", "acp:ext"])
def open_world(request: pytest.FixtureRequest, tmp_path: Path) -> OpenWorld:
    clock = FakeClock()
    opener = store_opener("memory", tmp_path)
    if request.param != "acp:ext":
        return in_process(request.param, lambda: opener(clock))
    state = tmp_path / "state"

    @asynccontextmanager
    async def open_external() -> AsyncGenerator[World]:
        model = ScriptedModel()
        model.script(prompt(""), *[text("Noted.")] * 20, every=True)
        before = notes(state).count("hanging")
        async with external(model, {"ext": program(state)}, store=opener(clock), at_rest=False) as host:

            async def wait_hanging(times: int) -> None:
                await wait_note(state, "hanging", before + times)

            yield World(
                host=host,
                provider="acp:ext",
                prompt=lambda behaviour: f"do: {DIRECTIVES[behaviour]}",
                wait_hanging=wait_hanging,
            )

    return open_external


@pytest.mark.parametrize("check", CHECKS, ids=lambda check: check.__name__)
async def test_a_provider_passes(check: Check, open_world: OpenWorld) -> None:
    await passes(check, open_world)
