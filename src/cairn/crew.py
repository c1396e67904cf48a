"""`Crew`: an agent made ready to work, its rules as values, and which version of it that is."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from hashlib import sha256
from typing import Any

import msgspec

from cairn.agent import BUILTINS, DEFAULT_TIMEOUT_S, Agent
from cairn.block import check_fed
from cairn.core.fingerprint import Fingerprint, digest
from cairn.core.intake import FEW
from cairn.core.ladder import DEFAULT_LADDER, Ladder
from cairn.core.limits import WORST_CASE, Price, estimate_tokens
from cairn.core.messages import Record
from cairn.core.names import MESSAGE_CHARS
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.core.rules import FIND, SEARCH, SKILL, IntakeRules, ModelSpec, Rules, ToolSpec
from cairn.core.takers import name_of
from cairn.core.words import words
from cairn.errors import ConfigError, words_of
from cairn.hooks import Hook, check_tools, hooks_digest, joined
from cairn.intake import holds
from cairn.models import find_model
from cairn.ports import Model, ToolSchema
from cairn.tools.blocking import called
from cairn.tools.on_loop import watched
from cairn.tools.runner import Threads, in_a_thread
from cairn.tools.source import Sources
from cairn.tools.text import shorten
from cairn.tools.theirs import runs_theirs
from cairn.tools.tool import Tool
from cairn.version import __version__

RESULT_BYTES, LEAST_BYTES = 16_384, 1_024
VALIDATORS_S = 30.0
"""How long validators of an output type may take, where they have a thread."""
ALWAYS = frozenset(BUILTINS) | {FIND, SKILL}
"""The tools that are offered however many there are."""


class Crew(Record, gc=True):
    """An agent made ready: its rules, and the parts the shell works with."""

    agent: Agent
    rules: Rules
    models: tuple[Model, ...]
    schemas: tuple[ToolSchema, ...]
    output: Any = None
    summary: Model | None = None
    """The model that summarises."""
    classifier: Model | None = None
    """The model that says what kind of task it is."""
    fingerprint: Fingerprint = Fingerprint()
    hooks: tuple[Hook, ...] = ()
    """Who is asked before a tool runs and before a model is asked, in order."""
    stock: tuple[int, ...] = ()
    """Which offers of the agent's servers of tools it was made with."""


