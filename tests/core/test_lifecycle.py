"""The life of runs and calls: what the tables allow happens, anything else changes nothing."""

import copy
from typing import Any

import msgspec
import pytest
from tests.core.play import START, Play, need, rules_of, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.evolve import HANDLERS, evolve
from cairn.core.lifecycle import CALL_MOVES, CLOSED, ENDED, LEGAL, LIVE, MOVES, CallStatus, Status
from cairn.core.limits import Reservation
from cairn.core.messages import CallPart, PlanItem, Text
from cairn.core.policy import Policy
from cairn.core.state import RunState
from cairn.errors import ErrorClass, IllegalTransition

E = ErrorClass
ROOM = Reservation(input_tokens=10, output_tokens=300)
RULES = rules_of(
    tool("find"),
    tool("pay", "write", recovery="keyed"),
    tool("book", "write", recovery="probe"),
    tool("mail", "write"),
    tool("drop", "dangerous"),
    tool("ask_user", kind="question", check=need("question")),
)

# ---------------------------------------------------------------- runs


def of_the_store() -> list[ev.Event]:
    """The same of those that belong to no run."""
    return [
        ev.MemoryKept(fact=1, hash="h", trust="agent"),
        ev.MemoryReviewed(fact=1, hash="h", verdict="accepted"),
        ev.MemoryForgotten(fact=1, hash="h"),
        ev.MemoryErased(facts=(1,)),
        ev.SessionTitled(session="s", title="t"),
        ev.SessionRewound(session="s", run="r1", newest="r2"),
        ev.SessionForked(session="s", run="r1", of="s0"),
        ev.SessionRemoved(notes=(1,)),
        ev.StorePruned(run="r1", head=1, hash="h"),
        ev.StoreErased(run="r1", head=1, hash="h"),
        ev.PrincipalErased(whose="w", salt="s", runs=1, events=1),
        ev.BudgetsSet(),
        ev.GrantMade(n=1, tool="mail", effect="write"),
        ev.GrantRevoked(n=1),
        ev.GrantUsed(n=1, run="r1", call="c1"),
    ]


def of_runs() -> list[ev.Event]:
    """Facts of a run, as they might come for call c1 and request 1."""
    return [
        ev.RunCreated(agent="a", input=(Text("x"),), digest="d"),
        ev.RunForked(run="r2", parent="r1", at=1),
        ev.RunPauseRequested(),
        ev.RunResumed(),
        ev.RunCancelRequested(),
        ev.RunCompleted(answer=3),
        ev.RunFailed(error_class=E.INTERNAL, message="m"),
        ev.RunStopped(limit="steps"),
        ev.RunCancelled(),
        ev.RunVersionChanged(driver="desk:1"),
        ev.StepStarted(name="t"),
        ev.StepCompleted(),
        ev.StepFailed(error_class=E.MALFORMED_OUTPUT, message="m"),
        ev.StepLost(),
        ev.ModelRequested(model="m1", reserved=ROOM),
        ev.ModelCompleted(parts=(Text("hello"),)),
        ev.ModelFailed(error_class=E.NETWORK, message="m", disposition="retry"),
        ev.ModelRejected(error_class=E.MALFORMED_OUTPUT, disposition="repair", note="n"),
        ev.ToolStarted(call="c1", effect="read", recovery="repeat", rule="r"),
        ev.ToolCompleted(call="c1"),
        ev.ToolFailed(call="c1", error_class=E.TOOL_ERROR, message="m", disposition="repair"),
        ev.ToolRejected(call="c1", kind="denied", error_class=E.PERMISSION_DENIED, message="m"),
        ev.ToolUnknown(call="c1", reason="timeout"),
        ev.ToolResolved(call="c1", verdict="happened"),
        ev.ToolLate(call="c1", ok=True),
        ev.ToolEdited(call="c1", arguments="{}"),
        ev.ToolRedirected(call="c1", tool="look", arguments="{}", rule="r"),
        ev.ApprovalRequested(n=1, call="c1", digest="d", expires_at=START * 2),
        ev.ApprovalGranted(n=1),
        ev.ApprovalDenied(n=1),
        ev.ApprovalExpired(n=1),
        ev.ApprovalVoided(n=1, message="m"),
        ev.InputQueued(parts=(Text("x"),)),
        ev.InputGiven(seqs=(1,)),
        ev.InputRequested(n=1, question="which?"),
        ev.InputAnswered(n=1, text="this"),
        ev.TakeoverRequested(call="c1"),
        ev.TakeoverBegun(reason="why"),
        ev.TakeoverTurn(parts=(Text("hello"),)),
        ev.TakeoverResult(call="c1"),
        ev.TakeoverEnded(),
        ev.RetryScheduled(subject="model", at=START),
        ev.LimitReached(limit="steps", bound=1, value=1),
        ev.LimitWarned(limit="no_progress", level="hint", note="n"),
        ev.PlanUpdated(items=(PlanItem(text="x"),)),
        ev.ArtifactCreated(id="a1", name="x", media_type="text/plain", size=1, content="x"),
        ev.SandboxChosen(rung="landlock", tool="shell"),
        ev.ErrorRaised(error_class=E.INTERNAL, message="m"),
    ]


