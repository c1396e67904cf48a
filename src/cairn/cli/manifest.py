"""What a request held, as a table."""

from __future__ import annotations

from rich.table import Table

from cairn.cli.paint import console
from cairn.cli.plain import json_line, visible
from cairn.cli.say import print_line, write
from cairn.core.views import Manifest

HEADS = ("", "block", "source", "place", "tokens", "hash", "why")


def print_manifest(found: Manifest, *, json: bool) -> None:
    """Print it, for people or as one JSON object."""
    if json:
        write(json_line(found))
        return
    what = "" if found.purpose == "turn" else f" to {visible(found.purpose)}"
    print_line(f"step {found.step}, event {found.seq}: a request to {visible(found.model)}{what}")
    table = Table(box=None, pad_edge=False, header_style="bold")
    for head in HEADS:
        table.add_column(head, justify="right" if head == "tokens" else "left", overflow="fold")
    for line in found.lines:
        table.add_row(
            "in" if line.sent else "out",
            visible(line.name),
            visible(line.source),
            line.place,
            f"{line.tokens:,}",
            line.hash,
            visible(line.why),
        )
    console(table=True).print(table)
    offered = f"tools {found.tools}" if found.tools else "no tools"
    cached = "no request before it to compare it with"
    if found.before:
        cached = f"{found.unchanged:.1%} of the request before stands unchanged at its beginning"
    print_line(f"about {found.tokens:,} tokens beside the tools; {offered}; {cached}")
