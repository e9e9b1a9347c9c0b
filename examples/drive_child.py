"""Drive a continuable child from your own program: start it, hear how it settled, give it more, hear again.

The child's parent is an agent too, and the same notices that this program waits for wake it: at the end it is asked
what it has learnt.

    RETINUE_MODEL=deepseek:deepseek-chat python examples/drive_child.py
"""

import anyio

import retinue
from retinue.base.ids import new_session_id
from retinue.model.content import Text
from retinue.subagent.continuation import CONTINUATIONS
from retinue.subagent.lifecycle import SubagentEnded
from retinue.subagent.provider import RunRequest


async def main() -> None:
    async with retinue.open() as app:
        parent = await app.agent(label="parent")
        children = app.host.require(CONTINUATIONS, needed_by="drive_child")
        put, settled = anyio.create_memory_object_stream[SubagentEnded](100)
        with put, settled, parent.bus.on(SubagentEnded, put.send_nowait):
            child = new_session_id()
            task = (Text("Read monday.log and say what failed."),)
            await children.start("spawn", RunRequest(parent=parent, child_id=child, prompt=task, label="reader"))
            print(f"accepted {child}")
            print("first:", (await settled.receive()).last_message)

            await children.send(parent, child, "And what failed on Tuesday?")
            print("second:", (await settled.receive()).last_message)

        await children.wait_quiet(parent)
        run = await app.run("What went wrong on these days?", agent=parent)
        print((await run.result()).text)


if __name__ == "__main__":
    anyio.run(main)
