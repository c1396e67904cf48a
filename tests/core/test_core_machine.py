"""A run driven by Hypothesis: any reply, any outcome, any command, a crash at any point.

What is checked stands in `world` and `laws`; what is chosen stands here.
"""

from typing import Any

import hypothesis
import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule
from tests.core import world
from tests.core.play import DAY, SECOND, raw
from tests.core.world import NAMES, RETRIABLE, statuses

from cairn.core import commands as cmd
from cairn.core.lifecycle import CallStatus
from cairn.core.limits import Usage
from cairn.core.messages import PlanItem, Reasoning, Text
from cairn.core.outcomes import Called, Fault, Reply
from cairn.core.state import wake_at
from cairn.errors import ErrorClass

Landing = tuple[str, Any]
arguments = st.sampled_from(
    ('{"a": 1}', '{"a":2}', '{"a":1,"b":[]}', "", "null", "[1]", '{"a":', '{"question":"which?"}')
)
asked = st.builds(
    Called,
    name=st.sampled_from((*NAMES, *NAMES, "find_", "")),
    arguments=arguments,
    alias=st.sampled_from(("", "x1")),
)
usages = st.builds(
    Usage,
    input_tokens=st.integers(0, 900),
    cached_tokens=st.integers(0, 90),
    output_tokens=st.integers(0, 900),
    micro_usd=st.integers(0, 50),
)
texts = st.sampled_from(("Done.", "All is bad.", "See [s1] and [s2].", "完成了。", " "))
good_calls = st.builds(
    Called,
    name=st.sampled_from(NAMES),
    arguments=st.sampled_from(('{"a":1,"question":"?"}', '{"a":2}')),
)
answers = st.builds(Reply, parts=st.builds(Text, texts).map(lambda text: (text,)), usage=usages)
working = st.builds(
    Reply, calls=st.lists(good_calls, min_size=1, max_size=4).map(tuple), usage=usages
)
messy = st.builds(
    Reply,
    parts=st.sampled_from(((), (Text("I look."),), (Reasoning(content="hm"),))),
    calls=st.lists(asked, max_size=6).map(tuple),
    finish=st.sampled_from(("stop", "tool_calls", "tool_calls", "stop", "length", "refusal")),
    usage=usages,
)
replies = st.integers(0, 5).flatmap(lambda n: answers if n == 5 else messy if n == 4 else working)
faulty = st.builds(
    Fault,
    error_class=st.sampled_from(ErrorClass),
    message=st.just("the other side said no"),
    retry_after_us=st.sampled_from((0, 3 * SECOND)),
)
TOOL_FAULTS = (
    ErrorClass.TOOL_ERROR,
    ErrorClass.TOOL_TIMEOUT,
    ErrorClass.TOOL_UNAVAILABLE,
    ErrorClass.DEPENDENCY_FAILED,
)
landings = st.one_of(
    st.tuples(st.just("returned"), st.sampled_from((True, "same", [1, 2], None))),
    st.tuples(st.just("raised"), st.sampled_from(TOOL_FAULTS)),
    st.tuples(st.just("raised"), st.sampled_from(ErrorClass)),
    st.tuples(st.just("not done"), st.just(ErrorClass.TOOL_UNAVAILABLE)),
    st.tuples(st.just("vanished"), st.sampled_from(("timeout", "unsure"))),
)
numbers = st.integers(0, 6)
ids = st.integers(0, 9).map("c{}".format)
commands = st.one_of(
    st.builds(cmd.Approve, n=numbers),
    st.builds(cmd.Deny, n=numbers, message=st.sampled_from(("", "use the staging host"))),
    st.builds(cmd.Answer, n=numbers, text=st.just("the second")),
    st.builds(cmd.Queue, parts=st.just((Text("and hurry"),))),
    st.builds(
        cmd.Resolve, call=ids, verdict=st.sampled_from(("happened", "not_happened", "given_up"))
    ),
    st.builds(cmd.Pause),
    st.builds(cmd.Resume),
    st.builds(cmd.Cancel),
    st.builds(cmd.SetPlan, items=st.sampled_from(((), (PlanItem(text="look twice"),)))),
    st.builds(cmd.EditCall, call=ids, arguments=arguments),
    st.builds(cmd.Late, call=ids, ok=st.booleans(), result=st.just(raw("late"))),
    st.builds(cmd.Approve, n=numbers, by=st.just("ann"), arguments=arguments),
)
people = st.sampled_from(("ann", "ann", "ann", "bob", ""))
turns = st.builds(
    cmd.TakeTurn,
    by=people,
    text=st.sampled_from(("", "Done.", "It is bad.", "See [s1].")),
    calls=st.lists(st.tuples(st.sampled_from((*NAMES, "find_", "")), arguments), max_size=3).map(
        tuple
    ),
)
takeovers = st.one_of(
    st.builds(cmd.TakeOver, by=people, reason=st.sampled_from(("it is stuck", ""))),
    turns,
    turns,
    st.builds(cmd.DoneByHand, by=people, call=ids, result=st.just(raw("by hand"))),
    st.builds(cmd.HandBack, by=people),
)


