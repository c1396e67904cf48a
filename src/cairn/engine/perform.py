"""The only code that calls a model, a tool, a probe or a task. One function for each.

Nothing in here touches the journal: it takes what was decided and gives back, bare, what came.
"""

from __future__ import annotations

from collections.abc import Callable
from math import ceil
from typing import Any

import msgspec

from cairn.agent import Answer
from cairn.core import events as ev
from cairn.core.actions import RunTask
from cairn.core.compaction import instructions, to_summarise
from cairn.core.context import messages_of, system_text
from cairn.core.holdback import HoldBack
from cairn.core.intake import CLASSIFY, to_classify
from cairn.core.limits import Usage
from cairn.core.messages import Part, Reasoning, Text, clean, user
from cairn.core.outcomes import Called, Fault, Reply
from cairn.core.quoting import RAISED
from cairn.core.rules import FIND, SEARCH, Rules
from cairn.core.state import Call, RunState
from cairn.core.view import WHOLE, View
from cairn.crew import Crew
from cairn.engine import keys
from cairn.engine.backs import ModelBack, ProbeBack, TaskBack, ToolBack
from cairn.engine.flights import Flights, Reason
from cairn.engine.host import Host
from cairn.errors import ErrorClass, ModelError, said_by, words_of
from cairn.governance.secrets import Sealed
from cairn.ports import (
    Clock,
    Delta,
    Discard,
    Model,
    ModelReply,
    ModelRequest,
    Permit,
    ToolSchema,
)
from cairn.tools.blocking import called, contained
from cairn.tools.context import Context
from cairn.tools.outcome import classify
from cairn.tools.runner import Finish, Finished, Running, start
from cairn.tools.tool import Tool
from cairn.tools.verdicts import Happened, NotHappened, verdict_of

replace = msgspec.structs.replace
MOST_USED = 2**53 - 1
"""Of tokens, or of millionths of a dollar, in one request: what every reader of JSON can hold."""


def model_for(state: RunState, crew: Crew, purpose: str) -> tuple[Model, float]:
    """The model whose turn it is, and how many seconds a request to it may take."""
    if purpose != "turn":
        asides = {
            "summary": (crew.summary, crew.rules.summary),
            "classify": (crew.classifier, crew.rules.intake.model),
        }
        model, spec = asides.get(purpose, (None, None))
        if model is not None and spec is not None:
            return model, spec.timeout_us / 1e6
    index = min(state.model, len(crew.models) - 1)
    return crew.models[index], crew.rules.models[index].timeout_us / 1e6


