"""`chat`: a conversation in a durable session; what waits for people is asked in line."""

from pathlib import Path

from tests.cli.conftest import Cairn


def effects() -> list[str]:
    file = Path("effects.txt")
    return file.read_text().splitlines() if file.exists() else []


def test_an_approval_is_asked_in_line_and_the_call_then_runs(cairn: Cairn) -> None:
    said = cairn("chat", "shop", "--session", "s", "--by", "ada", input="Refund it\ny fine\n")
    assert said.code == 0
    assert 'refund({"order":"7","cents":400})' in said.out
    assert "shop> Order 7 is paid back." in said.out
    assert "cairn chat shop --session s" in said.out
    assert effects() == ["refund 7 400"]
    run = cairn("runs", "--session", "s", "--json").objects[0]["run"]
    granted = next(e for e in cairn("trace", run, "--json").objects if e["type"] == 61)
    assert (granted["actor"], granted["data"]["message"]) == ("ada", "fine")


def test_a_refusal_and_its_reason_reach_the_model(cairn: Cairn) -> None:
    said = cairn("chat", "shop", "--session", "s", input="Refund it\nperhaps\nn too much\n/quit\n")
    assert said.code == 0
    assert "one of y, n, l" in said.out
    assert not effects()


def test_a_question_is_answered_in_line(cairn: Cairn) -> None:
    said = cairn("chat", "asker", input="Help\nseven\n")
    assert "asker asks: Which order?" in said.out
    assert "asker> Thank you." in said.out


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
    said = cairn("chat", "unsure", "--session", "s", input="go\ny\ny the bank says so\n")
    assert said.code == 0, said
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
