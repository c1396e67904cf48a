"""`Runtime`: the one object users make. It opens the store, knows the agents, and has the verbs.

Every verb has an `_async` twin and is written once. A sync verb runs in a background loop of the
runtime; inside a running event loop use the twin.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, Self, TypeVar, Unpack

from cairn.agent import Agent
from cairn.core import commands as cmd
from cairn.core.events import Entry, TaskKind
from cairn.core.index import Pending
from cairn.core.ladder import DEFAULT_LADDER, Ladder
from cairn.core.limits import WORST_CASE, Limits, Price
from cairn.core.messages import Part, Principal, clean
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.core.state import RunState
from cairn.engine.backs import capped
from cairn.engine.client import Client, Task, same_person, settled
from cairn.engine.given import (
    RunOptions,
    check_deployment,
    check_statuses,
    check_text,
    check_words,
    parts_of,
    principal_of,
)
from cairn.engine.host import Deployment, Host
from cairn.engine.load import load, read_artifact
from cairn.engine.notify import Notifier, OnWait
from cairn.engine.portal import Portal, refuse_inside_loop
from cairn.engine.result import Run, result_of, run_of
from cairn.engine.stream import stream_run
from cairn.engine.worker import POLL_S, Worker, drive
from cairn.errors import CairnError, ConfigError, IllegalTransition, SessionBusy, UnknownRun
from cairn.ports import Clock, Observed, RunFilter, RunInfo, Store
from cairn.store import open_store
from cairn.tools.results import to_json

P = ParamSpec("P")
R = TypeVar("R")
Piece = str | Path | Part
Given = Piece | list[Piece] | tuple[Piece, ...]
NOTHING = object()
log = logging.getLogger("cairn")
LOCAL = Principal()


def _twin(
    verb: Callable[Concatenate[Runtime, P], Coroutine[Any, Any, R]],
) -> Callable[Concatenate[Runtime, P], R]:
    """The sync form of an async verb."""

    def sync(self: Runtime, /, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.portal.call(verb(self, *args, **kwargs), sync.__name__)

    sync.__name__ = verb.__name__.removesuffix("_async")
    sync.__qualname__ = verb.__qualname__.removesuffix("_async")
    sync.__doc__ = verb.__doc__
    return sync


class Runtime:
    """Takes tasks over and carries them through.

    Args:
        store: Path of a SQLite file, `":memory:"`, or a `Store`.
        agents: Who can work; found by name.
        deps: What tools get as `ctx.deps`: a value, or a function of a `Principal`.
        policy: What may run unasked; by default reads only.
        ladder: What is done about each class of fault.
        on_wait: Told, at least once, when a run waits for people: a function of a `Run`, a
            command as a list of arguments (JSON on its input), or a URL.
        durability: `full` survives power loss; `process` survives the death of the process only.
        unknown_price: What a model is counted at whose price nobody knows.
        clock: Where time comes from.

    Raises:
        ConfigError: a value is not usable, or two agents share a name.
        UnsupportedStore, SchemaTooNew: the file cannot be used.
    """

    def __init__(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        store: str | Path | Store = "cairn.db",
        agents: Sequence[Agent] = (),
        *,
        deps: Any = None,
        policy: Policy = DEFAULT_POLICY,
        ladder: Ladder = DEFAULT_LADDER,
        on_wait: OnWait | None = None,
        durability: Literal["full", "process"] = "full",
        unknown_price: Price = WORST_CASE,
        clock: Clock | None = None,
    ) -> None:
        crew = check_deployment(agents, policy, ladder)
        self._notifier = Notifier(on_wait) if on_wait is not None else None
        self.portal = Portal(self._interrupted)
        self.store: Store = (
            open_store(store, durability=durability) if isinstance(store, str | Path) else store
        )
        deployment = Deployment(
            policy=policy, ladder=ladder, deps=deps, unknown_price=unknown_price
        )
        self.host = Host({a.name: a for a in crew}, deployment, clock)
        self.client = Client(self.store, self.host.clock)
        self._driven: dict[str, asyncio.Task[Any]] = {}
        self._background: set[str] = set()
        self._again: set[str] = set()

    def _interrupted(self, now: bool) -> None:
        """Ctrl-C in a sync verb: let what is in flight land and start nothing new meanwhile."""
        if now:
            log.warning("finishing what is in flight; Ctrl-C again ends it at once")
        self.host.draining = now

    def agent(self, name: str) -> Agent:
        """The agent of this name. Raises `UnknownAgent`."""
        return self.host.crew(name).agent

    # ---------------------------------------------------------------- hand a task over

    async def run_async(
        self,
        agent: str,
        input: Given,
        *,
        id: str = "",
        principal: Principal | str = LOCAL,
        session: str = "",
        limits: Limits | Mapping[str, int] | None = None,
        kind: TaskKind | None = None,
        approvals: Literal["ask", "none"] = "ask",
    ) -> Run:
        """Start a run, or go on with it: the same call starts, resumes and recovers.

        Returns when there is a result or the run waits for people. If another process drives it,
        follows until then.

        Args:
            agent: Name of the agent.
            input: The task.
            id: Run id; a fresh one by default. The same task under the same id is the same run.
            principal: For whom it works; a string is its id.
            session: The conversation it continues.
            limits: Its bounds, which can only be stricter than the agent's: all of them as
                `Limits`, or only some as `{"steps": 10}`.
            kind: `query` offers read tools only; `generate`, `operate`. The agent's by default.
            approvals: `none` refuses at once what would need a person.

        Raises:
            RunConflict: the id is taken by another task.
            SessionBusy: the session has an active run.
            UnknownAgent, ConfigError, StoreError.
        """
        run = await self.enqueue_async(
            agent,
            input,
            id=id,
            principal=principal,
            session=session,
            limits=limits,
            kind=kind,
            approvals=approvals,
        )
        return await self.drive_async(run)

    async def start_async(self, agent: str, input: Given, **options: Unpack[RunOptions]) -> str:
        """As `run`, but return the run id at once and drive it in the background."""
        run = await self.enqueue_async(agent, input, **options)
        self._spawn(run)
        return run

    async def enqueue_async(self, agent: str, input: Given, **options: Unpack[RunOptions]) -> str:
        """As `run`, but return the run id at once and leave the driving to a worker."""
        known = self.agent(agent)
        limits = options.get("limits")
        kind, approvals = check_words(
            options.get("kind") or known.kind, options.get("approvals", "ask")
        )
        task = Task(
            agent=agent,
            input=parts_of(input),
            principal=principal_of(options.get("principal", LOCAL)),
            session=check_text("session", options.get("session", "")),
            limits=known.limits.narrowed(limits) if limits is not None else known.limits,
            kind=kind,
            approvals=approvals,
            on_loop=known.on_loop,
        )
        return await self.client.start(task, options.get("id", ""))

    async def send_async(
        self,
        session: str,
        text: Given,
        *,
        agent: str = "",
        principal: Principal | str = LOCAL,
    ) -> Run:
        """Say something in a session.

        An active run takes the message in at its next turn; otherwise a new run starts, by the
        same agent as before unless `agent` names one.

        Raises:
            UnknownRun: the session is new and no agent was named, or it is another principal's.
        """
        who = principal_of(principal)
        check_text("session", session)
        for _ in range(5):
            last = await self.store.session_head(session)
            if last is None and not agent:
                raise UnknownRun(f"there is no session {session!r}; name an agent to begin it")
            if last is not None and last.status not in ENDED:
                state = await load(self.store, last.run)
                if not same_person(state.principal, who):
                    raise UnknownRun(f"there is no session {session!r}")
                try:
                    await self.client.submit(last.run, cmd.Queue(parts=parts_of(text)), who.id)
                except IllegalTransition:
                    continue  # it has just ended: a new run takes the message in
                if last.agent not in self.host.agents:
                    return await self.get_async(last.run)  # for whoever drives it
                return await self.drive_async(last.run)
            name = agent or (last.agent if last is not None else "")
            try:
                run = await self.enqueue_async(name, text, principal=who, session=session)
            except SessionBusy:
                continue  # somebody else was faster: their run takes the message in
            return await self.drive_async(run)
        raise SessionBusy(session, "")

    async def drive_async(self, run: str) -> Run:
        """Drive a run until there is a result or it waits for people; then say how it stands."""
        background = self._driven.get(run)
        if background is not None and background.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({background})
        state = await drive(self.store, run, self.host, self._notifier)
        if state is None or state.agent not in self.host.agents:
            return await self.get_async(run)
        return await run_of(self.store, state, self.host.crew(state.agent))

    def _spawn(self, run: str) -> None:
        self._background.add(run)
        if run in self._driven:
            self._again.add(run)
            return
        task = asyncio.get_running_loop().create_task(self._drive_on(run), name=f"cairn run {run}")
        self._driven[run] = task
        task.add_done_callback(lambda done: self._let_go(run, done))

    def _let_go(self, run: str, task: asyncio.Task[Any] | None) -> None:
        if self._driven.get(run) is task:
            del self._driven[run]

    async def _drive_on(self, run: str) -> None:
        """Drive it, and once more if a decision came when it had already had its last look."""
        try:
            while True:
                self._again.discard(run)
                await drive(self.store, run, self.host, self._notifier)
                while run in self._again and not self.host.draining:
                    self._again.discard(run)
                    if not settled(await self.store.info(run)):
                        break
                else:
                    return
        except CairnError as error:
            log.warning("run %s is no longer driven in the background: %s", run, error)
        finally:
            self._let_go(run, asyncio.current_task())  # at once: who spawns now starts anew

    async def work_async(self, *, until_idle: bool = False, concurrency: int = 256) -> None:
        """Drive every run there are agents for, until stopped or (`until_idle`) none is left."""
        worker = Worker(self.store, self.host, concurrency=concurrency, notifier=self._notifier)
        await worker.work(until_idle=until_idle)

    async def stream_async(
        self, agent: str, input: Given, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Observed]:
        """As `run`, but yield what happens: `Entry`, `Delta`, `Discard`, `Progress`."""
        run = await self.enqueue_async(agent, input, **options)
        async with aclosing(self.watch_async(run)) as happening:
            async for what in happening:
                yield what

    async def watch_async(self, run: str, after: int = 0) -> AsyncGenerator[Observed]:
        """Drive a run and yield what happens, from the event after `after` on."""
        happening = stream_run(self.store, run, self.host, self._notifier, after)
        async with aclosing(happening):  # who leaves early also ends the driving
            async for what in happening:
                yield what

    def stream(self, agent: str, input: Given, **options: Unpack[RunOptions]) -> Iterator[Observed]:
        """As `run`, but yield what happens: `Entry`, `Delta`, `Discard`, `Progress`."""
        return self.portal.iterate(self.stream_async(agent, input, **options), "stream")

    def watch(self, run: str, after: int = 0) -> Iterator[Observed]:
        """Drive a run and yield what happens, from the event after `after` on."""
        return self.portal.iterate(self.watch_async(run, after), "watch")

    # ---------------------------------------------------------------- decide

    async def approve_async(
        self, request: str, message: str = "", *, by: str = "", digest: str = ""
    ) -> Run:
        """Let the call of a request (`run/1`) run, once, exactly as shown.

        Records the decision. A run that was handed over by `start` goes on by itself; any other
        goes on when it is run or resumed again, or where a worker drives it.

        Args:
            by: Who decides; kept as the event's actor.
            digest: The request's digest as it was shown; another one is refused.

        Raises:
            Refused: it has expired or was decided otherwise. UnknownRun: there is none.
        """
        return await self._after(await self.client.approve(request, message, by, digest))

    async def deny_async(self, request: str, message: str = "", *, by: str = "") -> Run:
        """Refuse the call of a request; the model reads the message as typed."""
        return await self._after(await self.client.deny(request, message, by))

    async def answer_async(self, request: str, text: str, *, by: str = "") -> Run:
        """Answer a question of the agent."""
        return await self._after(await self.client.answer(request, text, by))

    async def resolve_async(
        self,
        call: str,
        *,
        happened: bool | None = None,
        result: Any = NOTHING,
        give_up: bool = False,
        evidence: str = "",
        by: str = "",
    ) -> Run:
        """Say what came of a call (`run/c4`) whose effect is unknown.

        Args:
            happened: True: it took effect, `result` is what the model reads. False: it did not,
                and it is run again under the policy.
            give_up: Nobody can tell: the run fails, the call stays listed.
            evidence: How this is known; kept.

        Raises:
            Refused: there is nothing unknown, or the call may still be at work.
            ConfigError: neither or both of `happened` and `give_up` are given.
        """
        if give_up == (happened is not None):
            raise ConfigError(
                "resolve", "say exactly one thing", "Pass happened=True, =False, or give_up=True"
            )
        verdict: Literal["happened", "not_happened", "given_up"] = "given_up"
        if happened is not None:
            verdict = "happened" if happened else "not_happened"
        raw = capped(to_json(None if result is NOTHING else result))
        state = await self.client.resolve(call, verdict, raw, evidence, by)
        return await self._after(state)

    async def pause_async(self, run: str, reason: str = "", *, by: str = "") -> Run:
        """Start nothing new in a run; what is in flight is waited for."""
        await self.client.submit(run, cmd.Pause(reason=clean(reason)), by)
        return await self.get_async(run)

    async def resume_async(self, run: str, *, by: str = "") -> Run:
        """End a pause if there is one, and drive the run until it settles."""
        info = await self.store.info(run)
        if info.status not in ENDED:
            await self.client.submit(run, cmd.Resume(), by)
        return await self.drive_async(run)

    async def cancel_async(self, run: str, reason: str = "", *, by: str = "") -> Run:
        """End a run and wait until it has ended; needs no agent. Ended runs stay as they are."""
        await self.client.submit(run, cmd.Cancel(reason=clean(reason)), by)
        while (info := await self.store.info(run)).status not in ENDED:
            await drive(self.store, run, self.host)  # a paused run counts as settled before its end
            if not self.host.draining:
                await self.store.changed(run, info.head, POLL_S)
        return await self.get_async(run)

    async def retry_async(
        self, run: str, *, id: str = "", limits: Limits | Mapping[str, int] | None = None
    ) -> Run:
        """Go on from just before the end of a failed, stopped or cancelled run, as a new run.

        What it has spent starts at zero; no started effect is cut off. `limits` replace the old
        bounds, a mapping only those it names.
        """
        new = await self.client.retry(run, id, limits)
        return await self.drive_async(new)

    async def _after(self, state: RunState) -> Run:
        """A decision was taken: a run that was handed over by `start` goes on by itself."""
        if state.run in self._background and state.agent in self.host.agents:
            self._spawn(state.run)
        return await self.get_async(state.run)

    # ---------------------------------------------------------------- read

    async def get_async(self, run: str) -> Run:
        """How a run stands. Raises `UnknownRun`."""
        info = await self.store.info(run)
        crew = self.host.crew(info.agent) if info.agent in self.host.agents else None
        return await result_of(self.store, run, crew)

    async def runs_async(
        self,
        *,
        status: str | Sequence[str] = (),
        agent: str = "",
        session: str = "",
        principal: str = "",
        limit: int = 100,
    ) -> list[RunInfo]:
        """The run table, newest first."""
        where = RunFilter(
            status=check_statuses(status),
            agent=agent,
            session=session,
            principal=principal,
            limit=limit,
        )
        return await self.client.runs(where)

    async def pending_async(self) -> list[Pending]:
        """All that waits for people, over all runs."""
        return await self.client.pending()

    async def trace_async(self, run: str, after: int = 0) -> list[Entry]:
        """The run's journal. Raises `UnknownRun`."""
        return await self.store.read(run, after=after)

    async def artifact_async(self, run: str, artifact: str) -> str:
        """The content of an artifact. Raises `UnknownRun` if there is none of this id."""
        found = await read_artifact(await load(self.store, run), self.store, artifact)
        if found is None:
            raise UnknownRun(f"run {run} has no artifact {artifact!r}")
        return found.content

    async def close_async(self) -> None:
        """Let what is in flight land, start nothing new, and close the store."""
        self.host.draining = True
        if self._driven:
            await asyncio.wait(set(self._driven.values()))
        await self.host.close()
        await self.store.close()

    def close(self) -> None:
        """Let what is in flight land, start nothing new, and close the store."""
        self.portal.call(self.close_async(), "close")
        self.portal.close()

    def __enter__(self) -> Self:
        refuse_inside_loop("with")
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close_async()

    run = _twin(run_async)
    start = _twin(start_async)
    enqueue = _twin(enqueue_async)
    send = _twin(send_async)
    drive = _twin(drive_async)
    work = _twin(work_async)
    approve = _twin(approve_async)
    deny = _twin(deny_async)
    answer = _twin(answer_async)
    resolve = _twin(resolve_async)
    pause = _twin(pause_async)
    resume = _twin(resume_async)
    cancel = _twin(cancel_async)
    retry = _twin(retry_async)
    get = _twin(get_async)
    runs = _twin(runs_async)
    pending = _twin(pending_async)
    trace = _twin(trace_async)
    artifact = _twin(artifact_async)


ENDED = frozenset({"completed", "failed", "stopped", "cancelled"})
