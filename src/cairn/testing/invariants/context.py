"""The book of what is sent: the transcript as its events tell it, and what a view leaves out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from cairn.core import events as ev
from cairn.core.messages import CallPart, Message, Part, Record, ResultPart, Text, parse_object
from cairn.core.state import RunState
from cairn.core.view import View
from cairn.errors import ErrorClass
from cairn.testing.invariants.calls import CallBook
from cairn.testing.invariants.case import Case

WIDTH = {"query": 0, "generate": 1, "operate": 2}
"""What kinds of task may do, from the narrowest on."""
TRIES = 2
"""How often a model is asked beside the turns until a rule has to do."""
HEADINGS = (
    "Goal",
    "Constraints",
    "Key evidence",
    "Done",
    "Decisions",
    "Open",
    "Next",
    "Exact identifiers",
)
MOST_FACTS, FACT_CHARS = 8, 300
"""How much of a summary may be kept as facts."""
ANY = "*"
"""Stands for a text that the runtime words."""


class Mark(Record):
    """By what a message is known again: who speaks, the calls in it, the text of a person."""

    role: str
    calls: tuple[str, ...] = ()
    text: str = ANY

    def fits(self, other: Mark) -> bool:
        """Whether both may be of one message."""
        same = (self.role, self.calls) == (other.role, other.calls)
        return same and (self.text == other.text or ANY in {self.text, other.text})


class Expected(Record):
    """What a request for a turn must hold.

    Args:
        step, attempt: Which request it is.
        turn: How many outcomes of models came before it.
        head: The summary that stands first, None for none.
        left_out: Whether something before it is left out.
        marks: The messages behind that.
    """

    step: int
    attempt: int
    turn: int
    head: str | None
    left_out: bool
    marks: tuple[Mark, ...]


def mark_of(message: Message) -> Mark:
    """The mark of a message that is there."""
    calls = tuple(p.id for p in message.parts if isinstance(p, CallPart | ResultPart))
    said = text_of(message.parts) if message.role == "user" else ANY
    return Mark(role=message.role, calls=calls, text=said)


def text_of(parts: Sequence[Part]) -> str:
    """What a person wrote."""
    return "".join(part.content for part in parts if isinstance(part, Text))


class ContextBook:
    """Follows the messages of a run, which of them are sent, and what is asked beside the turns.

    Args:
        case: The run.
        calls: Its calls; it has taken each event in before this book does.
        first: The state after the first event, for a run that continues a conversation.

    Attributes:
        marks: The whole transcript.
        asked: Which of its messages are a person's requests.
        expected: What the last request for a turn must hold; None before the first.
    """

    def __init__(self, case: Case, calls: CallBook, first: RunState | None = None) -> None:
        self.case = case
        self.calls = calls
        self.marks: list[Mark] = []
        self.asked: list[int] = []
        self.expected: Expected | None = None
        self._view = View()
        self._summary = ""
        self._before: list[tuple[int, View, str]] = []
        self._open: tuple[str, ...] = ()
        self._request: ev.ModelRequested | None = None
        self._task = False
        self._draft: ev.ModelRequested | None = None
        self._tries = 0
        self._replies = 0
        self._step = 0
        self._turns = 0
        self._fed = self._classified = False
        self._said = ""
        self._keep: tuple[str, ...] = ()
        self._kept: set[int] = set()
        self._messages: dict[int, str] = {}
        self._begun = first is not None
        if first is not None:
            self.marks = [mark_of(message) for message in first.messages]
            self.asked = list(first.asked)
            self._view, self._summary = first.view, first.summary

    def see(self, entry: ev.Entry) -> None:
        """Take one event in."""
        handler = HANDLERS.get(type(entry.event))
        if handler is not None:
            handler(self, entry, entry.event)
        if self._open and self.calls.all_over and not self.case.over:
            self.marks.append(Mark(role="tool", calls=self._open))
            self._open = ()

    def agrees(self, state: RunState) -> None:
        """Whether the state's transcript is the one that the events tell: nothing leaves it."""
        same = len(state.messages) == len(self.marks) and all(
            mark.fits(mark_of(message))
            for mark, message in zip(self.marks, state.messages, strict=True)
        )
        there = f"{len(state.messages)} messages, and its events tell {len(self.marks)}"
        self.case.expect(same, "context", f"the transcript is another one: {there}")

    def close(self, state: RunState | None) -> None:
        """What can only be said of the whole."""
        if state is not None:
            self.agrees(state)

    # ---------------------------------------------------------------- the transcript

    def _say(self, text: str = ANY, *, asked: bool = False) -> None:
        if asked:
            self.asked.append(len(self.marks))
        self.marks.append(Mark(role="user", text=text))

    def _reply(self, parts: Sequence[Part]) -> None:
        self._open = tuple(part.id for part in parts if isinstance(part, CallPart))
        self.marks.append(Mark(role="assistant", calls=self._open))

    def created(self, entry: ev.Entry, event: ev.RunCreated) -> None:
        if not self._begun:
            self._say(text_of(event.input), asked=True)

    def queued(self, entry: ev.Entry, event: ev.InputQueued) -> None:
        self._messages[entry.seq] = text_of(event.parts)

    def given(self, entry: ev.Entry, event: ev.InputGiven) -> None:
        for seq in event.seqs:
            self._say(self._messages.pop(seq, ANY), asked=True)

    def turn_taken(self, entry: ev.Entry, event: ev.TakeoverTurn) -> None:
        self._step = entry.step
        self._reply(event.parts)

    def warned(self, entry: ev.Entry, event: ev.LimitWarned) -> None:
        self._say(event.note)

    def task_begun(self, entry: ev.Entry, event: ev.StepStarted) -> None:
        self._task, self._step = True, entry.step

    def task_ended(self, entry: ev.Entry, event: ev.Event) -> None:
        self._task = False
        if isinstance(event, ev.StepFailed) and event.disposition != "end":
            self._say()

    # ---------------------------------------------------------------- requests

    def requested(self, entry: ev.Entry, event: ev.ModelRequested) -> None:
        case = self.case
        case.expect(self._draft is None, "context", "a request before the last draft was settled")
        case.expect(not self._keep, "memory", f"asked before {len(self._keep)} facts were kept")
        if event.purpose == "turn":
            self._turn(entry, event)
        else:
            first = event.attempt == 1 and entry.step > self._step
            case.expect(first, "context", "what is asked beside the turns has no step of its own")
            again = self._tries < TRIES
            case.expect(again, "context", f"asked again after {self._tries} failures")
        if event.purpose == "summary":
            there = self._view.start < event.cut <= len(self.marks)
            case.expect(there, "context", f"what would be condensed up to {event.cut} is not sent")
            self._whole(event.cut)
        if event.purpose == "classify":
            early = not self._replies and not self._classified
            case.expect(early, "intake", "the kind of the task is asked for after work has begun")
        self._request, self._step = event, entry.step

    def _turn(self, entry: ev.Entry, event: ev.ModelRequested) -> None:
        case = self.case
        if event.view is not None:
            case.expect(event.view.start >= self._view.start, "context", "the view goes back")
            case.expect(
                event.view.start == self._view.start or not event.view.summary,
                "context",
                "messages are left out of the view and the summary is of others",
            )
            self._view = event.view
            self._whole(event.view.start)
            if not event.view.summary:
                self._summary = ""
        case.expect(
            event.messages == len(self.marks),
            "context",
            f"the request is made of {event.messages} messages, and there are {len(self.marks)}",
        )
        self._last_is_sent()
        rules = case.rules
        fed = self._fed or rules is None or not rules.feeds or self._replies or self._turns
        case.expect(fed, "intake", "the model is asked before it was fed")
        self._turns += 1
        view = self._view
        kept = (self.marks[view.asked],) if 0 <= view.asked < len(self.marks) else ()
        self.expected = Expected(
            step=entry.step,
            attempt=event.attempt,
            turn=self._replies,
            head=self._summary if view.summary else None,
            left_out=view.start > 0,
            marks=(*kept, *self.marks[view.start :]),
        )

    def _whole(self, start: int) -> None:
        """A view begins between turns: no answer is parted from its call."""
        apart = start < len(self.marks) and self.marks[start].role == "tool"
        self.case.expect(not apart, "context", f"a view from message {start} parts a call")

    def _last_is_sent(self) -> None:
        view = self._view
        last = self.asked[-1] if self.asked else -1
        there = last < 0 or last >= view.start or last == view.asked
        self.case.expect(there, "context", "the last request is not sent")

    def replied(self, entry: ev.Entry, event: ev.ModelCompleted) -> None:
        request, self._request = self._request, None
        if request is None or request.purpose == "turn":
            self._replies += 1
            self._reply(event.parts)
            return
        self._draft, self._said = request, " ".join(text_of(event.parts).split())
        calls = [part.id for part in event.parts if isinstance(part, CallPart)]
        self.case.expect(not calls, "context", "calls are taken from what is no turn")

    def failed(self, entry: ev.Entry, event: ev.ModelFailed) -> None:
        request, self._request = self._request, None
        if request is not None and request.purpose != "turn":
            self._tries += 1
            fine = event.disposition in {"retry", "degrade"}
            self.case.expect(fine, "context", f"a summary failed: {event.disposition}")
            return
        self._replies += not event.lost
        if event.disposition == "repair":
            self._say(event.note)

    def rejected(self, entry: ev.Entry, event: ev.ModelRejected) -> None:
        if event.error_class is ErrorClass.COMPACTION_FAILED:
            self.case.expect(self._draft, "intent", "a summary is refused and there is none")
            self._draft = None
            self._tries += 1
        elif event.disposition != "end":
            self._say(event.note)

    # ---------------------------------------------------------------- what is condensed

    def compacted(self, entry: ev.Entry, event: ev.ContextCompacted) -> None:
        case, draft = self.case, self._draft
        working = self._request is not None or self._task or self._open
        case.expect(not working, "context", "something is at work, and the context is condensed")
        on = self._view.start < event.start <= len(self.marks)
        case.expect(on, "context", f"condensed up to {event.start}, after {self._view.start}")
        self._whole(event.start)
        case.expect(event.after < event.before, "context", "what is condensed is no smaller")
        case.expect(
            event.asked < event.start and (event.asked < 0 or event.asked in self.asked),
            "context",
            f"message {event.asked} is kept and is no request before it",
        )
        if event.by == "model":
            of = draft is not None and draft.purpose == "summary" and draft.cut == event.start
            case.expect(of, "context", "a summary is adopted that no model has written")
            lines = {line.strip("#* :").casefold() for line in event.text.splitlines()}
            missing = [name for name in HEADINGS if name.casefold() not in lines]
            case.expect(not missing, "context", f"a summary without {', '.join(missing)}")
        self._to_keep(event)
        self._before.append((entry.seq, self._view, self._summary))
        self._view = View(
            start=event.start,
            summary=entry.seq,
            asked=event.asked,
            whole=event.whole,
            kept=event.kept,
        )
        self._summary, self._draft, self._tries = event.text, None, 0
        self._last_is_sent()

    def _to_keep(self, event: ev.ContextCompacted) -> None:
        """The facts beside an adopted summary are those of its model, few and short."""
        case, facts = self.case, event.keep
        case.expect(event.by == "model" or not facts, "memory", "a rule says what to remember")
        strange = [fact for fact in facts if fact not in self._said]
        case.expect(not strange, "memory", f"{strange} is to be kept, and no summary says it")
        few = len(facts) <= MOST_FACTS and all(len(fact) <= FACT_CHARS for fact in facts)
        case.expect(few, "memory", f"{len(facts)} facts, or longer ones, are to be kept")
        case.expect(len({*facts}) == len(facts), "memory", "a fact is to be kept twice")
        self._keep = facts

    def kept(self, entry: ev.Entry, event: ev.TurnKept) -> None:
        """Each fact of the summary adopted last is asked for once, and by nothing else."""
        case = self.case
        working = self._request is not None or self._open or self._task
        case.expect(not working, "memory", "facts are kept while something is at work")
        last = self._before[-1][0] if self._before else 0
        due = event.of == last and event.of not in self._kept and self._keep
        case.expect(due, "memory", f"what event {event.of} says is kept again, or does not stand")
        said = [(parse_object(part.arguments) or {}).get("text") for part in event.parts]
        once = len(set(said)) == len(said) and set(said) <= set(self._keep)
        case.expect(once, "memory", f"{said} are kept, and {list(self._keep)} were to be")
        named = {part.name for part in event.parts} <= {"remember"}
        case.expect(named, "memory", "what keeps a fact is another tool")
        whole = len(said) == len(self._keep) or event.why
        case.expect(whole, "memory", "a fact is left out, and nobody says why")
        self._kept.add(event.of)
        self._keep = ()
        if event.parts:
            step = entry.step == self._step + 1
            case.expect(step, "memory", "what keeps facts is no step of its own")
            self._step = entry.step

    def restored(self, entry: ev.Entry, event: ev.ContextRestored) -> None:
        case = self.case
        idle = self._request is None
        case.expect(idle, "context", "a model is being asked, and the context is taken back")
        last = self._before.pop() if self._before else (0, self._view, self._summary)
        case.expect(event.of == last[0], "context", f"{event.of} is not the last compaction")
        _, self._view, self._summary = last
        self._draft, self._keep = None, ()

    # ---------------------------------------------------------------- before work starts

    def fed(self, entry: ev.Entry, event: ev.TurnFed) -> None:
        case, rules = self.case, self.case.rules
        working = self._request is not None or self._open or self._task
        case.expect(not working, "intake", "it is fed while something is at work")
        case.expect(not self._fed, "intake", "it is fed a second time")
        case.expect(not self._replies, "intake", "it is fed after work has begun")
        case.expect(entry.step == self._step + 1, "intake", "what feeds it is no step of its own")
        if rules is not None and rules.feeds:
            said = [part.name for part in event.parts]
            wanted = [feed.tool for feed in rules.feeds]
            case.expect(said == wanted, "intake", f"it is fed by {said}, not by {wanted}")
        several = len(event.blocks) in {0, len(event.parts)}
        case.expect(several, "intake", "it is not said which block each call feeds")
        self._fed, self._step = True, entry.step
        self._reply(event.parts)

    def classified(self, entry: ev.Entry, event: ev.TaskClassified) -> None:
        case = self.case
        case.expect(not self._classified, "intake", "the task is classified a second time")
        case.expect(not self._replies, "intake", "it is classified after work has begun")
        wider = WIDTH[event.kind] > WIDTH[case.kind]
        case.expect(not wider, "intake", f"{event.kind} would widen {case.kind}")
        self._classified, self._draft, self._tries = True, None, 0
        case.kind = event.kind


HANDLERS: dict[type[ev.Event], Any] = {
    ev.RunCreated: ContextBook.created,
    ev.InputQueued: ContextBook.queued,
    ev.InputGiven: ContextBook.given,
    ev.TakeoverTurn: ContextBook.turn_taken,
    ev.LimitWarned: ContextBook.warned,
    ev.StepStarted: ContextBook.task_begun,
    ev.StepCompleted: ContextBook.task_ended,
    ev.StepFailed: ContextBook.task_ended,
    ev.StepLost: ContextBook.task_ended,
    ev.ModelRequested: ContextBook.requested,
    ev.ModelCompleted: ContextBook.replied,
    ev.ModelFailed: ContextBook.failed,
    ev.ModelRejected: ContextBook.rejected,
    ev.ContextCompacted: ContextBook.compacted,
    ev.ContextRestored: ContextBook.restored,
    ev.TurnFed: ContextBook.fed,
    ev.TurnKept: ContextBook.kept,
    ev.TaskClassified: ContextBook.classified,
}
