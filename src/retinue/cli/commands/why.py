"""`retinue why`: one stored model request, made again from the log and compared with what was sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from retinue.cli.options import Common, common_options, shared

if TYPE_CHECKING:
    from retinue.agent.rebuild import Rebuilt
    from retinue.session.events import SessionHeader

__all__ = ["command"]


@click.command("why")
@click.argument("id")
@click.argument("seq", type=int, required=False)
@click.option("--show", is_flag=True, help="The body alone on stdout; what there is to say goes to stderr.")
@click.option("--json", "as_json", is_flag=True, help="One object; with --show it holds the body.")
@common_options
@click.pass_context
def command(ctx: click.Context, id: str, seq: int | None, show: bool, as_json: bool, **options: Any) -> int:
    """Make the model request of one step again, from the log alone, and compare it with what was sent.

    SEQ is any event of that step of the session ID (or a unique prefix); `retinue log ID` shows where each step begins.
    Without it the newest request is meant. The exit code is 0 if the request is byte for byte what was sent, and 1 if
    it is not, or if that cannot be known. Works beside a live process, needs no key, and changes nothing.
    """
    import anyio

    from retinue.cli.views.why import body_text, why_lines, why_object

    header, found = anyio.run(_found, shared(ctx, options), id, seq)
    if as_json:
        from retinue.base.json import encode

        click.echo(encode(why_object(header, found, show=show)))
    else:
        for line in why_lines(header, found):
            click.echo(line, err=show)
        if show:
            click.echo(body_text(found))
    return 0 if found.verdict == "identical" else 1


async def _found(common: Common, id: str, seq: int | None) -> tuple[SessionHeader, Rebuilt]:
    from retinue.agent.rebuild import rebuilt
    from retinue.cli.views.reading import found, reading
    from retinue.model.adapters.encoders import encoder_again
    from retinue.session.events import StepStart

    async with reading(common) as maybe:
        store, known = await found(maybe, id)
        stored = await store.read(known)
    newest = max((event.seq for event in stored.events if type(event.data) is StepStart), default=0)
    return stored.header, rebuilt(stored.events, newest if seq is None else seq, encoder_again)
