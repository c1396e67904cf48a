"""Arguments held to a schema that a stranger wrote: bounded in size, depth, steps and patterns.

Nothing is fetched, whatever a reference says. Patterns are matched in linear time. A schema that
cannot be used so is refused when its tool is listed, by name.
"""

from __future__ import annotations

import importlib
import threading
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import msgspec

from cairn.core.messages import Record
from cairn.core.names import MESSAGE_CHARS, nearest
from cairn.core.rules import Check, Problem
from cairn.tools import linear
from cairn.tools.arguments import read_object
from cairn.tools.shapes import Schema, shape
from cairn.tools.text import shorten

MAX_BYTES = 64 * 1024
MAX_DEPTH = 40
MAX_NODES = 4_000
MAX_STEPS = 20_000
"""Rules of the schema that are applied to one set of arguments; a hostile one doubles for ever."""
MAX_ARGUMENTS = 256 * 1024
MAX_PATTERN = 1_000
FAULTS_SHOWN = 8

DYNAMIC = frozenset({"$dynamicRef", "$recursiveRef"})
COSTLY = frozenset({"unevaluatedProperties", "unevaluatedItems"})
HIDDEN = frozenset({"$schema", "$id", "allOf", "anyOf", "else", "if", "not", "oneOf", "then"})
"""What providers refuse at the top of a schema; it is checked here all the same."""


class Unusable(Exception):
    """A schema that arguments cannot be held to here."""


class _TooLong(Exception):
    """Checking takes more steps than anything honest needs."""


class Bound(Record, gc=True):
    """How a tool's arguments are checked, what the model is told of them, and the whole schema."""

    shown: Schema
    check: Check
    whole: Schema


def bind(name: str, schema: object) -> Bound:
    """The check for arguments of a tool.

    Raises:
        Unusable: says why.
    """
    if not isinstance(schema, dict):
        raise Unusable("its schema is no object")
    _measure(schema)
    if schema.get("type", "object") != "object":
        raise Unusable("its arguments are no object")
    validator = _validator(schema)
    shown = {key: value for key, value in schema.items() if key not in HIDDEN}
    shown = {**shown, "type": "object", "properties": shown.get("properties", {})}
    return Bound(shown=shown, check=_check(name, validator, shown), whole=schema)


def _check(name: str, validator: Any, shown: Schema) -> Check:
    def check(text: str) -> dict[str, Any] | Problem:
        if len(text) > MAX_ARGUMENTS:
            said = f"The arguments of {name} are {len(text):,} characters long; give less"
            return Problem(message=said)
        given = read_object(text)
        if isinstance(given, str):
            return Problem(message=shorten(f"The arguments of {name} {given}", MESSAGE_CHARS))
        try:
            faults = _faults(validator, given)
        except _TooLong:
            return Problem(
                message=f"The arguments of {name} cannot be checked: its schema never ends"
            )
        except RecursionError:
            return Problem(message=f"The arguments of {name} are nested too deeply")
        except Exception as error:  # a stranger's schema may break a rule in any way
            said = f"The arguments of {name} cannot be checked ({type(error).__name__})"
            return Problem(message=said)
        return _problem(name, faults, shown) if faults else given

    return check


def _faults(validator: Any, given: dict[str, Any]) -> list[str]:
    _steps.left = MAX_STEPS
    found = []
    for error in validator.iter_errors(given):
        place = [*map(str, error.absolute_path)]
        name = _lost(error)
        where = ".".join([*place, name] if name else place) or "the whole"
        said = _missing(name, error) if name else str(error.message)
        found.append(f"- {shorten(where, 100)}: {shorten(said, 400)}")
        if len(found) > FAULTS_SHOWN:
            break
    return found


def _lost(error: Any) -> str:
    """The field that a `required` misses; empty for any other fault."""
    given = error.instance
    if error.validator != "required" or not isinstance(given, dict):
        return ""
    missing = (n for n in error.validator_value if isinstance(n, str) and n not in given)
    return next((n for n in missing if str(error.message).startswith(repr(n))), "")


