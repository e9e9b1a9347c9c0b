"""Running commands: the tool `bash`.

A command runs in a process group of its own with an environment that holds no keys, and is ended as a whole. What
confines it is the plugin `sandbox`; without one, and with `full-access`, it can do whatever the user can.
"""

from __future__ import annotations

import math
import os
import shutil
import signal
from collections.abc import AsyncGenerator, Callable, Iterable
from contextlib import ExitStack, asynccontextmanager
from pathlib import Path
from typing import Annotated

import anyio
from anyio import to_thread
from msgspec import Meta, Struct

from retinue.agent.agent import Agent
from retinue.base.json import JSONObject
from retinue.errors import BadInput, ToolFailure
from retinue.host.host import Host
from retinue.model.content import Text
from retinue.plugins.permissions import PERMISSIONS, Permissions
from retinue.plugins.sandbox import SANDBOX, Sandbox
from retinue.plugins.shell.background import start_background
from retinue.plugins.shell.buffer import OutputBuffer
from retinue.plugins.shell.environment import command_environment
from retinue.plugins.shell.process import CommandRun, start_command
from retinue.plugins.shell.running_groups import RunningGroups, running_groups
from retinue.prompt.sections import AssemblyContext, Section
from retinue.tasks.runtime import TASKS, Tasks
from retinue.tasks.wording import receipt
from retinue.tools.function import tool
from retinue.tools.output import spill_path
from retinue.tools.secrets import Secrets
from retinue.tools.tool import Caller, Tool, ToolContext, ToolResult

__all__ = ["OPTIONS", "ShellConfig", "plugin", "sections", "shell_tools", "signal_name"]


class ShellConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How commands run. Durations in seconds."""

    timeout_s: Annotated[float, Meta(gt=0)] = 120.0
    """Bound of a call that names none."""
    max_timeout_s: Annotated[float, Meta(gt=0)] = 600.0
    """The largest bound that a call may name."""
    pass_env: tuple[str, ...] = ()
    """Further environment variables that commands see; never keys."""


OPTIONS = ShellConfig


@asynccontextmanager
async def plugin(host: Host, config: ShellConfig) -> AsyncGenerator[None]:
    """The tool and its guidance are there. Raises: MissingSeam without permissions."""
    home = host.options.home
    running = await running_groups(home)
    tools = shell_tools(
        host.require(PERMISSIONS, needed_by="shell"),
        spill=None if home is None else home / "spill",
        secrets=host.secrets,
        running=running,
        timeout_s=config.timeout_s,
        max_timeout_s=config.max_timeout_s,
        pass_env=config.pass_env,
        tasks=host.find(TASKS),
        sandbox=host.find(SANDBOX),
    )
    with ExitStack() as stack:
        for made in tools:
            stack.enter_context(host.tools.add(made))
        for section in sections(host.find(SANDBOX)):
            stack.enter_context(host.prompt.add(section))
        yield


_BACKGROUND = (
    "Default false: wait for the command. True: return a task id at once, for servers, watchers and long work; there "
    "is no time limit then, and the command ends with you."
)


def shell_tools(
    permissions: Permissions,
    *,
    spill: Path | None = None,
    timeout_s: Annotated[float, Meta(gt=0)] = 120.0,
    max_timeout_s: Annotated[float, Meta(gt=0)] = 600.0,
    pass_env: Iterable[str] = (),
    tasks: Tasks | None = None,
    secrets: Secrets | None = None,
    running: RunningGroups | None = None,
    sandbox: Sandbox | None = None,
) -> list[Tool]:
    """`bash` within `permissions`. Long output is kept below the folder `spill`. Background runs need `tasks`.

    `timeout_s` is the bound of a call that names none, `max_timeout_s` the largest it may name; `pass_env` names
    further environment variables for commands; `secrets` are taken out of output; `running` knows what runs; `sandbox`
    confines.

    Raises: BadInput for bounds that make no sense; ConfigError for a provider's key.
    """
    if not 0 < timeout_s <= max_timeout_s < math.inf:
        raise BadInput(
            f"the bounds of commands must be 0 < timeout_s <= max_timeout_s, not {timeout_s}, {max_timeout_s}"
        )
    shell = shutil.which("bash")
    argv = (shell, "--noprofile", "--norc", "-c") if shell else ("/bin/sh", "-c")
    passed = frozenset(pass_env)
    command_environment({}, passed=passed)

    @tool
    async def bash(
        ctx: ToolContext,
        command: Annotated[str, "The command line, as for `bash -c`.", Meta(min_length=1)],
        timeout_s: Annotated[float, "Seconds after which it is stopped.", Meta(gt=0)] = timeout_s,
        description: Annotated[str, "What it does, in a few words, for whoever watches."] = "",
        run_in_background: Annotated[bool, _BACKGROUND] = False,
    ) -> ToolResult:
        """Run a shell command in the working folder and return its output, standard output and error in one.

        Every call is a new shell: folder changes and variables do not last. There is no terminal and no input, so
        nothing interactive works. A failing command is shown with its exit code. When the command has ended, background
        processes that it left are stopped. Long output is shown as head and tail, and kept in a file.
        """
        if ctx.caller is None:
            raise ToolFailure("NO_CALLER", "bash needs a calling agent")
        line, afterwards = await _permitted((*argv, command), ctx.caller, permissions, sandbox)
        if timeout_s > max_timeout_s:
            raise ToolFailure("INVALID_ARGS", f"timeout_s: at most {max_timeout_s:g}, got {timeout_s:g}")
        if run_in_background:
            return await _in_background(
                ctx,
                line,
                label=description or command,
                passed=passed,
                spill=spill,
                tasks=tasks,
                secrets=secrets,
                running=running,
                afterwards=afterwards,
            )
        output = OutputBuffer(None if spill is None else spill_path(spill, ctx.key), secrets, ctx.tell)
        try:
            run = await start_command(
                line,
                cwd=ctx.caller.cwd,
                env=command_environment(os.environ, passed=passed),
                output=output,
                running=running,
                afterwards=afterwards,
            )
        except (OSError, ValueError) as error:
            raise ToolFailure("NOT_STARTED", f"the command could not be started: {error}") from error
        with anyio.move_on_after(timeout_s) as bound:
            await run.finish()
        return _result(run, timeout_s if bound.cancelled_caught else None, description)

    return [bash]


async def _permitted(
    argv: tuple[str, ...], caller: Caller, permissions: Permissions, sandbox: Sandbox | None
) -> tuple[tuple[str, ...], Callable[[], list[str]] | None]:
    """What to run for the command, confined where something can do that, and what to do when it has ended.

    Raises: ToolFailure if it may not run.
    """
    preset = permissions.preset(caller.id)
    if sandbox is not None and preset != "full-access":
        confined = await sandbox.confine(argv, caller, preset)
        if confined is not None:
            return confined, await to_thread.run_sync(sandbox.watch, caller)
    permissions.check_command(caller, why_unconfined="there is no sandbox" if sandbox is None else sandbox.why_not)
    return argv, None


async def _in_background(
    ctx: ToolContext,
    argv: tuple[str, ...],
    *,
    label: str,
    passed: frozenset[str],
    spill: Path | None,
    tasks: Tasks | None,
    secrets: Secrets | None,
    running: RunningGroups | None,
    afterwards: Callable[[], list[str]] | None,
) -> ToolResult:
    if not isinstance(ctx.caller, Agent):
        raise ToolFailure("NO_CALLER", "only an agent can own a background command")
    started = await start_background(
        tasks,
        ctx.caller,
        argv,
        label=" ".join(label.split())[:120],
        env=command_environment(os.environ, passed=passed),
        timeout_s=None,
        path=None if spill is None else spill_path(spill, ctx.key),
        secrets=secrets,
        running=running,
        afterwards=afterwards,
        tell=ctx.tell,
    )
    ctx.created.append(f"task {started.id}")
    return ToolResult.text(
        receipt(started), value={"kind": "background", "task_id": started.id}, meta={"task_id": started.id}
    )


def _result(run: CommandRun, timed_out_s: float | None, description: str) -> ToolResult:
    """A failing command is no failed call: its exit code is an answer, and often the one that was looked for."""
    shown = run.output.text().strip("\n") or "(no output)"
    notes: list[str] = []
    if run.stopped_others:
        notes.append("[background processes that the command left were stopped]")
    if run.left_others:
        notes.append("[a process that detached itself still holds the output; it was not stopped]")
    value: JSONObject = {
        "exit_code": run.exit_code,
        "output_bytes": run.output.total_bytes,
        "timed_out": timed_out_s is not None,
    }
    meta = {**value, "description": description} if description else {**value}
    if timed_out_s is None:
        if notes:
            meta["notes"] = [*notes]
        return ToolResult.text("\n".join([shown, *_exit_notes(run.exit_code), *notes]), value=value, meta=meta)
    meta["notes"] = [f"[stopped after {timed_out_s:g} s]", *notes]
    said = f"Error: the command ran longer than {timed_out_s:g} s and was stopped; its output until then:"
    content = (Text("\n".join([said, shown, *notes])),)
    return ToolResult(content=content, is_error=True, code="TIMEOUT", value=value, meta=meta)


def _exit_notes(code: int | None) -> list[str]:
    """What is to be said of how a command ended by itself; nothing of success."""
    if not code:
        return []
    return [f"[ended by signal {signal_name(-code)}]" if code < 0 else f"[exit code: {code}]"]


def signal_name(number: int) -> str:
    """What the signal is called, or its number."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)


def sections(sandbox: Sandbox | None = None) -> list[Section]:
    """Guidance for `bash`, shown while it is visible. Source: behaviour SP-07 for the order."""

    def text(_: AssemblyContext) -> str:
        confined = "" if sandbox is None else sandbox.describes
        return f"{_BASH} {confined}".rstrip()

    return [Section(name="tool:bash", order=105, text=text, tool="bash")]


_BASH = """\
Use `bash` to build, test and run things, and for version control. Work with absolute paths or paths in the working \
folder rather than changing folders. Join commands that depend on each other with `&&`. Do not use it to read, change \
or search files when a tool for that is at hand, and do not start what waits for input. Give a longer timeout when you \
expect to need one, and look at the exit code before you rely on what a command did."""
