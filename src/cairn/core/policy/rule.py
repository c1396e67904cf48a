"""One rule: when it speaks, and what it says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, get_args

from cairn.core.declaration import Declaration
from cairn.core.messages import Record
from cairn.core.policy.form import DEFAULTS, STRICTNESS, Decision, Effect, Intent, TaskKind
from cairn.core.policy.predicates import ABSENT, Predicate, told
from cairn.core.policy.shape import need, predicates
from cairn.core.terms import ApprovalTerms
from cairn.errors import ConfigError, safe_repr

ANY = "any"
NONE = "none"
NAME_CHARS = 100
LISTS = ("tools", "effects", "agents", "principals", "roles", "tenants", "kinds", "taint")


class From(Record, tag_field="take", tag="from"):
    """An argument of the new call: what stands at this path in the old one."""

    path: str


class Value(Record, tag_field="take", tag="value"):
    """An argument of the new call: this value."""

    value: Any = None


class Redirect(Record, gc=True):
    """What is called in place of what was asked for.

    Args:
        tool: The other tool.
        arguments: Its arguments by name, each `From(path)` or `Value(value)`; None hands the
            old ones over as they are.
    """

    tool: str
    arguments: Mapping[str, From | Value] | None = None

    def mapped(
        self, arguments: Mapping[str, Any], defaults: Mapping[str, Any]
    ) -> dict[str, Any] | None:
        """The new call's arguments; None when one of them is not there.

        `defaults` stand for arguments that were not given.
        """
        if self.arguments is None:
            return dict(arguments)
        known = {**defaults, **arguments}
        found = {
            name: (_at(known, source.path) if isinstance(source, From) else source.value)
            for name, source in self.arguments.items()
        }
        return None if any(value is ABSENT for value in found.values()) else found


def _at(arguments: Mapping[str, Any], path: str) -> Any:
    value: Any = arguments
    for name in path.split("."):
        value = value.get(name, ABSENT) if isinstance(value, Mapping) else ABSENT
    return value


class Spend(Record):
    """How much the run must have used already; all that is named.

    Args:
        micro_usd: Money in millionths of a US dollar.
        calls: Tool calls started.
        tokens: Tokens.
    """

    micro_usd: int = 0
    calls: int = 0
    tokens: int = 0

    def __post_init__(self) -> None:
        given: tuple[Any, ...] = (self.micro_usd, self.calls, self.tokens)
        fine = all(isinstance(n, int) and not isinstance(n, bool) and n >= 0 for n in given)
        if not fine or not any(given):
            fix = "Give micro_usd, calls or tokens, each above 0"
            raise ConfigError("spend", "it names no amount", fix)


class Rule(Record, gc=True, metaclass=Declaration):
    """A rule of one layer. All that it names must hold; what it leaves out it does not look at.

    Args:
        name: How it is called in the journal.
        decide: allow, ask, deny or redirect.
        reason: Why, shown to people and to the model.
        tools: Names of tools; `*` stands for any run of characters.
        effects: read, write or dangerous.
        arguments: A predicate by the path of the argument, `order.cents`.
        agents: Names of agents.
        principals: Ids of principals.
        roles: The principal must have one of these.
        tenants: The principal's tenant.
        kinds: Kinds of task: query, generate, operate.
        taint: Labels of untrusted content, one of which the run must have read; `mcp:*` for
            all of that kind, `any`, or `none` for a run that has read nothing untrusted.
        spend: How much the run must have used.
        redirect: What is called instead, for a rule that redirects.
        approval: Who may say yes, for a rule that asks.

    Raises:
        ConfigError: something in it cannot be.
    """

    name: str
    decide: Decision
    reason: str = ""
    tools: tuple[str, ...] = ()
    effects: tuple[Effect, ...] = ()
    arguments: Mapping[str, Predicate] = {}
    agents: tuple[str, ...] = ()
    principals: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    tenants: tuple[str, ...] = ()
    kinds: tuple[TaskKind, ...] = ()
    taint: tuple[str, ...] = ()
    spend: Spend | None = None
    redirect: Redirect | None = None
    approval: ApprovalTerms | None = None

    def __post_init__(self) -> None:
        self._check_forms()
        for field, fine, problem, fix in self._checks():
            need(fine, f"rule {safe_repr(self.name)}.{field}", problem, fix)
        for path, predicate in self.arguments.items():
            predicates(f"rule {safe_repr(self.name)}.arguments.{path}", predicate)

    def _check_forms(self) -> None:
        """What the other checks build on: lists are lists, and arguments are a mapping."""
        where = f"rule {safe_repr(self.name)}"
        for field in LISTS:
            value: object = getattr(self, field)
            fine = isinstance(value, tuple) and all(isinstance(v, str) and v for v in value)
            problem = f"{safe_repr(value)} is no tuple of names"
            need(fine, f"{where}.{field}", problem, 'Write ("name",)')
        arguments: object = self.arguments
        fine = isinstance(arguments, Mapping) and all(isinstance(path, str) for path in arguments)
        problem = f"{safe_repr(arguments)} is no mapping of paths"
        need(fine, f"{where}.arguments", problem, 'Write {"order.cents": Range(max=500)}')
        decide: object = self.decide
        fine = isinstance(decide, str) and decide in STRICTNESS
        fix = "Write allow, ask, deny or redirect"
        need(fine, f"{where}.decide", f"{safe_repr(decide)} is no decision", fix)

    def _checks(self) -> list[tuple[str, bool, str, str]]:
        given: Any = self.name
        named = isinstance(given, str) and 0 < len(given.strip()) <= NAME_CHARS
        both = (self.decide == "redirect") is (self.redirect is not None)
        asks = self.approval is None or self.decide == "ask"
        told_apart = self.taint in {(ANY,), (NONE,)} or not {ANY, NONE} & set(self.taint)
        checks = [
            (
                "name",
                named,
                f"{safe_repr(self.name)} is no name",
                f"Give 1 to {NAME_CHARS} characters",
            ),
            ("approval", asks, "nobody is asked by it", "Write decide: ask, or leave it out"),
            ("redirect", both, "decide and redirect go together", "Say to which tool"),
            ("taint", told_apart, "any and none stand alone", "Write one of them, or labels"),
        ]
        words: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
            ("effects", self.effects, tuple(DEFAULTS)),
            ("kinds", self.kinds, get_args(TaskKind)),
        )
        for field, given, known in words:
            wrong = [word for word in given if word not in known]
            fix = f"Use {', '.join(known)}"
            checks.append((field, not wrong, f"{safe_repr(wrong[:1])} is unknown", fix))
        for path in self.arguments:
            fine = bool(path) and all(path.split("."))
            checks.append(
                ("arguments", fine, f"{safe_repr(path)} is no path", "Write names with dots")
            )
        return checks

    def speaks(self, intent: Intent) -> bool:
        """Whether it has something to say of a call.

        A predicate of an argument that cannot be told keeps an allowing rule silent, and lets
        every other rule speak.
        """
        if self.tools and not any(fits_glob(intent.tool, glob) for glob in self.tools):
            return False
        if self.effects and intent.effect not in self.effects:
            return False
        if not (self._about(intent) and self._tainted(intent.taint) and self._spent(intent)):
            return False
        if not self.arguments:
            return True
        allows = self.decide == "allow"
        for path, predicate in self.arguments.items():
            found = told(path, predicate, intent.arguments, allows=allows)
            if found is False or (found is None and allows):
                return False
        return True

    def _about(self, intent: Intent) -> bool:
        who = intent.principal
        return (
            (not self.agents or intent.agent in self.agents)
            and (not self.principals or who.id in self.principals)
            and (not self.roles or any(role in self.roles for role in who.roles))
            and (not self.tenants or who.tenant in self.tenants)
            and (not self.kinds or intent.kind in self.kinds)
        )

    def _tainted(self, labels: frozenset[str]) -> bool:
        if not self.taint:
            return True
        if self.taint == (NONE,):
            return not labels
        if self.taint == (ANY,):
            return bool(labels)
        return any(fits_glob(label, glob) for glob in self.taint for label in labels)

    def _spent(self, intent: Intent) -> bool:
        least = self.spend
        return least is None or (
            intent.micro_usd >= least.micro_usd
            and intent.calls >= least.calls
            and intent.tokens >= least.tokens
        )


def fits_glob(name: str, glob: str) -> bool:
    """Whether a name is of this form, where `*` stands for any run of characters."""
    if "*" not in glob:
        return name == glob
    first, *middle, last = glob.split("*")
    if not name.startswith(first) or not name.endswith(last):
        return False
    at, end = len(first), len(name) - len(last)
    if at > end:
        return False
    for part in middle:
        found = name.find(part, at, end)
        if found < 0:
            return False
        at = found + len(part)
    return True
