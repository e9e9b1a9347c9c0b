"""Rules: which calls are allowed, asked about or denied, within what the preset lets through.

A rule is `TOOL` or `TOOL(PATTERN)`. `deny` beats `ask`, `ask` beats `allow`, and what no rule names is for `otherwise`
to decide. Patterns are matched against what a call acts on: the command of `bash`, the real path of a file tool, the
host of `web_fetch`. Where a rule cannot tell, it errs on the safe side: `deny` and `ask` hold, `allow` does not.
"""

from __future__ import annotations

import os
import re
from collections.abc import Collection, Mapping
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import Path
from typing import Literal, TypeAlias
from urllib.parse import urlsplit

from msgspec import Struct

from retinue.base.json import JSONObject
from retinue.errors import ConfigError
from retinue.plugins.permissions.commands import all_parts, plain_parts

__all__ = ["Acts", "Rule", "Rules", "RulesConfig", "Verdict", "acts_on", "parse_rule"]

Verb: TypeAlias = Literal["allow", "ask", "deny"]


class RulesConfig(Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Each rule is `TOOL` or `TOOL(PATTERN)`, such as `bash(git status*)`, `edit(src/**)`, `web_fetch(*.python.org)`,
    `mcp__github__*`."""

    allow: tuple[str, ...] = ()
    """Calls that are not asked about, whatever `otherwise` says."""
    ask: tuple[str, ...] = ()
    """Calls that somebody is asked about first."""
    deny: tuple[str, ...] = ()
    """Calls that are refused."""
    otherwise: Verb = "allow"
    """What becomes of a call that no rule names and that may have an effect outside of Retinue."""


class Acts(Struct, frozen=True, kw_only=True):
    """What a call acts on: `kind` says how patterns are matched, `on` is the command, path or host.

    `on` is None where the arguments do not say.
    """

    tool: str
    kind: Literal["command", "path", "host", "anything"] = "anything"
    on: str | None = None
    cwd: Path | None = None


class Verdict(Struct, frozen=True):
    """What the rules say of a call, and the rule that says so; `otherwise` if no rule names it."""

    verb: Verb
    rule: str = "otherwise"


_KINDS: Mapping[str, tuple[Literal["command", "path", "host"], str]] = {
    "bash": ("command", "command"),
    "read": ("path", "path"),
    "write": ("path", "path"),
    "edit": ("path", "path"),
    "glob": ("path", "path"),
    "grep": ("path", "path"),
    "web_fetch": ("host", "url"),
}
"""For each tool whose rules may have a pattern: how it is matched, and the argument that says on what the call acts."""

_FORM = re.compile(r"([A-Za-z0-9_*?\[\]!-]+)(?:\((.*)\))?", re.DOTALL)


def acts_on(tool: str, arguments: JSONObject, cwd: Path | None) -> Acts:
    """What the call acts on. `cwd` is the working folder of its agent."""
    if tool not in _KINDS:
        return Acts(tool=tool)
    kind, name = _KINDS[tool]
    given = arguments.get(name, "." if kind == "path" else None)
    on = given if isinstance(given, str) else None
    if kind == "host" and on is not None:
        on = _host(on)
    return Acts(tool=tool, kind=kind, on=on, cwd=cwd)


_HOST = re.compile(r"[a-z0-9._:-]+")
"""Other letters have several spellings, and a client may know more of them than are known here."""


def _host(url: str) -> str | None:
    try:
        host = urlsplit(url.strip()).hostname
    except ValueError:
        return None
    return host.rstrip(".") if host and _HOST.fullmatch(host) else None


class Rule(Struct, frozen=True):
    """One rule as it was written, and its two halves."""

    text: str
    tool: str
    pattern: str | None

    def binds(self, call: Acts) -> bool:
        """As a rule that asks or denies: something that the call does fits it, or nobody can tell."""
        if not fnmatchcase(call.tool, self.tool):
            return False
        if self.pattern is None or call.on is None:
            return True
        match call.kind:
            case "command":
                return any(_fits(part, self.pattern) for part in all_parts(call.on))
            case "path":
                return _path_fits(call, self.pattern, is_lax=True)
            case _:
                return fnmatchcase(call.on.lower(), self.pattern.lower())

    def covers(self, call: Acts, part: str | None) -> bool:
        """As a rule that allows: all of the call, or this `part` of its command, fits it for certain."""
        if not fnmatchcase(call.tool, self.tool):
            return False
        if self.pattern is None:
            return True
        if call.on is None:
            return False
        match call.kind:
            case "command":
                return part is not None and _fits(part, self.pattern)
            case "path":
                return _path_fits(call, self.pattern, is_lax=False)
            case _:
                return fnmatchcase(call.on.lower(), self.pattern.lower())


def parse_rule(text: str, where: str) -> Rule:
    """The rule that `text` says. Raises: ConfigError that names it and what is wrong with it."""
    form = _FORM.fullmatch(text.strip())
    if form is None:
        raise ConfigError(f"{where}: {text!r} is no rule; write TOOL or TOOL(PATTERN), such as bash(git status*)")
    tool, pattern = form.groups()
    if pattern is not None and tool not in _KINDS:
        raise ConfigError(
            f"{where}: {text!r} has a pattern, and calls of {tool!r} have nothing that it could be matched against; "
            f"patterns are for {', '.join(_KINDS)}"
        )
    if pattern is not None and not pattern.strip():
        raise ConfigError(f"{where}: the pattern of {text!r} is empty; leave out the parentheses to mean every call")
    return Rule(text.strip(), tool, None if pattern is None else pattern.strip())


class Rules:
    """The rules of one host. Raises: ConfigError for one that cannot be read."""

    def __init__(self, config: RulesConfig) -> None:
        def parsed(verb: str, texts: Collection[str]) -> tuple[Rule, ...]:
            return tuple(parse_rule(text, f"plugins.permissions.rules.{verb}") for text in texts)

        self._allow = parsed("allow", config.allow)
        self._ask = parsed("ask", config.ask)
        self._deny = parsed("deny", config.deny)
        self._otherwise: Verb = config.otherwise

    def judge(self, call: Acts, *, is_outside: bool = True, granted: Collection[str] = ()) -> Verdict:
        """What becomes of the call. Rules in `granted` do not ask any more.

        `is_outside` says that it may have an effect outside of Retinue. May block for a few stat calls.
        """
        for rule in self._deny:
            if rule.binds(call):
                return Verdict("deny", rule.text)
        asking = [rule.text for rule in self._ask if rule.binds(call)]
        for text in asking:
            if text not in granted:
                return Verdict("ask", text)
        if asking or self._allows(call):
            return Verdict("allow", asking[0] if asking else "allow")
        if not is_outside or (self._otherwise == "ask" and call.tool in granted):
            return Verdict("allow")
        if self._otherwise == "ask":
            return Verdict("ask", call.tool)
        return Verdict(self._otherwise)

    def _allows(self, call: Acts) -> bool:
        parts: tuple[str | None, ...] = (None,)
        if call.kind == "command":
            parts = (plain_parts(call.on) if call.on is not None else None) or (None,)
        return all(any(rule.covers(call, part) for rule in self._allow) for part in parts)


def _fits(part: str, pattern: str) -> bool:
    """`*` is anything. A trailing ` *` also stands for nothing: `git *` fits `git`."""
    return fnmatchcase(part, pattern) or (pattern.endswith(" *") and part == pattern[:-2])


def _path_fits(call: Acts, pattern: str, *, is_lax: bool) -> bool:
    """`is_lax`: also by the path as it was written, and whatever the case of its letters."""
    cwd = call.cwd or Path("/")
    try:
        written = os.path.normpath(os.path.join(cwd, os.path.expanduser(call.on or ".")))
        real = os.path.realpath(os.path.join(cwd, os.path.expanduser(call.on or ".")))
        anchored = _anchored(pattern, cwd)
    except (ValueError, OSError):
        return is_lax
    if not is_lax:
        return _glob(anchored, is_lax).fullmatch(real) is not None
    written_pattern = os.path.normpath(os.path.join(cwd, os.path.expanduser(_anywhere(pattern))))
    wanted = ((anchored, real), (anchored, written), (written_pattern, written))
    return any(_glob(glob, is_lax).fullmatch(path) for glob, path in wanted)


def _anywhere(pattern: str) -> str:
    """A pattern without a slash is a name in any folder."""
    return pattern if "/" in pattern or pattern == "~" else f"**/{pattern}"


def _anchored(pattern: str, cwd: Path) -> str:
    """The pattern as an absolute one; links in what comes before its first wildcard are followed."""
    parts = os.path.join(cwd, os.path.expanduser(_anywhere(pattern))).split("/")
    first = next((i for i, part in enumerate(parts) if any(char in part for char in "*?[")), len(parts))
    literal = os.path.realpath("/".join(parts[:first]) or "/")
    return "/".join([literal.rstrip("/"), *parts[first:]]) or "/"


@lru_cache(maxsize=1024)
def _glob(pattern: str, is_lax: bool) -> re.Pattern[str]:
    """A matcher of absolute paths: `*` and `?` stay within a name, `**` spans folders, `/**` at the end is also the
    folder itself."""
    out: list[str] = []
    at = 0
    while at < len(pattern):
        if pattern.startswith("/**", at) and at + 3 == len(pattern):
            out.append("(?:/.*)?")
            at += 3
        elif pattern.startswith("/**/", at):
            out.append("/(?:.*/)?")
            at += 4
        elif pattern.startswith("**", at):
            out.append(".*")
            at += 2
        elif pattern[at] in "*?":
            out.append("[^/]*" if pattern[at] == "*" else "[^/]")
            at += 1
        else:
            out.append(re.escape(pattern[at]))
            at += 1
    return re.compile("".join(out), re.DOTALL | (re.IGNORECASE if is_lax else 0))
