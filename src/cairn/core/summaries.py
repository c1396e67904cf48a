"""What a summary holds, whoever writes it: its headings, and what the journal knows for certain.

A rule writes all of it from the journal. To a model's summary that is added which outlives any
summary: effects that were done, requests that still wait for the answer, and what must be exact.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from cairn.core.edits import plan_lines
from cairn.core.fence import unfenced
from cairn.core.gist import Gist, extended, short
from cairn.core.limits import estimate_tokens
from cairn.core.messages import text_of
from cairn.core.rules import Rules
from cairn.core.standing import left_out
from cairn.core.state import RunState

SECTIONS = (
    "Goal",
    "Constraints",
    "Key evidence",
    "Done",
    "Decisions",
    "Open",
    "Next",
    "Exact identifiers",
)
"""The headings of every summary, whoever writes it."""
GOAL_CHARS = 30
"""So many letters of the goal are given up last."""


class Scale(NamedTuple):
    """How much a rule's summary gives: of each list, in eighths, and letters.

    Args:
        lists: Eighths of each list.
        most: Letters of a section.
        said: Letters of what the agent said last.
        goal: Letters of the goal, if they are more than those of a section, which is not empty.
    """

    lists: int = 1
    most: int = 0
    said: int = 0
    goal: int = GOAL_CHARS


LEAST = Scale()
SCALES = (
    *(Scale(8, 9_999, 400), Scale(8, 9_999, 80), Scale(4, 9_999, 80), Scale(2, 9_999)),
    *(Scale(1, 9_999), Scale(1, 200), Scale(1, 80), Scale(1, 30, goal=160), Scale(1, 30)),
    *(Scale(1, 6), LEAST),
)
"""From much to little. In some scripts each letter is a token."""
UNKNOWN = "Not known; search_history finds it"
"""What stands under a heading that a rule cannot fill: that there is nothing, it cannot say."""
ADDED = ((8, 400), (8, 200), (8, 80), (4, 30), (2, 0))
"""How much is added to a model's summary: tools of each sort, and letters of a request."""
OPEN_FIRST, OPEN_LAST = 2, 4
"""Which of many requests that wait for one answer are named."""
PLAN_CHARS = 600
STANDING_SHARE = 3
"""Of a rule's summary the instructions of persons may take a third, before anything is cut."""
TURNED = 40
"""Tokens that the note and the marks around a summary count for more once it has a wide letter."""
SAID = "Told by persons, in order:"
"""Before instructions in their words: one that contradicts another reads behind it."""
OTHERS = "Others: search_history finds them"
EARLIER = "- earlier: "
"""How a rule begins the line that tells of a model's evidence."""
_DECIDED = re.compile(r"- request \d+: ")
_PLAIN = frozenset(name.casefold() for name in SECTIONS)
_HEADING = re.compile(r"#{1,6} +(\S.*)|\*\*(.+)\*\*:?")
"""A line that is one, without the blanks around it; blanks in it must not be tried in turns."""
_NOTHING = frozenset({"", "none", "nothing", "n/a"})
EMPTY_SIGNS = " \t\r\n>*_.-"
"""What may stand around a word for nothing."""


def headings(text: str) -> Iterator[str]:
    """The headings of a text, in small letters."""
    return filter(None, map(_heading, text.split("\n")))


def _heading(line: str) -> str:
    """The heading that a line is; empty for any other line."""
    plain = line.strip().removesuffix(":").casefold()
    if plain in _PLAIN:
        return plain
    match = _HEADING.fullmatch(line.rstrip())
    if match is None:
        return ""
    return (match[2] or match[1].rstrip("#")).strip().removesuffix(":").rstrip().casefold()


def asked_before(state: RunState, cut: int) -> int:
    """The request that is sent all the same when all before `cut` is condensed; -1 for none."""
    if any(n >= cut for n in state.asked[-1:]):
        return -1  # the last request is sent with what followed it
    return max((n for n in state.asked[-8:] if n < cut), default=-1)


