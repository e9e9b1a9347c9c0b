"""The options that every command shares, and what they say together."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from retinue.errors import ConfigError

if TYPE_CHECKING:
    from retinue.compose.config import Config

__all__ = ["Common", "collected", "common_options", "shared"]

F = TypeVar("F", bound=Callable[..., Any])

_NAMES = ("model", "base_url", "config", "home", "store", "cwd", "permission", "settings")
_OPTIONS = (
    click.option("--model", metavar="PROVIDER:NAME", help="Such as deepseek:deepseek-chat or ollama:qwen3."),
    click.option("--base-url", metavar="URL", help="Address of an OpenAI-compatible server."),
    click.option("--config", metavar="FILE", help="Configuration; default: the nearest retinue.yaml."),
    click.option("--home", metavar="DIR", help="Folder for state; default: the platform's state folder."),
    click.option("--store", metavar="URL", help="Database for sessions: sqlite:///PATH."),
    click.option("--cwd", metavar="DIR", help="Working folder of the root agent; default: this one."),
    click.option("--permission", metavar="PRESET", help="What tools may do: read-only, workspace-write, full-access."),
    click.option(
        "--set", "settings", metavar="KEY=VALUE", multiple=True, help="One option of the configuration; repeatable."
    ),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """What the common options of a command line say. None = nothing."""

    model: str | None = None
    base_url: str | None = None
    config: str | None = None
    home: str | None = None
    store: str | None = None
    cwd: str | None = None
    permission: str | None = None
    settings: tuple[str, ...] = ()

    @property
    def folder(self) -> Path:
        """The working folder, absolute. Raises: ConfigError if it is none."""
        folder = Path(self.cwd or os.environ.get("RETINUE_CWD") or ".").absolute()
        if not folder.is_dir():
            raise ConfigError(f"the working folder {str(folder)!r} is not a folder; set --cwd to one that is")
        return folder

    @property
    def place(self) -> str:
        """The options that another command line needs to find the same sessions, with a leading space, or nothing."""
        from shlex import quote

        given = (("--home", self.home), ("--store", self.store), ("--config", self.config))
        return "".join(f" {name} {quote(value)}" for name, value in given if value is not None)

    @property
    def again(self) -> str:
        """The options that another command line needs to go on as this one did, with a leading space, or nothing.

        `--set` is left out, and what an address has before its host: they may hold keys.
        """
        from re import sub
        from shlex import quote

        address = None if self.base_url is None else sub(r"(?<=//)[^/?#]*@", "", self.base_url)
        given = (
            ("--model", self.model),
            ("--base-url", address),
            ("--cwd", self.cwd),
            ("--permission", self.permission),
        )
        return self.place + "".join(f" {name} {quote(value)}" for name, value in given if value is not None)

    def load(self, environ: Mapping[str, str]) -> Config:
        """The configuration that holds for this command line. Raises: ConfigError."""
        from retinue.compose.config import Overrides, load_config

        more = tuple(line for line in environ.get("RETINUE_SET", "").splitlines() if line.strip())
        overrides = Overrides(
            config_file=Path(self.config).absolute() if self.config is not None else None,
            model=self.model,
            base_url=self.base_url,
            home=self.home,
            store=self.store,
            permission=self.permission,
            settings=(*more, *self.settings),
        )
        return load_config(overrides, cwd=self.folder, environ=environ)


def common_options(command: F) -> F:
    """The command takes the common options as keyword arguments; `collected` or `shared` turns them into one value."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def collected(options: dict[str, Any]) -> Common:
    """The common options among `options`, taken out of it."""
    return Common(**{name: options.pop(name) for name in _NAMES if name in options})


def shared(ctx: click.Context, options: dict[str, Any]) -> Common:
    """The common options of the whole command line, taken out of `options`; those after the command win."""
    own = collected(options)
    before = ctx.obj if isinstance(ctx.obj, Common) else Common()
    given = {name: value for name in _NAMES if (value := getattr(own, name)) not in (None, ())}
    given["settings"] = (*before.settings, *own.settings)
    return Common(**{name: given.get(name, getattr(before, name)) for name in _NAMES})
