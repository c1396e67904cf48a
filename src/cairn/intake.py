"""`Intake`: what an agent settles about a task before it starts to work."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Sequence

from cairn.core.evolve_context import KINDS
from cairn.core.policy.form import TaskKind
from cairn.core.rules import Need
from cairn.core.takers import check_taker, name_of
from cairn.errors import ConfigError, safe_repr, words_of
from cairn.models import check_model
from cairn.ports import Model
from cairn.tools.blocking import Overdue, called
from cairn.tools.linear import matcher

Rule = Callable[[str], "TaskKind | Awaitable[TaskKind | None] | None"]
RULE_S = 60.0
"""How long the rule may take."""
PATTERN_FIX = (
    "It is matched in linear time: leave out look-around, back-references, possessive and atomic "
    "parts, write $ for \\Z and \\[ \\- \\& \\~ in a set, or make several needs of it"
)
CLASS_OR_ESCAPED = re.compile(r"\\.|\[\^?\]?(?:\\.|[^\]\\])*\]", re.DOTALL)
SET_OF_SETS = re.compile(r"(?<!\\)\[|--|&&|~~")
POSSESSIVE = re.compile(r"[*+?}]\+")


class Intake:
    """What is settled before work starts: the kind of the task, and that nothing is missing.

    Args:
        needs: What a request must hold. The person is asked for what is missing, at most twice;
            then, or where nobody can be asked, the run fails with `input_incomplete`.
        rule: Says the kind of a task by its text when it is handed over, or None; it narrows
            the kind that the task or the agent has, and never widens it. It is sync (it then
            runs in a thread) or async, and may take 60 seconds.
        model: A model that says the kind, in a journaled request of its own before work starts;
            it only narrows. What is no kind changes nothing.

    Raises:
        ConfigError: a value is not usable, or nothing is to be settled; the message names it and
            the fix.
    """

    def __init__(
        self,
        *,
        needs: Sequence[Need] = (),
        rule: Rule | None = None,
        model: Model | str | None = None,
    ) -> None:
        if not _is_list(needs):
            raise ConfigError("Intake.needs", f"{safe_repr(needs)} is no list", "Give [Need(...)]")
        for need in needs:
            if not isinstance(need, Need):
                raise ConfigError("Intake.needs", f"{safe_repr(need)} is no need", "Give Need(...)")
            _check(need)
        names = [need.name for need in needs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            said = f"two needs are called {twice!r}"
            raise ConfigError("Intake.needs", said, "Give each its own name")
        if rule is not None and not callable(rule):
            raise ConfigError(
                "Intake.rule", f"{safe_repr(rule)} is no rule", "Give a function of a text"
            )
        if rule is not None:
            check_taker("Intake.rule", rule, "a text")
        if model is not None:
            check_model(model, "Intake.model")
        if not needs and rule is None and model is None:
            fix = "Give needs, a rule or a model, or leave intake= out"
            raise ConfigError("Intake", "it settles nothing", fix)
        self.needs = tuple(needs)
        self.rule = rule
        self.model = model

    async def kind_of(self, text: str) -> TaskKind | None:
        """What the rule says of a task.

        Raises:
            ConfigError: the rule raised, took too long, or said what is no kind.
        """
        if self.rule is None:
            return None
        name = f"the rule {name_of(self.rule)}"
        try:
            kind: TaskKind | None = await called(name, self.rule, text, seconds=RULE_S)
        except Overdue as error:
            raise ConfigError("Intake.rule", *str(error).split(". ", 1)) from None
        except Exception as error:  # the deployer's function may raise anything
            said = f"it raised {words_of(error)}"
            raise ConfigError("Intake.rule", said, "Have it return a kind or None") from error
        if kind is not None and kind not in KINDS:
            fix = f"Return one of {', '.join(KINDS)} or None"
            raise ConfigError("Intake.rule", f"it returned {safe_repr(kind)}", fix)
        return kind


def _is_list(given: object) -> bool:
    return isinstance(given, list | tuple)


def _check(need: Need) -> None:
    where = f"Need({safe_repr(need.name)})"
    for field in ("name", "question", "pattern"):
        value = getattr(need, field)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{where}.{field}", f"{safe_repr(value)} is no text", "Give a text")
    try:
        re.compile(need.pattern)
    except re.error as error:
        raise ConfigError(f"{where}.pattern", str(error), "Give a regular expression") from None
    try:
        matcher(need.pattern)
        matcher(f"(?i){need.pattern}")
    except ValueError as error:
        raise ConfigError(f"{where}.pattern", str(error), PATTERN_FIX) from None
    if part := _read_otherwise(need.pattern):
        said = f"{safe_repr(part)} would be read in another way than Python reads it"
        raise ConfigError(f"{where}.pattern", said, PATTERN_FIX)
    if holds(need.pattern, ""):
        said = "it is found in an empty message too, so nobody would ever be asked"
        fix = "Write what must stand there, as x+ in place of x*"
        raise ConfigError(f"{where}.pattern", said, fix)


def _read_otherwise(pattern: str) -> str:
    """A part that both languages know and that means something else in each; empty for none."""
    for found in CLASS_OR_ESCAPED.finditer(pattern):
        if found[0][0] == "[" and (strange := SET_OF_SETS.search(found[0][1:-1])):
            return strange[0]
    possessive = POSSESSIVE.search(CLASS_OR_ESCAPED.sub("x", pattern))
    return possessive[0] if possessive else ""


def holds(pattern: str, text: str) -> bool:
    """Whether a request holds what a need's pattern stands for, in capitals or small letters."""
    found = matcher(f"(?i){pattern}")
    return found(text) or (text.endswith("\n") and found(text[:-1]))  # `$` is before a last break
