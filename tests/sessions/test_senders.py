"""Many who talk to one session at once: each message is read once, and all agree on the order."""

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest
from tests.engine.kit import Watched, runtime, texts

from cairn import Agent, Runtime, Scripted, call
from cairn.core import events as ev
from cairn.engine.load import load
from cairn.testing.invariants import check_store

ROOT = Path(__file__).resolve().parents[2]
SENDER = """
import asyncio, json, sys
from cairn import Agent, Runtime, Scripted

def answer(request):
    said = [p.content for m in request.messages if m.role == "user" for p in m.parts]
    return f"read {said[-1]}"

async def main(store, name, modes):
    rt = Runtime(store, agents=[Agent("a", Scripted(answer))])
    kept = []
    for n in range(8):
        text = f"{name}-{n}"
        run = await rt.send_async("s", text, agent="a", mode=modes[n % len(modes)], id=text)
        kept.append([text, run.status])
    await rt.close_async()
    print(json.dumps(kept))

asyncio.run(main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3])))
"""


def answer(request):
    """Says what it was asked last."""
    return f"read {texts(request)[-1]}"


async def what_was_read(store) -> list[str]:
    """All messages of session `s` in the order in which its runs have them; all is checked."""
    assert await check_store(store) == []
    rt = Runtime(store)
    seen = await rt.session_async("s")
    assert seen.waiting == ()
    found = []
    for run in seen.chain:
        entries = await store.read(run.run)
        by_seq = {e.seq: e.event for e in entries}
        for entry in entries:
            match entry.event:
                case ev.RunCreated(input=parts):
                    found += [p.content for p in parts]
                case ev.InputGiven(seqs=seqs):
                    found += [p.content for seq in seqs for p in by_seq[seq].parts]
    last = await load(store, seen.chain[-1].run)
    talked = [p.content for m in last.messages if m.role == "user" for p in m.parts]
    assert [t for t in talked if not t.startswith("[runtime]")] == found
    return found


@pytest.mark.parametrize(
    "modes", [["queue"], ["steer"], ["queue", "steer"], ["queue", "steer", "interrupt"]]
)
def test_processes_that_send_at_once_lose_nothing_and_double_nothing(tmp_path, modes):
    """B50: the second one does not write an old picture over the first one's turn."""
    path = str(tmp_path / "s.db")
    senders = [
        subprocess.Popen(
            [sys.executable, "-c", SENDER, path, name, json.dumps(modes)],
            env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
            stdout=subprocess.PIPE,
        )
        for name in ("ann", "bob")
    ]
    for sender in senders:
        out, _ = sender.communicate(timeout=25)
        assert sender.returncode == 0
        assert {status for _, status in json.loads(out)} <= {"completed", "cancelled"}

    async def main():
        async with Runtime(path, agents=[Agent("a", Scripted(answer))]) as rt:
            await rt.work_async(until_idle=True)
            read = await what_was_read(rt.store)
            wanted = [f"{name}-{n}" for name in ("ann", "bob") for n in range(8)]
            assert Counter(read) == Counter(wanted)
            for name in ("ann", "bob"):
                own = [text for text in read if text.startswith(name)]
                assert own == sorted(own), "what one sends after the other is read after it"

    asyncio.run(main())


def test_threads_that_send_the_same_messages_at_once_have_sent_each_once(tmp_path):
    path = str(tmp_path / "s.db")
    runtimes = [Runtime(path, agents=[Agent("a", Scripted(answer))]) for _ in range(4)]
    faults: list[BaseException] = []

    def send(rt):
        try:
            for n in range(5):
                mode = ("queue", "steer")[n % 2]
                assert rt.send("s", f"m{n}", agent="a", mode=mode, id=f"m{n}").ok
        except BaseException as fault:  # whatever it was, the test is to see it
            faults.append(fault)

    threads = [threading.Thread(target=send, args=(rt,)) for rt in runtimes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(25)
    assert faults == []
    for rt in runtimes:
        rt.close()

    async def main():
        async with Runtime(path) as rt:
            assert await what_was_read(rt.store) == [f"m{n}" for n in range(5)]

    asyncio.run(main())


def test_the_order_is_that_of_the_store_whoever_sent_and_whoever_works(tmp_path):
    async def main():
        path = tmp_path / "s.db"
        senders = [Runtime(path, agents=[Agent("a", Scripted(answer))]) for _ in range(3)]
        await senders[0].enqueue_async("a", "m0", session="s")
        posted = [await senders[n % 3].post_async("s", f"m{n}", mode="queue") for n in range(1, 10)]
        line = [run.run for run in await senders[0].store.session_open("s")]
        assert line[1:] == [each.run for each in posted]
        await asyncio.gather(*(rt.work_async(until_idle=True) for rt in senders))
        await senders[0].work_async(until_idle=True)
        assert await what_was_read(senders[0].store) == [f"m{n}" for n in range(10)]
        for rt in senders:
            await rt.close_async()

    asyncio.run(main())


# ---------------------------------------------------------------- between two looks


def test_a_message_goes_on_from_the_end_of_a_run_that_began_while_it_looked():
    """The other run begins after the first look and ends before the write: it is read whole."""

    async def main():
        watched = Watched()
        other = runtime(answer, store=watched.inner)
        mine = runtime(lambda r: " | ".join(texts(r)), store=watched)
        done = []

        async def meddle(name, *args, **kwargs):
            if name == "session_head" and not done:
                done.append(await other.enqueue_async("a", "theirs", session="s"))
            if name == "create" and len(done) == 1:
                done.append(await other.drive_async(done[0]))

        watched.before = meddle
        run = await mine.run_async("a", "mine", session="s", mode="queue")
        assert run.text == "theirs | mine"
        assert await what_was_read(watched.inner) == ["theirs", "mine"]
        last = await load(watched.inner, run.id)
        assert [m.role for m in last.messages] == ["user", "assistant", "user", "assistant"]

    asyncio.run(main())


def test_what_a_run_left_unread_while_somebody_looked_is_taken_over():
    async def main():
        watched = Watched()
        other = runtime(lambda r: call("ask_user", question="?"), store=watched.inner)
        await other.run_async("a", "one", id="r1", session="s")
        mine = runtime(lambda r: " | ".join(texts(r)), store=watched)
        looked = []

        async def end_it(name, *args, **kwargs):
            if name == "session_head" and not looked:
                looked.append(name)
                await other.post_async("s", "unread")
                await other.cancel_async("r1")
                await other.drive_async("r1")

        async def hide(session):
            """A look from before the run had ended."""
            line = await real(session)
            return [] if not looked else line

        real = watched.inner.session_open
        watched.inner.session_open = hide
        watched.after = end_it
        run = await mine.run_async("a", "mine", session="s")
        watched.inner.session_open = real
        assert run.text == "one | unread | mine"
        assert await what_was_read(watched.inner) == ["one", "unread", "mine"]

    asyncio.run(main())
