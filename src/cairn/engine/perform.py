"""The only code that calls a model, a tool, a probe or a task. One function for each.

Nothing in here touches the journal: it takes what was decided and gives back, bare, what came.
"""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from cairn.agent import Answer, Crew
from cairn.core.actions import RunTask
from cairn.core.context import system_text
from cairn.core.outcomes import Fault, Reply
from cairn.core.state import Call, RunState
from cairn.engine.backs import ModelBack, ProbeBack, TaskBack, ToolBack
from cairn.engine.host import Host
from cairn.errors import ErrorClass, ModelError
from cairn.ports import Clock, Delta, Discard, ModelRequest
from cairn.tools.context import Context
from cairn.tools.outcome import classify
from cairn.tools.runner import Running
from cairn.tools.verdicts import Happened, NotHappened, verdict_of


async def perform_model(state: RunState, crew: Crew, host: Host) -> ModelBack:
    """Make the request that the state says is open."""
    requested = state.request
    assert requested is not None  # noqa: S101 - only called for an open request
    index = min(state.model, len(crew.models) - 1)
    spec = crew.rules.models[index]
    request = ModelRequest(
        system=system_text(state),
        messages=state.messages,
        tools=_offered(state, crew),
        tool_choice=requested.tool_choice,
        output_mode=requested.output_mode,
        output_schema=crew.output.schema if crew.output is not None else None,
        max_output=requested.reserved.output_tokens,
        timeout_s=spec.timeout_us / 1e6,
        turn=state.replies,
        run=state.run,
        step=state.step,
        attempt=requested.attempt,
    )
    shown = False

    def on_delta(text: str) -> None:
        nonlocal shown
        shown = True
        host.watchers.observe(
            state.run,
            Delta(run=state.run, step=state.step, attempt=requested.attempt, text=text),
        )

    watched = host.watchers.watched(state.run)
    begun = host.clock.monotonic_us()
    outcome = await _request(crew.models[index], request, on_delta if watched else None)
    if shown and isinstance(outcome, Fault):
        host.watchers.observe(
            state.run, Discard(run=state.run, step=state.step, attempt=requested.attempt)
        )
    return ModelBack(outcome=outcome, latency_us=host.clock.monotonic_us() - begun)


async def _request(model: Any, request: ModelRequest, on_delta: Any) -> Reply | Fault:
    try:
        async with asyncio.timeout(request.timeout_s):
            reply = await model.request(request, on_delta)
    except ModelError as error:
        return Fault(
            error_class=error.error_class,
            message=str(error),
            retry_after_us=int((error.retry_after_s or 0) * 1e6),
            request_id=error.request_id,
        )
    except TimeoutError:
        return Fault(
            error_class=ErrorClass.TIMEOUT, message=f"no reply within {request.timeout_s:g} s"
        )
    except asyncio.CancelledError:
        return Fault(error_class=ErrorClass.CANCELLED, message="cancelled while waiting")
    except Exception as error:  # an adapter's own fault is the run's, not the process's
        return Fault(
            error_class=ErrorClass.INTERNAL,
            message=f"the model adapter failed: {type(error).__name__}: {error}",
        )
    return Reply(
        parts=reply.parts,
        calls=tuple((c.name, c.arguments, c.id) for c in reply.calls),
        finish=reply.finish,
        usage=reply.usage,
        request_id=reply.request_id,
        first_token_us=reply.first_token_us,
    )


def _offered(state: RunState, crew: Crew) -> Any:
    if state.created is None or state.created.kind != "query":
        return crew.schemas
    reads = {name for name, spec in crew.rules.tools.items() if spec.effect == "read"}
    return tuple(schema for schema in crew.schemas if schema.name in reads)


# ---------------------------------------------------------------- tools


async def perform_tool(
    running: Running, call: Call, context: Context[Any], clock: Clock
) -> ToolBack:
    """Wait for a started tool, at most until its deadline."""
    begun = clock.monotonic_us()
    try:
        finished = await running.outcome(context.timeout_s)
    except asyncio.CancelledError:
        return ToolBack(
            call=call.id,
            kind="unknown",
            reason="cancelled",
            message="cancelled while it was at work",
            duration_us=clock.monotonic_us() - begun,
        )
    duration_us = clock.monotonic_us() - begun
    if finished is None:
        return ToolBack(
            call=call.id,
            kind="unknown",
            reason="timeout",
            message=f"no result within {context.timeout_s:g} s",
            duration_us=duration_us,
        )
    if finished.ok:
        return ToolBack(
            call=call.id,
            kind="returned",
            value=finished.value,
            facts=tuple(context.facts),
            duration_us=duration_us,
        )
    return raised(call, finished.value, duration_us)


def raised(call: Call, error: BaseException, duration_us: int) -> ToolBack:
    """What an exception says of a call."""
    found = classify(error, call.effect)
    if found.kind == "unsure":
        return ToolBack(
            call=call.id,
            kind="unknown",
            reason="unsure",
            message=found.message,
            duration_us=duration_us,
        )
    not_done = found.kind == "not_done"
    unavailable = not_done and found.error_class is ErrorClass.TOOL_ERROR
    return ToolBack(
        call=call.id,
        kind="failed",
        error_class=ErrorClass.TOOL_UNAVAILABLE if unavailable else found.error_class,
        message=found.message,
        not_done=not_done,
        duration_us=duration_us,
    )


async def perform_probe(running: Running, call: Call, timeout_s: float) -> ProbeBack:
    """Wait for what a tool's probe says of a call whose effect is unknown."""
    try:
        finished = await running.outcome(timeout_s)
    except asyncio.CancelledError:
        return ProbeBack(call=call.id, verdict="unknown", message="the probe was cancelled")
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


async def perform_task(state: RunState, crew: Crew, action: RunTask, clock: Clock) -> TaskBack:
    """Run a completion check on the answer."""
    begun = clock.monotonic_us()
    answer = Answer(run=state.run, text=state.answer_text)
    if crew.output is not None:
        answer = Answer(
            run=state.run, text=answer.text, output=crew.output.parse(state.answer_text)
        )
    name = action.event.name
    try:
        said = crew.agent.checks[name](answer)
        if inspect.isawaitable(said):
            said = await said
    except asyncio.CancelledError:
        said = "the check was cancelled"
    except Exception as error:  # a check that fails has not accepted the answer
        said = f"the check {name} failed: {type(error).__name__}: {error}"
    duration_us = clock.monotonic_us() - begun
    ok = said is None or said is True or said == ""
    message = said if isinstance(said, str) else f"the check {name} refused it"
    return TaskBack(step=action.step, ok=ok, message="" if ok else message, duration_us=duration_us)
