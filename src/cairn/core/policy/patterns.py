"""Regular expressions that cannot run away: read by states, not by trial and error.

Each character of the text is looked at once for every state of the pattern, so the work is at
most length times size. What would need trial and error (back references, look-around) is no part
of the language. A pattern always stands for the whole text.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from cairn.core.messages import Record
from cairn.errors import ConfigError

PATTERN_CHARS = 1_000
TEXT_CHARS = 4_096
MOST_STATES = 1_000
MOST_REPEATS = 255
MOST_DEPTH = 20
MOST_REMEMBERED = 512

Ranges = tuple[tuple[str, str], ...]
DIGITS: Ranges = (("0", "9"),)
WORD: Ranges = (("0", "9"), ("A", "Z"), ("_", "_"), ("a", "z"))
SPACE: Ranges = (("\t", "\r"), (" ", " "))
CLASSES = {"d": DIGITS, "w": WORD, "s": SPACE}
CONTROLS = {"n": "\n", "r": "\r", "t": "\t", "f": "\f", "v": "\v"}
META = frozenset("\\.^$*+?{}[]()|")


class Chars(Record):
    """A set of characters: ranges, or everything else."""

    ranges: Ranges
    negated: bool = False

    def holds(self, char: str) -> bool:
        """Whether the character is in it."""
        return any(low <= char <= high for low, high in self.ranges) is not self.negated


DOT = Chars(ranges=(("\n", "\n"),), negated=True)
ALL = Chars(ranges=(), negated=True)
Node = tuple[str, Any]


class Pattern:
    """A compiled pattern. `fits` says whether a whole text is of this form."""

    __slots__ = ("_edges", "_epsilon", "_final", "_fold", "_known", "_start")

    def __init__(self, tree: Node, *, fold: bool) -> None:
        self._edges: list[tuple[Chars, int] | None] = []
        self._epsilon: list[tuple[int, ...]] = []
        self._fold = fold
        self._known: dict[tuple[frozenset[int], str], frozenset[int]] = {}
        start, self._final = self._build(tree)
        self._start = self._closed({start})

    def fits(self, text: str) -> bool:
        """Whether the whole text is of this form."""
        states = self._start
        known = self._known
        for char in text:
            found = known.get((states, char))
            if found is None:
                found = self._step(states, char)
                if len(known) >= MOST_REMEMBERED:
                    known.clear()
                known[states, char] = found
            states = found
            if not states:
                return False
        return self._final in states

    def _step(self, states: frozenset[int], char: str) -> frozenset[int]:
        forms = {char, char.lower(), char.upper()} if self._fold else {char}
        single = [form for form in forms if len(form) == 1]
        reached = set()
        for state in states:
            edge = self._edges[state]
            if edge is None:
                continue
            held = map(edge[0].holds, single)  # a set that excludes a letter excludes its forms
            if all(held) if edge[0].negated else any(held):
                reached.add(edge[1])
        return self._closed(reached)

    def _closed(self, states: set[int]) -> frozenset[int]:
        waiting, found = list(states), set(states)
        while waiting:
            for other in self._epsilon[waiting.pop()]:
                if other not in found:
                    found.add(other)
                    waiting.append(other)
        return frozenset(found)

    # ---------------------------------------------------------------- building

    def _state(self) -> int:
        if len(self._edges) >= MOST_STATES:
            raise Unreadable("it is too large", "Write fewer or shorter repeats")
        self._edges.append(None)
        self._epsilon.append(())
        return len(self._edges) - 1

    def _link(self, one: int, *others: int) -> None:
        self._epsilon[one] = (*self._epsilon[one], *others)

    def _build(self, node: Node) -> tuple[int, int]:
        kind, what = node
        start, end = self._state(), self._state()
        match kind, what:
            case "chars", Chars() as chars:
                self._edges[start] = (chars, end)
            case "all", list() as parts:
                at = start
                for part in parts:
                    first, last = self._build(part)
                    self._link(at, first)
                    at = last
                self._link(at, end)
            case "any", list() as parts:
                for part in parts:
                    first, last = self._build(part)
                    self._link(start, first)
                    self._link(last, end)
            case "repeat", (part, least, most):
                self._repeat(part, least, most, start, end)
        return start, end

    def _repeat(self, part: Node, least: int, most: int | None, start: int, end: int) -> None:
        at = start
        for _ in range(least):
            first, last = self._build(part)
            self._link(at, first)
            at = last
        if most is None:
            first, last = self._build(part)
            self._link(at, first, end)
            self._link(last, first, end)
            return
        for _ in range(most - least):
            first, last = self._build(part)
            self._link(at, first, end)
            at = last
        self._link(at, end)


class Unreadable(ConfigError):
    """A pattern that is outside the language."""

    def __init__(self, problem: str, fix: str) -> None:
        super().__init__("matches", problem, fix)
        self.problem = problem


@lru_cache(maxsize=1024)
def compiled(pattern: str, *, lines: bool = False) -> Pattern:
    """The pattern, compiled once; with `lines` a dot also stands for the end of a line.

    Raises:
        Unreadable: it is outside the language, or too large.
    """
    if len(pattern) > PATTERN_CHARS:
        fix = f"At most {PATTERN_CHARS} characters"
        raise Unreadable(f"the pattern has {len(pattern)} characters", fix)
    fold = pattern.startswith("(?i)")
    reader = _Reader(pattern[4:] if fold else pattern, ALL if lines else DOT)
    tree = reader.alternatives(0)
    if reader.peek():
        raise Unreadable("it closes a group that was never opened", r"Write \) for the character")
    return Pattern(tree, fold=fold)


class _Reader:
    """Reads a pattern from left to right."""

    def __init__(self, text: str, dot: Chars) -> None:
        self.text = text
        self.dot = dot
        self.at = 0

    def peek(self) -> str:
        return self.text[self.at : self.at + 1]

    def take(self) -> str:
        char = self.peek()
        self.at += 1
        return char

    def alternatives(self, depth: int) -> Node:
        if depth > MOST_DEPTH:
            raise Unreadable("its groups are nested too deeply", "Write it flatter")
        found = [self.sequence(depth)]
        while self.peek() == "|":
            self.take()
            found.append(self.sequence(depth))
        return found[0] if len(found) == 1 else ("any", found)

    def sequence(self, depth: int) -> Node:
        parts: list[Node] = []
        while (char := self.peek()) and char not in "|)":
            parts.append(self.repeated(self.atom(depth)))
        return "all", parts

    def atom(self, depth: int) -> Node:
        char = self.take()
        match char:
            case "(":
                return self.group(depth)
            case "[":
                return "chars", self.set_of()
            case ".":
                return "chars", self.dot
            case "\\":
                return "chars", self.escaped()
            case "^" | "$":
                fix = f"Leave {char} out: a pattern stands for the whole text"
                raise Unreadable(f"{char} has no place in it", fix)
            case "*" | "+" | "?" | "{":
                raise Unreadable(f"{char} repeats nothing", rf"Write \{char} for the character")
            case "}" | "]":
                raise Unreadable(f"{char} closes nothing", rf"Write \{char} for the character")
        return "chars", Chars(ranges=((char, char),))

    def group(self, depth: int) -> Node:
        if self.peek() == "?":
            if self.text[self.at : self.at + 2] != "?:":
                fix = "Write (?:...) or (...); look-around and names are no part of the language"
                raise Unreadable("it has a group of an unknown kind", fix)
            self.at += 2
        found = self.alternatives(depth + 1)
        if self.take() != ")":
            raise Unreadable("a group is not closed", r"Add ), or write \( for the character")
        return found

    def repeated(self, part: Node) -> Node:
        char = self.peek()
        bounds: dict[str, tuple[int, int | None]] = {"*": (0, None), "+": (1, None), "?": (0, 1)}
        if char == "{":
            least, most = self.braces()
        elif char in bounds:
            self.take()
            least, most = bounds[char]
        else:
            return part
        if self.peek() and self.peek() in "*+?{":
            fix = (
                "Put the inner repeat into a group; lazy and possessive repeats change nothing here"
            )
            raise Unreadable("a repeat follows a repeat", fix)
        return "repeat", (part, least, most)

    def braces(self) -> tuple[int, int | None]:
        end = self.text.find("}", self.at)
        inside = self.text[self.at + 1 : end] if end > 0 else ""
        least, comma, most = inside.partition(",")
        fine = _number(least) and (not comma or not most or _number(most))
        if not fine:
            raise Unreadable("its {} holds no numbers", r"Write {2}, {2,} or {2,5}, or \{")
        low = int(least)
        high = low if not comma else int(most) if most else None
        if low > MOST_REPEATS or (high is not None and (high > MOST_REPEATS or high < low)):
            fix = f"Write two numbers that rise, at most {MOST_REPEATS}"
            raise Unreadable(f"{{{inside}}} cannot be", fix)
        self.at = end + 1
        return low, high

    def escaped(self) -> Chars:
        char = self.take()
        if char in CLASSES:
            return Chars(ranges=CLASSES[char])
        if char.lower() in CLASSES and char:
            return Chars(ranges=CLASSES[char.lower()], negated=True)
        if char in CONTROLS:
            return Chars(ranges=((CONTROLS[char], CONTROLS[char]),))
        if not char or char.isalnum():
            fix = r"Escape signs only; of letters, \d \w \s \D \W \S \n \r \t \f \v are known"
            raise Unreadable(f"\\{char} is not known", fix)
        return Chars(ranges=((char, char),))

    def set_of(self) -> Chars:
        negated = self.peek() == "^"
        self.at += negated
        ranges: list[tuple[str, str]] = []
        while (char := self.take()) != "]" or not ranges:
            if not char or char == "[":
                fix = r"Close it with ], and write \[ or \] for the characters"
                raise Unreadable("a set of characters is not closed", fix)
            if char == "]":
                raise Unreadable("a set of characters is empty", r"Write \] for the character")
            if char == "\\":
                one = self.escaped()
                if one.negated or len(one.ranges) > 1 or one.ranges[0][0] != one.ranges[0][1]:
                    if one.negated:
                        raise Unreadable("a set holds a negated class", "Write [^...] instead")
                    ranges += one.ranges
                    continue
                char = one.ranges[0][0]
            ranges.append((char, self.end_of_range(char)))
        return Chars(ranges=tuple(ranges), negated=negated)

    def end_of_range(self, low: str) -> str:
        after = self.text[self.at : self.at + 2]
        if after[:1] != "-" or after[1:] in {"", "]"}:
            return low
        self.take()
        high = self.take()
        if high == "\\":
            one = self.escaped()
            high = one.ranges[0][0]
            if one.negated or one.ranges != ((high, high),):
                raise Unreadable("a range ends in a class", r"Write \- for the character")
        if high < low:
            raise Unreadable(f"the range {low}-{high} falls", "Write the smaller one first")
        return high


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) <= 4
