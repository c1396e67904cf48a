"""Lanes: one provider, all runs of a process, as much at once as it takes and no more."""

import asyncio
import gc
import itertools
import subprocess
import sys
import threading
from collections import Counter

import pytest

from cairn.errors import ConfigError, ErrorClass
from cairn.models.pace import SIGNS
from cairn.models.traffic import TrafficLane, TrafficLimits, lane_for, lane_key, lanes

E = ErrorClass


class Time:
    """Seconds that only pass when a test says so."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


def new_lane(time=None, **limits):
    """A lane whose rests are exactly what doubling says."""
    return TrafficLane(TrafficLimits(**limits), clock=time or Time(), jitter=lambda: 1.0)


def take(lane, n, tokens=0):
    permits = [lane.try_enter(tokens) for _ in range(n)]
    assert None not in permits
    return permits


def in_flight(lane):
    return lane.snapshot().in_flight


def fits(lane, most=500):
    """How many may enter now; none of them stays, and nothing is learnt from it."""
    taken = list(itertools.takewhile(bool, (lane.try_enter(0) for _ in range(most))))
    for permit in taken:
        permit.close(E.CANCELLED)
    return len(taken)


async def turn(times=5):
    for _ in range(times):
        await asyncio.sleep(0)


# ---------------------------------------------------------------- in and out


def test_no_more_are_in_flight_than_was_said():
    lane = new_lane(in_flight=3)
    permits = take(lane, 3)
    assert lane.try_enter(0) is None
    permits[1].close()
    assert in_flight(lane) == 2
    assert lane.try_enter(0) is not None
    assert lane.try_enter(0) is None


def test_a_permit_that_is_closed_twice_counts_once():
    lane = new_lane(in_flight=2)
    first, _ = take(lane, 2)
    first.close()
    first.close(E.RATE_LIMITED, retry_after_s=30)
    assert in_flight(lane) == 1
    assert lane.snapshot().rest_s == 0


def test_who_waits_longest_goes_first_and_nobody_overtakes():
    async def main():
        lane, order = new_lane(in_flight=1), []
        (held,) = take(lane, 1)

        async def wait(name):
            permit = await lane.enter(0)
            order.append(name)
            return permit

        tasks = [asyncio.create_task(wait(n)) for n in range(5)]
        await turn()
        assert lane.snapshot().waiting == 5
        held.close()
        assert lane.try_enter(0) is None
        for n, task in enumerate(tasks):
            (await task).close()
            assert order[: n + 1] == list(range(n + 1))
        assert in_flight(lane) == 0

    asyncio.run(main())


def test_a_waiter_that_is_cancelled_leaves_no_trace():
    async def main():
        lane = new_lane(in_flight=1)
        (held,) = take(lane, 1)
        tasks = [asyncio.create_task(lane.enter(0)) for _ in range(3)]
        await turn()
        tasks[0].cancel()
        tasks[1].cancel()
        await turn()
        assert lane.snapshot().waiting == 1
        held.close()
        (await tasks[2]).close()
        assert lane.snapshot().waiting == in_flight(lane) == 0

    asyncio.run(main())


def test_a_waiter_that_blocked_the_line_passes_its_turn_on_when_it_is_cancelled():
    async def main():
        lane = new_lane(tokens_per_minute=100)
        take(lane, 1, tokens=50)
        large = asyncio.create_task(lane.enter(80))
        small = asyncio.create_task(lane.enter(40))
        await turn()
        assert lane.snapshot().waiting == 2
        large.cancel()
        (await small).close()

    asyncio.run(main())


@pytest.mark.parametrize("turns", [0, 1, 2, 3])
def test_a_permit_given_to_somebody_who_is_cancelled_in_the_same_moment_comes_back(turns):
    async def main():
        lane = new_lane(in_flight=1, requests_per_minute=2)
        (held,) = take(lane, 1)
        first = asyncio.create_task(lane.enter(0))
        await turn()
        second = asyncio.create_task(lane.enter(0))
        await turn()
        held.close()
        await turn(turns)
        entered = first.done()
        first.cancel()
        await turn()
        if entered:  # it was too late to cancel: the permit is its own to close
            first.result().close()
            assert not second.done()
            second.cancel()
        else:  # and no request of the minute is counted for it
            (await second).close()
        await turn()
        assert lane.snapshot().waiting == in_flight(lane) == 0

    asyncio.run(main())


# ---------------------------------------------------------------- several loops


class LoopThread:
    """An event loop in a thread of its own, as every sync runtime has one."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()

    def submit(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def loops():
    made = [LoopThread() for _ in range(3)]
    yield made
    for each in made:
        if not each.loop.is_closed():
            each.close()


def wait_for(ready):
    for _ in range(4_000):
        if ready():
            return
        threading.Event().wait(0.001)
    raise AssertionError("it never became so")


def test_the_line_is_one_line_over_all_loops(loops):
    lane, order = new_lane(in_flight=1), []
    (held,) = take(lane, 1)

    async def wait(name):
        permit = await lane.enter(0)
        order.append(name)
        permit.close()

    waits = []
    for n in range(9):
        waits.append(loops[n % 3].submit(wait(n)))
        wait_for(lambda n=n: lane.snapshot().waiting == n + 1)
    held.close()
    for each in waits:
        each.result(10)
    assert order == list(range(9))
    assert in_flight(lane) == 0


def test_many_threads_at_once_never_break_the_bound(loops):
    lane, at_once, most = TrafficLane(TrafficLimits(in_flight=4)), Counter(), []
    lock = threading.Lock()

    async def one(n):
        for _ in range(5):
            permit = lane.try_enter(1) or await lane.enter(1)
            with lock:
                at_once["now"] += 1
                most.append(at_once["now"])
            await asyncio.sleep(0)
            with lock:
                at_once["now"] -= 1
            permit.close(tokens=1)

    async def many(start):
        await asyncio.gather(*(one(start + n) for n in range(20)))

    for each in [each.submit(many(20 * n)) for n, each in enumerate(loops)]:
        each.result(20)
    assert len(most) == 300
    assert max(most) == 4
    assert lane.snapshot().waiting == in_flight(lane) == 0


def test_a_loop_that_is_closed_takes_nobody_else_with_it(loops):
    """Neither a place in line nor a permit is kept by what can no longer run."""
    lane = new_lane(in_flight=1)
    gone, left, _ = loops

    async def hold():
        return lane.try_enter(0)

    assert gone.submit(hold()).result(10) is not None
    lost = gone.submit(lane.enter(0))
    wait_for(lambda: lane.snapshot().waiting == 1)
    waits = left.submit(lane.enter(0))
    wait_for(lambda: lane.snapshot().waiting == 2)
    for task in asyncio.all_tasks(gone.loop):
        task._log_destroy_pending = False  # it is left pending on purpose
    gone.close()
    lane.look()
    waits.result(10).close()
    assert lane.snapshot().waiting == in_flight(lane) == 0
    assert not lost.done()
    del lost, waits
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "unraisablehook", lambda _: None)
        gc.collect()


