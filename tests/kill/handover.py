"""People talk to a session in all modes while its processes die: each message is read exactly once.

A life is a process that sends and works, and after its death one that works, with or without the
sender sending again what was not acknowledged. It is cut at every write of the store, before it
and after it, and at every model call and tool. Witnesses outside the runtime are the file of
effects and the file of what was acknowledged to the senders.
"""

import asyncio
import json
import logging
import shutil
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

from tests.kill.outside import Fuse, WatchedStore, World, add_line, lines_of
from tests.kill.sweep import ENDED, Figures, Stuck, child

from cairn import Agent, Context, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.commands import Cancel
from cairn.core.context import faults
from cairn.core.state import transcript
from cairn.engine.load import load
from cairn.store import open_store
from cairn.testing.invariants import check_store

SESSION = "s"
MESSAGES: tuple[tuple[str, str], ...] = (
    ("steer", "m1"),
    ("queue", "m2"),
    ("steer", "m3"),
    ("interrupt", "m4"),
    ("queue", "m5"),
    ("steer", "m6"),
)
"""What is said beside the first message, `m0`, in this order."""
CUT_OFF = "m6"
"""Behind this one the run that should read it is cancelled at once."""
SIDE_S = 0.004


def said_in(request: Any) -> list[str]:
    """What people have said so far, as the model reads it."""
    return [
        part.content
        for message in request.messages
        if message.role == "user"
        for part in message.parts
        if part.content.startswith("m")
    ]


def make_runtime(place: Path, burns_at: int) -> Runtime:
    """A process of the session: each run acts once, then answers."""
    world, fuse = World(place), Fuse(place / "points", burns_at)

    async def model(request: Any) -> Any:
        fuse.meet("model.before")
        world.ask(request.run, request.turn)
        await asyncio.sleep(SIDE_S)
        fuse.meet("model.after")
        return call("post") if request.turn == 0 else f"read {said_in(request)[-1]}"

    @tool(effect="write", timeout=5.0)
    async def post(ctx: Context) -> str:
        fuse.meet("post.before")
        world.act(ctx)
        await asyncio.sleep(4 * SIDE_S)
        fuse.meet("post.after")
        return "posted"

    store: Any = WatchedStore(open_store(place / "store.db"), world, fuse)
    agent = Agent("a", Scripted(model), tools=[post])
    return Runtime(store, [agent], policy=Policy(effects={"write": "allow"}))


async def talk(place: Path, burns_at: int, again: bool) -> None:
    """Send what was not acknowledged, while the runs are worked off; then settle what is left."""
    rt = make_runtime(place, burns_at)
    world = World(place)
    known = {words[0] for words in lines_of(place / "known")}
    worker = asyncio.create_task(rt.work_async())
    try:
        for mode, text in (("queue", "m0"), *MESSAGES) if again else ():
            if text not in known:
                if text == CUT_OFF:
                    await last_at_work(rt, world)
                await rt.post_async(SESSION, text, agent="a", mode=mode, id=text)
                add_line(place / "known", text)
                if text == CUT_OFF:
                    await cut_off(rt)
                await asyncio.sleep(SIDE_S)
        await finish(rt, world)
    finally:
        rt.host.draining = True
        await worker
        await rt.close_async()


async def last_at_work(rt: Runtime, world: World) -> None:
    """Wait until nobody waits in line any more, and the last run is at work if it is not over."""
    while True:
        line = await rt.store.session_open(SESSION)
        if not line:
            return
        if len(line) == 1 and (await load(rt.store, line[0].run)).calls:
            return
        await settle(rt, world)
        await asyncio.sleep(SIDE_S / 4)


async def cut_off(rt: Runtime) -> None:
    """Cancel the active run, whatever it is about to read."""
    for run in (await rt.store.session_open(SESSION))[:1]:
        await rt.client.submit(run.run, Cancel(reason="enough"))


async def finish(rt: Runtime, world: World) -> None:
    """Wait until nothing is left to be done."""
    calm = 0
    while calm < 2:  # the two looks are not one: a run may end between them, and leave something
        open_runs, owed = await rt.store.session_open(SESSION), await rt.store.unread(["a"])
        calm = 0 if open_runs or owed else calm + 1
        await settle(rt, world)
        await asyncio.sleep(SIDE_S)


