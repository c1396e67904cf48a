"""`Intake`: what an agent settles about a task before it starts to work."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from cairn.core.evolve_context import KINDS
from cairn.core.policy.form import TaskKind
from cairn.core.rules import Need
from cairn.errors import ConfigError
from cairn.models import check_model
from cairn.ports import Model

Rule = Callable[[str], "TaskKind | None"]


class Intake:
    """What is settled before work starts: the kind of the task, and that nothing is missing.

    Args:
        needs: What a request must hold. The person is asked for what is missing, at most twice;
            then, or where nobody can be asked, the run fails with `input_incomplete`.
        rule: Says the kind of a task by its text when it is handed over, or None; it narrows
            the kind that the task or the agent has, and never widens it.
        model: A model that says the kind, in a journaled request of its own before work starts;
            it only narrows. What is no kind changes nothing.

    Raises:
        ConfigError: a value is not usable; the message names it and the fix.
    """

    def __init__(
        self,
        *,
        needs: Sequence[Need] = (),
        rule: Rule | None = None,
        model: Model | str | None = None,
    ) -> None:
        if not _is_list(needs):
            raise ConfigError("Intake.needs", f"{needs!r:.200} is no list", "Give [Need(...)]")
        for need in needs:
            if not isinstance(need, Need):
                raise ConfigError("Intake.needs", f"{need!r} is no need", "Give Need(...)")
            _check(need)
        names = [need.name for need in needs]
        if twice := next((name for name in names if names.count(name) > 1), ""):
            said = f"two needs are called {twice!r}"
            raise ConfigError("Intake.needs", said, "Give each its own name")
        if rule is not None and not callable(rule):
            raise ConfigError("Intake.rule", f"{rule!r} is no rule", "Give a function of a text")
        if model is not None:
            check_model(model, "Intake.model")
        self.needs = tuple(needs)
        self.rule = rule
        self.model = model

    def kind_of(self, text: str) -> TaskKind | None:
        """What the rule says of a task.

        Raises:
            ConfigError: the rule raised, or said what is no kind.
        """
        if self.rule is None:
            return None
        try:
            kind = self.rule(text)
        except Exception as error:  # the deployer's function may raise anything
            said = f"it raised {type(error).__name__}: {error}"
            raise ConfigError("Intake.rule", said, "Have it return a kind or None") from error
        if kind is not None and kind not in KINDS:
            fix = f"Return one of {', '.join(KINDS)} or None"
            raise ConfigError("Intake.rule", f"it returned {kind!r}", fix)
        return kind


def _is_list(given: object) -> bool:
    return isinstance(given, list | tuple)


def _check(need: Need) -> None:
    where = f"Need({need.name!r})"
    for field in ("name", "question", "pattern"):
        value = getattr(need, field)
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{where}.{field}", f"{value!r} is no text", "Give a text")
    try:
        re.compile(need.pattern)
    except re.error as error:
        raise ConfigError(f"{where}.pattern", str(error), "Give a regular expression") from None
