"""A provider that carries few requests, and many runs: over real sockets, on a real file."""

import asyncio

import pytest
from tests.models.crowd import ROOM, RUNS, NarrowServer, crowd, make_model, serve, two_loops
from tests.models.narrow_world import NarrowWorld

from cairn import Agent, ErrorClass, Ladder, Rung, Runtime
from cairn.core import events as ev
from cairn.models.traffic import TrafficLimits

pytestmark = pytest.mark.timeout(120)
IMPATIENT = Ladder(
    rows={
        ErrorClass.RATE_LIMITED: (
            Rung(disposition="retry", times=1, backoff_us=1_000),
            Rung(disposition="switch", times=1),
            Rung(disposition="end"),
        )
    }
)


@pytest.mark.slow
def test_two_hundred_runs_share_a_provider_that_carries_five(tmp_path):
    found = crowd(tmp_path)
    assert found.ends == {"completed": RUNS}
    assert 0 < found.most_after <= ROOM
    assert found.too_soon == 0
    assert found.asked == found.arrived == RUNS + found.refused


@pytest.mark.slow
def test_two_runtimes_in_two_threads_share_the_lane_of_their_process(tmp_path):
    found = two_loops(tmp_path)
    assert found.ends == {"completed": 80}
    assert 0 < found.most_after <= ROOM
    assert found.too_soon == 0
    assert found.asked == found.arrived == 80 + found.refused


def test_runs_within_the_room_of_a_provider_are_never_refused(tmp_path):
    with NarrowServer() as server:
        names = [f"r{n}" for n in range(ROOM)]
        ends, entries = asyncio.run(serve(tmp_path, make_model(server), names))
    assert (ends, server.refusals) == ({"completed": ROOM}, [])
    assert len(server.arrivals) == sum(isinstance(e.event, ev.ModelRequested) for e in entries)


def test_a_bound_of_ones_own_keeps_runs_from_being_refused_at_all(tmp_path):
    with NarrowServer(room=2) as server:
        model = make_model(server, traffic=TrafficLimits(in_flight=2))
        ends, _ = asyncio.run(serve(tmp_path, model, [f"r{n}" for n in range(12)]))
    assert (ends, server.refusals) == ({"completed": 12}, [])
    assert max(each.beside for each in server.arrivals) == 2


def test_runs_that_waited_in_line_go_on_when_they_are_let_in_though_nothing_is_on_disk():
    """No write of such a store takes a turn of the loop, so what was waited for ends much later."""

    async def main(model):
        async with Runtime(":memory:", agents=[Agent("a", model, builtins=())]) as rt:
            runs = await asyncio.gather(*(rt.run_async("a", f"r{n}", id=f"r{n}") for n in range(6)))
        await model.close()
        return runs

    with NarrowServer(room=1, work_s=0.1) as server:
        model = make_model(server, traffic=TrafficLimits(in_flight=1))
        runs = asyncio.run(asyncio.wait_for(main(model), 60))
    assert [run.text for run in runs] == [f"Served: r{n}" for n in range(6)]
    assert (len(server.arrivals), server.refusals) == (6, [])


def test_a_provider_that_always_refuses_is_left_for_the_next_which_is_not_blamed(tmp_path):
    runs = ["r0"]  # refusals of several would each be waited for, one after the other

    async def main(first, second):
        agent = Agent("a", first, builtins=(), fallback_models=[second])
        async with Runtime(tmp_path / "f.db", agents=[agent], ladder=IMPATIENT) as rt:
            ended = await asyncio.gather(*(rt.run_async("a", name, id=name) for name in runs))
            entries = [await rt.trace_async(name) for name in runs]
        await first.close()
        await second.close()
        return ended, entries

    with NarrowServer(room=0, asked_s=1) as closed, NarrowServer() as spare:
        first, second = make_model(closed, "first"), make_model(spare, "second")
        ended, entries = asyncio.run(main(first, second))
        healthy = second.lane.snapshot()
    assert [run.text for run in ended] == [f"Served: {name}" for name in runs]
    for journal in entries:
        failed = [e.event for e in journal if isinstance(e.event, ev.ModelFailed)]
        assert [(f.error_class.value, f.disposition) for f in failed] == [
            ("rate_limited", "retry"),
            ("rate_limited", "switch"),
        ]
        asked = [e.event.model for e in journal if isinstance(e.event, ev.ModelRequested)]
        assert asked == ["openai-chat:first"] * 2 + ["openai-chat:second"]
    assert (len(closed.arrivals), len(spare.arrivals)) == (2, 1)
    assert (healthy.bound, healthy.rest_s, healthy.in_flight) == (0, 0.0, 0)


@pytest.mark.parametrize("first", range(0, 200, 20))
def test_however_slow_client_way_and_provider_are_no_more_are_in_flight_than_are_carried(first):
    for seed in range(first, first + 20):
        found = NarrowWorld(seed).play()
        assert found.kept, (seed, found)
