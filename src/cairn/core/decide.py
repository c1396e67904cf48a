"""`decide(state, rules, now)`: the next action. The heart of the house.

It is a total function of values. A run that was killed, paused or waited a week is not a special
case: the same journal gives the same next action, so resuming is stepping.
"""

from __future__ import annotations

import re
from typing import Literal

from cairn.core import events as ev
from cairn.core.actions import (
    Action,
    Append,
    AskModel,
    Done,
    Halt,
    InFlight,
    RunTask,
    Wait,
    append,
)
from cairn.core.budgets import Rest
from cairn.core.decide_calls import next_for_calls
from cairn.core.guard import BLOCK, HINT, STOP
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits, Reservation, reserve
from cairn.core.rules import ModelSpec, Rules
from cairn.core.state import End, RunState, persons_turn
from cairn.errors import ErrorClass

CITATION = re.compile(r"\[s(\d{1,9})\]")
HINT_NOTE = (
    "[runtime] The last turns brought nothing new. Use what you have, try another way, "
    "or give your final answer."
)
BLOCK_NOTE = (
    "[runtime] Still nothing new. Calls that were already made with the same arguments "
    "are refused from now on. Give your final answer, or say what is missing."
)
LOOP_QUESTION = "No progress for several turns. What should the agent do?"


def decide(state: RunState, rules: Rules, now: int) -> Action:
    """What is to be done next, given the state, the rules and the time."""
    if state.end is not None:
        return Done(status=state.end.status)
    if state.cancel is not None:
        return Halt() if state.in_flight else append(ev.RunCancelled(reason=state.cancel))
    if state.paused:
        return InFlight() if state.in_flight else Wait(reasons=frozenset({"paused"}))
    if state.failing is not None:
        return InFlight() if state.in_flight else append(_ending(state.failing))
    if state.request is not None:
        return InFlight()
    if state.calls:
        return next_for_calls(state, rules, now)
    if state.task is not None:
        return _task(state, rules)
    if persons_turn(state):
        return Wait(reasons=frozenset({"takeover"}))
    if state.errors_in_row >= state.limits.errors_in_row:
        return _limit("errors_in_row", state.limits.errors_in_row, state.errors_in_row)
    if state.retry_at > now and not state.taken:
        return Wait(reasons=frozenset({"retry_at"}), until=state.retry_at)
    if state.question:
        return Wait(reasons=frozenset({"input"}))
    if state.queued:
        return append(ev.InputGiven(seqs=tuple(state.queued)))
    if state.answer:
        return _finish(state, rules)
    return _next_turn(state, rules)


def _ending(end: End) -> ev.Event:
    if end.status is Status.STOPPED:
        return ev.RunStopped(limit=end.limit, message=end.message)
    return ev.RunFailed(error_class=end.error_class or ErrorClass.INTERNAL, message=end.message)


def _limit(name: str, bound: int, value: int) -> Append:
    return append(ev.LimitReached(limit=name, bound=bound, value=value))


# ---------------------------------------------------------------- tasks


def _task(state: RunState, rules: Rules) -> Action:
    task = state.task
    if task is None or not task.lost:
        return InFlight()
    if task.recovery == "once":
        return append(
            ev.RunFailed(
                error_class=ErrorClass.IN_DOUBT,
                message=f"the process died inside task {task.name}, which must run only once",
            )
        )
    tries = {"in_doubt:retry": task.attempt - 1}
    rung = rules.ladder.choose(ErrorClass.IN_DOUBT, tries, frozenset({"retry", "end"}))
    if rung.disposition == "end":
        return append(
            ev.RunFailed(
                error_class=ErrorClass.IN_DOUBT,
                message=f"the process died {task.attempt} times inside task {task.name}",
            )
        )
    return RunTask(
        step=task.step,
        event=ev.StepStarted(name=task.name, recovery=task.recovery, attempt=task.attempt + 1),
    )


# ---------------------------------------------------------------- the end


def _finish(state: RunState, rules: Rules) -> Action:
    problem = _citation_problem(state)
    if not problem and rules.check_answer is not None:
        problem = rules.check_answer(state.answer_text)
    if problem:
        last = state.repairs.get("answer", 0) >= rules.repairs
        return append(
            ev.ModelRejected(
                error_class=ErrorClass.MALFORMED_OUTPUT,
                disposition="end" if last else "repair",
                note=f"[runtime] Your answer was not accepted: {problem}",
            )
        )
    for name in rules.checks:
        if name in state.checked:
            continue
        if state.spent.steps >= state.limits.steps:
            return _limit("steps", state.limits.steps, state.spent.steps)
        return RunTask(step=state.step + 1, event=ev.StepStarted(name=name))
    return append(ev.RunCompleted(answer=state.answer, degraded=state.degraded))


