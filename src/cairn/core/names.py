"""Names in messages: listed, and found again when they are misspelt."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence

from cairn.core.messages import clean

NAMES_SHOWN = 40
NAME_CHARS = 64
MESSAGE_CHARS = 1_500


def listed(names: Sequence[str], limit: int = NAMES_SHOWN) -> str:
    """The names with commas, at most `limit` of them."""
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(_short(name) for name in names[:limit]) + more


def nearest(name: str, known: Iterable[str]) -> tuple[str, ...]:
    """The known names most like this one, best first, three at most; words in any order."""
    name = name[:NAME_CHARS]
    by_normal = {_normal(each): each for each in known}
    by_normal |= {each.lower(): each for each in by_normal.values()}
    letters = sorted(name.lower())
    found = [
        *(each for each in by_normal if sorted(each) == letters),  # two swapped in a short name
        *difflib.get_close_matches(name.lower(), by_normal, cutoff=0.7),
        *difflib.get_close_matches(_normal(name), by_normal, cutoff=0.8),
    ]
    return tuple(dict.fromkeys(by_normal[each] for each in found))[:3]


def unknown_tool_message(name: str, known: Iterable[str]) -> str:
    """What a model is told that called a tool which does not exist."""
    names = sorted(known)
    close = nearest(name, names)
    meant = f" Did you mean {' or '.join(close)}?" if close else ""
    tools = f"The tools are: {listed(names)}." if names else "There are no tools."
    return f'There is no tool "{_short(name)}".{meant} {tools}'[:MESSAGE_CHARS]


def _short(name: str) -> str:
    name = clean(name[: NAME_CHARS + 1])
    return name if len(name) <= NAME_CHARS else name[: NAME_CHARS - 1] + "…"


def _normal(name: str) -> str:
    return "_".join(sorted(name.lower().replace("-", "_").split("_")))
