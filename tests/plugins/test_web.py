"""Fetching pages from a server on this machine, and everything that is refused."""

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest
from hypothesis import given
from hypothesis import strategies as st

from retinue.plugins.web import web_tool
from retinue.plugins.web.fetch import Fetcher
from retinue.plugins.web.page import as_text
from tests.plugins.calls import ToolBox
from tests.support.model_server import Exchange, ModelServer, model_server


@asynccontextmanager
async def site(answer: Callable[[Exchange], Awaitable[None]]) -> AsyncGenerator[ModelServer]:
    async with model_server(answer) as server:
        yield server


def box(tmp_path: Path, **rules: object) -> ToolBox:
    return ToolBox([web_tool(Fetcher(**({"allow_private": ("localhost", "127.0.0.1")} | rules)))], tmp_path)  # type: ignore[arg-type]


async def page(exchange: Exchange) -> None:
    await exchange.head(200, "text/html; charset=utf-8")
    await exchange.send("<title>Añ</title><p>one <a href='/two'>two</a></p>".encode())
    await exchange.end()


async def test_a_page_is_read_as_text(tmp_path: Path) -> None:
    async with site(page) as server:
        url = f"http://127.0.0.1:{server.port}/a?b=c"
        text = await box(tmp_path).text("web_fetch", url=url)
    assert text == f"[text/html]\nAñ\n\none two (http://127.0.0.1:{server.port}/two)"
    sent = server.exchanges[0]
    assert (sent.method, sent.path, sent.headers.get("cookie")) == ("GET", "/a?b=c", None)


async def test_raw_html_is_shown_when_asked_for(tmp_path: Path) -> None:
    async with site(page) as server:
        text = await box(tmp_path).text("web_fetch", url=f"http://127.0.0.1:{server.port}/", raw=True)
    assert "<title>" in text


async def test_a_redirect_is_followed_and_named(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        if exchange.path == "/old":
            await exchange.head(302, "text/plain", Location="/new")
            await exchange.end()
        else:
            await exchange.whole({"a": 1})

    async with site(answer) as server:
        text = await box(tmp_path).text("web_fetch", url=f"http://localhost:{server.port}/old")
    assert text == f'[http://localhost:{server.port}/new, application/json]\n{{"a": 1}}'


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1:{port}/",
        "http://localhost:{port}/",
        "http://[::1]:{port}/",
        "http://[::ffff:127.0.0.1]:{port}/",
        "http://0.0.0.0:{port}/",
        "http://2130706433:{port}/",
        "http://0x7f.1:{port}/",
        "http://127\u30020\uff0e0\uff611:{port}/",  # other full stops
        "http://\uff11\uff12\uff17.0.0.1:{port}/",  # other digits
        "http://10.0.0.1/",
        "http://192.168.1.1/",
        "http://169.254.169.254/latest/meta-data/",
        "http://[fe80::1]/",
        "http://[fd00::1]/",
        "http://[64:ff9b::7f00:1]/",
        "http://[2002:7f00:1::]/",
        "http://224.0.0.1/",
        "http://100.64.0.1/",
    ],
)
async def test_no_address_of_the_machine_or_its_network_is_reached(tmp_path: Path, url: str) -> None:
    async with site(page) as server:
        failure = await box(tmp_path, allow_private=()).refusal("web_fetch", url=url.format(port=server.port))
        assert server.connections == 0
    assert failure.name == ("UNREACHABLE" if "2130706433" in url else "NOT_ALLOWED")  # no client knows that spelling


async def test_a_redirect_to_the_machine_is_refused_like_an_address(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(302, "text/plain", Location=f"http://[::1]:{server.port}/secret")
        await exchange.end()

    async with site(answer) as server:
        failure = await box(tmp_path).refusal("web_fetch", url=f"http://localhost:{server.port}/")
        assert len(server.exchanges) == 1
    assert failure.name == "NOT_ALLOWED"


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("file:///etc/passwd", "BAD_ADDRESS"),
        ("ftp://example.org/", "BAD_ADDRESS"),
        ("example.org", "BAD_ADDRESS"),
        ("http://", "BAD_ADDRESS"),
        ("http://user:secret@example.org/", "BAD_ADDRESS"),
        ("http://example.org:99999/", "BAD_ADDRESS"),
        ("http://bad.example.org/", "NOT_ALLOWED"),
        ("http://\u24d1ad.example.org/", "NOT_ALLOWED"),  # a letter in a circle
        ("http://bad.example.org\\@example.org/", "BAD_ADDRESS"),
        ("http://other.net/", "NOT_ALLOWED"),
        ("http://notexample.org/", "NOT_ALLOWED"),
    ],
)
async def test_rules_are_kept_and_no_secret_is_repeated(tmp_path: Path, url: str, name: str) -> None:
    rules = box(tmp_path, allow_hosts=("Example.org",), deny_hosts=("bad.example.org",))
    failure = await rules.refusal("web_fetch", url=url)
    assert failure.name == name
    assert "secret" not in str(failure)


async def test_what_is_no_text_or_an_error_is_said(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(404 if exchange.path == "/gone" else 200, "image/png")
        await exchange.end()

    async with site(answer) as server:
        tools = box(tmp_path)
        base = f"http://localhost:{server.port}"
        assert (await tools.refusal("web_fetch", url=f"{base}/gone")).name == "HTTP_ERROR"
        assert (await tools.refusal("web_fetch", url=f"{base}/image")).name == "NOT_TEXT"
    assert (await box(tmp_path).refusal("web_fetch", url=f"{base}/closed")).name == "UNREACHABLE"


async def test_a_large_page_is_cut_and_the_rest_is_not_read(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(200, "text/plain")
        try:
            while True:
                await exchange.send(b"x" * 65536)
        except anyio.BrokenResourceError:
            return

    async with site(answer) as server:
        text = await box(tmp_path, max_bytes=1000).text("web_fetch", url=f"http://localhost:{server.port}/")
    assert text.count("x") >= 1000
    assert len(text) < 1200
    assert "cut" in text


async def test_a_page_that_never_comes_is_given_up(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.client_left()

    async with site(answer) as server:
        failure = await box(tmp_path, timeout_s=0.05).refusal("web_fetch", url=f"http://localhost:{server.port}/")
    assert failure.name == "TIMEOUT"


async def test_a_circle_of_redirects_ends(tmp_path: Path) -> None:
    async def answer(exchange: Exchange) -> None:
        await exchange.head(302, "text/plain", Location="/")
        await exchange.end()

    async with site(answer) as server:
        failure = await box(tmp_path).refusal("web_fetch", url=f"http://localhost:{server.port}/")
    assert failure.name == "HTTP_ERROR"


def test_html_becomes_text_that_reads_well() -> None:
    html = """<html><head><title>T &amp; x</title><style>b{}</style></head><body><nav>menu</nav>
      <h2>Head</h2><p>Some   <b>bold</b> text<br>next</p><ul><li>a</li><li><a href="x.html">b</a></li></ul>
      <pre>  code
        more</pre><script>evil()</script><table><tr><td>1</td><td>2</td></tr></table></body></html>"""
    assert as_text(html, "https://e.org/d/") == (
        "T & x\n\n## Head\n\nSome bold text\nnext\n\n- a\n- b (https://e.org/d/x.html)\n"
        "```\n  code\n        more\n```\n\n1 | 2"
    )


@given(st.text("<>/abcdeph1 \"'=&;!-\n", max_size=200))
def test_no_page_breaks_the_reader(html: str) -> None:
    assert isinstance(as_text(html, "https://e.org/"), str)
