"""Who follows a message is led to the run that reads it, whoever ends the one it was sent to."""

import asyncio
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.kit import names, results, runtime, texts, until

from cairn import Runtime, call, tool
from cairn.engine.load import load
from cairn.engine.turns import begin_turn, take_over
from cairn.store.inmemory import InMemoryStore
from cairn.testing.invariants.sessions import check_sessions


def reads(request):
    """Asks a person first, then says all it was asked."""
    if len(texts(request)) == 1 and not results(request):
        return call("ask_user", question="?")
    return "read " + "; ".join(text for text in texts(request) if text[0] != "[")


def test_a_steered_message_is_followed_into_the_run_of_who_interrupts():
    async def main():
        rt = runtime(reads)
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        stop = await rt.post_async("s", "three", mode="interrupt")
        assert (steered.run, steered.how, stop.how) == ("r1", "steered", "interrupting")
        run = await rt.follow_async(steered)
        assert (run.id, run.status, run.text) == (stop.run, "completed", "read one; two; three")
        assert (await rt.follow_async(steered)).id == stop.run, "once more"
        assert (await rt.follow_async(stop)).id == stop.run
        assert (await rt.get_async("r1")).status == "cancelled"
        assert len(await rt.runs_async(session="s")) == 2

    asyncio.run(main())


def test_a_sender_is_answered_by_the_run_of_who_interrupts():
    async def main():
        begun, gate = asyncio.Event(), asyncio.Event()

        @tool(effect="write")
        async def slow() -> str:
            begun.set()
            await gate.wait()
            return "done slowly"

        store = InMemoryStore()
        rt = runtime(
            lambda r: call("slow") if len(texts(r)) == 1 else reads(r), [slow], store=store
        )
        first = asyncio.create_task(rt.run_async("a", "one", id="r1", session="s"))
        await begun.wait()
        sender = asyncio.create_task(rt.send_async("s", "two"))
        await until(lambda: "input.queued" in names(store.journals.runs["r1"].entries))
        other = asyncio.create_task(rt.send_async("s", "three", mode="interrupt"))
        await until(lambda: "run.cancel_requested" in names(store.journals.runs["r1"].entries))
        gate.set()
        assert (await first).status == "cancelled"
        run, theirs = await sender, await other
        assert (run.id, run.text) == (theirs.id, "read one; two; three")

    asyncio.run(main())


def test_a_message_is_followed_past_one_in_line_that_is_cancelled_before_its_turn():
    async def main():
        rt = runtime(reads)
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        stop = await rt.post_async("s", "three", mode="interrupt")
        after = await rt.post_async("s", "four", mode="queue")
        await rt.cancel_async(stop.run)
        run = await rt.follow_async(steered)
        assert (run.id, run.text) == (after.run, "read one; two; four")

    asyncio.run(main())


def test_a_message_whose_only_reader_in_line_is_cancelled_starts_a_run_of_its_own():
    async def main():
        rt = runtime(reads)
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        stop = await rt.post_async("s", "three", mode="interrupt")
        await rt.drive_async("r1")
        await rt.cancel_async(stop.run)
        run = await rt.follow_async(steered)
        assert run.id not in {"r1", stop.run}
        assert run.text == "read one; two"

    asyncio.run(main())


def test_a_message_is_followed_while_the_run_that_took_it_over_is_interrupted_before_it_asks():
    async def main():
        rt = runtime(reads)
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        first = await rt.post_async("s", "three", mode="interrupt")
        await rt.drive_async("r1")

        # it begins, and its process is gone before it asks
        claim = await rt.store.claim(first.run)
        await begin_turn(rt.store, claim, await load(rt.store, first.run), rt.host)
        await rt.store.append(first.run, claim.epoch, [], None, release=True)
        last = await rt.post_async("s", "four", mode="interrupt")
        run = await rt.follow_async(steered)
        assert (run.id, run.text) == (last.run, "read one; two; three; four")
        assert (await rt.get_async(first.run)).status == "cancelled"
        run = await rt.follow_async(first)
        assert run.id == last.run, "nobody has read what it began with, but for this one"

    asyncio.run(main())


def test_who_cancels_the_run_that_took_a_message_over_wants_no_answer():
    async def main():
        rt = runtime(reads)
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        await rt.cancel_async("r1")
        await rt.drive_async("r1")
        next_run = await take_over(rt.store, "r1", rt.host)
        await rt.cancel_async(next_run)
        run = await rt.follow_async(steered)
        assert (run.id, run.status) == (next_run, "cancelled")
        await rt.send_async("s", "three")
        assert (await rt.follow_async(steered)).id == next_run

    asyncio.run(main())


def test_a_message_is_followed_into_a_retry_of_the_run_that_ended_without_reading_it():
    async def main():
        rt = runtime(reads)
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        await rt.cancel_async("r1")
        await rt.drive_async("r1")
        again = await rt.retry_async("r1")
        assert again.pending, "it waits for the same answer"
        assert (await rt.follow_async(steered)).id == again.id
        await rt.answer_async(again.pending[0].id, "yes")
        assert (await rt.follow_async(steered)).text == "read one; two"

    asyncio.run(main())