class ModelCall:
    """One request that the state says is open, ready to be made.

    It owns the permit it is given, and closes it however it ends.
    """

    __slots__ = (
        "_begun",
        "_clock",
        "_crew",
        "_holdback",
        "_known",
        "_model",
        "_permit",
        "_request",
        "_reserved",
        "_sealed",
        "_shown",
        "_shows",
        "_state",
        "_threads",
        "_watchers",
        "timeout_s",
    )

    def __init__(
        self,
        state: RunState,
        crew: Crew,
        host: Host,
        sealed: Sealed,
        tools: tuple[ToolSchema, ...] = (),
        permit: Permit | None = None,
    ) -> None:
        requested = state.request
        assert requested is not None  # noqa: S101 - only made for an open request
        self._model, self.timeout_s = model_for(state, crew, requested.purpose)
        self._permit = permit
        self._state = state
        self._crew = crew
        self._sealed = sealed
        self._threads = host.threads
        self._known: ModelBack | None = None
        self._clock = host.clock
        self._watchers = host.watchers
        self._shows = requested.purpose == "turn"
        self._shown = False
        self._holdback = HoldBack(sealed)
        self._begun = host.clock.monotonic_us()
        self._reserved = Usage(
            input_tokens=requested.reserved.input_tokens,
            output_tokens=requested.reserved.output_tokens,
            micro_usd=requested.reserved.micro_usd,
        )
        self._request = request_of(state, crew, requested, self.timeout_s, tools)

    async def make(self) -> ModelBack:
        """Make it; what the other side does wrong comes back as a fault."""
        watched = self._shows and self._watchers.watched(self._request.run)
        try:
            reply = await contained(f"the model {self._model.name}", self._asked(watched=watched))
            outcome = _reply(reply)
        except ModelError as error:
            return self._failed(self._fault_of(error))
        except TimeoutError as error:
            return self._failed(
                Fault(error_class=ErrorClass.TIMEOUT, message=said_by(error) or "timed out")
            )
        except Exception as error:  # an adapter's own fault is the run's, not the process's
            said = f"the model adapter failed: {words_of(error)}"
            return self._failed(Fault(error_class=ErrorClass.INTERNAL, message=said))
        if self._permit is not None:
            self._permit.close(tokens=outcome.usage.tokens if outcome.usage is not None else 0)
        self._show(self._holdback.rest())
        back = ModelBack(
            outcome=outcome,
            latency_us=self._clock.monotonic_us() - self._begun,
            discard=self._discard,
        )
        rules = self._crew.rules
        places = keys.asked(self._state, rules, outcome) if self._shows else ()
        if not places:
            return back
        self._known = replace(back, outcome=keys.without_keys(outcome, places))
        outcome = await keys.with_keys(outcome, places, rules, self._sealed, self._threads)
        return replace(back, outcome=outcome)

    async def _asked(self, *, watched: bool) -> ModelReply:
        return await self._model.request(self._request, self._on_delta if watched else None)

    def _fault_of(self, error: ModelError) -> Fault:
        """What an adapter says of a fault; where that is no sense, the adapter is at fault."""
        try:
            return Fault(
                error_class=ErrorClass(error.error_class),
                message=said_by(error),
                retry_after_us=ceil((error.retry_after_s or 0) * 1e6),
                request_id=clean(error.request_id),
                status=int(error.status or 0),
                usage=self._used(error.usage),
            )
        except Exception as wrong:  # of a wrong type, or endless
            said = f"the model adapter's ModelError cannot be read: {words_of(wrong)}"
            if said_by(error):
                said += f"; it says: {said_by(error)}"
            return Fault(error_class=ErrorClass.INTERNAL, message=said)

    def _used(self, usage: object) -> Usage | None:
        """What a fault says it used; all that was reserved where that cannot be."""
        return None if usage is None else counted(usage) or self._reserved

    def stopped(self, reason: Reason) -> ModelBack:
        """What is recorded when it was ended early; a reply that has come is not lost."""
        if self._known is not None:
            return self._known
        if reason == "cancelled":
            fault = Fault(error_class=ErrorClass.CANCELLED, message="cancelled while waiting")
        else:
            said = f"no reply within {self.timeout_s:g} s"
            fault = Fault(error_class=ErrorClass.TIMEOUT, message=said)
        return self._failed(fault)

    def _failed(self, fault: Fault) -> ModelBack:
        if self._permit is not None:
            asked_s = fault.retry_after_us / 1e6
            self._permit.close(fault.error_class, retry_after_s=asked_s)
        self._discard()
        return ModelBack(outcome=fault, latency_us=self._clock.monotonic_us() - self._begun)

    def _discard(self) -> None:
        """What was shown of this attempt is void, if anything was."""
        request = self._request
        if self._shown:
            void = Discard(run=request.run, step=request.step, attempt=request.attempt)
            self._watchers.observe(request.run, void)

    def _on_delta(self, text: str) -> None:
        self._show(self._holdback.take(text))

    def _show(self, text: str) -> None:
        if not text:
            return
        request = self._request
        self._shown = True
        delta = Delta(run=request.run, step=request.step, attempt=request.attempt, text=text)
        self._watchers.observe(request.run, delta)


