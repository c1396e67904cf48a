"""From what a tool returned to strict JSON: a written rule for every type, never a guess.

    ===============================================  ======================================
    a tool returns                                   the journal and the model read
    ===============================================  ======================================
    None, bool, int, float                           the same; an int beyond 64 bits: text
    NaN, ±infinity                                   null
    str                                              text; NUL as ␀, half a surrogate as U+FFFD
    bytes, bytearray, memoryview                     {"base64": …, "bytes": how many}
    datetime, date, time, timedelta                  ISO 8601 text
    Decimal, Fraction, UUID, Path, IP address        text
    Enum                                             its value
    list, tuple, deque, range, other sequences       list
    generator, other iterators                       list of at most 10,000 items
    set, frozenset, other sets                       sorted list
    dict, other mappings                             object; keys: text, numbers, bool, Enum,
                                                     UUID, dates
    namedtuple, TypedDict, dataclass, attrs class    object of its fields
    pydantic model, msgspec struct                   object, as the model writes itself
    msgspec Raw                                      the JSON it holds
    exception                                        {"error": its type, "message": …}
    numpy array or scalar                            list or number
    ===============================================  ======================================

Anything else, a cycle, more than 64 levels or more than the bounds below is refused with
`UnserialisableResult`, which names the place and the type.
"""

from __future__ import annotations

import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import math
import pathlib
import uuid
from base64 import b64encode
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from itertools import islice
from typing import Any

import msgspec

from cairn.core.messages import clean
from cairn.errors import ErrorClass, ToolError, words_of
from cairn.tools.text import clip, shorten

__all__ = ["UnserialisableResult", "clip", "drain", "stand_in", "to_json"]

MAX_DEPTH = 64
MAX_ITEMS = 10_000
"""How many items of an iterator are taken; a list may be longer."""
MAX_PLAIN = 500_000
"""How many values a result of JSON's own types may hold."""
MAX_NODES = 100_000
"""How many values it may hold where rules must be applied to them."""
MAX_BYTES = 32 * 1024 * 1024
"""Size of the JSON of one result."""

LEAST_INT, GREATEST_INT = -(2**63), 2**64 - 1
"""Integers beyond are text: readers of JSON cannot hold them."""

Value = Any
"""What a user's function gives: anything."""

_PLAIN = frozenset({str, float, bool, type(None)})
_encode = msgspec.json.Encoder().encode


class UnserialisableResult(ToolError):
    """The tool returned something that has no JSON by the rules of this module.

    The call itself was made: its effect has happened.

    Attributes:
        path: Where in the result, as `result.items[3].owner`.
    """

    def __init__(
        self, path: str, problem: str, *, error_class: ErrorClass = ErrorClass.TOOL_ERROR
    ) -> None:
        super().__init__(f"{path} {problem}", error_class=error_class)
        self.path = path


def to_json(value: object, *, limit: int = MAX_BYTES) -> msgspec.Raw:
    """A tool's result as strict JSON, by the rules of this module.

    Args:
        value: What the tool returned.
        limit: Size of the JSON in bytes, at most.

    Raises:
        UnserialisableResult: there is no rule for it, or it is too large.
    """
    left = [MAX_PLAIN]
    try:
        if _is_plain(value, 0, left):
            encoded = _encode(value)
            if b"\\u0000" not in encoded and len(encoded) <= limit:
                return msgspec.Raw(encoded)
    except (UnicodeEncodeError, OverflowError):
        pass  # the walk below has a rule for it
    if left[0] <= 0:
        problem = f"holds more than {MAX_PLAIN} values"
        raise UnserialisableResult("result", problem, error_class=ErrorClass.RESULT_TOO_LARGE)
    try:
        encoded = _encode(_Walk().convert(value, 0))
    except _RefusedError as refused:
        raise UnserialisableResult(
            f"result{refused.path}", refused.problem, error_class=refused.error_class
        ) from refused.__cause__
    except RecursionError as error:
        raise UnserialisableResult("result", "is nested too deeply") from error
    if len(encoded) > limit:
        problem = f"has {len(encoded)} bytes as JSON; at most {limit} are kept"
        raise UnserialisableResult("result", problem, error_class=ErrorClass.RESULT_TOO_LARGE)
    return msgspec.Raw(encoded)


def stand_in(error: UnserialisableResult) -> msgspec.Raw:
    """What is recorded as the result of a call that ran, but returned something unwritable."""
    note = (
        "The tool ran and returned, but its result cannot be shown; do not call it again for that"
    )
    return msgspec.Raw(
        _encode({"error": type(error).__name__, "message": clean(str(error)), "note": note})
    )


