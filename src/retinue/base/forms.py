"""The forms of well-known secrets, found in any text: keys, tokens, private keys, passwords in addresses.

A form has a mark that ordinary text does not have, so that long identifiers, digests and base64 stay as they are. What
is not marked, such as a password that stands alone, is not found.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache

from msgspec import Struct

__all__ = ["KNOWN_FORMS", "Form", "LONGEST_BLOCK", "MASK", "UNFINISHED_BLOCK", "mask_forms"]

MASK = "[secret]"

LONGEST_BLOCK = 16_384
"""Characters of a private key, from its first line to its last."""

_BEGIN = r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"
_END = r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----"

_TOKENS = r"""(?x)
    (?<![A-Za-z0-9_-])
    (?:
        sk-(?:ant|proj|svcacct|admin|or-v1)-[A-Za-z0-9_-]{20,}      # Anthropic, OpenAI, OpenRouter
      | sk-(?=[A-Za-z]*[0-9])[A-Za-z0-9]{20,}                       # OpenAI, DeepSeek and others
      | gh[pousr]_[A-Za-z0-9]{36,}                                  # GitHub
      | github_pat_[A-Za-z0-9_]{22,}
      | glpat-(?=[A-Za-z_-]*[0-9])[A-Za-z0-9_-]{20,}                # GitLab
      | xox[abeprs]-[0-9A-Za-z]*[0-9][A-Za-z0-9-]{9,}               # Slack
      | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])                    # Amazon
      | AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])                      # Google
      | [rs]k_(?:live|test)_[A-Za-z0-9]{16,}                        # Stripe
      | hf_[A-Za-z0-9]{34,}                                         # Hugging Face
      | npm_[A-Za-z0-9]{36}(?![A-Za-z0-9])
      | pypi-AgE[A-Za-z0-9_-]{30,}
      | eyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}   # a JSON web token
    )
"""
_BEARER = r"(?<![A-Za-z])(?:[Bb]earer|BEARER)[ ]+(?P<secret>(?=[A-Za-z._~+/=-]*[0-9])[A-Za-z0-9._~+/=-]{16,})"
_ADDRESS = r"""(?x)
    (?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{1,30}://[^\s/:@?\#"'<>\\]{0,200}:
    (?P<secret>
        (?!(?:passw(?:or)?d|pass|pwd?|secret|token|key|x{2,}|\.{2,})@)     # what examples say
        [^\s/@"'<>\\$%{\[(*][^\s/@"'<>\\]{2,500}
    )(?=@)
"""
_BLOCK = rf"{_BEGIN}(?:[\s\S]{{0,{LONGEST_BLOCK}}}?{_END}|[A-Za-z0-9+/=\s\\:|-]{{0,{LONGEST_BLOCK}}})"

UNFINISHED_BLOCK = re.compile(rf"{_BEGIN}(?![\s\S]*{_END})")
"""Where a private key begins of which the end has not come yet."""


_compiled = cache(re.compile)


class Form(Struct, frozen=True):
    """One form. A group `secret` of the expression is the part that is masked; without one, all of it."""

    expression: str
    marks: tuple[str, ...] = ()
    """One of them stands in every text that has the form; a text without them is not searched. None = always."""

    @property
    def pattern(self) -> re.Pattern[str]:
        """The expression, compiled when it is first asked for: most programs never see a mark of most forms."""
        return _compiled(self.expression)

    def may_be_in(self, text: str) -> bool:
        """`text` has a mark of it. Asked of all that a tool says, so it is a plain loop."""
        for mark in self.marks:
            if mark in text:
                return True
        return not self.marks


_PREFIXES = "sk- ghp_ gho_ ghu_ ghs_ ghr_ github_pat_ glpat- xox AKIA ASIA AIza k_live_ k_test_ hf_ npm_ pypi-AgE eyJ"

KNOWN_FORMS: tuple[Form, ...] = (
    Form(_BLOCK, ("PRIVATE KEY",)),
    Form(_TOKENS, tuple(_PREFIXES.split())),
    Form(_BEARER, ("earer ", "EARER ")),
    Form(_ADDRESS, ("://",)),
)
"""In the order in which they are looked for."""


def mask_forms(text: str, forms: Iterable[Form] = KNOWN_FORMS) -> str:
    """`text` without what has one of the forms; the very text if nothing has. Masking it again changes nothing."""
    for form in forms:
        if form.may_be_in(text):
            text = form.pattern.sub(_masked, text)
    return text


def _masked(match: re.Match[str]) -> str:
    if "secret" not in match.re.groupindex:
        return MASK
    start, end = match.span("secret")
    whole, at = match.group(), match.start()
    return f"{whole[: start - at]}{MASK}{whole[end - at :]}"
