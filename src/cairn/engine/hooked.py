"""The one place where hooks are asked about a call: on every way to its start.

A call is looked at as it would run, after the policy has judged it and before a person is asked
about it or it starts. What the hooks say is journaled before anything is done about it: a changed
call as `tool.edited`, a refused one as `tool.rejected`, a hook that fails as `error.raised`, each
with the rule `hook:NAME`. A changed call passes the gate again.
"""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.actions import Action, Append, StartCalls
from cairn.core.decide_calls import refused
from cairn.core.gate import Ask, call_digest, judge
from cairn.core.grants import grant_of
from cairn.core.guard import canonical
from cairn.core.hooked import hook_of, rule_of, seen_by_hooks, still_asked
from cairn.core.messages import Record, clean
from cairn.core.rules import Problem
from cairn.core.state import Call, RunState
from cairn.core.terms import FREE, ApprovalTerms
from cairn.crew import Crew
from cairn.engine.asking import Answer, ask, read
from cairn.engine.attend import attend
from cairn.engine.flights import Flights
from cairn.engine.journal import OpenJournal
from cairn.errors import CairnError, ErrorClass, words_of
from cairn.governance.secrets import Sealed
from cairn.hooks import Deny, Hook, HookCall, Rewrite, frozen, thawed
from cairn.ports import Store
from cairn.tools.results import to_json

REASON_CHARS = 1_000
MOST_BYTES = 1 << 20
"""Size of the arguments that a hook may give, as JSON."""
Asking = ev.ApprovalRequested | ev.InputRequested | ev.ToolStarted


class Looked(Record, gc=True):
    """What the hooks said of a call as it stood.

    Args:
        stood: What it was then: its form, attempt, and whether somebody had said yes to it.
        edits: Arguments it got, each with the rule of the hook that gave them, in order.
        refusal: Why it does not run, None if it may.
    """

    stood: tuple[str, int, bool]
    edits: tuple[tuple[str, str], ...] = ()
    refusal: ev.ToolRejected | None = None