def _missing(name: str, error: Any) -> str:
    """That a field is missing, and which field that nobody knows may have been meant for it."""
    known = error.schema.get("properties", {}) if isinstance(error.schema, dict) else {}
    other = nearest(name, [n for n in error.instance if isinstance(n, str) and n not in known])
    if not other:
        return "missing"
    return f"missing; {shorten(other[0], 40)!r} is not known; did you mean {shorten(name, 40)!r}"


def _problem(name: str, faults: list[str], shown: Schema) -> Problem:
    lines = [f"The arguments of {name} do not fit; it was not run.", *faults[:FAULTS_SHOWN]]
    if len(faults) > FAULTS_SHOWN:
        lines.append("- and more")
    lines.append(f"Expected: {shape(shown, shown)}")
    return Problem(message=shorten("\n".join(lines), MESSAGE_CHARS))


# ---------------------------------------------------------------- what may be in a schema


def _measure(schema: Schema) -> None:
    """Refuse what is too large, reaches outside, or cannot be bounded.

    Raises:
        Unusable: it is.
    """
    nodes = 0
    refers, costly = False, ""
    waiting: list[tuple[Any, int]] = [(schema, 0)]
    while waiting:
        each, depth = waiting.pop()
        nodes += 1
        if nodes > MAX_NODES:
            raise Unusable(f"its schema has over {MAX_NODES:,} parts")
        if depth > MAX_DEPTH:
            raise Unusable(f"its schema is nested over {MAX_DEPTH} deep")
        if isinstance(each, dict):
            _examine(each)
            refers = refers or isinstance(each.get("$ref"), str)
            costly = costly or next((key for key in COSTLY if key in each), "")
            waiting += [(value, depth + 1) for value in each.values()]
        elif isinstance(each, list):
            waiting += [(value, depth + 1) for value in each]
    if refers and costly:
        raise Unusable(f"its schema uses {costly} together with references")
    try:
        size = len(msgspec.json.encode(schema))
    except (TypeError, ValueError, RecursionError) as error:
        raise Unusable(f"its schema is no JSON ({error})") from None
    if size > MAX_BYTES:
        raise Unusable(f"its schema has {size:,} bytes, more than {MAX_BYTES:,}")


def _examine(part: Schema) -> None:
    """Refuse rules that reach outside or cannot be bounded. Fields may have any name."""
    reference, pattern = part.get("$ref"), part.get("pattern")
    if isinstance(reference, str) and not reference.startswith("#"):
        raise Unusable(f"its schema refers to {shorten(reference, 80)}, which is never fetched")
    if found := DYNAMIC & set(part):
        raise Unusable(f"its schema uses {min(found)}")
    if isinstance(pattern, str):
        matcher(pattern)
    patterns = part.get("patternProperties")
    for each in patterns if isinstance(patterns, dict) else ():
        matcher(each)


def _jsonschema() -> Any:
    """The library, which has no types."""
    return importlib.import_module("jsonschema")


@cache
def _dialects() -> dict[type, type]:
    return {}


def _validator(schema: Schema) -> Any:
    from referencing import Registry

    jsonschema = _jsonschema()
    dialect = jsonschema.validators.validator_for(schema, default=jsonschema.Draft202012Validator)
    plain = {key: value for key, value in schema.items() if key not in {"$id", "id", "$schema"}}
    try:
        dialect.check_schema(plain, format_checker=None)
    except jsonschema.SchemaError as error:
        raise Unusable(f"its schema is none ({shorten(str(error.message), 120)})") from None
    except Exception as error:  # a stranger's schema may break the check in any way
        raise Unusable(f"its schema cannot be read ({type(error).__name__})") from None
    counted = _dialects().get(dialect)
    if counted is None:
        counted = _dialects()[dialect] = _counted(dialect)
    validator = counted(plain, registry=Registry())
    _try(validator, plain)
    return validator