def test_a_wait_for_time_ends_by_itself():
    """With the real clock: the lane wakes those who wait when the rest is over."""

    async def main():
        lane = TrafficLane(jitter=lambda: 1.0)
        (permit,) = take(lane, 1)
        permit.close(E.RATE_LIMITED, retry_after_s=0.05)
        assert lane.try_enter(0) is None
        (await lane.enter(0)).close()

    asyncio.run(main())


def test_a_rest_that_begins_while_others_wait_wakes_them_at_its_end(loops):
    lane = TrafficLane(TrafficLimits(in_flight=1))
    (held,) = take(lane, 1)
    waits = []
    for n, each in enumerate(loops):
        waits.append(each.submit(lane.enter(0)))
        wait_for(lambda n=n: lane.snapshot().waiting == n + 1)
    held.close(E.RATE_LIMITED, retry_after_s=0.05)
    for each in waits:
        each.result(3).close()


def test_a_forked_child_starts_with_empty_lanes():
    code = """
import os
from cairn.errors import ErrorClass
from cairn.models.traffic import TrafficLimits, lane_for
lane = lane_for("k", TrafficLimits(in_flight=2))
held, refused = lane.try_enter(0), lane.try_enter(0)
refused.close(ErrorClass.RATE_LIMITED, retry_after_s=60)
child = os.fork()
if child == 0:
    fine = lane_for("k") is lane and lane.snapshot().in_flight == 0
    fine = fine and lane.try_enter(0) is not None
    held.close()
    os._exit(0 if fine and lane.snapshot().in_flight == 1 else 1)
_, status = os.waitpid(child, 0)
assert os.waitstatus_to_exitcode(status) == 0
assert lane.snapshot().in_flight == 1
"""
    subprocess.run([sys.executable, "-c", code], check=True, timeout=20)


# ---------------------------------------------------------------- per minute