class Hooked:
    """The hooks, for one drive of a run."""

    def __init__(
        self, store: Store, journal: OpenJournal, flights: Flights, sealed: Sealed
    ) -> None:
        self._store = store
        self._journal = journal
        self._flights = flights
        self._sealed = sealed
        self._looked: dict[str, Looked] = {}

    async def consider(self, action: Action, crew: Crew) -> Action | None:
        """The action, if the hooks let it pass; what they want instead; None to decide anew."""
        subjects = _subjects(action)
        if not subjects:
            return action
        state = self._journal.state
        unseen = [
            (step, event)
            for step, event in subjects
            if self._said(state.calls[event.call]) is None
            and any(hook.concerns(state.calls[event.call].tool) for hook in crew.hooks)
        ]
        if unseen:
            await self._look(unseen, crew)
            return None
        facts = [fact for step, event in subjects for fact in self._facts(step, event, crew)]
        return Append(events=tuple(facts)) if facts else action

    def _said(self, call: Call) -> Looked | None:
        """What was said of the call as it stands now."""
        known = self._looked.get(call.id)
        return known if known is not None and known.stood == _stands(call) else None

    # ---------------------------------------------------------------- asking

    async def _look(self, subjects: list[tuple[int, Asking]], crew: Crew) -> None:
        """Ask the hooks about these calls, one after the other."""
        journal = self._journal
        state = journal.state
        await journal.flush()  # a hook may take its time: what is known goes first (law 3)
        if journal.state is not state:
            return
        self._looked = {name: each for name, each in self._looked.items() if name in state.calls}
        for step, event in subjects:
            call = state.calls[event.call]
            work = self._chain(state, call, step, crew)
            found = await attend(work, "hooks", self._store, journal, self._flights, bounded=False)
            if found is None:
                return
            looked, problems = found[0]
            self._looked[call.id] = looked
            if problems:
                journal.record([(step, problem) for problem in problems])
            if journal.state is not state:
                return

    async def _chain(
        self, state: RunState, call: Call, step: int, crew: Crew
    ) -> tuple[Looked, list[ev.ErrorRaised]]:
        """Ask one hook after the other; each is shown what those before it have changed."""
        hooks = [hook for hook in crew.hooks if hook.concerns(call.tool)]
        looked = Looked(stood=_stands(call))
        problems: list[ev.ErrorRaised] = []
        fixed = call.attempt > 0 or await self._passed_before(call)
        edits: list[tuple[str, str]] = []
        text = call.arguments
        for hook in hooks:
            shown = _shown(crew, call.tool, text)
            if isinstance(shown, Problem):
                break  # the gate finds the same, and says it
            answer = await ask(hook, _subject(state, call, step, crew, shown, fixed=fixed))
            said = read(_taken, answer, crew, call.tool, shown)
            if isinstance(said, Problem):
                problems.append(problem_of(hook, said))
                if hook.on_error == "deny":
                    looked = _with(looked, edits, _unanswered(call, hook, said))
                    return looked, problems
            elif isinstance(said, Deny):
                return _with(looked, edits, _denied(call, hook, said.reason)), problems
            elif said is not None and fixed and not await self._passed_before(call):
                reason = "it would change the arguments of a call that was started with them before"
                return _with(looked, edits, _denied(call, hook, reason)), problems
            elif said is not None and not fixed:
                text = self._sealed.text(clean(said))
                edits.append((rule_of(hook.name), text))
        return _with(looked, edits, None), problems

    async def _passed_before(self, call: Call) -> bool:
        """Whether the hooks let it pass as it stands, in this drive or in one before."""
        known = self._looked.get(call.id)
        if known is not None and known.stood[0] == _stands(call)[0]:
            return True
        if not (call.attempt or call.granted or hook_of(call.editor)):
            return False
        after = max(call.asked - 1, 0)
        try:
            entries = await self._store.read(self._journal.state.run, after=after)
        except CairnError:
            return False  # then it is looked at as if for the first time
        return seen_by_hooks(entries, call.id)

    # ---------------------------------------------------------------- what follows

    def _facts(self, step: int, event: Asking, crew: Crew) -> list[tuple[int, ev.Event]]:
        """What the hooks' words become in the journal; nothing where they let it pass."""
        call = self._journal.state.calls[event.call]
        said = self._said(call)
        if said is None or not (said.edits or said.refusal):
            return []
        terms = self._asked_on(event, call, crew)
        facts: list[tuple[int, ev.Event]] = [
            (step, ev.ToolEdited(call=call.id, arguments=arguments, rule=rule, terms=terms))
            for rule, arguments in said.edits
        ]
        if said.refusal is not None:
            facts.append((step, refused(call, said.refusal)))
        else:  # the hooks have seen what it becomes
            form = _form(call.tool, said.edits[-1][1])
            self._looked[call.id] = Looked(stood=(form, call.attempt, False))
        return facts

    def _asked_on(self, event: Asking, call: Call, crew: Crew) -> ApprovalTerms | None:
        """On which terms a person had to be asked about the call; None when nobody had to."""
        if isinstance(event, ev.ApprovalRequested):
            return event.terms or FREE
        if isinstance(event, ev.ToolStarted):
            if event.rule.startswith("approval "):
                return call.terms or FREE
            if grant_of(event.rule):  # the deployment's rules know of no grant: they ask
                asks = judge(self._journal.state, call, crew.rules)
                return (asks.terms if isinstance(asks, Ask) else None) or FREE
        return still_asked(call)


def _subjects(action: Action) -> list[tuple[int, Asking]]:
    """The calls that would start, or that somebody would be asked about."""
    match action:
        case StartCalls(starts=starts):
            return list(starts)
        case Append(events=events):
            return [
                (step, event)
                for step, event in events
                if isinstance(event, ev.ApprovalRequested | ev.InputRequested) and event.call
            ]
        case _:
            return []


def _form(tool: str, arguments: str) -> str:
    return call_digest(tool, arguments)


def _stands(call: Call) -> tuple[str, int, bool]:
    return _form(call.tool, call.arguments), call.attempt, call.granted