def test_a_message_that_a_rewind_left_unread_is_not_said_to_be_read_by_another_run():
    async def main():
        rt = runtime(lambda r: "fine" if texts(r) == ["zero"] else call("ask_user", question="?"))
        await rt.run_async("a", "zero", id="r0", session="s")
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        await rt.cancel_async("r1")
        await rt.drive_async("r1")
        await rt.rewind_async("s", "r0")
        await rt.run_async("a", "other", id="r2", session="s")
        run = await rt.follow_async(steered)
        assert (run.id, run.status) == ("r1", "cancelled")

    asyncio.run(main())


def test_who_reads_a_message_is_found_without_a_look_at_the_other_runs_of_its_session():
    async def main():
        rt = runtime(lambda r: reads(r) if len(texts(r)) < 3 else "read all")
        await rt.run_async("a", "one", id="r1", session="s")
        steered = await rt.post_async("s", "two")
        stop = await rt.post_async("s", "three", mode="interrupt")
        await rt.follow_async(stop)
        for n in range(120):
            await rt.send_async("s", f"more {n}")
        read, looked = rt.store.read, []

        async def counted(run, *more, **others):
            looked.append(run)
            return await read(run, *more, **others)

        rt.store.read = counted
        assert (await rt.follow_async(steered)).id == stop.run
        assert set(looked) == {"r1", stop.run}
        assert len(looked) < 20

    asyncio.run(main())


# ---------------------------------------------------------------- other processes

OTHER = """
import asyncio, os, signal, sys
from cairn import Agent, Runtime, Scripted, call
from cairn.engine import drive, turns
from tests.sessions.test_following import reads

path, when = sys.argv[1:]

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

async def main():
    async with Runtime(path, [Agent("a", Scripted(reads))]) as rt:
        stop = await rt.post_async("s", "three", mode="interrupt")
        print(stop.run, flush=True)
        if when == "when it was kept":
            die()
        await rt.drive_async("r1")
        if when == "when the active run has ended":
            die()
        append = rt.store.append
        async def and_die(run, epoch, entries, *more, **others):
            await append(run, epoch, entries, *more, **others)
            if run == stop.run:
                die()
        if when == "when it has begun":
            rt.store.append = and_die
        await rt.follow_async(stop)

asyncio.run(main())
"""


def other(path, when):
    return subprocess.Popen(
        [sys.executable, "-c", OTHER, str(path), when],
        cwd=Path(__file__).parents[2],
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.mark.kill
@pytest.mark.parametrize(
    "when", ["when it was kept", "when the active run has ended", "when it has begun"]
)
def test_a_message_is_followed_when_the_process_that_interrupted_is_killed(tmp_path, when):
    path = tmp_path / "s.db"

    async def main():
        async with runtime(reads, store=path) as rt:
            await rt.run_async("a", "one", id="r1", session="s")
            steered = await rt.post_async("s", "two")
            process = other(path, when)
            told, _ = await asyncio.to_thread(process.communicate)
            assert process.returncode == -signal.SIGKILL
            run = await rt.follow_async(steered)
            assert (run.id, run.text) == (told.strip(), "read one; two; three")

    asyncio.run(main())


def test_a_sender_is_answered_by_the_run_that_another_process_drives(tmp_path):
    path = tmp_path / "s.db"

    async def main():
        begun, gate = asyncio.Event(), asyncio.Event()

        @tool(effect="write")
        async def slow() -> str:
            begun.set()
            await gate.wait()
            return "done slowly"

        def answer(request):
            return call("slow") if len(texts(request)) == 1 else reads(request)

        async with runtime(answer, [slow], store=path) as rt:
            first = asyncio.create_task(rt.run_async("a", "one", id="r1", session="s"))
            await begun.wait()
            steered = await rt.post_async("s", "two")
            sender = asyncio.create_task(rt.follow_async(steered))
            process = other(path, "never")
            told = (await asyncio.to_thread(process.stdout.readline)).strip()
            gate.set()
            assert (await first).status == "cancelled"
            run = await sender
            assert (run.id, run.text) == (told, "read one; two; three")
            await asyncio.to_thread(process.communicate)
            assert process.returncode == 0

    asyncio.run(main())


def test_who_does_not_know_the_agent_is_told_which_run_will_read_the_message(tmp_path):
    async def main():
        async with runtime(reads, store=tmp_path / "s.db") as rt:
            await rt.run_async("a", "one", id="r1", session="s")
            steered = await rt.post_async("s", "two")
            stop = await rt.post_async("s", "three", mode="interrupt")
            await rt.drive_async("r1")
        async with Runtime(tmp_path / "s.db") as looks:
            run = await looks.follow_async(steered)
            assert (run.id, run.status) == (stop.run, "queued")

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["memory", "file"])
def test_a_fork_takes_no_unread_message_from_the_session_it_was_forked_from(kind, tmp_path):
    async def main():
        store = ":memory:" if kind == "memory" else tmp_path / "s.db"
        async with runtime(reads, store=store) as rt:
            await rt.run_async("a", "one", id="r1", session="s")
            steered = await rt.post_async("s", "two")
            await rt.cancel_async("r1")
            await rt.drive_async("r1")
            await rt.fork_session_async("s", "f")
            assert (await rt.send_async("f", "three")).text == "read one; three"
            assert await rt.store.unread(["a"]) == ["r1"]
            run = await rt.follow_async(steered)
            assert (run.session, run.text) == ("s", "read one; two")
            assert await check_sessions(rt.store) == []

    asyncio.run(main())