def of_contexts_and_stores() -> list[ev.Event]:
    return [
        ev.RunContinued(previous=ev.RunRef(run="r0", seq=1)),
        ev.ContextCompacted(start=1, text="x", by="rule", before=9, after=1),
        ev.ContextRestored(of=1),
        ev.ContextUpdated(blocks=(ev.Block(name="house", text="x"),)),
        ev.TurnFed(parts=(CallPart(id="c1", name="find"),)),
        ev.TurnKept(of=1),
        ev.TaskClassified(kind="query", by="model"),
        ev.ToolsOffered(names=("find",), why="request"),
        ev.MemoryRecalled(call="c1"),
        *of_the_store(),
    ]


def one_of_each() -> dict[type[ev.Event], ev.Event]:
    """An event of every type."""
    return {type(event): event for event in (*of_runs(), *of_contexts_and_stores())}


def in_status(status: Status) -> Play:
    """A run that stands there."""
    play = Play(RULES)
    match status:
        case Status.RUNNING:
            play.ask()
        case Status.WAITING:
            play.calls("drop")
        case Status.PAUSED:
            play.submit(cmd.Pause())
        case Status.COMPLETED:
            play.says("done")
            play.settle()
        case Status.FAILED:
            play.fails(E.AUTH)
            play.settle()
        case Status.STOPPED:
            play.add(ev.LimitReached(limit="tokens", bound=1, value=1))
            play.settle()
        case Status.CANCELLED:
            play.submit(cmd.Cancel())
            play.settle()
        case Status.QUEUED:
            pass
    assert play.state.status is status
    return play


EVENTS = one_of_each()
PAIRS = [(kind, status) for kind in ev.EVENTS.values() for status in Status]


def attempt(state: RunState, event: ev.Event, step: int = 0, at: int = 0) -> RunState:
    entry = ev.Entry(seq=state.seq + 1, at=at or state.at, event=event, step=step)
    return evolve(state, entry)


@pytest.mark.parametrize(
    ("kind", "status"), PAIRS, ids=[f"{k.NAME} while {s.value}" for k, s in PAIRS]
)
def test_an_event_is_taken_as_the_table_says_and_otherwise_changes_nothing(
    kind: type[ev.Event], status: Status
) -> None:
    state = in_status(status).state
    before = copy.deepcopy(state)
    try:
        after = attempt(state, EVENTS[kind], step=state.step)
    except IllegalTransition:
        pass  # and nothing else is ever raised
    else:
        assert status in LEGAL[kind]
        fresh = kind is ev.RunForked
        assert after.status is status or (status, after.status) in MOVES or fresh
    assert state == before


@pytest.mark.parametrize("status", [Status.QUEUED, *ENDED])
def test_after_the_end_only_late_outcomes_and_verdicts_are_allowed(status: Status) -> None:
    allowed = {kind for kind, where in LEGAL.items() if status in where}
    if status in ENDED:
        assert allowed == {ev.ToolLate, ev.ToolResolved, ev.RunForked}
    else:
        assert len(allowed) > 20


def test_every_event_has_a_place_in_the_tables() -> None:
    assert set(LEGAL) == set(ev.EVENTS.values()) == set(EVENTS)
    assert set(HANDLERS) == set(ev.EVENTS.values()) - set(ev.OF_THE_STORE)


