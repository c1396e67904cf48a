"""Lanes against servers that are drawn: whatever happens in whatever order, these things hold."""

import asyncio
import heapq
import itertools

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from cairn.errors import ErrorClass
from cairn.models.pace import Minute
from cairn.models.traffic import TrafficLane, TrafficLimits

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


def in_flight(lane):
    return lane.snapshot().in_flight


async def turn(times=5):
    for _ in range(times):
        await asyncio.sleep(0)


@given(
    st.integers(1, 20),
    st.lists(st.tuples(st.floats(0, 40), st.integers(1, 12), st.integers(0, 12)), max_size=60),
)
def test_whatever_is_asked_for_no_minute_gives_more_than_its_limit(limit, asked):
    now, taken, minute = 0.0, [], Minute(limit)
    for later, amount, used in asked:
        now += later
        wait = minute.wait(now, amount)
        assert wait < 60.001
        now += wait
        while (again := minute.wait(now, amount)) > 0:  # what rounding leaves
            assert again < 1e-6
            now += max(again, 1e-9)
        part = minute.take(now, amount)
        minute.settle(part, min(used, amount))
        taken.append((now, min(used, amount), amount))
        recent = [(used, asked) for at, used, asked in taken if at + 60 > now]
        assert sum(used for used, _ in recent[:-1]) + min(recent[-1][1], limit) <= limit


# ---------------------------------------------------------------- a server, played


class Play:
    """Jobs that want in, a server that takes only so many at once, and the way between them."""

    def __init__(self, lane, time, capacity, jobs, service, lag=0.0, asked=2.0):
        self.lane, self.time, self.capacity = lane, time, capacity
        self.service, self.lag, self.asked = itertools.cycle(service), lag, asked
        self.todo = jobs
        self.server = self.refusals = 0
        self.seen = False
        self.held_until = 0.0
        self.most_after = 0
        self.after_seen = set()
        self.events, self.number = [], itertools.count()

    def later(self, seconds, what, *args):
        heapq.heappush(self.events, (self.time.now + seconds, next(self.number), what, args))

    async def job(self):
        permit = self.lane.try_enter(0) or await self.lane.enter(0)
        assert self.time.now >= self.held_until, "the provider was not left alone"
        if self.seen:
            self.after_seen.add(permit)
        self.later(self.lag, self.arrive, permit)

    def arrive(self, permit):
        if permit in self.after_seen:
            self.most_after = max(self.most_after, self.server + 1)
        if self.server >= self.capacity:
            self.refusals += 1
            self.later(self.lag, self.refused, permit)
            return
        self.server += 1
        self.later(next(self.service), self.served, permit)

    def served(self, permit):
        self.server -= 1
        self.later(self.lag, self.replied, permit)

    def replied(self, permit):
        permit.close()
        self.todo -= 1

    def refused(self, permit):
        permit.close(E.RATE_LIMITED, retry_after_s=self.asked)
        self.seen = True
        self.held_until = max(self.held_until, self.time.now + self.asked)
        self.later(self.asked, self.begin)

    def begin(self):
        self.tasks.append(asyncio.ensure_future(self.job()))

    async def run(self):
        self.tasks = []
        for _ in range(self.todo):
            self.begin()
        while self.todo:
            self.lane.look()
            await turn(4)
            if self.events:
                self.time.now, _, what, args = heapq.heappop(self.events)
                what(*args)
            else:
                rest = self.lane.snapshot().rest_s
                assert rest > 0, "somebody waits, and nothing can ever happen"
                self.time.now += rest
        for task in self.tasks:
            task.result()
        assert in_flight(self.lane) == self.lane.snapshot().waiting == 0


@given(
    capacity=st.integers(1, 8),
    jobs=st.integers(1, 90),  # all done before one more would be dared
    service=st.lists(st.integers(1, 40).map(lambda n: n / 64), min_size=1, max_size=7),
    asked=st.sampled_from((0.5, 2.0, 7.0)),
)
def test_after_the_first_refusals_a_server_never_has_more_at_once_than_it_takes(
    capacity, jobs, service, asked
):
    """And what it asked for is kept by all, all jobs are done, and nothing is refused again."""
    time = Time()
    play = Play(new_lane(time), time, capacity, jobs, service, asked=asked)
    asyncio.run(play.run())
    assert play.most_after <= capacity
    assert play.refusals == max(0, jobs - capacity)


@given(
    capacity=st.integers(1, 8),
    service=st.lists(st.integers(1, 40).map(lambda n: n / 64), min_size=1, max_size=7),
    lag=st.sampled_from((0.01, 0.1, 0.5)),
)
def test_on_a_slow_line_too_a_burst_costs_its_refusals_and_a_few_more(capacity, service, lag):
    time = Time()
    play = Play(new_lane(time), time, capacity, 100, service, lag=lag)
    asyncio.run(play.run())
    assert play.refusals <= 100 - capacity + 10  # one more is dared after each quiet minute


