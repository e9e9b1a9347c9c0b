"""A bound on the tokens of a whole tree: once it is used up, no further request leaves."""

from __future__ import annotations

from collections.abc import Callable

import anyio

from retinue.agent.environment import Attempt
from retinue.base.chain import Next
from retinue.base.scope import Undo
from retinue.compose.run import Run
from retinue.host.host import Host

__all__ = ["limit_tokens"]


def limit_tokens(host: Host, run: Callable[[], Run | None], limit: int, used_up: Callable[[], object]) -> Undo:
    """Before every request the tree's tokens, input and output, are counted; at `limit` the request waits for its end.

    `used_up` is called then and must stop the tree. An answer that is complete stays complete.
    """

    async def layer(attempt: Attempt, inner: Next[Attempt, None]) -> None:
        current = run()
        if current is not None and _tokens(current) >= limit:
            used_up()
            await anyio.sleep_forever()
        await inner(attempt)

    return host.chains.model_request.wrap(layer)


def _tokens(run: Run) -> int:
    used = run.agent.session.turns.usage + run.tree.usage
    return used.input_tokens + used.output_tokens
