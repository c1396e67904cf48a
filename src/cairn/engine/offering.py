"""Hooks before a request to a model: they see it and may take tools from its offer, no more."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from hashlib import sha256
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.actions import AskModel
from cairn.core.compaction import to_summarise
from cairn.core.hooked import rule_of
from cairn.core.intake import to_classify
from cairn.core.messages import Message, Record, user
from cairn.core.rules import Problem
from cairn.core.state import RunState
from cairn.core.view import sent
from cairn.crew import Crew
from cairn.engine.asking import Answer, ask, read
from cairn.engine.attend import attend
from cairn.engine.flights import Flights
from cairn.engine.hooked import problem_of
from cairn.engine.journal import OpenJournal
from cairn.hooks import Hook, HookRequest, Narrow
from cairn.ports import Store, ToolSchema


class Offer(Record, gc=True):
    """The tools that a request offers.

    Args:
        schemas: What is offered, in order.
        hash: Of the schemas, as the journal has it; empty when none is offered.
        withheld: Names of those that hooks have left out, in order.
        by: Rules of the hooks that left something out, in order.
    """

    schemas: tuple[ToolSchema, ...]
    hash: str
    withheld: tuple[str, ...] = ()
    by: tuple[str, ...] = ()


async def narrowed_tools(
    action: AskModel,
    crew: Crew,
    offered: tuple[ToolSchema, ...],
    store: Store,
    journal: OpenJournal,
    flights: Flights,
) -> Offer | None:
    """The tools of a request after the hooks have had their say; None when news came meanwhile.

    Hooks that fail are journaled as `error.raised`. Awaits nothing when there are no hooks. What
    is asked beside the turns offers no tools: hooks see it, and there is nothing to narrow.

    Args:
        action: The request that is about to be made.
        crew: Whose hooks are asked, in order; each is shown what those before it have left.
        offered: What would be offered without hooks.
        store, journal, flights: Of the drive.
    """
    hooks = [hook for hook in crew.hooks if hook.kind == "before_model"]
    if not hooks:
        return Offer(schemas=offered, hash=hash_of(offered))
    state = journal.state
    await journal.flush()  # the request cannot be built without awaiting (law 3)
    if journal.state is not state:
        return None
    shown = _shown(state, action)
    work = _offer(hooks, state, action, offered, shown)
    found = await attend(work, "hooks", store, journal, flights, bounded=False)
    journal.tick()
    if found is None or journal.state is not state:
        return None
    offer, problems = found[0]
    if problems:
        journal.record([(action.step, problem) for problem in problems])
    return offer


def _shown(state: RunState, action: AskModel) -> Sequence[Message]:
    if action.purpose == "turn":
        return sent(state.messages, action.view or state.view, state.summary)
    summary = action.purpose == "summary"
    return [user(to_summarise(state, action.cut) if summary else to_classify(state))]


async def _offer(
    hooks: list[Hook],
    state: RunState,
    action: AskModel,
    offered: tuple[ToolSchema, ...],
    messages: Sequence[Message],
) -> tuple[Offer, list[ev.ErrorRaised]]:
    created = state.created
    problems: list[ev.ErrorRaised] = []
    left = tuple(schema.name for schema in offered)
    by: list[str] = []
    for hook in hooks:
        request = HookRequest(
            run=state.run,
            session=created.session if created is not None else "",
            step=action.step,
            attempt=action.attempt,
            model=action.model,
            tools=left,
            messages=messages,
            agent=state.agent,
            principal=state.principal,
            kind=state.kind,
            taint=state.taint,
            purpose=action.purpose,
        )
        said = read(_narrowed, await ask(hook, request), left)
        if isinstance(said, Problem):
            problems.append(problem_of(hook, said))
            said = () if hook.on_error == "deny" else left
        if len(said) < len(left):
            by.append(rule_of(hook.name))
        left = said
    schemas = tuple(schema for schema in offered if schema.name in left)
    withheld = tuple(schema.name for schema in offered if schema.name not in left)
    offer = Offer(schemas=schemas, hash=hash_of(schemas), withheld=withheld, by=tuple(by))
    return offer, problems


def _narrowed(answer: Answer, left: tuple[str, ...]) -> tuple[str, ...] | Problem:
    """The names that stay on offer; a name that was not on offer adds nothing."""
    value = answer.value
    if answer.problem:
        return Problem(message=answer.problem)
    if value is None:
        return left
    if not isinstance(value, Narrow):
        return Problem(message=f"it returned {type(value).__name__}, not None or Narrow")
    names: Any = value.tools
    several = isinstance(names, list | tuple | set | frozenset)
    if not several or not all(isinstance(name, str) for name in names):
        return Problem(message="it gave tools that are no list of names")
    return tuple(name for name in left if name in names)


def hash_of(schemas: tuple[ToolSchema, ...]) -> str:
    """The hash of what is offered, as `model.requested` has it; empty when it is nothing."""
    if not schemas:
        return ""
    key = tuple(map(id, schemas))
    known = _hashes.get(key)
    if known is None:
        known = schemas, sha256(msgspec.json.encode(schemas)).hexdigest()[:16]
        _hashes[key] = known
        while len(_hashes) > KEPT:
            _hashes.popitem(last=False)
    return known[1]


KEPT = 256
_hashes: OrderedDict[tuple[int, ...], tuple[tuple[ToolSchema, ...], str]] = OrderedDict()
"""The last ones, by the identities of the schemas, which are kept alive beside them."""
