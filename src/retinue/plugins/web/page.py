"""HTML as text that a model reads well: headings, lists, links and code, without scripts, styles and navigation."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from urllib.parse import urljoin

__all__ = ["as_text"]

_SKIPPED = frozenset({"script", "style", "noscript", "template", "svg", "nav", "iframe", "head"})
_BLOCKS = re.compile(
    r"address|article|aside|blockquote|body|d[dlt]|details|div|fig(caption|ure)|footer|form|h[1-6r]|header|html|li"
    r"|main|[ou]l|p|pre|section|summary|table|t(body|foot|head|r)"
)
_VOID = re.compile(r"area|base|br|col|embed|hr|img|input|link|meta|source|track|wbr")
_BLANKS = re.compile(r"[ \t\r\f\v\n]+")


def as_text(html: str, base: str) -> str:
    """The readable text of a page at `base`; its title first. Never raises, whatever the page is made of."""
    reader = _Reader(base)
    reader.feed(html)
    reader.close()
    return reader.text()


class _Reader(HTMLParser):
    def __init__(self, base: str) -> None:
        super().__init__(convert_charrefs=True)
        self._base = base
        self._lines: list[str] = []
        self._line: list[str] = []
        self._title: list[str] = []
        self._in_title = False
        self._skipped: list[str] = []
        self._depth_of_pre = 0
        self._links: list[tuple[str, int]] = []

    def text(self) -> str:
        self._end_line()
        title = _BLANKS.sub(" ", "".join(self._title)).strip()
        body = re.sub(r"\n{3,}", "\n\n", "\n".join(self._lines)).strip("\n")
        return f"{title}\n\n{body}" if title else body

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag == "title":
            self._in_title = True
        elif tag == "body":
            self._skipped.clear()  # a head that was not closed ends here
        if tag in _SKIPPED:
            self._skipped.append(tag)
        if self._skipped:
            return
        if _BLOCKS.fullmatch(tag):
            self._end_line()
        match tag:
            case "br":
                self._end_line()
            case "pre":
                self._depth_of_pre += 1
                self._lines.append("```")
            case "li":
                self._line.append("- ")
            case "h1" | "h2" | "h3" | "h4" | "h5" | "h6":
                self._lines.append("")
                self._line.append("#" * int(tag[1]) + " ")
            case "p" | "table" | "ul" | "ol":
                self._lines.append("")
            case "a":
                self._links.append((dict(attrs).get("href") or "", len(self._line)))
            case "img":
                alt = dict(attrs).get("alt")
                if alt:
                    self._line.append(f"[image: {alt}]")
            case _:
                pass

    def handle_endtag(self, tag: str) -> None:
        if tag == "title":
            self._in_title = False
        if tag in self._skipped:
            while self._skipped.pop() != tag:
                pass
            return
        if self._skipped or _VOID.fullmatch(tag):
            return
        if tag == "a" and self._links:
            self._close_link(*self._links.pop())
        elif tag == "td" or tag == "th":
            self._line.append(" | ")
            return
        if _BLOCKS.fullmatch(tag):
            self._end_line()
        if tag == "pre" and self._depth_of_pre:
            self._depth_of_pre -= 1
            self._lines.append("```")
        if tag in ("p", "h1", "h2", "h3", "h4", "h5", "h6"):
            self._lines.append("")

    def _close_link(self, href: str, start: int) -> None:
        words = "".join(self._line[start:]).strip()
        if not words or not href or href.startswith(("#", "javascript:", "data:")):
            return
        try:
            target = urljoin(self._base, href)
        except ValueError:
            target = href
        if target != words:
            self._line.append(f" ({target})")

    def handle_data(self, data: str) -> None:
        if self._in_title:
            self._title.append(data)
        elif self._skipped:
            return
        elif self._depth_of_pre:
            first, *rest = data.split("\n")
            self._line.append(first)
            for line in rest:
                self._lines.append("".join(self._line))
                self._line = [line]
        else:
            self._line.append(_BLANKS.sub(" ", data))

    def _end_line(self) -> None:
        line = "".join(self._line)
        self._line = []
        self._links.clear()
        if self._depth_of_pre:
            if line:
                self._lines.append(line)
            return
        line = re.sub(r" {2,}", " ", line).strip().removesuffix("|").rstrip()
        if line not in ("", "-", "|"):
            self._lines.append(line)
