"""The command line: `cairn run`, `trace`, `approve` and the rest, over store and runtime.

Typer and Rich are imported only in this room, and the runtime only by commands that drive runs.
"""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command line and exit with the code it says."""
    for stream in (sys.stdout, sys.stderr):
        reconfigure = getattr(stream, "reconfigure", None)
        if reconfigure is not None:  # a narrow encoding must not turn a result into a traceback
            reconfigure(errors="backslashreplace")
    from cairn.cli.entry import app

    app(prog_name="cairn")
