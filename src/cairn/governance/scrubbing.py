"""Errors without secrets: what they say, their notes and attributes, and the errors behind them.

An error is changed in place, so that it stays what it was for who catches it. Where that cannot
be, as with the words of a group, another one stands in its place.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from cairn.core.redaction import Redaction

MOST_DEEP = 8
"""Containers one in the other that are gone into; what is deeper is told by its `repr` alone."""
_SETTERS = (types.MemberDescriptorType, types.GetSetDescriptorType)
_CHAIN = ("__cause__", "__context__")


def scrub(error: BaseException, redaction: Redaction) -> BaseException:
    """Take secrets out of an error and of all that can be reached from it.

    Returns:
        The error to raise: the same one, or what stands in its place.
    """
    known = _reached(error)
    for each in reversed(known):  # members before their group
        _scrub_one(each, redaction)
    instead = _replaced(known, redaction)
    for each in (*known, *instead.values()):
        _relink(each, instead)
    return instead.get(id(error), error)


def _reached(error: BaseException) -> list[BaseException]:
    """This error and those behind it, inside it, or given to it; each once."""
    seen: dict[int, BaseException] = {}
    left: list[BaseException | None] = [error]
    while left:
        each = left.pop()
        if each is None or id(each) in seen:
            continue
        seen[id(each)] = each
        left += (each.__cause__, each.__context__)
        if isinstance(each, BaseExceptionGroup):
            left += each.exceptions
        left += (value for _, value in _attributes(each) if isinstance(value, BaseException))
        left += (value for value in each.args if isinstance(value, BaseException))
    return list(seen.values())


def _attributes(error: BaseException) -> Iterator[tuple[str, Any]]:
    """What an error holds beside its chain: of its own, and in slots as `OSError.filename`."""
    names = dict.fromkeys(getattr(error, "__dict__", {}))
    for kind in type(error).__mro__:
        for name, slot in vars(kind).items():
            if isinstance(slot, _SETTERS) and (not name.startswith("__") or name == "__notes__"):
                names[name] = None
    names.pop("args", None)
    for name in names:
        with suppress(Exception):  # a slot that was never filled, or a property that fails
            yield name, getattr(error, name)


def _scrub_one(error: BaseException, redaction: Redaction) -> None:
    args = tuple(_said(redaction, arg, MOST_DEEP) for arg in error.args)
    if any(one is not other for one, other in zip(args, error.args, strict=True)):
        error.args = args
    for name, value in list(_attributes(error)):
        hidden = value if _is_error(value) else _said(redaction, value, MOST_DEEP)
        if hidden is not value:
            with suppress(Exception):  # read only: `_replaced` finds out whether it shows
                setattr(error, name, hidden)


def _is_error(value: object) -> bool:
    return isinstance(value, BaseException)


def _said(redaction: Redaction, value: Any, deep: int) -> Any:
    """A value without secrets; the very same where there is none in it."""
    if value is None or isinstance(value, bool) or (deep == MOST_DEEP and _is_error(value)):
        return value
    if isinstance(value, str):
        text = redaction.text(value)
        return value if text == value else text
    if isinstance(value, bytes | bytearray):
        text = bytes(value).decode("utf-8", "surrogateescape")
        hidden = redaction.text(text)
        return value if hidden == text else hidden.encode("utf-8", "surrogateescape")
    if deep and type(value) in {list, tuple, set, frozenset}:
        items = [_said(redaction, item, deep - 1) for item in value]
        same = all(one is other for one, other in zip(value, items, strict=True))
        return value if same else type(value)(items)
    if deep and type(value) is dict:
        pairs = [[_said(redaction, each, deep - 1) for each in pair] for pair in value.items()]
        same = all(n is m and v is w for (n, v), (m, w) in zip(value.items(), pairs, strict=True))
        return value if same else dict(pairs)
    told = _told(value)
    hidden = redaction.text(told)
    return value if hidden == told else hidden


def _told(value: Any) -> str:
    """All that can be read from an object by printing it."""
    told = []
    for show in (repr, str):
        with suppress(BaseException):  # what cannot be read, for SystemExit even, says nothing
            told.append(show(value))
    return "\n".join(dict.fromkeys(told))


def _replaced(known: list[BaseException], redaction: Redaction) -> dict[int, BaseException]:
    """What stands in the place of errors that still say a secret, by their `id`."""
    instead: dict[int, BaseException] = {}
    grown = True
    while grown:  # a group in a group is made anew after the one in it
        grown = False
        for each in reversed(known):
            if id(each) in instead:
                continue
            if isinstance(each, BaseExceptionGroup):
                other = _group(each, instead, redaction)
            else:
                other = _stand_in(each, redaction)
            if other is not None:
                instead[id(each)] = other
                grown = True
    return instead


def _group(
    group: BaseExceptionGroup[BaseException], instead: Mapping[int, BaseException], r: Redaction
) -> BaseException | None:
    message = r.text(group.message)
    if message == group.message and not any(id(each) in instead for each in group.exceptions):
        return None
    made = BaseExceptionGroup(message, [instead.get(id(e), e) for e in group.exceptions])
    return _like(made, group)


def _stand_in(error: BaseException, redaction: Redaction) -> BaseException | None:
    told = _told(error)
    hidden = redaction.text(told)
    if hidden == told:
        return None
    return _like(_same_kind(error, redaction), error)


def _same_kind(error: BaseException, redaction: Redaction) -> BaseException:
    """An error that is caught where this one is, and says nothing but this text."""
    name, said = type(error).__name__, ""
    with suppress(Exception):  # what cannot be read says nothing
        said = redaction.text(str(error))
    shown = {"__str__": lambda _: said, "__repr__": lambda _: f"{name}({said!r})"}
    try:
        kind: type[BaseException] = types.new_class(
            name, (type(error),), {}, lambda body: body.update(shown)
        )
        made = kind.__new__(kind)
    except Exception:  # a kind that nobody can derive from, or that needs to be given something
        return (Exception if isinstance(error, Exception) else BaseException)(f"{name}: {said}")
    made.args = (said,)
    for attribute, value in _attributes(error):
        if _is_error(value) or _said(redaction, value, MOST_DEEP) is value:
            with suppress(Exception):  # read only
                setattr(made, attribute, value)
    return made


def _like(made: BaseException, error: BaseException) -> BaseException:
    made.__cause__, made.__context__ = error.__cause__, error.__context__
    made.__suppress_context__ = error.__suppress_context__
    for note in getattr(error, "__notes__", ()):
        made.add_note(str(note))
    return made.with_traceback(error.__traceback__)


def _relink(error: BaseException, instead: Mapping[int, BaseException]) -> None:
    """Have its chain, its arguments and its attributes lead to what stands in the place."""
    suppressed = error.__suppress_context__
    for name in _CHAIN:
        before = getattr(error, name)
        if before is not None and id(before) in instead:
            setattr(error, name, instead[id(before)])
    error.__suppress_context__ = suppressed
    if isinstance(error, BaseExceptionGroup):
        return
    if any(id(arg) in instead for arg in error.args):
        error.args = tuple(instead.get(id(arg), arg) for arg in error.args)
    for name, value in list(_attributes(error)):
        if id(value) in instead:
            with suppress(Exception):  # read only
                setattr(error, name, instead[id(value)])