async def settle(rt: Runtime, world: World) -> None:
    """Say what came of calls that nobody knows of, as the world is."""
    for pending in await rt.pending_async():
        run, _, name = pending.id.partition("/")
        verdict = "happened" if world.happened(run, name) else "not_happened"
        await rt.client.resolve(pending.id, verdict)


async def judge(place: Path, again: bool) -> list[str]:
    """What is wrong with what is left."""
    store = open_store(place / "store.db")
    known = {words[0] for words in lines_of(place / "known")}
    try:
        runs = (await Runtime(store).runs_async(session=SESSION))[::-1]
        found = [f"{r.run} ended {r.status}" for r in runs if r.status not in ENDED]
        found += [str(wrong) for wrong in await check_store(store)]
        read: Counter[str] = Counter()
        for line in runs:
            entries = await store.read(line.run)
            await store.verify(line.run)
            read.update(await consumed_in(store, entries))
            found += faults(transcript(await load(store, line.run)))
        wanted = {"m0", *(text for _, text in MESSAGES)} if again else known
        found += [f"{text} was never read" for text in sorted(wanted - set(read))]
        found += [f"{text} was read {n} times" for text, n in read.items() if n != 1]
        if runs:
            head = await store.session_head(SESSION)
            last = await load(store, head.run)
            told = Counter(said_in(last))
            found += [f"the talk holds {t} {told[t]} times" for t in read if told[t] != 1]
        done = Counter((e.run, e.call) for e in World(place).effects())
        found += [f"{at} happened {n} times" for at, n in done.items() if n != 1]
    finally:
        await store.close()
    return found


async def consumed_in(store: Any, entries: list[ev.Entry]) -> list[str]:
    """The messages that a run has read, began with or took over; one for each time."""
    texts: list[str] = []
    by_seq = {entry.seq: entry.event for entry in entries}
    for entry in entries:
        match entry.event:
            case ev.RunCreated(input=parts):
                texts += [part.content for part in parts]
            case ev.InputGiven(seqs=seqs):
                texts += [part.content for seq in seqs for part in by_seq[seq].parts]
            case ev.RunContinued(previous=previous, consumes=seqs):
                before = {e.seq: e.event for e in await store.read(previous.run)}
                texts += [part.content for seq in seqs for part in before[seq].parts]
    return [text for text in texts if text.startswith("m")]


# ---------------------------------------------------------------- the sweep


def sweep(task: dict[str, Any]) -> dict[str, Any]:
    """A death at every point of this part; what was counted."""
    logging.disable(logging.CRITICAL)
    figures, part, parts = Figures(), *task["share"]
    with tempfile.TemporaryDirectory(prefix="cairn-handover-") as folder:
        place = Path(folder) / "place"
        points = _life(place, figures, 0, again=True)
        for burns_at in range(1 + part, points + 1, parts):
            for again in (True, False):
                figures.points += 1
                _life(place, figures, burns_at, again=again)
    return figures.as_dict()


def _life(place: Path, figures: Figures, burns_at: int, *, again: bool) -> int:
    """One life, from nothing to its end, cut at a point; how many points it met."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    figures.lives += 1
    status, said = child(place, talk, burns_at, True)
    figures.processes += 1
    passed = lines_of(place / "points")
    figures.names.update(words[0] for words in passed)
    where = f"killed at {burns_at} ({passed[-1][0] if passed else 'nothing'}), again={again}"
    if status == -signal.SIGKILL:
        figures.kills += 1
        (place / "points").unlink()
        status, said = child(place, talk, 0, again)
        figures.processes += 1
    elif burns_at:
        figures.missed += 1
    if status:
        raise Stuck(f"{where}: it ended with {status}: {said}")
    status, found = child(place, judge, again)
    figures.violations += [f"{where}: {fault}" for fault in (found if status == 0 else [found])]
    return len(passed)


def serve(job: dict[str, Any]) -> None:
    """A job of the zygote."""
    out = Path(job["result"])
    out.with_suffix(".part").write_text(json.dumps(sweep(job["handover"])))
    out.with_suffix(".part").replace(out)