def _citation_problem(state: RunState) -> str:
    unknown = sorted(
        {n for n in map(int, CITATION.findall(state.answer_text)) if not 1 <= n <= state.sources}
    )
    if not unknown:
        return ""
    named = ", ".join(f"[s{n}]" for n in unknown)
    known = f"the sources are [s1] to [s{state.sources}]" if state.sources else "there are none"
    return f"it cites {named}, but {known}. Cite only sources you were given."


# ---------------------------------------------------------------- the next turn


def _next_turn(state: RunState, rules: Rules) -> Action:
    limits, spent = state.limits, state.spent
    if not state.attempts:
        if state.excess:
            return _limit(state.excess, *_bound(state, state.excess))
        if spent.steps >= limits.steps:
            return _limit("steps", limits.steps, spent.steps)
        warned = _progress(state)
        if warned is not None:
            return warned
    if spent.running_us >= limits.running_s * 1_000_000:
        return _limit("running_s", limits.running_s, spent.running_us // 1_000_000)
    spec = rules.models[min(state.model, len(rules.models) - 1)]
    tokens_left, tokens_of = _left(state, rules, "tokens")
    micro_usd_left, micro_usd_of = _left(state, rules, "micro_usd")
    room = reserve(
        input_tokens=state.tokens + rules.overhead_tokens,
        max_output=spec.max_output,
        price=spec.price,
        tokens_left=tokens_left,
        micro_usd_left=micro_usd_left,
    )
    if isinstance(room, str):
        budget = tokens_of if room == "tokens" else micro_usd_of
        return _limit(room, *_bound(state, room)) if budget is None else _used_up(budget)
    return _ask(state, rules, spec, room)


def _left(
    state: RunState, rules: Rules, name: Literal["tokens", "micro_usd"]
) -> tuple[int, Rest | None]:
    """What may still be reserved, and the budget that says so, None for the run's own limit."""
    bound, used = _bound(state, name)
    rest: Rest | None = getattr(rules.room, name) if rules.room is not None else None
    return (bound - used, None) if rest is None or rest.left >= bound - used else (rest.left, rest)


def _used_up(rest: Rest) -> Append:
    return append(
        ev.LimitReached(
            limit=f"budget:{rest.budget}", bound=rest.bound, value=rest.used, message=rest.message
        )
    )


def _ask(state: RunState, rules: Rules, spec: ModelSpec, room: Reservation) -> AskModel:
    again = state.attempts > 0
    by_action = bool(rules.offered) and not spec.takes_tools
    return AskModel(
        step=state.step if again else state.step + 1,
        attempt=state.attempts + 1,
        model=spec.name,
        reserved=room,
        tool_choice=_tool_choice(state, rules),
        output_mode="action" if by_action else rules.output_mode,
    )


def _tool_choice(state: RunState, rules: Rules) -> str:
    """What was asked for, until the first call: forced on, a model could never come to an end."""
    wanted = rules.tool_choice
    if wanted == "auto" or not rules.offered or state.last_call:
        return "auto"
    spec = rules.tools.get(wanted)
    reads_only = state.created is not None and state.created.kind == "query"
    if spec is not None and reads_only and spec.effect != "read":
        return "auto"
    return wanted


def _bound(state: RunState, name: str) -> tuple[int, int]:
    limits: Limits = state.limits
    values = {
        "tokens": (limits.tokens, state.usage.tokens),
        "micro_usd": (limits.micro_usd, state.usage.micro_usd),
        "calls": (limits.calls, state.spent.calls),
        "running_s": (limits.running_s, state.spent.running_us // 1_000_000),
    }
    return values[name]


def _progress(state: RunState) -> Action | None:
    over = state.guard.stale - state.limits.no_progress
    if over >= STOP:
        created = state.created
        if created is not None and created.on_loop == "ask" and created.approvals == "ask":
            return append(ev.InputRequested(n=state.requests + 1, question=LOOP_QUESTION))
        return _limit("no_progress", state.limits.no_progress, state.guard.stale)
    if over == BLOCK and state.guard.rung < BLOCK:
        return append(ev.LimitWarned(limit="no_progress", level="block", note=BLOCK_NOTE))
    if over == HINT and state.guard.rung < HINT:
        return append(ev.LimitWarned(limit="no_progress", level="hint", note=HINT_NOTE))
    return None
