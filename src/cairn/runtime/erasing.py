"""The verbs that hand over, and erase, everything about one principal."""

from __future__ import annotations

from collections.abc import AsyncIterator

import msgspec

from cairn.core.codec import row_object
from cairn.core.erasing import (
    SHARED,
    Erasure,
    Holdings,
    check_over,
    check_shared,
    whole_of,
)
from cairn.core.messages import Principal, clean
from cairn.core.visible import in_json
from cairn.engine.fold_cache import forget
from cairn.engine.given import person_of, principal_of
from cairn.errors import UnknownRun
from cairn.memory.facts import fact_number
from cairn.memory.port import Memory
from cairn.ports import RunInfo, Store
from cairn.runtime.checked import checked
from cairn.runtime.decisions import Decisions
from cairn.runtime.memories import Remembering
from cairn.runtime.twins import twin

STORE = "store"
WHY_CANCELLED = "everything about its principal is erased"


async def exported(store: Store, memory: Memory | None, principal: Principal) -> AsyncIterator[str]:
    """Everything about a principal, one JSON object a line; `kind` says what it is.

    `principal`, then `run` with its line and `event` for each of its own events, `written` for
    each event that they have written in a run of somebody else, a shared session's among them,
    `session`, `fact`, and `note` for each fact of the journal `store` about them, grants among
    these.
    """
    held = await store.holdings(principal)
    yield _line("principal", {"id": principal.id, "tenant": principal.tenant})
    for info in held.runs:
        yield _line("run", msgspec.structs.asdict(info))
        for row in await store.rows(info.run):
            yield _line("event", row_object(info.run, row))
    for info in held.elsewhere:
        for row in await store.rows(info.run):
            if row.actor == principal.id and row.data is not None:
                yield _line("written", row_object(info.run, row))
    for name in held.sessions:
        try:
            found = await store.session(name)
        except UnknownRun:  # its runs were removed; what was said of it is among the notes
            continue
        yield _line("session", msgspec.structs.asdict(found))
    for fact in await memory.export(principal) if memory is not None else ():
        yield _line("fact", msgspec.json.decode(fact))
    wanted = set(held.notes)
    for row in await store.rows(STORE) if wanted else ():
        if row.seq in wanted:
            yield _line("note", row_object(STORE, row))


def _line(kind: str, fields: dict[str, object]) -> str:
    return in_json(msgspec.json.encode({"kind": kind, **fields}).decode())


def _talks(held: Holdings) -> list[str]:
    """For whom the runs of the shared sessions work in which somebody has written."""
    return sorted({info.principal for info in held.shared})


def _left(info: RunInfo) -> str:
    """What was left in a run of somebody else, and why."""
    if info.principal.startswith(SHARED):
        return f"run {info.run}: a message in a shared session that came meanwhile; erase again"
    return f"run {info.run} of {info.principal}: what they wrote there is part of another's run"


def _recalled(info: RunInfo) -> str:
    """That facts were told to a run of somebody else, and what can be done."""
    of = info.principal.removeprefix(SHARED) if info.principal.startswith(SHARED) else ""
    whose = f"of the shared session {of}" if of else f"of {info.principal}"
    return (
        f"run {info.run} {whose}: facts of theirs were recalled there, and stand in its journal "
        "until it is erased with its own principal, or pruned"
    )


