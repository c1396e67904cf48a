"""`load_skill`: the text when it is needed, what it is known by, and nothing outside its folder."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from tests.engine.kit import Recorder
from tests.skills.test_form import GOOD, skill

from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.skills.folders import hash_of
from cairn.store.inmemory import InMemoryStore

VERSIONED = "---\nname: {name}\ndescription: x\nmetadata:\n  version: 1.0\n---\n\n# How\n"


async def loaded(folder: Path, *calls: dict[str, Any]) -> list[Any]:
    """What each call of `load_skill` brings: its result, or what the model is told."""
    script = [*(call("load_skill", **each) for each in calls), "done"]
    agent = Agent("a", Scripted(script), skills=[folder])
    async with Runtime(InMemoryStore(), [agent]) as rt:
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        events = [entry.event for entry in await rt.trace_async("r")]
    return [
        json.loads(bytes(event.result)) if isinstance(event, ev.ToolCompleted) else event.message
        for event in events
        if isinstance(event, ev.ToolCompleted | ev.ToolFailed | ev.ToolRejected)
    ]


def test_the_body_is_read_with_version_and_hash_which_stand_in_the_trace(tmp_path: Path) -> None:
    place = skill(tmp_path, "a", VERSIONED, **{"more.md": "中文".encode()})
    first, other = asyncio.run(loaded(tmp_path, {"name": "a"}, {"name": "a", "file": "more.md"}))
    assert first == {
        "skill": "a",
        "file": "SKILL.md",
        "version": "1.0",
        "hash": hash_of((place / "SKILL.md").read_bytes()),
        "offset": 0,
        "text": "# How\n",
        "next_offset": None,
        "total_chars": 6,
        "files": ["more.md"],
    }
    assert (other["text"], other["version"]) == ("中文", "1.0")


@pytest.mark.parametrize("written", ["./SKILL.md", "SKILL.md/", ".//SKILL.md"])
def test_a_path_is_known_by_what_it_leads_to_however_it_is_written(
    written: str, tmp_path: Path
) -> None:
    skill(tmp_path, "a", VERSIONED)
    plain, other = asyncio.run(loaded(tmp_path, {"name": "a"}, {"name": "a", "file": written}))
    assert other == plain
    assert "changed" not in other


def test_a_long_text_is_read_page_by_page(tmp_path: Path) -> None:
    body = "".join(f"line {n}\n" for n in range(5_000))
    skill(tmp_path, "a", GOOD + body)
    pages, offset = [], 0
    while offset is not None:
        (page,) = asyncio.run(loaded(tmp_path, {"name": "a", "offset": offset}))
        pages.append(page["text"])
        offset = page["next_offset"]
    assert len(pages) > 1
    assert "".join(pages) == "# How\n" + body


def test_an_offset_beyond_the_end_is_told_with_the_length(tmp_path: Path) -> None:
    skill(tmp_path, "a", GOOD)
    (beyond,) = asyncio.run(loaded(tmp_path, {"name": "a", "offset": 99}))
    assert beyond == "a: SKILL.md has 6 characters, and none at offset 99. Read it from 0"


@pytest.mark.parametrize(
    ("file", "said"),
    [
        ("../x", "the name .. leads out of a folder"),
        ("refs", "this is a folder"),
        ("/x", "absolute paths are refused"),
        ("no.md", "there is no such file or folder"),
    ],
)
def test_why_a_file_is_not_read_is_said_in_words(file: str, said: str, tmp_path: Path) -> None:
    (skill(tmp_path, "a") / "refs").mkdir()
    (tmp_path / "a" / "refs" / "more.md").write_text("more")
    (message,) = asyncio.run(loaded(tmp_path, {"name": "a", "file": file}))
    assert message == f"a: {file} cannot be read: {said}. Its other files are refs/more.md"


def test_an_agent_has_the_tool_only_when_it_has_skills(tmp_path: Path) -> None:
    skill(tmp_path, "a")
    assert "load_skill" not in Agent("x", Scripted([])).tools
    spec = Agent("x", Scripted([]), skills=[tmp_path]).tools["load_skill"].spec
    assert (spec.effect, spec.recovery) == ("read", "repeat")


def test_two_agents_of_one_process_read_their_own_skills_only(tmp_path: Path) -> None:
    skill(tmp_path / "x", "one", GOOD + "of x")
    skill(tmp_path / "y", "two", GOOD + "of y")
    (mine,) = asyncio.run(loaded(tmp_path / "x", {"name": "two"}))
    assert mine == 'there is no skill "two". There are one'
    (near,) = asyncio.run(loaded(tmp_path / "y", {"name": "towo"}))
    assert "Did you mean two?" in near


OUT = {
    "..": "../secret",
    "deep": "references/../../secret",
    "absolute": "{tmp}/secret",
    "link": "link.md",
    "linked folder": "folder/secret",
    "hidden": ".git/config",
    "missing": "nothing.md",
    "the folder": "references",
    "nul": "a\0b",
    "pipe": "pipe",
    "turned": "a\u202eb",
    "backslash": "..\\secret",
}


@pytest.mark.parametrize("which", OUT)
def test_nothing_outside_the_skills_folder_is_ever_read(which: str, tmp_path: Path) -> None:
    import os

    (tmp_path / "secret").write_text("SECRET")
    place = skill(tmp_path / "skills", "a")
    (place / "references").mkdir()
    agent = Agent(
        "a",
        Scripted([call("load_skill", name="a", file=OUT[which].format(tmp=tmp_path)), "done"]),
        skills=[tmp_path / "skills"],
    )
    (place / "link.md").symlink_to(tmp_path / "secret")  # all of it since the agent was made
    (place / "folder").symlink_to(tmp_path)
    (place / ".git").mkdir()
    (place / ".git" / "config").write_text("SECRET")
    os.mkfifo(place / "pipe")
    with Runtime(":memory:", [agent]) as rt:
        rt.run("a", "t", id="r")
        events = [entry.event for entry in rt.trace("r")]
    (failed,) = [e for e in events if isinstance(e, ev.ToolFailed | ev.ToolRejected)]
    assert "SECRET" not in str(events)
    assert failed.message


def test_a_skill_whose_folder_became_a_link_is_not_read(tmp_path: Path) -> None:
    place = skill(tmp_path / "skills", "a")
    other = skill(tmp_path / "other", "a", GOOD + "SECRET")
    agent = Agent("a", Scripted([call("load_skill", name="a"), "done"]), skills=[place.parent])
    place.rename(tmp_path / "moved")
    place.symlink_to(other)
    with Runtime(":memory:", [agent]) as rt:
        rt.run("a", "t", id="r")
        assert "SECRET" not in str([entry.event for entry in rt.trace("r")])


def test_binary_and_large_files_are_refused_in_words(tmp_path: Path) -> None:
    data = {"logo.png": b"\x89PNG\r\n\x1a\n\0", "long.txt": b"x" * ((1 << 20) + 1)}
    skill(tmp_path, "a", **data)
    png, long = asyncio.run(
        loaded(tmp_path, {"name": "a", "file": "logo.png"}, {"name": "a", "file": "long.txt"})
    )
    assert "a PNG image" in png
    assert "larger than 1,048,576 bytes" in long


def test_a_folder_that_changes_during_a_run_is_read_as_it_is_and_said_to_have_changed(
    tmp_path: Path,
) -> None:
    place = skill(tmp_path, "a", VERSIONED)
    file = place / "SKILL.md"

    @tool(effect="read")
    def update() -> str:
        file.write_text(VERSIONED.replace("{name}", "a").replace("1.0", "2.0") + "New.\n")
        return "updated"

    script = [call("load_skill", name="a"), call("update"), call("load_skill", name="a"), "done"]
    agent = Agent("a", Scripted(script), tools=[update], skills=[tmp_path])
    with Runtime(":memory:", [agent]) as rt:
        assert rt.run("a", "t", id="r").status == "completed"
        found = [
            json.loads(bytes(entry.event.result))
            for entry in rt.trace("r")
            if isinstance(entry.event, ev.ToolCompleted)
        ]
    before, _, after = found
    assert (before["version"], after["version"]) == ("1.0", "2.0")
    assert before["hash"] != after["hash"] == hash_of(file.read_bytes())
    assert "changed" not in before
    assert after["changed"] is True


def test_a_changed_skill_is_another_version_of_the_agent_and_said_on_resume(
    tmp_path: Path,
) -> None:
    place = skill(tmp_path, "a")
    store = tmp_path / "cairn.db"

    @tool(effect="write")
    def pay() -> str:
        return "paid"

    def runtime() -> Runtime:
        script = [call("pay"), "done"]
        return Runtime(store, [Agent("a", Scripted(script), tools=[pay], skills=[place])])

    with runtime() as rt:
        assert rt.run("a", "t", id="r").reason == "approval"
    with runtime() as rt:
        rt.approve("r/1")
        assert rt.run("a", "t", id="r").status == "completed"
        kinds = [entry.event.NAME for entry in rt.trace("r")]
    assert "run.version_changed" not in kinds
    with runtime() as rt:
        assert rt.run("a", "t", id="s").reason == "approval"
    (place / "more.md").write_text("more")
    with runtime() as rt:
        rt.approve("s/1")
        assert rt.run("a", "t", id="s").status == "completed"
        (changed,) = [
            entry.event for entry in rt.trace("s") if isinstance(entry.event, ev.RunVersionChanged)
        ]
    assert [change.part for change in changed.changes] == ["skills"]


def test_what_a_skill_calls_its_allowed_tools_permits_nothing(tmp_path: Path) -> None:
    text = GOOD.replace("---\n\n", "allowed-tools: pay\n---\n")
    skill(tmp_path, "a", text)
    done: list[str] = []

    @tool(effect="write")
    def pay() -> str:
        done.append("paid")
        return "paid"

    def run(policy: Policy) -> Any:
        script = [call("load_skill", name="a"), call("pay"), "done"]
        agent = Agent("a", Scripted(script), tools=[pay], skills=[tmp_path])
        with Runtime(":memory:", [agent], policy=policy) as rt:
            return rt.run("a", "t")

    assert run(Policy()).reason == "approval"
    assert run(Policy(tools={"pay": "deny"})).status == "completed"
    assert done == []


def test_a_policy_can_deny_the_tool_like_any_other(tmp_path: Path) -> None:
    skill(tmp_path, "a")
    agent = Agent("a", Scripted([call("load_skill", name="a"), "done"]), skills=[tmp_path])
    with Runtime(":memory:", [agent], policy=Policy(tools={"load_skill": "deny"})) as rt:
        rt.run("a", "t", id="r")
        assert any(isinstance(entry.event, ev.ToolRejected) for entry in rt.trace("r"))


def test_the_index_stands_in_every_request_the_same_and_the_texts_do_not(tmp_path: Path) -> None:
    skill(tmp_path, "beta", GOOD + "LONG TEXT")
    skill(tmp_path, "alpha")
    model = Recorder(call("load_skill", name="beta"), call("load_skill", name="alpha"), "done")
    agent = Agent("a", Scripted(model), instructions="Be kind.", skills=[tmp_path])
    with Runtime(":memory:", [agent]) as rt:
        assert rt.run("a", "t", id="r").status == "completed"
        first, *others = [
            entry.event for entry in rt.trace("r") if isinstance(entry.event, ev.ModelRequested)
        ]
    systems = {request.system for request in model.requests}
    assert len(systems) == 1
    (system,) = systems
    assert system.startswith("Be kind.")
    assert system.index("- alpha: What it is for.") < system.index("- beta: What it is for.")
    assert "LONG TEXT" not in system
    assert "skills" in {block.name for block in first.blocks}
    assert [event.blocks for event in others] == [(), ()]  # what did not change is said once
