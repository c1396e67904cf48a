"""`Agent`: who works on a run, with which model, tools and bounds; and its rules as values."""

from __future__ import annotations

import re
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, Literal

from cairn.block import RESERVED, ContextBlock, Source, check_fed
from cairn.core.events import TaskKind
from cairn.core.evolve_calls import REPEATABLE
from cairn.core.evolve_context import KINDS
from cairn.core.intake import FEW
from cairn.core.keeping import REMEMBER
from cairn.core.limits import Limits
from cairn.core.messages import Record, clean
from cairn.core.policy import Policy
from cairn.core.rules import FIND, SKILL, Feed, Problem
from cairn.core.takers import check_taker, name_of
from cairn.core.terms import ApprovalTerms
from cairn.core.view import Choice
from cairn.errors import ConfigError, safe_repr
from cairn.hooks import Hook, checked_hooks
from cairn.intake import Intake
from cairn.models import check_model
from cairn.ports import Model
from cairn.skills import Skills, skills_of
from cairn.tools.registry import collect, servers_in
from cairn.tools.tool import Tool

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
MODES = ("steer", "queue", "interrupt")
TOOL_CHOICES = ("auto", "none", "required")
DEFAULT_TIMEOUT_S = 120.0
BUILTINS = ("ask_user", "update_plan", "read_artifact", "search_history", "find_tools")


class Answer(Record, gc=True):
    """A final answer, as a completion check sees it."""

    run: str
    text: str
    output: Any = None


Check = Callable[[Answer], "str | bool | Awaitable[str | bool | None] | None"]


