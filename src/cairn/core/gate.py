"""The one gate every tool call of every path passes: parse, validate, authorise.

`judge` is asked when a call is first looked at and again right before it starts, so a grant never
outlives the policy it was given under.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.grants import PREFIX
from cairn.core.guard import call_key, canonical
from cairn.core.hooked import still_asked
from cairn.core.keylike import MARKER
from cairn.core.messages import Record, clean, parse_object
from cairn.core.names import MESSAGE_CHARS, unknown_tool_message
from cairn.core.policy import FLOOR, STRICTNESS, Intent, Verdict, weigh
from cairn.core.rules import Problem, Rules, ToolSpec
from cairn.core.secrets import undeclared
from cairn.core.state import Call, RunState, authors, mended_before, repair_subject
from cairn.core.terms import ApprovalTerms, BoundFile, narrowed, unmet
from cairn.errors import ErrorClass, words_of

BLOCK_RUNG = 1
PLAIN = str | int | float | bool | None
"""What a default must be to be handed over by a redirect."""
MOST_REDIRECTS = 3
"""How often a call may be redirected, one after the other."""
UNREADABLE = "files that cannot be read"
"""The rule of a call that nobody can approve, for its files cannot be bound."""
MOST_VOIDED = 1
"""How often a call is asked about anew whose files changed after somebody had said yes."""


class Go(Record, gc=True):
    """It may run, with these arguments, by this rule."""

    spec: ToolSpec
    arguments: dict[str, Any]
    rule: str


class Ask(Record, gc=True):
    """A person must say yes first, on these terms."""

    spec: ToolSpec
    arguments: dict[str, Any]
    rule: str
    terms: ApprovalTerms | None = None
    reason: str = ""


def call_digest(tool: str, arguments: str, files: tuple[BoundFile, ...] = ()) -> str:
    """What an approval is bound to: the tool, its arguments whatever their spelling, and files."""
    bound = tool.encode() + b"\0" + canonical(arguments)
    for file in files:
        bound += b"\0" + file.path.encode("utf-8", "replace") + b"\0" + file.hash.encode()
    return sha256(bound).hexdigest()[:32]


def judge(
    state: RunState, call: Call, rules: Rules, now: int = 0, beside: int = 0
) -> Go | Ask | ev.ToolRejected | ev.ToolRedirected:
    """What may become of a call at the time `now`, by default that of the last event.

    `beside` counts the other calls that are about to be started with it.
    """
    spec = rules.tools.get(call.tool)
    if spec is None and call.redirects:
        return _misled(call, f"there is no tool {call.tool!r}")
    if spec is None:
        said = unknown_tool_message(call.tool, rules.tools)
        return _invalid(state, call, rules, ErrorClass.UNKNOWN_TOOL, said)
    unfit = _unfit(state, call, spec)
    if unfit is not None:
        return unfit
    arguments = spec.check(call.arguments)
    if isinstance(arguments, Problem) and call.redirects and not call.edited:
        return _misled(call, arguments.message)
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
    others = state.spent.calls - (call.attempt > 0) + beside
    verdict = _authorise(intent_of(state, spec, arguments, others), state, rules)
    if verdict.decision == "deny":
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            _because(f"{spec.name} is not allowed here ({verdict.rule})", verdict),
            verdict.rule,
        )
    if verdict.decision == "redirect":
        return _redirect(call, arguments, verdict)
    if spec.kind == "question" and _nobody_to_ask(state):
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            "this run asks nobody: go on with what you have, or say what is missing",
            verdict.rule,
        )
    asked = still_asked(call)
    if verdict.decision == "allow" and asked is None:
        return Go(spec=spec, arguments=arguments, rule=verdict.rule)
    return _answered(
        state,
        call,
        rules,
        max(now, state.at),
        Ask(
            spec=spec,
            arguments=arguments,
            rule=verdict.rule,
            terms=narrowed(narrowed(narrowed(rules.approval, spec.approval), verdict.terms), asked),
            reason=verdict.reason,
        ),
    )


def probe_hindrance(state: RunState, call: Call, rules: Rules) -> str:
    """Why nobody may look what came of a call; empty when the policy lets it be looked at.

    A probe is judged as a read by the call's own tool. Where the policy would ask, the yes that the
    call was started on is enough: looking is one more attempt of the same call.
    """
    spec = rules.tools[call.tool]
    arguments = spec.check(call.arguments)
    if isinstance(arguments, Problem):
        return ""  # the probe is not called with them, and answers that it cannot tell
    intent = msgspec.structs.replace(intent_of(state, spec, arguments), effect="read")
    verdict = _authorise(intent, state, rules)
    if verdict.decision in {"allow", "ask"}:
        return ""
    return _because(f"its probe is not allowed here ({verdict.rule})", verdict)


def _answered(
    state: RunState, call: Call, rules: Rules, now: int, asks: Ask
) -> Go | Ask | ev.ToolRejected:
    """A yes that was given for exactly this, by somebody who may; else a person is asked."""
    spec, arguments, terms = asks.spec, asks.arguments, asks.terms
    paths = bound_paths(spec, arguments)
    if isinstance(paths, str):
        return _refuse(call, "denied", ErrorClass.PERMISSION_DENIED, paths, asks.rule)
    same = call.granted and call.digest == call_digest(call.tool, call.arguments, call.files)
    if same and paths == tuple(file.path for file in call.files):
        who, roles = call.granted_by, call.granted_roles
        if not unmet(terms, who, roles, authors(state, call)):
            return Go(spec=spec, arguments=arguments, rule=f"approval {call.approval}")
    if spec.effect != "dangerous" and spec.binds is None:
        grant = rules.grants.answering(state, call, arguments, terms, now)
        if grant:
            return Go(spec=spec, arguments=arguments, rule=f"{PREFIX}{grant}")
    if call.voided > MOST_VOIDED:
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            "the files it names were changed again after a person had approved it",
            "files bound to the approval",
        )
    if _nobody_to_ask(state):
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            _because(
                f"{spec.name} needs a person's approval and this run takes none ({asks.rule})", asks
            ),
            asks.rule,
        )
    return asks


def bound_paths(spec: ToolSpec, arguments: dict[str, Any]) -> tuple[str, ...] | str:
    """The files an approval of these arguments is bound to, or why that cannot be told."""
    if spec.binds is None:
        return ()
    try:
        return tuple(sorted({str(path) for path in spec.binds(arguments)}))
    except BaseException as error:  # even SystemExit refuses this call and ends nothing else
        said = clean(words_of(error)[:MESSAGE_CHARS])
        return f"which files {spec.name} names cannot be told: {said}"


def _secrets(call: Call, spec: ToolSpec) -> ev.ToolRejected | None:
    """A refusal, if what is called with holds a secret that the tool may not have."""
    lost = MARKER.search(call.arguments)
    if lost is not None:
        said = (
            f"{spec.name} was called with what looks like a key, {lost[0]}. Such a value is kept "
            "nowhere, so the call cannot be made. Have it registered as a secret and declared for "
            "this tool, or leave it out"
        )
        return _refuse(call, "denied", ErrorClass.PERMISSION_DENIED, said, "unregistered secret")
    name = undeclared(call.arguments, spec.secrets)
    if not name:
        return None
    said = (
        f"{spec.name} may not be given the secret {name!r} there: the tool does not declare it. "
        f'Its deployer can write @tool(secrets=("{name}",)); else leave the secret out'
    )
    return _refuse(call, "denied", ErrorClass.PERMISSION_DENIED, said, "undeclared secret")


def _nobody_to_ask(state: RunState) -> bool:
    return state.created is not None and state.created.approvals == "none"


def intent_of(
    state: RunState, spec: ToolSpec, arguments: dict[str, Any], calls: int | None = None
) -> Intent:
    """What the policy is asked about a call of this tool, in this run as it stands.

    `calls` are those started beside this one; by default all that were started.
    """
    return Intent(
        tool=spec.name,
        effect=spec.effect,
        arguments=arguments,
        agent=state.agent,
        principal=state.principal,
        kind=state.kind,
        taint=state.taint,
        micro_usd=state.usage.micro_usd,
        calls=state.spent.calls if calls is None else calls,
        tokens=state.usage.tokens,
    )


def _unfit(state: RunState, call: Call, spec: ToolSpec) -> ev.ToolRejected | None:
    """What forbids a call before anybody looks at what it is about."""
    both = {call.name, call.tool}  # what was called, and what runs in its place
    if not call.by_person and not both.isdisjoint(state.withheld):
        return _refuse(
            call,
            "denied",
            ErrorClass.PERMISSION_DENIED,
            f"{spec.name} was not offered in this turn: a hook withheld it",
            "withheld by a hook",
        )
    return _secrets(call, spec) if spec.kind == "call" else None  # a person is shown the handle


def _authorise(intent: Intent, state: RunState, rules: Rules) -> Verdict:
    run = state.created.policy if state.created is not None else None
    try:
        verdict = weigh(rules.policy, intent, rules.agent_policy, run)
        if verdict.decision not in STRICTNESS:
            raise ValueError(f"{verdict.decision!r} is no decision")
    except BaseException as error:  # a policy that fails, in any way, lets nothing through
        said = clean(words_of(error)[:MESSAGE_CHARS])
        return Verdict(decision="deny", rule=f"policy failed: {said}")
    if intent.effect == "dangerous" and verdict.decision == "allow":
        return FLOOR
    return verdict


def _redirect(
    call: Call, arguments: dict[str, Any], verdict: Verdict
) -> ev.ToolRedirected | ev.ToolRejected:
    """The call that the policy puts in this one's place; none once this one may have run."""
    target = verdict.redirect
    if target is None or call.attempt:
        return _misled(call, "a call that was tried is not redirected any more", verdict.rule)
    if len(call.redirects) >= MOST_REDIRECTS:
        said = f"it was redirected {MOST_REDIRECTS} times already"
        return _misled(call, said, verdict.rule)
    plain = {name: value for name, value in arguments.items() if isinstance(value, PLAIN)}
    mapped = target.mapped(parse_object(call.arguments) or {}, plain)
    if mapped is None:
        return _misled(call, "an argument that it hands over is not there", verdict.rule)
    return ev.ToolRedirected(
        call=call.id,
        tool=target.tool,
        arguments=msgspec.json.encode(mapped).decode(),
        rule=verdict.rule,
        reason=verdict.reason,
    )


def _misled(call: Call, problem: str, rule: str = "") -> ev.ToolRejected:
    """A redirect that leads nowhere: that is the policy's fault, and nothing runs."""
    by = rule or call.redirects[-1]
    said = f"{call.name} is redirected here ({by}), and that cannot be done: {problem}"
    return _refuse(call, "denied", ErrorClass.PERMISSION_DENIED, said, by)


def _because(said: str, verdict: Verdict | Ask) -> str:
    return f"{said}: {verdict.reason}" if verdict.reason else said


def _invalid(
    state: RunState, call: Call, rules: Rules, error_class: ErrorClass, message: str
) -> ev.ToolRejected:
    by_person = call.edited or call.by_person
    mended = 0 if by_person else mended_before(state, repair_subject(call, error_class))
    possible = {"repair", "end"} if mended < rules.repairs else {"end"}
    tries = {f"{error_class.value}:repair": mended}
    rung = rules.ladder.choose(error_class, tries, frozenset(possible))
    return ev.ToolRejected(
        call=call.id,
        kind="invalid",
        error_class=error_class,
        message=message,
        disposition="repair" if call.kept else rung.disposition,  # no fact is worth a run
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
