"""`Drive`: one claim's worth of a run. Decide, record and perform until nothing is left to do."""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import Literal

import msgspec

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
from cairn.core.commands import Late
from cairn.core.decide import decide
from cairn.core.ladder import DEFAULT_LADDER
from cairn.core.lifecycle import CallStatus
from cairn.core.messages import Record, clean
from cairn.core.outcomes import lost_events
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.crew import Crew
from cairn.engine.attend import TASK_S
from cairn.engine.backs import ProbeBack, TaskBack, events_for
from cairn.engine.calls import CallRunner, deliver
from cairn.engine.consent import Consent
from cairn.engine.flights import Flights, Reason
from cairn.engine.host import Host
from cairn.engine.journal import OpenJournal, Outcome, outcomes
from cairn.engine.load import load
from cairn.engine.perform import perform_task
from cairn.engine.requesting import Requester
from cairn.engine.versions import refuse_pinned, version_change
from cairn.errors import ErrorClass, Fenced, StoreError, UnknownAgent, words_of
from cairn.governance.tool_names import is_known
from cairn.ports import Claim, Store

replace = msgspec.structs.replace
DOING = (Append, AskModel, StartCalls, ProbeCall, RunTask)
GAP_CHARS = 1_000
NO_RULES = Rules(tools={}, models=())
"""Enough to end a cancelled run whose agent is not known here."""


class Directive(Record):
    """What should happen next with a run.

    Args:
        kind: done: it is over; wait: it needs people; later: time is news at `until`;
            more: go on at once; busy: somebody else drives it.
        until: Microseconds since 1970; 0 when time alone changes nothing.
        head: The last seq that was seen.
    """

    kind: Literal["done", "more", "wait", "busy", "later"]
    until: int = 0
    head: int = 0


