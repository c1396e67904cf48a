"""What redaction on write costs: for each event, for texts that are hard to search, for a turn.

    python bench/redaction.py [--json]

Everything is measured on this machine in this minute: the best of five rounds, in microseconds.
"Again" is the second time, as what landed is redacted once more when it is recorded.
"""

from __future__ import annotations

import base64
import json
import random
import sys
import time
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from cairn import Agent, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.codec import encode
from cairn.core.limits import Reservation, Usage
from cairn.core.messages import CallPart, Text
from cairn.core.redaction import Redaction
from cairn.core.remembered import Remembered
from cairn.core.secrets import Finder
from cairn.governance.secrets import Secrets

ROUNDS = 5
PROSE = "The order was shipped on Monday and should arrive before the end of the week. "
REGISTERED = (0, 1, 20, 100)
TURNS = 40


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
    """For each event: encoding it, redaction by the number of registered secrets, and again."""
    registries = {count: registry(count) for count in REGISTERED}
    for name, event in events().items():
        row = {"encode": best(lambda event=event: encode(event))}
        for count, secrets in registries.items():
            row[str(count)] = best(lambda event=event, secrets=secrets: first(event, secrets))
        seal = registries[20].of()
        once = seal.value(event)
        row["again"] = best(lambda once=once, seal=seal: seal.value(once))
        yield name, row


def first(event: ev.Event, secrets: Secrets) -> ev.Event:
    """What an event becomes whose texts nobody has seen: nothing is as quick as a known one."""
    seal = secrets.of()
    seal._registry.finder.clean = Remembered()  # noqa: SLF001 - what was found clean is forgotten
    return seal.value(event)


def hard() -> Iterable[tuple[str, dict[str, float]]]:
    """16 KB of texts that could hold an encoded secret, by the length of the one registered."""
    chance = random.Random(1)  # noqa: S311 - the same texts each time, nothing secret
    long_words = (
        "Notwithstanding unforeseeable circumstances, understanding developers procrastinate. "
    )
    hashes = [{"id": n, "sha": chance.randbytes(20).hex()} for n in range(240)]
    texts = {
        "prose": PROSE * 210,
        "long words": long_words * 195,
        "hashes in JSON": json.dumps(hashes),
        "base64 of an image": base64.b64encode(chance.randbytes(12_288)).decode(),
        "base64 of prose": base64.b64encode((PROSE * 157).encode()).decode(),
        "hex": chance.randbytes(8_192).hex(),
    }
    for name, text in texts.items():
        row = {}
        for secret in ("hunter", "correct-horse", "k000Zq7" + "x9Vb2" * 7):
            finder = Finder([secret])
            row[str(len(secret))] = best(lambda finder=finder, text=text: finder.near(text))
        yield name, row


def turns() -> Iterable[tuple[str, dict[str, float]]]:
    """A turn in memory, with a call: all of it, what redaction takes as it lands, and again."""
    for rows in (1, 8, 100):
        for count in (0, 1, 20):
            rounds = [_turn(rows, registry(count)) for _ in range(ROUNDS)]
            row = {key: min(each[key] for each in rounds) for key in rounds[0]}
            yield f"{rows * 130} bytes of result, {count} registered", row


def _turn(rows: int, secrets: Secrets) -> dict[str, float]:
    result = {"rows": [{"id": n, "state": "shipped", "note": PROSE} for n in range(rows)]}

    @tool(effect="read")
    def find(order: str) -> dict[str, Any]:
        """Find an order."""
        return {**result, "order": order}

    def model(request: Any) -> Any:
        said = f"Turn {request.turn}. {PROSE}"
        last = request.turn >= TURNS
        return said if last else [said, call("find", order=f"A-{request.turn:04}")]

    spent = {"first": 0.0, "again": 0.0}
    value = Redaction.value

    def timed(redaction: Redaction, what: Any) -> Any:
        begun = time.perf_counter()
        hidden = value(redaction, what)
        kind = "first" if type(what).__module__.startswith("cairn.engine") else "again"
        spent[kind] += time.perf_counter() - begun
        return hidden

    Redaction.value = timed  # type: ignore[method-assign]  # only while this is measured
    try:
        with Runtime(
            ":memory:", [Agent("a", Scripted(model), tools=[find])], secrets=secrets
        ) as rt:
            begun = time.process_time()
            run = rt.run("a", "go", id="r")
            turn = time.process_time() - begun
    finally:
        Redaction.value = value  # type: ignore[method-assign]  # as it was
    assert run.status == "completed", run
    return {key: us / TURNS * 1e6 for key, us in {"turn": turn, **spent}.items()}


def main() -> None:
    """Print the tables."""
    tables = {"event": dict(figures()), "16 KB of": dict(hard()), "turn": dict(turns())}
    if "--json" in sys.argv[1:]:
        print(json.dumps(tables))
        return
    heads = {
        "event": ["encode", *(f"{count} registered" for count in REGISTERED), "again"],
        "16 KB of": ["a secret of 6", "of 13", "of 42 characters"],
        "turn": ["all of it", "redaction", "again"],
    }
    for name, found in tables.items():
        print(f"| {name} | {' | '.join(heads[name])} |\n|{' --- |' * (len(heads[name]) + 1)}")
        for what, row in found.items():
            print(f"| {what} | {' | '.join(f'{us:.1f}' for us in row.values())} |")
        print()


if __name__ == "__main__":
    main()
