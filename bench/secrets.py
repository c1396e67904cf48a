"""What redaction on write costs for each event, beside encoding the same event for the store.

    python bench/secrets.py [--json]

Everything is measured on this machine in this minute: the best of five rounds, in microseconds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterable

import msgspec

from cairn.core import events as ev
from cairn.core.codec import encode
from cairn.core.limits import Reservation, Usage
from cairn.core.messages import CallPart, Text
from cairn.governance.secrets import Secrets

ROUNDS = 5
PROSE = "The order was shipped on Monday and should arrive before the end of the week. "
REGISTERED = (0, 1, 20, 100)


def events() -> dict[str, ev.Event]:
    """One event of each kind that a turn writes, and large ones."""
    call = CallPart(id="c7", name="find", arguments='{"order": "A-1007", "fields": ["state"]}')
    rows = [{"id": n, "state": "shipped", "note": PROSE} for n in range(130)]
    return {
        "model.requested": ev.ModelRequested(
            model="openai:gpt-5",
            reserved=Reservation(input_tokens=900, output_tokens=4_096),
            messages=12,
        ),
        "model.completed, 200 characters": ev.ModelCompleted(
            parts=(Text(PROSE * 2 + PROSE[:44]), call), usage=Usage(input_tokens=900)
        ),
        "model.completed, 4 KB": ev.ModelCompleted(parts=(Text(PROSE * 52),)),
        "tool.started": ev.ToolStarted(
            call="c7", effect="read", recovery="repeat", rule="default: read"
        ),
        "tool.completed, 200 bytes": ev.ToolCompleted(
            call="c7", result=msgspec.Raw(json.dumps({"state": PROSE * 2}).encode())
        ),
        "tool.completed, 16 KB of JSON": ev.ToolCompleted(
            call="c7", result=msgspec.Raw(json.dumps(rows).encode())
        ),
        "tool.completed, 16 KB of Chinese": ev.ToolCompleted(
            call="c7",
            result=msgspec.Raw(json.dumps("订单已发货，" * 900, ensure_ascii=False).encode()),
        ),
    }


def best(work: Callable[[], object], *, seconds: float = 0.05) -> float:
    """Microseconds of one call, the best of some rounds."""
    begun = time.perf_counter()
    work()
    times = max(1, int(seconds / max(time.perf_counter() - begun, 1e-7)))
    found = []
    for _ in range(ROUNDS):
        begun = time.perf_counter()
        for _ in range(times):
            work()
        found.append((time.perf_counter() - begun) / times)
    return min(found) * 1e6


def registry(count: int) -> Secrets:
    """A registry of so many keys of forty characters."""
    return Secrets({f"key{n}": f"k{n:03}Zq7" + "x9Vb2" * 7 for n in range(count)})


def figures() -> Iterable[tuple[str, dict[str, float]]]:
    """For each event: encoding it, then redaction by the number of registered secrets."""
    registries = {count: registry(count) for count in REGISTERED}
    for name, event in events().items():
        row = {"encode": best(lambda event=event: encode(event))}
        for count, secrets in registries.items():
            # a new redaction each time: nothing is as quick as a text that it has seen before
            work = lambda event=event, secrets=secrets: secrets.of().value(event)  # noqa: E731 - short
            row[str(count)] = best(work)
        yield name, row


def main() -> None:
    """Print the table."""
    found = dict(figures())
    if "--json" in sys.argv[1:]:
        print(json.dumps(found))
        return
    heads = " | ".join(f"{count} registered" for count in REGISTERED)
    print(f"| event | encode | {heads} |\n|{' --- |' * (len(REGISTERED) + 2)}")
    for name, row in found.items():
        print(f"| {name} | {' | '.join(f'{us:.1f}' for us in row.values())} |")


if __name__ == "__main__":
    main()
