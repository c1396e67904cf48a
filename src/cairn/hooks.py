"""Hooks: the deployment's own code, asked before a tool runs and before a model is asked.

A hook narrows, rewrites or observes. It never grants: what the policy denies or asks about stays
denied or asked about, whatever a hook says.
"""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal, overload

from cairn.core.events import Effect, TaskKind
from cairn.core.events.model import Purpose
from cairn.core.fingerprint import digest
from cairn.core.messages import Message, Principal, Record
from cairn.core.names import listed, nearest
from cairn.core.takers import check_taker
from cairn.errors import ConfigError, safe_repr
from cairn.tools.source import Sources

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
TIMEOUT_S = 5.0
LONGEST_S = 60.0
MOST_HOOKS = 32
"""How many hooks may be asked before one call, or one request."""

Kind = Literal["before_tool", "before_model"]
OnError = Literal["deny", "ignore"]


class HookCall(Record, gc=True):
    """A call that is about to be started or asked about. Nothing in it can be changed.

    Args:
        run, session, step: Where it was made.
        call: Its id in the run, as `c3`.
        attempt: Which attempt it would be, from 1.
        tool: The tool that would run.
        asked: The tool that the model asked for: another one after a redirect or a fallback.
        effect: The tool's effect: `read`, `write` or `dangerous`.
        arguments: What the tool would be called with, as JSON data, defaults filled in, secrets
            as their handles. Mappings and tuples that cannot be changed.
        fixed: Whether the arguments can no longer change: they were approved, or an attempt was
            made with them. `Deny` still counts, `Rewrite` does not.
        agent: Name of the agent.
        principal: For whom the run works.
        kind: `query`, `generate` or `operate`.
        taint: Labels of the untrusted content that has come into the run.
    """

    run: str
    session: str
    step: int
    call: str
    attempt: int
    tool: str
    asked: str
    effect: Effect
    arguments: Mapping[str, Any]
    fixed: bool = False
    agent: str = ""
    principal: Principal = Principal()
    kind: TaskKind = "operate"
    taint: frozenset[str] = frozenset()


class HookRequest(Record, gc=True):
    """A request to a model that is about to be made. Nothing in it can be changed.

    Args:
        run, session, step: Where it is made.
        attempt: Which attempt of this turn it is, from 1.
        model: Name of the model.
        tools: Names of the tools on offer, in order.
        messages: What is sent of what was said so far, oldest first.
        purpose: `turn` for the agent's next turn, `summary`, or `classify`.
        agent: Name of the agent.
        principal: For whom the run works.
        kind: `query`, `generate` or `operate`.
        taint: Labels of the untrusted content that has come into the run.
    """

    run: str
    session: str
    step: int
    attempt: int
    model: str
    tools: tuple[str, ...]
    messages: Sequence[Message] = ()
    purpose: Purpose = "turn"
    agent: str = ""
    principal: Principal = Principal()
    kind: TaskKind = "operate"
    taint: frozenset[str] = frozenset()


def _check_answer(field: str, value: object, kind: type, fix: str) -> None:
    if not isinstance(value, kind):
        raise ConfigError(field, f"it is of type {type(value).__name__}", fix)


class Deny(Record, kw_only=False):
    """The call does not run; the model and the journal are told the reason.

    Raises:
        ConfigError: the reason is no text.
    """

    reason: str

    def __post_init__(self) -> None:
        _check_answer("Deny.reason", self.reason, str, 'Say why, as Deny("too much")')


class Rewrite(Record, kw_only=False, gc=True):
    """The call runs with these arguments, all of them, if the schema and the policy take them.

    Raises:
        ConfigError: the arguments are no mapping.
    """

    arguments: Mapping[str, Any]

    def __post_init__(self) -> None:
        fix = 'Give all arguments by name, as Rewrite({"cents": 400})'
        _check_answer("Rewrite.arguments", self.arguments, Mapping, fix)


class Narrow(Record, kw_only=False):
    """Of the tools on offer only these are offered; a name that is not on offer adds nothing."""

    tools: Sequence[str]


