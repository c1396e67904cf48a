"""What may be said of one argument of a call.

Each predicate answers True, False, or None for "this cannot be told": the value is of another
type, absent, or written so that two programs could read it in two ways. A rule that allows needs
True; every other rule also takes None for a match. So what cannot be told never lets a call pass.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import Any

from cairn.core.messages import Record
from cairn.core.policy.argv import CARRIERS, Argv, is_listed, means, taken_apart
from cairn.core.policy.hosts import fits_host, host_of, is_pattern
from cairn.core.policy.paths import is_root, stands_inside
from cairn.core.policy.patterns import TEXT_CHARS, compiled
from cairn.core.policy.shape import need, predicates, several
from cairn.core.unseen import as_seen
from cairn.errors import safe_repr

Scalar = str | int | float | bool | None
AMOUNT = re.compile(r"-?[0-9]{1,18}(\.[0-9]{1,9})?")
CURRENCY = re.compile(r"[A-Z]{3}")


class Equals(Record, tag_field="is", tag="equals"):
    """The argument is exactly this value; a text that only looks like it cannot be told."""

    value: Scalar

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        return _same(self.value, given)


class OneOf(Record, tag_field="is", tag="one_of"):
    """The argument is one of these values."""

    values: tuple[Scalar, ...]

    def __post_init__(self) -> None:
        several("one_of", self.values, (str, int, float, bool, type(None)))
        need(self.values, "one_of", "it names no value", "Name at least one")

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        found = [_same(value, given) for value in self.values]
        if True in found:
            return True
        return None if None in found else False


class Matches(Record, tag_field="is", tag="matches"):
    r"""The whole text is of this form; at most 4,096 characters are read.

    The expression is read by states, so that its time is bounded by length times size. It knows
    characters, sets, groups, `|`, `*`, `+`, `?`, `{2,5}`, `.`, `\d`, `\w`, `\s`, and `(?i)` in
    front.
    """

    pattern: str

    def __post_init__(self) -> None:
        given: object = self.pattern
        fix = "Write a regular expression"
        need(isinstance(given, str), "matches", f"{safe_repr(given)} is no text", fix)
        compiled(self.pattern)

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        if not isinstance(given, str) or len(given) > TEXT_CHARS:
            return None
        found = compiled(self.pattern).fits(given)
        flat = as_seen(given)
        readings = [] if flat == given else [compiled(self.pattern).fits(flat)]
        if "\n" in given:  # whether a dot ends at a line must make no difference
            readings.append(compiled(self.pattern, lines=True).fits(given))
        return found if all(each is found for each in readings) else None


class Range(Record, tag_field="is", tag="range"):
    """The argument is a number from `min` to `max`, both included; a truth value is none."""

    min: int | float | None = None
    max: int | float | None = None

    def __post_init__(self) -> None:
        bounds = [b for b in (self.min, self.max) if b is not None]
        need(bounds, "min", "a range needs a bound", "Give min, max or both")
        fine = all(_number(bound) is not None for bound in bounds)
        need(fine, "min", "a bound is no number", "Give finite numbers")
        both = self.min is not None and self.max is not None
        fine = not both or self.min <= self.max  # type: ignore[operator]  # neither is None
        need(fine, "min", f"nothing is {self.min} or more and {self.max} or less", "Swap them")

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        number = _number(given)
        return None if number is None else _within(number, self.min, self.max)


class Amount(Record, tag_field="is", tag="amount"):
    """The argument is an amount of money from `min` to `max` in this currency.

    Args:
        min: The least, in the argument's own unit.
        max: The most.
        currency: Three capital letters. An amount in another currency cannot be told.
        currency_argument: The argument that says in which currency; empty if there is none.
    """

    min: int | float | None = None
    max: int | float | None = None
    currency: str = ""
    currency_argument: str = ""

    def __post_init__(self) -> None:
        Range(min=self.min, max=self.max)
        code: object = self.currency
        fine = isinstance(code, str) and (not code or CURRENCY.fullmatch(code))
        fix = "Write three capital letters, as in EUR"
        need(fine, "currency", f"{safe_repr(self.currency)} is no currency", fix)
        both = bool(self.currency) is bool(self.currency_argument)
        fix = "Give both: the currency, and the argument that holds it"
        need(both, "currency_argument", "currency and currency_argument go together", fix)

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        number = _amount(given)
        if number is None:
            return None
        if self.currency_argument:
            found = values_at(arguments, self.currency_argument)
            if [*found] != [self.currency]:
                return None
        return _within(number, self.min, self.max)


class Inside(Record, tag_field="is", tag="inside"):
    """The argument is a path to or below one of these folders, told from its text alone.

    An absolute folder holds absolute paths, a relative one (`.`, `docs`) relative paths.
    """

    roots: tuple[str, ...]

    def __post_init__(self) -> None:
        several("inside", self.roots)
        need(self.roots, "inside", "it names no folder", "Name at least one")
        for root in self.roots:
            fix = "Write an absolute folder, or one relative to the workspace, without .."
            need(is_root(root), "inside", f"{safe_repr(root)} is no folder", fix)

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        if not isinstance(given, str):
            return None
        return _any(stands_inside(given, root) for root in self.roots)


class Host(Record, tag_field="is", tag="host"):
    """The argument is a URL, or a bare name, of one of these hosts.

    Args:
        hosts: Exact names and addresses, or `*.example.org` for all names below it.
        ports: Ports that may be written beside the scheme's own.
    """

    hosts: tuple[str, ...]
    ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        several("host", self.hosts)
        several("host.ports", self.ports, int)
        need(self.hosts, "host", "it names no host", "Name at least one")
        for host in self.hosts:
            fix = "Write it in lower case, without scheme and port; other letters as xn--..."
            need(is_pattern(host), "host", f"{safe_repr(host)} is no host", fix)

    def test(self, given: Any, arguments: Mapping[str, Any]) -> bool | None:
        """Whether the argument is so."""
        host = host_of(given, self.ports) if isinstance(given, str) else None
        return None if host is None else any(fits_host(host, each) for each in self.hosts)


class Command(Record, tag_field="is", tag="command"):
    """The argument is one simple command: a list of words, or a shell text that is nothing else.

    Args:
        programs: By exact name or absolute path.
        first: What the word right after the program may be, such as a sub-command.
        only_flags: No other options than these; a long one may have a value behind `=`.
        no_flags: None of these options.
        with_flags: At least one of these options.
        words: What must be so of every other word, and of values behind `=`.
        most_words: How many other words there may be, the first included.
    """

    programs: tuple[str, ...]
    first: tuple[str, ...] = ()
    only_flags: tuple[str, ...] | None = None
    no_flags: tuple[str, ...] = ()
    with_flags: tuple[str, ...] = ()
    words: Predicate | None = None
    most_words: int | None = None

    def __post_init__(self) -> None:
        several("command.programs", self.programs)
        several("command.first", self.first)
        for flags in (self.only_flags or (), self.no_flags, self.with_flags):
            several("command.flags", flags)
        if self.words is not None:
            predicates("command.words", self.words)
        need(self.programs, "command.programs", "it names no program", "Name at least one")
        for program in self.programs:
            plain = bool(program) and not set(program) & set(" =\\\0") and program[:1] not in ".-~"
            fine = plain and ("/" not in program or program[0] == "/")
            fix = "Write its name or its absolute path"
            need(fine, "command.programs", f"{safe_repr(program)} is no program", fix)
        for flag in (*(self.only_flags or ()), *self.no_flags, *self.with_flags):
            fine = len(flag) > 1 and flag[0] == "-" and flag != "--" and "=" not in flag
            fix = "Write options as -f or --force, without a value"
            need(fine, "command.flags", f"{safe_repr(flag)} is no option", fix)

    def test(self, given: Any, arguments: Mapping[str, Any], *, every: bool = True) -> bool | None:
        """Whether the argument is so; `every` says whether all words or one must be."""
        found = taken_apart(given)
        if found is None:
            return None
        program = self._program(found.program)
        if program is not True:
            return program
        parts = [self._flags(found)]
        if self.first:
            parts.append(None if found.first.startswith("-") else found.first in self.first)
        if self.most_words is not None:
            parts.append(len(found.words) <= self.most_words)
        if self.words is not None:
            rest = found.words[1:] if self.first and found.words else found.words
            told = [test(self.words, w, arguments, every=every) for w in (*rest, *found.values)]
            parts.append((_all if every else _any)(told))
        return _all(parts)

    def _program(self, program: str) -> bool | None:
        if program in self.programs:
            return True
        name = program.rpartition("/")[2].lower()
        similar = any(name == known.rpartition("/")[2].lower() for known in self.programs)
        runs_others = name in CARRIERS or not name.isascii() or "\\" in name
        return None if similar or runs_others else False

    def _flags(self, found: Argv) -> bool | None:
        told: list[bool | None] = []
        if self.only_flags is not None:
            told.append(all(is_listed(flag, self.only_flags) for flag in found.flags))
        if self.no_flags:
            given = means(found.flags, self.no_flags)
            told.append(None if given is None else not given)
        if self.with_flags:
            told.append(means(found.flags, self.with_flags))
        return _all(told)


class Not(Record, tag_field="is", tag="not"):
    """The argument is anything but this; what cannot be told stays so."""

    predicate: Predicate

    def __post_init__(self) -> None:
        predicates("not", self.predicate)


class AllOf(Record, tag_field="is", tag="all_of"):
    """The argument is all of this at once."""

    predicates: tuple[Predicate, ...]

    def __post_init__(self) -> None:
        several("all_of", self.predicates, Record)
        predicates("all_of", *self.predicates)
        need(self.predicates, "all_of", "it asks for nothing", "Name at least one predicate")


class Items(Record, tag_field="is", tag="items"):
    """How a list is judged: `all` of its items must be so, or `any`.

    Without it a rule that allows wants all of them, and any other rule one.
    """

    mode: str
    predicate: Predicate

    def __post_init__(self) -> None:
        predicates("items", self.predicate)
        need(
            self.mode in ("all", "any"), "items", f"{safe_repr(self.mode)} is unknown", "all or any"
        )


class IfGiven(Record, tag_field="is", tag="if_given"):
    """As the predicate, but absent or null is harmless: no reason to refuse, none to ask."""

    predicate: Predicate

    def __post_init__(self) -> None:
        predicates("if_given", self.predicate)


Predicate = (
    Equals | OneOf | Matches | Range | Amount | Inside | Host | Command | Not | AllOf | Items
) | IfGiven


def told(path: str, predicate: Predicate, arguments: Mapping[str, Any], *, allows: bool) -> Any:
    """Whether the argument at `path` is so: True, False, or None when it cannot be told.

    Args:
        path: Names with dots between them; lists on the way are gone into.
        predicate: What is asked of it.
        arguments: All arguments of the call.
        allows: Whether a rule asks that allows: then every item of a list must be so, else one.
    """
    every = allows
    harmless = isinstance(predicate, IfGiven)
    if isinstance(predicate, IfGiven):
        predicate = predicate.predicate
    if isinstance(predicate, Items):
        every, predicate = predicate.mode == "all", predicate.predicate
    whole = isinstance(_innermost(predicate), Command)
    found = values_at(arguments, path, whole=whole)
    if harmless and all(value is None or value is ABSENT for value in found):
        return allows
    if not found:
        return None if every else False
    seen = [
        None if value is ABSENT else test(predicate, value, arguments, every=every)
        for value in found
    ]
    return seen[0] if len(seen) == 1 else (_all if every else _any)(seen)


def test(
    predicate: Predicate, given: Any, arguments: Mapping[str, Any], *, every: bool
) -> bool | None:
    """Whether one value is so; `every` says whether all words of a command must be, or one."""
    match predicate:
        case Not():
            found = test(predicate.predicate, given, arguments, every=not every)
            return None if found is None else not found
        case AllOf():
            return _all(test(p, given, arguments, every=every) for p in predicate.predicates)
        case Items() | IfGiven():
            return test(predicate.predicate, given, arguments, every=every)
        case Command():
            return predicate.test(given, arguments, every=every)
        case _:
            return predicate.test(given, arguments)


def _innermost(predicate: Predicate) -> Predicate:
    while isinstance(predicate, Not):
        predicate = predicate.predicate
    return predicate


# ---------------------------------------------------------------- values


ABSENT: Any = object()
"""Stands for an argument that is not there, or whose place is of another kind."""


def values_at(arguments: Mapping[str, Any], path: str, *, whole: bool = False) -> list[Any]:
    """What stands at a path; several values if there are lists, `ABSENT` for nothing."""
    found: list[Any] = [arguments]
    for name in path.split("."):
        found = [_field(value, name) for each in found for value in _opened(each)]
    if whole:
        return [_plain(value) for value in found]
    return [_plain(value) for each in found for value in _opened(each)]


def _opened(value: Any) -> Iterable[Any]:
    return value if isinstance(value, list | tuple | set | frozenset) else (value,)


def _field(value: Any, name: str) -> Any:
    if isinstance(value, Mapping):
        return value.get(name, ABSENT)
    kind = type(value)
    for declared in ("model_fields", "__struct_fields__", "__dataclass_fields__"):
        if name in getattr(kind, declared, ()):
            return getattr(value, name, ABSENT)
    return ABSENT


def _plain(value: Any) -> Any:
    """A value as it stands in JSON, where a tool is given something richer."""
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | Decimal | list | tuple | Mapping):
        return value
    for method in ("__fspath__", "isoformat", "unicode_string"):
        if hasattr(type(value), method):
            written = getattr(value, method)()
            return written if isinstance(written, str) else ABSENT
    return value


def _kind(value: Any) -> str:
    if isinstance(value, bool):
        return "truth"
    if isinstance(value, int | float):
        return "number"
    return "null" if value is None else "text" if isinstance(value, str) else "other"


def _same(wanted: Scalar, given: Any) -> bool | None:
    if _kind(wanted) != _kind(given):
        return None
    if wanted == given:
        return True
    return None if _lookalike((wanted,), given) else False


def _lookalike(wanted: tuple[Scalar, ...], given: Any) -> bool:
    """Whether a text differs from one of these in nothing but case, width or invisible signs."""
    if not isinstance(given, str):
        return isinstance(given, float) and math.isnan(given)
    flat = as_seen(given).casefold().strip()
    return any(as_seen(each).casefold().strip() == flat for each in wanted if isinstance(each, str))


def _number(value: Any) -> Decimal | None:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        return None
    try:
        number = Decimal(str(value))
    except (InvalidOperation, ValueError):
        return None
    return number if number.is_finite() else None


def _amount(value: Any) -> Decimal | None:
    if isinstance(value, str):
        return Decimal(value) if AMOUNT.fullmatch(value) else None
    return _number(value)


def _within(number: Decimal, low: float | None, high: float | None) -> bool:
    return (low is None or number >= Decimal(str(low))) and (
        high is None or number <= Decimal(str(high))
    )


# ---------------------------------------------------------------- three answers


def _all(found: Iterable[bool | None]) -> bool | None:
    answers = [*found]
    return False if False in answers else None if None in answers else True


def _any(found: Iterable[bool | None]) -> bool | None:
    answers = [*found]
    return True if True in answers else None if None in answers else False
