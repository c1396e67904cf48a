"""What `decide` goes by: an agent, its tools and models and the deployment's policy, as values.

The functions in here are pure: checking arguments and judging a call read nothing but what they
are given. The shell builds one `Rules` per agent and hands it in.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any, Literal

from cairn.core.budgets import Room
from cairn.core.events import Effect, Recovery
from cairn.core.grants import NO_GRANTS, Grants
from cairn.core.ladder import DEFAULT_LADDER, Ladder
from cairn.core.limits import FREE, Price
from cairn.core.messages import Record
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.core.terms import ApprovalTerms
from cairn.core.view import Choice
from cairn.errors import ConfigError, ErrorClass

SECOND_US = 1_000_000
INPUT = re.compile(r"\$input(?![A-Za-z0-9_])")
"""Where the person's request is put into what a tool is called with."""
SEARCH, FIND, SKILL = "search_history", "find_tools", "load_skill"
GRACE_US = 30 * SECOND_US
"""After a call's time-out, how long before "it did not happen" may be said (law 4)."""


class Problem(Record):
    """Arguments that do not fit, said so that the model can mend them."""

    message: str
    error_class: ErrorClass = ErrorClass.INVALID_ARGUMENTS


Check = Callable[[str], "dict[str, Any] | Problem"]
"""From argument text to the arguments a tool is called with, or to what is wrong with them."""


class ToolSpec(Record, gc=True):
    """Everything about a tool that decisions need, declared once.

    Args:
        name: As the model calls it.
        check: Validates argument text against the schema.
        effect: May it run unasked: read, write or dangerous.
        recovery: May it run again when unsure: repeat, keyed, probe or once.
        timeout_us: Deadline of one attempt.
        settle_us: How long after its processes are gone an effect may still appear.
        key_ttl_us: How long the other side honours a key; 0 for always.
        conflict_key: Names what a write touches; two writes of different keys may overlap.
        fallback: The tool that may stand in for this one.
        retries: Attempts after a known failure, where the effect allows it.
        backoff_us: Wait before the first of them; doubles each time.
        micro_usd: What a call costs.
        result_bytes: Results above this become artifacts.
        kind: `call` for a tool with a function, `question` for one that asks a person.
        approval: Who may approve its calls, where somebody is asked.
        binds: From the arguments to the files whose content an approval is bound to.
        taint: Labels of the untrusted content that its outcome brings into the run.
        secrets: Argument and name of each registered secret it may be given; an empty argument
            is any of them.
        check_some: As `check`, strictly, for some of the arguments and without defaults; None
            where values stay as they are written.
    """

    name: str
    check: Check
    effect: Effect = "dangerous"
    recovery: Recovery = "once"
    timeout_us: int = 60 * SECOND_US
    settle_us: int = 0
    key_ttl_us: int = 0
    conflict_key: Callable[[dict[str, Any]], str] | None = None
    fallback: str = ""
    retries: int = 0
    backoff_us: int = SECOND_US // 2
    micro_usd: int = 0
    result_bytes: int = 16_384
    kind: Literal["call", "question"] = "call"
    sources: bool = False
    approval: ApprovalTerms | None = None
    binds: Callable[[dict[str, Any]], Sequence[str]] | None = None
    taint: tuple[str, ...] = ()
    secrets: tuple[tuple[str, str], ...] = ()
    check_some: Check | None = None


class ModelSpec(Record):
    """What decisions need to know of a model.

    `takes_tools` false means that it answers with one JSON action in place of tool calls.
    """

    name: str
    price: Price = FREE
    window: int = 128_000
    max_output: int = 4_096
    timeout_us: int = 120 * SECOND_US
    takes_tools: bool = True


class Need(Record):
    """Something that a request must hold.

    Args:
        name: What it is, in a word or two.
        question: What the person is asked when it is missing.
        pattern: A regular expression that is found in a message that holds it, in capitals or
            small letters. Each message of persons in the conversation is searched by itself, the
            newest first, each as far as its last million characters: what a pattern stands for
            must stand in one of them. It is matched in linear time, so it has no look-around
            and no back-references. One that an empty message holds too asks for nothing, and is
            refused.
    """

    name: str
    question: str
    pattern: str


