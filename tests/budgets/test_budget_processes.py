"""Several processes spend at random from one budget, some are killed: it is exact all the same."""

import asyncio
import random
import signal
import subprocess
import sys
import time

import pytest

from cairn.core import events as ev
from cairn.core.budgets import Cap
from cairn.core.spending import Ledger, charge
from cairn.ports import RunFilter
from cairn.store import open_store
from cairn.testing.store_budgets import NOON, Spender

CAPS = (
    Cap(name="money", micro_usd=60_000),
    Cap(name="mine", per="principal", tokens=40_000),
)

SPENDER = """
import asyncio, random, sys
from cairn.errors import BudgetReached
from cairn.store import open_store
from cairn.testing.store_budgets import Spender, append, begun

async def spend(store, name, dice):
    story = await begun(store, Spender(name, who=name[:2]))
    while True:
        before, wanted = story.state, dice.randrange(300, 3_000)
        try:
            await append(store, story, story.request(wanted, wanted))
        except BudgetReached as reached:
            story.state = before
            if reached.room.micro_usd is not None and reached.room.micro_usd.left < 300:
                return
            await asyncio.sleep(0.001)
            if dice.random() < 0.3:
                return
            continue
        if dice.random() < 0.5:
            await asyncio.sleep(dice.random() * 0.01)
        used = dice.randrange(wanted)
        await append(store, story, story.answer(used, used))

async def main(path, name):
    store = open_store(path, durability="process")
    print("ready", flush=True)
    dice = random.Random(name)
    await asyncio.gather(*(spend(store, f"{name}-{n}", dice) for n in range(5)))
    await store.close()

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.fixture
def spenders():
    started = []

    def start(path, name):
        process = subprocess.Popen(
            [sys.executable, "-W", "error", "-c", SPENDER, str(path), name],
            stdout=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def told(entries, ledger):
    """What one journal says was used, by a sum of its own."""
    used = held = 0
    for entry in entries:
        ledger, charges = charge(ledger, entry)
        used += sum(each.spend.micro_usd for each in charges)
        held += sum(each.spend.held_micro_usd for each in charges)
    return used, held


async def sums(store):
    used = held = 0
    for info in await store.runs(RunFilter(limit=1_000)):
        more = told(await store.read(info.run), Ledger())
        used, held = used + more[0], held + more[1]
    return used, held


async def within(store):
    for standing in await store.budgets(NOON):
        for measure in ("micro_usd", "tokens"):
            bound = standing.cap.bound(measure)
            assert bound is None or standing.spend.total(measure) <= bound
            assert standing.spend.sound


@pytest.mark.slow
@pytest.mark.kill
@pytest.mark.parametrize("seed", range(3))
def test_processes_that_spend_at_random_and_are_killed_never_pass_the_cap(tmp_path, spenders, seed):
    """B40."""
    path = tmp_path / "cairn.db"
    dice = random.Random(seed)

    async def story():
        store = open_store(path, durability="process")
        await store.set_budgets(CAPS, NOON)
        names = [f"{letter}{seed}" for letter in "abcd"]
        processes = [spenders(path, name) for name in names]
        for process in processes:
            assert process.stdout.readline().strip() == "ready"
        for victim in dice.sample(processes, 2):
            time.sleep(dice.random() * 0.15)  # noqa: ASYNC251 - nothing else runs here
            victim.send_signal(signal.SIGKILL)
            await within(store)
        while any(process.poll() is None for process in processes):
            await within(store)
            await asyncio.sleep(0.01)
        [money] = [s for s in await store.budgets(NOON) if s.cap.name == "money"]
        assert (money.spend.micro_usd, money.spend.held_micro_usd) == await sums(store)
        assert money.spend.total("micro_usd") > 0
        assert await store.recount(NOON) == []
        await settle(store)
        await within(store)
        [after] = [s for s in await store.budgets(NOON) if s.cap.name == "money"]
        assert after.spend.held_micro_usd == 0
        assert after.spend.micro_usd == money.spend.total("micro_usd")
        for info in await store.runs(RunFilter(limit=1_000)):
            assert await store.verify(info.run) == info.head
        await store.close()

    asyncio.run(story())


async def settle(store):
    """What the dead had at work is charged at its reservation, as whoever takes over does."""
    for info in await store.runs(RunFilter(limit=1_000)):
        entries = await store.read(info.run)
        if isinstance(entries[-1].event, ev.ModelRequested):
            claim = await store.claim(info.run)
            story = Spender(info.run)
            story.follow(entries)
            story.now = story.state.at
            reserved = entries[-1].event.reserved
            lost = story.lose(reserved.tokens, reserved.micro_usd)
            await store.append(info.run, claim.epoch, lost, story.index, release=True)
