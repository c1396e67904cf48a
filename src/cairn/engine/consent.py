"""What people have said beforehand, and what a yes of theirs is bound to, for one drive of a run.

Before anybody is asked, and before any start, hooks are asked: they may refuse or change a call.
Before anybody is asked, the standing grants are looked at as they are now, and the files that the
approval is to be bound to are hashed. Right before a start on a grant the list is looked at again,
and the start is written only if it has not moved meanwhile; before a start on an approval the
files are hashed again.
"""

from __future__ import annotations

import logging

import msgspec

from cairn.core import events as ev
from cairn.core.actions import Action, Append, StartCalls, append
from cairn.core.gate import UNREADABLE, bound_paths, call_digest
from cairn.core.grants import NO_GRANTS, grant_of
from cairn.core.messages import clean
from cairn.core.rules import Problem
from cairn.crew import Crew
from cairn.engine.files import Unbindable, bind
from cairn.engine.hooked import Hooked
from cairn.engine.host import Host
from cairn.engine.journal import OpenJournal
from cairn.errors import CairnError, ErrorClass
from cairn.ports import Beside, Store

replace = msgspec.structs.replace
log = logging.getLogger("cairn")


class Consent:
    """Grants and bound files, for one drive.

    Attributes:
        grants: The standing grants as they were last looked at.
    """

    def __init__(self, store: Store, host: Host, journal: OpenJournal) -> None:
        self._store = store
        self._host = host
        self._journal = journal
        self.grants = NO_GRANTS
        self.hooked: Hooked | None = None
        """Asks the deployment's hooks; None before there is a drive."""

    def concerns(self, action: Action) -> bool:
        """Whether somebody is to be asked, or something starts that hooks or people let start."""
        if isinstance(action, Append):
            return any(_by_nobody(e) or isinstance(e, ev.InputRequested) for _, e in action.events)
        return isinstance(action, StartCalls)

    async def consider(self, action: Action, crew: Crew | None) -> Action | None:
        """The action with what it needs from outside; None when it must be decided anew."""
        if self.hooked is not None and crew is not None and crew.hooks:
            passed = await self.hooked.consider(action, crew)
            if passed is not action:
                return passed
        if isinstance(action, StartCalls):
            if any(grant_of(event.rule) for _, event in action.starts) and await self._moved():
                return None
            return await self._unchanged(action)
        if isinstance(action, Append) and crew is not None and self._asks_people(action):
            return None if await self._moved() else await self._bound(action, crew)
        return action

    @staticmethod
    def _asks_people(action: Append) -> bool:
        return any(_by_nobody(event) for _, event in action.events)

    def beside(self, starts: list[tuple[int, ev.ToolStarted]], now: int) -> Beside | None:
        """What the start of these calls has to do with the journal `store`."""
        run = self._journal.state.run
        used = [(grant_of(event.rule), event.call) for _, event in starts]
        if not any(n for n, _ in used):
            return None
        counted = [(n, call) for n, call in used if self.grants.is_counted(n, run, call)]
        entries = tuple(
            ev.Entry(
                seq=self.grants.head + place,
                at=max(now, self.grants.at),
                event=ev.GrantUsed(n=n, run=run, call=call),
            )
            for place, (n, call) in enumerate(counted, 1)
        )
        return Beside(head=self.grants.head, entries=entries)

    async def _moved(self) -> bool:
        """Look at the grants; whether they are not as they were. Unreadable ones answer nothing."""
        try:
            found = await self._host.grants(self._store)
        except CairnError as error:
            log.warning("no standing grant answers now, for they cannot be read: %s", error)
            found = NO_GRANTS
        moved = found.head != self.grants.head
        self.grants = found
        return moved

    # ---------------------------------------------------------------- files

    async def _bound(self, action: Append, crew: Crew) -> Action | None:
        """The requests, each bound to the content of the files its call names."""
        journal = self._journal
        named = [self._paths(event, crew) for _, event in action.events]
        if not any(named):
            return action
        # reading files may take its time: what is known goes first (law 3)
        state = journal.state
        await journal.flush()
        if journal.state is not state:
            return None
        events: list[tuple[int, ev.Event]] = []
        shift = 0  # a request that cannot be made leaves no gap in the numbers
        for (step, event), paths in zip(action.events, named, strict=True):
            found = await self._bind(event, paths)
            if isinstance(found, ev.ApprovalRequested | ev.InputRequested) and shift:
                found = replace(found, n=found.n - shift)
            shift += isinstance(found, ev.ToolRejected) and found is not event
            events.append((step, found))
        return Append(events=tuple(events))

    def _paths(self, event: ev.Event, crew: Crew) -> tuple[str, ...]:
        if not isinstance(event, ev.ApprovalRequested):
            return ()
        call = self._journal.state.calls[event.call]
        spec = crew.rules.tools.get(call.tool)
        if spec is None or spec.binds is None:
            return ()
        arguments = spec.check(call.arguments)
        if isinstance(arguments, Problem):
            return ()
        paths = bound_paths(spec, arguments)
        return () if isinstance(paths, str) else paths

    async def _bind(self, event: ev.Event, paths: tuple[str, ...]) -> ev.Event:
        if not paths or not isinstance(event, ev.ApprovalRequested):
            return event
        call = self._journal.state.calls[event.call]
        try:
            files = await bind(self._host.workspaces, self._store, self._journal.state, paths)
        except Unbindable as error:
            return ev.ToolRejected(
                call=call.id,
                kind="denied",
                error_class=ErrorClass.PERMISSION_DENIED,
                message=f"nobody can approve it: {clean(str(error))}",
                rule=UNREADABLE,
            )
        digest = call_digest(call.tool, call.arguments, files)
        return replace(event, files=files, digest=digest)

    async def _unchanged(self, action: StartCalls) -> Action | None:
        """The starts, unless the content of a file is not what was approved."""
        state = self._journal.state
        bound = [call for _, event in action.starts if (call := state.calls[event.call]).files]
        if not bound:
            return action
        await self._journal.flush()
        if self._journal.state is not state:
            return None
        for call in bound:
            paths = tuple(file.path for file in call.files)
            try:
                now = await bind(self._host.workspaces, self._store, state, paths)
            except Unbindable as error:
                return append(_void(call.approval, str(error)), step=call.step)
            changed = [a.path for a, b in zip(call.files, now, strict=True) if a != b]
            if changed:
                said = f"{', '.join(changed)} was changed after it was approved"
                return append(_void(call.approval, said), step=call.step)
        return action


def _by_nobody(event: ev.Event) -> bool:
    """Whether it is decided because nobody has said yes, as far as that is known."""
    match event:
        case ev.ApprovalRequested() | ev.TakeoverRequested():
            return True
        case ev.ToolRejected(kind=kind):
            return kind == "denied"
        case ev.ToolFailed(disposition=disposition):
            return disposition == "takeover"
        case _:
            return False


def _void(n: int, message: str) -> ev.ApprovalVoided:
    return ev.ApprovalVoided(n=n, message=clean(message)[:2000])
