"""Which way a delegation is run follows from the mode of its tool and the flag of the call. Source: TS-18 to TS-21."""

from pathlib import Path

import pytest

from retinue.base.chain import Next
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, optional, text
from retinue.tools.pipeline import ToolRequest
from retinue.tools.tool import ToolResult
from tests.scenarios.stock import Lifecycle, children, left_nothing, notices, quiet, rows, stock

MODES = {
    "continuable": ("plugins.subagent.background_mode=continuable",),
    "one-shot": ("plugins.subagent.background_mode=one-shot",),
    "disabled": ("plugins.subagent.enable_run_in_background=false",),
}
OMITTED = object()
RUNS = {
    "continuable": {OMITTED: "continuable", True: "continuable", False: "foreground", None: "continuable"},
    "one-shot": {OMITTED: "foreground", True: "background", False: "foreground", None: "foreground"},
    "disabled": {OMITTED: "foreground", True: None, False: "foreground", None: "foreground"},
}


@pytest.mark.parametrize(
    ("mode", "flag", "kind"),
    [(mode, flag, kind) for mode, runs in RUNS.items() for flag, kind in runs.items()],
    ids=lambda value: "omitted" if value is OMITTED else None,
)
async def test_each_mode_and_flag_has_its_way_to_run(mode: str, flag: object, kind: str | None, tmp_path: Path) -> None:
    model, results = ScriptedModel(), list[ToolResult]()
    given = {} if flag is OMITTED else {"run_in_background": flag}
    asked = calls(call("subagent", description="C", prompt="P", **given))  # type: ignore[arg-type]
    model.script("R", asked, text("told"), optional(text("noted")))
    if kind is not None:
        model.script("C", text("ANSWER"))

    async def note(request: ToolRequest, inner: Next[ToolRequest, ToolResult]) -> ToolResult:
        results.append(await inner(request))
        return results[-1]

    async with stock(model, tmp_path, *MODES[mode]) as app:
        app.host.chains.tool_call.wrap(note)
        agent, lifecycle = await app.agent(label="R"), Lifecycle(app)
        await agent.follow_up("go").wait()
        await quiet(app, agent)
        (spec,) = [spec for spec in model.requests("R")[0].tools if spec.name == "subagent"]
        (said,) = model.requests("R")[1].results
        properties = spec.parameters["properties"]
        assert isinstance(properties, dict)
        assert ("run_in_background" in properties) == (mode != "disabled")
        if kind is None:
            assert results[0].code == "BACKGROUND_DISABLED"
            assert said.startswith("Error: ")
            await left_nothing(app, agent, lifecycle)
            return
        (child,) = await children(app, agent.id)
        told = [row.delivery.message.source.kind for row in await rows(app, agent.id)][1:]
        value = results[0].value
        assert isinstance(value, dict)
        match kind:
            case "foreground":
                assert value == {"kind": kind, "run_id": lifecycle.runs[0][1], "output": "ANSWER"}
                assert (said, told) == ("ANSWER", [])
            case "background":
                assert value == {"kind": kind, "task_id": "subagent-1"}
                assert "subagent-1" in said
                assert told == ["plugin"]
            case _:
                assert value == {"kind": kind, "subagent_id": child}
                assert child in said
                assert told == ["subagent-settled"]
                assert "ANSWER" in (await notices(app, agent.id))[0]
        assert ("ANSWER" in said) == (kind == "foreground")
