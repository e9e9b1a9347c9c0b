"""Secrets are found in any text, however it comes, and ordinary text stays as it is."""

import base64
import random
import subprocess

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from retinue.base.forms import KNOWN_FORMS, MASK, mask_forms
from retinue.tools.secrets import ByteMask, Secrets
from tests.house.checkout import ROOT

# Put together here, so that no file has the form of a secret.
B36 = "0123456789abcdefghijklmnopqrstuvwxyz"
PEM = "-----{} RSA PRIVATE KEY-----"
BLOCK = "\n".join([PEM.format("BEGIN"), "MIIEpAIBAAKCAQEA" * 4, "q83vEjRWeJ" * 6, PEM.format("END")])
JWT = ".".join(["eyJ" + "hbGciOiJIUzI1NiJ9", "eyJ" + "zdWIiOiIxMjM0NTY3ODkwIn0", "dozjgNryP4J3jVmNHl0w5N_XgL0n3I9P"])
TOKENS = [
    "sk-" + "a1B2" * 12,
    "sk-" + "0123456789abcdef" * 2,
    "sk-ant-" + "api03-" + "aB_c-" * 18,
    "sk-proj-" + "aB_c-" * 18,
    "ghp_" + B36,
    "gho_" + B36,
    "github_pat_" + "11ABCDEFG0" + "abcdEFGH" * 6,
    "glpat-" + "abcdEFGH12345678_-xy",
    "xoxb-" + "123456789012-1234567890123-abcdEFGHijkl",
    "AKIA" + "IOSFODNN7EXAMPLE",
    "AIza" + "SyA1234567890abcdefghijklmnopqrst-v",
    "sk_live_" + "abcdEFGH12345678",
    "hf_" + "abcdEFGHijklMNOPqrstUVWXyzabCDEFgh",
    "npm_" + B36,
    JWT,
]
ORDINARY = [
    "task-abcdefghijklmnopqrstuvwxyz0123456789",
    "sk-learn-pipeline-with-a-very-long-name",
    "disk-0123456789abcdef0123456789abcdef",
    "sha256:" + "0123456789abcdef" * 4,
    "the Bearer of bad news",
    "Authorization: Bearer TOKEN",
    "Authorization: Bearer ${ISSUES_TOKEN}",
    "postgres://user:password@localhost/db",
    "https://user:${PASSWORD}@host/",
    "https://example.org:8080/a@b",
    "xoxo-love-and-kisses",
    "AKIAlooksLikeOneButIsNot",
    "agent-a963490b623303942facdf55",
    "eyJhbGciOiJIUzI1NiJ9",
    "-----BEGIN CERTIFICATE-----",
]


@pytest.fixture
def secrets() -> Secrets:
    made = Secrets()
    made.add_forms(KNOWN_FORMS)
    return made


@pytest.mark.parametrize("token", TOKENS, ids=lambda token: token[:8])
@pytest.mark.parametrize("around", ["{}", "key={}", 'x = "{}"', "({})", "a {}\nb", "{},", "{{'k': '{}'}}"])
def test_a_token_is_masked_wherever_it_stands(token: str, around: str) -> None:
    assert mask_forms(around.format(token)) == around.format(MASK)


def test_what_leads_to_a_secret_stays() -> None:
    assert mask_forms("Authorization: Bearer " + "abc123DEF456ghi789") == f"Authorization: Bearer {MASK}"
    assert mask_forms("git clone https://me:" + "hunter22@host/x") == f"git clone https://me:{MASK}@host/x"
    assert mask_forms("redis://:" + "hunter22@host") == f"redis://:{MASK}@host"