def request_of(
    state: RunState,
    crew: Crew,
    requested: ev.ModelRequested,
    timeout_s: float,
    tools: tuple[ToolSchema, ...],
) -> ModelRequest:
    """What is sent for a request that the state says is open."""
    common: dict[str, Any] = {
        "max_output": requested.reserved.output_tokens,
        "timeout_s": timeout_s,
        "run": state.run,
        "step": state.step,
        "attempt": requested.attempt,
    }
    if requested.purpose != "turn":
        summary = requested.purpose == "summary"
        shown = to_summarise(state, requested.cut) if summary else to_classify(state)
        return ModelRequest(
            system=instructions(state, crew.rules) if summary else CLASSIFY,
            messages=[user(shown)],
            turn=state.summary_tries,
            **common,
        )
    return ModelRequest(
        system=system_text(state),
        messages=messages_of(state),
        tools=tools,
        tool_choice=requested.tool_choice,
        output_mode=requested.output_mode,
        output_schema=crew.output.schema if crew.output is not None else None,
        turn=state.replies,
        **common,
    )


def _reply(reply: ModelReply) -> Reply:
    return Reply(
        parts=tuple(map(_storable, reply.parts)),
        calls=tuple(
            Called(
                name=c.name,
                arguments=c.arguments,
                alias=clean(c.id),
                opaque=clean(c.opaque),
                place=c.place,
            )
            for c in reply.calls
        ),
        finish=clean(reply.finish),
        usage=counted(reply.usage),
        request_id=clean(reply.request_id),
        first_token_us=reply.first_token_us,
        model=reply.model,
    )


def counted(usage: object) -> Usage | None:
    """Usage that can be: whole numbers of at least 0. Else nobody knows what was used.

    What is not known is charged at its reservation, so a nonsense count makes nothing cheaper.
    """
    if not isinstance(usage, Usage):
        return None
    buckets = msgspec.structs.astuple(usage)
    whole = set(map(type, buckets)) == {int}
    return usage if whole and min(buckets) >= 0 and max(buckets) <= MOST_USED else None


def _storable(part: Part) -> Part:
    if isinstance(part, Text | Reasoning) and part.opaque:
        return replace(part, opaque=clean(part.opaque))
    return part


def offered(state: RunState, crew: Crew, view: View) -> tuple[ToolSchema, ...]:
    """The tools a request offers, before hooks have had their say."""
    rules = crew.rules
    return tuple(schema for schema in crew.schemas if _is_offered(state, rules, schema.name, view))


def _is_offered(state: RunState, rules: Rules, name: str, view: View) -> bool:
    if name == SEARCH and view == WHOLE:  # there is nothing yet that it would have to look for
        return False
    if name == FIND and not rules.catalogue:
        return False
    if name in rules.catalogue and name not in state.offered:
        return False
    return state.kind != "query" or rules.tools[name].effect == "read"


# ---------------------------------------------------------------- tools


