"""`replay`: would the application, as it is now, decide as it did then?"""

from pathlib import Path

from tests.cli.conftest import Cairn


def edit(desk: Path, old: str, new: str) -> None:
    """Change the application, as its developer would."""
    path = desk / "desk.py"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new), encoding="utf-8")


def test_an_unchanged_application_decides_the_same_and_touches_nothing(
    cairn: Cairn, desk: Path
) -> None:
    cairn("run", "sleepy", "go", "--id", "s", NAP="0")
    before = (desk / "effects.txt").read_text()
    said = cairn("replay", "s")
    assert said.code == 0
    assert said.out == "s: the same way, 4 decisions (8 events, nothing was called)\n"
    assert (desk / "effects.txt").read_text() == before
    assert len(cairn("trace", "s", "--json").objects) == 8


def test_the_first_decision_that_leads_elsewhere_is_shown_with_a_diff(
    cairn: Cairn, desk: Path
) -> None:
    cairn("run", "shop", "go", "--id", "a", "-q")
    edit(desk, '@tool(effect="write", conflict_key="order")', '@tool(effect="read")')
    said = cairn("replay", "a")
    assert said.code == 1
    assert "a: goes elsewhere at event 4 (step 1)" in said.out
    assert "recorded: approval.requested request 1 for c1" in said.out
    assert "-approval.requested" in said.out
    assert "+tool.started" in said.out
    (found,) = cairn("replay", "a", "--json", "--steps").objects
    assert found["same"] is False
    assert found["divergence"]["seq"] == 4
    assert found["divergence"]["now"].startswith("tool.started")
    assert [s["seq"] for s in found["steps"]] == [2, 4]


def test_a_changed_prompt_is_shown_and_counts_when_it_is_asked_for(
    cairn: Cairn, desk: Path
) -> None:
    edit(desk, '["Done at once."]),', '["Done at once."], instructions="Be quick."),')
    cairn("run", "quick", "go", "--id", "q", "-q")
    edit(desk, '"Be quick."', '"Be quick.\\nBe \\x1b[31mred."')
    said = cairn("replay", "q")
    assert said.code == 0
    assert "the same way, with changes" in said.out
    assert "changed from event 2 on: the instructions" in said.out
    assert "+Be \u241b[31mred." in said.out
    assert cairn("replay", "q", "--strict").code == 1


def test_a_new_model_is_overlooked_when_that_is_asked_for(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go", "--id", "q", "-q")
    edit(
        desk,
        "    model = Scripted(\n        script,",
        "    model = Scripted(\n        script,\n        name='new-one',",
    )
    assert cairn("replay", "q").code == 1
    said = cairn("replay", "q", "--ignore", "model", "--strict")
    assert said.code == 0, said
    assert said.out.startswith("q: the same way, 2 decisions")
    assert "ignored from event 2 on: model.requested: model" in said.out
    (found,) = cairn("replay", "q", "--ignore", "model", "--json").objects
    assert [(c["kind"], c["now"]) for c in found["changes"]] == [("ignored", "new-one")]
    assert cairn("replay", "--all", "--ignore", "model").code == 0
    assert cairn("replay", "q", "--ignore", "prompt").code == 2


def test_all_runs_are_summed_up(cairn: Cairn, desk: Path) -> None:
    for name in ("quick", "twice", "endless", "broken"):
        cairn("run", name, "go", "--id", name, "-q")
    said = cairn("replay", "--all")
    assert said.code == 0
    assert said.out.splitlines()[-1].endswith("4 go the same way, none elsewhere")
    edit(desk, "limits=Limits(steps=3)", "limits=Limits(steps=2)")
    assert cairn("replay", "--all").code == 0, "the limits of a run are its own"
    said = cairn("replay", "--all", "--limits")
    assert said.code == 1
    assert "endless: goes elsewhere at event 10 (step 3)" in said.out
    assert said.out.splitlines()[-1].endswith("3 go the same way, 1 elsewhere")
    assert [o["run"] for o in cairn("replay", "--all", "--agent", "twice", "--json").objects] == [
        "twice"
    ]


def test_a_run_can_be_decided_as_another_agent(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a", "-q")
    said = cairn("replay", "a", "--agent", "quick")
    assert said.code == 1
    assert "unknown_tool" in said.out


def test_what_cannot_be_asked_for_is_said(cairn: Cairn) -> None:
    assert cairn("replay").code == 2
    assert cairn("replay", "a", "--all").code == 2
    assert cairn("replay", "nobody").code == 2
    said = cairn("replay", "nobody", "--agent", "nobody")
    assert said.code == 2
    assert "no agent 'nobody'" in said.err
