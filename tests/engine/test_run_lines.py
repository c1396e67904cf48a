"""What a store lists of a run follows from the run's events, in memory as in a file."""

import asyncio

import pytest
from tests.engine.kit import runtime

from cairn import ErrorClass, ModelError, call
from cairn.core import events as ev
from cairn.core.index import index_of
from cairn.engine.load import load
from cairn.ports import RunFilter
from cairn.store import open_store

NO = ModelError(ErrorClass.AUTH, "key expired")


@pytest.mark.parametrize("where", ["memory", "file"])
def test_every_line_of_the_run_table_says_what_its_events_say(where, tmp_path):
    async def main():
        place = ":memory:" if where == "memory" else tmp_path / "cairn.db"
        script = [NO, call("ask_user", question="?"), "done", "again"]
        rt = runtime(script, store=open_store(place))
        await rt.run_async("a", "task", id="r", session="s", principal="ann")
        retried = (await rt.retry_async("r")).id
        await rt.fork_async(retried, at=(await rt.store.info("r")).head - 1, id="f", drive=False)
        await rt.run_async("a", "task", id="alone")
        lines = await rt.store.runs(RunFilter())
        assert {line.run for line in lines} == {"r", retried, "f", "alone"}
        for line in lines:
            entries = await rt.store.read(line.run)
            created, own = entries[0].event, entries[line.parent_at]
            forks = [e.event for e in entries if isinstance(e.event, ev.RunForked)]
            index = index_of(await load(rt.store, line.run))
            assert (line.created_at, line.updated_at) == (own.at, entries[-1].at)
            assert line.session == ("" if line.run == "f" else created.session)
            assert (line.agent, line.principal) == (created.agent, created.principal.id)
            assert (line.digest, line.head) == (created.digest, entries[-1].seq)
            assert (line.parent, line.parent_at) == (
                (forks[-1].parent, forks[-1].at) if forks else ("", 0)
            )
            assert (line.status, line.waits, line.wake_at) == (
                index.status,
                index.waits,
                index.wake_at,
            )
            assert (line.steps, line.tokens, line.micro_usd) == (
                index.steps,
                index.tokens,
                index.micro_usd,
            )
        await rt.close_async()
        await rt.store.close()

    asyncio.run(main())