def test_every_status_can_be_left_for_an_end_and_no_end_can_be_left() -> None:
    for live in LIVE:
        ends = {to for since, to in MOVES if since is live} & ENDED
        assert ends >= {Status.FAILED, Status.STOPPED, Status.CANCELLED}
    assert not {since for since, _ in MOVES} & ENDED
    assert {since for since, to in MOVES if to is Status.COMPLETED} == {Status.RUNNING}


def test_a_change_of_status_that_stands_in_no_table_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    state = Play(RULES).state
    monkeypatch.setattr("cairn.core.evolve.MOVES", frozenset())
    with pytest.raises(IllegalTransition, match="from queued to running"):
        attempt(state, EVENTS[ev.ModelRequested], step=1)
    assert attempt(state, EVENTS[ev.InputQueued]).status is Status.QUEUED


OF_THE_STORE = {
    200: ("store.pruned", 1),
    201: ("store.erased", 1),
    210: ("grant.made", 1),
    211: ("grant.revoked", 1),
    212: ("grant.used", 1),
    220: ("budgets.set", 1),
    230: ("memory.reviewed", 1),
    231: ("memory.forgotten", 1),
    232: ("memory.erased", 1),
    233: ("memory.kept", 1),
    234: ("memory.recalled", 1),
    240: ("session.titled", 1),
    241: ("session.rewound", 1),
    242: ("session.forked", 1),
    243: ("session.removed", 1),
}
"""The same of facts that belong to no run, and of memory."""


NUMBERS = {
    1: ("run.created", 1),
    2: ("run.forked", 1),
    3: ("run.pause_requested", 1),
    4: ("run.resumed", 1),
    5: ("run.cancel_requested", 1),
    6: ("run.completed", 1),
    7: ("run.failed", 1),
    8: ("run.stopped", 1),
    9: ("run.cancelled", 1),
    10: ("run.version_changed", 1),
    11: ("run.continued", 1),
    20: ("step.started", 1),
    21: ("step.completed", 1),
    22: ("step.failed", 1),
    23: ("step.lost", 1),
    30: ("model.requested", 1),
    31: ("model.completed", 1),
    32: ("model.failed", 1),
    33: ("model.rejected", 1),
    40: ("tool.started", 1),
    41: ("tool.completed", 1),
    42: ("tool.failed", 1),
    43: ("tool.rejected", 1),
    44: ("tool.unknown", 1),
    45: ("tool.resolved", 1),
    46: ("tool.late", 1),
    47: ("tool.edited", 1),
    48: ("tool.redirected", 1),
    60: ("approval.requested", 1),
    61: ("approval.granted", 1),
    62: ("approval.denied", 1),
    63: ("approval.expired", 1),
    64: ("approval.voided", 1),
    70: ("input.queued", 1),
    71: ("input.given", 1),
    72: ("input.requested", 1),
    73: ("input.answered", 1),
    80: ("takeover.requested", 1),
    81: ("takeover.begun", 1),
    82: ("takeover.turn", 1),
    83: ("takeover.result", 1),
    84: ("takeover.ended", 1),
    85: ("retry.scheduled", 1),
    90: ("limit.reached", 1),
    91: ("limit.warned", 1),
    100: ("plan.updated", 1),
    120: ("artifact.created", 1),
    130: ("sandbox.chosen", 1),
    140: ("context.compacted", 1),
    141: ("context.restored", 1),
    142: ("turn.fed", 1),
    143: ("context.updated", 1),
    144: ("turn.kept", 1),
    150: ("task.classified", 1),
    151: ("tools.offered", 1),
    160: ("error.raised", 1),
    **OF_THE_STORE,
    202: ("store.principal_erased", 1),
}


def test_type_numbers_and_names_never_change() -> None:
    found = {number: (kind.NAME, kind.V) for number, kind in ev.EVENTS.items()}
    assert found == NUMBERS


# ---------------------------------------------------------------- order in a journal


