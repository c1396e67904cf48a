"""What `decide` goes by: an agent, its tools and models and the deployment's policy, as values.

The functions in here are pure: checking arguments and judging a call read nothing but what they
are given. The shell builds one `Rules` per agent and hands it in.
"""

from __future__ import annotations

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
from cairn.errors import ErrorClass

SECOND_US = 1_000_000
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
        overhead_tokens: Estimated size of instructions and tool schemas.
        approval_ttl_us: How long a request for approval stays open.
        approval: Who may approve calls, where somebody is asked.
        grants: The standing grants as they are known now.
        repairs: How often a tool's arguments, or the answer, may be mended.
        tool_choice: What the model is told about calling, until it has made its first call:
            auto, none, required or a tool's name.
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
    overhead_tokens: int = 0
    approval_ttl_us: int = 7 * 24 * 3600 * SECOND_US
    approval: ApprovalTerms | None = None
    grants: Grants = NO_GRANTS
    repairs: int = 3
    output_mode: Literal["text", "schema", "action"] = "text"
    tool_choice: str = "auto"
    room: Room | None = None