class IntakeRules(Record):
    """What is settled before work starts.

    Args:
        needs: What a request must hold.
        holds: Whether a pattern is found in a text, in time that grows with the text and no
            faster; None where there are no needs.
        model: The model that says what kind of task it is; None where nobody does.

    Raises:
        ConfigError: there are needs, and nothing that looks for them.
    """

    needs: tuple[Need, ...] = ()
    holds: Callable[[str, str], bool] | None = None
    model: ModelSpec | None = None

    def __post_init__(self) -> None:
        if self.needs and self.holds is None:
            fix = "Give cairn.intake.holds"
            raise ConfigError("IntakeRules.holds", "nothing looks for the needs", fix)


class Feed(Record):
    """A call that the runtime makes before the model is asked.

    Args:
        tool: What is called.
        arguments: A JSON object; in its texts `$input` stands for the person's request.
        block: The context block it feeds.
        tokens: How many tokens the model is sent of what comes; 0 for as many as of any result.
        over: What is done with more: it is shortened, or left out.
        needed: Whether the run fails when the block cannot be fed.
    """

    tool: str
    arguments: str
    block: str = ""
    tokens: int = 0
    over: Literal["cut", "out"] = "cut"
    needed: bool = False


class Rules(Record, gc=True):
    """All that `decide` goes by beside the state.

    Args:
        tools: The tools on offer, by name.
        models: The first choice and its fallbacks.
        policy: The deployment's policy.
        agent_policy: The agent's own, which only narrows.
        ladder: What is done about each class of fault.
        check_answer: Says what is wrong with a final answer, empty for nothing.
        checks: Names of the completion checks, run as tasks, in order.
        offered: Hash of the tool schemas offered.
        offers: All that may be offered: to a query its reads, and `search_history` as soon as a
            part of the conversation is not sent any more.
        search_tokens: Estimated size of the schema of `search_history`.
        overhead_tokens: Estimated size of tool schemas and of the blocks that are not computed.
        approval_ttl_us: How long a request for approval stays open.
        approval: Who may approve calls, where somebody is asked.
        grants: The standing grants as they are known now.
        repairs: How often a tool's arguments, or the answer, may be mended.
        tool_choice: What the model is told about calling, until it has made its first call:
            auto, none, required or a tool's name.
        history: How much of the conversation is sent.
        results: How many of the last messages with tool results are sent whole.
        summary: The model that summarises; None to have a rule do it.
        keeps: Whether it is also asked for facts to remember, which are kept then.
        intake: What is settled about a task before work starts.
        catalogue: The words that each of many tools is found by; empty where all are offered.
        always: The tools that are offered all the same.
        tool_tokens: What the schemas of those in the catalogue are estimated at.
        feeds: The calls that are made before the model is asked for the first time.
        room: What budgets over time have left, as far as is known; None when nobody was refused.
    """

    tools: dict[str, ToolSpec]
    models: tuple[ModelSpec, ...]
    policy: Policy = DEFAULT_POLICY
    agent_policy: Policy | None = None
    ladder: Ladder = DEFAULT_LADDER
    check_answer: Callable[[str], str] | None = None
    checks: tuple[str, ...] = ()
    offered: str = ""
    offers: frozenset[str] = frozenset()
    overhead_tokens: int = 0
    search_tokens: int = 0
    approval_ttl_us: int = 7 * 24 * 3600 * SECOND_US
    approval: ApprovalTerms | None = None
    grants: Grants = NO_GRANTS
    repairs: int = 3
    output_mode: Literal["text", "schema", "action"] = "text"
    tool_choice: str = "auto"
    history: Choice = "all"
    results: Literal["all"] | int = "all"
    summary: ModelSpec | None = None
    keeps: bool = False
    feeds: tuple[Feed, ...] = ()
    intake: IntakeRules = IntakeRules()
    catalogue: dict[str, Counter[str]] = {}
    always: frozenset[str] = frozenset()
    tool_tokens: dict[str, int] = {}
    room: Room | None = None
