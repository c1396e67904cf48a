"""Reads what a model wrote as arguments: into what the tool is called with, or what is wrong.

The schema decides. Arguments are read strictly; only where they do not fit, and the field cannot
be text, is text that holds JSON taken for the JSON it holds. What is valid is never touched.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.core.messages import Record
from cairn.core.names import MESSAGE_CHARS, listed, nearest
from cairn.core.rules import Check, Problem
from cairn.errors import words_of
from cairn.tools.schema import Arguments
from cairn.tools.shapes import Schema, fields, find, shape
from cairn.tools.text import preview, shorten

if TYPE_CHECKING:
    from pydantic import ValidationError

FAULTS_SHOWN = 8
"""How many faults one message lists; the rest is counted."""
MENDS = 3
"""How often text inside text is opened."""

NOT_TEXT = frozenset(
    {"int_type", "int_from_float", "float_type", "bool_type", "none_required", "list_type"}
    | {"tuple_type", "set_type", "frozen_set_type", "dict_type", "mapping_type", "iterable_type"}
    | {"model_type", "model_attributes_type", "dataclass_type", "dataclass_exact_type"}
)
"""Faults that say: text cannot stand here."""
CHOICES = frozenset({"literal_error", "enum"})
UNKNOWN_FIELD = frozenset({"extra_forbidden", "unexpected_keyword_argument"})
MISSING_FIELD = frozenset({"missing", "missing_argument", "missing_keyword_only_argument"})

Path = tuple[str | int, ...]

Given = Any
"""JSON as it was decoded: anything may stand anywhere."""

_decode = msgspec.json.Decoder().decode


class Fault(Record, gc=True):
    """One thing that does not fit: where, what is said about it, and what stands there."""

    path: Path
    kinds: frozenset[str]
    said: tuple[str, ...]
    given: Any
    open: bool
    """Whether text that stands here may be opened as JSON."""


def make_check(tool: str, arguments: Arguments) -> Check:
    """The check of a tool: from argument text to keyword arguments, or a `Problem`.

    Blank text and `null` mean `{}`. Parameters that were not given get their default, so that
    a policy sees all that the tool will be called with.
    """
    from pydantic import ValidationError

    validate, defaults = arguments.validate, arguments.defaults

    def check(text: str) -> dict[str, Any] | Problem:
        try:
            given = _decode(text)
            # As many colons as fields: no field stands twice. Otherwise it is looked at closely.
            if type(given) is dict and (text.count(":") == len(given) or not _doubled(text)):
                found = validate(text)
                return {**defaults, **found} if defaults else found
        except (msgspec.DecodeError, UnicodeError, RecursionError, ValidationError):
            pass  # what exactly is wrong is found out below
        except Exception as error:  # validators are code of the user's and may raise anything
            return _unchecked(tool, error)
        try:
            return _look_closely(tool, text, arguments)
        except BaseException as error:  # what is shown of a fault runs their code: its text
            return _unchecked(tool, error)

    return check


def make_check_some(tool: str, arguments: Arguments) -> Check:
    """As `make_check`, for some of the arguments: nothing is mended, missed or added."""
    from pydantic import ValidationError

    def check(text: str) -> dict[str, Any] | Problem:
        given = read_object(text)
        if isinstance(given, str):
            return Problem(message=shorten(f"The arguments of {tool} {given}", MESSAGE_CHARS))
        try:
            try:
                return arguments.some()(msgspec.json.encode(given))
            except ValidationError as error:
                return Problem(message=_message(tool, _faults(error, given), arguments.parameters))
        except BaseException as error:  # validators, and the text of what they raise: theirs too
            return _unchecked(tool, error)

    return check


def _look_closely(tool: str, text: str, arguments: Arguments) -> dict[str, Any] | Problem:
    from pydantic import ValidationError

    given = read_object(text)
    if isinstance(given, str):
        return Problem(message=shorten(f"The arguments of {tool} {given}", MESSAGE_CHARS))
    faults: list[Fault] = []
    for _ in range(MENDS + 1):
        try:
            return {**arguments.defaults, **arguments.validate(msgspec.json.encode(given))}
        except ValidationError as error:
            faults = _faults(error, given)
        if not _mend(given, faults):
            break
    return Problem(message=_message(tool, faults, arguments.parameters))


def read_object(text: str) -> dict[str, Any] | str:
    """The JSON object in the text, or the rest of the sentence "The arguments …"."""
    if not text.strip() or text.strip() == "null":
        return {}
    try:
        value = _decode(text)
        if type(value) is dict:
            return "name a field twice; each may stand once" if _doubled(text) else value
    except UnicodeError:
        return f"hold half of a character (a lone surrogate): {shorten(text, 80)}. Write it whole"
    except RecursionError:
        return f"are nested too deeply: {shorten(text, 80)}"
    except msgspec.DecodeError as error:
        return f"are not valid JSON: {error}. Given, {len(text)} characters: {shorten(text, 80)}"
    what = "a list" if type(value) is list else "text" if type(value) is str else "a single value"
    return f"must be a JSON object, but {what} was given: {shorten(text, 80)}"


class _Doubled(Exception):
    pass


def _once(pairs: list[tuple[str, Any]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _Doubled


_scan = json.JSONDecoder(object_pairs_hook=_once, strict=False)


def _doubled(text: str) -> bool:
    """Whether some object in the (valid) JSON text names a field twice."""
    try:
        _scan.decode(text)
    except _Doubled:
        return True
    return False


def _unchecked(tool: str, error: BaseException) -> Problem:
    said = words_of(error)
    return Problem(message=shorten(f"The arguments of {tool} were refused: {said}", MESSAGE_CHARS))


# ---------------------------------------------------------------- faults


def _faults(error: ValidationError, given: dict[str, Any]) -> list[Fault]:
    """The validator's findings, one per place; those of a union's members are one."""
    places: dict[Path, list[dict[str, Any]]] = {}
    for each in error.errors(include_url=False):
        path = _follow(each["loc"], given, each["type"])
        places.setdefault(path, []).append(dict(each))
    faults = []
    for path, found in places.items():
        kinds = frozenset(each["type"] for each in found)
        faults.append(
            Fault(
                path=path,
                kinds=kinds,
                said=tuple(dict.fromkeys(_said(each) for each in found)),
                given=None if kinds <= MISSING_FIELD else found[0]["input"],
                open=all(_no_text(each) for each in found),
            )
        )
    return faults


def _follow(loc: Sequence[Any], given: Given, kind: str) -> Path:
    """A validator's location as a path in what was given.

    Parts that lead nowhere are names of a union's members; the last part of a missing field
    leads nowhere either and stays.
    """
    path: list[str | int] = []
    for part in loc:
        if isinstance(given, list):
            inside = isinstance(part, int) and part < len(given)
        else:
            inside = isinstance(given, dict) and part in given
        if inside:
            given = given[part]
            path.append(part)
    if kind in MISSING_FIELD and loc and (not path or path[-1] != loc[-1]):
        path.append(loc[-1])
    return tuple(path)


def _no_text(found: dict[str, Any]) -> bool:
    if found["type"] in CHOICES:  # `1 or 2` may be opened, `'a' or 'b'` is text
        return "'" not in found.get("ctx", {}).get("expected", "'")
    return found["type"] in NOT_TEXT


def _said(found: dict[str, Any]) -> str:
    text = str(found["msg"]).removeprefix("Value error, ").removeprefix("Assertion failed, ")
    return text.replace("Input should be", "should be")


def _mend(given: dict[str, Any], faults: Iterable[Fault]) -> bool:
    """Put JSON in the place of text that holds it, where text cannot stand. Whether any was."""
    mended = False
    for fault in faults:
        if not fault.open or not fault.path:
            continue
        holder: Any = given
        for part in fault.path[:-1]:
            holder = holder[part]
        old = holder[fault.path[-1]]
        new = _opened(old, fault.kinds)
        if new is not old:
            holder[fault.path[-1]] = new
            mended = True
    return mended


def _opened(value: object, kinds: frozenset[str]) -> object:
    if isinstance(value, float) and "int_type" in kinds and value.is_integer():
        return int(value) if abs(value) < 2**53 else value
    if not isinstance(value, str):
        return value
    text = value.strip()
    if "bool_type" in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    try:
        return value if not text or _doubled(text) else _decode(text)
    except (ValueError, RecursionError):
        return value


# ---------------------------------------------------------------- what the model is told


def _message(tool: str, faults: list[Fault], root: Schema) -> str:
    lines = [f"The arguments of {tool} do not fit; it was not run."]
    lines += [f"- {_line(fault, root)}" for fault in faults[:FAULTS_SHOWN]]
    if len(faults) > FAULTS_SHOWN:
        lines.append(f"- and {len(faults) - FAULTS_SHOWN} more")
    lines.append(f"Expected: {shape(root, root)}")
    return shorten("\n".join(lines), MESSAGE_CHARS)


def _line(fault: Fault, root: Schema) -> str:
    where = shorten(_dotted(fault.path), 100) or "the whole"
    if fault.kinds <= UNKNOWN_FIELD:
        known = fields(root, fault.path[:-1])
        return f"{where}: there is no such field.{_suggestion(str(fault.path[-1]), known)}"
    wanted = " | ".join(dict.fromkeys(shape(each, root, 120) for each in find(root, fault.path)))
    expected = f"; expected {shorten(wanted, 160)}" if wanted else ""
    if fault.kinds <= MISSING_FIELD:
        return f"{where}: missing{expected}"
    said = shorten(" or ".join(fault.said), 200)
    if fault.given is None and _may_be_left_out(fault.path, root):
        expected += ", or leave it out"
    return f"{where}: {said}; given {preview(fault.given)}{expected}"


def _may_be_left_out(path: Path, root: Schema) -> bool:
    return bool(path) and any(
        path[-1] in holder.get("properties", ()) and path[-1] not in holder.get("required", ())
        for holder in find(root, path[:-1])
    )


def _dotted(path: Sequence[str | int]) -> str:
    text = ""
    for part in path:
        text += f"[{part}]" if isinstance(part, int) else f".{part}" if text else part
    return text


def _suggestion(name: str, known: Sequence[str]) -> str:
    close = nearest(name, known)
    meant = f" Did you mean {close[0]}?" if close else ""
    if not known:
        return f"{meant} None are known here"
    return f"{meant} Known: {listed(known)}"
