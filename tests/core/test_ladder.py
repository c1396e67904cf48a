"""What is done about each class of fault: rows of data, and what no row can change."""

from typing import Any

import pytest
from tests.core.play import MODEL, SECOND, Play, rules_of, tool

from cairn.core import events as ev
from cairn.core.actions import AskModel, Wait
from cairn.core.ladder import (
    ALWAYS,
    CAP_US,
    MODEL_CLASSES,
    MODEL_RUNGS,
    RETRY_AFTER_CAP_US,
    TABLE,
    TOOL_RUNGS,
    Ladder,
    Rung,
    backoff_us,
)
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import text_of
from cairn.core.rules import ModelSpec
from cairn.errors import ConfigError, ErrorClass

E = ErrorClass
TWO = (MODEL, ModelSpec(name="m2"))


def dispositions(play: Play, error_class: ErrorClass, times: int = 12) -> list[str]:
    """What is done each time the same fault comes back, until the run ends."""
    found = []
    for _ in range(times):
        if not isinstance(play.settle(), AskModel):
            break
        event = play.fails(error_class)
        found.append(event.disposition)
        play.now += 700 * SECOND
    return found


# ---------------------------------------------------------------- the table


def test_every_class_has_a_row_and_every_row_only_what_can_be_done_about_it() -> None:
    assert set(TABLE) == set(ErrorClass)
    for error_class, row in TABLE.items():
        allowed = MODEL_RUNGS if error_class in MODEL_CLASSES else TOOL_RUNGS
        assert {rung.disposition for rung in row} <= allowed
        assert row


def test_every_row_is_bounded_unless_the_model_is_told() -> None:
    """Telling the model is bounded by errors in a row; everything else by its own count."""
    for row in TABLE.values():
        for rung in row:
            assert rung.times < ALWAYS or rung.disposition in {"repair", "end"}


ROWS = {
    E.RATE_LIMITED: ["retry"] * 6 + ["end"],
    E.QUOTA_EXHAUSTED: ["end"],
    E.OVERLOADED: ["retry"] * 5 + ["end"],
    E.UNAVAILABLE: ["retry"] * 5 + ["end"],
    E.TIMEOUT: ["retry"] * 2 + ["end"],
    E.NETWORK: ["retry"] * 5 + ["end"],
    E.STREAM_INTERRUPTED: ["retry"] * 3 + ["end"],
    E.CONTEXT_OVERFLOW: ["retry"],  # made smaller; here there is nothing that could be condensed
    E.REQUEST_TOO_LARGE: ["end"],
    E.INVALID_REQUEST: ["end"],
    E.AUTH: ["end"],
    E.MODEL_NOT_FOUND: ["end"],
    E.CONTENT_FILTERED: ["end"],
    E.MALFORMED_OUTPUT: ["repair"] * 3 + ["end"],
    E.TRUNCATED_OUTPUT: ["repair"] * 2 + ["end"],
    E.EMPTY_OUTPUT: ["repair"] * 2 + ["end"],
    E.CANCELLED: ["end"],
    E.INTERNAL: ["end"],
}


@pytest.mark.parametrize("error_class", ROWS)
def test_a_model_fault_takes_the_rungs_of_its_row_in_order_and_then_fails_the_run(
    error_class: ErrorClass,
) -> None:
    play = Play()
    assert dispositions(play, error_class) == ROWS[error_class]
    assert play.state.status is Status.FAILED
    assert play.state.end is not None
    assert play.state.end.error_class is error_class


@pytest.mark.parametrize("error_class", [E.OVERLOADED, E.QUOTA_EXHAUSTED, E.AUTH, E.TIMEOUT])
def test_with_a_fallback_the_model_is_switched_before_the_run_fails(
    error_class: ErrorClass,
) -> None:
    play = Play(rules_of(models=TWO))
    row = [d for d in ROWS[error_class] if d != "end"]
    assert dispositions(play, error_class, 20) == [*row, "switch", *row, "end"]
    asked = [e.model for e in play.events if isinstance(e, ev.ModelRequested)]
    assert asked == ["m1"] * (len(row) + 1) + ["m2"] * (len(row) + 1)


def test_every_fallback_has_its_turn() -> None:
    models = tuple(ModelSpec(name=f"m{n}") for n in range(4))
    play = Play(rules_of(models=models))
    assert dispositions(play, E.AUTH) == ["switch"] * 3 + ["end"]


def test_the_fallback_stays_in_use_and_a_good_reply_starts_its_row_anew() -> None:
    play = Play(rules_of(tool("find"), models=TWO))
    play.fails(E.AUTH)
    play.one_turn("find", {})
    assert play.settle().model == "m2"
    assert play.state.tries == {}
    assert dispositions(play, E.NETWORK)[:5] == ["retry"] * 5


