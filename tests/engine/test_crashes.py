"""A process dies before or after any of its writes, in memory: another goes on with the run."""

import asyncio
from collections import Counter

import pytest
from tests.engine.kit import Ledger, Recorder, Watched, attempts, events, names, runtime

from cairn import NOT_HAPPENED, Context, Policy, Runtime, call, happened, tool
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.evolve import fold
from cairn.core.state import RunState
from cairn.store.inmemory import InMemoryStore

POLICY = Policy(effects={"write": "allow"}, tools={"refund": "ask"})
SCRIPT = (
    ["Let me see.", call("look", n=1), call("look", n=2)],
    [call("pay", n=3), call("post", n=4), call("send", n=5), call("look", n=6)],
    [call("refund", n=7)],
    "All done.",
)
EVERYTHING = ["look 1", "look 2", "pay 3", "post 4", "send 5", "look 6", "refund 7"]
ONCE = {"post 4", "refund 7"}


def making(ledger: Ledger):
    """One tool of each recovery; all of them write what they did into the ledger."""

    async def find(n: int) -> object:
        return happened(f"sent {n}") if f"send {n}" in ledger.lines else NOT_HAPPENED

    @tool(effect="read")
    async def look(n: int) -> str:
        return ledger.add(f"look {n}")

    @tool(effect="write", recovery="keyed", conflict_key="n")
    async def pay(n: int, ctx: Context) -> str:
        ledger.add(f"key {ctx.key}")
        return ledger.add(f"pay {n}")

    @tool(effect="write", conflict_key="n")
    async def post(n: int) -> str:
        return ledger.add(f"post {n}")

    @tool(effect="write", recovery="probe", probe=find, conflict_key="n")
    async def send(n: int) -> str:
        return ledger.add(f"send {n}")

    @tool(effect="write", conflict_key="n")
    async def refund(n: int) -> str:
        return ledger.add(f"refund {n}")

    return [look, pay, post, send, refund]


class Fate:
    """At which of all appends, before or after it, the process that makes it dies; once."""

    def __init__(self, at: int, side: str) -> None:
        self.at, self.side = at, side
        self.appends = 0
        self.met = False

    def strikes(self, side: str) -> bool:
        self.appends += side == "before"
        if self.met or self.appends != self.at or side != self.side:
            return False
        self.met = True
        return True


class Process:
    """A runtime on shared journals, as one process; it may die."""

    def __init__(self, journals: InMemoryStore, ledger: Ledger, fate: Fate) -> None:
        self.store = Watched(journals.beside())
        self.store.before = self.hook("before")
        self.store.after = self.hook("after")
        self.fate = fate
        self.dead = asyncio.Event()
        self.model = Recorder(*SCRIPT)
        self.rt = runtime(self.model, making(ledger), store=self.store, policy=POLICY)

    def hook(self, side: str):
        async def passed(name, *args, **kwargs):
            if name == "append" and self.fate.strikes(side):
                self.store.inner.crash()
                self.dead.set()
                await asyncio.sleep(3600)

        return passed

    async def live(self) -> str:
        """Drive the run; `died`, or the status it came to."""
        driving = asyncio.create_task(self.rt.run_async("a", "task", id="r"))
        death = asyncio.create_task(self.dead.wait())
        await asyncio.wait({driving, death}, return_when=asyncio.FIRST_COMPLETED)
        death.cancel()
        if not self.dead.is_set():
            return (await driving).status
        everything = asyncio.all_tasks() - {asyncio.current_task()}
        for each in everything:
            each.cancel()
        await asyncio.gather(*everything, return_exceptions=True)
        return "died"


async def settle(journals: InMemoryStore, ledger: Ledger) -> None:
    """Decide what waits: grant what is asked, and say of doubts what the ledger says."""
    clerk = Runtime(journals.beside())
    for pending in await clerk.pending_async():
        if pending.kind == "approval":
            await clerk.client.approve(pending.id)
        else:
            line = f"{pending.tool} {pending.detail.strip('{}').split(':')[1]}"
            verdict = "happened" if line in ledger.lines else "not_happened"
            await clerk.client.resolve(pending.id, verdict)


async def survive(fate: Fate) -> tuple[Ledger, list, list]:
    """Let one process after the other drive the run until it has completed."""
    journals, ledger = InMemoryStore(), Ledger()
    requests = []
    for _ in range(12):
        process = Process(journals, ledger, fate)
        status = await process.live()
        requests += process.model.requests
        if status == "completed":
            return ledger, requests, await journals.beside().read("r")
        if status == "waiting":
            await settle(journals, ledger)
    raise AssertionError("it never completed")


def check(ledger: Ledger, requests: list, trace: list) -> None:
    done = Counter(line for line in ledger.lines if not line.startswith("key"))
    assert set(done) == set(EVERYTHING)
    assert all(done[line] == 1 for line in ONCE), done
    assert max(done.values()) <= 2
    assert sum(done.values()) <= len(EVERYTHING) + 4
    assert len({line for line in ledger.lines if line.startswith("key")}) == 1
    for request in requests:
        assert faults(request.messages) == []
    completed = [e.call for e in events(trace, ev.ToolCompleted)]
    assert len(completed) == len(set(completed))
    first_completed = {}
    for entry in trace:
        if isinstance(entry.event, ev.ToolCompleted):
            first_completed[entry.event.call] = entry.seq
        if isinstance(entry.event, ev.ToolStarted):
            assert entry.event.call not in first_completed  # finished tools are never repeated
    state = fold(RunState(run="r"), trace)
    assert (state.status, state.answer_text) == ("completed", "All done.")
    assert not events(trace, ev.ErrorRaised)


LAST = 10
"""How many appends the script takes when nobody dies."""


def test_without_a_crash_everything_happens_once():
    async def main():
        fate = Fate(0, "before")
        ledger, requests, trace = await survive(fate)
        check(ledger, requests, trace)
        assert sorted(line for line in ledger.lines if line[:3] != "key") == sorted(EVERYTHING)
        assert len(requests) == len(SCRIPT)
        assert [a for _, a in attempts(trace)] == [1] * 7
        assert names(trace)[-1] == "run.completed"
        assert fate.appends == LAST

    asyncio.run(main())


@pytest.mark.parametrize("side", ["before", "after"])
@pytest.mark.parametrize("at", range(1, LAST + 1))
def test_a_process_that_dies_around_any_write_repeats_no_finished_effect(at, side):
    """B02, B03, B05: per call, what was finished stays finished and what was not started runs."""

    async def main():
        fate = Fate(at, side)
        ledger, requests, trace = await survive(fate)
        assert fate.met
        check(ledger, requests, trace)

    asyncio.run(main())
