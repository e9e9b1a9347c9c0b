"""What runs in the process of a script is believed nothing: whatever it does, the run comes to its end."""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

import anyio
import pytest

from retinue.plugins.sandbox import Sandbox, SandboxConfig
from retinue.plugins.workflow import WorkflowConfig, workflow_tool
from retinue.plugins.workflow.language import Refused, compile_script
from retinue.plugins.workflow.process import python_command
from retinue.subagent.tools.subagent import BACKENDS
from retinue.testing.model import ScriptedModel
from retinue.testing.script import call, calls, optional, text
from tests.scenarios.stock import stock

needs_bubblewrap = pytest.mark.skipif(shutil.which("bwrap") is None, reason="bubblewrap (bwrap) is not installed here")


async def performing(script: str, folder: Path) -> str:
    """What an agent is shown of the script."""
    model = ScriptedModel()
    model.script("R", calls(call("workflow", script=script, meta={"name": "W"})), text("done"))
    async with stock(model, folder, "plugins.workflow={}") as app:
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        return model.requests("R")[1].results[-1]


_SPEAKS = """
import json, os, sys
def say(**message): os.write(1, (json.dumps(message) + "\\n").encode())
order = json.loads(sys.stdin.buffer.readline())
"""


async def hosting(program: str, folder: Path, *, sandbox: Sandbox | None = None, **config: object) -> str:
    """What an agent is shown of a workflow whose process runs `program` instead of the script."""
    model = ScriptedModel()
    model.script("R", calls(call("workflow", script="pass", meta={"name": "W"})), text("done"))
    model.script("c", optional(text("x" * 3_000_000)), every=True)
    options = WorkflowConfig(**{"synchronous_s": 1.0, **config})  # type: ignore[arg-type]

    async def command() -> tuple[str, ...]:
        line = (os.path.realpath(sys.executable), "-I", "-S", "-c", _SPEAKS + program)
        if sandbox is None:
            return line
        enclosed = await sandbox.enclose(line, readable=(Path(sys.base_prefix).resolve(),))
        assert enclosed is not None
        return enclosed

    async with stock(model, folder) as app:
        backends = app.host.require(BACKENDS, needed_by="a test")
        app.host.tools.add(workflow_tool(app.host, options, backends, command))
        agent = await app.agent(label="R")
        await agent.follow_up("go").wait()
        await agent.wait_idle()
        return model.requests("R")[1].results[-1]


@pytest.mark.parametrize(
    ("program", "why"),
    [
        pytest.param(
            "os.close(0); os.close(1); import time; time.sleep(600)",
            "it closed its connection",
            marks=pytest.mark.exploration,
        ),
        ("sys.exit(3)", "exit code 3"),
        ("os.kill(os.getpid(), 11)", "signal 11"),
        ("os.write(1, b'nonsense\\n')", "it wrote what is no message"),
        ("os.write(1, b'[' * 100000 + b'\\n')", "it wrote what is no message"),
        ("say(op='ready', more=1)", "it wrote what is no message"),
        pytest.param(
            "while True: os.write(1, b'x' * 65536)",
            "it wrote a line of more than 16 MiB",
            marks=pytest.mark.exploration,
        ),
        pytest.param(
            "while True: os.write(2, b'x' * 65536)", "its process did not start", marks=pytest.mark.exploration
        ),
        pytest.param(
            "say(op='ready')\nwhile True: say(op='log', text='x')",
            "it logged more than 1000 lines",
            marks=pytest.mark.exploration,
        ),
        ("say(op='ready')\nwhile True: say(op='wait', seen=0)", "it waits for nothing"),
        pytest.param(
            "say(op='ready')\nwhile True: say(op='wait', seen=-1)",
            "it ran for 1 s without calling a hook",
            marks=pytest.mark.exploration,
        ),
        ("say(op='ready'); say(op='ready')", "its process began twice"),
        ("say(op='ready')\nwhile True: pass", "it ran for 1 s without calling a hook"),
        ("say(op='done', value=1)", "did not say that it is ready"),
        pytest.param(
            "say(op='ready')\n"
            "for n in range(9): say(op='agent', id=n, prompt='p', label='c')\n"
            "while True: pass  # and never read",
            "it ran for 1 s without calling a hook",
            marks=pytest.mark.exploration,
        ),
    ],
)
async def test_no_process_can_hold_up_a_run(program: str, why: str, tmp_path: Path) -> None:
    said = await hosting(program, tmp_path, start_s=3.0)
    assert said.startswith("Error: the script failed: ")
    assert why in said


_FORKS = """
import time
mark = {mark!r}
say(op="ready")
for n in range(10):
    if os.fork() == 0:
        {before}
        os.execv(sys.executable, [sys.executable, "-c", "import time; time.sleep(600)", mark])
time.sleep(0.3)
say(op="done", value="forked")
"""


def processes_with(mark: str) -> list[str]:
    """The ids of processes whose command line has the mark."""
    found: list[str] = []
    for pid in [name for name in os.listdir("/proc") if name.isdigit()]:
        try:
            if Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")[-2:-1] == [mark.encode()]:
                found.append(pid)
        except OSError:
            continue
    return found


async def gone(mark: str) -> None:
    """No process has the mark any more: they were killed, and the system has taken them away."""
    with anyio.fail_after(10):
        while True:
            if not processes_with(mark):
                return
            await anyio.sleep(0.01)


@pytest.mark.skipif(sys.platform != "linux", reason="rests on /proc")
async def test_processes_that_it_starts_are_gone_with_it(tmp_path: Path) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    said = await hosting(_FORKS.format(mark=mark, before="pass"), tmp_path)
    assert said.startswith("forked")
    await gone(mark)


