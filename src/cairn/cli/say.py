"""The plainest way to say something: safe text on standard output or standard error."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from typing import TextIO

from cairn.cli.plain import visible


def write(text: str) -> None:
    """Text that is already safe, on standard output, at once.

    A reader that has gone away (as `head` does) ends the output, not the run.
    """
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        silence(sys.stdout)


def silence(stream: TextIO) -> None:
    """Send what is still written to a stream nowhere, so that closing it fails no more."""
    with suppress(OSError, ValueError):  # a stream of a test has no file behind it
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, stream.fileno())
        os.close(nowhere)


def print_line(text: str) -> None:
    """A safe line on standard output."""
    write(" ".join(visible(text).splitlines()) + "\n")


def complain(message: str) -> None:
    """A safe line on standard error, with the command's name in front."""
    with suppress(BrokenPipeError):
        sys.stderr.write(f"cairn: {' '.join(visible(message).split())}\n")
        sys.stderr.flush()