class Output:
    """The type of a final answer: its schema, and text to value."""

    def __init__(self, output_type: Any) -> None:
        from pydantic import TypeAdapter

        adapter: Any = TypeAdapter(output_type)
        self.schema: dict[str, Any] = adapter.json_schema()
        self._name = f"the validators of the output type {name_of(output_type)}"
        self._validate: Any = adapter.validate_json
        self._theirs = runs_theirs(adapter.core_schema)
        if self._theirs:
            self._validate = watched(self._name, self._validate)

    def parse(self, text: str) -> Any:
        """The value a text stands for. Raises pydantic's ValidationError."""
        return self._validate(_unfenced(text))

    async def value_of(self, text: str, threads: Threads = in_a_thread) -> Any:
        """As `parse`, where somebody can wait: validators of the deployment's get a thread.

        Raises:
            ValidationError: pydantic's; it stands for none.
            Overdue: they took longer than 30 seconds.
            RuntimeError: they raised what would end the process, such as `SystemExit`.
        """
        if not self._theirs:
            return self.parse(text)
        return await called(self._name, self.parse, text, seconds=VALIDATORS_S, threads=threads)

    def problem(self, text: str) -> str:
        """What is wrong with a text, empty for nothing."""
        from pydantic import ValidationError

        try:
            try:
                self.parse(text)
            except ValidationError as error:
                lines = [
                    f"{'.'.join(map(str, e['loc'])) or 'answer'}: {e['msg']}"
                    for e in error.errors(include_url=False, include_input=False)[:8]
                ]
                said = f"it must be JSON of the agreed schema; {'; '.join(lines)}"
                return shorten(said, MESSAGE_CHARS)
        except BaseException as error:  # validators, and the text of what they raise, are theirs
            said = words_of(error)
            named = said if self._name in said else f"{self._name} raised {said}"
            return shorten(named, MESSAGE_CHARS)
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
    hooks: tuple[Hook, ...] = (),
) -> Crew:
    """The agent's rules under a deployment's policy, ladder and hooks.

    Args:
        agent: Who works.
        policy: What may run unasked.
        ladder: What is done about each class of fault.
        unknown_price: What a model is counted at whose price nobody knows.
        hooks: Those of the deployment, asked before the agent's own.

    Raises:
        ConfigError: a model string cannot be found, a fallback tool is not on offer, two hooks
            share a name, one is about a tool that is not there, or the arguments of a tool that
            feeds a block do not fit.
    """
    stock, agent = agent.stock, agent.stocked()
    hooks = joined(hooks, agent.hooks, f"Agent({agent.name!r}).hooks")
    if all(stock):  # whatever servers offer is known now
        check_tools(agent.hooks, agent.tools, f"Agent({agent.name!r}).hooks")
        check_fed(f"Agent({agent.name!r}).context", agent.feeds, agent.tools)
    models = tuple(find_model(m) for m in agent.models)
    specs = _specs(agent, models[0].window, complete=all(stock))
    schemas = tuple(tool.schema for tool in agent.tools.values())
    output = Output(agent.output_type) if agent.output_type is not None else None
    summary = _summary_model(agent, models)
    sorter = agent.intake.model if agent.intake is not None else None
    classifier = find_model(sorter) if sorter is not None else None
    spec_of = partial(_spec_of, unknown_price=unknown_price)
    rules = Rules(
        tools=specs,
        models=tuple(map(spec_of, models)),
        policy=policy,
        agent_policy=agent.policy,
        ladder=ladder,
        check_answer=output.problem if output else None,
        checks=tuple(agent.checks),
        approval_ttl_us=agent.approval_us,
        approval=agent.approval,
        repairs=agent.repairs,
        output_mode="schema" if output else "text",
        tool_choice=agent.tool_choice,
        history=agent.history,
        results=agent.tool_results,
        summary=spec_of(summary) if summary is not None else None,
        keeps=agent.keeps_facts,
        feeds=agent.feeds,
        intake=_intake_rules(agent, spec_of(classifier) if classifier is not None else None),
        **_offers(agent, specs, schemas, models),
        **_many(agent, schemas, models),
    )
    return Crew(
        agent=agent,
        rules=rules,
        models=models,
        schemas=schemas,
        output=output,
        fingerprint=fingerprint_of(agent, rules, output, hooks),
        hooks=hooks,
        summary=summary,
        classifier=classifier,
        stock=stock,
    )


def _intake_rules(agent: Agent, classifier: ModelSpec | None) -> IntakeRules:
    needs = agent.intake.needs if agent.intake is not None else ()
    return IntakeRules(needs=needs, holds=holds, model=classifier)


def fingerprint_of(
    agent: Agent, rules: Rules, output: Output | None = None, hooks: Sequence[Hook] = ()
) -> Fingerprint:
    """Which version of an agent this is, under its deployment's policy, ladder and hooks."""
    sources = Sources()
    tools = agent.tools.values()
    functions = [tool.function for tool in tools]
    functions += [tool.probe.function for tool in tools if tool.probe is not None]
    functions += [key for tool in tools if (key := tool.spec.conflict_key) is not None]
    functions += [names for tool in tools if (names := tool.spec.binds) is not None]
    functions += agent.checks.values()
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
        *_context_options(agent),
        *_intake_options(agent, sources),
        *([msgspec.to_builtins(agent.approval)] if agent.approval is not None else []),
    ]
    return Fingerprint(
        agent=digest(options),
        prompt=digest(_prompt(agent, sources)),
        model=digest([spec.name for spec in rules.models]),
        policy=digest([declared, _described(agent.policy, sources)] if agent.policy else declared),
        ladder=digest(rules.ladder.rows),
        code=digest([__version__, *sources.read_all(functions)]),
        hooks=hooks_digest(hooks, sources),
        skills=agent.skills.hash,
        tools=tuple(sorted(f"{tool.name} {_declared(tool)}" for tool in tools)),
        unread=tuple(sorted(set(sources.unread))),
    )


def _intake_options(agent: Agent, sources: Sources) -> list[Any]:
    intake = agent.intake
    said: list[Any] = []
    if intake is None:
        return said
    if intake.needs:
        said.append(["needs", msgspec.to_builtins(intake.needs)])
    if intake.rule is not None:
        said.append(["rule", sources.read(intake.rule)])
    if intake.model is not None:
        said.append(["classified by", getattr(intake.model, "name", intake.model)])
    return said