def test_what_the_model_is_told_names_the_fault() -> None:
    play = Play()
    play.fails(E.MALFORMED_OUTPUT, "a brace is missing")
    assert text_of(play.state.messages[-1].parts) == "[runtime] a brace is missing"


# ---------------------------------------------------------------- waiting


def test_back_off_doubles_is_capped_and_is_spread_downwards_only() -> None:
    assert [backoff_us(1_000_000, n, 1.0) for n in range(4)] == [
        10**6,
        2 * 10**6,
        4 * 10**6,
        8 * 10**6,
    ]
    assert backoff_us(1_000_000, 0, 0.0) == 500_000
    assert backoff_us(1_000_000, 50, 1.0) == CAP_US
    assert backoff_us(1_000_000, 10**9, 0.5) <= CAP_US


@pytest.mark.parametrize(
    ("asked_s", "waits_s"), [(0, None), (3, 3), (31, 31), (599, 599), (86_400, 600)]
)
def test_a_providers_wish_to_wait_is_honoured_up_to_a_cap(
    asked_s: int, waits_s: int | None
) -> None:
    play = Play()
    event = play.fails(E.RATE_LIMITED, retry_after_us=asked_s * SECOND)
    expected = waits_s * SECOND if waits_s else backoff_us(SECOND, 0, 0.5)
    assert event.retry_at - play.now == expected
    assert RETRY_AFTER_CAP_US == 600 * SECOND


def test_a_run_that_waits_for_a_retry_says_until_when_and_goes_on_by_itself() -> None:
    play = Play()
    event = play.fails(E.NETWORK)
    assert play.decide() == Wait(reasons=frozenset({"retry_at"}), until=event.retry_at)
    assert play.state.status is Status.WAITING
    play.now = event.retry_at - 1
    assert isinstance(play.decide(), Wait)
    play.now += 1
    action = play.decide()
    assert isinstance(action, AskModel)
    assert (action.step, action.attempt) == (1, 2)


# ---------------------------------------------------------------- overriding rows


def test_a_row_of_the_deployment_replaces_the_built_in_one_whole() -> None:
    ladder = Ladder(rows={E.NETWORK: (Rung(disposition="retry", times=1),)})
    assert dispositions(Play(rules_of(ladder=ladder)), E.NETWORK) == ["retry", "end"]
    assert ladder.row(E.TIMEOUT) == TABLE[E.TIMEOUT]


@pytest.mark.parametrize("error_class", sorted(MODEL_CLASSES))
@pytest.mark.parametrize("disposition", sorted(TOOL_RUNGS - MODEL_RUNGS))
def test_a_row_that_cannot_be_followed_is_refused_when_it_is_written(
    error_class: ErrorClass, disposition: Any
) -> None:
    with pytest.raises(ConfigError, match=f"ladder.{error_class.value}"):
        Ladder(rows={error_class: (Rung(disposition=disposition),)})


def test_a_row_for_a_class_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match="no such class"):
        Ladder(rows={"flood": (Rung(disposition="end"),)})


def test_a_retry_can_be_put_off_by_somebody_who_knows_better() -> None:
    play = Play(rules_of(tool("find")))
    play.calls("find")
    event = play.raises("c1", E.TOOL_UNAVAILABLE)
    play.add(ev.RetryScheduled(subject="c1", at=event.retry_at + SECOND))
    play.now = event.retry_at
    assert play.start() == []
    play.now += SECOND
    assert play.start() == ["c1"]


def test_the_refusal_says_what_may_be_written_instead() -> None:
    with pytest.raises(ConfigError) as refused:
        Ladder(rows={E.AUTH: (Rung(disposition="takeover"),)})
    assert "end, repair, retry, switch" in refused.value.fix


# ---------------------------------------------------------------- what no row can change (law 4)

EAGER = Ladder(
    rows={
        error_class: (Rung(disposition="retry", times=9), Rung(disposition="switch", times=9))
        for error_class in ErrorClass
    }
)
RECOVERIES: list[tuple[ev.Effect, ev.Recovery]] = [
    ("read", "repeat"),
    ("write", "repeat"),
    ("write", "keyed"),
    ("write", "probe"),
    ("write", "once"),
]


def eager(effect: ev.Effect, recovery: ev.Recovery) -> Play:
    rules = rules_of(
        tool("act", effect, recovery=recovery, fallback="other"), tool("other"), ladder=EAGER
    )
    play = Play(rules)
    play.calls("act")
    return play


