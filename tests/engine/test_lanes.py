"""Lanes: a run asks only when the lane lets it, and gives its place back on every path."""

import asyncio
import threading
import time

import pytest
from msgspec.structs import replace
from tests.engine.kit import Ledger, TurnedClock, Watched, events, names, runtime, until

from cairn import Agent, ErrorClass, Limits, ModelError, Runtime, Usage, call, tool
from cairn.core import events as ev
from cairn.core.limits import FREE
from cairn.core.messages import Text
from cairn.errors import Fenced, StoreFailed
from cairn.models.traffic import TrafficLane, TrafficLimits
from cairn.ports import ModelReply, ReplyCall
from cairn.store.inmemory import InMemoryStore

E = ErrorClass


class Laned:
    """A model behind a lane; each line answers one request."""

    price, window, max_output = FREE, 128_000, 4_096

    def __init__(self, *lines, lane=None, name="laned", usage=None):
        self.lane = lane or TrafficLane()
        self.lines, self.name, self.usage, self.requests = lines, name, usage, []

    async def request(self, request, on_delta=None):
        self.requests.append(request)
        line = self.lines[min(request.turn, len(self.lines) - 1)]
        if callable(line):
            line = line(request)
        if asyncio.iscoroutine(line):
            line = await line
        if isinstance(line, Exception):
            raise line
        if isinstance(line, ReplyCall):
            return ModelReply(calls=(line,), finish="tool_calls", usage=self.usage or Usage())
        if isinstance(line, str):
            return ModelReply(parts=(Text(line),), usage=self.usage or Usage())
        return line


class Bench:
    """A lane whose only place somebody else holds, and a run that waits for it."""

    def __init__(self, *lines, **options):
        self.lane = TrafficLane(TrafficLimits(in_flight=1))
        self.held = self.lane.try_enter(0)
        self.model = Laned(*(lines or ("done",)), lane=self.lane)
        self.store = InMemoryStore()
        self.watched = Watched(self.store)
        self.rt = runtime(self.model, store=self.watched, **options)
        self.other = Runtime(self.store.beside())

    async def begin(self, **options):
        self.driving = asyncio.create_task(self.rt.run_async("a", "task", id="r", **options))
        await until(lambda: self.lane.snapshot().waiting == 1)

    async def names(self):
        return names(await self.rt.trace_async("r"))


def empty(lane):
    state = lane.snapshot()
    return (state.in_flight, state.waiting) == (0, 0)


# ---------------------------------------------------------------- the order of things


@pytest.mark.parametrize("laned", [True, False])
def test_a_free_lane_costs_no_commit(laned):
    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "seen"

        watched, model = Watched(), Laned(call("look"), "done")
        if not laned:
            del model.lane
        run = await runtime(model, [look], store=watched).run_async("a", "task")
        assert run.status == "completed"
        assert [len(c) for c in watched.commits] == [1, 2, 2, 2]

    asyncio.run(main())


def test_the_permit_is_held_before_the_intent_is_written_and_the_intent_before_the_request():
    async def main():
        watched, seen = Watched(), []

        async def request(request):
            written = names(await watched.inner.read(request.run))
            seen.append(("request", model.lane.snapshot().in_flight, written[-1]))
            return "done"

        model = Laned(request)

        async def look(name, *args, **kwargs):
            if name == "append" and any(e.event.NAME == "model.requested" for e in args[2]):
                seen.append(("commit", model.lane.snapshot().in_flight, len(model.requests)))

        watched.before = look
        await runtime(model, store=watched).run_async("a", "task")
        assert seen == [("commit", 1, 0), ("request", 1, "model.requested")]
        assert empty(model.lane)

    asyncio.run(main())


def test_what_is_known_is_durable_before_the_wait_and_nothing_is_said_to_be_requested():
    """A crash during the wait loses no outcome and costs no reservation (law 3)."""

    async def main():
        lane, watched, held = TrafficLane(TrafficLimits(in_flight=1)), Watched(), []

        @tool(effect="write")
        async def pay() -> str:
            held.append(lane.try_enter(0))
            return "paid"

        model = Laned(call("pay"), "done", lane=lane)
        rt = runtime(model, [pay], store=watched)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await until(lambda: lane.snapshot().waiting == 1)
        assert watched.commits[-1] == ("tool.completed",)
        assert names(await rt.trace_async("r"))[-1] == "tool.completed"
        assert len(model.requests) == 1
        held[0].close()
        assert (await driving).status == "completed"
        assert names(await rt.trace_async("r")).count("model.requested") == 2
        assert empty(lane)

    asyncio.run(main())


