"""A run driven at random: any reply, any outcome, any command, a crash at any point.

The promises are checked after every event by `Laws` and by `agreement`; at the end every prefix
of the journal is folded again from its bytes, and the run is shown to end from where it stands.
"""

import copy
from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.core.laws import SALT
from tests.core.play import DAY, MODEL, SECOND, Play, need, raw, tool

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import (
    Action,
    Append,
    AskModel,
    Done,
    Halt,
    InFlight,
    ProbeCall,
    RunTask,
    StartCalls,
    Wait,
)
from cairn.core.codec import open_row, seal
from cairn.core.decide import decide
from cairn.core.evolve import evolve
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import Limits, Price, Usage
from cairn.core.messages import Reasoning, Source, Text
from cairn.core.outcomes import Fault, Reply
from cairn.core.policy import Policy
from cairn.core.rules import ModelSpec, Rules
from cairn.core.state import RunState, waits, wake_at
from cairn.errors import ErrorClass, IllegalTransition, Refused, UnknownRun

TOOLS = (
    tool("find", fallback="look", retries=1, sources=True),
    tool("look"),
    tool("rate", micro_usd=40),
    tool("set", "write", recovery="repeat", conflict_key=lambda v: str(v.get("a"))),
    tool("pay", "write", recovery="keyed", key_ttl_us=40 * SECOND, check=need("a")),
    tool("book", "write", recovery="probe", conflict_key=lambda v: str(v.get("a"))),
    tool("mail", "write", fallback="post", settle_us=5 * SECOND),
    tool("post", "write"),
    tool("drop", "dangerous"),
    tool("wipe", "dangerous", recovery="keyed"),
    tool("ask_user", kind="question", check=need("question")),
)
NAMES = [spec.name for spec in TOOLS]
RETRIABLE = {Status.FAILED, Status.STOPPED, Status.CANCELLED}
LADDERS = (
    Ladder(),
    Ladder(
        rows={
            ErrorClass.TOOL_ERROR: (Rung(disposition="ask_user", times=1), Rung(disposition="end")),
            ErrorClass.TOOL_TIMEOUT: (Rung(disposition="degrade"),),
            ErrorClass.TOOL_UNAVAILABLE: (Rung(disposition="retry", times=2),),
        }
    ),
    Ladder(
        rows={
            ErrorClass.IN_DOUBT: (Rung(disposition="retry", times=1), Rung(disposition="end")),
            ErrorClass.TOOL_ERROR: (Rung(disposition="retry", times=1), Rung(disposition="repair")),
            ErrorClass.DEPENDENCY_FAILED: (Rung(disposition="takeover"),),
        }
    ),
)
PRICED = Price(input=2_000_000, output=8_000_000)

POLICIES = (
    Policy(effects={"write": "allow"}),
    Policy(),
    Policy(tools={"set": "deny", "mail": "allow", "post": "ask"}, effects={"write": "allow"}),
    Policy(tools={"drop": "allow"}, effects={"read": "ask"}),
)
MODELS = (
    (MODEL,),
    (ModelSpec(name="m1", price=PRICED, max_output=100), MODEL),
    (MODEL, MODEL, ModelSpec(name="m3", price=PRICED, max_output=4_096)),
)
SETTINGS: tuple[dict[str, Any], ...] = (
    {},
    {},
    {"kind": "query"},
    {"approvals": "none"},
    {"on_loop": "ask"},
)
LIMITS = (
    Limits(),
    Limits(),
    Limits(steps=3),
    Limits(calls=0),
    Limits(calls=2, calls_per_reply=3),
    Limits(running_s=1),
    Limits(tokens=4_000),
    Limits(micro_usd=30_000),
    Limits(micro_usd=90, errors_in_row=1),
    Limits(errors_in_row=2, no_progress=1),
    Limits(steps=9, calls=6, no_progress=2),
)


def refuse_bad(text: str) -> str:
    """A check of answers."""
    return "it is bad" if "bad" in text else ""


