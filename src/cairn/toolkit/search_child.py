"""The process in which a regular expression of a model runs: contents in, places out.

It imports nothing of Cairn and opens nothing. What it may take is bounded here, how long by its
parent.
"""

from __future__ import annotations

import json
import re
import resource
import sys
import warnings
from contextlib import suppress
from typing import Any

MEMORY = 2 << 30
SECONDS = 30


def main() -> None:
    """Answer one question: JSON on standard input, JSON on standard output."""
    for limit, most in ((resource.RLIMIT_AS, MEMORY), (resource.RLIMIT_CPU, SECONDS)):
        with suppress(ValueError, OSError):  # a system that bounds it otherwise, or not at all
            resource.setrlimit(limit, (most, most))
    json.dump(answer(json.load(sys.stdin)), sys.stdout)


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    """The places of the lines that fit: path, number of the line, and where in it."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            wanted = re.compile(asked["pattern"], re.IGNORECASE if asked["ignore_case"] else 0)
    except (re.error, OverflowError, RecursionError) as error:
        return {"error": str(error)}
    found: list[tuple[str, int, int]] = []
    for path, lines in asked["files"]:
        for number, body in enumerate(lines, 1):
            match = wanted.search(body)
            if match is None:
                continue
            if len(found) == asked["limit"]:
                return {"found": found, "more": True}
            found.append((path, number, match.start()))
    return {"found": found, "more": False}


if __name__ == "__main__":
    main()
