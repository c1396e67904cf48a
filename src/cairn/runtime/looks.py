"""The verbs that only look: nothing is driven, nothing is written."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Literal

from cairn.agent import Agent
from cairn.core.budgets import Standing
from cairn.core.events import Entry
from cairn.core.ladder import Ladder
from cairn.core.limits import Limits
from cairn.core.policy import Policy
from cairn.core.replay import Replay
from cairn.core.requests import Request
from cairn.core.views import Manifest
from cairn.engine.folders import workspace_of
from cairn.engine.given import check_session, check_statuses
from cairn.engine.load import load, manifest_of, read_artifact
from cairn.engine.replay import Reader, replay_run
from cairn.errors import ConfigError, UnknownRun, safe_repr
from cairn.ports import RunFilter, RunInfo
from cairn.runtime.checked import checked
from cairn.runtime.ground import Ground
from cairn.runtime.twins import twin
from cairn.workspace import Workspace


class Looks(Ground):
    """Looking at runs."""

    @checked
    async def runs_async(
        self,
        *,
        status: str | Sequence[str] = (),
        agent: str = "",
        session: str = "",
        principal: str = "",
        limit: int = 100,
    ) -> list[RunInfo]:
        """The run table, newest first.

        Args:
            status: Only these.
            agent, session, principal: Only theirs; empty for all.
            limit: How many at most, 1 to 1,000,000.

        Raises:
            ConfigError: there is no such status, or a value is not usable.
        """
        if session:
            check_session(session)
        where = RunFilter(
            status=check_statuses(status),
            agent=agent,
            session=session,
            principal=principal,
            limit=limit,
        )
        return await self.client.runs(where)

    @checked
    async def pending_async(self) -> list[Request]:
        """What waits for people, over all runs, oldest first: the first 100.

        Each says who asks (`agent`, `principal`), by which `rule` and for what `reason`, on what
        `terms`, and which `files` a yes is bound to.
        """
        return await self.client.pending()

    @checked
    async def budgets_async(self) -> list[Standing]:
        """How the budgets of the store stand now, for everybody they count.

        Those this runtime was made with are set first, if they do not stand yet.
        """
        await self.host.uphold(self.store)
        return await self.store.budgets(self.host.clock.now_us())

    @checked
    async def workspace_async(self, run: str) -> Workspace:
        """The workspace that a run works in; nothing of it is made by asking.

        `changes()` of one that was never used raises `NoWorkspace`.

        Raises:
            UnknownRun: there is no such run.
            ConfigError: this runtime was made without workspaces.
        """
        await self.store.info(run)
        if self.host.workspaces is None:
            fix = "Make it with Runtime(workspace=...)"
            raise ConfigError("workspace", "this runtime has none", fix)
        return await workspace_of(self.host.workspaces, self.store, await load(self.store, run))

    @checked
    async def trace_async(self, run: str, after: int = 0) -> list[Entry]:
        """The run's journal. Raises `UnknownRun`."""
        return await self.store.read(run, after=after)

    @checked
    async def context_async(self, run: str, step: int) -> Manifest:
        """What the model request of a step held: its blocks, its part of the conversation.

        Raises:
            UnknownRun: there is no such run, or the step made no request.
        """
        return await manifest_of(self.store, run, step)

    @checked
    async def artifact_async(self, run: str, artifact: str) -> str:
        """The content of an artifact. Raises `UnknownRun` if there is none of this id."""
        found = await read_artifact(await load(self.store, run), self.store, artifact)
        if found is None:
            raise UnknownRun(f"run {run} has no artifact {artifact!r}")
        return found.content

    @checked
    async def replay_async(
        self,
        run: str,
        *,
        agent: Agent | str | None = None,
        policy: Policy | None = None,
        ladder: Ladder | None = None,
        limits: Limits | Mapping[str, int] | Literal["agent"] | None = None,
        prompts: bool = False,
        ignore: Sequence[str] = (),
    ) -> Replay:
        """Take every decision of a run anew, and say where the run would have gone elsewhere.

        Replies, results, what people decided and the time come from the journal. No model, tool
        or probe is called and nothing is written.

        Args:
            run: Its id. A run that is not over is replayed as far as it has come.
            agent: Who decides: an agent, or the name of one. Default: the run's agent, as this
                runtime has it.
            policy: In place of the runtime's.
            ladder: In place of the runtime's.
            limits: In place of the recorded ones, or only those that a mapping names; `agent`
                also holds the run to the limits its agent has now.
            prompts: Whether instructions that are a function are called, once for each request.
            ignore: What of a decision is overlooked. `("model",)`: another model's name leads
                nowhere else, and is told among the changes as `ignored`.

        Raises:
            UnknownRun: there is no such run.
            UnknownAgent: this runtime does not know the agent.
            ConfigError: a policy, ladder or limit is not usable, or one of `ignore` is unknown.
            CorruptJournal: the journal cannot be read.
        """
        _check_replayed(agent, limits, ignore)
        name = agent if agent is not None else (await self.store.info(run)).agent
        if isinstance(name, str):
            await self.host.ready(name)  # else its servers' tools would seem not to be there
        crew = self.host.variant(name, policy, ladder)
        return await replay_run(
            Reader(self.store),
            run,
            crew,
            limits=limits,
            prompts=prompts,
            ignore=ignore,
            pause=asyncio.sleep,
        )

    runs = twin(runs_async)
    pending = twin(pending_async)
    budgets = twin(budgets_async)
    trace = twin(trace_async)
    workspace = twin(workspace_async)
    context = twin(context_async)
    artifact = twin(artifact_async)
    replay = twin(replay_async)


def _check_replayed(agent: object, limits: object, ignore: object) -> None:
    """What a replay is asked for. Raises `ConfigError`."""
    if agent is not None and not isinstance(agent, Agent | str):
        fix = "Give a cairn.Agent, or the name of one"
        raise ConfigError("agent", f"{safe_repr(agent)} is none", fix)
    if isinstance(limits, str) and limits != "agent":
        fix = 'Give limits, or "agent" for those that its agent has now'
        raise ConfigError("limits", f"{safe_repr(limits)} are none", fix)
    if not isinstance(ignore, Sequence):
        raise ConfigError("ignore", f"{safe_repr(ignore)} is no list", 'Write ("model",)')
