"""Hints: every command that people are told to type can be pasted as it stands, and works."""

import re
import shlex
from pathlib import Path

import pytest
from tests.cli.conftest import Cairn, Said

HINT = re.compile(r"cairn (?:approve|deny|answer|resolve|inbox|resume|retry|chat|work)\b[^\n,:\]]*")


def hints(said: Said) -> list[str]:
    """The commands that were named, without the words that follow in the sentence."""
    found = HINT.findall(said.out + said.err)
    return [re.sub(r"( goes on| takes them on|\. To go on.*)$", "", each) for each in found]


@pytest.fixture
def own(desk: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The application names a store that no command finds by itself, with a blank in its path."""
    monkeypatch.delenv("CAIRN_STORE")
    (desk / "my data").mkdir()
    source = (desk / "desk.py").read_text(encoding="utf-8")
    (desk / "desk.py").write_text(source.replace('"desk.db"', '"my data/desk.db"'))
    return desk


@pytest.mark.usefixtures("own")
def test_a_hint_names_the_store_that_a_command_would_not_find_by_itself(cairn: Cairn) -> None:
    said = cairn("run", "shop", "go", "--id", "a")
    assert "    cairn approve a/1 --store 'my data/desk.db'\n" in said.out
    assert "    cairn deny a/1 -m REASON --store 'my data/desk.db'\n" in said.out
    assert "After that: cairn resume a, or" in said.out, "the application is found, and its store"
    for words in (("inbox", "--app", "desk:rt"), ("inbox", "--store", "my data/desk.db")):
        assert "cairn approve a/1 --store 'my data/desk.db'\n" in cairn(*words).out


def test_a_hint_names_no_store_that_is_found_by_itself(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "    cairn approve a/1\n" in cairn("run", "shop", "go", "--id", "a").out
    assert "    cairn approve a/1\n" in cairn("inbox", "--app", "desk:rt").out
    monkeypatch.delenv("CAIRN_STORE")
    Path("pyproject.toml").write_text('[tool.cairn]\nstore = "./desk.db"\n')
    assert "    cairn approve a/1\n" in cairn("run", "shop", "go", "--id", "a").out


def test_a_store_that_was_typed_is_typed_again(cairn: Cairn) -> None:
    said = cairn("run", "broken", "go", "--id", "a", "--store", "other.db")
    assert hints(said) == ["cairn retry a --store other.db"]
    said = cairn("run", "shop", "go", "--id", "b", "--store", "other.db", "--app", "desk:rt")
    assert "cairn approve b/1 --store other.db\n" in said.out
    assert "After that: cairn resume b --store other.db --app desk:rt, or" in said.out


@pytest.mark.usefixtures("own")
def test_every_hint_can_be_pasted_from_the_first_wait_to_the_end(cairn: Cairn) -> None:
    def paste(said: Said, words: str) -> Said:
        found = next(h for h in hints(said) if h.startswith(f"cairn {words}"))
        return cairn(*shlex.split(found)[1:])

    granted = paste(cairn("run", "unsure", "go", "--id", "a"), "approve")
    doubtful = paste(granted, "resume")
    assert "a/c1 · doubt · in doubt: did it happen?" in doubtful.out
    failed = paste(paste(doubtful, "resolve a/c1 --give-up"), "resume")
    assert "run a · failed" in failed.out
    assert paste(failed, "resolve a/c1 --happened").code == 0
    assert "That was that." in paste(failed, "retry").out
    waits = cairn("run", "asker", "go", "--id", "b")
    assert "cairn resume b --app desk:rt goes on" in cairn("pause", "b", "--app", "desk:rt").out
    assert "Thank you." in paste(paste(waits, "answer"), "resume").out


def test_a_command_for_whoever_has_the_agent_names_the_store_too(cairn: Cairn, own: Path) -> None:
    cairn("run", "shop", "go", "--id", "a")
    (own / "other.py").write_text("import cairn\nrt = cairn.Runtime('my data/desk.db')\n")
    said = cairn("resume", "a", "--app", "other:rt")
    assert said.code == 5
    at = "--store 'my data/desk.db'"
    assert hints(said) == [
        f"cairn inbox {at}",
        f"cairn resume a {at} --app module",
        f"cairn work {at} --app module",
    ]


@pytest.mark.usefixtures("own")
def test_what_is_left_of_a_talk_can_be_pasted(cairn: Cairn) -> None:
    said = cairn("chat", "shop", "--session", "s 1", "--principal", "ada", input="go\nlater\n")
    approve, deny, resume, chat = hints(said)
    for each in (approve, deny):
        assert each.endswith(" --store 'my data/desk.db'")
    assert "--store" not in resume
    assert chat == "cairn chat shop --session 's 1' --principal ada"
    assert "is not over" in cairn(*shlex.split(chat)[1:], input="n\n").out


@pytest.mark.parametrize("agent", ["broken", "endless"])
def test_a_run_that_failed_or_was_stopped_says_how_to_go_on(cairn: Cairn, agent: str) -> None:
    said = cairn("run", agent, "go", "--id", "a")
    assert said.out.splitlines()[-1] == "To go on as a new run: cairn retry a"
    for other in (cairn("run", "quick", "go"), cairn("run", "shop", "go"), cairn("cancel", "a")):
        assert "cairn retry" not in other.out


def test_an_unknown_call_of_a_failed_run_is_to_be_settled_before_it_is_gone_on_with(
    cairn: Cairn,
) -> None:
    cairn("run", "unsure", "go", "--id", "a")
    cairn("approve", "a/1")
    cairn("resume", "a")
    cairn("resolve", "a/c1", "--give-up")
    said = cairn("run", "unsure", "go", "--id", "a")
    assert said.code == 1
    assert said.out.splitlines()[-4:] == [
        "    cairn resolve a/c1 --happened --result TEXT",
        "    cairn resolve a/c1 --not-happened",
        "    cairn resolve a/c1 --give-up",
        "After that, to go on as a new run: cairn retry a",
    ]


OTHER_WORDS = re.compile(
    r"nobody knows|nobody can tell|unsure:|\(unsure\)|in_doubt|doubtful", re.IGNORECASE
)


def test_a_call_in_doubt_has_one_name_wherever_people_read_of_it(cairn: Cairn) -> None:
    """In doubt is what a run waits for, unknown is how a call stands; there is no third word."""
    cairn("run", "unsure", "go", "--id", "a", "--session", "s")
    cairn("approve", "a/1")
    told = [cairn("resume", "a", "-q"), cairn("runs"), cairn("inbox"), cairn("trace", "a")]
    told.append(cairn("chat", "unsure", "--session", "s", input="later\n"))
    told.append(cairn("edit", "a", "-m", "more"))
    for said in told:
        assert "in doubt" in said.out, said
        assert not OTHER_WORDS.search(said.out), said
    told = [cairn("cancel", "a"), cairn("run", "unsure", "go", "--id", "a", "--session", "s", "-q")]
    for said in told:
        assert not OTHER_WORDS.search(said.out), said
    for command in ("resolve", "cancel", "prune"):
        assert not OTHER_WORDS.search(cairn(command, "--help").out)
