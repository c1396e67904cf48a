"""The figures of `make bench`, as a page tells them: the newest file under docs/figures."""

from __future__ import annotations

import json
from typing import Any

from rendering.spelling import DOCS, table


def figures() -> str:
    """Where and when they were taken, every figure beside its target, and how many are met."""
    file = max((DOCS / "figures").glob("*.json"))
    found = json.loads(file.read_text(encoding="utf-8"))
    machine = found["machine"]
    taken = [f"Taken on {file.stem}: Cairn {machine['cairn']}", f"Python {machine['python']}"]
    taken += [f"SQLite {machine['sqlite']}", machine["system"], f"load {machine['load']}"]
    rows = [
        (row["group"], row["what"], number(row), target(row), verdict(row), row["note"])
        for row in found["rows"]
    ]
    aimed = [row for row in found["rows"] if row["met"] is not None]
    met = f"{sum(row['met'] for row in aimed)} of {len(aimed)} targets are met."
    broken = [f"Not measured: {line}" for line in found["broken"]]
    head = ("", "what", "figure", "target", "verdict", "how")
    return "\n\n".join([", ".join(taken) + ".", table(head, rows), met, *broken])


def number(row: dict[str, Any]) -> str:
    """Three figures that mean something, and their unit."""
    value = row["value"]
    places = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{places}f} {row['unit']}".strip()


def target(row: dict[str, Any]) -> str:
    if row["bound"] is None:
        return "none"
    return f"{'at least' if row['least'] else 'at most'} {row['bound']:,.10g}"


def verdict(row: dict[str, Any]) -> str:
    if row["met"] is None:
        return ""
    return "met" if row["met"] else f"**not met**, by {row['share_of_target']:.2g}x"
