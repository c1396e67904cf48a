"""The verbs that need no agent: hand a task over, decide what waits, read what was done.

Each appends one fact and returns. The run goes on where somebody drives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal
from uuid import uuid4

import msgspec

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.index import index_of
from cairn.core.limits import Limits
from cairn.core.messages import Part, Principal, clean
from cairn.core.redaction import Redaction
from cairn.core.requests import Request
from cairn.core.state import RunState
from cairn.core.terms import BoundFile
from cairn.engine.asked import decision, missing, otherwise, requests, standing
from cairn.engine.branch import fork_run, retry_run
from cairn.engine.clock import now_of
from cairn.engine.given import check_call, check_request, check_run_id, check_said, check_seq
from cairn.engine.handed import (
    Submitted,
    Task,
    check_as_started,
    common_roles,
    inherited,
    names_terms,
)
from cairn.engine.load import load
from cairn.errors import (
    ConfigError,
    IllegalTransition,
    Moved,
    Refused,
    RunConflict,
    RunErased,
    SessionBusy,
    UnknownRun,
)
from cairn.governance.secrets import Secrets
from cairn.memory.rules import check_project
from cairn.ports import Clock, NewRun, RunFilter, RunInfo, Store

__all__ = [
    "Client",
    "Submitted",
    "Task",
    "left_unread",
    "new_id",
    "same_person",
    "settled",
]

SESSION_TRIES = 8
"""How often a message looks for the end of a conversation that others keep moving."""


class Client:
    """Asks and reads. Needs a store and nothing else."""

    def __init__(self, store: Store, clock: Clock, secrets: Secrets | None = None) -> None:
        """Without `secrets` only what looks like a key is taken out of what is written."""
        self.store = store
        self.secrets = secrets if secrets is not None else Secrets()
        self._clock = clock

    # ---------------------------------------------------------------- hand over

    async def start(self, task: Task, run: str = "") -> str:
        """Hand a task over and return its run id. The same task under the same id is one run.

        In a session that has an active run the task's mode decides: it waits behind that one, and
        may have it ended first (`interrupt`). A message that was queued in a run under this id is
        taken for it: its run is returned.

        Raises:
            RunConflict: the id is taken by another task, or by this one in another session, or
                started with more than the task names: see `check_as_started`.
            SessionBusy: the session has an active run, and the task has no mode.
            RunErased: a run of this id was erased.
            ConfigError: the id is none, or a name holds a secret.
        """
        run = check_run_id(run) if run else new_id()
        sealed = self.secrets.of(task.principal)
        who = task.principal
        names = {"principal": who.id, "tenant": who.tenant, "role": "\n".join(who.roles)}
        names |= {"project": check_project("project", task.project)}
        _check_names(sealed, run=run, session=task.session, actor=task.actor, **names)
        task = sealed.value(task)
        found = await self._create_on_top(task, run)
        if found is not None and found.erased:
            raise RunErased(found.run)
        if found is not None and found.run != run:
            return await self._queued_as(run, task)
        if found is not None and found.digest != task.digest:
            raise RunConflict(
                f"run {run!r} exists with another agent, input or principal, or another "
                "project; take another id, or pass what it was started with"
            )
        if found is not None and names_terms(task):
            check_as_started(task, await load(self.store, run))
        if task.mode == "interrupt":
            await self.interrupt(run)
        return run

    async def interrupt(self, run: str) -> None:
        """Have the active run end that this one waits behind; once more does no harm.

        One that is first in line and has not begun goes before it, and is not ended.
        """
        info = await self.store.info(run)
        if not info.behind:
            return
        actor = info.principal
        active = (await self.store.session_open(info.session))[0].run
        created = (await load(self.store, active)).created
        if active != run and created is not None and not created.behind:
            command = cmd.Cancel(reason=f"interrupted by {run}", gently=True)
            await self.submit(active, command, actor)

    async def _queued_as(self, id: str, task: Task) -> str:
        """The run in which a message of this id was queued, if it is the same message."""
        where = await self.posted(id, task.input, task.principal)
        if where is None:  # its run was removed meanwhile
            raise RunConflict(f"the id {id!r} was that of a message; take another")
        return where.run

    def check_names(self, principal: Principal | None, /, **names: str) -> None:
        """Refuse names with a secret in what is kept of a principal, or of nobody in particular.

        Raises:
            ConfigError: names the field.
        """
        known = self.secrets.anyones() if principal is None else self.secrets.of(principal)
        _check_names(known, **names)

    async def posted(
        self, id: str, parts: tuple[Part, ...], principal: Principal, said: str = ""
    ) -> ev.RunRef | None:
        """Where the message of this id is: its run and event; None if there is none yet.

        Args:
            id: The run id that stands for it.
            parts: The message.
            principal: For whom the work is done.
            said: The sender's own id of it.

        Raises:
            RunConflict: the id is that of another message.
        """
        where = await self.store.message(id)
        if where is None:
            return None
        (entry,) = await self.store.read(where.run, after=where.seq - 1, upto=where.seq)
        event = entry.event
        if isinstance(event, ev.InputQueued):
            known: tuple[Part, ...] = event.parts
        else:  # what it took over from the run before comes first
            known = event.input[-len(parts) :]
        if known != self.secrets.of(principal).value(parts):
            raise RunConflict(f"the id {(said or id)!r} is that of another message; take another")
        return where

    async def take_over(self, task: Task, after: str, run: str) -> str:
        """Start the run, of this id, that goes on with what run `after` left unread; its id.

        Empty when that is not to be done any more: somebody else has, or begins to.
        """
        try:
            created = await self._created(task)
            previous = created.previous
            if previous is None or previous.run != after or not created.consumes:
                return ""
            await self._make(task, run, created)
        except (Moved, SessionBusy):
            return ""
        return run

    async def _create_on_top(self, task: Task, run: str) -> RunInfo | None:
        """`_create`, and again when somebody else had a whole turn in the session meanwhile."""
        for _ in range(SESSION_TRIES):
            try:
                return await self._create(task, run)
            except Moved:
                continue
            except SessionBusy:
                if not task.mode:
                    raise
        raise SessionBusy(task.session, run)

    async def _create(self, task: Task, run: str) -> RunInfo | None:
        """Make the run; the existing one's line when the id is taken."""
        try:
            return await self._make(task, run, await self._created(task))
        except SessionBusy:
            try:
                return await self.store.info(run)  # the same call again: it may be busy with us
            except UnknownRun:
                pass
            raise

    async def _make(self, task: Task, run: str, created: ev.RunCreated) -> RunInfo | None:
        actor = clean(task.actor)
        entry = ev.Entry(seq=1, at=now_of(self._clock), event=created, actor=actor)
        state = evolve(RunState(run=run), entry)
        new = NewRun(
            run=run,
            agent=task.agent,
            digest=task.digest,
            session=task.session,
            previous=created.previous.run if created.previous is not None else "",
            principal=task.principal.id,
            behind=bool(created.behind),
        )
        return await self.store.create(new, [entry], index_of(state))

    async def _created(self, task: Task) -> ev.RunCreated:
        previous: ev.RunRef | None = None
        consumes: tuple[int, ...] = ()
        extra: tuple[Part, ...] = ()
        behind, project, principal = "", task.project, task.principal
        if task.session:
            going_on = await self.store.session_open(task.session)
            last = going_on[0] if going_on else await self.store.session_head(task.session)
            if last is not None:
                state = await load(self.store, last.run)
                if not same_person(state.principal, task.principal):
                    raise UnknownRun(f"there is no session {task.session!r}")
                if going_on and not task.mode:
                    raise SessionBusy(task.session, last.run)
                project = await inherited(self.store, task, going_on, state)
                if going_on:
                    behind = last.run
                elif state.end is None:  # it began between our two looks
                    raise Moved(f"session {task.session!r} has gone on; look at it again")
                else:
                    previous = ev.RunRef(run=last.run, seq=state.seq)
                    # as it is after the end: what we saw first may be from before
                    line = await self.store.info(last.run)
                    consumes = left_unread(state, line, task.session)
                    extra = tuple(p for seq in consumes for p in state.queued[seq])
                    roles = common_roles(principal.roles, state, consumes)
                    principal = msgspec.structs.replace(principal, roles=roles)
        return ev.RunCreated(
            agent=task.agent,
            input=(*extra, *task.input),
            digest=task.digest,
            principal=principal,
            session=task.session,
            previous=previous,
            consumes=consumes,
            limits=task.limits,
            kind=task.kind,
            kind_by=task.kind_by,
            approvals=task.approvals,
            on_loop=task.on_loop,
            fingerprint=task.fingerprint,
            policy=task.policy,
            behind=behind,
            interrupts=bool(behind) and task.mode == "interrupt",
            project=project,
        )

    async def retry(
        self, run: str, new: str = "", limits: Limits | Mapping[str, int] | None = None
    ) -> str:
        """A new run that goes on from just before the end of an ended one.

        The same retry is one run: without an id all that ask for it get the first one's run.
        `limits` replace the old bounds, a mapping only those it names; they may be wider.

        Raises:
            IllegalTransition: the run is not over, it completed, its session has gone on, or it
                was retried without an id and that run ended badly.
            RunConflict: the id is taken, or the retry was made with other limits.
            UnknownRun: there is no such run.
        """
        if new:
            _check_names(self.secrets.anyones(), run=check_run_id(new))
        return await retry_run(self.store, self._clock, run, new, limits)

    async def fork(
        self,
        run: str,
        at: int,
        *,
        edits: Sequence[cmd.Command] = (),
        new: str = "",
        limits: Limits | Mapping[str, int] | None = None,
        actor: str = "",
    ) -> str:
        """A new run that goes on from event `at` of a run, with `edits` made at once.

        What the run did after that event stays done in the world. The fork is no part of the
        run's session, but reads the conversation up to there.

        Raises:
            Refused: something was in flight or unknown there; names the nearest points.
            UnknownRun: there is no such run, event or call.
            RunConflict: the id is taken by another run.
        """
        new = check_run_id(new) if new else new_id()
        sealed = self.secrets.of((await load(self.store, run)).principal)
        _check_names(sealed, run=new, actor=actor)
        return await fork_run(
            self.store,
            self._clock,
            run,
            at,
            new,
            limits=limits,
            edits=sealed.value(tuple(edits)),
            actor=clean(actor),
        )

    # ---------------------------------------------------------------- decide

    async def submit(self, run: str, command: cmd.Command, actor: str = "") -> Submitted:
        """Add one fact to a run, checked against its journal in the same write.

        Says whether anything was written: what is so already is not written again.

        Raises:
            UnknownRun, Refused, IllegalTransition: it does not fit; nothing was changed.
        """
        seen = await load(self.store, run)
        sealed = self.secrets.of(seen.principal)
        _check_names(sealed, actor=actor)
        command, actor, now = sealed.value(command), clean(actor), now_of(self._clock)
        try:
            state, entry = await self.store.submit(run, seen, command, now, actor)
        except IllegalTransition:
            if seen.created is None or not seen.created.behind:
                raise
            # it may have begun meanwhile, and goes on from what was not known when we looked
            seen = await load(self.store, run)
            state, entry = await self.store.submit(run, seen, command, now, actor)
        note = "" if entry is not None else "was so before; nothing was written"
        return Submitted(state=state, entry=entry, note=note)

    async def _decide(self, run: str, command: cmd.Approve | cmd.Deny, actor: str) -> Submitted:
        """Submit a decision; of one that was taken before, say by whom and when.

        Raises:
            Refused: also when this person may not decide it, though others have.
        """
        _check_names(self.secrets.anyones(), role="\n".join(command.roles))
        try:
            done = await self.submit(run, command, actor)
        except Refused as error:
            raise Refused(await otherwise(self.store, run, command, str(error))) from error
        if done.entry is not None:
            return done
        asked, decided = await decision(self.store, run, command.n)
        stands = standing(decided, command.by)
        if lacks := missing(done.state, asked, command.by, command.roles):
            raise Refused(f"{run}/{command.n} {lacks}; it {stands}")
        return msgspec.structs.replace(done, note=stands)

    async def approve(
        self,
        request: str,
        message: str = "",
        actor: str = "",
        digest: str = "",
        *,
        roles: tuple[str, ...] = (),
        arguments: str = "",
        files: tuple[BoundFile, ...] = (),
    ) -> Submitted:
        """Let the call of this request run, once, as shown or with other arguments (JSON text).

        The same yes once more writes nothing, and its `note` says whose stands.
        """
        run, n = check_request(request)
        command = cmd.Approve(
            n=n,
            message=clean(message),
            digest=digest,
            by=clean(actor),
            roles=roles,
            arguments=arguments,
            files=files,
        )
        return await self._decide(run, command, actor)

    async def deny(
        self, request: str, message: str = "", actor: str = "", *, roles: tuple[str, ...] = ()
    ) -> Submitted:
        """Refuse the call of this request; the model reads the message."""
        run, n = check_request(request)
        command = cmd.Deny(n=n, message=clean(message), by=clean(actor), roles=roles)
        return await self._decide(run, command, actor)

    async def answer(self, request: str, text: str, actor: str = "") -> Submitted:
        """Answer a question.

        Raises:
            ConfigError: the text is empty: that answers nothing.
        """
        run, n = check_request(request)
        return await self.submit(run, cmd.Answer(n=n, text=check_said("text", text)), actor)

    async def resolve(
        self,
        call: str,
        verdict: Literal["happened", "not_happened", "given_up"],
        result: msgspec.Raw = ev.EMPTY,
        evidence: str = "",
        actor: str = "",
    ) -> Submitted:
        """Say what came of a call whose effect is unknown, named `run/c4`."""
        run, call_id = check_call(call)
        command = cmd.Resolve(
            call=call_id, verdict=verdict, result=result, evidence=clean(evidence)
        )
        return await self.submit(run, command, actor)

    # ---------------------------------------------------------------- read

    async def runs(self, where: RunFilter | None = None) -> list[RunInfo]:
        """The run table, newest first."""
        return await self.store.runs(where or RunFilter())

    async def pending(self, limit: int = 100) -> list[Request]:
        """What waits for people, over all runs, oldest first: the first `limit`.

        Each with who asks, by which rule, why, on what terms and bound to which files.
        """
        return await requests(self.store, await self.store.pending(limit))

    async def follow(self, run: str, after: int = 0) -> AsyncIterator[ev.Entry]:
        """Entries as they are written, until the run is over or waits for people.

        Raises `UnknownRun` if `after` is no event of the run.
        """
        if after:
            check_seq(run, after, (await self.store.info(run)).head)
        while True:
            info = await self.store.info(run)
            for entry in await self.store.read(run, after=after):
                after = entry.seq
                yield entry
            if settled(info) and info.head <= after:
                return
            await self.store.changed(run, after, 5.0)


def _check_names(sealed: Redaction, **names: str) -> None:
    """What a run or a person is called by cannot be replaced, so it must hold no secret."""
    for field, name in names.items():
        if sealed.found_in(name):
            raise ConfigError(field, "it holds a secret or what looks like a key", "Take another")


def left_unread(state: RunState, line: RunInfo, session: str) -> tuple[int, ...]:
    """What an ended run was told and had not read, if no later run has taken it over.

    It is for its own session: one that was forked from it takes none of it.
    """
    if line.session != session or (state.sent and not line.unread):
        return ()
    return tuple(state.queued)


def same_person(one: Principal, other: Principal) -> bool:
    """Whether a session of the one is the other's too; roles may have changed meanwhile."""
    return (one.id, one.tenant) == (other.id, other.tenant)


def settled(info: RunInfo) -> bool:
    """Whether a run has an end, or needs people or a resume to go on."""
    if info.status in {"queued", "running"}:
        return False
    return not (info.status == "waiting" and "retry_at" in info.waits)


def new_id() -> str:
    """A fresh run id."""
    return uuid4().hex[:20]
