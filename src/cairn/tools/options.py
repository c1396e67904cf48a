"""What a tool declares beside its signature, checked when it is declared."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import ROUND_CEILING, Decimal
from sys import float_info
from typing import TYPE_CHECKING, Any, TypedDict, TypeVar, get_args

from cairn.core.events import Effect, Recovery
from cairn.core.names import listed, nearest
from cairn.core.rules import SECOND_US
from cairn.core.secrets import NAME as SECRET_NAME
from cairn.core.terms import ApprovalTerms
from cairn.errors import safe_repr
from cairn.tools.on_loop import watched
from cairn.tools.signature import Signature, refuse
from cairn.tools.theirs import is_async, is_theirs

if TYPE_CHECKING:
    from cairn.tools.tool import Tool

T = TypeVar("T")

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
"""What tools may be called; providers accept no more."""
LABEL = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]{0,99}")
"""What taint may be called."""
MIN_RESULT_BYTES = 256
"""A smaller bound would leave a clipped result nothing but its note."""
LONGEST_S = 366 * 24 * 3600.0


class Options(TypedDict, total=False):
    """The keyword arguments of `@tool`; see there."""

    name: str
    effect: Effect
    recovery: Recovery
    timeout: float
    conflict_key: str | Callable[[dict[str, Any]], str]
    fallback: str | Tool[..., Any]
    retries: int
    backoff: float
    cost: float
    micro_usd: int
    result_bytes: int
    settle: float
    key_ttl: float | None
    probe: Callable[..., Any]
    sources: bool
    approval: ApprovalTerms | None
    binds: str | Sequence[str] | Callable[[dict[str, Any]], Sequence[str]]
    taint: str | Sequence[str]
    secrets: str | Sequence[str] | Mapping[str, str | Sequence[str]]


KNOWN = tuple(Options.__annotations__)


def checked(tool: str, options: Options, signature: Signature) -> dict[str, Any]:
    """The options as fields of a `ToolSpec`.

    Raises:
        ToolDefinitionError: an option is unknown, has a bad value, or does not go with another.
    """
    for option in options:
        if option not in KNOWN:
            close = nearest(option, KNOWN)
            fix = f"Write {close[0]}=" if close else f"The options are {listed(KNOWN)}"
            raise refuse(tool, f"there is no option {safe_repr(option)}", fix)
    if not NAME.fullmatch(tool):
        fix = 'Give it one with name="...": letters, digits, _ and -, at most 64, no digit first'
        raise refuse(tool, "this name cannot be offered to a model", fix)
    effect = _one_of(tool, "effect", options.get("effect", "dangerous"), get_args(Effect))
    return {
        "effect": effect,
        "recovery": _recovery(tool, effect, options, signature),
        "timeout_us": _microseconds(tool, "timeout", options.get("timeout", 60.0), above=0.0),
        "settle_us": _microseconds(tool, "settle", options.get("settle", 0.0)),
        "key_ttl_us": _key_ttl(tool, options.get("key_ttl")),
        "conflict_key": _conflict_key(tool, options.get("conflict_key"), signature),
        "fallback": _fallback(tool, options.get("fallback", "")),
        "retries": _whole(tool, "retries", options.get("retries", 0), 0),
        "backoff_us": _microseconds(tool, "backoff", options.get("backoff", 0.5)),
        "micro_usd": _micro_usd(tool, options),
        "result_bytes": _whole(
            tool, "result_bytes", options.get("result_bytes", 16_384), MIN_RESULT_BYTES
        ),
        "sources": bool(options.get("sources", False)),
        "approval": _approval(tool, options.get("approval")),
        "binds": _binds(tool, options.get("binds"), signature),
        "taint": _taint(tool, options.get("taint", ())),
        "secrets": _secrets(tool, options.get("secrets", ()), signature),
    }


def _one_of(tool: str, option: str, value: object, allowed: tuple[str, ...]) -> str:
    if isinstance(value, str) and value in allowed:
        return value
    raise refuse(
        tool, f"{option}={safe_repr(value)} is not known", f"It is one of {', '.join(allowed)}"
    )


def _recovery(tool: str, effect: str, options: Options, signature: Signature) -> str:
    standard = "repeat" if effect == "read" else "once"
    recovery = _one_of(tool, "recovery", options.get("recovery", standard), get_args(Recovery))
    if effect == "read" and recovery != "repeat":
        problem = f'effect="read" does not go with recovery={safe_repr(recovery)}'
        fix = "A read can always be repeated: leave recovery out, or declare the effect it has"
        raise refuse(tool, problem, fix)
    if recovery == "keyed" and not signature.context:
        problem = 'recovery="keyed" needs the key that marks a repeat as the same call'
        raise refuse(tool, problem, "Add a parameter ctx: Context and send ctx.key along")
    if recovery == "probe" and "probe" not in options:
        problem = 'recovery="probe" needs a function that finds out whether the effect happened'
        raise refuse(tool, problem, "Give one as probe=")
    if recovery != "probe" and "probe" in options:
        raise refuse(tool, "probe= is never asked", 'Declare recovery="probe", or remove it')
    if recovery != "keyed" and options.get("key_ttl") is not None:
        raise refuse(tool, "key_ttl= has no key", 'Declare recovery="keyed", or remove it')
    return recovery


def _number(tool: str, option: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise refuse(tool, f"{option}={safe_repr(value)} is no number", "Give a number")
    if not abs(value) <= float_info.max:  # nan never is
        raise refuse(tool, f"{option}={safe_repr(value)} is no number", "Give a number")
    return float(value)


def _microseconds(tool: str, option: str, value: object, above: float | None = None) -> int:
    seconds = _number(tool, option, value)
    if seconds < 0 or seconds > LONGEST_S or (above is not None and seconds <= above):
        problem = f"{option}={safe_repr(value)} is no length of time in seconds"
        raise refuse(tool, problem, f"Give {'more than' if above is not None else 'at least'} 0")
    return math.ceil(seconds * SECOND_US)


def _key_ttl(tool: str, value: object) -> int:
    return 0 if value is None else _microseconds(tool, "key_ttl", value, above=0.0)


def _whole(tool: str, option: str, value: object, least: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < least:
        problem = f"{option}={safe_repr(value)} is not possible"
        raise refuse(tool, problem, f"Give a whole number of at least {least}")
    return value


def _micro_usd(tool: str, options: Options) -> int:
    if "cost" in options and "micro_usd" in options:
        raise refuse(tool, "cost= and micro_usd= both say what a call costs", "Remove one")
    if "micro_usd" in options:
        return _whole(tool, "micro_usd", options["micro_usd"], 0)
    usd = _number(tool, "cost", options.get("cost", 0.0))
    if usd < 0:
        raise refuse(tool, f"cost={safe_repr(usd)} is negative", "Give US dollars for one call")
    return int((Decimal(repr(usd)) * 1_000_000).to_integral_value(ROUND_CEILING))


def _taint(tool: str, value: object) -> tuple[str, ...]:
    labels = [value] if isinstance(value, str) else value
    if not isinstance(labels, list | tuple) or not all(map(_is_label, labels)):
        fix = 'Give a label such as "web", or several: small letters, digits, . _ : / and -'
        raise refuse(tool, f"taint={safe_repr(value)} is no label", fix)
    if reserved := {"any", "none"} & set(labels):
        fix = "Policies use that word for all labels, or for none: take another"
        raise refuse(tool, f"taint={min(reserved)!r} has a meaning of its own", fix)
    return tuple(sorted(set(labels)))


def _secrets(tool: str, value: object, signature: Signature) -> tuple[tuple[str, str], ...]:
    """Argument and name of each secret that the tool may be given."""
    if isinstance(value, Mapping):
        known = [each.name for each in signature.parameters]
        if foreign := [each for each in value if each not in known]:
            problem = f"secrets= names {foreign[0]!r}, which is none of its parameters"
            raise refuse(tool, problem, f"They are {listed(known) or 'none'}")
        pairs = [(at, name) for at, names in value.items() for name in _several(names)]
    else:
        pairs = [("", name) for name in _several(value)]
    for _, name in pairs:
        if not isinstance(name, str) or not SECRET_NAME.fullmatch(name):
            fix = "Give names of secrets as they are registered, or a parameter and its names"
            raise refuse(tool, f"secrets={safe_repr(value)} names no secret", fix)
    return tuple(sorted(set(pairs)))


def _several(names: object) -> list[Any]:
    return list(names) if isinstance(names, list | tuple | set | frozenset) else [names]


def _is_label(label: object) -> bool:
    return isinstance(label, str) and LABEL.fullmatch(label) is not None


def _fallback(tool: str, value: object) -> str:
    name = value if isinstance(value, str) else getattr(getattr(value, "spec", None), "name", None)
    if not isinstance(name, str):
        raise refuse(
            tool, f"fallback={safe_repr(value)} is no tool", "Give a tool or the name of one"
        )
    if name == tool:
        raise refuse(tool, "it is its own fallback", "Name another tool; retries= repeats this one")
    return name


def _approval(tool: str, value: object) -> ApprovalTerms | None:
    if value is None or isinstance(value, ApprovalTerms):
        return value
    raise refuse(tool, f"approval={safe_repr(value)} are no terms", "Give a cairn.ApprovalTerms")


def _binds(
    tool: str, value: object, signature: Signature
) -> Callable[[dict[str, Any]], Sequence[str]] | None:
    """From the arguments to the files they name: by a function, or by the parameters' names."""
    if value is None:
        return None
    if callable(value):
        return _asked_at_once(tool, "binds", value)
    named = (value,) if isinstance(value, str) else value
    known = [each.name for each in signature.parameters]
    if not isinstance(named, Sequence) or not named or not set(named) <= set(known):
        problem = f"binds={safe_repr(value)} are none of its parameters"
        raise refuse(tool, problem, f"They are {listed(known) or 'none'}")
    names = tuple(named)
    return lambda arguments: [path for name in names for path in _paths(arguments.get(name))]