def test_no_minute_sees_more_requests_than_was_said():
    time = Time()
    lane = new_lane(time, requests_per_minute=3)
    for permit in take(lane, 2):
        permit.close()
    time.now += 30
    take(lane, 1)
    assert lane.try_enter(0) is None
    time.now += 29
    assert lane.try_enter(0) is None
    time.now += 1
    take(lane, 2)
    assert lane.try_enter(0) is None


def test_tokens_are_reserved_on_entry_and_settled_at_the_end():
    lane = new_lane(tokens_per_minute=1_000)
    (permit,) = take(lane, 1, tokens=900)
    assert lane.try_enter(200) is None
    permit.close(tokens=300)
    take(lane, 1, tokens=700)
    assert lane.try_enter(1) is None


@pytest.mark.parametrize("fault", [None, *ErrorClass])
def test_what_is_not_known_stays_reserved_and_a_refused_request_used_nothing(fault):
    lane = new_lane(tokens_per_minute=1_000)
    (permit,) = take(lane, 1, tokens=1_000)
    permit.close(fault)
    lane._rest = type(lane._rest)(lambda: 1.0)  # only the tokens are looked at here
    unknown = {None, E.CANCELLED, E.TIMEOUT, E.STREAM_INTERRUPTED}
    assert (lane.try_enter(1) is None) == (fault in unknown)


def test_a_request_larger_than_the_limit_has_a_minute_to_itself():
    time = Time()
    lane = new_lane(time, tokens_per_minute=100)
    take(lane, 1, tokens=10)
    assert lane.try_enter(5_000) is None
    time.now += 60
    take(lane, 1, tokens=5_000)
    assert lane.try_enter(1) is None
    time.now += 60
    take(lane, 1, tokens=1)


# ---------------------------------------------------------------- rest


def test_a_provider_that_asks_to_wait_is_left_alone_by_everybody_until_then():
    time = Time()
    lane = new_lane(time)
    first, second = take(lane, 2)
    first.close(E.RATE_LIMITED, retry_after_s=12.5)
    second.close()
    assert lane.snapshot().rest_s == 12.5
    time.now += 12.4
    assert lane.try_enter(0) is None
    time.now += 0.1
    assert lane.try_enter(0) is not None


def test_a_later_and_shorter_wish_does_not_end_an_earlier_one():
    lane = new_lane()
    first, second = take(lane, 2)
    first.close(E.RATE_LIMITED, retry_after_s=30)
    second.close(E.RATE_LIMITED, retry_after_s=1)
    assert lane.snapshot().rest_s == 30


def test_nobody_waits_longer_than_ten_minutes_for_a_provider():
    lane = new_lane()
    take(lane, 1)[0].close(E.RATE_LIMITED, retry_after_s=86_400)
    assert lane.snapshot().rest_s == 600


def test_without_a_word_the_rest_doubles_up_to_a_minute_until_a_reply_comes():
    time, rests = Time(), []
    lane = new_lane(time)
    for _ in range(8):
        take(lane, 1)[0].close(E.RATE_LIMITED)
        rests.append(lane.snapshot().rest_s)
        time.now += rests[-1]
    assert rests == [1, 2, 4, 8, 16, 32, 60, 60]
    take(lane, 1)[0].close()
    take(lane, 1)[0].close(E.RATE_LIMITED)
    assert lane.snapshot().rest_s == 1


def test_rests_nobody_asked_for_are_spread():
    rests = set()
    for part in (0.0, 0.5, 0.99):
        lane = TrafficLane(clock=Time(), jitter=lambda part=part: part)
        take(lane, 1)[0].close(E.RATE_LIMITED)
        rests.add(lane.snapshot().rest_s)
    assert len(rests) == 3
    assert min(rests) == 0.75
    assert max(rests) < 1


def test_the_refusals_of_one_burst_count_once():
    time = Time()
    lane = new_lane(time)
    for permit in take(lane, 100):
        permit.close(E.RATE_LIMITED)
    assert lane.snapshot().rest_s == 1


TROUBLES = [E.OVERLOADED, E.UNAVAILABLE, E.NETWORK, E.TIMEOUT, E.STREAM_INTERRUPTED]


@pytest.mark.parametrize("fault", TROUBLES)
def test_trouble_counts_from_three_in_a_row_and_then_one_goes_first(fault):
    time = Time()
    lane = new_lane(time)
    for close in (fault, fault, None, fault, fault):
        take(lane, 1)[0].close(close)
        assert lane.snapshot().rest_s == 0
    take(lane, 1)[0].close(fault)
    assert lane.snapshot().rest_s == 1
    time.now += 1
    (probe,) = take(lane, 1)
    assert lane.try_enter(0) is None
    probe.close()
    assert fits(lane) >= 100 or fault is E.OVERLOADED


