"""`decide(state, rules, now)`: the next action. The heart of the house.

It is a total function of values. A run that was killed, paused or waited a week is not a special
case: the same journal gives the same next action, so resuming is stepping.
"""

from __future__ import annotations

import re
from typing import Any, Literal

import msgspec

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
from cairn.core.compaction import (
    ADDED_SHARE,
    SUMMARY_TRIES,
    Aside,
    TooLarge,
    compacted,
    fit,
    guarded,
    overhead_of,
    summary_faults,
    summary_tokens,
)
from cairn.core.decide_calls import next_for_calls
from cairn.core.decide_keeping import keeping
from cairn.core.guard import BLOCK, HINT, STOP
from cairn.core.intake import chosen_tools, classified, last_asked, taken_in, unclassified
from cairn.core.keeping import keeps, parted
from cairn.core.lifecycle import Status
from cairn.core.limits import MIN_OUTPUT_TOKENS, Reservation, reserve
from cairn.core.messages import calls_of, text_of
from cairn.core.outcomes import Called, Reply, parts_of
from cairn.core.quoting import with_words
from cairn.core.remaining import bound_of, larger, left_of, reserved_for, too_dear
from cairn.core.rules import INPUT, ModelSpec, Rules
from cairn.core.sizes import bulk_of, size_of
from cairn.core.state import Draft, End, RunState, persons_turn
from cairn.core.summaries import completed
from cairn.core.view import View
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
PERMISSION = ErrorClass.PERMISSION_DENIED
REFUSALS = frozenset({PERMISSION, ErrorClass.APPROVAL_DENIED, ErrorClass.APPROVAL_EXPIRED})
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
    return _go_on(state, rules)


def _go_on(state: RunState, rules: Rules) -> Action:
    """Nothing is open: what a summary says is kept first, then it ends or the model is asked."""
    if state.keeping:
        kept = keeping(state, rules)
        return append(kept, step=state.step + 1 if kept.parts else 0)
    return _finish(state, rules) if state.answer else _next_turn(state, rules)


def _ending(end: End) -> ev.Event:
    if end.status is Status.STOPPED:
        return ev.RunStopped(limit=end.limit, message=end.message)
    if end.status is Status.CANCELLED:
        return ev.RunCancelled(reason=end.message)
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
    last = state.repairs.get("answer", 0) >= rules.repairs
    note = _not_accepted(state, rules, last=last)
    if note:
        return append(
            ev.ModelRejected(
                error_class=ErrorClass.MALFORMED_OUTPUT,
                disposition="end" if last else "repair",
                note=note,
            )
        )
    for name in rules.checks:
        if name in state.checked:
            continue
        if state.spent.steps >= state.limits.steps:
            return _limit("steps", state.limits.steps, state.spent.steps)
        return RunTask(step=state.step + 1, event=ev.StepStarted(name=name))
    return append(ev.RunCompleted(answer=state.answer, degraded=state.degraded))


