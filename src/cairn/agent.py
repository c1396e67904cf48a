"""`Agent`: who works on a run, with which model, tools and bounds; and its rules as values."""

from __future__ import annotations

import inspect
import re
from collections.abc import Awaitable, Callable, Sequence
from copy import copy
from hashlib import sha256
from typing import Any, Literal

import msgspec

from cairn.core.events import TaskKind
from cairn.core.fingerprint import Fingerprint, digest
from cairn.core.ladder import DEFAULT_LADDER, Ladder
from cairn.core.limits import WORST_CASE, Limits, Price, estimate_tokens
from cairn.core.messages import Principal, Record
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.core.rules import ModelSpec, Rules
from cairn.core.terms import ApprovalTerms
from cairn.errors import ConfigError
from cairn.models import check_model, find_model
from cairn.ports import Model, ToolSchema
from cairn.tools.registry import collect, servers_in
from cairn.tools.source import Sources
from cairn.tools.tool import Tool
from cairn.version import __version__

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
KINDS = ("query", "generate", "operate")
TOOL_CHOICES = ("auto", "none", "required")
DEFAULT_TIMEOUT_S = 120.0
BUILTINS = ("ask_user", "update_plan", "read_artifact")


class Briefing(Record):
    """What a computed instruction may go by: it is called before every request."""

    run: str
    agent: str
    principal: Principal
    session: str
    step: int


class Answer(Record, gc=True):
    """A final answer, as a completion check sees it."""

    run: str
    text: str
    output: Any = None


Instructions = str | Callable[[Briefing], "str | Awaitable[str]"]
Check = Callable[[Answer], "str | bool | Awaitable[str | bool | None] | None"]


class Agent:
    """A named way of working on tasks.

    Args:
        name: How runs find it; letters, digits, `.`, `_`, `-`.
        model: A model object or a `provider:name` string.
        instructions: Text, or a function of a `Briefing`, sync or async, asked before every
            request; what changed is journaled.
        tools: Tools, modules with tools, names of such modules, or servers of tools.
        output_type: Type of the final answer; anything pydantic can validate. The answer must
            then be JSON of it, and comes back as `run.output`.
        limits: Its own bounds; a run's can only be stricter.
        completion_checks: Functions of an `Answer` that return None or True to accept it, or
            say what is missing. They run as journaled tasks.
        fallback_models: Used, in order, when the ladder switches.
        kind: What its runs may do by default: `query` offers read tools only.
        builtins: Which of the runtime's own tools it gets.
        repairs: How often in a run the answer, what one check found, or (in a row) the
            arguments of one tool may be mended.
        approval_days: How long a request for approval stays open.
        approval: Who may approve its calls, where somebody is asked.
        tool_choice: What the model is told about calling until it has made its first call:
            `auto`, `required`, `none` or the name of a tool.
        policy: What narrows the work of this agent; what it allows changes nothing.

    Raises:
        ConfigError: a value is not usable; the message names it and the fix.
    """

    def __init__(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        name: str,
        model: Model | str,
        *,
        instructions: Instructions = "",
        tools: Sequence[Any] = (),
        output_type: Any = None,
        limits: Limits | None = None,
        completion_checks: Sequence[Check] = (),
        fallback_models: Sequence[Model | str] = (),
        kind: TaskKind = "operate",
        on_loop: Literal["stop", "ask"] = "stop",
        builtins: Sequence[str] = BUILTINS,
        repairs: int = 3,
        approval_days: float = 7.0,
        approval: ApprovalTerms | None = None,
        tool_choice: str = "auto",
        policy: Policy | None = None,
    ) -> None:
        _check_name(name)
        where = f"Agent({name!r})"
        for each in (model, *fallback_models):
            check_model(each, f"{where}.model")
        fine = isinstance(instructions, str) or callable(instructions)
        _require(fine, where, "instructions", instructions, "Give a text or a function")
        bounds = limits if limits is not None else Limits()
        _require(isinstance(bounds, Limits), where, "limits", limits, "Give Limits(...)")
        _require(kind in KINDS, where, "kind", kind, f"Use one of {', '.join(KINDS)}")
        _require(on_loop in {"stop", "ask"}, where, "on_loop", on_loop, "Use stop or ask")
        fine = _is_number(repairs, int) and repairs >= 0
        _require(fine, where, "repairs", repairs, "Give a whole number, 0 or more")
        fine = _is_number(approval_days, int | float) and approval_days > 0
        _require(fine, where, "approval_days", approval_days, "Give a number of days above 0")
        for check in completion_checks:
            fix = "Give functions of an Answer"
            _require(callable(check), where, "completion_checks", check, fix)
        wanted = [builtins] if isinstance(builtins, str) else list(builtins)
        for one in wanted:
            fix = f"Choose from {', '.join(BUILTINS)}"
            _require(one in BUILTINS, where, "builtins", one, fix)
        self.name = name
        self.models: tuple[Model | str, ...] = (model, *fallback_models)
        self.instructions = instructions
        self.output_type = output_type
        self.limits = bounds
        self.kind: TaskKind = kind
        self.on_loop: Literal["stop", "ask"] = on_loop
        self.repairs = repairs
        fine = approval is None or isinstance(approval, ApprovalTerms)
        _require(fine, where, "approval", approval, "Give ApprovalTerms(...)")
        self.approval = approval
        self.approval_us = round(approval_days * 86_400 * 1_000_000)
        self.checks = {_name_of(check): check for check in completion_checks}
        if len(self.checks) != len(completion_checks):
            raise ConfigError(
                f"{where}.completion_checks", "two checks have one name", "Give each its own name"
            )
        offered = tools if isinstance(tools, list | tuple) else [tools]
        self.servers = servers_in(offered)
        self.tools: dict[str, Tool[..., Any]] = collect([*offered, *_builtin(wanted)])
        fine = tool_choice in TOOL_CHOICES or tool_choice in self.tools or bool(self.servers)
        fix = f"Use {', '.join(TOOL_CHOICES)} or the name of one of its tools"
        _require(fine, where, "tool_choice", tool_choice, fix)
        self.tool_choice = tool_choice
        fine = policy is None or isinstance(policy, Policy)
        _require(fine, where, "policy", policy, "Give a cairn.Policy")
        self.policy = policy

    def __repr__(self) -> str:
        return f"Agent({self.name!r}, tools={sorted(self.tools)})"

    @property
    def stock(self) -> tuple[int, ...]:
        """Which versions of its servers' offers it would work with now."""
        return tuple(server.version for server in self.servers)

    def stocked(self) -> Agent:
        """The agent with the tools its servers offer now, for good.

        Raises:
            ToolDefinitionError: a server's tool has the name of another.
        """
        if not self.servers:
            return self
        agent = copy(self)
        agent.tools = collect([*self.tools.values(), *(s.tools() for s in self.servers)])
        return agent