arguments = st.sampled_from(
    ('{"a": 1}', '{"a":2}', '{"a":1,"b":[]}', "", "null", "[1]", '{"a":', '{"question":"which?"}')
)
asked = st.tuples(
    st.sampled_from((*NAMES, *NAMES, "find_", "")), arguments, st.sampled_from(("", "x1"))
)
usages = st.builds(
    Usage,
    input_tokens=st.integers(0, 900),
    cached_tokens=st.integers(0, 90),
    output_tokens=st.integers(0, 900),
    micro_usd=st.integers(0, 50),
)
texts = st.sampled_from(("Done.", "All is bad.", "See [s1] and [s2].", "完成了。", " "))
good_calls = st.tuples(
    st.sampled_from(NAMES), st.sampled_from(('{"a":1,"question":"?"}', '{"a":2}')), st.just("")
)
answers = st.builds(Reply, parts=st.builds(Text, texts).map(lambda text: (text,)), usage=usages)
working = st.builds(
    Reply, calls=st.lists(good_calls, min_size=1, max_size=4).map(tuple), usage=usages
)
messy = st.builds(
    Reply,
    parts=st.sampled_from(((), (Text("I look."),), (Reasoning(content="hm"),))),
    calls=st.lists(asked, max_size=6).map(tuple),
    finish=st.sampled_from(("stop", "tool_calls", "tool_calls", "stop", "length", "refusal")),
    usage=usages,
)
replies = st.integers(0, 5).flatmap(lambda n: answers if n == 5 else messy if n == 4 else working)
faulty = st.builds(
    Fault,
    error_class=st.sampled_from(ErrorClass),
    message=st.just("the other side said no"),
    retry_after_us=st.sampled_from((0, 3 * SECOND)),
)
TOOL_FAULTS = (
    ErrorClass.TOOL_ERROR,
    ErrorClass.TOOL_TIMEOUT,
    ErrorClass.TOOL_UNAVAILABLE,
    ErrorClass.DEPENDENCY_FAILED,
)
landings = st.one_of(
    st.tuples(st.just("returned"), st.sampled_from((True, "same", [1, 2], None))),
    st.tuples(st.just("raised"), st.sampled_from(TOOL_FAULTS)),
    st.tuples(st.just("raised"), st.sampled_from(ErrorClass)),
    st.tuples(st.just("not done"), st.just(ErrorClass.TOOL_UNAVAILABLE)),
    st.tuples(st.just("vanished"), st.sampled_from(("timeout", "unsure"))),
)
numbers = st.integers(0, 6)
ids = st.integers(0, 9).map("c{}".format)
commands = st.one_of(
    st.builds(cmd.Approve, n=numbers),
    st.builds(cmd.Deny, n=numbers, message=st.sampled_from(("", "use the staging host"))),
    st.builds(cmd.Answer, n=numbers, text=st.just("the second")),
    st.builds(cmd.Queue, parts=st.just((Text("and hurry"),))),
    st.builds(
        cmd.Resolve, call=ids, verdict=st.sampled_from(("happened", "not_happened", "given_up"))
    ),
    st.builds(cmd.Pause),
    st.builds(cmd.Resume),
    st.builds(cmd.Cancel),
    st.builds(cmd.Late, call=ids, ok=st.booleans(), result=st.just(raw("late"))),
)


def statuses(state: RunState) -> set[CallStatus]:
    """Where the calls of the open turn stand."""
    return {call.status for call in state.calls.values()}


def agreement(state: RunState, action: Action, now: int) -> None:
    """Status, waits and wake_at say the same as `decide`."""
    woken = 0 < wake_at(state) <= now
    if state.status.terminal:
        assert action == Done(status=state.status)
        return
    assert not isinstance(action, Done)
    if isinstance(action, Wait):
        assert state.status in {Status.WAITING, Status.PAUSED}
        assert action.until == 0 or action.until > now
    match state.status:
        case Status.PAUSED:
            assert isinstance(action, Wait | InFlight) or state.cancel is not None
        case Status.WAITING:
            assert isinstance(action, Wait) or woken, action
            assert waits(state)
        case _:
            assert not isinstance(action, Wait), action
    if isinstance(action, Wait) and state.status is Status.WAITING:
        assert (action.reasons, action.until) == (waits(state), wake_at(state))