def test_the_wait_counts_neither_as_running_time_nor_to_the_requests_deadline():
    async def main():
        clock = TurnedClock()
        bench = Bench(clock=clock)
        crew = bench.rt.host.crew("a")
        specs = tuple(replace(m, timeout_us=300_000) for m in crew.rules.models)
        bench.rt.host._crews["a"] = replace(crew, rules=replace(crew.rules, models=specs))
        await bench.begin(limits=Limits(running_s=60))
        await asyncio.sleep(0.4)
        clock.turn(3_600)
        bench.held.close()
        run = await bench.driving
        assert run.status == "completed"
        trace = await bench.rt.trace_async("r")
        (completed,) = events(trace, ev.ModelCompleted)
        assert completed.latency_us == 0
        (asked,) = [e for e in trace if e.event.NAME == "model.requested"]
        assert asked.at - trace[0].at == 3_600_000_000

    asyncio.run(main())


def test_a_permit_is_taken_after_the_instructions_were_computed():
    async def main():
        lane, seen = TrafficLane(TrafficLimits(in_flight=1)), []

        async def instructions(briefing):
            await asyncio.sleep(0)
            seen.append(lane.snapshot().in_flight)
            return "Be brief."

        rt = runtime(Laned("done", lane=lane), instructions=instructions)
        assert (await rt.run_async("a", "task")).status == "completed"
        assert seen == [0]

    asyncio.run(main())


def test_a_request_reserves_what_it_may_use_and_is_settled_at_what_it_used():
    async def main():
        lane = TrafficLane(TrafficLimits(tokens_per_minute=50_000))
        asked = []

        class Seen:
            def try_enter(self, tokens):
                asked.append(tokens)
                return lane.try_enter(tokens)

            enter = lane.enter

        model = Laned("done", lane=Seen(), usage=Usage(input_tokens=10, output_tokens=5))
        rt = runtime(model)
        await rt.run_async("a", "task", id="r")
        (requested,) = events(await rt.trace_async("r"), ev.ModelRequested)
        assert asked == [requested.reserved.tokens]
        assert lane.try_enter(49_985) is not None
        assert lane.try_enter(1) is None

    asyncio.run(main())


def test_the_lane_is_told_once_per_request_what_came_of_it():
    async def main():
        told = []

        class Open:
            def try_enter(self, tokens):
                return self

            def close(self, fault=None, *, retry_after_s=0.0, tokens=0):
                told.append((fault, retry_after_s, tokens))

        def answer(request):
            if request.attempt == 1:
                return ModelError(E.RATE_LIMITED, "later", retry_after_s=7.25)
            return "done"

        model = Laned(answer, lane=Open(), usage=Usage(input_tokens=10, output_tokens=5))
        run = await runtime(model, clock=TurnedClock()).run_async("a", "task")
        assert run.status == "completed"
        assert told == [(E.RATE_LIMITED, 7.25, 0), (None, 0.0, 15)]

    asyncio.run(main())


def test_each_fallback_model_has_its_own_lane():
    async def main():
        first = Laned(ModelError(E.QUOTA_EXHAUSTED, "empty"), name="first")
        second = Laned("done", name="second", lane=TrafficLane(TrafficLimits(in_flight=1)))
        held = second.lane.try_enter(0)
        rt = runtime(first, fallback_models=[second])
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await until(lambda: second.lane.snapshot().waiting == 1)
        assert empty(first.lane)
        assert second.requests == []
        held.close()
        assert (await driving).text == "done"
        assert empty(second.lane)

    asyncio.run(main())


# ---------------------------------------------------------------- news during the wait


def test_a_cancel_during_the_wait_ends_the_run_without_a_request():
    async def main():
        bench = Bench()
        await bench.begin()
        run = await bench.other.cancel_async("r", "not needed")
        assert run.status == (await bench.driving).status == "cancelled"
        assert "model.requested" not in await bench.names()
        assert bench.lane.snapshot().waiting == 0
        assert bench.model.requests == []

    asyncio.run(main())