def _builtin(names: Sequence[str]) -> list[Tool[..., Any]]:
    if not names:
        return []
    from cairn.tools import builtin

    return [getattr(builtin, name) for name in names]


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            "Agent.name", f"{name!r} is no name", "Use letters, digits, '.', '_' and '-'"
        )


def _require(fine: bool, where: str, field: str, value: object, fix: str) -> None:
    """Refuse a bad option, naming it and the fix."""
    if not fine:
        raise ConfigError(f"{where}.{field}", f"{value!r} cannot be used", fix)


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _name_of(check: Check) -> str:
    return getattr(check, "__name__", type(check).__name__)


class Crew(Record, gc=True):
    """An agent made ready: its rules, and the parts the shell works with."""

    agent: Agent
    rules: Rules
    models: tuple[Model, ...]
    schemas: tuple[ToolSchema, ...]
    output: Any = None
    fingerprint: Fingerprint = Fingerprint()
    stock: tuple[int, ...] = ()
    """Which offers of the agent's servers of tools it was made with."""


class Output:
    """The type of a final answer: its schema, and text to value."""

    def __init__(self, output_type: Any) -> None:
        from pydantic import TypeAdapter

        self._adapter: Any = TypeAdapter(output_type)
        self.schema: dict[str, Any] = self._adapter.json_schema()

    def parse(self, text: str) -> Any:
        """The value a text stands for. Raises pydantic's ValidationError."""
        return self._adapter.validate_json(_unfenced(text))

    def problem(self, text: str) -> str:
        """What is wrong with a text, empty for nothing."""
        try:
            self.parse(text)
        except ValueError as error:  # pydantic's ValidationError is one
            details = getattr(error, "errors", None)
            if details is None:
                return str(error)
            lines = [
                f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}"
                for e in details(include_url=False, include_input=False)[:8]
            ]
            return f"it must be JSON of the agreed schema; {'; '.join(lines)}"
        return ""


def _unfenced(text: str) -> str:
    """The JSON inside a fenced code block, or the text itself."""
    stripped = text.strip()
    if stripped.startswith("```") and stripped.endswith("```"):
        return stripped[3:-3].partition("\n")[2] if "\n" in stripped else stripped[3:-3]
    return stripped