class Watched(Play):
    """A play that remembers every state and what was decided in it."""

    def __init__(self, rules: Rules, **fields: Any) -> None:
        self.moments: list[tuple[RunState, int, Action]] = []
        self.before_end: tuple[RunState, Any, int] | None = None
        super().__init__(rules, **fields)

    def add(self, event: ev.Event, step: int = 0, actor: str = "") -> RunState:
        if isinstance(event, ev.TERMINAL):
            self.before_end = self.state, copy.deepcopy(self.laws), len(self.journal)
        super().add(event, step, actor)
        action = self.decide()
        self.moments.append((self.state, self.now, action))
        agreement(self.state, action, self.now)
        return self.state

    def fork(self) -> None:
        """Go on from just before the end, as a retry does."""
        assert self.before_end is not None
        self.state, self.laws, length = self.before_end
        self.journal, self.moments = self.journal[:length], self.moments[:length]
        at = self.state.seq
        self.add(ev.RunForked(run=f"{self.state.run}.", parent=self.state.run, at=at))


class World:
    """What is at work outside, as the shell would have it."""

    def __init__(self, play: Play) -> None:
        self.play = play
        self.flights: list[str] = []
        self.ghosts: list[str] = []

    def perform(self, action: Action) -> None:
        """Journal what an action wants, and set it to work."""
        play = self.play
        match action:
            case Append():
                for step, event in action.events:
                    play.add(event, step)
            case AskModel():
                play.ask(action)
                self.flights.append("model")
            case StartCalls():
                for step, event in action.starts:
                    play.add(event, step)
                    self.flights.append(event.call)
            case ProbeCall():
                if f"probe {action.call}" not in self.flights:
                    self.flights.append(f"probe {action.call}")
            case RunTask():
                play.add(action.event, action.step)
                self.flights.append("task")
            case InFlight() | Halt():
                assert self.flights, f"{action} with nothing at work"
            case Wait() | Done():
                pass

    def land(self, flight: str, landing: tuple[str, Any], outcome: Reply | Fault) -> None:
        """Something at work has ended."""
        play = self.play
        self.flights.remove(flight)
        kind, detail = landing
        if flight == "model":
            play.outcome(outcome, latency_us=300_000)
        elif flight == "task":
            if kind == "returned":
                play.accepts()
            else:
                play.refuses("a total is missing")
        elif flight.startswith("probe "):
            self._probe(flight.removeprefix("probe "), kind)
        elif kind == "returned":
            self._return(flight, detail)
        elif kind == "vanished":
            self.ghosts.append(flight)
            play.vanishes(flight, detail)
        else:
            play.raises(flight, detail, not_done=kind == "not done")

    def _return(self, call: str, value: Any) -> None:
        spec = self.play.rules.tools[self.play.call(call).tool]
        sources = (Source(uri="doc:1", text="a passage"),) if spec.sources else ()
        self.play.returns(
            call, value, sources=sources, micro_usd=spec.micro_usd, duration_us=90_000
        )

    def _probe(self, call: str, kind: str) -> None:
        verdict = {"returned": "happened", "vanished": "unknown"}.get(kind, "not_happened")
        found = self.play.state.calls.get(call)
        event = ev.ToolResolved(call=call, verdict=verdict, by="probe")
        if found is not None and found.status is CallStatus.UNKNOWN:
            self.play.add(event, found.step)

    def crash(self, *, gone: bool) -> None:
        """The process dies, and the next one takes over."""
        self.ghosts += [f for f in self.flights if f.startswith("c")]
        self.flights.clear()
        self.play.crash(gone=gone)