def _prompt(agent: Agent, sources: Sources) -> Any:
    """The instructions, and behind them the other blocks if there are any."""
    text = agent.instructions
    first = text if isinstance(text, str) else sources.read(text)
    others = [b for b in agent.blocks if b.name != "instructions"]
    if not others:
        return first
    return [
        first,
        *(
            [b.name, b.text if isinstance(b.text, str) else sources.read(b.text), b.place, b.tokens]
            for b in others
        ),
    ]


def _specs(agent: Agent, window: int, *, complete: bool) -> dict[str, ToolSpec]:
    """The agent's tools; a fallback that is not among them is refused when all are known.

    Where nothing else is said, a result that would fill a quarter of a small window is stored.
    """
    specs = {name: tool.spec for name, tool in agent.tools.items()}
    if 0 < window < RESULT_BYTES:
        bound = max(window, LEAST_BYTES)
        specs = {
            name: msgspec.structs.replace(spec, result_bytes=min(spec.result_bytes, bound))
            if spec.result_bytes == RESULT_BYTES
            else spec
            for name, spec in specs.items()
        }
    for name, spec in specs.items():
        if spec.fallback and spec.fallback not in specs and complete:
            raise ConfigError(
                f"tool {name}.fallback",
                f"agent {agent.name!r} has no tool {spec.fallback!r}",
                "Give the agent that tool too",
            )
    return specs


def _offers(
    agent: Agent,
    specs: dict[str, ToolSpec],
    schemas: tuple[ToolSchema, ...],
    models: tuple[Model, ...],
) -> Any:
    """What may be offered, as hashes, and what a request takes beside its messages."""
    few = [s for s in schemas if s.name != FIND]
    plain = [s for s in few if s.name != SEARCH]
    forms = [
        [s for s in form if not reads or specs[s.name].effect == "read"]
        for form in (plain, few)
        for reads in (False, True)
    ]
    texts = [block.text for block in agent.blocks if isinstance(block.text, str)]
    many = len(_rest(schemas)) > FEW
    usual = [s for s in schemas if s.name != SEARCH] if many else plain
    return {
        "offered": _hash_of(msgspec.json.encode(plain)),
        "offers": frozenset(_hash_of(msgspec.json.encode(form)) for form in forms),
        "search_tokens": sum(_tokens(s, models) for s in schemas if s.name == SEARCH),
        "overhead_tokens": _tokens_of_schemas(msgspec.json.encode(usual).decode(), models)
        + sum(map(estimate_tokens, texts or [""])),
    }


def _rest(schemas: tuple[ToolSchema, ...]) -> list[ToolSchema]:
    """The tools that are chosen from where there are many."""
    return [schema for schema in schemas if schema.name not in ALWAYS]


def _many(agent: Agent, schemas: tuple[ToolSchema, ...], models: tuple[Model, ...]) -> Any:
    """Of more than a few tools: the words each is found by, and what its schema takes."""
    rest = _rest(schemas)
    if len(rest) <= FEW:
        return {}
    return {
        "catalogue": {s.name: words(f"{s.name.replace('_', ' ')} {s.description}") for s in rest},
        "always": ALWAYS,
        "tool_tokens": {s.name: _tokens(s, models) for s in rest},
    }


def _hash_of(described: bytes) -> str:
    """Of the tools on offer; empty for none."""
    return sha256(described).hexdigest()[:16] if described != b"[]" else ""


def _context_options(agent: Agent) -> list[Any]:
    """What a fingerprint says of the context, where it is not as by default."""
    said: list[Any] = []
    if (agent.history, agent.tool_results) != ("all", "all"):
        said.append(["history", agent.history, agent.tool_results])
    if agent.keeps_facts:
        said.append("keeps facts")
    if agent.feeds:
        said.append(["feeds", msgspec.to_builtins(agent.feeds)])
    return said


def _summary_model(agent: Agent, models: tuple[Model, ...]) -> Model | None:
    """Who summarises; a model that follows a script cannot."""
    wanted = agent.summary_model
    if wanted is None:
        return None
    if wanted is agent.models[0]:
        return models[0] if getattr(models[0], "summarises", True) else None
    return find_model(wanted)


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


def _tokens(schema: ToolSchema, models: tuple[Model, ...]) -> int:
    return _tokens_of_schemas(msgspec.json.encode(schema).decode(), models)


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
