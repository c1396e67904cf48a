"""Plays a run against the core alone, as the shell would: a journal, its state, a given time.

Every event goes through `Laws`, which knows the promises of DESIGN section 1 from the events
alone and raises when one of them is broken. So each test here is a test of all of them.
"""

from typing import Any

import msgspec
from tests.core.laws import Laws

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import Action, Append, AskModel, ProbeCall, RunTask, StartCalls
from cairn.core.decide import decide
from cairn.core.evolve import evolve, fold
from cairn.core.limits import Limits, Usage
from cairn.core.messages import Part, Text, parse_object
from cairn.core.outcomes import (
    Called,
    Fault,
    Reply,
    lost_events,
    model_outcome,
    tool_failed,
    tool_unknown,
)
from cairn.core.policy import Policy
from cairn.core.rules import ModelSpec, Problem, Rules, ToolSpec
from cairn.core.state import Call, RunState
from cairn.errors import ErrorClass

START = 1_800_000_000_000_000
SECOND = 1_000_000
DAY = 24 * 3600 * SECOND
OPEN = Policy(effects={"write": "allow"}, name="test")
"""Writes run unasked; dangerous calls still ask."""
MODEL = ModelSpec(name="m1", max_output=1_000)


def need(*fields: str) -> Any:
    """A check that wants a JSON object with these fields."""

    def check(text: str) -> dict[str, Any] | Problem:
        value = parse_object(text)
        if value is None:
            return Problem(message=f"the arguments are no JSON object: {text[:40]!r}")
        missing = [field for field in fields if field not in value]
        if missing:
            return Problem(message=f"missing: {', '.join(missing)}")
        return value

    return check


def tool(name: str, effect: ev.Effect = "read", **fields: Any) -> ToolSpec:
    """A tool; a read is `repeat` and anything else `once`, unless it says otherwise."""
    fields.setdefault("recovery", "repeat" if effect == "read" else "once")
    fields.setdefault("check", need())
    return ToolSpec(name=name, effect=effect, **fields)


def rules_of(*tools: ToolSpec, **fields: Any) -> Rules:
    """Rules with these tools, one free model, and writes allowed."""
    fields.setdefault("models", (MODEL,))
    fields.setdefault("policy", OPEN)
    return Rules(tools={spec.name: spec for spec in tools}, **fields)


def raw(value: Any) -> msgspec.Raw:
    """A value as a journal holds it."""
    return msgspec.Raw(msgspec.json.encode(value))


Asked = str | tuple[str, Any] | tuple[str, Any, str]


def wanted(asked: Asked) -> Called:
    """A call as an adapter hands it in; arguments may be given as a value or as exact text."""
    if isinstance(asked, str):
        return Called(name=asked)
    name, arguments, *rest = asked
    if not isinstance(arguments, str):
        arguments = msgspec.json.encode(arguments).decode()
    return Called(name=name, arguments=arguments, alias=rest[0] if rest else "")