@pytest.mark.parametrize("seq", [0, 1, 3, 99])
def test_a_gap_or_a_repetition_in_the_journal_is_refused(seq: int) -> None:
    state = Play(RULES).state
    with pytest.raises(IllegalTransition, match="gap"):
        evolve(state, ev.Entry(seq=seq, at=START, event=ev.RunPauseRequested()))


def test_time_never_falls_within_a_run() -> None:
    state = Play(RULES).state
    with pytest.raises(IllegalTransition, match="time falls"):
        evolve(state, ev.Entry(seq=2, at=START - 1, event=ev.RunPauseRequested()))
    assert attempt(state, ev.RunPauseRequested(), at=START).paused


@pytest.mark.parametrize("kind", [k for k in EVENTS if k is not ev.RunCreated])
def test_a_journal_starts_with_its_creation(kind: type[ev.Event]) -> None:
    with pytest.raises(IllegalTransition, match=r"starts with run\.created"):
        attempt(RunState(run="r1"), EVENTS[kind], at=START)


# ---------------------------------------------------------------- calls


def with_call(status: CallStatus, name: str = "") -> Play:
    """A run whose call c1 stands there; a second call keeps the turn open."""
    names = {
        CallStatus.ASKING: "drop",
        CallStatus.APPROVED: "drop",
        CallStatus.DENIED: "drop",
        CallStatus.QUESTION: "ask_user",
        CallStatus.TAKEOVER: "mail",
        CallStatus.UNKNOWN: "pay",
        CallStatus.RETRYING: "pay",
    }
    name = name or names.get(status, "find")
    arguments = {"question": "which?"}
    if status is CallStatus.REJECTED:
        name = "nothing"
    play = Play(RULES)
    play.says("", (name, arguments), "drop")
    if status is CallStatus.CANCELLED:
        play.submit(cmd.Cancel())
        play.settle()
    if status in {CallStatus.REQUESTED, CallStatus.CANCELLED}:
        return play
    play.start()
    match status:
        case CallStatus.APPROVED:
            play.submit(cmd.Approve(n=1))
        case CallStatus.DENIED:
            play.submit(cmd.Deny(n=1))
        case CallStatus.COMPLETED:
            play.returns("c1")
        case CallStatus.FAILED:
            play.raises("c1")
        case CallStatus.RETRYING:
            play.raises("c1", E.TOOL_UNAVAILABLE)
        case CallStatus.TAKEOVER | CallStatus.UNKNOWN:
            play.vanishes("c1", gone=True)
        case _:
            pass
    return play


def call_events(play: Play) -> dict[str, ev.Event]:
    """Everything that could be said of call c1, with numbers that fit."""
    call = play.state.calls["c1"]
    spec = RULES.tools.get(call.tool) or RULES.tools["find"]
    failed = ev.ToolFailed(call="c1", error_class=E.TOOL_ERROR, message="m", disposition="repair")
    replace = msgspec.structs.replace
    return {
        "started": ev.ToolStarted(
            call="c1",
            effect=spec.effect,
            recovery=spec.recovery,
            rule="r",
            attempt=call.attempt + 1,
        ),
        "completed": ev.ToolCompleted(call="c1"),
        "failed": failed,
        "failed, retry": replace(failed, disposition="retry"),
        "failed, switch": replace(failed, disposition="switch", switch_to="find"),
        "failed, takeover": replace(failed, disposition="takeover"),
        "rejected": EVENTS[ev.ToolRejected],
        "unknown": EVENTS[ev.ToolUnknown],
        "happened": ev.ToolResolved(call="c1", verdict="happened"),
        "not happened": ev.ToolResolved(call="c1", verdict="not_happened"),
        "probe unknown": ev.ToolResolved(call="c1", verdict="unknown", by="probe"),
        "given up": ev.ToolResolved(call="c1", verdict="given_up"),
        "takeover": ev.TakeoverRequested(call="c1"),
        "asked": ev.ApprovalRequested(
            n=play.state.requests + 1, call="c1", digest="d", expires_at=START * 2
        ),
        "granted": ev.ApprovalGranted(n=call.approval),
        "denied": ev.ApprovalDenied(n=call.approval),
        "expired": ev.ApprovalExpired(n=call.approval),
        "questioned": ev.InputRequested(n=play.state.requests + 1, question="?", call="c1"),
        "answered": ev.InputAnswered(n=call.approval, text="x"),
    }


