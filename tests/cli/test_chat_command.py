"""`chat`: a conversation in a durable session; what waits for people is asked in line."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cairn

from cairn.cli.chat_command import TO_ALLOW, WHAT_HAPPENED
from cairn.cli.choosing import chosen, reason_in


def effects() -> list[str]:
    file = Path("effects.txt")
    return file.read_text().splitlines() if file.exists() else []


def test_an_approval_is_asked_in_line_and_the_call_then_runs(cairn: Cairn) -> None:
    said = cairn("chat", "shop", "--session", "s", "--by", "ada", input="Refund it\nYES\n")
    assert said.code == 0
    assert 'refund({"order":"7","cents":400})' in said.out
    assert "shop> Order 7 is paid back." in said.out
    assert "cairn chat shop --session s" in said.out
    assert effects() == ["refund 7 400"]
    run = cairn("runs", "--session", "s", "--json").objects[0]["run"]
    granted = next(e for e in cairn("trace", run, "--json").objects if e["type"] == 61)
    assert (granted["actor"], granted["data"].get("message", "")) == ("ada", "")


def test_a_refusal_and_its_reason_reach_the_model(cairn: Cairn) -> None:
    said = cairn("chat", "shop", "--session", "s", input="Refund it\nperhaps\nn too much\n/quit\n")
    assert said.code == 0
    assert "nothing is decided: write y or yes, n or no, l or later" in said.out
    assert not effects()
    run = cairn("runs", "--session", "s", "--json").objects[0]["run"]
    denied = next(e for e in cairn("trace", run, "--json").objects if e["type"] == 62)
    assert denied["data"]["message"] == "too much"


NO_YES = [
    *("you must not", "yikes", "yet to be decided", "y fine", "yes but", "yes?", "yea", "yep"),
    *("", " ", "k", "ok", "maybe", "not yet", "not sure", "nay", "nope", "none", "now", "n't"),
    *("later on", "lets go", "l8r", "yl", "y n", "\u00ff", "y/n", "y\u0301", "/yes", "[y]es"),
]


def test_whatever_is_none_of_the_offered_words_allows_and_refuses_nothing(cairn: Cairn) -> None:
    words = "".join(f"{each}\n" for each in NO_YES)
    said = cairn("chat", "shop", "--session", "s", input=f"Refund it\n{words}")
    assert said.code == 5
    assert said.out.count("nothing is decided") == len(NO_YES)
    assert not effects()
    assert [item["kind"] for item in cairn("inbox", "--json").objects] == ["approval"]


@pytest.mark.parametrize("words", NO_YES, ids=repr)
def test_whatever_is_none_of_the_offered_words_settles_no_doubt(words: str) -> None:
    assert chosen(words, WHAT_HAPPENED) == ""


@pytest.mark.parametrize("words", ["n because", "no, because", "yes the bank says so", "give"])
def test_a_word_with_others_behind_it_settles_no_doubt(words: str) -> None:
    assert chosen(words, WHAT_HAPPENED) == ""


@pytest.mark.parametrize(
    ("words", "choice"),
    [
        *((" Y ", "yes"), ("yes", "yes"), ("N", "no"), ("no", "no"), ("L", "later")),
        *(("LATER", "later"), ("g", "give up"), ("Give  Up", "give up")),
    ],
)
def test_each_offered_word_is_taken_whatever_its_case(words: str, choice: str) -> None:
    assert chosen(words, WHAT_HAPPENED) == choice


@pytest.mark.parametrize("words", ["n too much", "No, too much", "no: too much", "NO too much"])
def test_a_reason_may_stand_behind_a_refusal_and_behind_nothing_else(words: str) -> None:
    assert (chosen(words, TO_ALLOW, "no"), reason_in(words)) == ("no", "too much")
    assert chosen(words.replace("n", "l").replace("N", "L"), TO_ALLOW, "no") == ""


def test_a_doubt_stays_one_until_an_offered_word_is_said(cairn: Cairn) -> None:
    words = "not sure\nyet unclear\nnot yet, it failed\nn I think\ny the bank says so\n"
    said = cairn("chat", "unsure", "--session", "s", input=f"go\ny\n{words}")
    assert said.code == 5, said
    assert said.out.count("nothing is decided") == 5
    assert effects() == ["doubt 7"]
    assert [item["kind"] for item in cairn("inbox", "--json").objects] == ["in_doubt"]


def test_to_leave_at_a_question_is_no_answer(cairn: Cairn) -> None:
    said = cairn("chat", "asker", "--session", "s", input="Help\n/quit\n/quit\n")
    assert said.code == 5
    assert [item["kind"] for item in cairn("inbox", "--json").objects] == ["input"]


def test_a_question_is_answered_in_line(cairn: Cairn) -> None:
    said = cairn("chat", "asker", input="Help\nseven\n")
    assert "asker asks: Which order?" in said.out
    assert "asker> Thank you." in said.out


def test_help_and_an_empty_line_at_a_question_are_no_answer(cairn: Cairn) -> None:
    said = cairn("chat", "asker", "--session", "s", input="Help\n/help\n\n/quit\n")
    assert "what you write is the answer" in said.out
    assert "nothing is answered; the question stays open" in said.out
    assert [item["kind"] for item in cairn("inbox", "--json").objects] == ["input"]


def test_what_is_left_for_later_waits_and_is_asked_again_next_time(cairn: Cairn) -> None:
    said = cairn("chat", "shop", "--session", "s", input="Refund it\nlater\n")
    assert said.code == 5
    assert "cairn approve" in said.out
    again = cairn("chat", "shop", "--session", "s", input="y\n")
    assert again.code == 0
    assert "of this session is not over" in again.out
    assert "shop> Order 7 is paid back." in again.out


def test_the_session_is_one_conversation_over_processes(cairn: Cairn) -> None:
    cairn("chat", "quick", "--session", "s", input="one\ntwo\n")
    cairn("chat", "quick", "--session", "s", input="three\n")
    runs = cairn("runs", "--session", "s", "--json").objects
    assert len(runs) == 3
    events = [cairn("trace", r["run"], "--json").objects[0] for r in runs]
    assert [e["data"].get("previous", {}).get("run") for e in events] == [
        runs[1]["run"],
        runs[2]["run"],
        None,
    ]


def test_an_unknown_effect_is_asked_about_in_line(cairn: Cairn) -> None:
    said = cairn("chat", "unsure", "--session", "s", input="go\ny\ny\nthe bank says so\n")
    assert said.code == 0, said
    run = cairn("runs", "--session", "s", "--json").objects[0]["run"]
    told = cairn("trace", run, "--json").objects
    resolved = next(e for e in told if e["name"] == "tool.resolved")
    assert resolved["data"]["result"] == "the bank says so"
    assert '/c1: in doubt: did it happen? doubt({"order":"7"})' in said.out
    assert "unsure> That was that." in said.out


def test_what_is_said_to_a_paused_run_ends_the_pause(cairn: Cairn) -> None:
    cairn("run", "asker", "go", "--id", "a", "--session", "s")
    cairn("pause", "a")
    said = cairn("chat", "asker", "--session", "s", input="seven\n")
    assert said.code == 0
    assert "asker> Thank you." in said.out


def test_a_foreign_session_is_not_shown(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a", "--session", "s", "--principal", "eve")
    said = cairn("chat", "shop", "--session", "s", input="hello\n")
    assert said.code == 2
    assert said.err == "cairn: there is no session 's'\n"


def test_an_unknown_agent_is_said_before_anything_is_asked(cairn: Cairn) -> None:
    said = cairn("chat", "nobody", input="hello\n")
    assert said.code == 2
    assert "there is no agent 'nobody'" in said.err


def test_help_and_empty_lines_start_nothing(cairn: Cairn) -> None:
    said = cairn("chat", "quick", "--session", "s", input="\n/help\n/quit\nnot read\n")
    assert said.code == 0
    assert said.out.count("/help") >= 2
    assert cairn("runs").out == "no runs\n"


def test_hostile_answers_are_shown_and_not_obeyed(cairn: Cairn) -> None:
    said = cairn("chat", "hostile", input="go\nn\n")
    assert "hostile> ␛[31mred" in said.out
    assert "\x1b" not in said.out


WHO = ("--principal", "ada", "--role", "clerk", "--role", "lead", "--tenant", "acme")


def test_a_talk_is_of_a_principal_with_roles_and_tenant(cairn: Cairn) -> None:
    said = cairn("chat", "quick", "--session", "s", *WHO, input="go\n")
    assert "cairn chat quick --session s " + " ".join(WHO) in said.out
    (run,) = cairn("runs", "--json").objects
    created = cairn("trace", run["run"], "--json").objects[0]["data"]
    assert created["principal"] == {"id": "ada", "roles": ["clerk", "lead"], "tenant": "acme"}


def test_a_session_is_not_gone_on_with_for_another_tenant(cairn: Cairn) -> None:
    cairn("chat", "shop", "--session", "s", *WHO, input="go\nlater\n")
    said = cairn("chat", "shop", "--session", "s", "--principal", "ada", input="again\n")
    assert said.code == 2
    assert "there is no session 's'" in said.err
    for roles in ((), ("--role", "other")):
        again = ("chat", "shop", "--session", "s", "--principal", "ada", "--tenant", "acme")
        assert "is not over" in cairn(*again, *roles, input="later\n").out
