"""`@tool`: a function becomes something a model can call, with its effect declared."""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Generic, Literal, ParamSpec, TypeVar, Unpack, overload

from cairn.core.rules import ToolSpec
from cairn.errors import ToolDefinitionError, safe_repr
from cairn.ports import ToolSchema
from cairn.tools.arguments import make_check, make_check_some
from cairn.tools.context import Context
from cairn.tools.docstrings import parse
from cairn.tools.options import Options, checked
from cairn.tools.schema import arguments_of
from cairn.tools.signature import Signature, plain_function, read_signature, refuse

if TYPE_CHECKING:
    from cairn.sandbox import Sandbox

P = ParamSpec("P")
R = TypeVar("R")


class Body:
    """A function the runtime calls: a tool's own, or its probe.

    Attributes:
        function: The function.
        context: The parameter that takes the `Context`, empty for none.
        is_async: Whether it is awaited, or run in a thread.
        takes: The arguments it wants; None for all there are.
    """

    __slots__ = ("context", "function", "is_async", "takes")

    def __init__(
        self,
        function: Callable[..., Any],
        *,
        context: str = "",
        is_async: bool = False,
        takes: frozenset[str] | None = None,
    ) -> None:
        self.function = function
        self.context = context
        self.is_async = is_async
        self.takes = takes

    def bind(self, arguments: Mapping[str, Any], context: Context[Any]) -> dict[str, Any]:
        """The keyword arguments of one call."""
        if self.takes is None:
            bound = dict(arguments)
        else:
            bound = {name: value for name, value in arguments.items() if name in self.takes}
        if self.context:
            bound[self.context] = context
        return bound


class Tool(Generic[P, R]):
    """A tool: what decisions need of it (`spec`), what models see (`schema`), what runs (`body`).

    Made by `@tool`; calling it calls the function, so that it can be tested as one.

    Attributes:
        spec: Name, check, effect, recovery, bounds; see `ToolSpec`.
        schema: Name, description and JSON Schema as a model is told.
        body: What is run for a call.
        probe: What finds out whether an effect happened, if there is such a function.
        origin: Where it was declared, for messages.
        sandbox: The walls that it runs its commands behind; None for a tool that runs none. The
            engine records the rung with the start of the first call, and holds the tool to what
            `Runtime(sandbox=...)` asks.
    """

    def __init__(
        self,
        function: Callable[P, R],
        *,
        spec: ToolSpec,
        schema: ToolSchema,
        body: Body,
        probe: Body | None = None,
        origin: str = "",
        sandbox: Sandbox | None = None,
    ) -> None:
        functools.update_wrapper(self, function)
        self.function = function
        self.spec = spec
        self.schema = schema
        self.body = body
        self.probe = probe
        self.origin = origin
        self.sandbox = sandbox

    @property
    def name(self) -> str:
        """As the model calls it."""
        return self.spec.name

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        """Call the function itself: nothing is checked, authorised or recorded."""
        return self.function(*args, **kwargs)

    def __repr__(self) -> str:
        return f"<Tool {self.spec.name}: {self.spec.effect}, {self.spec.recovery}>"


