"""What a server's tools are called here: `server__tool`, in names every provider takes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from hashlib import sha256

ALLOWED = re.compile(r"[A-Za-z0-9_-]+")
MAX_NAME = 64
MARK = 6


def alias(server: str, tool: str) -> str:
    """The name a tool goes by here. The same for ever: nothing but the two names counts.

    A name that providers would refuse, or that is too long, is written in letters they take and
    ends in a mark made of the original, so that two different tools do not fall together.
    """
    plain = f"{server}__{tool}"
    if ALLOWED.fullmatch(tool) and len(plain) <= MAX_NAME:
        return plain
    return marked(server, tool)


def marked(server: str, tool: str) -> str:
    """The name with its mark."""
    mark = sha256(tool.encode("utf-8", "surrogatepass")).hexdigest()[:MARK]
    room = MAX_NAME - len(server) - len("__") - len("_") - MARK
    letters = re.sub(r"[^A-Za-z0-9_-]+", "_", tool)[:room].strip("_") or "tool"
    return f"{server}__{letters}_{mark}"


def assigned(
    server: str, tools: Iterable[str], taken: Iterable[str]
) -> tuple[dict[str, str], dict[str, str]]:
    """A name for each tool, and what is wrong with those that get none.

    Args:
        server: The server's name.
        tools: Names as the server lists them, in its order.
        taken: Names that are in use already.
    """
    wanted = list(tools)
    found: dict[str, str] = {}
    refused: dict[str, str] = {}
    used = set(taken)
    for tool in sorted(
        set(wanted), key=lambda each: (alias(server, each) != f"{server}__{each}", each)
    ):
        if wanted.count(tool) > 1:
            refused[tool] = "the server lists it more than once"
            continue
        name = alias(server, tool)
        name = marked(server, tool) if name in used else name
        if name in used:
            refused[tool] = f"its name {name} is taken by another of its tools"
            continue
        used.add(name)
        found[tool] = name
    return found, refused
