"""`retinue doctor`: what is wrong with a home, and what to do about it."""

from __future__ import annotations

from typing import Any

import click

from retinue.cli.options import common_options, shared

__all__ = ["command"]


@click.command("doctor")
@click.option("--json", "as_json", is_flag=True, help="One object a line.")
@click.option("--fix", is_flag=True, help="Take away files that dead processes and removed sessions left.")
@common_options
@click.pass_context
def command(ctx: click.Context, as_json: bool, fix: bool, **options: Any) -> int:
    """Check the logs, mailboxes and files of the home against their rules, and say what to do about each finding.

    Works beside live processes, whose work under way is in order, and changes nothing without --fix. The exit code is 1
    if there is an error, else 0.
    """
    from retinue.base.json import encode
    from retinue.cli.home import located
    from retinue.cli.views.doctor import advised, finding_lines, finding_object, summary_line
    from retinue.compose.doctor.files import take_away
    from retinue.compose.doctor.home import examined
    from retinue.compose.stores import home_of

    common = shared(ctx, options)
    config, environ, database = located(common)
    report = examined(home_of(config, environ), database)
    for finding in (advised(finding, common.place) for finding in report.findings):
        is_fixed = fix and take_away(finding)
        if as_json:
            click.echo(encode(finding_object(finding, is_fixed=is_fixed)).decode())
        else:
            for line in finding_lines(finding, is_fixed=is_fixed):
                click.echo(line)
    if not as_json:
        click.echo(summary_line(report))
    return 1 if report.count("error") else 0
