"""The index row of a run: what lists, inboxes and workers look for without folding.

It is written in the transaction of the events it follows from and can be rebuilt from them.
"""

from __future__ import annotations

from typing import Literal

from cairn.core.lifecycle import PERSON, CallStatus
from cairn.core.messages import Record
from cairn.core.state import RunState, ending, waits, wake_at
from cairn.errors import ErrorClass


class Pending(Record):
    """Something a run waits for from people.

    Args:
        id: What to name when deciding it: `run/3` for a request, `run/c4` for an unknown effect,
            `run/takeover` for a run in which a person acts in the agent's place.
        kind: What is wanted.
        call: The tool call it is about, empty for a question of the runtime.
        tool: The tool's name.
        detail: The arguments as they stand, what is unknown, or who acts.
        digest: Binds a decision to what was shown.
        expires_at: Microseconds since 1970, 0 for never.
    """

    id: str
    kind: Literal["approval", "input", "takeover", "in_doubt"]
    call: str = ""
    tool: str = ""
    detail: str = ""
    digest: str = ""
    expires_at: int = 0

    def __str__(self) -> str:
        if self.id.endswith("/takeover"):
            run = self.id.removesuffix("/takeover")
            return f"{self.id}: {self.detail} acts in its place - cairn takeover {run} --hand-back"
        verb = {
            "approval": f"cairn approve {self.id}",
            "input": f"cairn answer {self.id} TEXT",
            "takeover": f"cairn resolve {self.id} --happened --result TEXT",
            "in_doubt": f"cairn resolve {self.id} --happened | --not-happened | --give-up",
        }[self.kind]
        return f"{self.id}: {f'{self.kind} {self.wanted}'.strip()} - {verb}"

    @property
    def wanted(self) -> str:
        """What is to be decided: a call with its arguments, or a question."""
        return f"{self.tool}({self.detail})" if self.tool else self.detail


NOISY = frozenset({*PERSON, CallStatus.RETRYING, CallStatus.UNKNOWN})


class Index(Record):
    """What the run table shows of a run."""

    status: str
    wake_at: int = 0
    waits: tuple[str, ...] = ()
    pending: tuple[Pending, ...] = ()
    steps: int = 0
    tokens: int = 0
    micro_usd: int = 0
    unread: int = 0
    """Messages it had not read when it ended; a store says 0 once a later run has them."""


def index_of(state: RunState) -> Index:
    """The index row that follows from a state."""
    if _quiet(state):
        return Index(
            status=state.status.value,
            steps=state.spent.steps,
            tokens=state.usage.tokens,
            micro_usd=state.usage.micro_usd,
            unread=unread_of(state),
        )
    return Index(
        status=state.status.value,
        wake_at=wake_at(state),
        waits=tuple(sorted(waits(state))),
        pending=pending_of(state),
        steps=state.spent.steps,
        tokens=state.usage.tokens,
        micro_usd=state.usage.micro_usd,
        unread=unread_of(state),
    )


def unread_of(state: RunState) -> int:
    """How many messages a run had not read when it ended, 0 while it goes on."""
    return len(state.sent) if state.end is not None else 0


def _quiet(state: RunState) -> bool:
    """Whether nothing waits for time or people: by far the most states."""
    if state.question or state.retry_at or state.taken:
        return False
    return not any(call.status in NOISY for call in state.calls.values())


def persons_answer(state: RunState) -> bool:
    """Whether the run is about to end with an answer that a person gave."""
    return bool(state.answer) and state.answer == state.given


def pending_of(state: RunState) -> tuple[Pending, ...]:
    """All that waits for people, in order; unknown effects stay listed after the end.

    A run that is ending asks nobody for anything any more.
    """
    found: list[Pending] = []
    going_on = state.end is None and not ending(state)
    for call in state.calls.values():
        if call.status is CallStatus.TAKEOVER:
            doubt = call.error_class is ErrorClass.IN_DOUBT
            found.append(
                Pending(
                    id=f"{state.run}/{call.id}",
                    kind="in_doubt" if doubt else "takeover",
                    call=call.id,
                    tool=call.tool,
                    detail=call.arguments,
                )
            )
        elif going_on and call.status in {CallStatus.ASKING, CallStatus.QUESTION}:
            asking = call.status is CallStatus.ASKING
            found.append(
                Pending(
                    id=f"{state.run}/{call.approval}",
                    kind="approval" if asking else "input",
                    call=call.id,
                    tool=call.tool,
                    detail=call.arguments,
                    digest=call.digest,
                    expires_at=call.expires_at if asking else 0,
                )
            )
    if state.taken and going_on and not persons_answer(state):
        found.append(Pending(id=f"{state.run}/takeover", kind="takeover", detail=state.taken))
    if state.question and going_on:
        found.append(Pending(id=f"{state.run}/{state.question}", kind="input"))
    return tuple(found)