def prepare(
    agent: Agent,
    policy: Policy = DEFAULT_POLICY,
    ladder: Ladder = DEFAULT_LADDER,
    unknown_price: Price = WORST_CASE,
) -> Crew:
    """The agent's rules under a deployment's policy and ladder.

    Args:
        agent: Who works.
        policy: What may run unasked.
        ladder: What is done about each class of fault.
        unknown_price: What a model is counted at whose price nobody knows.

    Raises:
        ConfigError: a model string cannot be found, or a fallback tool is not on offer.
    """
    stock, agent = agent.stock, agent.stocked()
    models = tuple(find_model(m) for m in agent.models)
    specs = {name: tool.spec for name, tool in agent.tools.items()}
    for name, spec in specs.items():
        if spec.fallback and spec.fallback not in specs and all(stock):
            raise ConfigError(
                f"tool {name}.fallback",
                f"agent {agent.name!r} has no tool {spec.fallback!r}",
                "Give the agent that tool too",
            )
    schemas = tuple(tool.schema for tool in agent.tools.values())
    described = msgspec.json.encode(schemas)
    output = Output(agent.output_type) if agent.output_type is not None else None
    text = agent.instructions if isinstance(agent.instructions, str) else ""
    rules = Rules(
        tools=specs,
        models=tuple(_spec_of(m, unknown_price) for m in models),
        policy=policy,
        agent_policy=agent.policy,
        ladder=ladder,
        check_answer=output.problem if output else None,
        checks=tuple(agent.checks),
        offered=sha256(described).hexdigest()[:16] if schemas else "",
        overhead_tokens=_tokens_of_schemas(described.decode(), models) + estimate_tokens(text),
        approval_ttl_us=agent.approval_us,
        approval=agent.approval,
        repairs=agent.repairs,
        output_mode="schema" if output else "text",
        tool_choice=agent.tool_choice,
    )
    return Crew(
        agent=agent,
        rules=rules,
        models=models,
        schemas=schemas,
        output=output,
        fingerprint=fingerprint_of(agent, rules, output),
        stock=stock,
    )


def fingerprint_of(agent: Agent, rules: Rules, output: Output | None = None) -> Fingerprint:
    """Which version of an agent this is, under its deployment's policy and ladder."""
    sources = Sources()
    tools = agent.tools.values()
    functions = [tool.function for tool in tools]
    functions += [tool.probe.function for tool in tools if tool.probe is not None]
    functions += [key for tool in tools if (key := tool.spec.conflict_key) is not None]
    functions += [names for tool in tools if (names := tool.spec.binds) is not None]
    functions += agent.checks.values()
    text = agent.instructions
    policy: Any = rules.policy
    declared = _described(policy, sources) if isinstance(policy, Policy) else sources.read(policy)
    options = [
        agent.limits,
        agent.kind,
        agent.on_loop,
        output.schema if output is not None else None,
        list(agent.checks),
        agent.repairs,
        agent.approval_us,
        agent.tool_choice,
        *([msgspec.to_builtins(agent.approval)] if agent.approval is not None else []),
    ]
    return Fingerprint(
        agent=digest(options),
        prompt=digest(text if isinstance(text, str) else sources.read(text)),
        model=digest([spec.name for spec in rules.models]),
        policy=digest([declared, _described(agent.policy, sources)] if agent.policy else declared),
        ladder=digest(rules.ladder.rows),
        code=digest([__version__, *sources.read_all(functions)]),
        tools=tuple(sorted(f"{tool.name} {_declared(tool)}" for tool in tools)),
        unread=tuple(sorted(set(sources.unread))),
    )


def _described(policy: Policy, sources: Sources) -> list[Any]:
    """All that a policy says, in the short form where it has tables only; and its own code."""
    said = [policy.name, policy.tools, policy.effects]
    if not policy.plain:
        said.append(msgspec.to_builtins(policy))
    kind = type(policy)
    if kind is not Policy:
        said += [sources.read(kind.judge), sources.read(kind.spoken)]
    return said


def _declared(tool: Tool[..., Any]) -> str:
    """The hash of what a person approves, and that of everything else a tool is declared with."""
    spec = tool.spec
    shown = [tool.schema.parameters, spec.effect, spec.recovery, spec.kind]
    identity = getattr(tool, "identity", "")  # what a server says of its tool, as one hash
    contract = digest([*shown, identity] if identity else shown)
    handling = [
        tool.schema.description,
        spec.timeout_us,
        spec.settle_us,
        spec.key_ttl_us,
        spec.fallback,
        spec.retries,
        spec.backoff_us,
        spec.micro_usd,
        spec.result_bytes,
        spec.sources,
        spec.conflict_key is not None,
        *([list(spec.taint)] if spec.taint else []),
        *([["secrets", *map(list, spec.secrets)]] if spec.secrets else []),
        *([msgspec.to_builtins(spec.approval)] if spec.approval is not None else []),
        *(["binds"] if spec.binds is not None else []),
    ]
    return f"{contract[:8]}.{digest(handling)[:8]}"


def _tokens_of_schemas(described: str, models: tuple[Model, ...]) -> int:
    """Where calls are JSON actions the schemas are sent twice: in words, and to be forced."""
    twice = any(not getattr(model, "takes_tools", True) for model in models)
    return estimate_tokens(described) * (2 if twice else 1)


def _spec_of(model: Model, unknown_price: Price) -> ModelSpec:
    timeout_s = getattr(model, "timeout_s", DEFAULT_TIMEOUT_S)
    return ModelSpec(
        name=model.name,
        price=unknown_price if model.price is None else model.price,
        window=model.window,
        max_output=model.max_output,
        timeout_us=round(timeout_s * 1_000_000),
        takes_tools=getattr(model, "takes_tools", True),
    )


async def brief(agent: Agent, briefing: Briefing) -> str:
    """The instructions for this request, computed if they are a function."""
    if isinstance(agent.instructions, str):
        return agent.instructions
    text = agent.instructions(briefing)
    return await text if inspect.isawaitable(text) else text
