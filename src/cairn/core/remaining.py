"""What a run may still use, and what a request beside its turns must leave of it."""

from __future__ import annotations

from typing import Literal

from cairn.core.budgets import Rest
from cairn.core.compaction import ADDED_SHARE, Aside, overhead_of, summary_tokens
from cairn.core.limits import Limits, Reservation, reserve
from cairn.core.rules import ModelSpec, Rules
from cairn.core.sizes import tokens_of
from cairn.core.state import RunState

REPLY_TOKENS = 1_024
"""So long a reply a summary leaves room for at least, if the model can give one of that length."""


def bound_of(state: RunState, name: str) -> tuple[int, int]:
    """A limit of the run, and how much of it is used."""
    limits: Limits = state.limits
    values = {
        "tokens": (limits.tokens, state.usage.tokens),
        "micro_usd": (limits.micro_usd, state.usage.micro_usd),
        "calls": (limits.calls, state.spent.calls),
        "running_s": (limits.running_s, state.spent.running_us // 1_000_000),
    }
    return values[name]


def left_of(
    state: RunState, rules: Rules, name: Literal["tokens", "micro_usd"]
) -> tuple[int, Rest | None]:
    """What may still be reserved, and the budget that says so, None for the run's own limit."""
    bound, used = bound_of(state, name)
    rest: Rest | None = getattr(rules.room, name) if rules.room is not None else None
    return (bound - used, None) if rest is None or rest.left >= bound - used else (rest.left, rest)


def reserved_for(state: RunState, rules: Rules, aside: Aside) -> Reservation | str:
    """What a request beside the turns may use, or the name of the limit that forbids it."""
    return reserve(
        input_tokens=aside.input_tokens,
        max_output=aside.output_tokens,
        price=aside.spec.price,
        tokens_left=left_of(state, rules, "tokens")[0],
        micro_usd_left=left_of(state, rules, "micro_usd")[0],
    )


def too_dear(state: RunState, rules: Rules, spec: ModelSpec, aside: Aside) -> str:
    """Why what is asked beside the turns would use up what the turn after it needs; empty if not.

    The turn needs a step, and one for each check of its answer and for the blocks that are still
    to be fed; and tokens and money for its request. After a summary it also needs a reply of
    `REPLY_TOKENS`, and time that the summary, if it took all it may, would not have used: a rule
    can write one instead. Nobody can stand in for a model that classifies.
    """
    condenses = aside.purpose == "summary"
    what = "a summary" if condenses else "a classifier"
    said = f"too little is left of the limit {{}} for {what} and the turn after it"
    feeding = bool(rules.feeds) and not state.fed and not state.replies
    if state.spent.steps + 2 + feeding + len(rules.checks) > state.limits.steps:
        return said.format("steps")
    limit_us = state.limits.running_s * 1_000_000
    if condenses and state.spent.running_us + aside.spec.timeout_us >= limit_us:
        return said.format("running_s")
    taken = reserved_for(state, rules, aside)
    if isinstance(taken, str):
        return said.format(taken)
    kept = state.tokens
    if condenses:
        gone = sum(map(tokens_of, state.messages[state.view.start : aside.cut]))
        added = summary_tokens(spec) // ADDED_SHARE
        kept = max(kept - gone, 0) + min(aside.output_tokens, summary_tokens(spec)) + added
    wanted = min(spec.max_output, REPLY_TOKENS)
    turn = reserve(
        input_tokens=kept + overhead_of(state, rules, condensed=condenses),
        max_output=wanted,
        price=spec.price,
        tokens_left=left_of(state, rules, "tokens")[0] - taken.tokens,
        micro_usd_left=left_of(state, rules, "micro_usd")[0] - taken.micro_usd,
    )
    if isinstance(turn, str):
        return said.format(turn)
    short = condenses and turn.output_tokens < wanted
    return said.format("tokens or micro_usd") if short else ""


def larger(models: tuple[ModelSpec, ...], used: int) -> tuple[int, ...]:
    """The fallbacks behind the model in use whose window is larger, in order."""
    window = models[min(used, len(models) - 1)].window
    return tuple(n for n in range(used + 1, len(models)) if models[n].window > max(window, 0))
