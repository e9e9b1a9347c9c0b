"""A provider's own format, from configuration to the wire and back."""

from pathlib import Path

import retinue
from tests.model.test_anthropic import block, start, stop, stream, text_block
from tests.support.model_server import Exchange, model_server


async def test_an_agent_works_with_a_model_of_the_messages_format(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("forty-two")

    async def answer(exchange: Exchange) -> None:
        if len(exchange.json["messages"]) == 1:
            call = block(
                1,
                {"type": "tool_use", "id": "toolu_1", "name": "read", "input": {}},
                {"type": "input_json_delta", "partial_json": '{"path": "a.txt"}'},
            )
            said = stream(
                start(input_tokens=100), *text_block(0, "Looking."), *call, *stop("tool_use", output_tokens=9)
            )
        else:
            result = exchange.json["messages"][-1]["content"][0]
            assert "forty-two" in result["content"][0]["text"]
            said = stream(start(input_tokens=200), *text_block(0, "42"), *stop("end_turn", output_tokens=1))
        await exchange.events(said)

    async with (
        model_server(answer) as server,
        retinue.open(
            "anthropic:claude-haiku-4-5",
            base_url=server.url.removesuffix("/v1"),
            cwd=tmp_path,
            home=tmp_path / "home",
            environ={"ANTHROPIC_API_KEY": "sk-ant-0123456789"},
        ) as app,
    ):
        result = await (await app.run("What is in a.txt?")).result()
    assert (result.outcome, result.output) == ("completed", "42")
    assert result.usage.cost_usd is not None
    assert round(result.usage.cost_usd, 9) == round((300 * 1 + 10 * 5) / 1e6, 9)
    assert server.exchanges[0].json["max_tokens"] == 64_000


async def test_the_configuration_says_what_a_model_costs(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.events(stream(start(input_tokens=1000), *text_block(0, "hi"), *stop("end_turn")))

    async with (
        model_server(answer) as server,
        retinue.open(
            "anthropic:my-model",
            base_url=server.url.removesuffix("/v1"),
            cwd=tmp_path,
            home=tmp_path / "home",
            settings=["prices={my-model: {input: 2, output: 3}}"],
            environ={},
        ) as app,
    ):
        result = await (await app.run("Hello.")).result()
    assert result.usage.cost_usd == 0.002