class ToolFlight:
    """A tool at work for a call, from its start to what is recorded of it."""

    __slots__ = ("_begun", "_call", "_clock", "_context", "_flights", "_on_late", "_reason", "_run")

    def __init__(
        self,
        call: Call,
        context: Context[Any],
        flights: Flights,
        clock: Clock,
        on_late: Callable[[bool, Any], None],
    ) -> None:
        self._call = call
        self._context = context
        self._flights = flights
        self._clock = clock
        self._on_late = on_late
        self._reason: Reason | None = None
        self._begun = clock.monotonic_us()
        self._run: Running | None = None

    def start(
        self, tool: Tool[..., Any], arguments: dict[str, Any], finish: Finish, host: Host
    ) -> None:
        """Set it to work; its intent is durable and, for a sync tool, its thread is held."""
        timeout_s = tool.spec.timeout_us / 1e6
        self._flights.add(self._call.id, self, timeout_s)
        self._run = start(
            tool.body,
            arguments,
            self._context,
            on_done=self._done,
            finish=finish,
            slots=host.slots,
            threads=host.threads,
        )

    def cancel(self, reason: Reason) -> None:
        """Stop it. An async tool may clean up first; a thread cannot be stopped, only left."""
        self._reason = reason
        if self._run is not None:
            self._run.abandon()
            if not self._run.is_async:
                self._flights.land(self._call.id, self.overdue(), self)

    def overdue(self) -> ToolBack:
        """What is recorded when it gave no outcome in time."""
        reason = self._reason or "timeout"
        said = "cancelled while it was at work"
        if reason == "timeout":
            said = f"no result within {self._context.timeout_s:g} s"
        return ToolBack(
            call=self._call.id,
            attempt=self._call.attempt,
            kind="unknown",
            reason=reason,
            message=said,
            duration_us=self._clock.monotonic_us() - self._begun,
        )

    def _done(self, finished: Finished | None) -> None:
        self._run = None  # it knows us: what has landed must not wait for the garbage collector
        if self._reason is not None or finished is None:
            self._flights.land(self._call.id, self.overdue(), self)
            if finished is not None:
                self._on_late(finished.ok, finished.value)
            return
        duration_us = self._clock.monotonic_us() - self._begun
        if finished.ok:
            back = ToolBack(
                call=self._call.id,
                attempt=self._call.attempt,
                kind="returned",
                value=finished.value,
                facts=tuple(self._context.facts),
                duration_us=duration_us,
            )
        else:
            back = raised(self._call, finished.value, duration_us)
        self._flights.land(self._call.id, back, self)


def raised(call: Call, error: BaseException, duration_us: int) -> ToolBack:
    """What an exception says of a call."""
    found = classify(error, call.effect)
    if found.kind == "unsure":
        return ToolBack(
            call=call.id,
            attempt=call.attempt,
            kind="unknown",
            reason="unsure",
            message=found.message,
            duration_us=duration_us,
        )
    not_done = found.kind == "not_done"
    unavailable = not_done and found.error_class is ErrorClass.TOOL_ERROR
    return ToolBack(
        call=call.id,
        attempt=call.attempt,
        kind="failed",
        error_class=ErrorClass.TOOL_UNAVAILABLE if unavailable else found.error_class,
        message=found.message,
        not_done=not_done,
        duration_us=duration_us,
    )


async def perform_probe(running: Running, call: Call) -> ProbeBack:
    """Wait for what a tool's probe says of a call whose effect is unknown."""
    finished = await running.outcome(None)
    if finished is None:
        return ProbeBack(call=call.id, verdict="unknown", message="the probe gave no answer")
    if not finished.ok:
        message = f"the probe failed: {classify(finished.value, call.effect).message}"
        return ProbeBack(call=call.id, verdict="unknown", message=message)
    answer = verdict_of(finished.value)
    if isinstance(answer, Happened):
        return ProbeBack(call=call.id, verdict="happened", value=answer.result)
    if isinstance(answer, NotHappened):
        return ProbeBack(call=call.id, verdict="not_happened")
    return ProbeBack(call=call.id, verdict="unknown", message="the probe could not tell")


# ---------------------------------------------------------------- tasks


async def perform_task(state: RunState, crew: Crew, action: RunTask, host: Host) -> TaskBack:
    """Run a completion check on the answer."""
    begun = host.clock.monotonic_us()
    name = action.event.name
    try:
        output = None
        if crew.output is not None:
            output = await crew.output.value_of(state.answer_text, host.threads)
        answer = Answer(run=state.run, text=state.answer_text, output=output)
        check = crew.agent.checks[name]
        said = await called(f"the check {name}", check, answer, threads=host.threads)
    except Exception as error:  # a check that fails has not accepted the answer
        said = RAISED.format(name=name) + words_of(error)
    duration_us = host.clock.monotonic_us() - begun
    ok = said is None or said is True or said == ""
    message = said if isinstance(said, str) else f"the check {name} refused it"
    return TaskBack(step=action.step, ok=ok, message="" if ok else message, duration_us=duration_us)
