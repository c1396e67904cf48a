"""`run`, `resume`, `retry`, `work`: one command starts, resumes and recovers; exact exit codes."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cairn
from typer.testing import CliRunner

import cairn as cairn_package


def effects() -> list[str]:
    file = Path("effects.txt")
    return file.read_text().splitlines() if file.exists() else []


@pytest.mark.parametrize(
    ("agent", "code", "status"),
    [("quick", 0, "completed"), ("broken", 1, "failed"), ("endless", 3, "stopped"),
     ("shop", 5, "waiting")],
)  # fmt: skip
def test_the_exit_code_is_the_runs_status(cairn: Cairn, agent: str, code: int, status: str) -> None:
    said = cairn("run", agent, "go", "--id", "a")
    assert said.code == code, said
    assert f"run a · {status}" in said.out


def test_a_paused_run_exits_6_and_a_cancelled_one_4(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    assert cairn("pause", "a").code == 0
    assert cairn("run", "shop", "go", "--id", "a").code == 6
    assert cairn("cancel", "a").code == 0
    assert cairn("run", "shop", "go", "--id", "a").code == 4


def test_a_completed_run_prints_its_text_and_what_it_used(cairn: Cairn) -> None:
    said = cairn("run", "quick", "go", "--id", "a", "-q")
    assert said.out.splitlines() == [
        "Done at once.",
        "run a · completed · 1 step · 0 calls · 940 tokens · $0.00303",
    ]
    assert said.err == ""


def test_without_a_terminal_each_event_is_a_line(cairn: Cairn) -> None:
    said = cairn("run", "quick", "go", "--id", "a")
    names = ("run.created", "model.requested", "model.completed", "run.completed")
    for number, name in enumerate(names, 1):
        assert f"{number} {name}" in said.out.splitlines()[number - 1]


def test_the_same_command_waits_then_pays_once_then_shows_the_stored_result(
    cairn: Cairn,
) -> None:
    command = ("run", "shop", "Refund order 7", "--id", "order-7")
    first, again = cairn(*command), cairn(*command)
    assert (first.code, again.code) == (5, 5)
    assert "cairn approve order-7/1" in again.out
    assert not effects()
    assert cairn("approve", "order-7/1").code == 0
    paid = cairn(*command)
    assert paid.code == 0
    assert "Order 7 is paid back." in paid.out
    stored = cairn(*command)
    assert stored.code == 0
    assert "order-7 is completed: this is its stored result" in stored.out
    assert effects() == ["refund 7 400"]


def test_another_task_under_the_same_id_is_refused_as_usage(cairn: Cairn) -> None:
    cairn("run", "quick", "one", "--id", "a")
    said = cairn("run", "quick", "two", "--id", "a")
    assert said.code == 2
    assert said.err.startswith("cairn: run 'a' exists with another agent, input or principal")


@pytest.mark.parametrize("option", [("--max-steps", "1"), ("--max-calls", "1")])
def test_limits_of_the_command_line_stop_the_run(cairn: Cairn, option: tuple[str, str]) -> None:
    said = cairn("run", "endless", "go", "--id", "a", *option)
    assert said.code == 3
    assert f"limit {option[0].removeprefix('--max-')}" in said.out


def test_a_run_without_enough_money_stops_before_it_asks_the_model(cairn: Cairn) -> None:
    said = cairn("run", "quick", "go", "--id", "a", "--max-usd", "0.0001")
    assert said.code == 3
    assert "limit micro_usd" in said.out
    assert "model.requested" not in said.out


def test_the_command_line_cannot_widen_the_agents_own_limits(cairn: Cairn) -> None:
    said = cairn("run", "endless", "go", "--id", "a", "--max-steps", "40")
    assert "steps limit reached: 3 of 3" in said.out


def test_approvals_none_refuses_at_once_what_would_need_a_person(cairn: Cairn) -> None:
    said = cairn("run", "shop", "go", "--id", "a", "--approvals", "none")
    assert said.code == 0
    assert "tool.rejected" in said.out
    assert not effects()


def test_a_query_is_not_offered_tools_that_write(cairn: Cairn) -> None:
    said = cairn("run", "shop", "go", "--id", "a", "--kind", "query")
    assert "tool.rejected" in said.out
    assert not effects()


def test_a_dash_reads_the_task_from_standard_input(cairn: Cairn) -> None:
    cairn("run", "quick", "-", "--id", "a", input="what I want\n")
    assert "what I want" in cairn("trace", "a").out


def test_json_is_one_object_with_every_field_and_nothing_else(cairn: Cairn) -> None:
    (run,) = cairn("run", "shop", "go", "--id", "a", "--json").objects
    assert (run["id"], run["status"], run["ended"]) == ("a", "waiting", False)
    assert run["pending"][0]["id"] == "a/1"
    assert run["usage"]["micro_usd"] == 3030
    assert run["citations"] == []


def test_citations_and_artifacts_are_printed(cairn: Cairn) -> None:
    assert "[s1] file:orders.txt · 3-4" in cairn("run", "citing", "go").out
    said = cairn("run", "large", "go", "--json")
    assert said.objects[0]["artifacts"][0]["size"] == 50_000


def test_an_unknown_agent_is_usage_and_names_the_known_ones(cairn: Cairn) -> None:
    said = cairn("run", "nobody", "go")
    assert said.code == 2
    assert "there is no agent 'nobody' here (known: asker, " in said.err
    assert "Traceback" not in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize("run", ["store", "a b", "x" * 65])
def test_an_id_that_is_none_is_usage(cairn: Cairn, run: str) -> None:
    assert cairn("run", "quick", "go", "--id", run).code == 2


def test_unknown_options_are_usage(cairn: Cairn) -> None:
    assert cairn("run", "quick", "go", "--nonsense").code == 2
    assert cairn("run", "quick").code == 2
    assert cairn("run", "quick", "go", "--kind", "dance").code == 2


def test_a_session_has_one_run_at_a_time(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a", "--session", "s")
    said = cairn("run", "shop", "and?", "--id", "b", "--session", "s")
    assert said.code == 1
    assert "already has the active run 'a'" in said.err


def test_a_run_says_why_it_failed(cairn: Cairn) -> None:
    said = cairn("run", "broken", "go", "--id", "a", "-q")
    assert said.out.splitlines()[0] == "Run a: failed (auth). no key"


# ---------------------------------------------------------------- resume


def test_resume_ends_a_pause_and_drives_the_run(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    cairn("approve", "a/1")
    cairn("pause", "a")
    said = cairn("resume", "a")
    assert said.code == 0
    assert "run.resumed" in cairn("trace", "a").out
    assert effects() == ["refund 7 400"]


def test_resume_without_an_application_unpauses_and_exits_5_for_want_of_a_driver(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cairn("run", "shop", "go", "--id", "a")
    cairn("approve", "a/1")
    cairn("pause", "a")
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("resume", "a")
    assert said.code == 5
    assert said.out == "run a is running, not driven\n"
    assert said.err.startswith("cairn: nobody drives run a. To go on: cairn resume a --app ")
    assert "an application that has the agent 'shop'" in said.err
    assert not effects()
    said = cairn("resume", "a", "--json")
    assert said.code == 5
    assert said.objects[0]["status"] == "running"
    assert "nobody drives run a" in said.err


def test_resume_with_an_application_that_lacks_the_agent_says_so_and_exits_5(
    cairn: Cairn, desk: Path
) -> None:
    cairn("run", "shop", "go", "--id", "a")
    (desk / "other.py").write_text("import cairn\nrt = cairn.Runtime('desk.db')\n")
    said = cairn("resume", "a", "--app", "other:rt")
    assert said.code == 5
    assert said.out == "run a is waiting (approval)\n"
    assert "run a waits for people: see cairn inbox" in said.err
    assert "an application that has the agent 'shop'" in said.err


def test_resume_of_a_run_that_is_over_needs_no_application_and_exits_as_it_ended(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cairn("run", "quick", "go", "--id", "a")
    cairn("run", "broken", "go", "--id", "b")
    monkeypatch.delenv("CAIRN_APP")
    for run, code in (("a", 0), ("b", 1)):
        said = cairn("resume", run)
        assert (said.code, said.err) == (code, "")


def test_resume_of_a_run_that_is_over_shows_its_result(cairn: Cairn) -> None:
    cairn("run", "broken", "go", "--id", "a")
    said = cairn("resume", "a")
    assert said.code == 1
    assert "failed (auth)" in said.out


def test_resume_of_a_run_that_only_waits_does_not_say_that_it_goes_on(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    said = cairn("resume", "a")
    assert said.code == 5
    assert "a is waiting (approval), and so far nothing has come" in said.out
    assert "goes on" not in said.out
    cairn("approve", "a/1")
    assert "a goes on after event 5" in cairn("resume", "a").out


def test_resume_of_an_unknown_run_is_usage(cairn: Cairn) -> None:
    cairn("run", "quick", "go")
    assert cairn("resume", "nope").code == 2


# ---------------------------------------------------------------- retry


def test_retry_goes_on_under_new_limits_as_a_new_run(cairn: Cairn) -> None:
    cairn("run", "endless", "go", "--id", "a")
    said = cairn("retry", "a", "--id", "b", "--max-steps", "2")
    assert said.code == 3
    assert "steps limit reached: 2 of 2" in said.out
    assert "b goes on after event" in said.out
    assert "run.forked" in cairn("trace", "b").out
    assert cairn("trace", "a").code == 0


def test_retry_of_a_completed_run_is_refused(cairn: Cairn) -> None:
    cairn("run", "quick", "go", "--id", "a")
    said = cairn("retry", "a")
    assert said.code == 1
    assert "only a failed, stopped or cancelled run can be retried" in said.err


def test_retry_without_an_application_makes_the_run_and_exits_5_for_want_of_a_driver(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cairn("run", "broken", "go", "--id", "a")
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("retry", "a", "--id", "b")
    assert said.code == 5
    assert said.out == "run b is running, not driven\n"
    assert "nobody drives run b. To go on: cairn resume b --app module:name" in said.err
    assert cairn("retry", "nope").code == 2


@pytest.mark.parametrize("command", ["resume", "retry"])
def test_the_help_says_what_happens_without_an_application(command: str) -> None:
    from cairn.cli.entry import app

    said = " ".join(CliRunner().invoke(app, [command, "--help"]).stdout.split())
    assert "Without an application that knows its agent" in said
    assert "exit code is 5" in said


# ---------------------------------------------------------------- work


def test_work_until_idle_drives_what_is_left_and_leaves_what_waits(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    cairn("run", "shop", "go", "--id", "b")
    cairn("approve", "a/1")
    said = cairn("work", "--until-idle")
    assert said.code == 0
    assert "a   10 run.completed" in said.out
    assert [r["status"] for r in cairn("runs", "--json").objects] == ["waiting", "completed"]
    assert cairn("work", "--until-idle", "-q").out == ""


def test_work_until_idle_names_the_runs_that_wait_for_another_application(
    cairn: Cairn, desk: Path
) -> None:
    (desk / "other.py").write_text(
        "from cairn import *\nrt = Runtime('desk.db', agents=[Agent('other', Scripted(['x']))])\n"
    )
    cairn("run", "quick", "go", "--id", "a")
    cairn("fork", "a", "--at", "1", "--id", "left", "--no-drive")
    said = cairn("work", "--until-idle", "--app", "other:rt")
    assert said.code == 0
    assert said.out == "-- 1 run waits for an agent that is not here: left (quick)\n"
    assert cairn("work", "--until-idle", "-q", "--app", "other:rt").out == ""


def test_a_run_that_could_not_begin_for_want_of_a_key_is_kept_and_said_to_be(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    (desk / "keyless.py").write_text(
        "from cairn import *\nrt = Runtime('desk.db', agents=[Agent('k', 'openai:gpt-5-mini')])\n"
    )
    said = cairn("run", "k", "go", "--id", "a", "--app", "keyless:rt")
    assert said.code == 2
    assert "run a is kept and nothing of it is done" in said.err
    assert "cairn resume a --app keyless:rt" in said.err
    assert "OPENAI_API_KEY is not set" in said.err
    assert [info["status"] for info in cairn("runs", "--json").objects] == ["queued"]


def test_the_version_is_the_packages() -> None:
    from cairn.cli.entry import app

    assert CliRunner().invoke(app, ["--version"]).stdout == f"cairn {cairn_package.__version__}\n"


def test_every_command_explains_itself_in_a_line_that_is_not_cut() -> None:
    from cairn.cli.entry import app

    said = CliRunner().invoke(app, ["--help"], env={"COLUMNS": "80"}).stdout
    commands = said.partition("Commands:\n")[2].splitlines()
    known = len(app.registered_commands) + len(app.registered_groups)
    assert len(commands) == known >= 29
    assert all(line.endswith(".") and not line.endswith("...") for line in commands)


def test_a_run_is_for_a_principal_with_roles_and_tenant(cairn: Cairn) -> None:
    who = ("--principal", "ada", "--role", "clerk", "--role", "lead", "--tenant", "acme")
    assert cairn("run", "quick", "go", "--id", "a", *who).code == 0
    created = cairn("trace", "a", "--json").objects[0]["data"]
    assert created["principal"] == {"id": "ada", "roles": ["clerk", "lead"], "tenant": "acme"}
    assert cairn("run", "quick", "go", "--id", "a", *who).code == 0, "the same is the same run"
    assert cairn("run", "quick", "go", "--id", "a", "--principal", "ada").code == 2


def test_who_presses_ctrl_c_can_be_named_for_a_run(cairn: Cairn) -> None:
    for name in ("--as", "--by"):
        assert cairn("run", "quick", "go", name, "grace").code == 0
