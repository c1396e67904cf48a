"""The one gate every tool call of every path passes: parse, validate, authorise.

`judge` is asked when a call is first looked at and again right before it starts, so a grant never
outlives the policy it was given under.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

from cairn.core import events as ev
from cairn.core.guard import call_key, canonical
from cairn.core.messages import Record
from cairn.core.names import unknown_tool_message
from cairn.core.policy import Verdict
from cairn.core.rules import Problem, Rules, ToolSpec
from cairn.core.state import Call, RunState, mended_before, repair_subject
from cairn.errors import ErrorClass

BLOCK_RUNG = 1


class Go(Record, gc=True):
    """It may run, with these arguments, by this rule."""

    spec: ToolSpec
    arguments: dict[str, Any]
    rule: str


class Ask(Record, gc=True):
    """A person must say yes first."""

    spec: ToolSpec
    arguments: dict[str, Any]
    rule: str


def call_digest(tool: str, arguments: str) -> str:
    """What an approval is bound to: the tool and its arguments, whatever their spelling."""
    return sha256(tool.encode() + b"\0" + canonical(arguments)).hexdigest()[:32]


def judge(state: RunState, call: Call, rules: Rules) -> Go | Ask | ev.ToolRejected:
    """What may become of a call now."""
    spec = rules.tools.get(call.tool)
    if spec is None:
        said = unknown_tool_message(call.tool, rules.tools)
        return _invalid(state, call, rules, ErrorClass.UNKNOWN_TOOL, said)
    arguments = spec.check(call.arguments)
    if isinstance(arguments, Problem):
        return _invalid(state, call, rules, arguments.error_class, arguments.message)
    if state.guard.rung >= BLOCK_RUNG and state.guard.repeats(call_key(call.tool, call.arguments)):
        return _refuse(
            call,
            "loop",
            ErrorClass.LOOP_DETECTED,
            "this call was already made with the same arguments and brought nothing new",
            "progress guard",
        )
    verdict = _authorise(state, spec, arguments, rules)
    if verdict.decision == "deny":
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            f"{spec.name} is not allowed here ({verdict.rule})",
            verdict.rule,
        )
    if spec.kind == "question" and _nobody_to_ask(state):
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            "this run asks nobody: go on with what you have, or say what is missing",
            verdict.rule,
        )
    if verdict.decision == "allow":
        return Go(spec=spec, arguments=arguments, rule=verdict.rule)
    if call.granted and call.digest == call_digest(call.tool, call.arguments):
        return Go(spec=spec, arguments=arguments, rule=f"approval {call.approval}")
    if _nobody_to_ask(state):
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            f"{spec.name} needs a person's approval and this run takes none ({verdict.rule})",
            verdict.rule,
        )
    return Ask(spec=spec, arguments=arguments, rule=verdict.rule)


def _nobody_to_ask(state: RunState) -> bool:
    return state.created is not None and state.created.approvals == "none"


def _authorise(state: RunState, spec: ToolSpec, arguments: dict[str, Any], rules: Rules) -> Verdict:
    if state.created is not None and state.created.kind == "query" and spec.effect != "read":
        return Verdict(decision="deny", rule="task kind: query")
    try:
        verdict = rules.policy.judge(spec.name, spec.effect, arguments)
    except Exception as error:  # a policy that fails must not let anything through
        return Verdict(decision="deny", rule=f"policy failed: {type(error).__name__}: {error}")
    if spec.effect == "dangerous" and verdict.decision == "allow":
        return Verdict(decision="ask", rule="floor: dangerous")
    return verdict


def _invalid(
    state: RunState, call: Call, rules: Rules, error_class: ErrorClass, message: str
) -> ev.ToolRejected:
    mended = 0 if call.edited else mended_before(state, repair_subject(call, error_class))
    possible = {"repair", "end"} if mended < rules.repairs else {"end"}
    tries = {f"{error_class.value}:repair": mended}
    rung = rules.ladder.choose(error_class, tries, frozenset(possible))
    return ev.ToolRejected(
        call=call.id,
        kind="invalid",
        error_class=error_class,
        message=message,
        disposition=rung.disposition,
    )


def _refuse(
    call: Call, kind: str, error_class: ErrorClass, message: str, rule: str
) -> ev.ToolRejected:
    return ev.ToolRejected(
        call=call.id,
        kind=kind,  # type: ignore[arg-type]  # only the literals above are passed
        error_class=error_class,
        message=message,
        rule=rule,
    )