def test_a_pause_during_the_wait_gives_the_place_up_until_the_resume():
    async def main():
        bench = Bench()
        await bench.begin()
        await bench.other.pause_async("r")
        assert (await bench.driving).status == "paused"
        assert bench.lane.snapshot().waiting == 0
        assert "model.requested" not in await bench.names()
        bench.held.close()
        assert (await bench.rt.resume_async("r")).status == "completed"
        assert empty(bench.lane)

    asyncio.run(main())


def test_a_message_during_the_wait_is_part_of_the_request():
    async def main():
        bench = Bench()
        await bench.begin(session="s")
        saying = asyncio.create_task(bench.other.send_async("s", "and hurry"))

        async def given():
            return "input.given" in await bench.names()

        await until(given)
        bench.held.close()
        assert (await bench.driving).status == "completed"
        await saying
        (request,) = bench.model.requests
        assert [p.content for m in request.messages for p in m.parts] == ["task", "and hurry"]
        assert empty(bench.lane)

    asyncio.run(main())


def test_a_driver_that_is_stopped_does_not_wait_for_the_lane():
    async def main():
        bench = Bench()
        await bench.begin()
        bench.driving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await bench.driving
        assert bench.lane.snapshot().waiting == 0
        assert not (await bench.store.info("r")).leased
        bench.held.close()
        assert (await bench.rt.run_async("a", "task", id="r")).status == "completed"
        assert empty(bench.lane)

    asyncio.run(main())


def test_a_process_that_drains_does_not_wait_for_the_lane():
    async def main():
        bench = Bench()
        await bench.rt.start_async("a", "task", id="r")
        await until(lambda: bench.lane.snapshot().waiting == 1)
        await bench.rt.close_async()
        assert bench.lane.snapshot().waiting == 0
        assert bench.model.requests == []

    asyncio.run(main())


def test_who_gets_in_and_has_news_in_the_same_moment_gives_the_permit_back():
    async def main():
        bench = Bench()
        await bench.begin()
        pausing = asyncio.create_task(bench.other.pause_async("r"))
        await asyncio.sleep(0)
        bench.held.close()
        await pausing
        run = await bench.driving
        assert run.status in {"paused", "completed"}
        await until(lambda: empty(bench.lane))

    asyncio.run(main())


# ---------------------------------------------------------------- given back on every path


async def forever():
    await asyncio.Event().wait()


ENDS = {
    "a reply": "done",
    "a reply of no use": ModelReply(),
    "nonsense": None,
    "an error of the provider": ModelError(E.INVALID_REQUEST, "no"),
    "an error of the adapter": KeyError("choices"),
    "a time-out of the adapter": TimeoutError(),
    "a deadline": lambda r: forever(),
}


@pytest.mark.parametrize("end", ENDS)
def test_the_place_is_given_back_however_a_request_ends(end):
    async def main():
        model = Laned(ENDS[end])
        rt = runtime(model, clock=TurnedClock())
        crew = rt.host.crew("a")
        specs = tuple(replace(m, timeout_us=20_000) for m in crew.rules.models)
        if end == "a deadline":
            rt.host._crews["a"] = replace(crew, rules=replace(crew.rules, models=specs))
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await until(lambda: model.requests)
        await until(lambda: empty(model.lane))
        driving.cancel()
        await asyncio.wait({driving})
        assert empty(model.lane)

    asyncio.run(main())


@pytest.mark.parametrize("how", ["cancelled", "stopped"])
def test_the_place_is_given_back_when_the_request_is_cut(how):
    async def main():
        model = Laned(lambda r: forever())
        store = InMemoryStore()
        rt = runtime(model, store=store)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r"))
        await until(lambda: model.requests)
        assert model.lane.snapshot().in_flight == 1
        if how == "cancelled":
            await Runtime(store.beside()).cancel_async("r")
        else:
            driving.cancel()
        await asyncio.wait({driving})
        assert empty(model.lane)
        assert model.lane.snapshot().rest_s == model.lane.snapshot().bound == 0

    asyncio.run(main())


