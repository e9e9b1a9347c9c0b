"""Instructions, skills and the list of things to do: what people write for agents, and what agents are told of it."""

import logging
from pathlib import Path

import pytest

import retinue
from retinue.errors import ConfigError
from retinue.model.content import text_of
from retinue.plugins.instructions import InstructionsConfig, instructions
from retinue.plugins.places import project_folders, read_document
from retinue.plugins.skills import SkillsConfig, find_skills, skill_tool
from retinue.plugins.todo import todo_tool
from retinue.testing.keys import prompt
from retinue.testing.model import ScriptedModel
from retinue.testing.script import text
from tests.plugins.calls import ToolBox


@pytest.fixture
def project(tmp_path: Path) -> Path:
    inner = tmp_path / "project" / "src" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "project" / ".git").mkdir()
    return inner


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def test_a_project_reaches_from_its_root_to_the_folder(project: Path) -> None:
    root = project.parent.parent
    assert project_folders(project) == [root, root / "src", project]


def test_outside_a_project_nobody_above_is_asked(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    folder.mkdir(parents=True)
    put(tmp_path / "a" / "AGENTS.md", "obey")
    assert project_folders(folder) == [folder]
    assert instructions(folder, {}, InstructionsConfig()) == ""


def test_instructions_come_from_the_outside_inwards_and_the_users_first(project: Path, tmp_path: Path) -> None:
    put(tmp_path / ".config" / "retinue" / "AGENTS.md", "mine")
    put(project.parent.parent / "AGENTS.md", "root {{braces}}")
    put(project / "AGENTS.md", "deep")
    told = instructions(project, {"HOME": str(tmp_path)}, InstructionsConfig())
    assert [line for line in told.splitlines() if line in ("mine", "root {{braces}}", "deep")] == [
        "mine",
        "root {{braces}}",
        "deep",
    ]


def test_what_is_too_long_is_cut_from_the_outside_and_says_so(project: Path) -> None:
    outer = put(project.parent / "AGENTS.md", "o" * 100)
    put(project / "AGENTS.md", "i" * 60)
    told = instructions(project, {}, InstructionsConfig(max_bytes=80))
    assert "i" * 60 in told
    assert "o" * 20 + f"\n[cut here; read {outer} for the rest]" in told


def test_another_name_can_be_an_instruction(project: Path) -> None:
    put(project / "CLAUDE.md", "that one")
    assert "that one" in instructions(project, {}, InstructionsConfig(files=("AGENTS.md", "CLAUDE.md")))


async def test_every_agent_is_told_and_a_change_is_seen_by_the_next_one(project: Path, tmp_path: Path) -> None:
    put(project / "AGENTS.md", "Speak {{softly}}.")
    model = ScriptedModel(text("one"))
    model.script(prompt("second"), text("two"))
    async with retinue.open("scripted:m", client=model, cwd=project, home=tmp_path / "home", environ={}) as app:
        await (await app.run("first")).result()
        put(project / "AGENTS.md", "Speak up.")
        await (await app.run("second")).result()
    first, second = model.requests()
    assert ("Speak {{softly}}." in first.system, "Speak {{softly}}." in second.system) == (True, False)
    assert "Speak up." in second.system


def test_front_matter_is_taken_apart(tmp_path: Path) -> None:
    document = read_document(put(tmp_path / "a.md", "---\nname: x\nlist: [1, 2]\n---\n\nbody\n---\nmore\n"))
    assert (document.head, document.text) == ({"name": "x", "list": [1, 2]}, "body\n---\nmore")
    assert read_document(put(tmp_path / "b.md", "# no front\n")).head == {}
    assert read_document(put(tmp_path / "c.md", "---\nnever closed\n")).text == "---\nnever closed"


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"---\na: [\n---\n", "no YAML"),
        (b"---\n- a\n---\n", "mapping"),
        (b"\xff\xfe", "UTF-8"),
        (b"x" * 300_000, "larger than"),
    ],
)
def test_a_broken_document_says_which_and_what(tmp_path: Path, data: bytes, words: str) -> None:
    path = tmp_path / "a.md"
    path.write_bytes(data)
    with pytest.raises(ConfigError, match=words) as caught:
        read_document(path)
    assert str(path) in str(caught.value)