@overload
def tool(function: Callable[P, R], /) -> Tool[P, R]: ...
@overload
def tool(**options: Unpack[Options]) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[..., Any] | None = None, /, **options: Unpack[Options]) -> Any:
    """Make a tool of a function, as `@tool` or `@tool(effect="read", ...)`.

    The parameters' types become the schema, the docstring the description. A parameter of type
    `Context` is filled by the runtime and hidden from the model. Without options a tool is
    `dangerous`: every call waits for a person.

    Args:
        function: A sync or async function; sync ones run in a thread of their own.
        **options: All of them optional.

            * name: As the model calls it. Default: the function's name.
            * effect: `read`, `write` or `dangerous` (default): may it run unasked.
            * recovery: May it run again when nobody knows whether it happened. `repeat` (default
              for a read, which takes nothing else), `keyed` (it sends `ctx.key` along), `probe`
              (it can be found out), `once` (default otherwise: a person decides).
            * timeout: Deadline of one attempt, in seconds. Default 60.
            * conflict_key: A parameter's name, or a function from the arguments to a str: two
              writes of different keys may overlap. Default: none, order is kept.
            * fallback: A tool, or its name, that may stand in for this one.
            * retries: Attempts after a known failure. Default 0.
            * backoff: Seconds before the first of them; doubles. Default 0.5.
            * cost: US dollars per call (default 0); or micro_usd: the same in millionths.
            * result_bytes: A larger result becomes an artifact. Default 16,384.
            * settle: Seconds after its processes are gone in which an effect may still appear.
            * key_ttl: Seconds the other side honours a key. Default: always.
            * probe: A function of the same arguments (or fewer) that answers `happened(result)`,
              `NOT_HAPPENED` or `UNKNOWN`.
            * sources: It returns a list of `Source`, which answers can cite.
            * approval: `ApprovalTerms`: who may approve its calls, where somebody is asked.
            * binds: Parameters that name files, or a function from the arguments to paths: an
              approval is bound to what is in those files, and void when that changes.
            * taint: A label, or several, for the untrusted content its outcome brings into the
              run; policies see it. Default: none.
            * secrets: Names of registered secrets that its arguments may hold and that
              `ctx.secret` gives it; or a mapping from a parameter to the names that may stand in
              that one. Default: none.

    Raises:
        ToolDefinitionError: the function or an option cannot be; the message says what to do.
    """
    scope = sys._getframe(1)  # noqa: SLF001 - types of the declaring function are its locals

    def declare(function: Callable[..., Any]) -> Tool[..., Any]:
        return make_tool(function, options, lambda: scope.f_locals)

    return declare if function is None else declare(function)


def make_tool(
    function: Callable[..., Any],
    options: Options,
    local_names: Callable[[], Mapping[str, Any]] = dict,
    *,
    kind: Literal["call", "question"] = "call",
    sandbox: Sandbox | None = None,
) -> Tool[..., Any]:
    """`@tool` as a plain function; `local_names` resolves annotations of a local scope.

    A tool of the kind `question` is never run: a person answers it. `sandbox` is where it runs
    its commands, if it runs any.
    """
    if isinstance(function, type | staticmethod | classmethod) or not callable(function):
        fix = "Decorate a function or a bound method"
        raise refuse(safe_repr(function), "this is no function", fix)
    named: object = options.get("name", getattr(function, "__name__", ""))
    name = named if isinstance(named, str) else safe_repr(named)
    signature = read_signature(function, name, local_names)
    fields = checked(name, options, signature)
    description, about = parse(plain_function(function).__doc__)
    arguments = arguments_of(signature, name, about)
    return Tool(
        function,
        spec=ToolSpec(
            name=name,
            check=make_check(name, arguments),
            check_some=make_check_some(name, arguments),
            kind=kind,
            **fields,
        ),
        schema=ToolSchema(name=name, description=description, parameters=arguments.parameters),
        body=Body(function, context=signature.context, is_async=signature.is_async),
        probe=_probe(options["probe"], signature, name, local_names)
        if "probe" in options
        else None,
        origin=_origin(function),
        sandbox=sandbox,
    )


def _probe(
    probe: object,
    signature: Signature,
    tool: str,
    local_names: Callable[[], Mapping[str, Any]],
) -> Body:
    if not callable(probe):
        raise refuse(tool, f"probe={safe_repr(probe)} is no function", "Give a function")
    try:
        asked = read_signature(probe, tool, local_names)
    except ToolDefinitionError as error:
        raise ToolDefinitionError(f"the probe of {error}") from None
    takes = frozenset(each.name for each in asked.parameters)
    if foreign := takes - {each.name for each in signature.parameters}:
        problem = f"its probe takes {min(foreign)!r}, which the tool does not"
        raise refuse(tool, problem, "A probe is given the tool's arguments: use their names")
    return Body(probe, context=asked.context, is_async=asked.is_async, takes=takes)


def _origin(function: Callable[..., Any]) -> str:
    module = getattr(function, "__module__", None) or "?"
    return f"{module}.{getattr(function, '__qualname__', type(function).__qualname__)}"
