"""The verbs that hand a task over, follow it, or work off what is queued."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from typing import Literal, Unpack

from cairn.core.events import TaskKind
from cairn.core.intake import narrower
from cairn.core.limits import FIELDS, Limits
from cairn.core.messages import Principal, text_of
from cairn.core.policy import Policy
from cairn.core.routed import check_begun, check_person, is_routed
from cairn.engine.client import Task
from cairn.engine.deployed import check_run_policy
from cairn.engine.given import (
    Given,
    RunOptions,
    check_mode,
    check_session,
    check_text,
    check_words,
    parts_of,
    principal_of,
)
from cairn.engine.handed import Said
from cairn.engine.numbers import check_whole
from cairn.engine.result import Run
from cairn.engine.stream import stream_run
from cairn.engine.worker import Worker
from cairn.ports import Observed
from cairn.runtime.checked import checked
from cairn.runtime.ground import Ground
from cairn.runtime.twins import twin

LOCAL = Principal()


class Tasks(Ground):
    """Handing tasks over."""

    @checked
    async def run_async(  # noqa: PLR0913 - every option by its name, each with a default
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
        policy: Policy | None = None,
        mode: Literal["", "queue", "interrupt"] = "",
        project: str = "",
    ) -> Run:
        """Start a run, or go on with it: the same call starts, resumes and recovers.

        Returns when there is a result or the run waits for people. If another process drives it,
        follows until then.

        Args:
            agent: Name of the agent.
            input: The task.
            id: Run id; a fresh one by default. The same task under the same id is the same run,
                with the session, bounds, kind, approvals and policy that it was started with;
                what is not named again stays as it is.
            principal: For whom it works; a string is its id.
            session: The conversation it continues.
            limits: Its bounds, which can only be stricter than the agent's: all of them as
                `Limits`, or only some as `{"steps": 10}`.
            kind: `query` offers read tools only; `generate`, `operate`. The agent's by default.
            approvals: `none` refuses at once what would need a person.
            policy: What narrows this run; what it allows changes nothing. It stands in the
                journal, beside the policy of whatever process goes on with the run.
            mode: What becomes of it while the session has an active run: `queue`, it waits until
                that one and those queued before it are over; `interrupt`, it waits as well and
                the active one is ended at its next safe point. Empty: `SessionBusy`.
            project: The project whose facts it shares, in the memory's scope `project`. By
                default that of the run before it in the session, or the one that `MemoryRules`
                names; else it shares none. A session is about one project.

        Raises:
            RunConflict: the id is taken by another task, or what is named of its session, bounds,
                kind, approvals or policy is not what the run was started with.
            SessionBusy: the session has an active run, and no mode was given.
            UnknownAgent, ConfigError, StoreError.
            ToolsUnready, UnknownTools: a server of its tools cannot be reached, or does not have
                what the policy or a declaration names.
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
            policy=policy,
            mode=mode,
            project=project,
        )
        return await self.drive_async(run)

    @checked
    async def start_async(self, agent: str, input: Given, **options: Unpack[RunOptions]) -> str:
        """As `run`, but return the run id at once and drive it in the background."""
        run = await self.enqueue_async(agent, input, **options)
        self._spawn(run)
        return run

    @checked
    async def enqueue_async(self, agent: str, input: Given, **options: Unpack[RunOptions]) -> str:
        """As `run`, but return the run id at once and leave the driving to a worker."""
        check_person(principal_of(options.get("principal", LOCAL)))
        await self._check_begun(_session_of(options.get("session", "")))
        task = await self._task_of(agent, input, options)
        return await self.client.start(task, options.get("id", ""))

    async def _check_begun(self, session: str) -> None:
        """Refuse to begin, by hand, a session that is called as only routing calls one.

        Raises:
            ConfigError: it is, and there is none of that name.
        """
        if not is_routed(session):
            return
        head, line = await self.store.session_head(session), await self.store.session_open(session)
        if head is None and not line:
            check_begun(session)

    async def _task_of(self, agent: str, input: Given, options: RunOptions) -> Task:
        """What is to be handed over, checked.

        Raises:
            UnknownAgent, ConfigError: it cannot be.
        """
        await self.host.ready(agent)
        crew = self.host.working(agent)
        known = crew.agent
        limits = options.get("limits")
        kind, approvals = check_words(
            options.get("kind") or known.kind, options.get("approvals", "ask")
        )
        parts = parts_of(input)
        intake = known.intake
        by_rule = await intake.kind_of(text_of(parts)) if intake is not None else None
        narrowed = kind if by_rule is None else narrower(by_rule, kind)
        who = principal_of(options.get("principal", LOCAL))
        return Task(
            agent=agent,
            input=parts,
            principal=who,
            project=await self.host.memory_rules.check_said(
                who, options.get("project", ""), self.host.asks
            ),
            session=_session_of(options.get("session", "")),
            limits=known.limits.narrowed(limits) if limits is not None else known.limits,
            kind=narrowed,
            kind_by="" if narrowed == kind else "rule",
            approvals=approvals,
            on_loop=known.on_loop,
            fingerprint=crew.fingerprint,
            said=Said(kind=options.get("kind") or "", limits=_named(limits)),
            policy=check_run_policy(options.get("policy"), known, *self.host.policed),
            mode=check_mode(options.get("mode", ""), ("", "queue", "interrupt")),  # type: ignore[arg-type]  # one of the literals now
        )

    @checked
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
        check_text("run", run)
        check_whole("after", after)
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

    run = twin(run_async)
    start = twin(start_async)
    enqueue = twin(enqueue_async)
    work = twin(work_async)


def _named(limits: Limits | Mapping[str, int] | None) -> dict[str, int]:
    """The bounds that were named."""
    if isinstance(limits, Limits):
        return {name: getattr(limits, name) for name in FIELDS}
    return dict(limits or {})


def _session_of(given: object) -> str:
    """The conversation a task belongs to, empty for none. Raises `ConfigError`."""
    return "" if given == "" else check_session(given)
