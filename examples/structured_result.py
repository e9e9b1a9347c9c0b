"""Run a child once from your own program and get a result that satisfies a JSON Schema.

RETINUE_MODEL=deepseek:deepseek-chat python examples/structured_result.py
"""

import anyio

import retinue
from retinue.model.content import Text
from retinue.subagent.provider import PROVIDERS, RunRequest

FAULTS = {
    "type": "object",
    "properties": {"machine": {"type": "string"}, "count": {"type": "integer", "minimum": 0}},
    "required": ["machine", "count"],
    "additionalProperties": False,
}


async def main() -> None:
    async with retinue.open() as app:
        parent = await app.agent()
        providers = app.host.require(PROVIDERS, needed_by="structured_result")
        task = (Text("Read monday.log: which machine failed most often, and how often?"),)
        run = await providers.start("spawn", RunRequest(parent=parent, prompt=task, output_schema=FAULTS))
        try:
            outcome = await run.result()
        finally:
            await run.dispose()
    # A child that ends without a result that fits has not completed.
    print(outcome.ending, outcome.structured or outcome.diagnostic)


if __name__ == "__main__":
    anyio.run(main)