class Drive:
    """One claim's worth of driving a run."""

    def __init__(
        self,
        store: Store,
        host: Host,
        claim: Claim,
        state: RunState,
        crew: Crew | None,
        flights: Flights,
    ) -> None:
        self._store = store
        self._host = host
        self._run = state.run
        self._epoch = claim.epoch
        self._crew = crew
        self._rules = crew.rules if crew is not None else NO_RULES
        self._flights = flights
        self._sealed = host.secrets.of(state.principal)
        flights.redacted = self._sealed.value
        self._journal = OpenJournal(
            store, state, claim.epoch, host.clock, host.watchers, self._sealed
        )
        self._consent = Consent(store, host, self._journal)
        self._calls = CallRunner(
            store, host, self._journal, self._flights, self._consent, self._sealed
        )
        self._requester = Requester(
            store,
            host,
            self._journal,
            self._flights,
            self._sealed,
            self._take_in,
            self._rules_now,
        )
        self._begins = state.seq == 1
        if crew is not None and state.in_flight:
            refuse_pinned(state, crew, host)  # what a version left at work is its own to tell
        self._close_lost(claim)

    @property
    def state(self) -> RunState:
        """The run's state as far as this drive has come."""
        return self._journal.state

    def _close_lost(self, claim: Claim) -> None:
        """What the journal calls in flight is not ours: say what came of it (law 4)."""
        state = self._journal.state
        if not state.in_flight:
            return
        dead = claim.previous == "dead"  # who only gave it back may know of a frozen one before
        gone = {
            c.id: dead and not self._store.call_alive(self._run, c.id)
            for c in state.calls.values()
            if c.status is CallStatus.STARTED
        }
        self._journal.record(lost_events(state, self._rules, self._host.clock.now_us(), gone))

    # ---------------------------------------------------------------- the loop

    async def loop(self, slice_s: float) -> Directive:
        """Decide and perform until the run is over, waits, or the slice is used up."""
        host, journal = self._host, self._journal
        ends = host.clock.monotonic_us() + int(slice_s * 1e6) if slice_s else 0
        worked = False  # however short the slice, something is done in it
        while not self._flights.stopping:
            action = await self._considered()
            match action:
                case Append():
                    journal.decide(action.events)
                case InFlight():
                    await self._land()
                case Halt():
                    await journal.flush()
                    await self._flights.halt()
                    self._take_in()
                case Done():
                    await self._flights.halt()  # a probe may still be asked; nobody needs it now
                    if await self._release():
                        return Directive(kind="done", head=journal.head)
                case Wait():
                    if self._flights:
                        await self._land()
                    elif await self._release():
                        return self._waiting(action)
                case AskModel() | StartCalls() | ProbeCall() | RunTask():
                    spent = ends and worked and host.clock.monotonic_us() >= ends
                    over = host.draining or spent
                    if over and not self._flights:
                        if await self._release():
                            return Directive(kind="more", head=journal.head)
                    elif over:
                        await self._land()
                    else:
                        before = journal.state
                        await self._perform(action)
                        worked = worked or journal.state is not before
        return await self.stop()

    async def _considered(self) -> Action:
        """The next action, after a look at what people have said beforehand."""
        while True:
            action = self._next()
            if not self._consent.concerns(action):
                return action
            considered = await self._consent.consider(action, self._crew)
            if considered is not None or self._flights.stopping:
                return considered or Append(events=())

    def _next(self) -> Action:
        """What is to be done now; before anything is, it is said which version does it."""
        while True:
            action = decide(self._journal.state, self._rules_now(), self._journal.tick())
            if not isinstance(action, DOING) or not (self._version_noted() or self._gaps_noted()):
                return action

    def _rules_now(self) -> Rules:
        """The agent's rules, and what budgets were last seen to leave (a hint: appends decide)."""
        room, grants = self._journal.room, self._consent.grants
        if room is None and not grants.known:
            return self._rules
        rules = self._rules if room is None else replace(self._rules, room=room)
        return replace(rules, grants=grants) if grants.known else rules

    def _version_noted(self) -> bool:
        """Say so, if another version has worked on the run until now."""
        state, crew = self._journal.state, self._crew
        if crew is None or state.fingerprint == crew.fingerprint:
            return False
        if state.cancel is not None or state.failing is not None:
            return False  # any version brings it to its end
        if self._begins and state.fingerprint is None:
            return False  # handed over by who did not know its agent, and begun by us
        found = version_change(state, crew, self._host)
        if found is not None:
            self._journal.decide([(0, found)])
        return found is not None

    def _gaps_noted(self) -> bool:
        """Say so, if servers are not there whose tools the run goes on without."""
        servers = self._crew.agent.servers if self._crew is not None else ()
        if not servers:
            return False
        found = [
            (0, ev.ErrorRaised(error_class=ErrorClass.MCP_DISCONNECTED, message=fault, where=where))
            for server in servers
            if not is_known(server)
            and (fault := clean(str(getattr(server, "fault", "")))[:GAP_CHARS])
            and (where := f"mcp:{server.name}") not in self._journal.state.degraded
        ]
        if found:
            self._journal.decide(found)
        return bool(found)

    def _waiting(self, action: Wait) -> Directive:
        kind: Literal["later", "wait"] = "later" if "retry_at" in action.reasons else "wait"
        return Directive(kind=kind, until=action.until, head=self._journal.head)

    async def _release(self) -> bool:
        """Write the rest and give the claim up; False when news made the decision stale."""
        return await self._journal.flush(release=True)

    async def _land(self) -> None:
        """Make durable what is known, then take in what lands next or what others wrote."""
        await self._journal.flush()
        if await self._flights.wait(self._store, self._run, self._journal.head):
            self._take_in()
        else:
            await self._journal.catch_up()

    def _take_in(self) -> None:
        host, journal = self._host, self._journal
        for back in self._flights.landed():
            crew = self._crew
            if crew is None:
                raise UnknownAgent(f"run {self._run} has work in flight and no agent here")
            state = journal.state
            journal.record(events_for(back, state, crew, host.clock.now_us(), host.jitter()))

    async def _perform(self, action: AskModel | StartCalls | ProbeCall | RunTask) -> None:
        crew = self._crew
        if crew is None:
            raise UnknownAgent(f"run {self._run} has work to do and its agent is not known here")
        match action:
            case AskModel():
                await self._ask(action, crew)
            case StartCalls():
                if not await self._calls.start(action, crew):
                    await self._land()
            case ProbeCall():
                if not await self._calls.probe(action.call, crew):
                    await self._land()
            case RunTask():
                self._journal.decide([(action.step, action.event)])
                if await self._journal.flush():
                    work = perform_task(self._journal.state, crew, action, self._host)
                    self._flights.launch("task", work, TASK_S, partial(_cut_short, action))

    # ---------------------------------------------------------------- the model

    async def _ask(self, action: AskModel, crew: Crew) -> None:
        if self._renewed(crew):
            return
        for each in crew.models:  # a fallback without a key would be found out when it is needed
            self._host.check(each)
        await self._requester.ask(action, crew)

    def _renewed(self, crew: Crew) -> bool:
        """Go by what the agent's servers offer now, between turns only; whether that is new."""
        if crew.stock == crew.agent.stock:
            return False
        self._crew = self._host.working(crew.agent.name)
        self._rules = self._crew.rules
        return True

    # ---------------------------------------------------------------- stopping early

    async def fail(self, error: Exception) -> Directive:
        """The runtime itself is at fault: keep what is known, and end the run with it."""
        host, crew = self._host, self._crew
        self._rules = replace(self._rules, ladder=DEFAULT_LADDER)  # lent code: may be at fault
        if crew is not None:
            crew = replace(crew, rules=replace(crew.rules, ladder=DEFAULT_LADDER))
        await self._flights.halt()
        known = self._journal.unwritten()
        for back in self._flights.landed():
            with suppress(BaseException):  # it may be this very outcome that is at fault, however
                if crew is not None:
                    steps = events_for(back, self.state, crew, host.clock.now_us(), 0.0)
                    known += outcomes(steps, self.state)
        try:
            return await self._end(error, [(step, event) for step, event, _ in known])
        except Fenced:
            await self._hand_over(known)
            return Directive(kind="busy")
        except StoreError:
            raise
        except Exception:  # what is known cannot be written: then at least the end
            return await self._end(error, [])

    async def _end(self, error: Exception, known: list[tuple[int, ev.Event]]) -> Directive:
        host, store = self._host, self._store
        state = await load(store, self._run)
        journal = OpenJournal(store, state, self._epoch, host.clock, host.watchers, self._sealed)
        journal.record(known)
        journal.record(lost_events(journal.state, self._rules, host.clock.now_us(), {}))
        if journal.state.end is None:
            message = self._sealed.text(words_of(error))[:500]
            failed = ev.RunFailed(error_class=ErrorClass.INTERNAL, message=clean(message))
            journal.record([(0, failed)])
        await journal.close()
        return Directive(kind="done", head=journal.head)

    async def stop(self) -> Directive:
        """The driver is being stopped: end what is at work, record it, give the run back."""
        await self._flights.halt()
        crew, host, journal = self._crew, self._host, self._journal
        for back in self._flights.landed():
            if crew is None:
                break
            if isinstance(back, ProbeBack) and back.cut:
                continue
            steps = events_for(back, journal.state, crew, host.clock.now_us(), host.jitter())
            if isinstance(back, TaskBack) and back.cut:
                steps = [(back.step, ev.StepLost())]
            journal.record([(step, _interrupted(event)) for step, event in steps])
        await journal.close()
        return Directive(kind="more", head=journal.head)

    async def leave(self) -> None:
        """Somebody else owns the run: stop, and hand over what was finished as late outcomes."""
        await self._flights.halt()
        known: list[Outcome] = []
        try:
            if self._crew is not None:
                state, clock = self._journal.state, self._host.clock
                for back in self._flights.landed():
                    steps = events_for(back, state, self._crew, clock.now_us(), 0.0)
                    known += outcomes(steps, state)
        finally:  # an outcome that cannot be read takes no other one with it
            known += self._journal.unwritten()
            await self._hand_over(known)

    async def _hand_over(self, known: list[Outcome]) -> None:
        late = [each for outcome in known if (each := late_command(outcome)) is not None]
        await deliver(self._store, self._run, late, self._host.clock)


