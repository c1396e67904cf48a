"""The verbs that only look: nothing is driven, nothing is written."""

from __future__ import annotations

from collections.abc import Sequence

from cairn.core.events import Entry
from cairn.core.index import Pending
from cairn.engine.given import (
    check_statuses,
)
from cairn.engine.load import load, read_artifact
from cairn.errors import UnknownRun
from cairn.ports import RunFilter, RunInfo
from cairn.runtime.ground import Ground
from cairn.runtime.twins import twin


class Looks(Ground):
    """Looking at runs."""

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

    runs = twin(runs_async)
    pending = twin(pending_async)
    trace = twin(trace_async)
    artifact = twin(artifact_async)
