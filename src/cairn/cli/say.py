"""The plainest way to say something: a safe line on standard output or standard error."""

from __future__ import annotations

import sys

from cairn.cli.plain import visible


def print_line(text: str) -> None:
    """A safe line on standard output, at once."""
    sys.stdout.write(" ".join(visible(text).splitlines()) + "\n")
    sys.stdout.flush()


def complain(message: str) -> None:
    """A safe line on standard error, with the command's name in front."""
    sys.stderr.write(f"cairn: {' '.join(visible(message).split())}\n")
    sys.stderr.flush()