class Agent:
    """A named way of working on tasks.

    Args:
        name: How runs find it; letters, digits, `.`, `_`, `-`.
        model: A model object or a `provider:name` string.
        instructions: Text, or a function of a `Briefing`, sync (it then runs in a thread) or
            async, asked before every request for at most 60 seconds; what changed is journaled.
        tools: Tools, modules with tools, names of such modules, or servers of tools.
        output_type: Type of the final answer; anything pydantic can validate. The answer must
            then be JSON of it, and comes back as `run.output`.
        limits: Its own bounds, as `Limits` or only some as `{"steps": 10}`; a run's can only be
            stricter.
        completion_checks: Functions of an `Answer` that return None or True to accept it, or
            say what is missing. They run as journaled tasks, sync ones in a thread, and may
            take 60 seconds each.
        fallback_models: Used, in order, when the ladder switches.
        kind: What its runs may do by default: `query` offers read tools only.
        on_message: What becomes of a message that comes to a session while a run of it works:
            `steer`, the run reads it at its next turn; `queue`, it starts a run of its own after
            that one; `interrupt`, that one is ended first.
        builtins: Which of the runtime's own tools it gets. Where its other tools are too many to
            offer all, it gets `find_tools` in any case.
        repairs: How often in a run the answer, what one check found, or (in a row) the
            arguments of one tool may be mended.
        approval_days: How long a request for approval stays open.
        approval: Who may approve its calls, where somebody is asked.
        tool_choice: What the model is told about calling until it has made its first call:
            `auto`, `required`, `none` or the name of a tool.
        policy: What narrows the work of this agent; what it allows changes nothing.
        skills: Folders with skills, or of one skill, each with a `SKILL.md`; or `Skills`. Their
            names stand in the prompt, and it gets the tool `load_skill`.
        hooks: Functions made with `before_tool` and `before_model`, asked in this order, behind
            those of the runtime.
        context: Named pieces of what the model is sent beside the conversation.
        history: How much of the conversation is sent: `all`, a `summary` of what came before
            the last request, or the last so many requests and what followed them.
        tool_results: How many of the last messages with tool results are sent whole; `all`.
        intake: What is settled before it starts to work.
        summary_model: The model that condenses what does not fit any more; the agent's first
            by default, None has a rule do it.
        keeps_facts: Whether that model is also asked for the facts that later conversations
            need; each is then kept with the agent's tool `remember`, through the gate.

    Raises:
        ConfigError: a value is not usable; the message names it and the fix.
    """

    def __init__(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        name: str,
        model: Model | str,
        *,
        instructions: Source = "",
        tools: Sequence[Any] = (),
        output_type: Any = None,
        limits: Limits | Mapping[str, int] | None = None,
        completion_checks: Sequence[Check] = (),
        fallback_models: Sequence[Model | str] = (),
        kind: TaskKind = "operate",
        on_loop: Literal["stop", "ask"] = "stop",
        on_message: Literal["steer", "queue", "interrupt"] = "steer",
        builtins: Sequence[str] = BUILTINS,
        repairs: int = 3,
        approval_days: float = 7.0,
        approval: ApprovalTerms | None = None,
        tool_choice: str = "auto",
        policy: Policy | None = None,
        skills: Sequence[Path | str | Skills] = (),
        hooks: Sequence[Hook] = (),
        context: Sequence[ContextBlock] = (),
        history: Choice = "all",
        tool_results: Literal["all"] | int = "all",
        summary_model: Model | str | None = "first",
        keeps_facts: bool = False,
        intake: Intake | None = None,
    ) -> None:
        _check_name(name)
        where = f"Agent({name!r})"
        models = _models(where, model, fallback_models)
        fine = isinstance(instructions, str) or callable(instructions)
        _require(fine, where, "instructions", instructions, "Give a text or a function")
        if not isinstance(instructions, str):
            check_taker(f"{where}.instructions", instructions, "a Briefing")
        _require(kind in KINDS, where, "kind", kind, f"Use one of {', '.join(KINDS)}")
        fine = on_loop in ("stop", "ask")  # a tuple: what is given may have no hash
        _require(fine, where, "on_loop", on_loop, "Use stop or ask")
        fix = f"Use one of {', '.join(MODES)}"
        _require(on_message in MODES, where, "on_message", on_message, fix)
        fine = _is_number(repairs, int) and repairs >= 0
        _require(fine, where, "repairs", repairs, "Give a whole number, 0 or more")
        self.name = name
        self.models: tuple[Model | str, ...] = models
        self.instructions = instructions
        self.output_type = output_type
        self.limits = _bounds(limits, where)
        self.kind: TaskKind = kind
        self.on_loop: Literal["stop", "ask"] = on_loop
        self.on_message: Literal["steer", "queue", "interrupt"] = on_message
        self.repairs = repairs
        self._govern(where, approval, approval_days, policy, intake)
        self.checks = _by_name(completion_checks, where)
        self.skills = skills_of(skills, f"{where}.skills")
        offered = tools if isinstance(tools, list | tuple) else [tools]
        self.servers = servers_in(offered, f"{where}.tools")
        own = [*_builtin(builtins, where), *self.skills.tools()]
        given = collect([*offered, *own], field=f"{where}.tools")
        self.tools: dict[str, Tool[..., Any]] = _findable(given)
        self.hooks = checked_hooks(hooks, f"{where}.hooks", None if self.servers else self.tools)
        named = isinstance(tool_choice, str)
        known = named and (tool_choice in TOOL_CHOICES or tool_choice in self.tools)
        fine = known or (named and bool(self.servers))
        fix = f"Use {', '.join(TOOL_CHOICES)} or the name of one of its tools"
        _require(fine, where, "tool_choice", tool_choice, fix)
        self.tool_choice = tool_choice
        self._see(where, history, tool_results, summary_model)
        self.keeps_facts = self._keeps(where, keeps_facts)
        self.blocks, self.feeds = self._arranged(where, context)

    def _govern(
        self,
        where: str,
        approval: ApprovalTerms | None,
        approval_days: float,
        policy: Policy | None,
        intake: Intake | None,
    ) -> None:
        """What people have a say in, and what is settled before it works."""
        fine = _is_number(approval_days, int | float) and approval_days > 0
        _require(fine, where, "approval_days", approval_days, "Give a number of days above 0")
        fine = approval is None or isinstance(approval, ApprovalTerms)
        _require(fine, where, "approval", approval, "Give ApprovalTerms(...)")
        self.approval = approval
        self.approval_us = round(approval_days * 86_400 * 1_000_000)
        fine = policy is None or isinstance(policy, Policy)
        _require(fine, where, "policy", policy, "Give a cairn.Policy")
        self.policy = policy
        fine = intake is None or isinstance(intake, Intake)
        _require(fine, where, "intake", intake, "Give Intake(...)")
        self.intake = intake

    def _see(
        self,
        where: str,
        history: Choice,
        tool_results: Literal["all"] | int,
        summary_model: Model | str | None,
    ) -> None:
        """How much of the conversation it is sent, and who condenses the rest."""
        fix = "Use all, summary or a whole number of 1 or more"
        _require(_is_choice(history, "all", "summary"), where, "history", history, fix)
        self.history: Choice = history
        fix = "Use all or a whole number of 1 or more"
        _require(_is_choice(tool_results, "all"), where, "tool_results", tool_results, fix)
        self.tool_results: Literal["all"] | int = tool_results
        if summary_model is not None and summary_model != "first":
            check_model(summary_model, f"{where}.summary_model")
        self.summary_model = self.models[0] if summary_model == "first" else summary_model

    def _keeps(self, where: str, wanted: object) -> bool:
        """Whether facts are kept where the conversation is condensed, if it can be done."""
        _require(isinstance(wanted, bool), where, "keeps_facts", wanted, "Use True or False")
        if wanted is not True:
            return False
        field, model = f"{where}.keeps_facts", self.summary_model
        scripted = model is self.models[0] and not getattr(model, "summarises", True)
        if model is None or scripted:
            says = "no model condenses its conversations, so none says what is to be kept"
            raise ConfigError(field, says, "Give it a summary_model")
        tool = self.tools.get(REMEMBER)
        if tool is None:
            raise ConfigError(field, f"it has no tool {REMEMBER!r}", "Give it MEMORY_TOOLS")
        takes = not isinstance(tool.spec.check('{"text":"a fact"}'), Problem)
        if not takes or tool.spec.recovery not in REPEATABLE:
            says = f"its tool {REMEMBER!r} takes no text alone, or may not be repeated"
            raise ConfigError(field, says, "Give it the one of MEMORY_TOOLS")
        return True

    def _arranged(
        self, where: str, context: Sequence[ContextBlock]
    ) -> tuple[tuple[ContextBlock, ...], tuple[Feed, ...]]:
        """The blocks with a text, the instructions first, and what feeds the others."""
        fine = isinstance(context, list | tuple)
        _require(fine, where, "context", context, "Give a list, as [ContextBlock(...)]")
        for each in context:
            fix = "Give ContextBlock(...)"
            _require(isinstance(each, ContextBlock), where, "context", each, fix)
        names = ["instructions", "skills", *(each.name for each in context)]
        twice = sorted({name for name in names if names.count(name) > 1})
        if twice:
            raise ConfigError(
                f"{where}.context", f"two blocks are called {twice[0]}", "Give each its own name"
            )
        for each in context:
            if each.name in RESERVED:
                raise ConfigError(
                    f"{where}.context",
                    f"{each.name!r} is the name of a part that every request may have",
                    f"Give it another name than {', '.join(RESERVED)}",
                )
            known = not each.tool or each.tool in self.tools or bool(self.servers)
            fix = "Give the agent that tool too"
            _require(known, f"{where}.context[{each.name!r}]", "tool", each.tool, fix)
        own = {"instructions": self.instructions, "skills": self.skills.index}
        first = (_own(name, text) for name, text in own.items() if text != "")
        texts = (*first, *(each for each in context if not each.tool))
        feeds = tuple(each.feed for each in context if each.tool)
        check_fed(f"{where}.context", feeds, self.tools)
        return texts, feeds

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
        theirs = (s.tools() for s in self.servers)
        agent.tools = _findable(collect([*self.tools.values(), *theirs]))
        return agent


