"""What a suite gives: its cases as plain data, and a world for each."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol


class Failed(Exception):
    """The simulator answered a call with an error."""


@dataclass(frozen=True)
class Call:
    """A call of the truth, and what the simulator answered when the data was made.

    Attributes:
        result: The answer; None with `error` empty may also mean that none was recorded.
        error: What it said instead of an answer.
        whole: How much of a text answer was kept; 0 for all of it.
        known: Whether anything was recorded at all.
    """

    tool: str
    arguments: dict[str, Any]
    result: Any = None
    error: str = ""
    whole: int = 0
    known: bool = True


@dataclass(frozen=True)
class Turn:
    """What the user says, what the model then calls (one list per reply), and how it ends."""

    user: str
    replies: tuple[tuple[Call, ...], ...]
    answer: str
    offered: tuple[str, ...]


@dataclass(frozen=True)
class Offer:
    """A tool as the third party describes it."""

    name: str
    description: str
    parameters: dict[str, Any]


@dataclass(frozen=True)
class Case:
    """One task of a suite. `raw` is the suite's own record of it."""

    id: str
    turns: tuple[Turn, ...]
    raw: Any = field(repr=False)

    @property
    def calls(self) -> list[Call]:
        """Every call of the truth, in order."""
        return [call for turn in self.turns for reply in turn.replies for call in reply]

    @property
    def replies(self) -> int:
        """How often the model is asked."""
        return sum(len(turn.replies) + 1 for turn in self.turns)


class World(Protocol):
    """One simulator with its state, as one case starts it."""

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Execute a call. Raises `Failed`."""
        ...

    def snapshot(self) -> str:
        """A digest of everything: another one means that a call had an effect."""
        ...

    def judge(self, answer: str, calls: list[Call]) -> list[str]:
        """What keeps the state from being the one the third party wants; empty when it is.

        Args:
            answer: The final answer of the run.
            calls: The truth that was expected to be executed.
        """
        ...


class Suite(Protocol):
    """A third-party package and the cases given of it."""

    name: str
    cases: list[Case]
    offers: dict[str, Offer]

    def world(self, case: Case) -> World:
        """A fresh simulator for the case, in this process."""
        ...


def lines(path: Path) -> Iterable[Any]:
    """The records of a JSON lines file."""
    import json

    with path.open(encoding="utf-8") as file:
        for line in file:
            yield json.loads(line)