def _not_accepted(state: RunState, rules: Rules, *, last: bool) -> str:
    """What is said of an answer that is not accepted: to the model, or at the end to people."""
    lead = "[runtime] Your answer was not accepted:"
    if problem := _citation_problem(state):
        return f"{lead} {problem}"
    problem = "" if rules.check_answer is None else rules.check_answer(state.answer_text)
    if not problem:
        return ""
    taint = frozenset[str]() if last else state.taint
    return with_words(lead, problem, taint, f"{state.run}/{state.step}")


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
            return _limit(state.excess, *bound_of(state, state.excess))
        if spent.steps >= limits.steps:
            return _limit("steps", limits.steps, spent.steps)
        warned = _progress(state)
        if warned is not None:
            return warned
    if spent.running_us >= limits.running_s * 1_000_000:
        return _limit("running_s", limits.running_s, spent.running_us // 1_000_000)
    spec = rules.models[min(state.model, len(rules.models) - 1)]
    if state.draft is not None:
        return append(_adopted(state, rules, spec, state.draft))
    first = None if state.replies else taken_in(state, rules)
    if isinstance(first, Aside) and (dear := too_dear(state, rules, spec, first)):
        first = unclassified(state, dear)
    if first is not None:
        return _beside(state, rules, first) if isinstance(first, Aside) else append(first)
    if not state.replies and (feeding := _fed(state, rules)) is not None:
        return feeding
    if rules.catalogue and state.offered_for != last_asked(state):
        return append(chosen_tools(state, rules))
    return _turn(state, rules, spec)


def _turn(state: RunState, rules: Rules, spec: ModelSpec) -> Action:
    """Ask for the next turn, or make its request smaller first."""
    fitting = fit(state, rules, spec)
    if isinstance(fitting, Aside) and (dear := too_dear(state, rules, spec, fitting)):
        fitting = fit(state, rules, spec, alone=dear)
    match fitting:
        case ev.ContextCompacted():
            return append(fitting)
        case TooLarge():
            return _with_more_room(state, rules) or append(_too_large(state, fitting))
        case Aside():
            return _beside(state, rules, fitting)
    return _request(state, rules, spec, fitting)


def _with_more_room(state: RunState, rules: Rules) -> Action | None:
    """The request to the first fallback whose larger window has room for it; None if none has."""
    row = rules.ladder.row(ErrorClass.CONTEXT_OVERFLOW)
    if not any(rung.disposition == "switch" for rung in row):
        return None
    fresh = msgspec.structs.replace(state, overflowed="")  # that was about the model before
    for n in larger(rules.models, state.model):
        view = fit(fresh, rules, rules.models[n])
        if isinstance(view, View):
            return _request(fresh, rules, rules.models[n], view, n)
    return None


def _request(
    state: RunState, rules: Rules, spec: ModelSpec, fitting: View, fallback: int = 0
) -> Action:
    """The request for a turn, as far as the limits let it be made."""
    tokens_left, tokens_of = left_of(state, rules, "tokens")
    micro_usd_left, micro_usd_of = left_of(state, rules, "micro_usd")
    view = None if fitting == state.view else fitting
    tokens = state.tokens if view is None else size_of(state.messages, view, state.summary)
    overhead = overhead_of(state, rules)
    room = reserve(
        input_tokens=tokens + overhead,
        max_output=_most_output(state, spec, fitting, tokens + overhead),
        price=spec.price,
        tokens_left=tokens_left,
        micro_usd_left=micro_usd_left,
    )
    if isinstance(room, str):
        return _reached(state, room, tokens_of if room == "tokens" else micro_usd_of)
    asked = _ask(state, rules, spec, room, view)
    return msgspec.structs.replace(asked, fallback=fallback)


def _most_output(state: RunState, spec: ModelSpec, view: View, tokens: int) -> int:
    """The reply must fit into the window beside its request; nobody knows what files count."""
    left = spec.window - guarded(tokens)
    if spec.window <= 0 or left >= spec.max_output:
        return spec.max_output
    left += guarded(bulk_of(state.messages, view))
    return max(min(spec.max_output, left), MIN_OUTPUT_TOKENS)


def _adopted(state: RunState, rules: Rules, spec: ModelSpec, draft: Draft) -> ev.Event:
    """What a model said beside the turns stands from here on, or is refused with the reason."""
    if draft.purpose == "classify":
        return classified(state, draft.text)
    said, facts = parted(draft.text) if keeps(state, rules) else (draft.text, ())
    wrong = summary_faults(state, said, draft.cut, spec)
    event = compacted(state, draft.cut, said, "model")
    if not wrong:
        tokens, spare = summary_tokens(spec) // ADDED_SHARE, event.before - event.after - 1
        text = completed(state, rules, said, draft.cut, tokens, spare)
        event = compacted(state, draft.cut, text, "model")
    if not wrong and event.after < event.before:
        return msgspec.structs.replace(event, keep=facts)
    last = state.summary_tries + 1 >= SUMMARY_TRIES
    return ev.ModelRejected(
        error_class=ErrorClass.COMPACTION_FAILED,
        disposition="degrade" if last else "retry",
        note=f"the summary is not adopted: {wrong or 'with it the request would not be smaller'}",
    )


def _beside(state: RunState, rules: Rules, wanted: Aside) -> Action:
    """Ask a model beside the turns, within the limits: it is a step of its own."""
    limits, spent = state.limits, state.spent
    if spent.steps >= limits.steps:
        return _limit("steps", limits.steps, spent.steps)
    room = reserved_for(state, rules, wanted)
    if isinstance(room, str):
        name: Literal["tokens", "micro_usd"] = "tokens" if room == "tokens" else "micro_usd"
        return _reached(state, name, left_of(state, rules, name)[1])
    return AskModel(
        step=state.step + 1,
        attempt=1,
        model=wanted.spec.name,
        reserved=room,
        purpose=wanted.purpose,
        cut=wanted.cut,
    )


def _too_large(state: RunState, found: TooLarge) -> ev.Event:
    if state.overflowed:
        return ev.RunFailed(
            error_class=ErrorClass.CONTEXT_OVERFLOW,
            message=f"{state.overflowed} (nothing more can be condensed)",
        )
    return ev.LimitReached(
        limit="window",
        bound=found.room,
        value=found.size,
        message=(
            f"window limit reached: the request is estimated at {found.size} tokens, and the "
            f"model has room for {found.room}; nothing more can be condensed"
        ),
    )


def _feeding(state: RunState, rules: Rules) -> ev.TurnFed:
    asked = text_of(state.messages[state.asked[-1]].parts) if state.asked else ""
    calls = tuple(Called(name=f.tool, arguments=filled(f.arguments, asked)) for f in rules.feeds)
    parts = parts_of(state, rules, Reply(calls=calls))
    return ev.TurnFed(parts=calls_of(parts), blocks=tuple(f.block for f in rules.feeds))


def _fed(state: RunState, rules: Rules) -> Append | None:
    """Feed the blocks before the model is asked, or end the run where a needed one is not fed."""
    if rules.feeds and not state.fed:
        return append(_feeding(state, rules), step=state.step + 1)
    failed = _unfed(state, rules)
    return None if failed is None else append(failed)


def _unfed(state: RunState, rules: Rules) -> ev.RunFailed | None:
    """The end of a run whose needed block could not be fed."""
    needed = {feed.block for feed in rules.feeds if feed.needed}
    for fed in state.feeding:
        if fed.block in needed and fed.fault is not None:
            return ev.RunFailed(
                error_class=PERMISSION if fed.fault in REFUSALS else ErrorClass.DEPENDENCY_FAILED,
                message=f"the context block {fed.block} is needed, and {fed.tool} ({fed.call}) "
                f"could not feed it: {fed.why}",
            )
    return None


def filled(arguments: str, asked: str) -> str:
    """A feed's arguments with the person's request in its place."""
    value: Any = msgspec.json.decode(arguments)
    return msgspec.json.encode(_filled(value, asked)).decode()


def _filled(value: Any, asked: str) -> Any:
    if isinstance(value, str):
        return INPUT.sub(lambda _: asked, value)
    if isinstance(value, list):
        return [_filled(each, asked) for each in value]
    if isinstance(value, dict):
        return {key: _filled(each, asked) for key, each in value.items()}
    return value


def _reached(state: RunState, name: str, budget: Rest | None) -> Append:
    return _limit(name, *bound_of(state, name)) if budget is None else _used_up(budget)


def _used_up(rest: Rest) -> Append:
    return append(
        ev.LimitReached(
            limit=f"budget:{rest.budget}", bound=rest.bound, value=rest.used, message=rest.message
        )
    )


def _ask(
    state: RunState, rules: Rules, spec: ModelSpec, room: Reservation, view: View | None
) -> AskModel:
    again = state.attempts > 0
    by_action = bool(rules.offered) and not spec.takes_tools
    return AskModel(
        step=state.step if again else state.step + 1,
        attempt=state.attempts + 1,
        model=spec.name,
        reserved=room,
        tool_choice=_tool_choice(state, rules),
        output_mode="action" if by_action else rules.output_mode,
        view=view,
    )


def _tool_choice(state: RunState, rules: Rules) -> str:
    """What was asked for, until the first call: forced on, a model could never come to an end."""
    wanted = rules.tool_choice
    fed = len(rules.feeds) if state.fed else 0
    own = fed + state.kept_calls  # those calls the runtime made, not the model
    if wanted == "auto" or not rules.offered or state.last_call > own:
        return "auto"
    spec = rules.tools.get(wanted)
    if spec is not None and state.kind == "query" and spec.effect != "read":
        return "auto"
    return wanted


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