SKILL = "---\nname: {name}\ndescription: {words}\n---\nDo it {words}.\n"


def test_the_closest_skill_of_a_name_wins(project: Path, tmp_path: Path) -> None:
    put(tmp_path / ".claude" / "skills" / "pdf" / "SKILL.md", SKILL.format(name="pdf", words="at home"))
    put(tmp_path / ".claude" / "skills" / "tex" / "SKILL.md", SKILL.format(name="tex", words="at home"))
    put(project / ".agents" / "skills" / "pdf" / "SKILL.md", SKILL.format(name="pdf", words="here"))
    put(project / ".retinue" / "skills" / "pdf" / "SKILL.md", SKILL.format(name="pdf", words="here first"))
    skills = find_skills(project, {"HOME": str(tmp_path)}, SkillsConfig())
    assert {name: skill.description for name, skill in skills.items()} == {"pdf": "here first", "tex": "at home"}


def test_a_broken_skill_is_left_out_and_logged(project: Path, caplog: pytest.LogCaptureFixture) -> None:
    put(project / ".retinue" / "skills" / "bad" / "SKILL.md", "---\nname: bad\n---\n")
    put(project / ".retinue" / "skills" / "good" / "SKILL.md", SKILL.format(name="good", words="well"))
    with caplog.at_level(logging.WARNING, "retinue"):
        assert list(find_skills(project, {}, SkillsConfig())) == ["good"]
    assert "description" in caplog.text


async def test_a_skill_is_loaded_with_the_names_of_its_files(project: Path) -> None:
    folder = project / ".retinue" / "skills" / "pdf"
    put(folder / "SKILL.md", SKILL.format(name="pdf", words="well"))
    put(folder / "scripts" / "make.py", "")
    put(folder / ".hidden", "")
    box = ToolBox([skill_tool(find_skills(project, {}, SkillsConfig()))], project)
    loaded = await box.text("skill", name="pdf")
    assert loaded.startswith(f"Skill pdf, from {folder}:\n\nDo it well.\n")
    assert loaded.endswith("\n- scripts/make.py")
    assert (await box.refusal("skill", name="nope")).name == "NOT_FOUND"


async def test_the_prompt_names_skills_and_an_agent_without_any_has_no_tool(project: Path, tmp_path: Path) -> None:
    put(project / ".retinue" / "skills" / "pdf" / "SKILL.md", SKILL.format(name="pdf", words="well"))
    model = ScriptedModel(text("one"))
    model.script(prompt("second"), text("two"))
    async with retinue.open("scripted:m", client=model, cwd=project, home=tmp_path / "home", environ={}) as app:
        await (await app.run("first")).result()
        await (await app.run("second", agent=await app.agent(cwd=tmp_path))).result()
    with_skill, without = model.requests()
    assert "- pdf: well" in with_skill.system
    assert "skill" in {tool.name for tool in with_skill.tools}
    assert "skill" not in {tool.name for tool in without.tools}


async def test_a_list_replaces_the_earlier_one_and_is_shown(tmp_path: Path) -> None:
    box = ToolBox([todo_tool()], tmp_path)
    items = [{"content": "a", "status": "completed"}, {"content": "b", "status": "in_progress"}]
    result = await box.call("todo", items=items)
    assert text_of(result.content) == "1 of 2 done\n[x] a\n[~] b"
    assert result.value == items
    assert (await box.refusal("todo", items=[items[1], items[1]])).name == "INVALID_ARGS"
    assert await box.text("todo", items=[]) == "The list is empty."