FAILURES = {"failed", "failed, retry", "failed, switch", "failed, takeover"}
VERDICTS = {"happened", "not happened", "given up"}
TAKEN: dict[CallStatus, set[str]] = {
    CallStatus.REQUESTED: {"started", "rejected", "asked", "questioned"},
    CallStatus.ASKING: {"granted", "denied", "expired"},
    CallStatus.QUESTION: {"answered"},
    CallStatus.APPROVED: {"started", "rejected", "asked", "expired", "questioned"},
    CallStatus.RETRYING: {"started", "rejected", "asked", "questioned"} | FAILURES,
    CallStatus.STARTED: {"completed", "unknown", "questioned"} | FAILURES,
    CallStatus.TAKEOVER: VERDICTS,
    CallStatus.UNKNOWN: {"started", "takeover", "probe unknown"} | VERDICTS,
    **{status: set() for status in CLOSED},
}


@pytest.mark.parametrize("status", CallStatus)
def test_a_call_takes_exactly_the_events_of_its_state(status: CallStatus) -> None:
    play = with_call(status)
    state = play.state
    assert state.calls["c1"].status is status
    before = copy.deepcopy(state)
    taken = set()
    for name, event in call_events(play).items():
        try:
            after = attempt(state, event, step=state.step)
        except IllegalTransition:
            continue
        taken.add(name)
        moved = after.calls["c1"].status if "c1" in after.calls else None
        assert moved is status or moved in CALL_MOVES[status]
    assert taken == TAKEN[status]
    assert state == before


@pytest.mark.parametrize(
    ("name", "taken"),
    [("find", {"started", "rejected", "takeover"} | FAILURES), ("book", {"takeover"})],
)
def test_only_a_read_may_be_called_failed_while_its_outcome_is_unknown(
    name: str, taken: set[str]
) -> None:
    play = with_call(CallStatus.STARTED, name)
    play.vanishes("c1", gone=True)
    found = set()
    for said, event in call_events(play).items():
        try:
            attempt(play.state, event, step=1)
        except IllegalTransition:
            continue
        found.add(said)
    assert found - VERDICTS - {"probe unknown"} == taken


def test_a_closed_call_never_changes_again() -> None:
    assert all(not CALL_MOVES[status] for status in CLOSED)
    assert set(CALL_MOVES) == set(CallStatus)


# ---------------------------------------------------------------- events that contradict the state


def started(**fields: Any) -> ev.ToolStarted:
    given = {"call": "c1", "effect": "read", "recovery": "repeat", "rule": "r", **fields}
    return ev.ToolStarted(**given)


def asked(status: CallStatus, event: ev.Event, *, step: int = 1) -> tuple[Play, ev.Event, int]:
    return with_call(status), event, step


def interrupting() -> tuple[Play, ev.Event, int]:
    """A message that is queued, and would be given while a call is at work."""
    play = with_call(CallStatus.STARTED)
    play.submit(cmd.Queue(parts=(Text("and hurry"),)))
    return play, ev.InputGiven(seqs=(play.state.seq,)), 0


def unanswered() -> Play:
    """A run that goes on after a reply that was empty."""
    play = Play(RULES)
    play.says("")
    assert play.state.status is Status.RUNNING
    return play


