"""What a shell command consists of, as far as rules about commands need to know.

Two readings, each wrong on its safe side. `plain_parts` is for permitting: it gives up on everything that could hide
another command. `all_parts` is for forbidding: it finds more than there is. Neither runs anything, and neither makes a
rule a wall: a program that a command starts does what it wants, within its preset and its sandbox.
"""

from __future__ import annotations

import re

__all__ = ["all_parts", "plain_parts"]

_OPERATORS = ";&|\n"
_HIDING = frozenset("`<>(){}")
"""Unquoted, they substitute, redirect or group."""
_SPLIT = re.compile(r"[;&|\n()`{}<>\"']+|\$\(")
_SPLIT_UNQUOTED = re.compile(r"[;&|\n()`{}<>]+|\s-(?:exec|ok)(?:dir)?\s")
_REDIRECTED = re.compile(r"[<>][&|]?\s*[^\s<>;&|]+\s([^;&|\n()`{}<>]*)")
"""What follows a redirection may be the command: `>log rm x`."""
_QUOTES = re.compile(r"[\\\"']")
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=")
_OPTIONS = 8
"""So many words after `sudo` and the like may be options with their values."""
_BEFORE = frozenset(
    {"!", "{", "builtin", "busybox", "chroot", "chrt", "command", "coproc", "do", "doas", "elif", "else", "env", "eval"}
    | {"exec", "flock", "if", "ionice", "nice", "nohup", "parallel", "setsid", "stdbuf", "strace", "sudo", "taskset"}
    | {"then", "time", "timeout", "until", "watch", "while", "xargs"}
)
"""Words after which another command may stand."""


def plain_parts(command: str) -> tuple[str, ...] | None:
    """The simple commands that it runs, one after the other or joined by pipes, without their quotes.

    None if there is anything else in it: a substitution, a redirection, a group, a comment, a quote that does not end.
    """
    parts: list[str] = []
    part: list[str] = []
    quote = ""
    at = 0
    while at < len(command):
        char = command[at]
        following = command[at + 1 : at + 2]
        if quote == "'":
            if char == "'":
                quote = ""
            else:
                part.append(char)
        elif char == "`" or (char == "$" and (following in ("(", "{", "[") or (not quote and following in ("'", '"')))):
            return None
        elif char == "\\":
            if following in ("", "\n"):
                return None
            part.append(following)
            at += 1
        elif quote:
            if char == '"':
                quote = ""
            else:
                part.append(char)
        elif char in "'\"":
            quote = char
        elif char in _HIDING or (char == "#" and (at == 0 or command[at - 1] in " \t" + _OPERATORS)):
            return None
        elif char in _OPERATORS:
            parts.append("".join(part))
            part = []
        else:
            part.append(char)
        at += 1
    if quote:
        return None
    parts.append("".join(part))
    return tuple(text for text in map(_spaced, parts) if text)


def all_parts(command: str) -> frozenset[str]:
    """Everything in it that may be a command: also inside quotes and substitutions, behind `sudo` and the like, without
    assignments before it, and by the name of a program alone where it is given by its path."""
    unquoted = _QUOTES.sub("", command.replace("\\\n", ""))
    texts = {command, *_SPLIT.split(command), *_SPLIT_UNQUOTED.split(unquoted), *_REDIRECTED.findall(unquoted)}
    found: set[str] = set()
    for text in map(_spaced, texts):
        for part in (text, *_inner(text)):
            found.update((part, _by_name(part)))
    found.discard("")
    return frozenset(found)


def _inner(text: str) -> list[str]:
    """What may be left behind assignments, and behind words that run another command, whatever options these have."""
    words = text.split(" ")
    at, is_wrapped = 0, False
    while at < len(words) and (_is_before(words[at]) or _ASSIGNMENT.match(words[at])):
        is_wrapped = is_wrapped or _is_before(words[at])
        at += 1
    last = at + (_OPTIONS if is_wrapped else 0)
    return [" ".join(words[i:]) for i in range(at, min(last + 1, len(words)))]


def _is_before(word: str) -> bool:
    return word.rpartition("/")[2] in _BEFORE or word.startswith("-")


def _by_name(text: str) -> str:
    first, space, rest = text.partition(" ")
    return f"{first.rpartition('/')[2]}{space}{rest}"


def _spaced(text: str) -> str:
    return " ".join(text.split())
