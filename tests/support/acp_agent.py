"""An agent program for tests: speaks the Agent Client Protocol on its standard streams and does what a prompt says.

The last line of a prompt that begins with `do: ` says what to do, such as `do: say hello` or `do: hang`. What was said
to a session is kept in the folder that ACP_STATE names, so that another run of the program can take the session up.
ACP_MODE makes it rude.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

STATE = Path(os.environ["ACP_STATE"])
MODE = os.environ.get("ACP_MODE", "")
AFTERWARDS: list[Callable[[], None]] = []
"""What is done when a prompt has been answered."""


def send(frame: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\n")
    sys.stdout.flush()


def note(what: str) -> None:
    with (STATE / "notes").open("a") as file:
        file.write(f"{os.getpid()} {what}\n")


def receive() -> dict[str, Any]:
    line = sys.stdin.readline()
    if not line:
        note("eof")
        if MODE == "stays":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            time.sleep(600)
        raise SystemExit(0)
    with (STATE / "frames").open("a") as file:
        file.write(line)
    return json.loads(line)


def update(session: str, what: str, **fields: Any) -> None:
    send({"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": what, **fields}}})


def say(session: str, text: str, kind: str = "agent_message_chunk") -> None:
    update(session, kind, content={"type": "text", "text": text})


def initialize() -> dict[str, Any]:
    capabilities: dict[str, Any] = {"loadSession": MODE not in ("forgets", "resumes"), "promptCapabilities": {}}
    if MODE == "resumes":
        capabilities["sessionCapabilities"] = {"resume": {}}
    return {"protocolVersion": 7 if MODE == "newer" else 1, "agentCapabilities": capabilities, "authMethods": []}


def ask(session: str, title: str = "Write a file") -> str:
    send(
        {
            "id": "ask-1",
            "method": "session/request_permission",
            "params": {
                "sessionId": session,
                "toolCall": {"toolCallId": "t1", "title": title},
                "options": [
                    {"optionId": "yes", "name": "Yes", "kind": "allow_once"},
                    {"optionId": "ever", "name": "Always", "kind": "allow_always"},
                    {"optionId": "no", "name": "No", "kind": "reject_once"},
                ],
            },
        }
    )
    while (frame := receive()).get("id") != "ask-1":
        pass
    outcome = frame["result"]["outcome"]
    return outcome.get("optionId", outcome["outcome"])


def obey(session: str, directive: str) -> str:
    """What the prompt asks for; the answer is why the turn stops."""
    word, _, rest = directive.partition(" ")
    match word:
        case "say":
            say(session, "hm", "agent_thought_chunk")
            for piece in (rest[:2], rest[2:]):
                say(session, piece)
        case "work":
            say(session, "Looking.")
            update(session, "tool_call", toolCallId="t1", title="Read it", kind="read", status="pending")
            update(session, "tool_call_update", toolCallId="t1", status="completed")
            say(session, "Found it.")
        case "toil":
            title = f"Run {os.environ.get('ACP_TOKEN', '')}\x1b[31m\n{'x' * 500}"
            update(session, "tool_call", toolCallId="t1", title=title, kind="execute")
            for _ in range(50):
                update(session, "tool_call_update", toolCallId="t1", status="in_progress")
            update(session, "tool_call_update", toolCallId="t2", title=7, kind=[], status="odd")
            return obey(session, rest)
        case "ask":
            say(session, ask(session, rest) if rest else ask(session))
        case "insist":
            note("hanging")
            while receive().get("method") != "session/cancel":
                pass
            note(f"answered {ask(session)}")
            return "cancelled"
        case "late":
            say(session, "in time")
            AFTERWARDS.append(lambda: say(session, "too late"))
        case "env":
            say(session, json.dumps({name: os.environ.get(name) for name in rest.split()}))
        case "recall":
            say(session, " / ".join((STATE / session).read_text().splitlines()))
        case "truncate":
            say(session, rest)
            return "max_tokens"
        case "refuse":
            return "refusal"
        case "stop":
            return rest
        case "hang":
            say(session, "at it")
            note("hanging")
            while (frame := receive()).get("method") != "session/cancel":
                pass
            note("cancelled")
            say(session, "; stopped")
            return "cancelled"
        case "die":
            print("disk on fire, token sesame-open", file=sys.stderr, flush=True)
            os.kill(os.getpid(), signal.SIGKILL) if rest == "hard" else os._exit(3)
        case "spill":
            print(os.environ["TOKEN"] * 2, file=sys.stderr, flush=True)
            os._exit(3)
        case "mutter":
            print(f"{'𒀀' * 500} the end", file=sys.stderr, flush=True)
            ask(session)  # what was written before is read by the time of the answer
            raise RuntimeError(rest)
        case "fail":
            raise RuntimeError(rest or "the tea is cold")
        case "sleep":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            note("hanging")
            time.sleep(600)
        case "half":
            sys.stdout.write('{"jsonrpc": "2.0", "method": "session/upd')
            sys.stdout.flush()
            os._exit(0)
        case "garbage":
            for line in ("not json", "[1, 2]", '{"jsonrpc":"2.0"}', '"x"', "", '{"jsonrpc":"2.0","id":99,"result":1}'):
                sys.stdout.write(line + "\n")
            update(session, "no_such_kind", strange=[1])
            send({"method": "session/update", "params": {"sessionId": 5}})
            send({"id": "fs", "method": "fs/read_text_file", "params": {"path": "/etc/passwd"}})
            while (frame := receive()).get("id") != "fs":
                pass
            say(session, f"answered {frame['error']['code']}")
        case "overlong":
            say(session, "the first part")
            sys.stdout.write('{"jsonrpc": "2.0", "method": "session/update", "params": "')
            for _ in range(65):
                sys.stdout.write("x" * 1024 * 1024)
            sys.stdout.write('"}\n')
            say(session, "the last part")
        case "flood":
            while not rest:
                say(session, "x" * 100_000)
            say(session, "x" * int(rest))
        case "leave":
            sleeping = [sys.executable, "-c", "import time; time.sleep(600)"]
            child = subprocess.Popen(sleeping, start_new_session=rest == "apart")
            note(f"left {child.pid}")
            say(session, "left one")
        case _:
            say(session, f"I do not know {directive!r}")
    return "end_turn"


def answer(frame: dict[str, Any]) -> Any:
    method, params = frame["method"], frame.get("params", {})
    match method:
        case "initialize":
            if MODE == "silent":
                time.sleep(600)
            return initialize()
        case "session/new":
            assert os.path.isabs(params["cwd"])
            assert params["mcpServers"] == []
            session = f"s{len(list(STATE.glob('s*'))) + len(list(STATE.glob('forgotten'))) + 1}"
            (STATE / session).touch()
            return {"sessionId": session}
        case "session/load" | "session/resume":
            session = params["sessionId"]
            (STATE / session).read_text()
            note(method)
            if method == "session/load":
                say(session, "what was said before")
            return {}
        case "session/prompt":
            session = params["sessionId"]
            lines = [line for block in params["prompt"] for line in block["text"].splitlines()]
            if MODE == "vanishes" and not (STATE / "forgotten").exists():
                (STATE / session).rename(STATE / "forgotten")
                os.kill(os.getpid(), signal.SIGKILL)
            with (STATE / session).open("a") as file:
                file.write(" | ".join(lines) + "\n")
            note("prompt")
            directives = [line.removeprefix("do: ") for line in lines if line.startswith("do: ")]
            reason = obey(session, directives[-1])
            usage = {"totalTokens": 17, "inputTokens": 10, "outputTokens": 5, "cachedReadTokens": 2}
            return {"stopReason": reason, "usage": usage}
        case _:
            raise ValueError(method)


def main() -> None:
    note("started")
    if MODE == "dies":
        print("no licence", file=sys.stderr, flush=True)
        os._exit(4)
    while True:
        frame = receive()
        if "id" not in frame or "method" not in frame:
            continue
        try:
            result = answer(frame)
        except Exception as error:
            send({"id": frame["id"], "error": {"code": -32603, "message": str(error)}})
        else:
            send({"id": frame["id"], "result": result})
        while AFTERWARDS:
            AFTERWARDS.pop()()


main()