def _try(validator: Any, schema: Schema) -> None:
    """Find out now what would never end or lead nowhere.

    Raises:
        Unusable: it does.
    """
    for reference in _references(schema):
        try:
            validator._resolver.lookup(reference)  # noqa: SLF001 - there is no public way to ask
        except Exception as error:  # whatever it is, the reference leads nowhere
            said = f"its schema refers to {shorten(reference, 80)}, which is not in it"
            raise Unusable(said) from error
    try:
        _faults(validator, {})
    except _TooLong:
        raise Unusable("its schema never ends") from None
    except RecursionError:
        raise Unusable("its schema refers to itself without end") from None
    except Exception as error:  # as in the check itself
        raise Unusable(f"its schema cannot be applied ({type(error).__name__})") from None


def _references(schema: Any) -> Iterator[str]:
    waiting = [schema]
    while waiting:
        each = waiting.pop()
        if isinstance(each, dict):
            reference = each.get("$ref")
            if isinstance(reference, str):
                yield reference
            waiting += each.values()
        elif isinstance(each, list):
            waiting += each


# ---------------------------------------------------------------- bounded checking


class _Steps(threading.local):
    """How many rules the check at work in this thread may still apply."""

    left = MAX_STEPS


_steps = _Steps()


def _counted(dialect: Any) -> type:
    """The dialect, each of whose rules costs a step, with patterns matched in linear time."""
    rules = dict(dialect.VALIDATORS)
    rules["pattern"] = _pattern
    rules["patternProperties"] = _pattern_properties
    rules["additionalProperties"] = _additional_properties
    rules["uniqueItems"] = _unique_items
    made: type = _jsonschema().validators.extend(
        dialect, {key: _costed(rule) for key, rule in rules.items()}
    )
    return made


def _costed(rule: Callable[..., Any]) -> Callable[..., Any]:
    def costed(validator: Any, value: Any, instance: Any, schema: Any) -> Iterator[Any]:
        _steps.left -= 1
        if _steps.left < 0:
            raise _TooLong
        yield from rule(validator, value, instance, schema) or ()

    return costed


def matcher(pattern: str) -> Callable[[str], bool]:
    """Whether a text holds the pattern, found in time that grows with the text and no faster.

    Raises:
        Unusable: it cannot be matched so: it is too long, or looks around or back.
    """
    if len(pattern) > MAX_PATTERN:
        raise Unusable(f"its schema has a pattern of {len(pattern)} characters")
    try:
        return linear.matcher(pattern)
    except ValueError:
        raise Unusable(f"its schema has the pattern {shorten(pattern, 80)!r}") from None


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if isinstance(instance, str) and not matcher(pattern)(instance):
        yield _jsonschema().ValidationError(f"it does not match the pattern {shorten(pattern, 80)}")


def _pattern_properties(validator: Any, patterns: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    for pattern, rule in patterns.items():
        matches = matcher(pattern)
        for name, value in instance.items():
            if matches(name):
                yield from validator.descend(value, rule, path=name, schema_path=pattern)


def _additional_properties(validator: Any, rule: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if not isinstance(instance, dict):
        return
    patterns = [matcher(each) for each in schema.get("patternProperties", ())]
    known = schema.get("properties", {})
    extra = [n for n in instance if n not in known and not any(m(n) for m in patterns)]
    if isinstance(rule, dict):
        for name in extra:
            yield from validator.descend(instance[name], rule, path=name)
    elif rule is False and extra:
        said = (_unknown(name, [n for n in known if n not in instance]) for name in extra[:8])
        yield _jsonschema().ValidationError("; ".join(said))


def _unknown(name: str, free: list[str]) -> str:
    close = nearest(name, free)
    meant = f"; did you mean {' or '.join(repr(shorten(n, 40)) for n in close)}" if close else ""
    return f"{shorten(name, 40)!r} is not known{meant}"


def _unique_items(validator: Any, wanted: Any, instance: Any, schema: Any) -> Iterator[Any]:
    if wanted and isinstance(instance, list):
        seen = {msgspec.json.encode(each, order="sorted") for each in instance}
        if len(seen) != len(instance):
            yield _jsonschema().ValidationError("its items are not all different")
