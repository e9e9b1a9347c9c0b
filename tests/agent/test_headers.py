"""Headers of requests: one object for all that repeat the same."""

from retinue.agent.headers import Headers
from retinue.base.json import JSONObject
from retinue.base.recent import Recent
from retinue.model.client import ModelRequest, ToolSpec
from retinue.testing.model import ScriptedModel

TOOLS = (ToolSpec(name="echo", description="Echo.", parameters={"type": "object"}),)


def request(*, system: str = "s", tools: tuple[ToolSpec, ...] = TOOLS, options: JSONObject | None = None):
    transcript = ScriptedModel().transcript()
    return ModelRequest(model="m", system=system, tools=tools, transcript=transcript, options=options or {})


def test_requests_that_repeat_the_same_share_their_header() -> None:
    headers = Headers()
    first = headers.of(request(options={"seed": 1}))
    assert headers.of(request(options={"seed": 1})) is first
    assert first.config == {"model": "m", "seed": 1}
    assert first.tools == ({"name": "echo", "description": "Echo.", "parameters": {"type": "object"}},)


def test_a_request_that_differs_has_a_header_of_its_own() -> None:
    headers = Headers()
    first = headers.of(request())
    others = [request(system="t"), request(tools=()), request(options={"seed": 1})]
    assert all(headers.of(other) != first for other in others)
    assert headers.of(request()) is first


def test_what_was_not_used_for_longest_is_forgotten() -> None:
    recent: Recent[int, str] = Recent()
    for key in range(256):
        recent.put(key, str(key))
    assert recent.get(0) == "0"
    recent.put(256, "256")
    assert (recent.get(0), recent.get(1), recent.get(256)) == ("0", None, "256")