@needs_bubblewrap
async def test_in_a_sandbox_so_are_those_that_left_its_group(tmp_path: Path) -> None:
    mark = f"mark-{os.urandom(6).hex()}"
    said = await hosting(_FORKS.format(mark=mark, before="os.setsid()"), tmp_path, sandbox=Sandbox(SandboxConfig()))
    assert said.startswith("forked")
    await gone(mark)


REFUSED = [
    "import os",
    "import re.os",
    "from os import *",
    "from re import *",
    "from re import _compiler",
    "from . import x",
    "().__class__",
    "''.__class__.__mro__[1].__subclasses__()",
    "'{0.__class__}'.format(1)",
    "str.format_map('{x.__class__}', {})",
    "(x for x in ()).gi_frame.f_back.f_globals",
    "agent.__globals__",
    "agent._x",
    "f'{agent.__globals__}'",
    "f'{1:{agent.__code__}}'",
    "async def f(): pass\nf().cr_frame",
    "try: 1/0\nexcept Exception as e: e.__traceback__.tb_frame",
    "try: 1/0\nexcept Exception as e: e.with_traceback(None).tb_next",
    "match 1:\n    case int(__class__=c): pass",
    "match 1:\n    case __builtins__: pass",
    "__builtins__",
    "__import__('os')",
    "def f(__builtins__): pass",
    "lambda *, __x: 1",
    "f(__class__=1)",
    "global __builtins__",
    "class A: pass",
    "with x: pass",
    "async with x: pass",
    "async for x in y: pass",
    "del __name__",
    "import json as __builtins__",
    "try: pass\nexcept ValueError as __x: pass",
    "def __f(): pass",
    "[__x := 1]",
]


@pytest.mark.parametrize("script", REFUSED)
def test_the_language_refuses_every_way_out(script: str) -> None:
    with pytest.raises(Refused) as caught:
        compile_script(script)
    assert "not" in str(caught.value)


_MISSING = ["open", "eval", "exec", "compile", "getattr", "setattr", "vars", "globals", "type", "object", "super", "id"]


async def test_what_reaches_outside_is_not_there(tmp_path: Path) -> None:
    """Asked of the real process, since what is there is decided in it."""
    script = "\n".join(f"try:\n    {name}\n    found.append({name!r})\nexcept NameError: pass" for name in _MISSING)
    said = await performing(f"found = []\n{script}\nimport re, json\nreturn [found, str(re), str(json)]", tmp_path)
    found, *modules = json.loads(said.splitlines()[0])
    assert found == []
    assert all("module" not in module for module in modules)


_ESCAPED = """
import socket, subprocess, ctypes, shutil, types
import signal
reached = []
def attempt(name, do):
    try:
        do()
        reached.append(name)
    except BaseException as error:
        pass
__SETUP__
attempt("a file", lambda: open("/etc/passwd").read())
attempt("a new file", lambda: open("/tmp/retinue-escaped", "w").write("x"))
attempt("a socket", lambda: socket.socket())
attempt("a process", lambda: subprocess.run(["true"]))
attempt("the folder", lambda: os.listdir({home!r}))
attempt("the parent", lambda: os.kill({parent}, 0))
attempt("an environment", lambda: [1][not set(os.environ) - {"LC_CTYPE", "PWD"}])
attempt("a key", lambda: open({key!r}).read())
attempt("memory of others", lambda: open("/proc/{parent}/environ").read())
say(op="ready")
say(op="done", value=reached)
"""

_OWN_LIMITS = """
for name, text in zip(("language", "worker"), {texts!r}):
    made = types.ModuleType("retinue.plugins.workflow." + name)
    sys.modules[made.__name__] = made
    exec(compile(text, name, "exec"), made.__dict__)
made._limit(1 << 29, 60)
sys.addaudithook(made._deny)
"""


class TestAScriptThatHasEscapedItsLanguage:
    """Another program stands for it."""

    async def test_reaches_nothing_through_the_interpreter(self, tmp_path: Path) -> None:
        setup = _OWN_LIMITS.format(texts=list(python_command()[-2:]))
        said = await hosting(self.program(tmp_path).replace("__SETUP__", setup), tmp_path)
        assert json.loads(said.splitlines()[0]) == []

    async def test_cannot_open_anything_by_system_calls_of_its_own(self, tmp_path: Path) -> None:
        setup = _OWN_LIMITS.format(texts=list(python_command()[-2:])).replace("sys.addaudithook(made._deny)", "")
        said = await hosting(self.program(tmp_path).replace("__SETUP__", setup), tmp_path)
        assert set(json.loads(said.splitlines()[0])) <= {"the parent"}

    @needs_bubblewrap
    async def test_reaches_nothing_outside_its_sandbox(self, tmp_path: Path) -> None:
        program = self.program(tmp_path).replace("__SETUP__", "")
        program += 'os.write(2, b"")\n'
        said = await hosting(program, tmp_path, sandbox=Sandbox(SandboxConfig()))
        # A file of its own empty world, a socket that leads nowhere, and processes in there with it.
        assert set(json.loads(said.splitlines()[0])) <= {"a new file", "a socket", "a process"}
        assert not Path("/tmp/retinue-escaped").exists()

    def program(self, folder: Path) -> str:
        key = folder / "key"
        key.write_text("secret")
        return (
            _ESCAPED.replace("{home!r}", repr(str(folder)))
            .replace("{key!r}", repr(str(key)))
            .replace("{parent}", str(os.getpid()))
        )