def drain(items: Iterator[Any]) -> list[Any]:
    """The items of an iterator, while the tool's own time runs.

    Raises:
        UnserialisableResult: it gives more than 10,000.
    """
    taken = list(islice(items, MAX_ITEMS + 1))
    if len(taken) > MAX_ITEMS:
        problem = f"gives more than {MAX_ITEMS} items; return a list of what is wanted"
        raise UnserialisableResult("result", problem, error_class=ErrorClass.RESULT_TOO_LARGE)
    return taken


def _is_plain(value: Value, depth: int, left: list[int]) -> bool:
    """Whether the value is made of JSON's own types only, and not too much of them."""
    kind = type(value)
    if kind in _PLAIN:
        return True
    if kind is int:
        return bool(LEAST_INT <= value <= GREATEST_INT)
    if depth >= MAX_DEPTH:
        return False
    if kind is dict:
        left[0] -= len(value)
        for key, item in value.items():
            if type(key) is not str:
                return False
            if type(item) not in _PLAIN and not _is_plain(item, depth + 1, left):
                return False
        return left[0] > 0
    if kind is list:
        left[0] -= len(value)
        for item in value:
            if type(item) not in _PLAIN and not _is_plain(item, depth + 1, left):
                return False
        return left[0] > 0
    return False


class _RefusedError(Exception):
    """Grows its path on the way out, so that nothing is spent on paths when all is well."""

    def __init__(
        self, problem: str, error_class: ErrorClass = ErrorClass.TOOL_ERROR, path: str = ""
    ) -> None:
        super().__init__(problem)
        self.problem = problem
        self.error_class = error_class
        self.path = path

    def under(self, part: object) -> None:
        if isinstance(part, int) and not isinstance(part, bool):
            self.path = f"[{part}]{self.path}"
        else:
            self.path = f".{shorten(str(part), 40)}{self.path}"


