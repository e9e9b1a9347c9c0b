"""Rules of permissions: how they are read, what they are matched against, and what hides nothing from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from retinue.errors import ConfigError
from retinue.plugins.permissions.commands import all_parts, plain_parts
from retinue.plugins.permissions.rules import Rules, RulesConfig, acts_on


def verdict(
    tool: str,
    arguments: dict[str, Any],
    *,
    cwd: Path = Path("/work"),
    granted: tuple[str, ...] = (),
    is_outside: bool = True,
    **rules: Any,
) -> str:
    judged = Rules(RulesConfig(**rules)).judge(acts_on(tool, arguments, cwd), granted=granted, is_outside=is_outside)
    return judged.verb


def bash(command: str, **rules: Any) -> str:
    return verdict("bash", {"command": command}, **rules)


# --- reading them ---


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("bash(git *", "is no rule"),
        ("", "is no rule"),
        ("bash git", "is no rule"),
        ("subagent(reviewer)", "has a pattern"),
        ("mcp__github__*(x)", "has a pattern"),
        ("*(x)", "has a pattern"),
        ("bash( )", "is empty"),
    ],
)
def test_a_bad_rule_is_an_error_that_names_it(text: str, said: str) -> None:
    with pytest.raises(ConfigError) as error:
        Rules(RulesConfig(deny=(text,)))
    assert "plugins.permissions.rules.deny" in str(error.value)
    assert repr(text) in str(error.value)
    assert said in str(error.value)


# --- which list wins ---


def test_deny_beats_ask_and_ask_beats_allow() -> None:
    assert bash("git push", allow=("bash",), ask=("bash(git push*)",), deny=("bash(git *)",)) == "deny"
    assert bash("git push", allow=("bash",), ask=("bash(git push*)",)) == "ask"
    assert bash("git log", allow=("bash",), ask=("bash(git push*)",)) == "allow"


def test_what_no_rule_names_is_for_otherwise_to_decide() -> None:
    assert bash("ls") == "allow"
    assert bash("ls", allow=("read",), otherwise="ask") == "ask"
    assert bash("ls", allow=("bash(ls*)",), otherwise="deny") == "allow"
    assert bash("rm x", allow=("bash(ls*)",), otherwise="deny") == "deny"
    assert verdict("report", {}, otherwise="deny", is_outside=False) == "allow"
    assert verdict("report", {}, deny=("report",), is_outside=False) == "deny"


def test_what_was_granted_silences_the_rule_that_asked_and_no_other() -> None:
    rules = {"ask": ("bash(git push*)", "bash(rm*)"), "deny": ("bash(rm -rf*)",)}
    granted = ("bash(git push*)",)
    assert bash("git push x", granted=granted, **rules) == "allow"
    assert bash("git push x; rm y", granted=granted, **rules) == "ask"
    assert bash("git push x; rm -rf y", granted=(*granted, "bash(rm*)"), **rules) == "deny"
    assert bash("ls", granted=("bash",), otherwise="ask") == "allow"
    assert verdict("write", {"path": "x"}, granted=("bash",), otherwise="ask") == "ask"


def test_tools_are_named_by_patterns_as_well() -> None:
    assert verdict("mcp__github__push", {}, deny=("mcp__github__*",)) == "deny"
    assert verdict("mcp__gitlab__push", {}, deny=("mcp__github__*",)) == "allow"
    assert verdict("anything", {}, ask=("*",)) == "ask"


# --- commands ---


@pytest.mark.parametrize(
    "command",
    [
        "git status",
        "git status --short",
        "  git   status  ",
        "git status && git status -s",
        "git status; git status",
        "git status | git status",
        "git status\ngit status",
        "git 'status'",
        'git status "a; rm b"',
        "git status '$(rm b)'",
        "git status $HOME",
    ],
)
def test_a_command_is_allowed_if_all_of_it_is(command: str) -> None:
    assert bash(command, allow=("bash(git status*)",), otherwise="deny") == "allow"


@pytest.mark.parametrize(
    "command",
    [
        "git status && rm x",
        "git status; rm x",
        "git status & rm x",
        "git status | sh",
        "git status\nrm x",
        "git status $(rm x)",
        'git status "$(rm x)"',
        "git status `rm x`",
        'git status "`rm x`"',
        "git status ${x@P}",
        "git status $'\\x27'",
        "git status > ~/.bashrc",
        "git status < x",
        "git status <(rm x)",
        "(git status; rm x)",
        "git status # '\nrm x #'",
        "git status 'unfinished",
        "git status \\\nrm",
        "git status\\",
        "PAGER=rm git status",
        "env git status",
        "git statu",
        "",
        ";",
    ],
)
def test_what_could_hide_another_command_is_not_allowed(command: str) -> None:
    assert bash(command, allow=("bash(git status*)",), otherwise="deny") == "deny"


@pytest.mark.parametrize(
    "command",
    [
        "rm x",
        "/bin/rm x",
        "\\rm x",
        "r''m x",
        '"rm" x',
        "ls; rm x",
        "ls && rm x",
        "ls | rm x",
        "ls & rm x",
        "ls\nrm x",
        "ls $(rm x)",
        "ls `rm x`",
        'ls "$(rm x)"',
        "bash -c 'rm x'",
        'sh -c "rm x"',
        "sudo rm x",
        "sudo -u root rm x",
        "setsid -w rm x",
        "stdbuf -o0 rm x",
        "flock lock rm x",
        "find . -name y -type f -size 1 -newer z -exec rm x ;",
        ">/dev/null rm x",
        "2>&1 rm x",
        "<in >>out rm x",
        "env A=1 rm x",
        "A=1 B=2 rm x",
        "(rm x)",
        "{ rm x; }",
        "if true; then rm x; fi",
        "! rm x",
        "find . | xargs -n 1 rm x",
        "timeout 5 rm x",
        "r\\\nm x",
        "  rm    x",
        " ".join(["nice"] * 40) + " rm x",
    ],
)
def test_a_denied_command_is_found_wherever_it_stands(command: str) -> None:
    assert bash(command, deny=("bash(rm *)",)) == "deny"
    assert bash(command, ask=("bash(rm *)",)) == "ask"


def test_a_pattern_that_ends_in_a_star_word_fits_the_bare_command() -> None:
    assert bash("git", deny=("bash(git *)",)) == "deny"
    assert bash("gitk", deny=("bash(git *)",)) == "allow"


def test_a_call_whose_arguments_do_not_say_what_it_acts_on_is_on_the_safe_side() -> None:
    assert verdict("bash", {}, deny=("bash(rm*)",)) == "deny"
    assert verdict("bash", {"command": 7}, allow=("bash(rm*)",), otherwise="deny") == "deny"
    assert verdict("web_fetch", {"url": "http://[bad"}, ask=("web_fetch(*.org)",)) == "ask"
    for host in ("docs.b\u24d0d.org", "docs.b%61d.org"):  # spellings that a client may take for bad.org
        assert verdict("web_fetch", {"url": f"http://{host}"}, deny=("web_fetch(*.bad.org)",)) == "deny"
        assert verdict("web_fetch", {"url": f"http://{host}"}, allow=("web_fetch(*)",), otherwise="ask") == "ask"
    assert verdict("read", {"path": "a\0b"}, deny=("read(x)",)) == "deny"


def test_the_two_readings_of_a_command_are_bounded() -> None:
    long = "env " * 20_000 + "; A=1" * 20_000
    assert len(all_parts(long)) < 100
    assert plain_parts("a;" * 50_000) == ("a",) * 50_000


# --- files ---


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "secret").mkdir()
    (tmp_path / "outside").mkdir()
    (folder / "src" / "link").symlink_to(folder / "secret")
    (folder / "way-out").symlink_to(tmp_path / "outside")
    (folder / "alias").symlink_to(folder / "secret")
    return folder


def edit(cwd: Path, path: str | Path, **rules: Any) -> str:
    return verdict("edit", {"path": str(path)}, cwd=cwd, **rules)


def test_paths_are_allowed_by_where_they_really_lead(cwd: Path) -> None:
    rules = {"allow": ("edit(src/**)",), "otherwise": "deny"}
    for path in ("src/a.py", "src/deep/a.py", "./src/../src/a.py", cwd / "src/a.py", "src"):
        assert edit(cwd, path, **rules) == "allow"
    for path in ("a.py", "src/../a.py", "src/link/x", "srcs/x", "/src/a.py", "SRC/a.py"):
        assert edit(cwd, path, **rules) == "deny"


def test_denied_paths_are_found_behind_links_and_dots_and_in_any_case(cwd: Path) -> None:
    rules = {"deny": ("edit(secret/**)",)}
    for path in ("secret/x", "src/link/x", "alias/x", "src/../secret/x", cwd / "secret/x", "Secret/x", "secret"):
        assert edit(cwd, path, **rules) == "deny"
    assert edit(cwd, "src/x", **rules) == "allow"


def test_a_pattern_may_lead_through_a_link_or_out_of_the_folder(cwd: Path) -> None:
    assert edit(cwd, "secret/x", deny=("edit(alias/**)",)) == "deny"
    assert edit(cwd, "way-out/x", deny=("edit(../outside/**)",)) == "deny"
    assert edit(cwd, "../outside/x", deny=(f"edit({cwd.parent}/outside/*)",)) == "deny"
    assert edit(cwd, "~/.ssh/id", deny=("edit(~/.ssh/**)",)) == "deny"


def test_stars_stay_within_a_name_and_a_bare_name_is_anywhere_in_the_folder(cwd: Path) -> None:
    assert edit(cwd, "src/a.py", allow=("edit(src/*.py)",), otherwise="deny") == "allow"
    assert edit(cwd, "src/deep/a.py", allow=("edit(src/*.py)",), otherwise="deny") == "deny"
    assert edit(cwd, "src/deep/a.py", allow=("edit(src/**/*.py)",), otherwise="deny") == "allow"
    assert edit(cwd, "src/a.py", allow=("edit(src/**/?.py)",), otherwise="deny") == "allow"
    assert edit(cwd, "src/deep/a.py", allow=("edit(*.py)",), otherwise="deny") == "allow"
    assert edit(cwd, "src/deep/.env", deny=("edit(.env)",)) == "deny"
    assert edit(cwd, "../outside/a.py", allow=("edit(*.py)",), otherwise="deny") == "deny"


def test_a_search_without_a_folder_acts_on_the_working_folder(cwd: Path) -> None:
    assert verdict("grep", {"pattern": "x"}, cwd=cwd, allow=("grep(./**)",), otherwise="deny") == "allow"


# --- hosts ---


def test_addresses_are_judged_by_their_host() -> None:
    rules = {"allow": ("web_fetch(*.python.org)",), "otherwise": "ask"}
    assert verdict("web_fetch", {"url": "https://Docs.Python.org:443/x?y"}, **rules) == "allow"
    assert verdict("web_fetch", {"url": "https://docs.python.org./x"}, **rules) == "allow"
    for url in ("https://python.org.evil.net/", "https://evil.net/docs.python.org", "https://x@evil.net#.python.org"):
        assert verdict("web_fetch", {"url": url}, **rules) == "ask"