class Play:
    """One run, driven by hand.

    Attributes:
        journal: All entries so far.
        state: The state after them.
        now: The time, moved on by whoever plays.
    """

    def __init__(
        self,
        rules: Rules | None = None,
        *,
        limits: Limits | None = None,
        lawful: bool = True,
        run: str = "r1",
        **created: Any,
    ) -> None:
        self.rules = rules if rules is not None else rules_of()
        self.journal: list[ev.Entry] = []
        self.now = START
        self.state = RunState(run=run)
        self.laws = Laws() if lawful else None
        created = {"agent": "a", "digest": "d", "input": (Text("Do it."),), **created}
        if limits is not None:
            created["limits"] = limits
        self.add(ev.RunCreated(**created))

    # ---------------------------------------------------------------- the journal

    def add(self, event: ev.Event, step: int = 0, actor: str = "") -> RunState:
        """One more event, at the present time."""
        entry = ev.Entry(
            seq=self.state.seq + 1,
            at=max(self.now, self.state.at),
            event=event,
            step=step,
            actor=actor,
        )
        before, self.state = self.state, evolve(self.state, entry)
        self.journal.append(entry)
        if self.laws is not None:
            self.laws.see(entry, before, self.state, self.rules)
        return self.state

    def submit(self, command: cmd.Command) -> ev.Event | None:
        """A command from outside, as a store takes it; the event it became."""
        event = cmd.accept(self.state, command, self.now)
        if event is not None:
            step = self.state.step + 1 if isinstance(command, cmd.TakeTurn) else 0
            self.add(event, step, actor=getattr(command, "by", "") or "p1")
        return event

    @property
    def events(self) -> list[ev.Event]:
        return [entry.event for entry in self.journal]

    @property
    def names(self) -> list[str]:
        return [entry.event.NAME for entry in self.journal]

    def last(self, kind: type[Any]) -> Any:
        """The last event of this kind."""
        return next(e for e in reversed(self.events) if isinstance(e, kind))

    def count(self, kind: type[Any]) -> int:
        return sum(isinstance(e, kind) for e in self.events)

    def started(self, call: str | None = None) -> list[str]:
        """Calls in the order they were started, each attempt anew."""
        found = [e.call for e in self.events if isinstance(e, ev.ToolStarted)]
        return [c for c in found if call in (None, c)]

    # ---------------------------------------------------------------- deciding

    def decide(self) -> Action:
        return decide(self.state, self.rules, self.now)

    def settle(self) -> Action:
        """Record all decisions that need nothing from outside; the first action that does."""
        for _ in range(200):
            action = self.decide()
            if not isinstance(action, Append):
                return action
            for step, event in action.events:
                self.add(event, step)
        raise AssertionError(f"decides for ever: {self.names[-8:]}")

    def start(self) -> list[str]:
        """Settle, then journal what is to be started; the calls that were."""
        action = self.settle()
        if not isinstance(action, StartCalls):
            return []
        for step, event in action.starts:
            self.add(event, step)
        return [event.call for _, event in action.starts]

    def step(self) -> Action:
        """Settle, then journal the intent of the next action, if it has one."""
        action = self.settle()
        match action:
            case AskModel():
                self.ask(action)
            case StartCalls():
                for step, event in action.starts:
                    self.add(event, step)
            case RunTask():
                self.add(action.event, action.step)
            case _:
                pass
        return action

    # ---------------------------------------------------------------- the model

    def ask(self, action: Action | None = None) -> AskModel:
        """Settle and make the model request that is due."""
        action = action or self.settle()
        assert isinstance(action, AskModel), f"no request is due, but {action}"
        event = ev.ModelRequested(
            model=action.model,
            reserved=action.reserved,
            attempt=action.attempt,
            messages=len(self.state.messages),
            view=action.view,
            purpose=action.purpose,
            cut=action.cut,
            fallback=action.fallback,
        )
        self.add(event, action.step)
        return action

    def outcome(self, outcome: Reply | Fault, latency_us: int = 1_000) -> ev.Event:
        """What came of the open request."""
        event = model_outcome(self.state, self.rules, outcome, self.now, latency_us, 0.5)
        self.add(event, self.state.step)
        return event

    def says(self, text: str = "", *calls: Asked, **fields: Any) -> ev.Event:
        """Ask, and take this reply in."""
        self.ask()
        parts: tuple[Part, ...] = (Text(text),) if text else ()
        return self.outcome(Reply(parts=parts, calls=tuple(map(wanted, calls)), **fields))

    def calls(self, *calls: Asked, **fields: Any) -> list[str]:
        """Ask, take in a reply with these calls, and start what may start."""
        self.says("", *calls, **fields)
        return self.start()

    def fails(self, error_class: ErrorClass, message: str = "no", **fields: Any) -> Any:
        """Ask, and let the request fail."""
        self.ask()
        return self.outcome(Fault(error_class=error_class, message=message, **fields))

    # ---------------------------------------------------------------- tools

    def returns(self, call: str, value: Any = "ok", **fields: Any) -> None:
        """The tool returned."""
        event = ev.ToolCompleted(call=call, result=raw(value), **fields)
        self.add(event, self.state.calls[call].step)

    def raises(
        self,
        call: str,
        error_class: ErrorClass = ErrorClass.TOOL_ERROR,
        message: str = "no",
        *,
        not_done: bool = False,
    ) -> Any:
        """The tool raised a known error."""
        event = tool_failed(
            self.state,
            self.rules,
            self.state.calls[call],
            error_class=error_class,
            message=message,
            not_done=not_done,
            now=self.now,
            duration_us=1_000,
            jitter=0.5,
        )
        if self.laws is not None:
            self.laws.known(call, not_done=not_done)
        self.add(event, self.state.calls[call].step)
        return event

    def vanishes(self, call: str, reason: str = "timeout", *, gone: bool = False) -> None:
        """Nobody knows what came of it."""
        found = self.state.calls[call]
        spec = self.rules.tools.get(found.tool)
        self.add(tool_unknown(found, spec, reason=reason, now=self.now, gone=gone), found.step)

    def probe(self, verdict: Any, result: Any = None) -> str:
        """Settle, and answer the probe that is due; the call it was about."""
        action = self.settle()
        assert isinstance(action, ProbeCall), f"no probe is due, but {action}"
        call = self.state.calls[action.call]
        given = raw(result) if result is not None else ev.EMPTY
        event = ev.ToolResolved(call=call.id, verdict=verdict, by="probe", result=given)
        self.add(event, call.step)
        return call.id

    def one_turn(self, name: str, arguments: Any, result: Any = "ok") -> None:
        """A turn of one call that runs unasked and returns."""
        for call in self.calls((name, arguments)):
            self.returns(call, result)

    # ---------------------------------------------------------------- tasks

    def accepts(self) -> None:
        """The check that runs has accepted the answer."""
        assert self.state.task is not None
        self.add(ev.StepCompleted(duration_us=1_000), self.state.task.step)

    def refuses(self, message: str, duration_us: int = 1_000) -> None:
        """The check that runs has refused the answer; the last time in a row ends the run."""
        task = self.state.task
        assert task is not None
        last = self.state.repairs.get(f"step:{task.name}", 0) >= self.rules.repairs
        event = ev.StepFailed(
            error_class=ErrorClass.MALFORMED_OUTPUT,
            message=message,
            disposition="end" if last else "repair",
            duration_us=duration_us,
        )
        self.add(event, task.step)

    # ---------------------------------------------------------------- misfortune

    def crash(self, *, gone: bool = True) -> None:
        """The process dies; the next owner says what came of what was in flight."""
        dead = dict.fromkeys(self.state.calls, gone)
        for step, event in lost_events(self.state, self.rules, self.now, dead):
            self.add(event, step)

    def refold(self) -> RunState:
        """The state folded from the journal alone."""
        return fold(RunState(run=self.state.run), self.journal)

    def call(self, call: str) -> Call:
        return self.state.calls[call]


def used(tokens: int = 10, **fields: Any) -> Usage:
    """Usage of this many input tokens."""
    return Usage(input_tokens=tokens, **fields)