def test_a_first_one_that_fails_doubles_the_rest_up_to_half_a_minute():
    time, rests = Time(), []
    lane = new_lane(time)
    take(lane, 1)[0].close(E.NETWORK)
    take(lane, 1)[0].close(E.NETWORK)
    for _ in range(7):
        (probe,) = take(lane, 1)
        assert rests == [] or lane.try_enter(0) is None
        probe.close(E.NETWORK)
        rests.append(lane.snapshot().rest_s)
        time.now += rests[-1]
    assert rests == [1, 2, 4, 8, 16, 30, 30]


def test_a_first_one_that_is_cancelled_lets_the_next_go_first():
    time = Time()
    lane = new_lane(time)
    for permit in take(lane, 3):
        permit.close(E.UNAVAILABLE)
    time.now += 1
    take(lane, 1)[0].close(E.CANCELLED)
    assert lane.snapshot().rest_s == 0
    (probe,) = take(lane, 1)
    assert lane.try_enter(0) is None
    probe.close()
    take(lane, 50)


def test_a_connection_that_breaks_under_many_requests_is_one_trouble():
    lane = new_lane()
    for permit in take(lane, 50):
        permit.close(E.NETWORK)
    assert lane.snapshot().rest_s == 1


def test_a_provider_out_of_order_that_says_when_to_come_back_is_left_alone_until_then():
    lane = new_lane()
    take(lane, 1)[0].close(E.UNAVAILABLE, retry_after_s=20)
    assert lane.snapshot().rest_s == 20


SAYS = {E.RATE_LIMITED: "refusal", E.OVERLOADED: "overload"} | dict.fromkeys(
    (E.UNAVAILABLE, E.NETWORK, E.TIMEOUT, E.STREAM_INTERRUPTED), "trouble"
)


@pytest.mark.parametrize("fault", ErrorClass)
def test_what_each_class_of_fault_says_of_a_provider(fault):
    """Waiting helps neither an empty account nor a bad key, and our own faults are our own."""
    says = SAYS.get(fault, "nothing")
    assert SIGNS[fault] == says
    lane = new_lane()
    permits = take(lane, 10)
    permits[9].close(fault)
    narrowed = says in {"refusal", "overload"}
    assert lane.snapshot().bound == (8 if narrowed else 0)
    assert (lane.snapshot().rest_s > 0) == (says == "refusal")
    permits[8].close(fault)
    permits[7].close(fault)
    assert lane.snapshot().bound == (6 if narrowed else 0)
    assert (lane.snapshot().rest_s > 0) == (says != "nothing")
    (again,) = take(new_lane(), 1)
    again.close(fault, retry_after_s=9)
    assert (again._lane.snapshot().rest_s == 9) == (says != "nothing")


# ---------------------------------------------------------------- how many at once


def burst(lane, time, accepted, sent=200, asked=1.0):
    """`sent` at once of which only the first `accepted` are taken; those are returned."""
    permits = take(lane, sent)
    for permit in permits[accepted:]:
        permit.close(E.RATE_LIMITED, retry_after_s=asked)
    return permits[:accepted]


def test_a_burst_teaches_how_many_are_taken_at_once():
    time = Time()
    lane = new_lane(time)
    kept = burst(lane, time, 5)
    assert lane.snapshot().bound == 4  # the fifth may be on its way back already
    time.now += 1
    assert lane.try_enter(0) is None
    for permit in kept:
        permit.close()
    assert lane.snapshot().bound == 5
    assert fits(lane) == 5


def test_accepted_requests_that_end_before_late_refusals_do_not_spoil_the_lesson():
    time = Time()
    lane = new_lane(time)
    permits = take(lane, 20)
    for permit in permits[5:12]:
        permit.close(E.RATE_LIMITED, retry_after_s=1)
    for permit in permits[:5]:
        permit.close()
    for permit in permits[12:]:
        permit.close(E.RATE_LIMITED, retry_after_s=1)
    time.now += 1
    widths = []
    for _ in range(8):
        permits = list(itertools.takewhile(bool, (lane.try_enter(0) for _ in range(20))))
        widths.append(len(permits))
        for permit in permits:
            permit.close()
    assert widths == sorted(widths)
    assert widths[-1] == max(widths) == 5


def test_what_entered_after_the_last_refused_one_may_not_have_arrived_yet():
    lane = new_lane()
    permits = take(lane, 30)
    for permit in permits[5:20]:
        permit.close(E.RATE_LIMITED, retry_after_s=1)
    assert lane.snapshot().bound == 4