def test_a_private_key_is_masked_whole_also_with_line_numbers_in_json_and_cut_off() -> None:
    assert mask_forms(f"a\n{BLOCK}\nb.") == f"a\n{MASK}\nb."
    numbered = "\n".join(f"{n:>4}\t{line}" for n, line in enumerate(BLOCK.splitlines(), 1))
    assert mask_forms(numbered) == f"   1\t{MASK}"
    escaped = BLOCK.replace("\n", "\\n")
    assert mask_forms(f'{{"key": "{escaped}\\n"}}') == f'{{"key": "{MASK}\\n"}}'
    assert mask_forms("\n".join(BLOCK.splitlines()[:2]) + "\n(cut off)") == f"{MASK}(cut off)"


@pytest.mark.parametrize("text", ORDINARY)
def test_ordinary_text_stays(text: str) -> None:
    assert mask_forms(text) is text


def test_digests_and_encoded_data_of_any_length_stay() -> None:
    data = random.Random(7).randbytes(1_000_000)
    for text in (data.hex(), base64.b64encode(data).decode(), base64.urlsafe_b64encode(data).decode()):
        assert mask_forms(text) == text
        assert mask_forms("\n".join(text[at : at + 76] for at in range(0, len(text), 76))).count(MASK) == 0


def test_hardly_anything_in_the_projects_own_files_looks_like_a_secret() -> None:
    listed = subprocess.run(["git", "ls-files", "*.py", "*.md", "*.toml"], cwd=ROOT, capture_output=True, text=True)
    found: list[str] = []
    for name in listed.stdout.split() or [str(path.relative_to(ROOT)) for path in (ROOT / "src").rglob("*.py")]:
        path = ROOT / name
        if path.is_file() and (count := mask_forms(text := path.read_text("utf-8")).count(MASK) - text.count(MASK)):
            found.append(f"{name}: {count}")
    # Tests of addresses with passwords, which are what they look like.
    assert [name for name in found if not name.startswith("tests/")] == []
    assert len(found) <= 4, found


PIECES = st.sampled_from([*TOKENS, *ORDINARY, BLOCK, "KNOWN-VALUE-1", "KNOWN-VAL", " ", "\n", "x", "é", "://a:", "@"])


@example([BLOCK], [])
@example([BLOCK, "\n"], [70])
@given(st.lists(PIECES, max_size=12), st.lists(st.integers(0, 3_000), max_size=8))
def test_text_in_pieces_is_masked_as_the_whole_and_once_is_enough(pieces: list[str], cuts: list[int]) -> None:
    secrets = Secrets(["KNOWN-VALUE-1"])
    secrets.add_forms(KNOWN_FORMS)
    text = "".join(pieces)
    whole = secrets.mask(text)
    assert secrets.mask(whole) == whole
    data, mask = text.encode(), ByteMask(secrets)
    places = [0, *sorted(min(cut, len(data)) for cut in cuts), len(data)]
    came = b"".join(mask.feed(data[a:b]) for a, b in zip(places, places[1:], strict=False)) + mask.end()
    assert came.decode() == whole


@given(st.text(max_size=400))
def test_text_without_a_form_is_the_very_same(text: str) -> None:
    if not any(form.pattern.search(text) for form in KNOWN_FORMS):
        assert mask_forms(text) is text


def test_a_long_line_is_passed_on_and_its_tokens_are_found(secrets: Secrets) -> None:
    mask, item = ByteMask(secrets), f'"{TOKENS[0]}",'
    came = b""
    for _ in range(20):
        came += mask.feed((item * 200).encode())
        assert len(mask.feed(b"")) == 0
    assert len(came) > 19 * 200 * len(MASK)
    came += mask.end()
    assert came == f'"{MASK}",'.encode() * 4_000
    blob = base64.b64encode(bytes(300_000))
    assert mask.feed(blob) + mask.end() == blob


def test_values_come_and_go_and_short_ones_are_none() -> None:
    secrets = Secrets(["first-value"])
    with secrets.add(["second-value", "short"]):
        assert secrets.mask("first-value second-value short") == f"{MASK} {MASK} short"
    assert secrets.mask("first-value second-value short") == f"{MASK} second-value short"