def finish(play: Play, flights: list[str]) -> None:
    """From here on all goes well and people answer: the run must end soon."""
    world = World(play)
    world.flights = list(flights)
    for _ in range(200):
        action = play.decide()
        if isinstance(action, Done):
            return
        world.perform(action)
        if isinstance(action, Wait):
            answer_people(play, action)
        for flight in tuple(world.flights):
            world.land(flight, ("returned", "fine"), Reply(parts=(Text("Done."),)))
    raise AssertionError(f"the run does not end: {play.names[-9:]}")


def answer_people(play: Play, action: Wait) -> None:
    """Everybody who is waited for says what lets the run go on."""
    state = play.state
    if state.paused:
        play.submit(cmd.Resume())
    for call in tuple(state.calls.values()):
        if call.id not in play.state.calls:
            continue
        if call.status is CallStatus.ASKING and play.now < call.expires_at:
            play.submit(cmd.Approve(n=call.approval))
        elif call.status is CallStatus.QUESTION:
            play.submit(cmd.Answer(n=call.approval, text="yes"))
        elif call.status is CallStatus.TAKEOVER:
            play.submit(cmd.Resolve(call=call.id, verdict="happened"))
    if state.question:
        play.submit(cmd.Answer(n=state.question, text="stop looking and answer"))
    if play.state is state:
        assert action.until > play.now, "nothing is waited for"
        play.now = action.until