def test_a_refusal_of_a_request_that_was_alone_says_nothing_about_how_many_are_taken_at_once():
    time = Time()
    lane = new_lane(time)
    for permit in burst(lane, time, 5):
        permit.close()
    for _ in range(3):
        time.now += 1
        take(lane, 1)[0].close(E.RATE_LIMITED, retry_after_s=1)
        assert lane.snapshot().bound == 5


def test_a_burst_that_is_refused_as_a_whole_opens_again_one_by_one():
    time = Time()
    lane = new_lane(time)
    assert burst(lane, time, 0) == []
    time.now += 1
    for n in range(1, 30):
        (permit,) = take(lane, 1)
        assert lane.snapshot().bound == n
        permit.close()
    take(lane, 25)


def test_a_rate_that_is_exceeded_again_and_again_does_not_narrow_the_lane_for_good():
    """One refused among ten, each minute: ten at once are proven each time, and stay allowed."""
    time = Time()
    lane = new_lane(time)
    for permit in burst(lane, time, 10, sent=11):
        permit.close()
    for _ in range(40):
        time.now += 2
        for permit in take(lane, 10):
            permit.close()
        permits = take(lane, 10)
        permits[4].close(E.RATE_LIMITED, retry_after_s=2)
        for permit in permits:
            permit.close()
        time.now += 2
        for _ in range(6):
            take(lane, 1)[0].close()
    assert lane.snapshot().bound == 10


def test_after_a_quiet_minute_one_more_is_dared_and_after_a_vain_try_only_after_two():
    time = Time()
    lane = new_lane(time)
    for permit in burst(lane, time, 5):
        permit.close()
    time.now += 60
    assert fits(lane) == 5
    time.now += 1
    permits = take(lane, 6)
    assert lane.try_enter(0) is None
    permits[5].close(E.RATE_LIMITED, retry_after_s=1)
    for permit in permits[:5]:
        permit.close()
    assert lane.snapshot().bound == 5
    time.now += 120
    assert fits(lane) == 5
    time.now += 1
    permits = take(lane, 6)
    for permit in permits:
        permit.close()
    time.now += 60
    for permit in take(lane, 7):
        permit.close()
    assert lane.snapshot().bound == 7


def test_nothing_is_dared_while_there_is_room():
    time = Time()
    lane = new_lane(time)
    for permit in burst(lane, time, 5):
        permit.close()
    time.now += 500
    for _ in range(20):
        take(lane, 1)[0].close()
    assert lane.snapshot().bound == 5


def test_a_fixed_bound_is_never_learnt_away():
    time = Time()
    lane = new_lane(time, in_flight=3)
    kept = take(lane, 3)
    kept.pop().close(E.RATE_LIMITED, retry_after_s=1)
    for permit in kept:
        permit.close()
    assert lane.snapshot().bound == 2
    for _ in range(10):
        time.now += 1_000
        permits = list(itertools.takewhile(bool, (lane.try_enter(0) for _ in range(9))))
        assert len(permits) <= 3
        for permit in permits:
            permit.close()
    assert lane.snapshot().bound == 3


# ---------------------------------------------------------------- one per account


def test_a_lane_is_named_by_account_and_never_by_its_key():
    key = lane_key("openai", "https://api.example.org/v1", "sk-secret")
    assert "sk-secret" not in key
    others = {
        lane_key("openai", "https://api.example.org/v1", "sk-other"),
        lane_key("openai", "https://api.example.org/v2", "sk-secret"),
        lane_key("azure", "https://api.example.org/v1", "sk-secret"),
    }
    assert key not in others
    assert lane_for(key) is lane_for(key)
    assert lane_for(key) is not lane_for(others.pop())


def test_limits_given_later_only_narrow_a_lane():
    lane = lane_for("narrowed", TrafficLimits(in_flight=4))
    assert lane_for("narrowed", TrafficLimits(in_flight=9, requests_per_minute=7)) is lane
    assert lane.snapshot().bound == lanes()["narrowed"].bound == 4
    lane_for("narrowed", TrafficLimits(in_flight=2, requests_per_minute=3))
    assert lane.snapshot().bound == 2
    for _ in range(3):
        take(lane, 1)[0].close()
    assert lane.try_enter(0) is None


@pytest.mark.parametrize("value", [-1, 1.5, True, "4", None])
@pytest.mark.parametrize("name", ["in_flight", "requests_per_minute", "tokens_per_minute"])
def test_a_limit_that_is_none_is_refused_by_name(name, value):
    with pytest.raises(ConfigError, match=f"limits.{name}"):
        TrafficLimits(**{name: value})
