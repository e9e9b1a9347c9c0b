"""Offer functions of your own to an agent: one that looks something up, and one that refuses.

RETINUE_MODEL=deepseek:deepseek-chat python examples/own_tool.py
"""

from typing import Annotated

import anyio

import retinue
from retinue.errors import ToolFailure

BERTHS = {"quay 1": "Seagull", "quay 2": None}


@retinue.tool(safe=True)
def berths() -> dict[str, str | None]:
    """Shows every berth and the ship in it."""
    return BERTHS


@retinue.tool
async def moor(ship: str, berth: Annotated[str, "one of those that `berths` shows"]) -> str:
    """Gives a ship a free berth."""
    if BERTHS.get(berth, "no such berth") is not None:
        raise ToolFailure("BERTH_TAKEN", f"{berth} is not free; `berths` shows which are")
    BERTHS[berth] = ship
    return f"{ship} lies at {berth}"


async def main() -> None:
    # Without the plugins for files and commands, these two tools and delegation are all that the agent has.
    alone = ["plugins.files=null", "plugins.shell=null"]
    async with retinue.open(tools=[berths, moor], settings=alone) as app:
        run = await app.run("The Petrel comes in. Find her a berth.")
        print((await run.result()).text)
    print(BERTHS)


if __name__ == "__main__":
    anyio.run(main)