def _paths(value: Any) -> list[str]:
    """One path, several, or none."""
    if value is None:
        return []
    many = isinstance(value, list | tuple | set | frozenset)
    return [str(each) for each in (value if many else [value])]


def _conflict_key(
    tool: str, value: object, signature: Signature
) -> Callable[[dict[str, Any]], str] | None:
    if value is None:
        return None
    if isinstance(value, str):
        names = [each.name for each in signature.parameters]
        if value not in names:
            problem = f"conflict_key={safe_repr(value)} is none of its parameters"
            raise refuse(tool, problem, f"They are {listed(names) or 'none'}")
        return lambda arguments: str(arguments[value])
    if not callable(value):
        fix = "Give a parameter's name, or a function from the arguments to a str"
        raise refuse(tool, f"conflict_key={safe_repr(value)} names nothing", fix)
    return _asked_at_once(tool, "conflict_key", value)


def _asked_at_once(tool: str, option: str, function: Callable[..., T]) -> Callable[..., T]:
    """A function that decisions ask; one that is not of ours may hold them up."""
    if is_async(function):
        problem = f"{option}={safe_repr(function)} is async, and it is asked within a decision"
        raise refuse(tool, problem, "Write it as a plain function that answers at once")
    return watched(f"{option} of the tool {tool}", function) if is_theirs(function) else function