class _Walk:
    """One walk through a result; it knows what it is inside of, and how much it has seen."""

    def __init__(self) -> None:
        self._inside: set[int] = set()
        self._left = MAX_NODES

    def convert(self, value: Value, depth: int) -> Value:
        kind = type(value)
        if kind is str:
            return clean(value)
        if value is None or kind is bool:
            return value
        if kind is float:
            return value if math.isfinite(value) else None
        if kind is int:
            return value if LEAST_INT <= value <= GREATEST_INT else _digits(value)
        if depth > MAX_DEPTH:
            raise _RefusedError(f"is nested more than {MAX_DEPTH} levels deep")
        if id(value) in self._inside:
            raise _RefusedError(f"contains itself ({kind.__name__})")
        self._inside.add(id(value))
        try:
            return self._compound(value, depth)
        except _RefusedError:
            raise
        except Exception as error:  # properties, iterators and model hooks are the user's own code
            said = words_of(error)
            raise _RefusedError(f"({kind.__name__}) raised {shorten(said, 200)}") from error
        finally:
            self._inside.discard(id(value))

    def _compound(self, value: Value, depth: int) -> Value:
        if exact := _EXACT.get(type(value)):
            return exact(self, value, depth)
        for kinds, rule in _RULES:
            if isinstance(value, kinds):
                return rule(self, value, depth)
        shown = _foreign(value)
        if shown is not value:
            return self.convert(shown, depth + 1)
        name = f"{type(value).__module__}.{type(value).__qualname__}"
        hint = "; declare the tool async" if hasattr(value, "__await__") else ""
        raise _RefusedError(f"is of the type {name}, for which there is no JSON{hint}")

    def fields(self, pairs: Iterable[tuple[Any, Any]], depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            name = key if type(key) is str and key.isascii() else self._key(key, depth)
            try:
                self._count()
                if "\0" in name:
                    name = clean(name)
                if name in found:
                    raise _RefusedError("stands twice once its key is text")
                found[name] = self.convert(value, depth + 1)
            except _RefusedError as refused:
                refused.under(name)
                raise
        return found

    def items(self, values: Iterable[Any], depth: int) -> list[Any]:
        found: list[Any] = []
        for value in values:
            try:
                self._count()
                found.append(self.convert(value, depth + 1))
            except _RefusedError as refused:
                refused.under(len(found))
                raise
        return found

    def _key(self, key: object, depth: int) -> str:
        written = self.convert(key, depth + 1)
        if isinstance(written, str):
            return written
        if isinstance(written, bool | int | float):
            return _encode(written).decode()
        raise _RefusedError(f"has a key of the type {type(key).__name__}; keys must be text")

    def _count(self) -> None:
        self._left -= 1
        if self._left < 0:
            problem = f"is part of more than {MAX_NODES} values"
            raise _RefusedError(problem, ErrorClass.RESULT_TOO_LARGE)


def _digits(value: int) -> str:
    """The number as text; as hexadecimal where Python refuses to write so many digits."""
    try:
        return str(value)
    except ValueError:
        return hex(value)


# ---------------------------------------------------------------- the rules, first match wins

_Rule = Callable[[_Walk, Any, int], Any]


def _bytes(walk: _Walk, value: Value, depth: int) -> Value:
    raw = bytes(value)
    return {"base64": b64encode(raw).decode(), "bytes": len(raw)}


def _text(walk: _Walk, value: Value, depth: int) -> Value:
    return clean(str(value))


def _iso(walk: _Walk, value: Value, depth: int) -> Value:
    return value.isoformat()


def _duration(walk: _Walk, value: Value, depth: int) -> Value:
    return msgspec.to_builtins(value)


def _value(walk: _Walk, value: Value, depth: int) -> Value:
    return walk.convert(value.value, depth + 1)


def _int(walk: _Walk, value: Value, depth: int) -> Value:
    return walk.convert(int(value), depth)


def _float(walk: _Walk, value: Value, depth: int) -> Value:
    return walk.convert(float(value), depth)


def _error(walk: _Walk, value: Value, depth: int) -> Value:
    return {"error": type(value).__name__, "message": clean(str(value))}


def _struct(walk: _Walk, value: Value, depth: int) -> Value:
    names = zip(value.__struct_encode_fields__, value.__struct_fields__, strict=True)
    pairs = [(name, getattr(value, field)) for name, field in names]
    tag = value.__struct_config__
    if tag.tag is not None:
        pairs.insert(0, (tag.tag_field, tag.tag))
    return walk.fields([pair for pair in pairs if pair[1] is not msgspec.UNSET], depth)


def _raw(walk: _Walk, value: Value, depth: int) -> Value:
    return walk.convert(msgspec.json.decode(value), depth + 1)


def _mapping(walk: _Walk, value: Value, depth: int) -> Value:
    return walk.fields(value.items(), depth)


def _sequence(walk: _Walk, value: Value, depth: int) -> Value:
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return walk.fields(zip(value._fields, value, strict=True), depth)
    return walk.items(value, depth)


def _set(walk: _Walk, value: Value, depth: int) -> Value:
    items = walk.items(value, depth)
    kinds = {type(item) for item in items}
    natural = kinds <= {str} or kinds <= {int, float}
    return sorted(items, key=None if natural else _encode)


def _iterator(walk: _Walk, value: Value, depth: int) -> Value:
    try:
        return walk.items(drain(value), depth)
    except UnserialisableResult as error:
        problem = f"gives more than {MAX_ITEMS} items; return a list of what is wanted"
        raise _RefusedError(problem, error.error_class) from None


_RULES: tuple[tuple[tuple[type, ...] | type, _Rule], ...] = (
    (enum.Enum, _value),
    (str, _text),
    (int, _int),
    (float, _float),
    ((bytes, bytearray, memoryview), _bytes),
    ((dt.date, dt.time), _iso),
    (dt.timedelta, _duration),
    ((decimal.Decimal, fractions.Fraction, uuid.UUID, pathlib.PurePath), _text),
    ((ipaddress.IPv4Address, ipaddress.IPv6Address), _text),
    (BaseException, _error),
    (msgspec.Struct, _struct),
    (msgspec.Raw, _raw),
    (Mapping, _mapping),
    (AbstractSet, _set),
    (Sequence, _sequence),
    (Iterator, _iterator),
)

_EXACT: dict[type, _Rule] = {
    dict: _mapping,
    list: _sequence,
    tuple: _sequence,
    set: _set,
    bytes: _bytes,
    dt.datetime: _iso,
}
"""The most frequent of them, found without asking each rule."""


def _foreign(value: Value) -> Value:
    """What stands for a value of a library that may not be installed; the value itself if none."""
    kind = type(value)
    if hasattr(kind, "__pydantic_serializer__") and hasattr(value, "model_dump"):
        return value.model_dump()
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {each.name: getattr(value, each.name) for each in dataclasses.fields(value)}
    if hasattr(kind, "__attrs_attrs__"):
        return {each.name: getattr(value, each.name) for each in kind.__attrs_attrs__}
    if kind.__module__.partition(".")[0] == "numpy" and hasattr(value, "tolist"):
        return value.tolist()
    return value
