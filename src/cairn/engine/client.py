"""The verbs that need no agent: hand a task over, decide what waits, read what was done.

Each appends one fact and returns. The run goes on where somebody drives it.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from hashlib import sha256
from typing import Literal
from uuid import uuid4

import msgspec

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.evolve import evolve
from cairn.core.fingerprint import Fingerprint
from cairn.core.index import Pending, index_of
from cairn.core.limits import Limits
from cairn.core.messages import Part, Principal, Record, clean
from cairn.core.policy import Policy
from cairn.core.redaction import Redaction
from cairn.core.state import RunState
from cairn.core.terms import BoundFile
from cairn.engine.branch import fork_run, retry_run
from cairn.engine.given import check_call, check_request, check_run_id, check_seq
from cairn.engine.load import load
from cairn.errors import ConfigError, Moved, RunConflict, SessionBusy, UnknownRun
from cairn.governance.secrets import Secrets
from cairn.ports import Clock, NewRun, RunFilter, RunInfo, Store

SESSION_TRIES = 8
"""How often a message looks for the end of a conversation that others keep moving."""


class Task(Record, gc=True):
    """What is handed over: the input, for whom, under which bounds."""

    agent: str
    input: tuple[Part, ...]
    principal: Principal = Principal()
    session: str = ""
    limits: Limits = Limits()
    kind: ev.TaskKind = "operate"
    approvals: Literal["ask", "none"] = "ask"
    on_loop: Literal["stop", "ask"] = "stop"
    fingerprint: Fingerprint | str = ""
    policy: Policy | None = None

    @property
    def digest(self) -> str:
        """Hash of what makes two tasks the same: agent, input and principal."""
        same = msgspec.json.encode([self.agent, self.input, self.principal], order="sorted")
        return sha256(same).hexdigest()[:32]


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

        Raises:
            RunConflict: the id is taken by another task.
            SessionBusy: the session has an active run.
            ConfigError: the id is none, or a name holds a secret.
        """
        run = check_run_id(run) if run else new_id()
        sealed = self.secrets.of(task.principal)
        _check_names(sealed, run=run, session=task.session, principal=task.principal.id)
        task = sealed.value(task)
        found = await self._create_on_top(task, run)
        if found is not None and found.digest != task.digest:
            raise RunConflict(
                f"run {run!r} exists with another agent, input or principal; "
                "take another id, or pass what it was started with"
            )
        return run

    async def _create_on_top(self, task: Task, run: str) -> RunInfo | None:
        """`_create`, and again when somebody else had a whole turn in the session meanwhile."""
        for _ in range(SESSION_TRIES):
            try:
                return await self._create(task, run)
            except Moved:
                continue
        raise SessionBusy(task.session, run)

    async def _create(self, task: Task, run: str) -> RunInfo | None:
        """Make the run; the existing one's line when the id is taken."""
        try:
            created = await self._created(task)
        except SessionBusy:
            try:
                return await self.store.info(run)  # the same call again: it may be busy with us
            except UnknownRun:
                pass
            raise
        entry = ev.Entry(seq=1, at=self._clock.now_us(), event=created)
        state = evolve(RunState(run=run), entry)
        new = NewRun(
            run=run,
            agent=task.agent,
            digest=task.digest,
            session=task.session,
            previous=created.previous.run if created.previous is not None else "",
            principal=task.principal.id,
        )
        return await self.store.create(new, [entry], index_of(state))

    async def _created(self, task: Task) -> ev.RunCreated:
        previous: ev.RunRef | None = None
        consumes: tuple[int, ...] = ()
        extra: tuple[Part, ...] = ()
        if task.session:
            last = await self.store.session_head(task.session)
            if last is not None:
                state = await load(self.store, last.run)
                if not same_person(state.principal, task.principal):
                    raise UnknownRun(f"there is no session {task.session!r}")
                if state.end is None:
                    raise SessionBusy(task.session, last.run)
                previous = ev.RunRef(run=last.run, seq=state.seq)
                consumes = tuple(state.queued)
                extra = tuple(p for parts in state.queued.values() for p in parts)
        return ev.RunCreated(
            agent=task.agent,
            input=(*extra, *task.input),
            digest=task.digest,
            principal=task.principal,
            session=task.session,
            previous=previous,
            consumes=consumes,
            limits=task.limits,
            kind=task.kind,
            approvals=task.approvals,
            on_loop=task.on_loop,
            fingerprint=task.fingerprint,
            policy=task.policy,
        )

    async def retry(
        self, run: str, new: str = "", limits: Limits | Mapping[str, int] | None = None
    ) -> str:
        """A new run that goes on from just before the end of an ended one.

        `limits` replace the old bounds, a mapping only those it names; they may be wider.

        Raises:
            IllegalTransition: the run is not over, it completed, or its session has gone on.
            UnknownRun: there is no such run.
        """
        new = check_run_id(new) if new else new_id()
        _check_names(self.secrets.anyones(), run=new)
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

    async def submit(self, run: str, command: cmd.Command, actor: str = "") -> RunState:
        """Add one fact to a run, checked against its journal in the same write.

        Raises:
            UnknownRun, Refused, IllegalTransition: it does not fit; nothing was changed.
        """
        seen = await load(self.store, run)
        sealed = self.secrets.of(seen.principal)
        _check_names(sealed, actor=actor)
        now = self._clock.now_us()
        state, _ = await self.store.submit(run, seen, sealed.value(command), now, clean(actor))
        return state

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
    ) -> RunState:
        """Let the call of this request run, once, as shown or with other arguments (JSON text)."""
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
        return await self.submit(run, command, actor)

    async def deny(
        self, request: str, message: str = "", actor: str = "", *, roles: tuple[str, ...] = ()
    ) -> RunState:
        """Refuse the call of this request; the model reads the message."""
        run, n = check_request(request)
        command = cmd.Deny(n=n, message=clean(message), by=clean(actor), roles=roles)
        return await self.submit(run, command, actor)

    async def answer(self, request: str, text: str, actor: str = "") -> RunState:
        """Answer a question."""
        run, n = check_request(request)
        return await self.submit(run, cmd.Answer(n=n, text=clean(text)), actor)

    async def resolve(
        self,
        call: str,
        verdict: Literal["happened", "not_happened", "given_up"],
        result: msgspec.Raw = ev.EMPTY,
        evidence: str = "",
        actor: str = "",
    ) -> RunState:
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

    async def pending(self) -> list[Pending]:
        """What waits for people, over all runs."""
        return await self.store.pending()

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