@pytest.mark.parametrize(("effect", "recovery"), RECOVERIES)
def test_after_an_unknown_end_only_the_recovery_decides_whatever_the_rows_say(
    effect: ev.Effect, recovery: ev.Recovery
) -> None:
    for reason in ("timeout", "unsure", "lost", "cancelled"):
        play = eager(effect, recovery)
        play.vanishes("c1", reason)
        play.now += 100 * SECOND
        started = play.start()
        assert bool(started) == (recovery in {"repeat", "keyed"})
        if recovery == "once":
            assert play.call("c1").status is CallStatus.TAKEOVER
        assert play.call("c1").tool == "act", "no fallback for an effect in doubt"


@pytest.mark.parametrize(("effect", "recovery"), RECOVERIES)
@pytest.mark.parametrize("not_done", [True, False])
def test_a_known_failure_is_retried_only_where_a_repetition_is_harmless_or_nothing_was_done(
    effect: ev.Effect, recovery: ev.Recovery, not_done: bool
) -> None:
    play = eager(effect, recovery)
    event = play.raises("c1", E.TOOL_UNAVAILABLE, not_done=not_done)
    again = not_done or recovery in {"repeat", "keyed"}
    assert event.disposition == ("retry" if again else "switch")


def test_a_write_that_was_retried_in_vain_waits_for_a_person() -> None:
    play = Play(rules_of(tool("pay", "write", recovery="keyed")))
    play.calls("pay")
    for _ in range(2):
        play.vanishes("c1", "timeout")
        play.start()
    assert play.started() == ["c1", "c1"]
    assert play.call("c1").status is CallStatus.TAKEOVER
    assert play.settle() == Wait(reasons=frozenset({"in_doubt"}))


def test_a_read_that_was_retried_in_vain_is_told_to_the_model() -> None:
    play = Play(rules_of(tool("find")))
    play.calls("find")
    for _ in range(2):
        play.vanishes("c1", "timeout")
        play.start()
    assert play.state.calls == {}
    assert "no answer from find in 2 attempts" in play.last(ev.ToolFailed).message


@pytest.mark.parametrize(("disposition", "status"), [("end", "failed"), ("degrade", "running")])
def test_a_read_without_an_answer_follows_the_row_of_the_deployment(
    disposition: Any, status: str
) -> None:
    ladder = Ladder(rows={E.TOOL_TIMEOUT: (Rung(disposition=disposition),)})
    play = Play(rules_of(tool("find"), ladder=ladder))
    play.calls("find")
    play.vanishes("c1", "timeout")
    play.settle()
    assert play.last(ev.ToolFailed).disposition == disposition
    assert play.state.status.value == status
    assert play.state.degraded == (("find",) if disposition == "degrade" else ())


# ---------------------------------------------------------------- faults of tools


def test_a_tools_own_retries_come_before_those_of_the_row() -> None:
    play = Play(rules_of(tool("find", retries=2, backoff_us=SECOND)))
    play.calls("find")
    waits = []
    for _ in range(2):
        event = play.raises("c1")
        assert event.disposition == "retry"
        waits.append(event.retry_at - play.now)
        play.now = event.retry_at
        play.start()
    assert waits == [750_000, 1_500_000]
    assert play.raises("c1").disposition == "repair"


def test_a_fallback_tool_stands_in_once_and_is_named_in_the_intent() -> None:
    play = Play(rules_of(tool("find", fallback="look"), tool("look", fallback="find")))
    play.calls("find")
    assert play.raises("c1").switch_to == "look"
    play.start()
    started = play.last(ev.ToolStarted)
    assert (started.tool, started.attempt) == ("look", 2)
    assert play.raises("c1").disposition == "repair"


@pytest.mark.parametrize(
    ("disposition", "status"),
    [
        ("repair", CallStatus.FAILED),
        ("degrade", CallStatus.FAILED),
        ("ask_user", CallStatus.TAKEOVER),
        ("takeover", CallStatus.TAKEOVER),
        ("end", CallStatus.FAILED),
    ],
)
def test_each_disposition_leaves_the_call_where_its_word_says(
    disposition: Any, status: CallStatus
) -> None:
    ladder = Ladder(rows={E.TOOL_ERROR: (Rung(disposition=disposition),)})
    play = Play(rules_of(tool("mail", "write"), tool("drop", "dangerous"), ladder=ladder))
    play.calls("mail", "drop")
    play.raises("c1")
    assert play.call("c1").status is status
    play.settle()
    ended = play.state.status is Status.FAILED
    assert ended == (disposition == "end")
    assert ("mail" in play.state.degraded) == (disposition == "degrade")


def test_an_answer_after_a_degraded_tool_says_so_once() -> None:
    ladder = Ladder(rows={E.TOOL_ERROR: (Rung(disposition="degrade"),)})
    play = Play(rules_of(tool("find"), ladder=ladder))
    for n in (1, 2):
        play.calls(("find", {"a": n}))
        play.raises(f"c{n}")
    play.says("done as far as I could")
    play.settle()
    assert play.last(ev.RunCompleted).degraded == ("find",)
