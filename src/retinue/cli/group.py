"""The `retinue` command: which sub-commands there are, without importing them, and what their failures print."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from keyword import iskeyword

import click

from retinue import __version__
from retinue.cli.options import collected, common_options
from retinue.errors import RetinueError

__all__ = ["COMMANDS", "retinue", "run_command"]

COMMANDS = {
    "run": "Work on one task and print the answer.",
    "resume": "Go on with a stored session.",
    "acp": "Work in an editor, over the Agent Client Protocol.",
    "demo": "See delegation at work, without a key.",
    "sessions": "List the stored root sessions.",
    "tree": "Show a session and its descendants.",
    "send": "Send a message to a session, whoever drives it.",
    "interrupt": "End the open turn of a session.",
    "stop": "End a session and everything below it.",
    "log": "Show the turns and steps of a session.",
    "why": "Make one stored model request again and compare it with what was sent.",
    "usage": "Show what the agents of a tree have used.",
    "doctor": "Check the logs, mailboxes and files of the home.",
    "prune": "Remove whole trees of sessions.",
    "export": "Write a tree of sessions to a file.",
    "import": "Store an exported tree.",
    "backup": "Copy the whole database.",
    "mcp": "Serve delegation to other agents over the Model Context Protocol.",
    "scenario": "Pin what an agent configuration makes of given replies.",
}
"""Every sub-command and what it is for; each is `command` of the module of its name in `retinue.cli.commands`."""


class _Lazy(click.Group):
    """A group whose commands are imported when they run, never to list them."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in COMMANDS:
            return None
        module = f"{cmd_name}_" if iskeyword(cmd_name) else cmd_name
        return import_module(f"retinue.cli.commands.{module}").command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.group(cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, "-V", "--version", prog_name="retinue", message="%(prog)s %(version)s")
@common_options
@click.pass_context
def retinue(ctx: click.Context, **options: object) -> None:
    """Agents that hand work to child agents, and are told what became of every one.

    Common options may stand before or after the command. Each can also be set in the environment (RETINUE_MODEL,
    RETINUE_HOME, ...) and, where it makes sense, in retinue.yaml.
    """
    ctx.obj = collected(options)


def run_command(arguments: Sequence[str]) -> int:
    """The exit code of the command; what it failed with is on stderr."""
    try:
        answer = retinue.main(list(arguments), prog_name="retinue", standalone_mode=False)
        return answer if isinstance(answer, int) else 0
    except click.exceptions.NoArgsIsHelpError as error:
        print(error.format_message(), file=sys.stderr)
        return 2
    except click.ClickException as error:
        from retinue.cli.failures import say

        context = error.ctx if isinstance(error, click.UsageError) else None
        hint = f" (see {context.command_path} --help)" if context is not None else ""
        say("USAGE", f"{error.format_message()}{hint}")
        return 2
    except click.Abort:
        return 130
    except RetinueError as error:
        from retinue.cli.failures import report

        if os.environ.get("RETINUE_DEBUG"):
            raise
        return report(error)
    except BrokenPipeError:  # whoever read the output has gone: there is nobody to tell
        _drop_output()
        return 1
    except OSError as error:
        if error.errno not in _UNWRITABLE:
            raise
        from retinue.cli.failures import say_unwritten

        say_unwritten(error)
        _drop_output()
        return 1


_UNWRITABLE = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF)


def _drop_output() -> None:
    """The interpreter does not try again at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