class CoreMachine(RuleBasedStateMachine):
    """One run, driven by chance."""

    @initialize(
        bounds=st.integers(0, len(LIMITS) - 1),
        models=st.integers(0, 2),
        policy=st.integers(0, 3),
        ladder=st.integers(0, 2),
        setting=st.integers(0, 4),
        checks=st.sampled_from(((), ("complete",), ("complete", "polite"))),
        repairs=st.integers(1, 3),
        works=st.lists(st.tuples(landings, replies), min_size=2, max_size=12),
    )
    def begin(self, works: list[tuple[tuple[str, Any], Reply]], **pick: Any) -> None:
        rules = Rules(
            tools={spec.name: spec for spec in TOOLS},
            models=MODELS[pick["models"]],
            policy=POLICIES[pick["policy"]],
            ladder=LADDERS[pick["ladder"]],
            check_answer=refuse_bad if pick["repairs"] > 1 else None,
            checks=pick["checks"],
            repairs=pick["repairs"],
        )
        bounds = LIMITS[pick["bounds"]]
        self.play = Watched(rules, limits=bounds, **SETTINGS[pick["setting"]])
        self.world = World(self.play)
        self.work(works)

    @precondition(lambda self: self.play.state.end is None)
    @rule(landing=landings, outcome=replies)
    def act(self, landing: tuple[str, Any], outcome: Reply) -> None:
        """Take the next action; what is only waited for lands."""
        action = self.play.decide()
        self.world.perform(action)
        if isinstance(action, InFlight | Halt):
            self.world.land(self.world.flights[0], landing, outcome)

    @precondition(lambda self: self.play.state.end is None)
    @rule(works=st.lists(st.tuples(landings, replies), min_size=3, max_size=9))
    def work(self, works: list[tuple[tuple[str, Any], Reply]]) -> None:
        """The same a few times: most of what happens is work."""
        for landing, outcome in works:
            self.act(landing, outcome)

    @precondition(lambda self: self.play.state.end is None)
    @rule(pick=st.integers(0, 2), turns=st.integers(1, 9))
    def go_round(self, pick: int, turns: int) -> None:
        """The model calls the same tool over and over, and it brings the same each time."""
        call = (("look", '{"a":1}', ""), ("set", '{"a":1}', ""), ("find", '{"a":1}', ""))[pick]
        for _ in range(turns * 3):
            self.act(("returned", "same"), Reply(calls=(call,)))

    @precondition(lambda self: self.play.state.status in RETRIABLE)
    @rule()
    def retry(self) -> None:
        self.world.flights.clear()
        self.world.ghosts.clear()
        self.play.fork()

    @precondition(lambda self: self.world.flights)
    @rule(pick=numbers, landing=landings, outcome=st.one_of(replies, faulty))
    def land(self, pick: int, landing: tuple[str, Any], outcome: Reply | Fault) -> None:
        flights = self.world.flights
        self.world.land(flights[pick % len(flights)], landing, outcome)

    @precondition(lambda self: self.play.state.in_flight)
    @rule(gone=st.booleans())
    def crash(self, *, gone: bool) -> None:
        self.world.crash(gone=gone)

    @rule(command=commands)
    def submit(self, command: cmd.Command) -> None:
        """Somebody asks for something, early, late or twice."""
        before, journal = self.play.state, len(self.play.journal)
        try:
            self.play.submit(command)
        except (Refused, UnknownRun):
            assert (self.play.state, len(self.play.journal)) == (before, journal)
        except IllegalTransition:
            assert before.end is not None, "only an ended run may refuse by its state"
            assert self.play.state is before

    @precondition(lambda self: self.play.state.requests)
    @rule(yes=st.booleans())
    def decide_newest(self, *, yes: bool) -> None:
        """A person answers what was asked last."""
        n = self.play.state.requests
        command = cmd.Approve(n=n) if yes else cmd.Deny(n=n)
        self.submit(command)
        self.submit(cmd.Answer(n=n, text="yes"))

    @precondition(lambda self: CallStatus.TAKEOVER in statuses(self.play.state))
    @rule(verdict=st.sampled_from(("happened", "not_happened", "not_happened", "given_up")))
    def settle_doubt(self, verdict: Any) -> None:
        """A person says what came of the first call that waits for such a word."""
        calls = self.play.state.calls.values()
        call = next(c.id for c in calls if c.status is CallStatus.TAKEOVER)
        self.submit(cmd.Resolve(call=call, verdict=verdict))

    @precondition(lambda self: self.world.ghosts)
    @rule(ok=st.booleans())
    def late(self, *, ok: bool) -> None:
        """What was given up comes back after all."""
        self.submit(cmd.Late(call=self.world.ghosts.pop(), ok=ok, result=raw("late")))

    @rule(us=st.sampled_from((1, SECOND, 40 * SECOND, 100 * SECOND, 8 * DAY)))
    def time_passes(self, us: int) -> None:
        self.play.now += us

    @precondition(lambda self: wake_at(self.play.state) > self.play.now)
    @rule(early=st.booleans())
    def wake(self, *, early: bool) -> None:
        self.play.now = wake_at(self.play.state) - early

    def teardown(self) -> None:
        if not hasattr(self, "play") or len(self.play.moments) < len(self.play.journal):
            return  # a rule has failed: its own words are what should be read
        self._folds_the_same()
        benign, cancelled = copy.deepcopy(self.play.laws), copy.deepcopy(self.play.laws)
        flights = [f for f in self.world.flights if not f.startswith("probe ")]
        assert bool(flights) == self.play.state.in_flight
        finish(self._branch(benign), flights)
        branch = self._branch(cancelled)
        ended = branch.state.end
        branch.submit(cmd.Cancel())
        finish(branch, flights)
        assert branch.state.status is (ended.status if ended else Status.CANCELLED)

    def _branch(self, laws: Any) -> Play:
        """The same run in another world."""
        branch = copy.copy(self.play)
        branch.laws, branch.journal = laws, list(self.play.journal)
        branch.moments = list(self.play.moments)
        return branch

    def _folds_the_same(self) -> None:
        """A process that died after any event finds the same state and the same next action."""
        folded = RunState(run="r1")
        hashed = bytes(32)
        for entry, (state, now, action) in zip(self.play.journal, self.play.moments, strict=True):
            row = seal("r1", entry, SALT, hashed)
            hashed = row.hash
            folded = evolve(folded, open_row(row))
            assert folded == state
            assert decide(folded, self.play.rules, now) == action


TestCore = pytest.mark.timeout(600)(CoreMachine.TestCase)  # more examples than other tests
TestCore.settings = hypothesis.settings(hypothesis.settings.default, report_multiple_bugs=False)