def _shown(crew: Crew, tool: str, text: str) -> Any:
    """The arguments as a hook sees them: JSON data, as the tool would be called with."""
    spec = crew.rules.tools.get(tool)
    found = spec.check(text) if spec is not None else Problem(message=f"there is no tool {tool!r}")
    if isinstance(found, Problem):
        return found
    try:
        return msgspec.json.decode(to_json(found))
    except CairnError:
        return msgspec.json.decode(text)  # what has no form in JSON is shown as it was written


def _subject(
    state: RunState, call: Call, step: int, crew: Crew, shown: Any, *, fixed: bool
) -> HookCall:
    created = state.created
    return HookCall(
        run=state.run,
        session=created.session if created is not None else "",
        step=step,
        call=call.id,
        attempt=call.attempt + 1,
        tool=call.tool,
        asked=call.name,
        effect=crew.rules.tools[call.tool].effect,
        arguments=frozen(shown),
        fixed=fixed,
        agent=state.agent,
        principal=state.principal,
        kind=state.kind,
        taint=state.taint,
    )


def _taken(answer: Answer, crew: Crew, tool: str, shown: Any) -> Deny | str | Problem | None:
    """What a hook said, as far as it can be used: changed arguments as JSON text."""
    value = answer.value
    if answer.problem:
        return Problem(message=answer.problem)
    if value is None:
        return None
    if isinstance(value, Deny):
        reason: Any = value.reason
        fine = isinstance(reason, str) and reason.strip()
        return value if fine else Problem(message="it denied without a reason")
    if not isinstance(value, Rewrite):
        said = f"it returned {type(value).__name__}, not None, Deny or Rewrite"
        return Problem(message=said)
    given = value.arguments
    try:
        plain = thawed(given)
        if not isinstance(plain, dict) or not all(isinstance(key, str) for key in plain):
            return Problem(message="it gave arguments that are no mapping of names")
        text = bytes(to_json(plain)).decode()
    except Exception as error:  # whatever stands in there is the hook's
        return Problem(message=f"it gave arguments that are no JSON: {words_of(error)}"[:500])
    if len(text) > MOST_BYTES:
        return Problem(message=f"it gave arguments of more than {MOST_BYTES:,} bytes")
    if canonical(text) == canonical(msgspec.json.encode(shown).decode()):
        return None
    fits = crew.rules.tools[tool].check(text)
    if isinstance(fits, Problem):
        return Problem(message=f"it gave arguments that do not fit: {fits.message}")
    return text


def _with(looked: Looked, edits: list[tuple[str, str]], refusal: ev.ToolRejected | None) -> Looked:
    return msgspec.structs.replace(looked, edits=tuple(edits), refusal=refusal)


def _denied(call: Call, hook: Hook, reason: str) -> ev.ToolRejected:
    said = clean(reason)[:REASON_CHARS]
    return ev.ToolRejected(
        call=call.id,
        kind="denied",
        error_class=ErrorClass.PERMISSION_DENIED,
        message=f"{call.tool} may not run like this ({rule_of(hook.name)}): {said}",
        rule=rule_of(hook.name),
    )


def _unanswered(call: Call, hook: Hook, problem: Problem) -> ev.ToolRejected:
    """Fail closed; what went wrong in the deployment's code is not the model's to read."""
    return ev.ToolRejected(
        call=call.id,
        kind="denied",
        error_class=ErrorClass.PERMISSION_DENIED,
        message=f"{call.tool} was not run: {rule_of(hook.name)} must agree to it, and gave no "
        "answer that can be used. Nothing in the call can mend that",
        rule=rule_of(hook.name),
    )


def problem_of(hook: Hook, problem: Problem) -> ev.ErrorRaised:
    """What the journal says of a hook that gave no answer that can be used."""
    return ev.ErrorRaised(
        error_class=ErrorClass.DEPENDENCY_FAILED,
        message=clean(problem.message)[:REASON_CHARS],
        where=rule_of(hook.name),
    )
