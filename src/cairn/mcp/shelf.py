"""What a server has at one time, as Cairn tools: names, effects, checks, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Collection, Mapping
from hashlib import sha256
from typing import Any

import msgspec

from cairn.core.messages import Record
from cairn.core.names import listed as comma_listed
from cairn.core.names import nearest
from cairn.core.rules import SECOND_US, ToolSpec
from cairn.mcp.connection import Offer
from cairn.mcp.naming import alias, assigned
from cairn.mcp.options import UNDECLARED, ToolOptions, recovery_of
from cairn.mcp.schemas import Bound, Unusable, bind
from cairn.ports import ToolSchema
from cairn.tools.context import Context
from cairn.tools.text import shorten
from cairn.tools.tool import Body, Tool

DESCRIPTION_CHARS = 4_000
LIST, READ = "list_resources", "read_resource"

log = logging.getLogger("cairn")


class Listed(Record, gc=True):
    """A tool of a server as it is offered here, or why it is not.

    Args:
        tool: As the server calls it.
        name: As the model calls it, empty when it is refused.
        hash: Of everything the server says of it that a person or a model goes by.
        effect, recovery: What it is treated as.
        why: Where that is from: `declared`, `undeclared`, or why a declaration does not hold.
        refused: Why it is not offered, empty if it is.
        description: The server's words.
        hints: What the server says of its effect; nobody goes by it.
    """

    tool: str
    name: str = ""
    hash: str = ""
    effect: str = "dangerous"
    recovery: str = "once"
    why: str = "undeclared"
    refused: str = ""
    description: str = ""
    hints: tuple[str, ...] = ()


class Shelf(Record, gc=True):
    """All that a server offers at one time."""

    tools: tuple[Tool[..., Any], ...] = ()
    listed: tuple[Listed, ...] = ()
    digest: str = ""
    names: frozenset[str] = frozenset()
    """All that the server named, in its own words, offered or not."""
    left_out: frozenset[str] = frozenset()
    """What tools that are not offered would be called here."""


class McpTool(Tool[..., Any]):
    """A tool of a server. Its identity is part of what a person approves."""

    identity: str = ""
    whole: dict[str, Any]
    """The schema of its arguments as the server wrote it; providers are shown less."""


class Rules(Record, gc=True):
    """What the operator says of a server's tools."""

    server: str
    effects: Mapping[str, ToolOptions]
    only: frozenset[str] | None
    exclude: frozenset[str]
    timeout_s: float
    settle_s: float
    first: dict[str, str]
    """The hash each tool had when it was first seen here; it is added to."""


Call = Callable[..., Awaitable[Any]]


def stock(offer: Offer, rules: Rules, call: Call, resources: Mapping[str, Call]) -> Shelf:
    """The tools of a server, made usable one by one.

    Args:
        offer: What the server says it has.
        rules: What the operator says of it.
        call: Called with (listed, options, arguments, context) for a tool of the server.
        resources: Called likewise, for those two tools of ours.
    """
    wanted = [each for each in offer.tools if _is_wanted(each.name, rules)]
    taken = [f"{rules.server}__{name}" for name in resources] if offer.resources else []
    names, refused = assigned(rules.server, (each.name for each in wanted), taken)
    listed: list[Listed] = []
    tools: list[Tool[..., Any]] = []
    seen: set[str] = set()
    for each in wanted:
        if each.name in seen:
            continue
        seen.add(each.name)
        one, tool = _one(each, names.get(each.name, ""), refused.get(each.name, ""), rules, call)
        listed.append(one)
        if tool is not None:
            tools.append(tool)
        if one.refused:
            log.warning(
                "MCP server %s: tool %r is left out: %s", rules.server, one.tool, one.refused
            )
    if offer.resources:
        tools += [_resource(name, work, rules) for name, work in resources.items()]
    digest = sha256(repr([(t.name, _identity(t), t.spec.effect) for t in tools]).encode())
    named = frozenset(each.name for each in offer.tools)
    would = {alias(rules.server, name) for name in named} - {tool.name for tool in tools}
    return Shelf(
        tools=tuple(tools),
        listed=tuple(listed),
        digest=digest.hexdigest()[:16],
        names=named,
        left_out=frozenset(would),
    )


def misnamed(rules: Rules, names: Collection[str]) -> list[tuple[str, str, str, str]]:
    """What the operator says of tools that a server does not have: field, name, problem, fix.

    Args:
        rules: What the operator says.
        names: All the server's tools, in its own words.
    """
    where = f"McpServer({rules.server!r})"
    given = [(f"{where}.effects[{name!r}]", name) for name in sorted(rules.effects)]
    given += [(f"{where}.only", name) for name in sorted(rules.only or ())]
    given += [(f"{where}.exclude", name) for name in sorted(rules.exclude)]
    found = []
    for field, name in given:
        ours = name in RESOURCE_TOOLS and "effects[" in field
        if name in names or ours:
            continue
        bare = name.removeprefix(f"{rules.server}__")
        close = (bare,) if bare in names else nearest(bare, names)
        shown = [shorten(each, 100) for each in (close or sorted(names))]
        fix = "Did you mean " + " or ".join(map(repr, shown)) + "?"
        fix = fix if close else f"Its tools are {comma_listed(shown) or 'none'}"
        found.append((field, name, f"the server has no tool {name!r}", fix))
    return found