C = CallStatus
CONTRADICTIONS: dict[str, tuple[Play, ev.Event, int]] = {
    "a call is started without a verdict": asked(C.REQUESTED, started(rule="")),
    "a call is started that nobody requested": asked(C.REQUESTED, started(call="c9")),
    "an attempt is left out": asked(C.REQUESTED, started(attempt=2)),
    "an attempt is counted twice": asked(C.RETRYING, started(attempt=1)),
    "a call starts before the one it must follow": asked(C.TAKEOVER, started(call="c2")),
    "an outcome of a call nobody requested": asked(C.STARTED, ev.ToolCompleted(call="c9")),
    "a request number is left out": asked(
        C.REQUESTED, ev.ApprovalRequested(n=2, call="c1", digest="d", expires_at=START)
    ),
    "a request number is used twice": asked(C.ASKING, ev.InputRequested(n=1, question="?")),
    "a grant of a request nobody made": asked(C.ASKING, ev.ApprovalGranted(n=7)),
    "an answer to a request for approval": asked(C.ASKING, ev.InputAnswered(n=1, text="x")),
    "an approval of a question": asked(C.QUESTION, ev.ApprovalGranted(n=1)),
    "the model is asked while a call is open": asked(
        C.STARTED, ev.ModelRequested(model="m", reserved=ROOM), step=2
    ),
    "a task starts while a call is open": asked(C.STARTED, ev.StepStarted(name="t"), step=2),
    "a message lands between a call and its answer": interrupting(),
    "the guard speaks between a call and its answer": asked(
        C.STARTED, EVENTS[ev.LimitWarned], step=0
    ),
    "success with an open call": asked(C.STARTED, ev.RunCompleted(answer=3)),
    "the end with a call at work": asked(C.STARTED, ev.RunCancelled(), step=0),
    "failure with a call at work": asked(C.STARTED, EVENTS[ev.RunFailed], step=0),
    "a retry for a call that waits for none": asked(
        C.REQUESTED, ev.RetryScheduled(subject="c1", at=START)
    ),
    "a retry for a call nobody requested": asked(
        C.REQUESTED, ev.RetryScheduled(subject="c9", at=START)
    ),
    "a retry of the model while calls are open": asked(C.REQUESTED, EVENTS[ev.RetryScheduled]),
    "a reply that numbers its calls anew": (
        in_status(Status.RUNNING),
        ev.ModelCompleted(parts=(CallPart(id="c2", name="find"),)),
        1,
    ),
    "a second request beside the first": (
        in_status(Status.RUNNING),
        ev.ModelRequested(model="m", reserved=ROOM, attempt=2),
        1,
    ),
    "a request of a step that is not next": (
        in_status(Status.QUEUED),
        ev.ModelRequested(model="m", reserved=ROOM),
        2,
    ),
    "a second attempt that had no first": (
        in_status(Status.QUEUED),
        ev.ModelRequested(model="m", reserved=ROOM, attempt=2),
        1,
    ),
    "the end with a request in flight": (in_status(Status.RUNNING), ev.RunCancelled(), 0),
    "success without an answer": (unanswered(), ev.RunCompleted(answer=0), 0),
    "success with an answer that was not the last": (unanswered(), ev.RunCompleted(answer=3), 0),
    "a reply nobody asked for": (Play(RULES), EVENTS[ev.ModelCompleted], 1),
    "a rejection of an answer that is not there": (Play(RULES), EVENTS[ev.ModelRejected], 1),
    "a message is given that was not queued": (Play(RULES), ev.InputGiven(seqs=(1,)), 0),
    "a task ends that did not start": (Play(RULES), ev.StepCompleted(), 0),
    "a resumption of a run that is not paused": (Play(RULES), ev.RunResumed(), 0),
}


@pytest.mark.parametrize("name", CONTRADICTIONS)
def test_an_event_that_contradicts_the_state_is_refused(name: str) -> None:
    play, event, step = CONTRADICTIONS[name]
    before = copy.deepcopy(play.state)
    with pytest.raises(IllegalTransition):
        attempt(play.state, event, step)
    assert play.state == before


def test_nothing_new_starts_once_the_run_is_ending() -> None:
    for end in (ev.RunCancelRequested(), EVENTS[ev.LimitReached]):
        play = Play(RULES)
        play.add(end)
        for event in (EVENTS[ev.ModelRequested], EVENTS[ev.StepStarted]):
            with pytest.raises(IllegalTransition):
                attempt(play.state, event, step=1)


def test_a_cancelled_call_is_one_that_never_started() -> None:
    call = with_call(CallStatus.CANCELLED).call("c1")
    assert call.status is CallStatus.CANCELLED
    assert (call.attempt, call.result[:12]) == (0, "Not executed")


def test_policy_is_part_of_the_rules_and_not_of_the_journal() -> None:
    play = Play(rules_of(tool("mail", "write"), policy=Policy()))
    play.calls("mail")
    assert play.state.status is Status.WAITING
    play.rules = rules_of(tool("mail", "write"))
    assert play.submit(cmd.Deny(n=1)) is not None
    assert play.state.status is Status.RUNNING
