"""Replacing text exactly, with every other byte left as it was, line endings too."""

from __future__ import annotations

import difflib
from bisect import bisect_left
from itertools import pairwise

from cairn.workspace.content import lines_of
from cairn.workspace.refusals import EditRefused

ALIGNED_LINES = 2_000_000
"""Old lines × new lines up to which they are matched one to one."""
LOOKED_AT = 20_000
SHOWN_LINES = 12
SHOWN_CHARS = 200
PLACES = 10
CLOSE_LINES = 3_000

Line = tuple[str, str]


class Replaced:
    """A text after an edit.

    Attributes:
        text: All of it.
        lines: Numbers of the lines, before the edit, where the replaced texts began.
    """

    __slots__ = ("lines", "text")

    def __init__(self, text: str, lines: list[int]) -> None:
        self.text = text
        self.lines = lines


def replace(text: str, old: str, new: str, count: int, told: str) -> Replaced:
    """Replace `old`, which must stand there exactly `count` times.

    A line break in `old` or `new` stands for whichever the file has: each replaced line keeps
    its own, and added lines get that of the lines around them.

    Args:
        told: The file's path, for messages.

    Raises:
        EditRefused: it stands there more or less often, or nothing would change.
    """
    flat, wanted, given = (each.replace("\r\n", "\n") for each in (text, old, new))
    _refuse_senseless(old, wanted, given, told)
    places = _places(flat, wanted)
    if not places:
        raise EditRefused(_not_found(flat, wanted, told))
    if len(places) != count:
        where = ", ".join(str(flat.count("\n", 0, at) + 1) for at in places[:PLACES])
        more = ", …" if len(places) > PLACES else ""
        raise EditRefused(
            f"{told}: the old text stands there {len(places)} times, not {count} "
            f"(at lines {where}{more}). Give more of the text around it, or "
            f"count={len(places)} to replace all of them"
        )
    if any(following - at < len(wanted) for at, following in pairwise(places)):
        raise EditRefused(f"{told}: the old text overlaps itself. Give more of the text around it")
    marks = _crlf_places(text)
    pieces: list[str] = []
    done = 0
    for at in places:
        begin = at + bisect_left(marks, at)
        end = at + len(wanted) + bisect_left(marks, at + len(wanted))
        pieces += text[done:begin], _with_endings(text, begin, end, given)
        done = end
    pieces.append(text[done:])
    return Replaced("".join(pieces), [flat.count("\n", 0, at) + 1 for at in places])


def _refuse_senseless(old: str, wanted: str, given: str, told: str) -> None:
    if not old:
        raise EditRefused(f"{told}: the old text is empty. Give the text that is to be replaced")
    if wanted == given:
        raise EditRefused(
            f"{told}: the new text is the old one, so nothing would change. An edit keeps line "
            "endings as they are; write_file writes them as given"
        )


def _places(text: str, wanted: str) -> list[int]:
    """Where it stands, overlapping ones too."""
    found: list[int] = []
    at = text.find(wanted)
    while at >= 0:
        found.append(at)
        at = text.find(wanted, at + 1)
    return found


def _crlf_places(text: str) -> list[int]:
    r"""Where the `\r\n` stand, counted in the text that has `\n` in their place."""
    found: list[int] = []
    at = text.find("\r\n")
    while at >= 0:
        found.append(at - len(found))
        at = text.find("\r\n", at + 2)
    return found


def _with_endings(text: str, begin: int, end: int, given: str) -> str:
    if "\n" not in given:
        return given
    near = ending_near(text, begin, end)
    old = [(body, ending or near) for body, ending in lines_of(text[begin:end])]
    pieces = given.split("\n")
    new = aligned(old, pieces[:-1], near)
    return "".join(body + ending for body, ending in new) + pieces[-1]


def ending_near(text: str, begin: int, end: int) -> str:
    """The line ending in a place: of the line that goes on there, else of one before or in it."""
    at = text.find("\n", end)
    if at < 0:
        at = text.rfind("\n", 0, begin)
    if at < 0:
        at = text.rfind("\n", begin, end)
    return "\r\n" if at > 0 and text[at - 1] == "\r" else "\n"


def aligned(old: list[Line], new: list[str], near: str) -> list[Line]:
    """New lines with endings: a line that stays keeps its own, the others follow the old order.

    Args:
        old: The lines that are replaced, with their endings.
        new: The lines that take their place.
        near: The ending when there is none to follow.
    """
    if len({ending for _, ending in old}) <= 1:
        ending = old[0][1] if old else near
        return [(body, ending) for body in new]
    if len(old) * len(new) > ALIGNED_LINES:
        blocks = [(0, len(old), 0, len(new))]
    else:
        bodies = [body for body, _ in old]
        matcher = difflib.SequenceMatcher(None, bodies, new, autojunk=False)
        blocks = [code[1:] for code in matcher.get_opcodes()]
    found: list[Line] = []
    for from_old, to_old, from_new, to_new in blocks:
        for number, body in enumerate(new[from_new:to_new]):
            at = min(from_old + number, max(to_old - 1, from_old), len(old) - 1)
            found.append((body, old[at][1]))
    return found


# ---------------------------------------------------------------- what was meant


def _not_found(flat: str, wanted: str, told: str) -> str:
    said = f"{told}: the old text does not stand in this file"
    if squeezed(wanted) and squeezed(wanted) in squeezed(flat):
        said += " with just these spaces and line breaks"
    shown = nearest_lines(flat, wanted)
    if not shown:
        return f"{said}, nor anything like it. Read the file again"
    return f"{said}. What is most like it:\n{shown}\nGive the old text exactly as it stands"


def squeezed(text: str) -> str:
    """The text with any run of white space as one space."""
    return " ".join(text.split())


def nearest_lines(flat: str, wanted: str) -> str:
    """The lines of a text that are most like the wanted ones, with their numbers."""
    lines = flat.split("\n")[:LOOKED_AT]
    sought = [line for line in wanted.split("\n") if line.strip()]
    if not sought:
        return ""
    keys = {line.strip() for line in sought}
    size = min(wanted.count("\n") + 1, SHOWN_LINES)
    hits = [line.strip() in keys for line in lines]
    best, most = -1, 0
    running = sum(hits[:size])
    for at in range(len(lines)):
        if running > most or (running == most > 0 and hits[at] and not hits[best]):
            best, most = at, running
        running += (hits[at + size] if at + size < len(hits) else 0) - hits[at]
    if best < 0:
        best = _close_line(lines, sought[0])
    if best < 0:
        return ""
    chosen = enumerate(lines[best : best + size], best + 1)
    return "\n".join(f"{number:>6}\t{line[:SHOWN_CHARS]}" for number, line in chosen)


def _close_line(lines: list[str], sought: str) -> int:
    by_text: dict[str, int] = {}
    for number, line in enumerate(lines[:CLOSE_LINES]):
        by_text.setdefault(line.strip()[:SHOWN_CHARS], number)
    found = difflib.get_close_matches(sought.strip()[:SHOWN_CHARS], by_text, n=1, cutoff=0.5)
    return by_text[found[0]] if found else -1