def _cut_short(action: RunTask, reason: Reason) -> TaskBack:
    message = f"the check {action.event.name} was ended before it answered"
    if reason == "timeout":
        message = f"the check {action.event.name} gave no answer within {TASK_S:g} s"
    return TaskBack(step=action.step, ok=False, message=message, cut=reason == "cancelled")


def late_command(outcome: Outcome) -> Late | None:
    """The late outcome that a tool's outcome becomes for somebody who no longer owns the run."""
    event, attempt = outcome.event, outcome.attempt
    if isinstance(event, ev.ToolCompleted):
        return Late(call=event.call, ok=True, result=event.result, attempt=attempt)
    if isinstance(event, ev.ToolFailed):
        return Late(call=event.call, ok=False, message=event.message, attempt=attempt)
    if isinstance(event, ev.ToolLate):
        return Late(
            call=event.call,
            ok=event.ok,
            result=event.result,
            message=event.message,
            attempt=event.attempt,
        )
    return None


def _interrupted(event: ev.Event) -> ev.Event:
    """A cancelled model request, seen as lost: the run is not over, only this driver is."""
    if isinstance(event, ev.ModelFailed) and event.error_class is ErrorClass.CANCELLED:
        return ev.ModelFailed(
            error_class=ErrorClass.STREAM_INTERRUPTED,
            message="the process was stopped before the reply came",
            disposition="retry",
            usage=event.usage,
            latency_us=event.latency_us,
            lost=True,
        )
    return event
