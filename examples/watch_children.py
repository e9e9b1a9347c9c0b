"""Watch an agent delegate: who starts, who ends and how, and what the whole tree has used.

RETINUE_MODEL=deepseek:deepseek-chat python examples/watch_children.py
"""

import anyio

import retinue
from retinue.subagent.lifecycle import SubagentEnded, SubagentStarted

TASK = "Let one agent count the Python files here and another one the TODO notes, then tell me both numbers."


async def main() -> None:
    async with retinue.open() as app:

        def started(event: SubagentStarted) -> None:
            child = app.host.agents.get(event.id)
            print(f"started {child.label if child else event.id}")

        def ended(event: SubagentEnded) -> None:
            print(f"{event.outcome}: {event.last_message}")

        # The bus of the host hears all agents; that of one agent hears of its own children only.
        with app.host.bus.on(SubagentStarted, started), app.host.bus.on(SubagentEnded, ended):
            run = await app.run(TASK)
            result = await run.result()

        print(result.text)
        for agent in result.agents:
            print(f"{agent.label}: {agent.mode}, {agent.outcome}, {agent.usage.requests} requests")


if __name__ == "__main__":
    anyio.run(main)