def middle_out(text: str, chars: int) -> str:
    """The head and the tail of a text, of about so many characters together."""
    return text if len(text) <= chars else f"{text[: chars * 2 // 3]} … {text[-chars // 3 :]}"


# ---------------------------------------------------------------- by a model


def completed(state: RunState, rules: Rules, text: str, cut: int, tokens: int, spare: int) -> str:
    """A model's summary of what comes before `cut`, and what the journal knows and it leaves out.

    Identifiers that persons have named come first, then their standing instructions, then what
    tools have done that are no reads, and the requests of this run that its answer is still owed
    to, in fewer words if need be.

    Args:
        state, rules: Of the run.
        text: What the model wrote; it has all the headings.
        cut: Where the summary ends.
        tokens: How much may be added, about.
        spare: From how much on the request would be no smaller with the summary. Where what must
            be exact is more than that, it is added all the same, and the summary is refused.
    """
    gist = extended(state.gist, state.messages, state.asked, cut)
    marks = _some([mark for mark in gist.own if not _stands(mark, text)], tokens)
    room = min(tokens, spare) - estimate_tokens(" | ".join(marks))
    missing = left_out(gist.standing, text)
    found = text
    # of the room instructions may take half while the rest is given up; then an eighth, then none
    for share, (tools, chars) in (*((2, tier) for tier in ADDED), (8, ADDED[-1]), (0, ADDED[-1])):
        more = {
            "Constraints": "\n".join(_laid_down(missing, room // share) if share else ()),
            "Done": "\n".join(_effects(gist, rules, tools, chars)),
            "Open": "\n".join(_waiting(state, text, cut, chars)),
            "Next": _planned(state, text) if chars >= 200 else "",
            "Exact identifiers": " | ".join(marks),
        }
        found = _with(text, more)
        added = sum(map(estimate_tokens, filter(None, more.values())))
        if added <= min(tokens, spare) and _growth(text, found) <= spare:
            break
    return found


def _growth(before: str, after: str) -> int:
    """Tokens that a summary has more; the first wide letter makes all around it count for more."""
    turned = before.isascii() and not after.isascii()
    return estimate_tokens(after) - estimate_tokens(before) + (TURNED if turned else 0)


def _some(marks: list[str], tokens: int) -> list[str]:
    """As many of them as there is room for, the last one before the first, and so on inwards."""
    rest, kept = list(enumerate(marks)), set[int]()
    while rest:
        n, mark = rest.pop() if len(rest) % 2 else rest.pop(0)
        tokens -= estimate_tokens(f" | {mark}")
        if tokens >= 0:
            kept.add(n)
        else:
            tokens += estimate_tokens(f" | {mark}")
    return [mark for n, mark in enumerate(marks) if n in kept]


def _laid_down(standing: Sequence[str], tokens: int) -> list[str]:
    """Lines for as many instructions as there is room for, and one before them that says whose."""
    kept = _some(list(standing), tokens - estimate_tokens(SAID) - 1)
    return [SAID, *(f"- {each}" for each in kept)] if kept else []


def _stands(mark: str, text: str) -> bool:
    """Whether an identifier stands in a text, not only as a part of a longer one."""
    if mark not in text:
        return False
    exact = rf"(?<![\w/-]){re.escape(mark)}(?![\w/-])"
    return re.search(exact, text, re.ASCII) is not None


def _effects(gist: Gist, rules: Rules, tools: int, chars: int) -> Iterator[str]:
    """What tools have done that are no reads: how often, and what came of the last call."""
    specs = ((name, rules.tools.get(name)) for name in gist.done)
    names = [name for name, spec in specs if spec is None or spec.effect != "read"]
    for name in names[-tools:]:
        came = gist.last.get(name, "") if chars else ""
        yield f"- {_count(gist, name)}" + (f"; the last: {came}" if came else "")


def _count(gist: Gist, name: str) -> str:
    well, badly = gist.done[name]
    return f"{name}: {well} done" + (f", {badly} not" if badly else "")


def _waiting(state: RunState, text: str, cut: int, chars: int) -> Iterator[str]:
    """The requests of this run that are not sent any more, and have no answer before its end."""
    sent = asked_before(state, cut)
    open_ = [n for n in state.asked[state.own :] if n < cut and n != sent]
    few = dict.fromkeys((*open_[:OPEN_FIRST], *open_[-OPEN_LAST:]))
    if not chars:
        if open_:
            yield f"- {len(open_)} requests wait for the answer; search_history finds them"
        return
    for n in few:
        words = short(text_of(state.messages[n].parts), chars)
        if words and words not in text:
            yield f"- asked: {words}"


def _planned(state: RunState, text: str) -> str:
    plan = middle_out(plan_lines(state.plan), PLAN_CHARS) if state.plan else ""
    return "" if plan in text else plan


def _with(text: str, more: Mapping[str, str]) -> str:
    """A summary with lines added under its headings, in place of a word for nothing."""
    if not any(more.values()):
        return text
    lines = text.rstrip().split("\n")
    starts = [n for n, line in enumerate(lines) if _heading(line) in _PLAIN]
    found: list[str] = lines[: starts[0]] if starts else lines
    left = {name.casefold(): added for name, added in more.items() if added}
    for begin, end in zip(starts, [*starts[1:], len(lines)], strict=False):
        body = "\n".join(lines[begin + 1 : end])
        added = left.pop(_heading(lines[begin]), "")
        if added:
            nothing = body.strip(EMPTY_SIGNS).casefold() in _NOTHING
            body = added if nothing else f"{body.rstrip()}\n{added}"
        found += [lines[begin], body] if body or end > begin + 1 else [lines[begin]]
    found += [f"## {name}\n{left[name.casefold()]}" for name in more if name.casefold() in left]
    return "\n".join(found)


# ---------------------------------------------------------------- by a rule


def by_rule(state: RunState, cut: int, tokens: int) -> str:
    """A summary of what the journal knows for certain, of about so many tokens at most.

    What must be exact comes first: of it something is left out only when the bare headings and
    all of it would be too long; then the first identifiers of persons go before the last ones.
    Standing instructions of persons come next, up to a third of it all.
    """
    gist = extended(state.gist, state.messages, state.asked, cut)
    wanted = tuple(dict.fromkeys((*gist.own, *gist.marks)))
    laid_down = _laid_down(gist.standing, tokens // STANDING_SHARE)
    for scale in SCALES:
        text = _written(state, gist, scale, wanted, laid_down)
        if estimate_tokens(text) <= tokens:
            return text
    left = tokens - estimate_tokens(_written(state, gist, LEAST, wanted))
    while left >= 0:  # with a wide letter all others count for more: less may fit than is left
        laid_down = _laid_down(gist.standing, left)
        text = _written(state, gist, LEAST, wanted, laid_down)
        if not laid_down or estimate_tokens(text) <= tokens:
            return text
        left //= 2
    kept: tuple[str, ...] = ()
    for mark in dict.fromkeys((*reversed(gist.marks), *gist.own)):
        more = tuple(each for each in wanted if each in kept or each == mark)
        if estimate_tokens(_written(state, gist, LEAST, more)) <= tokens:
            kept = more
    return _written(state, gist, LEAST, kept)


def _written(
    state: RunState,
    gist: Gist,
    scale: Scale,
    marks: tuple[str, ...],
    laid_down: Sequence[str] = (),
) -> str:
    """A summary with these identifiers, and with lines of standing instructions, all whole."""
    lists, most, said, goal_chars = scale
    asked = gist.asked[-max(1, len(gist.asked) * lists // 8) :]
    calls = gist.calls[-max(1, len(gist.calls) * lists // 8) :] if gist.calls else ()
    found = gist.found[-max(1, len(gist.found) * lists // 8) :] if lists > 1 else ()
    early = [f"- then: {each}" for each in gist.early if each not in asked and most >= GOAL_CHARS]
    last = short(gist.said, said) if said else ""
    evidence = [
        *([f"- sources [s1] to [s{state.sources}]"] if state.sources else []),
        *([f"- artifacts a1 to a{len(state.artifacts)}"] if len(state.artifacts) else []),
        *(f"- {each}" for each in calls),
    ]
    decided = [f"- request {n}: {how}" for n, how in list(state.decided.items())[-lists:]]
    known_before = _earlier(state, laid_down)
    earlier = {name: middle_out(body, lists * 150) for name, body in known_before.items()}
    if known := earlier.get("key evidence"):
        evidence.insert(0, EARLIER + short(known, lists * 75))
    if "decisions" in earlier:
        decided.insert(0, earlier["decisions"])
    bodies = (
        "\n".join(evidence),
        "\n".join(f"- {_count(gist, name)}" for name in list(gist.done)[-5 * lists :]),
        "\n".join(decided) or UNKNOWN,
        "\n".join(f"- asked: {each}" for each in asked),
        (plan_lines(state.plan) if state.plan else "")
        or (f"the agent said last: {last}" if last else UNKNOWN),
    )
    goal = _cut_to(gist.first, max(most, goal_chars) if most else 0)
    under = (
        "\n".join(filter(None, (goal, _cut_to("\n".join(early), most)))),
        _constraints(_cut_to(earlier.get("constraints") or UNKNOWN, most), laid_down),
        *(_cut_to(body, most) for body in bodies),
        " | ".join((*found, *marks)),  # an ASCII sign: others make a text count for more
    )
    return "\n".join(
        f"## {name}\n{body or 'None'}" for name, body in zip(SECTIONS, under, strict=True)
    )


def _constraints(before: str, laid_down: Sequence[str]) -> str:
    """What was known before, which may be nothing, and instructions of persons in their order."""
    if not laid_down:
        return before
    told = [] if before in {UNKNOWN, "..."} else [before]
    return "\n".join([*told, *laid_down, *([OTHERS] if before == UNKNOWN else [])])


def _earlier(state: RunState, laid_down: Sequence[str]) -> dict[str, str]:
    """What a model's summary said under its headings, also where rules have written since then.

    Rules add lines of their own to some of them, which are known by how they begin, and so are
    the lines that are written again.
    """
    told: dict[str, str] = {}
    for name, body in _sections(unfenced(state.summary)):
        lines = body.split("\n")
        if name == "decisions":
            lines = [line for line in lines if not _DECIDED.match(line)]
        elif name == "constraints":
            lines = [line for line in lines if line not in {*laid_down, SAID, OTHERS}]
        elif name == "key evidence" and not state.by_model:
            lines = [line.removeprefix(EARLIER) for line in lines if line.startswith(EARLIER)]
        said = "\n".join(lines).strip()
        if said not in {UNKNOWN, "..."} and said.strip(EMPTY_SIGNS).casefold() not in _NOTHING:
            told[name] = said
    return told


def _sections(text: str) -> Iterator[tuple[str, str]]:
    """The headings of a summary, each with what stands under it; what comes first has none."""
    name, lines = "", list[str]()
    for line in text.split("\n"):
        heading = _heading(line)
        if heading not in _PLAIN:
            lines.append(line)
            continue
        yield name, "\n".join(lines).strip()
        name, lines = heading, []
    yield name, "\n".join(lines).strip()


def _cut_to(body: str, most: int) -> str:
    """So many letters of it; where none may be given, a sign that something was there."""
    if body == UNKNOWN:
        return body if most > len(body) else "..."
    return middle_out(body, most) if most or not body else "..."
