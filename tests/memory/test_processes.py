"""Several processes and threads keep facts in one file, and are killed at it: nothing is lost."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
from tests.memory.kit import ANN, NOW, fact, runtime

from cairn import call
from cairn.memory import FactFilter
from cairn.store import inspect_store, open_store

KEEPER = """
import asyncio, sys
from cairn.memory import NewFact
from cairn.memory.facts import user_scope
from cairn.core.messages import Principal
from cairn.store import open_store

async def main(path, name, count):
    store = open_store(path)
    memory = store.memory()
    for n in range(int(count)):
        text = f"fact {name}-{n} " + "pad " * 50
        new = NewFact(text=text, scope=user_scope(Principal(id="ann")), principal="ann",
                      trust="agent")
        kept = await memory.keep(new, f"{name}-{n}", 1_750_000_000_000_000 + n)
        if n % 5 == 4:
            await memory.forget(kept.n, 1_750_000_000_000_000 + n)
        print(f"{name}-{n} {kept.n} {'forgotten' if n % 5 == 4 else 'kept'}", flush=True)
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "cairn.db"


def start(path, name, count):
    return subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(path), name, str(count)],
        stdout=subprocess.PIPE,
        text=True,
    )


def facts_in(path):
    async def look():
        store = open_store(path)
        try:
            return await store.memory().facts(FactFilter(limit=0))
        finally:
            await store.close()

    return asyncio.run(look())


def wrong(path):
    with inspect_store(path) as look:
        found = [f for run in look.journals() for f in look.inspect(run).findings]
        return [str(f) for f in [*found, *look.strays()]]


@pytest.mark.slow
def test_processes_that_keep_at_once_lose_nothing(path):
    open_and_close(path)
    keepers = [start(path, f"p{n}", 25) for n in range(3)]
    said = [keeper.communicate(timeout=60)[0].split("\n") for keeper in keepers]
    assert [keeper.returncode for keeper in keepers] == [0, 0, 0]
    kept = {line.split()[1] for lines in said for line in lines if line.endswith("kept")}
    assert {str(each.n) for each in facts_in(path)} == kept
    assert len(kept) == 60
    assert wrong(path) == []


def open_and_close(path):
    async def whole():
        await open_store(path).close()

    asyncio.run(whole())


def test_threads_with_loops_of_their_own_lose_nothing(path):
    async def whole():
        store = open_store(path)

        def work(name):
            async def keep():
                for n in range(15):
                    await store.memory().keep(fact(f"fact {name} {n}"), f"{name}-{n}", NOW)

            asyncio.run(keep())

        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        await asyncio.to_thread(lambda: [thread.join() for thread in threads])
        found = await store.memory().facts(FactFilter(limit=0))
        await store.close()
        return found

    assert len(asyncio.run(whole())) == 60
    assert wrong(path) == []


@pytest.mark.kill
@pytest.mark.slow
def test_a_kill_at_any_moment_loses_nothing_that_was_acknowledged_and_leaves_no_half(path):
    open_and_close(path)
    acknowledged = {}
    for round_ in range(6):
        keeper = start(path, f"r{round_}", 10_000)
        first = keeper.stdout.readline()
        time.sleep(0.02 * round_)
        os.kill(keeper.pid, signal.SIGKILL)
        lines = [first, *keeper.stdout.readlines()]
        keeper.wait()
        keeper.stdout.close()
        for line in lines:
            if line.endswith("\n"):
                _, n, how = line.split()
                acknowledged[int(n)] = how
        there = {each.n for each in facts_in(path)}
        assert {n for n, how in acknowledged.items() if how == "kept"} <= there
        assert not {n for n, how in acknowledged.items() if how == "forgotten"} & there
        assert wrong(path) == []
    assert len(acknowledged) >= 6


def test_a_call_that_is_repeated_after_a_crash_keeps_its_fact_once(path):
    """The key outlives the process: what was kept before the crash is answered, not kept anew."""
    assert keep_once(path) == (1, False)
    assert keep_once(path) == (1, True)
    assert [each.text for each in facts_in(path)] == ["Likes tea."]


def keep_once(path):
    async def whole():
        store = open_store(path)
        kept = await store.memory().keep(fact("Likes tea.", ANN), "call-1", NOW)
        await store.close()
        return kept.n, kept.known

    return asyncio.run(whole())


CRASHER = """
import os, sys
from cairn.memory.desk import Desk
from tests.memory.kit import runtime
from cairn import call

remember = Desk.remember

async def and_die(self, *args, **more):
    kept = await remember(self, *args, **more)
    print(kept.n, flush=True)
    os._exit(9)

Desk.remember = and_die
rt = runtime(sys.argv[1], [call("remember", text="Ann likes tea."), "done"])
rt.run("desk", "go", id="r", principal="ann")
"""


@pytest.mark.kill
def test_a_run_that_dies_between_the_fact_and_its_outcome_keeps_the_fact_once(path):
    """Nobody is asked: the call is keyed, and is made again."""
    died = subprocess.run(
        [sys.executable, "-c", CRASHER, str(path)], capture_output=True, text=True, check=False
    )
    assert (died.returncode, died.stdout) == (9, "1\n"), died.stderr
    with runtime(path, [call("remember", text="Ann likes tea."), "done"]) as rt:
        assert rt.run("desk", "go", id="r", principal="ann").status == "completed"
        attempts = [e.event.attempt for e in rt.trace("r") if e.event.NAME == "tool.started"]
        assert attempts == [1, 2]
        assert [each.id for each in rt.facts()] == ["m1"]
        assert rt.replay("r").same
