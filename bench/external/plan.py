"""Which trials there are: every case, and every position in it where something can go wrong."""

import copy
from collections.abc import Iterator
from contextlib import suppress

from suites.case import Case, Failed, Suite
from trial import Trial

PLACES = ("before", "after", "outcome", "reply")


def writers(suite: Suite) -> tuple[set[str], list[str]]:
    """The tools that have an effect, found out by executing the truth without the runtime.

    A tool that never changed the simulator in any case only reads; one that is never called may
    write. Second, what the third party says against its own truth: nothing, if all is well.
    """
    quiet, loud, problems = set[str](), set[str](), []
    for case in suite.cases:
        world = suite.world(case)
        before = world.snapshot()
        keys = {key.rpartition("/")[2]: key for turn in case.turns for key in turn.offered}
        for call in case.calls:
            with suppress(Failed):  # the truth goes on after an error, and so does this
                world.call(call.tool, copy.deepcopy(call.arguments))
            now = world.snapshot()
            (quiet if now == before else loud).add(keys[call.tool])
            before = now
        problems += [f"{case.id}: {p}" for p in world.judge(case.turns[-1].answer, case.calls)]
    return set(suite.offers) - (quiet - loud), problems


def writes(case: Case, writers: set[str]) -> list[int]:
    """At which calls of the case, from 1, something is written."""
    keys = {key.rpartition("/")[2]: key for turn in case.turns for key in turn.offered}
    return [n for n, call in enumerate(case.calls, 1) if keys[call.tool] in writers]


def trials(suite: Suite, writers: set[str], mode: str) -> Iterator[Trial]:
    """All trials of one mode.

    * clean: each case once.
    * kill: with a probe at every place of every call and reply; with a person who is asked, at
      the two places of every write where the outcome is unknown.
    * careless: as kill, after each write, with tools that say wrongly that they may be repeated:
      whether all this would notice a runtime that repeats.
    * timeout: the answer to each call comes too late once; with a person, to each write.
    * double: each write twice, without the runtime: whether the end state would show it.
    """
    for n, case in enumerate(suite.cases):
        of = {"suite": suite.name, "case": n, "mode": mode}
        every = range(1, len(case.calls) + 1)
        written = writes(case, writers)
        match mode:
            case "clean":
                yield Trial(**of)
            case "kill":
                for place in PLACES:
                    count = case.replies if place == "reply" else len(case.calls)
                    for at in range(1, count + 1):
                        yield Trial(**of, place=place, at=at)
                for place in ("before", "after"):
                    yield from (Trial(**of, recovery="once", place=place, at=at) for at in written)
            case "careless":
                for at in written:
                    if not case.calls[at - 1].error:  # what was refused may well be sent again
                        yield Trial(**of, recovery="repeat", place="after", at=at)
            case "timeout":
                yield from (Trial(**of, at=at) for at in every)
                yield from (Trial(**of, recovery="once", at=at) for at in written)
            case "double":
                yield from (Trial(**of, at=at) for at in written)