class CoreMachine(RuleBasedStateMachine):
    """One run, driven by chance."""

    @initialize(
        bounds=st.integers(0, len(world.LIMITS) - 1),
        models=st.integers(0, 2),
        policy=st.integers(0, 4),
        ladder=st.integers(0, 2),
        setting=st.integers(0, 4),
        checks=st.integers(0, 2),
        repairs=st.integers(1, 3),
        works=st.lists(st.tuples(landings, replies), min_size=4, max_size=12),
    )
    def begin(self, works: list[tuple[Landing, Reply]], **pick: int) -> None:
        self.world = world.begin(**pick)
        self.work(works)

    @precondition(lambda self: self.world.play.state.end is None)
    @rule(works=st.lists(st.tuples(landings, replies), min_size=3, max_size=9))
    def work(self, works: list[tuple[Landing, Reply]]) -> None:
        """Take actions, a few at a time: most of what happens is work."""
        for landing, outcome in works:
            self.world.act(landing, outcome)

    @precondition(lambda self: self.world.play.state.end is None)
    @rule(landing=landings, outcome=replies)
    def act(self, landing: Landing, outcome: Reply) -> None:
        self.world.act(landing, outcome)

    @precondition(lambda self: self.world.play.state.end is None)
    @rule(name=st.sampled_from(("look", "set", "find")), turns=st.integers(1, 9))
    def go_round(self, name: str, turns: int) -> None:
        """The model calls the same tool over and over, and it brings the same each time."""
        for _ in range(turns * 3):
            self.world.act(
                ("returned", "same"), Reply(calls=(Called(name=name, arguments='{"a":1}'),))
            )

    @precondition(lambda self: self.world.play.state.status in RETRIABLE)
    @rule()
    def retry(self) -> None:
        self.world.retry()

    @precondition(lambda self: self.world.flights)
    @rule(pick=numbers, landing=landings, outcome=st.one_of(replies, faulty))
    def land(self, pick: int, landing: Landing, outcome: Reply | Fault) -> None:
        flights = self.world.flights
        self.world.land(flights[pick % len(flights)], landing, outcome)

    @precondition(lambda self: self.world.play.state.in_flight)
    @rule(gone=st.booleans())
    def crash(self, *, gone: bool) -> None:
        self.world.crash(gone=gone)

    @rule(command=commands)
    def submit(self, command: cmd.Command) -> None:
        self.world.submit(command)

    @rule(command=takeovers)
    def take_over(self, command: cmd.Command) -> None:
        """A person acts in the agent's place, at any time."""
        self.world.submit(command)

    @precondition(lambda self: self.world.play.state.taken)
    @rule(command=turns, pick=numbers)
    def act_in_its_place(self, command: cmd.TakeTurn, pick: int) -> None:
        """Who has the run does what is to be done next."""
        state = self.world.play.state
        calls = list(state.calls)
        if calls:
            done = cmd.DoneByHand(by=state.taken, call=calls[pick % len(calls)], result=raw("x"))
            self.world.submit(done)
        else:
            self.world.submit(cmd.TakeTurn(by=state.taken, text=command.text, calls=command.calls))

    @precondition(lambda self: self.world.play.state.requests)
    @rule(yes=st.booleans())
    def decide_newest(self, *, yes: bool) -> None:
        self.world.decide_newest(yes=yes)

    @rule(pick=numbers, given=arguments)
    def edit(self, pick: int, given: str) -> None:
        """A person changes a call, at any time, to anything."""
        calls = list(self.world.play.state.calls) or ["c1"]
        self.world.submit(cmd.EditCall(call=calls[pick % len(calls)], arguments=given))

    @precondition(lambda self: CallStatus.TAKEOVER in statuses(self.world.play.state))
    @rule(verdict=st.sampled_from(("happened", "not_happened", "not_happened", "given_up")))
    def settle_doubt(self, verdict: str) -> None:
        self.world.settle_doubt(verdict)

    @precondition(lambda self: self.world.ghosts)
    @rule(ok=st.booleans())
    def late(self, *, ok: bool) -> None:
        """What was given up comes back after all."""
        self.world.submit(cmd.Late(call=self.world.ghosts.pop(), ok=ok, result=raw("late")))

    @rule(us=st.sampled_from((1, SECOND, 40 * SECOND, 100 * SECOND, 8 * DAY)))
    def time_passes(self, us: int) -> None:
        self.world.play.now += us

    @precondition(lambda self: wake_at(self.world.play.state) > self.world.play.now)
    @rule(early=st.booleans())
    def wake(self, *, early: bool) -> None:
        self.world.play.now = wake_at(self.world.play.state) - early

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.verify()


TestCore = pytest.mark.timeout(600)(CoreMachine.TestCase)  # more examples than other tests
TestCore.settings = hypothesis.settings(hypothesis.settings.default, report_multiple_bugs=False)