class Erasing(Decisions, Remembering):
    """Everything about one principal."""

    @checked
    async def holdings_async(self, principal: Principal | str) -> Holdings:
        """What there is of a principal, and so what `erase` would take; nothing is changed.

        With `elsewhere` the runs of others in which they have written, and with `recalled` those
        that were told facts of theirs: both stay.
        """
        whose = principal_of(principal)
        facts = await self._facts_outside(whose)
        held = await self.store.holdings(whose, facts)
        return held if facts is None else msgspec.structs.replace(held, facts=len(facts))

    async def _facts_outside(self, whose: Principal) -> frozenset[int] | None:
        """Numbers of their facts where these are kept outside of the store; None if they are not.

        Raises:
            ConfigError: as `Memory.export`.
        """
        if self.host.memory_rules.memory is None:
            return None
        lines = await self.memory.export(whose)
        return frozenset(fact_number(msgspec.json.decode(line)["id"]) for line in lines)

    @checked
    async def export_principal_async(self, principal: Principal | str) -> list[str]:
        """Everything about a principal as lines of JSON; `kind` says what each is.

        Their runs with all events, sessions, facts, and what the journal `store` says of them,
        standing grants among it. What is erased already is not there.
        """
        memory = self.host.memory_rules.on(self.store)
        lines = exported(self.store, memory, principal_of(principal))
        return [line async for line in lines]

    @checked
    async def erase_async(
        self,
        principal: Principal | str,
        *,
        force: bool = False,
        shared: bool = False,
        by: Principal | str = "",
        reason: str = "",
    ) -> Erasure:
        """Erase everything about a principal for good; once more does no harm.

        All their runs, whole, with forks, retries, sessions and messages; their workspaces; facts
        with index and vectors; standing grants, and what the journal `store` says of them. Id,
        agent, status, times and sums of a run stay, with the hashes of its events, so that
        `cairn verify` still tells what was erased from what was altered.

        Args:
            principal: Whose.
            force: Cancel their runs that are not over, and erase these too.
            shared: Erase the shared sessions in which they have written too, whole: what others
                said there goes as well.
            by: Who erases; kept.
            reason: Why; kept. It should not name them.

        Returns what was erased, and with `stays` what of theirs was left in runs of other people:
        what they have written there, by which somebody may have decided, and facts of theirs that
        these runs have recalled. Erase those runs with their own principal, or prune them, if it
        must go. Where `cleared` is False, copies may be left in the store's file or its log,
        because another process was at work in it: erase again.

        Raises:
            Refused: a run is not over, another principal's run goes on from one of theirs, or they
                have written in shared sessions and `shared` is not set; names them. Nothing has
                changed.
            WorkspaceFailed: a workspace cannot be removed; nothing else was erased yet.
            StoreError: the store cannot do it; nothing of it was erased.
        """
        whose, actor = principal_of(principal), person_of(by, ()).id
        self.client.check_names(None, actor=actor)
        held = await self.check_erasable_async(whose, force=force, shared=shared)
        talks = [Principal(id=name, tenant=whose.tenant) for name in _talks(held)]
        for each in (*talks, whose):
            for run in (await self.store.holdings(each, ())).live:
                await self.cancel_async(run, WHY_CANCELLED, by=actor)
        said = self.host.secrets.anyones().text(clean(reason))
        erased = Erasure()
        outside = {each.id: await self._facts_outside(each) for each in (*talks, whose)}
        for each in (*talks, whose):
            erased = whole_of(erased, await self._erase(each, actor, said))
        left = await self.store.holdings(whose, outside[whose.id])
        stays = [*map(_left, left.elsewhere), *map(_recalled, left.recalled)]
        for each in talks:
            left = await self.store.holdings(each, outside[each.id])
            stays += map(_recalled, left.recalled)
        return msgspec.structs.replace(erased, stays=tuple(dict.fromkeys(stays)))

    @checked
    async def check_erasable_async(
        self, principal: Principal | str, *, force: bool = False, shared: bool = False
    ) -> Holdings:
        """Whether `erase` would be refused, and what it would take; nothing is changed.

        Raises:
            Refused: as `erase`.
        """
        whose = principal_of(principal)
        held = await self.store.holdings(whose)
        if not shared:
            check_shared(whose, [line async for line in self._told(held, whose)])
        talks = [Principal(id=name, tenant=whose.tenant) for name in _talks(held)]
        for each in (*talks, whose):
            there = await self.store.holdings(each, ())
            check_over(each, msgspec.structs.replace(there, live=()) if force else there)
        return held

    @checked
    async def shared_sessions_async(self, principal: Principal | str) -> list[str]:
        """The shared sessions in which a principal has written, with who else took part."""
        whose = principal_of(principal)
        return [line async for line in self._told(await self.store.holdings(whose, ()), whose)]

    async def _told(self, held: Holdings, whose: Principal) -> AsyncIterator[str]:
        for name in _talks(held):
            talk = await self.store.holdings(Principal(id=name, tenant=whose.tenant), ())
            rows = [row for info in talk.runs for row in await self.store.rows(info.run)]
            others = sorted({row.actor for row in rows} - {whose.id, ""})
            whom = f"with {', '.join(others)}" if others else "with nobody else"
            yield f"{name.removeprefix(SHARED)} ({whom})"

    async def _erase(self, whose: Principal, actor: str, reason: str) -> Erasure:
        self._remove_workspaces(await self.store.holdings(whose, ()))
        now = self.host.clock.now_us()
        erased = await self.store.erase(whose, now, actor=actor, reason=reason)
        forget(self.store)
        if self.host.memory_rules.memory is None:
            return erased
        gone = await self.memory.erase(whose, now, actor=actor, reason=reason)
        return msgspec.structs.replace(
            erased, facts=erased.facts + gone.facts, cleared=erased.cleared and gone.log_cleared
        )

    def _remove_workspaces(self, held: Holdings) -> None:
        workspaces = self.host.workspaces
        if workspaces is None:
            return
        from cairn.workspace.folders import Workspaces

        if isinstance(workspaces, Workspaces):  # a folder that was given for all stays
            for info in held.runs:
                workspaces.remove(info.run, info.session)

    holdings = twin(holdings_async)
    check_erasable = twin(check_erasable_async)
    shared_sessions = twin(shared_sessions_async)
    export_principal = twin(export_principal_async)
    erase = twin(erase_async)
