"""What becomes of a message that comes to a session while a run of it works."""

import asyncio

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    Watched,
    events,
    names,
    results,
    runtime,
    texts,
    until,
)

from cairn import (
    Agent,
    Entry,
    IllegalTransition,
    RunConflict,
    Runtime,
    Scripted,
    SessionBusy,
    UnknownRun,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.commands import Cancel, Queue
from cairn.core.messages import Text
from cairn.errors import ConfigError
from cairn.ports import RunFilter
from cairn.store.inmemory import InMemoryStore


def slow_tool():
    """A tool that says when it has begun, and waits to be let go on."""
    begun, gate = asyncio.Event(), asyncio.Event()

    @tool(effect="write")
    async def slow() -> str:
        begun.set()
        await gate.wait()
        return "done slowly"

    return slow, begun, gate


def echo(request):
    """Says what it was asked last."""
    return f"read {texts(request)[-1]}"


# ---------------------------------------------------------------- queue


def test_a_queued_message_becomes_a_run_of_its_own_when_the_active_one_is_over():
    async def main():
        slow, begun, gate = slow_tool()
        store = InMemoryStore()
        rt = runtime(
            lambda r: call("slow") if r.turn == 0 and len(texts(r)) == 1 else echo(r),
            [slow],
            store=store,
        )
        first = asyncio.create_task(rt.run_async("a", "one", id="r1", session="s"))
        await begun.wait()
        posted = await rt.post_async("s", "two", mode="queue")
        assert posted.how == "queued"
        assert (await rt.get_async(posted.run)).status == "queued"
        assert [r.behind for r in await store.session_open("s")] == ["", "r1"]
        assert "input.queued" not in names(await rt.trace_async("r1"))
        following = asyncio.create_task(rt.follow_async(posted))
        gate.set()
        assert (await first).text == "read one"
        assert (await following).text == "read two"
        entries = await rt.trace_async(posted.run)
        assert names(entries)[:2] == ["run.created", "run.continued"]
        assert entries[0].event.behind == "r1"
        assert entries[1].event.previous.run == "r1"

    asyncio.run(main())


def test_queued_messages_are_worked_off_in_order_each_knowing_those_before():
    async def main():
        seen = []

        def answer(request):
            said = texts(request)
            if len(said) == 1:
                return call("ask_user", question="?") if not results(request) else "one done"
            seen.append(said)
            return f"{said[-1]} done"

        rt = runtime(answer)
        await rt.run_async("a", "one", id="r1", session="s")
        posted = [await rt.post_async("s", text, mode="queue") for text in ("two", "three", "four")]
        waits = await rt.follow_async(posted[2])
        assert (waits.id, waits.status) == (posted[2].run, "queued"), "the first waits for people"
        await rt.answer_async("r1/1", "yes")
        assert (await rt.follow_async(posted[2])).text == "four done"
        assert seen == [["one", "two"], ["one", "two", "three"], ["one", "two", "three", "four"]]
        assert [r.status for r in await rt.runs_async(session="s")] == ["completed"] * 4

    asyncio.run(main())


def test_a_worker_starts_queued_runs_when_their_session_becomes_free(tmp_path):
    async def main():
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            await rt.enqueue_async("a", "one", id="r1", session="s")
            runs = [(await rt.post_async("s", f"m{n}", mode="queue")).run for n in range(4)]
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            await rt.work_async(until_idle=True)
            assert [(await rt.get_async(run)).text for run in runs] == [
                f"read m{n}" for n in range(4)
            ]
            previous = [events(await rt.trace_async(run), ev.RunContinued)[0] for run in runs]
            assert [p.previous.run for p in previous] == ["r1", *runs[:-1]]
            for run in runs:
                assert await rt.store.verify(run) > 0

    asyncio.run(main())


def test_a_worker_is_not_idle_when_a_run_ended_while_it_looked_for_others():
    async def main():
        watched = Watched()

        async def slowly(name, *args, **kwargs):
            if name == "runnable":
                await asyncio.sleep(0.05)  # what was found is old by now: the run at work has ended

        async with runtime(echo, store=watched) as rt:
            await rt.enqueue_async("a", "one", id="r1", session="s")
            two = (await rt.post_async("s", "two", mode="queue")).run
            watched.after = slowly
            await rt.work_async(until_idle=True)
            assert (await rt.get_async(two)).text == "read two"

    asyncio.run(main())


def test_a_queued_run_can_be_cancelled_before_its_turn_and_is_no_part_of_the_talk():
    async def main():
        rt = runtime(
            lambda r: (
                call("ask_user", question="?")
                if r.turn == 0 and len(texts(r)) == 1 and not results(r)
                else echo(r)
            )
        )
        await rt.run_async("a", "one", id="r1", session="s")
        two = await rt.post_async("s", "two", mode="queue")
        three = await rt.post_async("s", "three", mode="queue")
        assert (await rt.cancel_async(two.run)).id == two.run
        await rt.drive_async(two.run)
        assert (await rt.get_async(two.run)).status == "cancelled"
        await rt.answer_async("r1/1", "yes")
        run = await rt.follow_async(three)
        assert run.text == "read three"
        state = events(await rt.trace_async(three.run), ev.RunContinued)[0]
        assert state.previous.run == "r1"
        talk = await rt.session_async("s")
        assert [r.run for r in talk.chain] == ["r1", three.run]
        assert [r.run for r in talk.superseded] == [two.run]

    asyncio.run(main())


def test_a_run_with_a_mode_waits_too_and_without_one_is_told_that_the_session_is_busy():
    async def main():
        rt = runtime(lambda r: call("ask_user", question="?") if not results(r) else echo(r))
        await rt.run_async("a", "one", id="r1", session="s")
        with pytest.raises(SessionBusy):
            await rt.run_async("a", "two", session="s")
        run = await rt.run_async("a", "two", id="r2", session="s", mode="queue")
        assert (run.id, run.status) == ("r2", "queued")
        again = await rt.run_async("a", "two", id="r2", session="s", mode="queue")
        assert (again.id, again.status) == ("r2", "queued")
        with pytest.raises(RunConflict):
            await rt.run_async("a", "other", id="r2", session="s", mode="queue")
        with pytest.raises(ConfigError, match="mode"):
            await rt.run_async("a", "three", session="s", mode="later")
        assert len(await rt.runs_async(session="s")) == 2

    asyncio.run(main())


# ---------------------------------------------------------------- interrupt


def test_an_interrupted_run_ends_when_what_is_in_flight_has_landed_and_nothing_is_doubled():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        begun, gate = asyncio.Event(), asyncio.Event()

        @tool(effect="write")
        async def pay(n: int) -> str:
            begun.set()
            await gate.wait()
            return ledger.add(f"paid {n}")

        model = Recorder(
            lambda r: [call("pay", n=1), call("pay", n=2)] if len(texts(r)) == 1 else "stopped",
            repeat=True,
        )
        rt = runtime(model, [pay], store=store)
        first = asyncio.create_task(rt.run_async("a", "pay all", id="r1", session="s"))
        await begun.wait()
        posted = await rt.post_async("s", "no, stop", mode="interrupt")
        assert posted.how == "interrupting"
        following = asyncio.create_task(rt.follow_async(posted))
        await until(lambda: "run.cancel_requested" in names(store.journals.runs["r1"].entries))
        await asyncio.sleep(0.02)
        assert not first.done(), "what has begun is waited for"
        gate.set()
        ended = await first
        assert (ended.status, ended.reason) == ("cancelled", f"interrupted by {posted.run}")
        assert (await following).text == "stopped"
        assert ledger.lines == ["paid 1"], "the second call was never started"
        told = texts(model.last)
        assert told[0] == "pay all"
        assert "was interrupted" in told[1]
        assert told[-1] == "no, stop"
        paid, left = results(model.last).values()
        assert paid == "paid 1"
        assert "Not executed" in left

    asyncio.run(main())


def test_an_interruption_lifts_a_pause_and_ends_what_waits_for_people():
    async def main():
        for pause in (True, False):
            rt = runtime(
                lambda r: call("ask_user", question="?") if len(texts(r)) == 1 else echo(r)
            )
            await rt.run_async("a", "one", id="r1", session="s")
            if pause:
                await rt.pause_async("r1")
            run = await rt.send_async("s", "two", mode="interrupt")
            assert (run.status, run.text) == ("completed", "read two")
            assert (await rt.get_async("r1")).status == "cancelled"
            assert await rt.pending_async() == []

    asyncio.run(main())


def test_an_interruption_that_was_cut_off_in_the_middle_is_finished_when_it_is_sent_again():
    """The message is kept before the active run is told: sent again, it does what is left."""

    async def main():
        watched = Watched()
        rt = runtime(
            lambda r: call("ask_user", question="?") if len(texts(r)) == 1 else echo(r),
            store=watched,
        )
        await rt.run_async("a", "one", id="r1", session="s")

        async def cut(name, *args, **kwargs):
            if name == "submit":
                raise asyncio.CancelledError

        watched.before = cut
        with pytest.raises(asyncio.CancelledError):
            await rt.post_async("s", "two", mode="interrupt", id="m")
        watched.before = None
        assert (await rt.get_async("r1")).status == "waiting"
        assert len(await rt.store.session_open("s")) == 2
        run = await rt.send_async("s", "two", mode="interrupt", id="m")
        assert run.text == "read two"
        assert [r.status for r in await rt.runs_async(session="s")] == ["completed", "cancelled"]

    asyncio.run(main())


def test_an_interruption_takes_its_place_behind_messages_queued_before_it():
    async def main():
        seen = []

        def answer(request):
            if len(texts(request)) == 1:
                return call("ask_user", question="?")
            seen.append(texts(request)[-1])
            return "ok"

        rt = runtime(answer)
        await rt.run_async("a", "one", id="r1", session="s")
        await rt.post_async("s", "two", mode="queue")
        await rt.send_async("s", "three", mode="interrupt")
        assert seen == ["two", "three"]

    asyncio.run(main())


# ---------------------------------------------------------------- steer


@pytest.mark.parametrize("gently", [True, False])
def test_a_message_that_its_run_ended_without_reading_starts_the_next_run(gently):
    async def main():
        slow, begun, gate = slow_tool()

        def answer(request):
            if texts(request)[-1] == "one" and not results(request):
                return call("slow")
            return echo(request)

        store = InMemoryStore()
        rt = runtime(answer, [slow], store=store)
        first = asyncio.create_task(rt.run_async("a", "one", id="r1", session="s"))
        await begun.wait()
        posted = await rt.post_async("s", "two")
        assert (posted.how, posted.run) == ("steered", "r1")
        await rt.client.submit("r1", Cancel(reason="for a test", gently=gently))
        gate.set()
        assert (await first).status == "cancelled"
        run = await rt.follow_async(posted)
        assert run.text == "read two"
        assert run.id != "r1"
        created = events(await rt.trace_async(run.id), ev.RunCreated)[0]
        assert len(created.consumes) == 1
        assert created.previous.run == "r1"
        assert (await rt.follow_async(posted)).id == run.id, "once"
        await rt.work_async(until_idle=True)
        assert len(await rt.runs_async(session="s")) == 2

    asyncio.run(main())


def test_a_worker_starts_the_run_that_unread_messages_are_owed(tmp_path):
    """The sender is gone: whoever works on the store finds the message."""

    async def main():
        async with runtime(
            lambda r: call("ask_user", question="?") if len(texts(r)) == 1 else echo(r),
            store=tmp_path / "s.db",
        ) as rt:
            await rt.run_async("a", "one", id="r1", session="s", kind="query")
            await rt.post_async("s", "two")
            await rt.post_async("s", "three")
            await rt.cancel_async("r1")
            await rt.drive_async("r1")
            assert await rt.store.unread(["a"]) == ["r1"]
            assert await rt.store.prune(10**18) == []
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            await rt.work_async(until_idle=True)
            newest, _ = await rt.runs_async(session="s")
            run = await rt.get_async(newest.run)
            assert run.text == "read three"
            created = events(await rt.trace_async(newest.run), ev.RunCreated)[0]
            assert [p.content for p in created.input] == ["two", "three"]
            assert created.kind == "query", "under the bounds it was sent to"
            await rt.work_async(until_idle=True)
            assert len(await rt.runs_async(session="s")) == 2

    asyncio.run(main())


def test_notes_of_the_runtime_that_nobody_read_start_no_run():
    async def main():
        rt = runtime(lambda r: call("ask_user", question="?"))
        await rt.run_async("a", "one", id="r1", session="s")
        await rt.edit_async("r1", plan=["think"])
        await rt.cancel_async("r1")
        await rt.drive_async("r1")
        assert await rt.store.unread(["a"]) == []
        await rt.work_async(until_idle=True)
        assert len(await rt.runs_async(session="s")) == 1
        assert await rt.store.prune(10**18) == ["r1"]

    asyncio.run(main())


# ---------------------------------------------------------------- ids, modes


@pytest.mark.parametrize("mode", ["steer", "queue", "interrupt"])
def test_the_same_id_twice_is_one_message(mode):
    async def main():
        rt = runtime(
            lambda r: (
                call("ask_user", question="?") if len(texts(r)) == 1 and not results(r) else echo(r)
            )
        )
        await rt.run_async("a", "one", id="r1", session="s")
        first = await rt.post_async("s", "two", mode=mode, id="mail-7")
        second = await rt.post_async("s", "two", mode=mode, id="mail-7")
        assert (first.run, first.seq) == (second.run, second.seq)
        with pytest.raises(RunConflict, match="another message"):
            await rt.post_async("s", "something else", mode=mode, id="mail-7")
        if mode != "interrupt":
            await rt.answer_async("r1/1", "yes")
        run = await rt.follow_async(first)
        assert run.status == "completed"
        again = await rt.send_async("s", "two", mode=mode, id="mail-7")
        assert again.id == run.id, "also when all is over"
        said = [
            p.content
            for r in await rt.runs_async(session="s")
            for e in await rt.trace_async(r.run)
            if isinstance(e.event, ev.InputQueued | ev.RunCreated)
            for p in getattr(e.event, "parts", ()) or getattr(e.event, "input", ())
        ]
        assert said.count("two") == 1

    asyncio.run(main())


def test_the_same_id_in_two_sessions_is_two_messages():
    async def main():
        rt = runtime(echo)
        one = await rt.send_async("s", "hello", agent="a", id="1", principal="ann")
        two = await rt.send_async("t", "hello", agent="a", id="1", principal="bob")
        assert one.id != two.id

    asyncio.run(main())


def test_the_agent_says_what_becomes_of_messages_unless_the_sender_does():
    async def main():
        def answer(request):
            return call("ask_user", question="?") if len(texts(request)) == 1 else echo(request)

        rt = Runtime(
            ":memory:",
            agents=[
                Agent("patient", Scripted(answer), on_message="queue"),
                Agent("eager", Scripted(answer)),
            ],
        )
        for agent, how in (("patient", "queued"), ("eager", "steered")):
            await rt.run_async(agent, "one", session=agent)
            assert (await rt.post_async(agent, "two")).how == how
            assert (await rt.post_async(agent, "three", mode="queue")).how == "queued"
        with pytest.raises(ConfigError, match="mode"):
            await rt.post_async("eager", "four", mode="whenever")
        with pytest.raises(ConfigError, match="on_message"):
            Agent("odd", Scripted([]), on_message="never")

    asyncio.run(main())


def test_a_session_at_rest_takes_a_message_in_every_mode():
    async def main():
        for mode in ("steer", "queue", "interrupt"):
            rt = runtime(echo)
            with pytest.raises(UnknownRun, match="name an agent"):
                await rt.send_async("s", "hello", mode=mode)
            assert (await rt.send_async("s", "hello", agent="a", mode=mode)).text == "read hello"
            assert (await rt.post_async("s", "again", mode=mode)).how == "started"

    asyncio.run(main())


def test_a_message_is_kept_before_it_is_acknowledged(tmp_path):
    async def main():
        rt = runtime(lambda r: call("ask_user", question="?"), store=tmp_path / "s.db")
        await rt.run_async("a", "one", id="r1", session="s")
        posted = [await rt.post_async("s", m, mode=m) for m in ("steer", "queue", "interrupt")]
        async with Runtime(tmp_path / "s.db") as other:
            for each, said in zip(posted, ("steer", "queue", "interrupt"), strict=True):
                entries = await other.store.read(each.run, after=each.seq - 1, upto=each.seq)
                event = entries[0].event
                parts = event.parts if isinstance(event, ev.InputQueued) else event.input
                assert parts == (Text(said),)
        await rt.close_async()

    asyncio.run(main())


def test_what_a_run_may_no_longer_do_is_refused_as_before():
    async def main():
        rt = runtime(echo)
        await rt.run_async("a", "one", id="r1", session="s")
        with pytest.raises(IllegalTransition):
            await rt.client.submit("r1", Queue(parts=(Text("late"),)))
        assert len(await rt.client.runs(RunFilter(session="s"))) == 1

    asyncio.run(main())


def test_a_queued_run_can_be_watched_replayed_and_forked_like_any_other():
    async def main():
        def answer(request):
            asks = len(texts(request)) == 1 and not results(request)
            return call("ask_user", question="?") if asks else echo(request)

        rt = runtime(answer)
        await rt.run_async("a", "one", id="r1", session="s")
        posted = await rt.post_async("s", "two", mode="queue")

        async def watched():
            return [w.event.NAME async for w in rt.watch_async(posted.run) if isinstance(w, Entry)]

        assert await watched() == ["run.created"], "it waits behind one that waits for people"
        await rt.answer_async("r1/1", "yes")
        assert (await watched())[-1] == "run.completed"
        assert (await rt.replay_async(posted.run)).divergence is None
        fork = await rt.fork_async(posted.run, 4)
        assert fork.text == "read two"
        assert fork.session == "s"
        assert [r.run for r in (await rt.session_async("s")).chain] == ["r1", posted.run]

    asyncio.run(main())


def test_a_fork_of_a_run_that_waits_stands_in_no_line_and_takes_nothing_from_it():
    async def main():
        def answer(request):
            asks = len(texts(request)) == 1 and texts(request) == ["one"] and not results(request)
            return call("ask_user", question="?") if asks else echo(request)

        rt = runtime(answer)
        await rt.run_async("a", "one", id="r1", session="s")
        await rt.post_async("s", "unread")
        posted = await rt.post_async("s", "two", mode="queue")
        fork = await rt.fork_async(posted.run, 1)
        assert fork.text == "read two"
        assert (await rt.get_async(posted.run)).status == "queued"
        await rt.answer_async("r1/1", "yes")
        assert (await rt.follow_async(posted)).text == "read two"
        given = events(await rt.trace_async("r1"), ev.InputGiven)
        assert len(given) == 1, "the run it was sent to has read it"

    asyncio.run(main())