class Hook:
    """A function that is asked, and how. Made by `before_tool` and `before_model`.

    Attributes:
        name: How it is called in the journal, as `hook:NAME`.
        kind: `before_tool` or `before_model`.
        function: What is asked.
        timeout_s: How many seconds an answer may take.
        on_error: `deny` or `ignore`: what no answer, or none that can be used, means.
        tools: Tools it is asked about; None for all.
        is_async: Whether it is awaited; a plain function gets a thread.
    """

    def __init__(
        self,
        function: Callable[[Any], Any],
        *,
        kind: Kind,
        name: str,
        timeout_s: float,
        on_error: OnError,
        tools: tuple[str, ...] | None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.kind = kind
        self.name = name
        self.timeout_s = timeout_s
        self.on_error = on_error
        self.tools = tools
        called = getattr(function, "__call__", None)  # noqa: B004 - an object's own method is meant
        self.is_async = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(called)

    def __call__(self, subject: Any) -> Any:
        """Call the function itself: nothing is bounded or recorded."""
        return self.function(subject)

    def __repr__(self) -> str:
        return f"<Hook {self.name}: {self.kind}>"

    def concerns(self, tool: str) -> bool:
        """Whether it is asked about calls of this tool."""
        return self.kind == "before_tool" and (self.tools is None or tool in self.tools)


@overload
def before_tool(function: Callable[[HookCall], Any], /) -> Hook: ...
@overload
def before_tool(
    *,
    name: str = "",
    timeout: float = TIMEOUT_S,
    on_error: OnError = "deny",
    tools: Sequence[str] | None = None,
) -> Callable[[Callable[[HookCall], Any]], Hook]: ...
def before_tool(
    function: Callable[[HookCall], Any] | None = None,
    /,
    *,
    name: str = "",
    timeout: float = TIMEOUT_S,
    on_error: OnError = "deny",
    tools: Sequence[str] | None = None,
) -> Any:
    """Make a hook that is asked before a tool runs, and before a person is asked about the call.

    The function takes a `HookCall` and returns None, `Deny(reason)` or `Rewrite(arguments)`. It is
    sync (it then runs in a thread) or async.

    Args:
        function: What is asked.
        name: How it is called in the journal. Default: the function's name.
        timeout: Seconds an answer may take, at most 60. Default 5.
        on_error: What it means when it raises, takes too long, or returns something else: `deny`
            (default) refuses the call, `ignore` goes on as if it had returned None.
        tools: Names of the tools it is asked about. Default: all.

    Raises:
        ConfigError: an option cannot be used.
    """

    def declare(function: Callable[[HookCall], Any]) -> Hook:
        return _made(function, "before_tool", name, timeout, on_error, tools)

    return declare if function is None else declare(function)


@overload
def before_model(function: Callable[[HookRequest], Any], /) -> Hook: ...
@overload
def before_model(
    *, name: str = "", timeout: float = TIMEOUT_S, on_error: OnError = "ignore"
) -> Callable[[Callable[[HookRequest], Any]], Hook]: ...
def before_model(
    function: Callable[[HookRequest], Any] | None = None,
    /,
    *,
    name: str = "",
    timeout: float = TIMEOUT_S,
    on_error: OnError = "ignore",
) -> Any:
    """Make a hook that is asked before every request to a model.

    The function takes a `HookRequest` and returns None or `Narrow(tools)`: fewer tools are
    offered then. It is sync (it then runs in a thread) or async.

    Args:
        function: What is asked.
        name: How it is called in the journal. Default: the function's name.
        timeout: Seconds an answer may take, at most 60. Default 5.
        on_error: What it means when it raises, takes too long, or returns something else:
            `ignore` (default) offers what would be offered without it, `deny` offers no tool.

    Raises:
        ConfigError: an option cannot be used.
    """

    def declare(function: Callable[[HookRequest], Any]) -> Hook:
        return _made(function, "before_model", name, timeout, on_error, None)

    return declare if function is None else declare(function)


def _made(
    function: Any, kind: Kind, name: Any, timeout: Any, on_error: OnError, tools: Any
) -> Hook:
    where = f"@{kind}"
    if not callable(function) or isinstance(function, type | Hook):
        raise ConfigError(where, f"{safe_repr(function)} is no function", "Decorate a function")
    name = name or getattr(function, "__name__", type(function).__name__)
    where = f"@{kind}({safe_repr(name)})"
    if not isinstance(name, str) or not NAME.fullmatch(name):
        fix = "Give name= with letters, digits, '.', '_' and '-', 64 at most"
        raise ConfigError(f"{where}.name", f"{safe_repr(name)} is no name", fix)
    number = isinstance(timeout, int | float) and not isinstance(timeout, bool)
    if not number or not 0 < timeout <= LONGEST_S:
        fix = f"Give seconds above 0, {LONGEST_S:g} at most"
        raise ConfigError(f"{where}.timeout", f"{safe_repr(timeout)} cannot be used", fix)
    if on_error not in ("deny", "ignore"):  # a tuple: what is given may have no hash
        raise ConfigError(
            f"{where}.on_error", f"{safe_repr(on_error)} is unknown", "Use deny or ignore"
        )
    names: tuple[str, ...] | None = None
    if tools is not None:
        several = isinstance(tools, list | tuple | set | frozenset)
        if not several or not tools or not all(isinstance(one, str) and one for one in tools):
            fix = 'Give a list of names, as tools=["refund"], or leave it out for all'
            raise ConfigError(f"{where}.tools", f"{safe_repr(tools)} cannot be used", fix)
        names = tuple(sorted(set(tools)))
    check_taker(where, function, "one HookCall or HookRequest")
    return Hook(
        function, kind=kind, name=name, timeout_s=float(timeout), on_error=on_error, tools=names
    )


# ---------------------------------------------------------------- a deployment's hooks


def checked_hooks(
    hooks: object, field: str, tools: Iterable[str] | None = None
) -> tuple[Hook, ...]:
    """The hooks that were given, if they are some.

    Args:
        hooks: As they were given.
        field: How the option is called in messages.
        tools: Names of the tools that there are; None when that is not known yet.

    Raises:
        ConfigError: one is none, two of them share a name, or one is about a tool that is not
            there.
    """
    if not isinstance(hooks, list | tuple):
        raise ConfigError(field, f"{safe_repr(hooks)} cannot be used", "Give a list of hooks")
    for each in hooks:
        if not isinstance(each, Hook):
            fix = "Decorate the function with @before_tool or @before_model"
            raise ConfigError(field, f"{safe_repr(each)} is no hook", fix)
    if tools is not None:
        check_tools(hooks, tools, field)
    return joined((), tuple(hooks), field)


def joined(first: tuple[Hook, ...], then: tuple[Hook, ...], field: str) -> tuple[Hook, ...]:
    """The hooks in the order they are asked.

    Raises:
        ConfigError: two of them share a name, or they are too many.
    """
    both = (*first, *then)
    names = [hook.name for hook in both]
    if doubled := next((name for name in names if names.count(name) > 1), ""):
        raise ConfigError(field, f"two hooks are named {doubled!r}", "Give each a name= of its own")
    if len(both) > MOST_HOOKS:
        raise ConfigError(field, f"{len(both)} hooks are too many", f"Give {MOST_HOOKS} at most")
    return both


def check_tools(hooks: Iterable[Hook], known: Iterable[str], field: str) -> None:
    """Refuse a hook that waits for a tool which is not there: misspelt, it would guard nothing.

    Raises:
        ConfigError: names the hook, the tool and what was perhaps meant.
    """
    there = sorted(known)
    for hook in hooks:
        for tool in hook.tools or ():
            if tool not in there:
                close = nearest(tool, there)
                fix = f"Did you mean {close[0]}" if close else f"The tools are {listed(there)}"
                said = f"hook {hook.name!r} is about a tool {tool!r} that is not there"
                raise ConfigError(field, said, fix if there else "Give the agent that tool")


def hooks_digest(hooks: Sequence[Hook], sources: Sources) -> str:
    """Which hooks these are: their source, options and order; empty when there are none."""
    if not hooks:
        return ""
    described = [
        [hook.kind, hook.name, hook.timeout_s, hook.on_error, hook.tools, sources.read(hook)]
        for hook in hooks
    ]
    return digest(described)


# ---------------------------------------------------------------- values that cannot be changed


def frozen(value: Any) -> Any:
    """JSON data as a value that cannot be changed."""
    if isinstance(value, dict):
        return MappingProxyType({key: frozen(inner) for key, inner in value.items()})
    return tuple(map(frozen, value)) if isinstance(value, list) else value


def thawed(value: Any) -> Any:
    """The same as plain dicts and lists again, for what was built from it."""
    if isinstance(value, Mapping):
        return {key: thawed(inner) for key, inner in value.items()}
    return [thawed(inner) for inner in value] if isinstance(value, list | tuple) else value
