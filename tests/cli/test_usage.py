"""What is wrong with a command line or a configuration is said in one line, with what to do."""

import shlex
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from retinue.cli.options import Common
from tests.support.command import Done

Retinue = Callable[..., Done]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("run",), "say what to do"),
        (("run", " ", ""), "say what to do"),
        (("run", "x", "--stream"), "--output jsonl"),
        (("run", "x", "--timeout", "0"), "--timeout"),
        (("run", "x", "--timeout", "nan"), "--timeout"),
        (("run", "x", "--drain-timeout", "nan"), "--drain-timeout"),
        (("run", "x", "--output", "xml"), "text"),
        (("run", "x", "--nonsense"), "--nonsense"),
        (("resume",), "ID"),
        (("resume", "some", "--key", "k"), "--key"),
        (("resume", "some", " "), "the text is empty"),
        (("resume", "some", "text", "--key", ""), "--key is empty"),
        (("nonsense",), "nonsense"),
    ],
)
def test_a_wrong_command_line_is_a_usage_error(retinue: Retinue, arguments: tuple[str, ...], words: str) -> None:
    done = retinue(*arguments)
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("retinue: USAGE: ")
    assert words in done.err
    assert "--help" in done.err


def test_without_a_model_it_says_what_to_set_and_names_the_demo(retinue: Retinue) -> None:
    done = retinue("run", "hello")
    assert (done.code, done.out) == (2, "")
    assert done.err.startswith("retinue: MODEL_NOT_CONFIGURED: ")
    for words in ("--model", "RETINUE_MODEL", "DEEPSEEK_API_KEY", "retinue demo"):
        assert words in done.err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--model", "nobody:x"), "nobody"),
        (("--model", "deepseek:"), "deepseek:NAME"),
        (("--model", "deepseek:x"), "DEEPSEEK_API_KEY"),
        (("--model", "ollama:x", "--base-url", "localhost:1"), "http://"),
        (("--model", "ollama:x", "--set", "plugins.subagent.max_dept=2"), "max_dept"),
        (("--model", "ollama:x", "--set", "plugins.subagent.max_dept=2"), "max_depth"),
        (("--model", "ollama:x", "--set", "plugins.subagent.max_depth=-1"), "max_depth"),
        (("--model", "ollama:x", "--set", "plugins.subagent.instances=[{max_depth: -1}]"), "instances[0].max_depth"),
        (("--model", "ollama:x", "--set", "plugins.nothing={}"), "nothing"),
        (("--model", "ollama:x", "--set", "modell=x"), "modell"),
        (("--model", "ollama:x", "--set", "model"), "path.to.key=value"),
        (("--model", "ollama:x", "--permission", "everything"), "everything"),
        (("--model", "ollama:x", "--store", "mysql://x"), "sqlite:///"),
        (("--model", "ollama:x", "--config", "missing.yaml"), "missing.yaml"),
        (("--model", "ollama:x", "--cwd", "missing"), "missing"),
    ],
)
def test_a_wrong_configuration_says_which_part(retinue: Retinue, arguments: tuple[str, ...], words: str) -> None:
    done = retinue("run", "hello", *arguments)
    assert (done.code, done.out) == (2, "")
    assert "Traceback" not in done.err
    assert words in done.err


def test_streams_that_the_caller_closed_are_no_reason_to_fail(tmp_path: Path) -> None:
    command = f"{shlex.quote(sys.executable)} -m retinue --home {shlex.quote(str(tmp_path))} sessions"
    assert subprocess.run(f"{command} >&- 2>&-", shell=True, check=False).returncode == 0
    done = subprocess.run(f"{command[:-8]} run x 2>&-", shell=True, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")


def test_options_stand_before_or_after_the_command_and_the_later_ones_win(retinue: Retinue, tmp_path: Path) -> None:
    assert retinue("--home", str(tmp_path / "one"), "sessions").out == "no sessions\n"
    done = retinue("--model", "nobody:x", "run", "hello", "--model", "noone:y")
    assert "'noone'" in done.err
    done = retinue("--set", "plugins.shell=null", "run", "hello", "--model", "ollama:x", "--set", "bundle=nonsense")
    assert "nonsense" in done.err


def test_every_common_option_is_a_variable_too(
    retinue: Retinue, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "some.yaml").write_text("max_tokens: 7\n")
    for name, value in {
        "RETINUE_MODEL": "ollama:x",
        "RETINUE_BASE_URL": "http://127.0.0.1:9/v1",
        "RETINUE_CONFIG": str(tmp_path / "some.yaml"),
        "RETINUE_STORE": f"sqlite:///{tmp_path}/s.db",
        "RETINUE_CWD": str(tmp_path),
        "RETINUE_PERMISSION": "read-only",
        "RETINUE_SET": "plugins.subagent.max_depth=1\nretry.max_retries=0\n",
    }.items():
        monkeypatch.setenv(name, value)
    import os

    config = Common().load(os.environ)
    assert (config.model, config.base_url, config.max_tokens) == ("ollama:x", "http://127.0.0.1:9/v1", 7)
    assert (config.permission, config.home) == ("read-only", str(tmp_path / "home"))
    assert config.store.url == f"sqlite:///{tmp_path}/s.db"
    assert (config.plugins["subagent"]["max_depth"], config.retry.max_retries) == (1, 0)
    assert Common().folder == tmp_path
    assert Common(model="ollama:y", settings=("retry.max_retries=3",)).load(os.environ).retry.max_retries == 3


def test_how_to_find_a_session_again_is_part_of_the_advice() -> None:
    assert Common(home="/a b", model="x").place == " --home '/a b'"
    assert Common().place == Common().again == ""
    given = Common(home="/a b", model="m:x y", base_url="http://me:secret@h/v1", cwd="/c", settings=("k=secret",))
    assert given.again == " --home '/a b' --model 'm:x y' --base-url http://h/v1 --cwd /c"


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_under_the_output_is_told_without_a_traceback(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "retinue", "--home", str(tmp_path), "sessions"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("retinue: OUTPUT_FAILED: ")
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no full device here")
def test_a_full_disk_under_the_answer_of_a_run_is_not_taken_for_a_reader_that_left(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "retinue", "--home", str(tmp_path), "demo", "--output", "json"]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 1
    assert "retinue: OUTPUT_FAILED: the output cannot be written: No space left on device" in done.stderr
    assert "OUTPUT_CLOSED" not in done.stderr