@pytest.mark.parametrize("waited", [False, True])
@pytest.mark.parametrize("fault", ["failed", "broken", "moved", "stopped", "fenced"])
def test_the_place_is_given_back_when_the_intent_cannot_be_written(fault, waited):
    async def main():
        bench = Bench()
        hits = []

        async def interfere(name, *args, **kwargs):
            intent = name == "append" and any(e.event.NAME == "model.requested" for e in args[2])
            if not intent or hits:
                return
            hits.append(fault)
            assert bench.lane.snapshot().in_flight == 1
            if fault == "failed":
                raise StoreFailed("disk full")
            if fault == "broken":
                raise RuntimeError("a fault of our own")
            if fault == "fenced":
                raise Fenced("somebody else has it")
            if fault == "moved":
                await bench.other.pause_async("r")
            if fault == "stopped":
                bench.driving.cancel()

        bench.watched.before = interfere
        if not waited:
            bench.held.close()
            bench.driving = asyncio.create_task(bench.rt.run_async("a", "task", id="r"))
        else:
            await bench.begin()
            bench.held.close()
        await until(lambda: hits and empty(bench.lane))
        if fault == "fenced":  # it would follow the other owner
            bench.driving.cancel()
        await asyncio.wait({bench.driving})
        assert empty(bench.lane)
        if fault != "stopped":
            assert bench.model.requests == []
        if not bench.driving.cancelled():
            bench.driving.exception()

    asyncio.run(main())


# ---------------------------------------------------------------- many runs


def test_a_wait_one_run_was_told_of_is_kept_by_all():
    async def main():
        asked, told = [], []

        def answer(request):
            asked.append(time.monotonic())
            if not told:
                told.append(asked[-1] + 0.3)
                return ModelError(E.RATE_LIMITED, "later", retry_after_s=0.3)
            return "done"

        model = Laned(answer)
        rt = runtime(model)
        first = asyncio.create_task(rt.run_async("a", "one"))
        await until(lambda: told)
        others = [asyncio.create_task(rt.run_async("a", f"task {n}")) for n in range(5)]
        runs = await asyncio.gather(first, *others)
        assert {run.status for run in runs} == {"completed"}
        assert len(asked) == 7
        assert min(asked[1:]) >= told[0]
        assert empty(model.lane)

    asyncio.run(main())


def test_sync_runtimes_in_threads_of_their_own_share_the_lane():
    ledger = Ledger()
    lane = TrafficLane(TrafficLimits(in_flight=1))

    async def answer():
        ledger.add("in")
        await asyncio.sleep(0.002)
        ledger.add("out")
        return "done"

    def work():
        with Runtime(":memory:", agents=[Agent("a", Laned(lambda r: answer(), lane=lane))]) as rt:
            for _ in range(4):
                assert rt.run("a", "task").status == "completed"

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.lines == ["in", "out"] * 12
    assert empty(lane)


class Server:
    """Takes `capacity` requests at once and refuses the rest, as a provider does."""

    def __init__(self, capacity, asked_s):
        self.capacity, self.asked_s = capacity, asked_s
        self.now = self.served = self.refused = 0
        self.refused_at = 0.0

    async def answer(self):
        if self.now >= self.capacity:
            self.refused += 1
            await asyncio.sleep(0.01)
            self.refused_at = time.monotonic()
            raise ModelError(E.RATE_LIMITED, "too many", status=429, retry_after_s=self.asked_s)
        self.now += 1
        await asyncio.sleep(0.02)
        self.now -= 1
        self.served += 1
        return "done"


class Guarded(TrafficLane):
    """A lane that notes who is let in after the first refusal, and what becomes of it."""

    def __init__(self, server):
        super().__init__()
        self.server, self.early, self.most_after, self.refused_after = server, 0, 0, 0
        self.after = set()

    def _admit(self, *args):
        permit = super()._admit(*args)
        if self.server.refused_at:
            self.early += time.monotonic() < self.server.refused_at + self.server.asked_s
            self.most_after = max(self.most_after, len(self._open))
            self.after.add(permit)
        return permit

    def _close(self, permit, fault, *args):
        self.refused_after += permit in self.after and fault is not None
        super()._close(permit, fault, *args)


def test_two_hundred_runs_share_a_server_that_takes_five():
    """All finish; after the first refusals never more than five are in flight, and the wait that
    was asked for is kept by every run."""

    async def main():
        server = Server(capacity=5, asked_s=0.4)
        model = Laned(lambda r: server.answer(), lane=Guarded(server))
        rt = runtime(model)
        runs = await asyncio.gather(*(rt.run_async("a", f"task {n}") for n in range(200)))
        assert {run.status for run in runs} == {"completed"}
        assert server.served == 200
        assert server.refused >= 1
        assert model.lane.refused_after == 0
        assert len(model.requests) == 200 + server.refused
        assert model.lane.early == 0
        assert model.lane.most_after <= 5
        assert empty(model.lane)
        assert model.lane.snapshot().bound <= 5

    asyncio.run(main())
