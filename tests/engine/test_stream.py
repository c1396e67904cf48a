"""Streaming: every event once and in order, deltas between them, and what was void taken back."""

import asyncio
import threading

import pytest
from tests.engine.kit import Ledger, TurnedClock, events, names, runtime, until

from cairn import (
    Context,
    Delta,
    Discard,
    Entry,
    ErrorClass,
    ModelError,
    Progress,
    Runtime,
    Scripted,
    Usage,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.ports import ModelReply
from cairn.store.inmemory import InMemoryStore


class Talker(Scripted):
    """A model that shows its lines word by word; a line ending in ModelError fails midway."""

    def __init__(self, *lines):
        super().__init__(["unused"])
        self.lines = lines

    async def request(self, request, on_delta=None):
        line = self.lines[request.turn]
        words = line if isinstance(line, tuple) else (line,)
        for word in words:
            if isinstance(word, Exception):
                raise word
            if isinstance(word, ModelReply):
                return word
            if on_delta is not None:
                on_delta(word)
            await asyncio.sleep(0)
        return self._reply("".join(words))


async def gather(stream) -> list:
    return [what async for what in stream]


def entries(seen) -> list[Entry]:
    return [s for s in seen if isinstance(s, Entry)]


def test_a_stream_yields_every_event_once_and_in_order_and_ends_with_the_run():
    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "seen"

        rt = runtime([call("look"), "done"], [look])
        seen = await gather(rt.stream_async("a", "task", id="r"))
        assert entries(seen) == await rt.trace_async("r")
        assert [e.seq for e in entries(seen)] == list(range(1, len(entries(seen)) + 1))
        again = await gather(rt.stream_async("a", "task", id="r"))
        assert entries(again) == entries(seen)
        assert not [s for s in again if not isinstance(s, Entry)]

    asyncio.run(main())


def test_deltas_come_between_the_request_and_the_reply_they_belong_to():
    async def main():
        rt = runtime(Talker(("one ", "two ", "three")))
        seen = await gather(rt.stream_async("a", "task", id="r"))
        kinds = [s.event.NAME if isinstance(s, Entry) else type(s).__name__ for s in seen]
        assert kinds == [
            "run.created",
            "model.requested",
            *["Delta"] * 3,
            "model.completed",
            "run.completed",
        ]
        deltas = [s for s in seen if isinstance(s, Delta)]
        assert "".join(d.text for d in deltas) == "one two three"
        assert {(d.run, d.step, d.attempt) for d in deltas} == {("r", 1, 1)}

    asyncio.run(main())


def test_a_failed_attempt_takes_back_what_it_has_shown():
    """B35: in the middle of a stream the shown text is not doubled."""

    async def main():
        overloaded = ModelError(ErrorClass.OVERLOADED, "529")
        rt = runtime(Talker(("ten ", "words ", overloaded), ("all ", "of it")), clock=TurnedClock())
        seen = await gather(rt.stream_async("a", "task", id="r"))
        shown: dict[int, str] = {}
        for what in seen:
            if isinstance(what, Delta):
                shown[what.attempt] = shown.get(what.attempt, "") + what.text
            elif isinstance(what, Discard):
                del shown[what.attempt]
        assert list(shown.values()) == ["all of it"]
        discards = [s for s in seen if isinstance(s, Discard)]
        assert [(d.step, d.attempt) for d in discards] == [(1, 1)]

    asyncio.run(main())


def test_an_attempt_that_failed_before_it_showed_anything_takes_nothing_back():
    async def main():
        rt = runtime(Talker(ModelError(ErrorClass.OVERLOADED, "529"), "ok"), clock=TurnedClock())
        seen = await gather(rt.stream_async("a", "task", id="r"))
        assert not [s for s in seen if isinstance(s, Discard)]

    asyncio.run(main())


@pytest.mark.parametrize("finish", ["length", "content_filter"])
def test_a_reply_that_cannot_be_used_takes_back_what_it_has_shown(finish):
    """B20, B31: cut off or refused, it is no reply, though the provider said 200."""

    async def main():
        cut = ModelReply(parts=(), finish=finish, usage=Usage(output_tokens=5))
        rt = runtime(Talker(("half a ", "wor", cut), "whole"))
        seen = await gather(rt.stream_async("a", "task", id="r"))
        assert [(d.step, d.attempt) for d in seen if isinstance(d, Discard)] == [(1, 1)]

    asyncio.run(main())


def test_a_stream_ends_when_the_run_waits_and_can_be_taken_up_from_any_event():
    """B72: it ends with the run waiting, its open call named, and not as finished."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        rt = runtime([call("pay"), "done"], [pay], policy=DEFAULT_POLICY)
        first = entries(await gather(rt.stream_async("a", "task", id="r")))
        assert first[-1].event.NAME == "approval.requested"
        assert first[-1].event.call == "c1"
        await rt.client.approve("r/1")
        rest = entries(await gather(rt.watch_async("r", after=first[-1].seq)))
        assert rest[0].seq == first[-1].seq + 1
        assert [*first, *rest] == await rt.trace_async("r")
        assert rest[-1].event.NAME == "run.completed"

    asyncio.run(main())


def test_a_stream_of_a_run_that_another_process_drives_shows_its_events():
    async def main():
        store, gate, begun = InMemoryStore(), asyncio.Event(), asyncio.Event()

        @tool(effect="read")
        async def look() -> str:
            begun.set()
            await gate.wait()
            return "seen"

        driver, watcher = (
            runtime([call("look"), "done"], [look], store=s) for s in (store, store.beside())
        )
        driving = asyncio.create_task(driver.run_async("a", "task", id="r"))
        await begun.wait()
        watching = asyncio.create_task(gather(watcher.watch_async("r")))
        await asyncio.sleep(0.02)
        gate.set()
        seen = await watching
        assert entries(seen) == await driver.trace_async("r")
        assert (await driving).status == "completed"

    asyncio.run(main())


def test_two_watchers_of_one_process_see_the_same():
    async def main():
        rt = runtime(Talker(("one ", "two")))
        await rt.enqueue_async("a", "t", id="r")
        both = await asyncio.gather(gather(rt.watch_async("r")), gather(rt.watch_async("r")))
        assert entries(both[0]) == entries(both[1]) == await rt.trace_async("r")

    asyncio.run(main())


def test_leaving_a_stream_early_leaves_a_run_that_can_be_gone_on_with():
    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def look() -> str:
            ledger.add("look")
            if ledger.times("look") == 1:
                await asyncio.sleep(60)
            return "seen"

        rt = runtime([call("look"), "done"], [look])
        stream = rt.stream_async("a", "task", id="r")
        async for what in stream:
            if isinstance(what, Entry) and what.event.NAME == "tool.started":
                break
        await until(lambda: ledger.lines)
        await stream.aclose()
        assert not (await rt.store.info("r")).leased
        assert (await rt.run_async("a", "task", id="r")).status == "completed"

    asyncio.run(main())


def test_a_tools_progress_is_shown_and_not_recorded():
    async def main():
        @tool(effect="read")
        async def look(ctx: Context) -> str:
            ctx.progress("half way", 0.5)
            return "seen"

        rt = runtime([call("look"), "done"], [look])
        seen = await gather(rt.stream_async("a", "task", id="r"))
        shown = [s for s in seen if isinstance(s, Progress)]
        assert [(p.run, p.call, p.message, p.fraction) for p in shown] == [
            ("r", "c1", "half way", 0.5)
        ]
        assert "half way" not in str(await rt.trace_async("r"))

    asyncio.run(main())


def test_a_run_nobody_watches_is_not_streamed_and_costs_the_same():
    """B42: the same reply streamed and not: same usage, same text."""

    async def main():
        usage = Usage(input_tokens=10, output_tokens=3)
        reply = ModelReply(parts=(), usage=usage)

        async def results(streamed: bool):
            from cairn.core.messages import Text

            whole = ModelReply(parts=(Text("hello"),), usage=usage)
            rt = runtime(Scripted([whole]))
            if streamed:
                await gather(rt.stream_async("a", "t", id="r"))
            run = await rt.run_async("a", "t", id="r")
            return run.text, run.usage

        assert await results(True) == await results(False)
        assert reply.usage == usage

    asyncio.run(main())


def test_a_slow_reader_misses_no_event(monkeypatch):
    async def main():
        monkeypatch.setattr("cairn.engine.stream.QUEUE", 3)

        @tool(effect="read")
        async def look(n: int) -> str:
            return f"seen {n}"

        rt = runtime([*(call("look", n=n) for n in range(8)), "done"], [look])
        seen = []
        async for what in rt.stream_async("a", "task", id="r"):
            seen.append(what)
            await asyncio.sleep(0.003)
        assert entries(seen) == await rt.trace_async("r")

    asyncio.run(main())


def test_a_stream_of_a_broken_run_raises_what_driving_it_raises():
    async def main():
        store = InMemoryStore()
        rt = runtime(["ok"], store=store)
        await rt.enqueue_async("a", "t", id="r")
        from cairn.errors import UnknownAgent

        with pytest.raises(UnknownAgent):
            await gather(Runtime(store.beside()).watch_async("r"))

    asyncio.run(main())


def test_the_sync_stream_yields_the_same():
    rt = runtime(Talker(("one ", "two")))
    seen = list(rt.stream("a", "task", id="r"))
    assert [s.text for s in seen if isinstance(s, Delta)] == ["one ", "two"]
    assert entries(seen) == rt.trace("r")
    assert entries(rt.watch("r", after=2)) == rt.trace("r")[2:]
    rt.close()


def test_a_request_seen_in_the_stream_is_durable():
    """What is shown as an event stands in the store."""

    async def main():
        store = InMemoryStore()
        rt = runtime([call("ask_user", question="?"), "done"], store=store)
        async for what in rt.stream_async("a", "task", id="r"):
            if isinstance(what, Entry):
                assert what in await store.read("r")

    asyncio.run(main())


def test_a_model_that_is_cut_in_the_middle_of_a_call_executes_nothing_of_it():
    """B32: a stream that dies inside a call: nothing is executed, the call runs once in all."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        cut = ModelError(ErrorClass.STREAM_INTERRUPTED, "connection closed")
        whole = ModelReply(parts=(), calls=(call("pay"),), finish="tool_calls")
        rt = runtime(Talker(("let me ", cut), (whole,), "done"), [pay], clock=TurnedClock())
        seen = await gather(rt.stream_async("a", "task", id="r"))
        assert ledger.lines == ["pay"]
        failed = events(entries(seen), ev.ModelFailed)
        assert [f.error_class for f in failed] == [ErrorClass.STREAM_INTERRUPTED]
        assert names(entries(seen)).count("tool.started") == 1

    asyncio.run(main())


def test_progress_told_by_a_tool_in_a_thread_reaches_the_stream():
    heard = threading.Event()

    @tool(effect="read")
    def look(ctx: Context) -> str:
        ctx.progress("half way", 0.5)
        return "heard" if heard.wait(20) else "nobody listened"

    async def main():
        rt = runtime([call("look"), "done"], [look])
        async for what in rt.stream_async("a", "task", id="r"):
            if isinstance(what, Progress):
                heard.set()
        return await rt.trace_async("r")

    entries = asyncio.run(main(), debug=True)  # debug: a loop touched from elsewhere says so
    assert [bytes(e.event.result) for e in entries if isinstance(e.event, ev.ToolCompleted)] == [
        b'"heard"'
    ]