def _is_wanted(tool: str, rules: Rules) -> bool:
    return tool not in rules.exclude and (rules.only is None or tool in rules.only)


def _one(
    tool: Any, name: str, refused: str, rules: Rules, call: Call
) -> tuple[Listed, McpTool | None]:
    found = Listed(
        tool=shorten(tool.name, 200),
        hash=_hash(tool),
        description=shorten(tool.description or "", DESCRIPTION_CHARS),
        hints=_hints(tool.annotations),
    )
    if refused:
        return msgspec.structs.replace(found, refused=refused), None
    try:
        bound = bind(name, tool.input_schema)
    except Unusable as error:
        return msgspec.structs.replace(found, refused=str(error)), None
    options, why = _held(tool.name, found.hash, rules)
    found = msgspec.structs.replace(
        found, name=name, effect=options.effect, recovery=recovery_of(options), why=why
    )
    return found, _made(found, bound, options, rules, call, tool.name)


def _held(tool: str, hash: str, rules: Rules) -> tuple[ToolOptions, str]:
    """The declaration that holds for a tool, if it is still the tool it was made for."""
    given = rules.effects.get(tool)
    first = rules.first.setdefault(tool, hash)
    if given is None:
        return UNDECLARED, "undeclared"
    if given.schema:
        if hash.startswith(given.schema):
            return given, "declared for this form"
        why = f"declared for another form ({given.schema})"
    elif hash == first:
        return given, "declared"
    else:
        why = f"it has changed since it was first seen ({first[:12]})"
    return msgspec.structs.replace(given, effect="dangerous", recovery="once", retries=0), why


def _hash(tool: Any) -> str:
    """Of name, title, description, both schemas and hints: a change in any makes it another."""
    said = tool.model_dump(by_alias=True, mode="json", exclude={"icons", "meta", "execution"})
    return sha256(msgspec.json.encode(said, order="sorted")).hexdigest()


def _hints(annotations: Any) -> tuple[str, ...]:
    if annotations is None:
        return ()
    said = annotations.model_dump(by_alias=True, exclude_none=True)
    return tuple(
        f"{key}={str(value).lower()}" for key, value in sorted(said.items()) if key != "title"
    )


def _made(
    listed: Listed, bound: Bound, options: ToolOptions, rules: Rules, call: Call, tool: str
) -> McpTool:
    async def function(arguments: dict[str, Any], ctx: Context[Any]) -> Any:
        return await call(tool, listed, arguments, ctx)

    return _tool(listed.name, listed.description, listed.hash, bound, options, rules, function)


def _tool(
    name: str,
    description: str,
    identity: str,
    bound: Bound,
    options: ToolOptions,
    rules: Rules,
    function: Callable[[dict[str, Any], Context[Any]], Awaitable[Any]],
) -> McpTool:
    made = McpTool(
        function,
        spec=ToolSpec(
            name=name,
            check=bound.check,
            effect=options.effect,
            recovery=recovery_of(options),
            timeout_us=round((options.timeout_s or rules.timeout_s) * SECOND_US),
            settle_us=0 if options.effect == "read" else round(rules.settle_s * SECOND_US),
            conflict_key=_conflict_key(options.conflict_key),
            retries=options.retries,
            micro_usd=options.micro_usd,
            result_bytes=options.result_bytes,
            taint=(f"mcp:{rules.server}",),
        ),
        schema=ToolSchema(name=name, description=description, parameters=bound.shown),
        body=_Whole(function),
        origin=f"MCP server {rules.server}",
    )
    made.identity = identity
    made.whole = bound.whole
    return made


class _Whole(Body):
    """Hands the arguments on as one mapping: a server may name them as it likes."""

    __slots__ = ()

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__(function, context="ctx", is_async=True)

    def bind(self, arguments: Mapping[str, Any], context: Context[Any]) -> dict[str, Any]:
        return {"arguments": dict(arguments), "ctx": context}


def _conflict_key(argument: str) -> Callable[[dict[str, Any]], str] | None:
    if not argument:
        return None
    return lambda arguments: str(arguments.get(argument, ""))


def _identity(tool: Tool[..., Any]) -> str:
    return str(getattr(tool, "identity", ""))


# ---------------------------------------------------------------- resources

RESOURCE_TOOLS: dict[str, tuple[str, dict[str, Any]]] = {
    LIST: ("What the MCP server {server} has to read, with the address of each.", {}),
    READ: (
        "Read something that the MCP server {server} has.",
        {"uri": {"type": "string", "description": f"Its address, as {LIST} or a result names it."}},
    ),
}


def _resource(name: str, work: Call, rules: Rules) -> McpTool:
    """A tool of ours over the protocol's own reading, which has no effect by definition."""
    described, fields = RESOURCE_TOOLS[name]
    schema = {
        "type": "object",
        "properties": fields,
        "required": list(fields),
        "additionalProperties": False,
    }
    full = f"{rules.server}__{name}"
    options = rules.effects.get(name, ToolOptions(effect="read"))
    description = described.format(server=rules.server)

    async def function(arguments: dict[str, Any], ctx: Context[Any]) -> Any:
        return await work(arguments, ctx)

    return _tool(full, description, name, bind(full, schema), options, rules, function)
