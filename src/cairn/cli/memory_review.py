"""What `cairn memory review` does with the facts that are named, one after the other."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from cairn.cli import exits
from cairn.cli.changed import tell
from cairn.cli.say import complain
from cairn.errors import Refused, UnknownRun
from cairn.memory.facts import Trust
from cairn.memory.port import Memory


async def check_reviewable(
    found: Memory, numbers: Sequence[int], now: int, *, accept: bool
) -> None:
    """Refuse the whole of it while nothing is done.

    Raises:
        UnknownRun: a fact is not there. Refused: one was replaced, or is to be accepted and has
            expired.
    """
    for n in numbers:
        fact = await found.get(n)
        if fact.state == "superseded" and await found.gone(fact.successor) is None:
            raise Refused(f"m{n} was replaced: nothing is left to review. Nothing was done")
        if accept and fact.expired(now):
            raise Refused(f"m{n} has expired: nothing is left to accept. Nothing was done")


async def review_all(
    found: Memory,
    numbers: Sequence[int],
    verdict: Literal["accepted", "rejected"],
    *,
    trust: Trust,
    reason: str,
    actor: str,
    now: Callable[[], int],
    json: bool,
) -> int:
    """Decide about each fact and say what became of it; how the command ends.

    One whose place another of them has taken by now is not decided about any more, and that is
    said. What cannot be done because of somebody else is said too, and holds none of the rest up.
    """
    ended = exits.DONE
    for at, n in enumerate(numbers):
        try:
            if by := await _replaced_by(found, n, numbers[:at]):
                said = f"m{n} is kept as history: {by} has taken its place"
                tell(json, "replaced", f"m{n}", said, by=by)
                continue
            await found.review(n, verdict, now(), actor=actor, trust=trust, reason=reason)
            of = await _confirmed(found, n) if verdict == "accepted" else ""
        except (Refused, UnknownRun) as error:  # it was replaced, removed, or has expired meanwhile
            complain(str(error))
            ended = exits.REFUSED
            continue
        same = f": it says what {of} says, which is confirmed" if of else ""
        more: dict[str, Any] = {"confirms": of} if of else {}
        tell(json, verdict, f"m{n}", f"m{n} is {verdict}{same}", **more)
    return ended


async def _replaced_by(found: Memory, n: int, before: Sequence[int]) -> str:
    """Which of the facts that were decided about before stands in its place; empty for none."""
    fact = await found.get(n)
    return f"m{fact.successor}" if fact.state == "superseded" and fact.successor in before else ""


async def _confirmed(found: Memory, n: int) -> str:
    """The fact that one which was accepted just now has confirmed; empty for none."""
    fact = await found.get(n)
    return f"m{fact.successor}" if fact.state == "superseded" else ""