# ---------------------------------------------------------------- anything in any order


class AnyTraffic(RuleBasedStateMachine):
    """Two loops, one lane, a server that takes so many, and people who change their minds."""

    @initialize(
        capacity=st.integers(1, 4),
        in_flight=st.sampled_from((0, 0, 2, 5)),
        per_minute=st.sampled_from((0, 0, 0, 6)),
        tokens=st.sampled_from((0, 0, 0, 100)),
    )
    def begin(self, capacity, in_flight, per_minute, tokens):
        self.time, self.capacity, self.timed = Time(), capacity, bool(per_minute or tokens)
        self.lane = new_lane(
            self.time,
            in_flight=in_flight,
            requests_per_minute=per_minute,
            tokens_per_minute=tokens,
        )
        self.loops = [asyncio.new_event_loop() for _ in range(2)]
        self.line, self.held, self.ended = [], [], []
        self.server = 0

    def settle(self):
        """Let both loops turn; whoever got in is at the server, in the order it waited."""
        for _ in range(2):
            for loop in self.loops:
                loop.run_until_complete(turn(3))
        waiting = [task for task in self.line if not task.done()]
        got_in = [task for task in self.line if task.done() and not task.cancelled()]
        if got_in and waiting:
            assert self.line.index(got_in[-1]) < self.line.index(waiting[0]), "overtaken"
        for task in got_in:
            self.arrive(task.result())
        self.line = waiting
        if got_in:
            state = self.lane.snapshot()
            assert not state.bound or state.in_flight <= state.bound

    def arrive(self, permit):
        taken = self.server < self.capacity
        self.server += taken
        self.held.append((permit, taken))

    @rule(which=st.integers(0, 1), tokens=st.sampled_from((0, 5, 40, 300)))
    def enter(self, which, tokens):
        async def begin():
            return asyncio.ensure_future(self.lane.enter(tokens))

        task = self.loops[which].run_until_complete(begin())
        self.line.append(task)
        self.settle()

    @rule(tokens=st.sampled_from((0, 5, 40)))
    def try_to_enter(self, tokens):
        permit = self.lane.try_enter(tokens)
        if self.line:
            assert permit is None
        if permit is not None:
            self.arrive(permit)

    @precondition(lambda self: self.held)
    @rule(
        data=st.data(),
        fault=st.sampled_from((None, None, None, E.NETWORK, E.CANCELLED, E.INTERNAL, E.OVERLOADED)),
        asked=st.sampled_from((0.0, 0.0, 3.0)),
        used=st.sampled_from((0, 7)),
        cancel=st.booleans(),
    )
    def end(self, data, fault, asked, used, cancel):
        at = data.draw(st.integers(0, len(self.held) - 1))
        permit, taken = self.held.pop(at)
        self.server -= taken
        if not taken:
            fault = E.RATE_LIMITED
        permit.close(fault, retry_after_s=asked if fault is E.RATE_LIMITED else 0, tokens=used)
        self.ended.append(permit)
        if cancel and self.line:  # in the very moment in which its turn may have come
            self.line[0].cancel()
        self.settle()

    @precondition(lambda self: self.line)
    @rule(data=st.data())
    def give_up(self, data):
        self.line[data.draw(st.integers(0, len(self.line) - 1))].cancel()
        self.settle()

    @precondition(lambda self: self.ended)
    @rule(fault=st.sampled_from((None, E.RATE_LIMITED)))
    def end_again(self, fault):
        before = self.lane.snapshot()
        self.ended[-1].close(fault, retry_after_s=500)
        assert self.lane.snapshot() == before

    @rule(seconds=st.sampled_from((0.5, 1.0, 3.0, 30.0, 61.0)))
    def pass_time(self, seconds):
        self.time.now += seconds
        self.lane.look()
        self.settle()

    @invariant()
    def all_are_accounted_for(self):
        if hasattr(self, "lane"):
            state = self.lane.snapshot()
            assert (state.in_flight, state.waiting) == (len(self.held), len(self.line))

    @invariant()
    def nobody_waits_before_an_open_door(self):
        if not hasattr(self, "lane") or not self.line:
            return
        state = self.lane.snapshot()
        if not self.timed and state.rest_s == 0:
            assert state.in_flight > 0
        assert self.lane._wait(self.time.now, self.lane._waiting[0].tokens) > 0

    def teardown(self):
        if not hasattr(self, "lane"):
            return
        for _ in range(500):
            while self.held:
                permit, taken = self.held.pop()
                self.server -= taken
                permit.close(None if taken else E.RATE_LIMITED)
            if not self.line:
                break
            self.pass_time(60.0)
        assert not self.line, "they wait for ever"
        self.all_are_accounted_for()
        for loop in self.loops:
            loop.close()


TestAnyTraffic = AnyTraffic.TestCase
