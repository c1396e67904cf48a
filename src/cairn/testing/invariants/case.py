"""A broken promise in words, and what the books of one check share."""

from __future__ import annotations

from dataclasses import dataclass, field

from cairn.core.limits import Limits
from cairn.core.messages import Record
from cairn.core.rules import Rules

NAMES = {
    "gapless": "events are numbered 1, 2, 3, … without a gap",
    "time": "the times of a run never fall",
    "chain": "every row is chained to the one before it, and none was changed",
    "legal": "every event is allowed where it stands, and can be folded",
    "final": "each call ends in exactly one final state; a completed run has none open",
    "once": "no effect happens twice unless its recovery allows it",
    "verdict": "no call starts without a verdict of the policy in force",
    "approval": "what needs a person runs on one unexpired approval of exactly this call",
    "order": "calls of one reply keep their order where one is a write",
    "limits": "no work begins beyond a limit; an excess is no more than was measured late",
    "usage": "what a run has used is the sum of what its events say",
    "index": "the run's row says what its events say",
    "messages": "the message list is well-formed at every request",
    "input": "every message is given once, and none is left unread by a run that completed",
    "intent": "an outcome comes after its intent, an effect after its intent is durable",
    "stopped": "nothing new begins while a run is paused, cancelled or ending",
    "end": "after the end only late outcomes and their resolution are written",
    "fenced": "only the owner writes as one, and every claim is a new right",
    "acknowledged": "what was acknowledged is still there",
    "alive": "nothing is at work or claimed after the end",
    "settled": "once nothing disturbs it any more, every run comes to its end",
    "inside": "the runtime itself does not fail",
    "known": "an outcome that a living process knew is written",
    "patience": "nothing is tried again sooner than was said",
    "session": "runs of a session go on one by one, and each of its messages is read once",
    "context": "what is sent is the transcript or a checked summary of its beginning; the last "
    "request is always in it, no pair is parted, and nothing ever leaves the transcript",
    "memory": "what was remembered is there once, and is told only where it counts and belongs; "
    "each fact of an adopted summary is asked to be kept once, before the next request",
    "rewound": "a session goes on from where it stands, and what was left behind is not done again",
    "shown": "a search shows what was said in its own conversation, and finds what stands there",
    "erased": "nothing of who was erased can be read, and nothing else is gone",
    "intake": "a task's kind is settled once and only narrows; what feeds it comes once, before",
}
"""Every invariant by its name."""


class Violation(Record):
    """A promise that does not hold.

    Args:
        name: Which one, a key of `NAMES`.
        run: In which run.
        seq: At which of its events, 0 for the run as a whole.
        text: What was found, as a sentence.
    """

    name: str
    run: str
    seq: int
    text: str

    def __str__(self) -> str:
        where = f"{self.run}#{self.seq}" if self.seq else self.run
        return f"[{self.name}] {where}: {self.text}"


@dataclass
class Case:
    """One run under examination."""

    run: str
    rules: Rules | None
    found: list[Violation] = field(default_factory=list)
    limits: Limits = field(default_factory=Limits)
    seq: int = 0
    paused: bool = False
    ending: bool = False
    over: bool = False
    kind: str = "operate"
    approvals: str = "ask"

    def say(self, name: str, text: str) -> None:
        """Note a broken promise at the present event."""
        self.found.append(Violation(name=name, run=self.run, seq=self.seq, text=text))

    def expect(self, holds: object, name: str, text: str) -> None:
        """Note a broken promise unless it holds."""
        if not holds:
            self.say(name, text)
