"""Give an agent a task, show its answer while it is written, and see what the run came to.

RETINUE_MODEL=deepseek:deepseek-chat python examples/run_and_stream.py "What is in this folder?"
"""

import sys

import anyio

import retinue


async def main(task: str) -> int:
    async with retinue.open() as app:
        run = await app.run(task)
        async for text in run:
            if isinstance(text, retinue.Withdrawn):
                print("\n[that reply was cut off; it is asked for again]")
            else:
                print(text, end="", flush=True)
        result = await run.result()
    print(f"\n{result.outcome}: {result.usage.requests} requests, look at it with: retinue log {result.session_id}")
    return 0 if result.outcome == "completed" else 1


if __name__ == "__main__":
    sys.exit(anyio.run(main, " ".join(sys.argv[1:]) or "What is in this folder?"))
