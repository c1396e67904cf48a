"""What a command that changes something says with --json: one small object, of one form."""

from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cairn
from tests.cli.test_edges import ALL

FIELDS = {"did", "id", "changed", "said"}
CHANGES: dict[str, tuple[tuple[str, ...], str, str]] = {
    "approve": (("shop/1",), "approved", "shop/1"),
    "deny": (("shop/1",), "denied", "shop/1"),
    "answer": (("asker/1", "This one."), "answered", "asker/1"),
    "resolve": (("unsure/c1", "--give-up"), "resolved (given up)", "unsure/c1"),
    "pause": (("shop",), "paused", "shop"),
    "cancel": (("shop",), "cancelled", "shop"),
    "edit": (("shop", "-m", "hurry"), "edited", "shop"),
    "takeover": (("shop", "-m", "let me"), "taken over", "shop"),
    "prune": (("--older-than", "0s"), "removed", "said"),
    "backup": (("copy.db",), "copied", "copy.db"),
    "erase": (("--principal", "local", "--force", "--yes"), "erased", "local"),
    "grants add": (("refund", "--yes"), "granted", "1"),
    "grants revoke": (("1",), "revoked", "1"),
    "memory add": (("tea at four",), "remembered", "m2"),
    "memory review": (("m1", "--accept"), "accepted", "m1"),
    "memory forget": (("m1",), "forgotten", "m1"),
    "memory erase": (("--principal", "local", "--yes"), "erased", "local"),
    "sessions fork": (("talk", "other"), "forked", "other"),
    "sessions rewind": (("talk", "said"), "rewound", "talk"),
    "sessions title": (("talk", "A title"), "titled", "talk"),
    "sessions export": (("talk", "out"), "wrote", "out/events.jsonl"),
    "sessions prune": (("talk",), "removed", "said"),
}
"""Words with which each command changes something, what it says it did, and to what."""
SAY_MORE = {"run", "resume", "retry", "fork", "sessions post"}
"""Those that drive a run or hand it over: what they print is told with them."""
OTHERWISE = {
    "chat": "it talks",
    "work": "it goes on until it is ended",
    "mcp serve": "it serves",
    "context undo": "tests/cli/test_context_command.py has it",
    "memory index": "tests/memory/test_command.py has it",
}


@pytest.fixture(scope="module")
def kept() -> dict[str, bytes]:
    """The store that `filled` has made, for each later test to have a copy of its own."""
    return {}


@pytest.fixture
def filled(cairn: Cairn, desk: Path, kept: dict[str, bytes]) -> Cairn:
    for name, content in kept.items():
        (desk / name).write_bytes(content)
    if kept:
        return cairn
    before = {path.name for path in desk.iterdir()}
    cairn("run", "shop", "go", "--id", "shop")
    cairn("run", "asker", "go", "--id", "asker")
    cairn("run", "unsure", "go", "--id", "unsure")
    cairn("approve", "unsure/1")
    cairn("resume", "unsure")
    cairn("run", "quick", "go", "--id", "said", "--session", "talk")
    cairn("memory", "add", "the shop opens at nine")
    made = [path for path in desk.iterdir() if path.name not in before and path.is_file()]
    kept.update({path.name: path.read_bytes() for path in made})
    assert "desk.db" in kept
    return cairn


def objects(said: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = said.objects
    return found


@pytest.mark.parametrize("name", CHANGES)
def test_a_command_says_what_it_changed_as_one_object(filled: Cairn, name: str) -> None:
    if name == "grants revoke":
        filled("grants", "add", "refund", "--yes")
    words, did, what = CHANGES[name]
    said = filled(*name.split(), *words, "--json")
    assert said.code == 0, said
    first = next(x for x in objects(said) if x["id"] == what)
    assert first["did"] == did
    assert set(first) >= FIELDS
    assert first["changed"] is (name != "sessions rewind")
    assert all(set(each) >= FIELDS for each in objects(said))


def test_every_command_that_changes_something_can_say_so_in_json() -> None:
    have = {name for name, command in ALL.items() if any(p.name == "json" for p in command.params)}
    assert set(CHANGES) | SAY_MORE | {"context undo", "memory index"} <= have
    without = set(ALL) - have - set(OTHERWISE)
    assert without == {
        *("export", "memory export", "doctor"),  # they write JSON by themselves, or only look
    }


def test_what_was_so_before_is_not_said_to_be_changed(filled: Cairn) -> None:
    for words in (
        ("pause", "shop"),
        ("deny", "shop/1"),
        ("sessions", "title", "talk", "A title"),
        ("memory", "add", "tea at four"),
    ):
        again = [objects(filled(*words, "--json"))[0]["changed"] for _ in range(2)]
        assert again == [True, False], words


@pytest.mark.parametrize(
    "words",
    [
        ("erase", "--principal", "local"),
        ("memory", "erase", "--principal", "local"),
        ("grants", "add", "refund"),
    ],
)
def test_nobody_is_asked_in_the_middle_of_json(filled: Cairn, words: tuple[str, ...]) -> None:
    said = filled(*words, "--json", input="y\n")
    assert (said.code, said.out) == (2, "")
    assert "--yes" in said.err


def test_a_dry_run_changes_nothing(filled: Cairn) -> None:
    for words in (("prune", "--older-than", "0s"), ("sessions", "prune", "talk")):
        said = objects(filled(*words, "--dry-run", "--json"))
        assert {each["changed"] for each in said} == {False}
    assert "said" in filled("runs").out


def test_a_title_that_is_taken_back_is_said_to_be(filled: Cairn) -> None:
    assert "had no title" in filled("sessions", "title", "talk", "").out
    assert "has this title" in filled("sessions", "title", "talk", "Lamps").out
    assert "is called by its first words" in filled("sessions", "title", "talk", " ").out


def test_words_are_read_from_standard_input_wherever_words_are_taken(filled: Cairn) -> None:
    assert filled("memory", "add", "-", input="tea at four\n").code == 0
    assert filled("memory", "show", "m2", "--json").objects[0]["text"] == "tea at four"
    posted = filled("sessions", "post", "talk", "-", "--json", input="and more\n").objects[0]
    created = filled("trace", posted["run"], "--json").objects[0]["data"]
    assert "and more" in str(created["input"])
    assert filled("memory", "add", "-", input=" \n").code == 2
    assert filled("sessions", "post", "talk", "-", input="").code == 2
    assert filled("answer", "asker/1", "-", input="seven\n").code == 0


def test_a_list_without_facts_says_so_beside_the_output(filled: Cairn) -> None:
    for words in (
        ("list", "--principal", "nobody"),
        ("search", "zebra"),
        ("review",),
    ):
        said = filled("memory", *words)
        assert (said.code, said.out) == (0, "")
        assert "no facts" in said.err


def test_a_step_without_a_request_is_refused_with_those_that_have_one(filled: Cairn) -> None:
    said = filled("trace", "said", "--context", "7")
    assert said.code == 2
    assert "made no model request in step 7; it made some in step 1" in said.err
    said = filled("context", "show", "shop", "9")
    assert "it made some in step 1" in said.err