def _models(where: str, model: Any, others: Any) -> tuple[Model | str, ...]:
    """The model and those that it is switched to, checked."""
    check_model(model, f"{where}.model")
    fix = 'Give a list of models, as ["openai:gpt-5-mini"]'
    fallbacks = _check_list(where, "fallback_models", others, fix)
    for each in fallbacks:
        check_model(each, f"{where}.fallback_models")
    return (model, *fallbacks)


def _builtin(names: Sequence[str], where: str) -> list[Tool[..., Any]]:
    fix = f"Give a list of {', '.join(BUILTINS)}"
    wanted = [names] if isinstance(names, str) else _check_list(where, "builtins", names, fix)
    for one in wanted:
        fix = f"Choose from {', '.join(BUILTINS)}"
        _require(one in BUILTINS, where, "builtins", one, fix)
    if not wanted:
        return []
    from cairn.tools import builtin

    return [getattr(builtin, name) for name in wanted]


def _findable(tools: dict[str, Tool[..., Any]]) -> dict[str, Tool[..., Any]]:
    """The tools, and where they are too many to offer all, the one that finds the others."""
    several = [name for name in tools if name not in BUILTINS and name != SKILL]
    if len(several) <= FEW or FIND in tools:
        return tools
    from cairn.tools import builtin

    return {**tools, FIND: builtin.find_tools}


