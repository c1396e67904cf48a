"""The live view of a run on a terminal: events above, and how it stands below, redrawn."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Self, assert_never

from rich.console import Group, RenderableType
from rich.live import Live as RichLive
from rich.text import Text

from cairn.cli.paint import console, line, styled
from cairn.cli.plain import WANTED, arguments_line, count, money, span, visible, visible_line
from cairn.cli.teller import LineTeller
from cairn.core.events import Entry
from cairn.core.evolve import evolve
from cairn.core.lifecycle import CallStatus
from cairn.core.limits import Limits
from cairn.core.state import Call, RunState
from cairn.errors import ErrorClass
from cairn.ports import Delta, Discard, Observed, Progress

TAIL_LINES = 8
TAIL_CHARS = 4_000
REDRAWS_PER_S = 8
SHOWN_CALLS = 16


class Live:
    """Folds the run as it is told of, and draws it.

    Args:
        run: Its id.
        known: Events up to this number are folded but not shown again.
        only: Beginnings of the names of events that are shown.
    """

    def __init__(self, run: str, known: int, only: tuple[str, ...]) -> None:
        self._only = only
        self._state = RunState(run=run, alone=True)
        self._known = known
        self._teller = LineTeller()
        self._seen_at = time.monotonic()
        self._text = ""
        self._progress: dict[str, str] = {}
        self._console = console()
        self._live = RichLive(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=REDRAWS_PER_S,
            transient=True,
        )

    def __enter__(self) -> Self:
        self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._live.stop()

    def say(self, text: str) -> None:
        """A line above the drawing."""
        self._console.print(Text(visible(text), style="bold"))

    def show(self, what: Observed) -> None:
        """Fold an event and print its line; keep streamed text until its reply is whole."""
        match what:
            case Entry():
                self._state = evolve(self._state, what)
                self._seen_at = time.monotonic()
                text = visible(self._teller.tell(what)).replace("\n", " ")
                if what.seq > self._known and what.event.NAME.startswith(self._only):
                    self._console.print(Text(text, style="dim"), no_wrap=True, overflow="ellipsis")
                if what.event.NAME.startswith("model."):
                    self._text = ""
            case Delta():
                self._text = (self._text + what.text)[-TAIL_CHARS:]
            case Discard():
                self._text = ""
            case Progress():
                done = f" {what.fraction:.0%}" if what.fraction is not None else ""
                self._progress[what.call] = f"{what.message}{done}"
            case _:
                assert_never(what)

    # ------------------------------------------------------------ drawing

    def _draw(self) -> RenderableType:
        state = self._state
        if not state.seq:
            return Text("")
        calls = [c for c in state.calls.values() if not c.closed][:SHOWN_CALLS]
        rows: list[RenderableType] = [self._head(state)]
        rows += [self._call(call) for call in calls]
        if self._text:
            tail = visible(self._text).splitlines()[-TAIL_LINES:]
            rows.append(Text("\n".join(tail)))
        return Group(*rows)

    def _head(self, state: RunState) -> Text:
        since = int((time.monotonic() - self._seen_at) * 1e6)
        return _one_line(
            Text(f"● {state.run}", style="bold"),
            styled(state.status.value),
            f"step {state.step}",
            span(state.at - self._teller.begun + since),
            f"{state.usage.tokens:,} tokens",
            money(state.usage.micro_usd),
            f"left: {left(state)}",
        )

    def _call(self, call: Call) -> Text:
        doubt = call.error_class is ErrorClass.IN_DOUBT
        waits = {
            CallStatus.ASKING: f"waits for approval {call.approval}",
            CallStatus.QUESTION: f"asks {call.approval}",
            CallStatus.TAKEOVER: WANTED["in_doubt" if doubt else "takeover"],
        }.get(call.status, "")
        again = f"attempt {call.attempt}" if call.attempt > 1 else ""
        return _one_line(
            f"  {call.id} {visible_line(call.tool, 40)}({arguments_line(call.arguments, 60)})",
            styled(call.status.value),
            again,
            waits or visible_line(self._progress.get(call.id, ""), 60),
        )


def _one_line(*pieces: str | Text) -> Text:
    text = line(*pieces)
    text.no_wrap, text.overflow = True, "ellipsis"
    return text


def left(state: RunState) -> str:
    """What of its limits a run has left."""
    limits: Limits = state.limits
    spent = state.spent
    return (
        f"{money(limits.micro_usd - state.usage.micro_usd)}, "
        f"{count(limits.steps - spent.steps, 'step')}, "
        f"{count(limits.calls - spent.calls, 'call')}, "
        f"{count(limits.tokens - state.usage.tokens, 'token')}"
    )
