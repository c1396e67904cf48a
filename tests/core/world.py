"""A run and the world around it, for tests that drive the core by chance.

Every event is checked by `Laws` and by `agreement`; `verify` folds every prefix of the journal
again from its bytes and shows that the run can end from where it stands.
"""

import copy
from typing import Any

from tests.core.laws import SALT, Laws
from tests.core.play import MODEL, SECOND, Play, need, tool

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
from cairn.core.index import persons_answer
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import Limits, Price
from cairn.core.messages import Source, Text
from cairn.core.outcomes import Fault, Reply
from cairn.core.policy import From, Policy, Redirect, Rule, Spend
from cairn.core.rules import ModelSpec, Rules
from cairn.core.state import RunState, waits, wake_at
from cairn.errors import ErrorClass, IllegalTransition, Refused, UnknownRun

TOOLS = (
    tool("find", fallback="look", retries=1, sources=True),
    tool("look", taint=("web",)),
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

TO_BOOK = Redirect(tool="book", arguments={"a": From(path="a")})
POLICIES = (
    Policy(effects={"write": "allow"}),
    Policy(),
    Policy(tools={"set": "deny", "mail": "allow", "post": "ask"}, effects={"write": "allow"}),
    Policy(tools={"drop": "allow"}, effects={"read": "ask"}),
    Policy(
        rules=(
            Rule(name="tainted", decide="ask", tools=("set",), taint=("web",)),
            Rule(
                name="by post", decide="redirect", tools=("mail",), redirect=Redirect(tool="post")
            ),
            Rule(name="paid", decide="redirect", tools=("pay",), redirect=TO_BOOK),
            Rule(name="booked", decide="redirect", tools=("bo*",), redirect=Redirect(tool="mail")),
            Rule(name="often", decide="deny", tools=("rate",), spend=Spend(calls=3)),
        ),
        effects={"write": "allow"},
    ),
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


CHECKS: tuple[tuple[str, ...], ...] = ((), ("complete",), ("complete", "polite"))


def begin(
    *, models: int, policy: int, ladder: int, setting: int, checks: int, repairs: int, bounds: int
) -> "World":
    """A run under rules that are picked by number."""
    rules = Rules(
        tools={spec.name: spec for spec in TOOLS},
        models=MODELS[models],
        policy=POLICIES[policy],
        ladder=LADDERS[ladder],
        check_answer=refuse_bad if repairs > 1 else None,
        checks=CHECKS[checks],
        repairs=repairs,
    )
    return World(Watched(rules, limits=LIMITS[bounds], **SETTINGS[setting]))


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
        self.before_end: tuple[RunState, Laws | None, int] | None = None
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
        self.add(
            ev.RunForked(run=f"{self.state.run}.", parent=self.state.run, at=at, grants="void")
        )


class World:
    """What is at work outside, as the shell would have it."""

    def __init__(self, play: Watched) -> None:
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

    def act(self, landing: tuple[str, Any], outcome: Reply | Fault) -> None:
        """Take the next action; what is only waited for lands."""
        action = self.play.decide()
        self.perform(action)
        if isinstance(action, InFlight | Halt):
            self.land(self.flights[0], landing, outcome)

    def retry(self) -> None:
        """The run has ended, and another one goes on from just before its end."""
        self.flights.clear()
        self.ghosts.clear()
        self.play.fork()

    def submit(self, command: cmd.Command) -> None:
        """Somebody asks for something, early, late or twice; a refusal changes nothing."""
        before, length = self.play.state, len(self.play.journal)
        try:
            self.play.submit(command)
        except (Refused, UnknownRun):
            assert (self.play.state, len(self.play.journal)) == (before, length)
        except IllegalTransition:
            assert before.end is not None, "only an ended run may refuse by its state"
            assert self.play.state is before

    def decide_newest(self, *, yes: bool) -> None:
        """A person answers what was asked last."""
        n = self.play.state.requests
        self.submit(cmd.Approve(n=n) if yes else cmd.Deny(n=n))
        self.submit(cmd.Answer(n=n, text="yes"))

    def settle_doubt(self, verdict: Any) -> None:
        """A person says what came of the first call that waits for such a word."""
        calls = self.play.state.calls.values()
        call = next(c.id for c in calls if c.status is CallStatus.TAKEOVER)
        self.submit(cmd.Resolve(call=call, verdict=verdict))

    def verify(self) -> None:
        """What must be true of a run wherever it stands."""
        if len(self.play.moments) < len(self.play.journal):
            return  # a law was broken: its own words are what should be read
        folds_the_same(self.play)
        flights = [f for f in self.flights if not f.startswith("probe ")]
        assert bool(flights) == self.play.state.in_flight
        finish(branch(self.play), flights)
        stopped = branch(self.play)
        ended = stopped.state.end
        stopped.submit(cmd.Cancel())
        finish(stopped, flights)
        assert stopped.state.status is (ended.status if ended else Status.CANCELLED)


def branch(play: Watched) -> Watched:
    """The same run in another world."""
    other = copy.copy(play)
    other.laws = copy.deepcopy(play.laws)
    other.journal, other.moments = list(play.journal), list(play.moments)
    return other


def folds_the_same(play: Watched) -> None:
    """A process that died after any event finds the same state and the same next action."""
    folded, hashed = RunState(run="r1"), bytes(32)
    for entry, (state, now, action) in zip(play.journal, play.moments, strict=True):
        row = seal("r1", entry, SALT, hashed)
        hashed = row.hash
        folded = evolve(folded, open_row(row))
        assert folded == state
        assert decide(folded, play.rules, now) == action


def finish(play: Watched, flights: list[str]) -> None:
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
    if state.taken and not persons_answer(play.state):  # with it the run ends, once it goes on
        play.submit(cmd.HandBack(by=state.taken))
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