def _check_name(name: object) -> None:
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise ConfigError(
            "Agent.name", f"{safe_repr(name)} is no name", "Use letters, digits, '.', '_' and '-'"
        )


def _bounds(limits: Limits | Mapping[str, int] | None, where: str) -> Limits:
    """An agent's limits, given whole, as those that differ from the defaults, or not at all."""
    fine = limits is None or isinstance(limits, Limits | Mapping)
    _require(fine, where, "limits", limits, 'Give Limits(steps=10) or {"steps": 10}')
    return Limits() if limits is None else Limits().changed(limits)


def _require(fine: bool, where: str, field: str, value: object, fix: str) -> None:
    """Refuse a bad option, naming it and the fix."""
    if not fine:
        raise ConfigError(f"{where}.{field}", f"{safe_repr(value)} cannot be used", fix)


def _check_list(where: str, field: str, value: Any, fix: str) -> list[Any]:
    """Refuse what is no list, or a text, which would be read letter by letter."""
    several = isinstance(value, Sequence | set | frozenset) and not isinstance(value, str | bytes)
    _require(several, where, field, value, fix)
    return list(value)


def _own(name: str, text: Source) -> ContextBlock:
    """A block that the agent itself is made of: never cut, never left out."""
    said = clean(text) if isinstance(text, str) else text  # instructions are made storable
    return ContextBlock(name, said, tokens=sys.maxsize, needed=True)


def _is_choice(value: object, *words: str) -> bool:
    return value in words if isinstance(value, str) else _is_number(value, int) and value > 0  # type: ignore[operator]  # it is one


def _is_number(value: object, kind: Any) -> bool:
    return isinstance(value, kind) and not isinstance(value, bool)


def _by_name(checks: Sequence[Check], where: str) -> dict[str, Check]:
    """The completion checks by the names they have in journals."""
    field = f"{where}.completion_checks"
    _check_list(where, "completion_checks", checks, "Give a list of functions of an Answer")
    for check in checks:
        if not callable(check):
            raise ConfigError(
                field, f"{safe_repr(check)} cannot be used", "Give functions of an Answer"
            )
        check_taker(field, check, "an Answer")
    found = {name_of(check): check for check in checks}
    if len(found) != len(checks):
        raise ConfigError(field, "two checks have one name", "Give each its own name")
    return found
