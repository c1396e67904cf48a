"""Known secrets: every form in which they are found in a text, and the handles put in their place.

A handle reads `[[secret:NAME:TAG]]`, and `[[secret:NAME~FORM:TAG]]` where the secret stood encoded
(`INNER.OUTER` where it was encoded twice).
The tag is made from the value: who does not know it cannot write a handle that holds. A handle in
an argument becomes the value again only for a tool that is declared to take that secret.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from cairn.core.encoded import MOST_BROKEN, Inner, Runs, core, encodings
from cairn.core.messages import parse_object
from cairn.core.remembered import Remembered
from cairn.core.unseen import as_seen, unseen

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
SHORTEST = 6
"""Shorter values would be found in plain words, and text would be eaten."""
SHORTEST_FORM = 6
TAG_DIGITS = 8
OPENING = "[[secret:"
DEFUSED = "[[ secret:"
HANDLE = re.compile(
    rf"\[\[secret:(?P<name>{NAME.pattern})(?:~(?P<form>[a-z0-9]{{1,4}}(?:\.[a-z0-9]{{1,4}})?))?"
    rf":(?P<tag>[0-9a-f]{{{TAG_DIGITS}}})\]\]"
)
MOST_LAYERS = 2
"""How many encodings one over the other are looked through."""
ODD = "x"
"""The label of a spelling that is not listed: it is found, and cannot be written again."""

_ESCAPED = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\(?:u(?P<four>[0-9a-fA-F]{4})|x(?P<two>[0-9a-fA-F]{2})|(?P<one>[\"\\/bfnrt]))"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_SECOND = frozenset(
    "\u09be\u09d7\u0b3e\u0b56\u0b57\u0bbe\u0bd7\u0cc2\u0cd5\u0cd6\u0d3e\u0d57\u0dcf\u0ddf\u102e"
    "\u1b35\U00011127\U0001133e\U00011357\U000114b0\U000114ba\U000114bd\U000115af\U00011930"
)
"""What composes with the letter before it though it is no accent (combining class 0)."""
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")


def handle(name: str, tag: str, form: str = "") -> str:
    """What stands in the place of a secret."""
    return f"[[secret:{name}~{form}:{tag}]]" if form else f"[[secret:{name}:{tag}]]"


class Found(NamedTuple):
    """A secret in a text: where, which value by its number, and in which form."""

    start: int
    end: int
    value: int
    form: str


def forms(secret: str) -> dict[str, str]:
    """How a secret may stand in a text, each with its label; the bare secret has none.

    What is escaped for a URL or for JSON is not listed, but read back when a text is searched.
    """
    raw = secret.encode("utf-8", "replace")
    found = {secret: "", raw.hex(): "h", raw.hex().upper(): "hu"}
    for url, encode in (("", base64.b64encode), ("u", base64.urlsafe_b64encode)):
        whole = encode(raw).decode()
        found.setdefault(whole, f"b{url}")
        found.setdefault(whole.rstrip("="), f"b{url}n")
        for shift in range(3):
            found.setdefault(core(encode, raw, shift), f"b{url}{shift}")
    plain = unicodedata.normalize("NFKC", secret), as_seen(secret)
    for each in (*plain, secret.replace(" ", "+"), quote_plus(raw), quote(raw, safe="")):
        found.setdefault(each, "")
    return {form: label for form, label in found.items() if len(form) >= SHORTEST_FORM}


def written(secret: str, label: str) -> str | None:
    """The secret in the form that a label of `Found` stands for; None if no form has it."""
    inner, _, outer = label.rpartition(".")
    if inner:
        text, encode = written(secret, inner), encodings(outer)
        return None if text is None or encode is None else encode(text.encode("utf-8", "replace"))
    if not label:
        return secret
    spellings = _labelled(secret) if label[0] == "e" else forms(secret)
    return next((form for form, name in spellings.items() if name == label), None)


def escapes(secret: str) -> tuple[str, ...]:
    """The secret as it is escaped for JSON, once and twice, and for a URL in its spellings."""
    escaped = [secret]
    for _ in range(2):  # JSON, and JSON inside a text of JSON
        escaped += [json.dumps(e, ensure_ascii=a)[1:-1] for e in escaped for a in (False, True)]
    raw = secret.encode("utf-8", "replace")
    for url in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        escaped += [url, re.sub("%..", lambda m: m[0].lower(), url)]
    return tuple(dict.fromkeys(escaped))


def _labelled(secret: str) -> dict[str, str]:
    """The spellings under base64 or hex, each with its label."""
    return {text: f"e{number}" for number, text in enumerate(escapes(secret))}


def _least(secret: str) -> list[str]:
    """The forms that are part of no other: where a part is missing, so is the whole."""
    least: list[str] = []
    for form in sorted(forms(secret), key=len):
        if not any(part in form for part in least):
            least.append(form)
    return least


def _least_inside(secret: str) -> int:
    """Bytes that are under base64 or hex at least, where it stands encoded under it once more."""
    raw = secret.encode("utf-8", "replace")
    others = [form.encode("utf-8", "replace") for form in forms(secret) if form != secret]
    return min(len(raw) + 1, *map(len, others))


class Finder:
    """Finds known values in texts, in all their forms. Never changed; made anew for a new value.

    Args:
        values: The secrets. Of two forms that are equal the first one's counts.

    Attributes:
        clean: Texts that were searched a short while ago, for whomever, and hold nothing: no
            value, no handle, and nothing that looks like a key.
    """

    __slots__ = (
        "_alphabet",
        "_forms",
        "_pattern",
        "_quick",
        "_runs",
        "_spellings",
        "_starts",
        "clean",
        "longest",
        "spaced",
        "values",
    )

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = tuple(values)
        self.clean = Remembered()
        self._forms: dict[str, tuple[int, str]] = {}
        for number, value in enumerate(self.values):
            for form, label in forms(value).items():
                self._forms.setdefault(form, (number, label))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._quick = tuple(dict.fromkeys(f for value in self.values for f in _least(value)))
        self._alphabet = frozenset("".join(self._forms)) | frozenset('%\\ux"')
        self._runs = Runs(min(map(_least_inside, self.values), default=0))
        self._spellings: dict[int, dict[str, str]] = {}
        self._starts = sorted(self._forms)
        self.longest = max(map(len, self._forms), default=0)
        self.spaced = any(any(c.isspace() for c in value) for value in self.values)

    def __repr__(self) -> str:
        return f"<Finder of {len(self.values)} values>"

    def near(self, text: str) -> bool:
        """Whether a text holds one of the values."""
        if not self.values or len(text) < SHORTEST_FORM:
            return False
        for form in self._quick:
            if form in text:
                return True
        plain = as_seen(text) if _that_matter(text, self._alphabet) else text
        if plain is not text and any(form in plain for form in self._quick):
            return True
        if self._runs.near(text) and next(self._twice(text), None) is not None:
            return True
        escaped = "%" in plain or "\\" in plain
        if not escaped and (plain is text or not any(map(_joins, set(text)))):
            return False
        return any(
            any(form in view.text for form in self._quick) for view in _views(text, self._alphabet)
        )

    def find(self, text: str) -> list[Found]:
        """Where values stand: in order, apart, in the widest form at each place."""
        if not self.values:
            return []
        found = [
            Found(m.start(), m.end(), *self._forms[m[0]]) for m in self._pattern.finditer(text)
        ]
        for view in _views(text, self._alphabet):
            for each in self._seen_in(view):
                label = each.form if each.form[:1] == "b" else ""
                _add(found, each._replace(form=label))
        for each in self._twice(text) if self._runs.near(text) else ():
            _add(found, each)
        return sorted(found)

    def _seen_in(self, view: _View) -> Iterator[Found]:
        """What stands in a view, at its place in the text that this is a view of."""
        if any(form in view.text for form in self._quick):
            for match in self._pattern.finditer(view.text):
                start, end = view.back(match.start(), match.end())
                yield Found(start, end, *self._forms[match[0]])

    def _twice(self, text: str) -> Iterator[Found]:
        """What stands encoded in base64 or in hex, whatever is the encoding inside."""
        for inner in self._runs.read(text):
            if any(form in inner.text for form in self._quick):
                for match in self._pattern.finditer(inner.text):
                    number, label = self._forms[match[0]]
                    if not label and match[0] != self.values[number]:
                        label = self._spelling(number, match[0])
                    yield self._outside(inner, match.start(), match.end(), number, label)
            readable = inner.text.count("\0") <= max(MOST_BROKEN, len(inner.text) // 4)
            layers = MOST_LAYERS if readable else 1  # what came about by chance is not worth more
            for view in _views(inner.text, self._alphabet, layers):
                for start, end, number, _ in self._seen_in(view):
                    label = self._spelling(number, inner.text[start:end])
                    yield self._outside(inner, start, end, number, label)

    def _outside(self, inner: Inner, start: int, end: int, number: int, label: str) -> Found:
        first, last, how = inner.back(start, end)
        return Found(first, last, number, f"{label}.{how}" if label else how)

    def _spelling(self, number: int, text: str) -> str:
        if number not in self._spellings:
            self._spellings = {**self._spellings, number: _labelled(self.values[number])}
        return self._spellings[number].get(text, ODD)

    def begins(self, text: str) -> bool:
        """Whether a form begins with this text and goes on."""
        low, high = 0, len(self._starts)
        while low < high:
            middle = (low + high) // 2
            if self._starts[middle] < text:
                low = middle + 1
            else:
                high = middle
        return low < len(self._starts) and self._starts[low].startswith(text)


def _add(found: list[Found], each: Found) -> None:
    """Another one, unless something that was found before stands there."""
    if all(each.end <= f.start or each.start >= f.end for f in found):
        found.append(each)


# ---------------------------------------------------------------- looking through encodings


class _View:
    """A text with one encoding taken off, and the way back to where it stood."""

    __slots__ = ("_before", "_marks", "text")

    def __init__(self, before: _View | None, pieces: list[tuple[int, int, str]], text: str) -> None:
        """`pieces` are start, end and what is read there; the rest stays as it is."""
        marks: list[tuple[int, int, int, int]] = []  # here from and to, there from and to
        out: list[str] = []
        here = there = 0
        for start, end, read in pieces:
            out.append(text[there:start])
            here += start - there
            marks.append((here, here + len(read), start, end))
            out.append(read)
            here += len(read)
            there = end
        out.append(text[there:])
        self.text = "".join(out)
        self._marks = marks
        self._before = before

    def back(self, start: int, end: int) -> tuple[int, int]:
        """The place in the first text that this one stands for."""
        first, last = self._place(start, False), self._place(end - 1, True)
        return (first, last) if self._before is None else self._before.back(first, last)

    def _place(self, at: int, after: bool) -> int:
        low, high = 0, len(self._marks)
        while low < high:
            middle = (low + high) // 2
            if self._marks[middle][0] <= at:
                low = middle + 1
            else:
                high = middle
        if not low:
            return at + after
        _, upto, there, end = self._marks[low - 1]
        if at < upto:
            return end if after else there
        return end + (at - upto) + after


def _views(text: str, alphabet: frozenset[str], layers: int = MOST_LAYERS) -> Iterator[_View]:
    """The text as it reads with one or two encodings taken off, in every order."""
    level: list[tuple[_View | None, str]] = [(None, text)]
    for _ in range(layers):
        following: list[tuple[_View | None, str]] = []
        for before, each in level:
            for pieces in (_percent(each), _backslash(each), _wide(each, alphabet)):
                if pieces:
                    view = _View(before, pieces, each)
                    following.append((view, view.text))
                    yield view
        level = following


def _percent(text: str) -> list[tuple[int, int, str]]:
    if "%" not in text:
        return []
    pieces = []
    for match in _PERCENT.finditer(text):
        raw = bytes.fromhex(match[0].replace("%", ""))
        if raw.isascii():
            at = match.start()
            pieces += [(at + 3 * n, at + 3 * n + 3, chr(byte)) for n, byte in enumerate(raw)]
        else:
            pieces.append((match.start(), match.end(), raw.decode("utf-8", "replace")))
    return pieces


def _backslash(text: str) -> list[tuple[int, int, str]]:
    if "\\" not in text:
        return []
    return [(m.start(), m.end(), _read(m)) for m in _ESCAPED.finditer(text)]


def _read(escaped: re.Match[str]) -> str:
    if escaped["high"]:
        high, low = int(escaped["high"], 16), int(escaped["low"], 16)
        return chr(0x10000 + ((high - 0xD800) << 10) + (low - 0xDC00))
    code = escaped["four"] or escaped["two"]
    return chr(int(code, 16)) if code else _SHORT.get(escaped["one"], escaped["one"])


def _wide(text: str, alphabet: frozenset[str]) -> list[tuple[int, int, str]]:
    """Letters in another width or style, accents apart from their letter, and what is not seen.

    Only what reads as a letter of the alphabet is looked at: of a text in Chinese next to nothing.
    """
    wanted = _that_matter(text, alphabet)
    if not wanted:
        return []
    pieces: list[tuple[int, int, str]] = []
    done = 0
    for at, character in enumerate(text):
        if at < done or character not in wanted:
            continue
        done = at + 1
        while done < len(text) and (_joins(text[done]) or unseen(text[done])):
            done += 1
        start, read = at, as_seen(text[at:done])
        if at and any(map(_joins, text[at:done])) and (_joins(character) or unseen(character)):
            whole = as_seen(text[at - 1 : done])
            if whole != text[at - 1] + read:  # it is read together with what stands before it
                start, read = at - 1, whole
        if read != text[start:done]:
            pieces.append((start, done, read))
    return pieces


def _that_matter(text: str, alphabet: frozenset[str]) -> set[str]:
    """The characters that may make a value of what is not written as one."""
    if text.isascii():
        return set()
    return {c for c in set(text) if not c.isascii() and _matters(c, alphabet)}


def _matters(character: str, alphabet: frozenset[str]) -> bool:
    return _odd(character) and (
        _joins(character)
        or unseen(character)
        or not alphabet.isdisjoint(unicodedata.normalize("NFKC", character))
    )


@lru_cache(maxsize=65_536)
def _odd(character: str) -> bool:
    return (
        unicodedata.normalize("NFKC", character) != character
        or _joins(character)
        or unseen(character)
    )


def _joins(character: str) -> bool:
    """Whether it is read together with what stands before it: an accent, a part of a syllable."""
    if unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff":
        return True
    return character in _SECOND


# ---------------------------------------------------------------- handles in arguments


def handles_in(arguments: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The handles among arguments: the argument each stands in, and the secret's name.

    One that stands in a name itself is said to stand in no argument: it is not written back.
    """
    left: list[tuple[str, Any]] = [("", arguments)]
    while left:
        at, value = left.pop()
        if isinstance(value, str):
            yield from ((at, match["name"]) for match in HANDLE.finditer(value))
        elif isinstance(value, dict):
            for name, inner in value.items():
                yield from (("", match["name"]) for match in HANDLE.finditer(name))
                left.append((at or name, inner))
        elif isinstance(value, list):
            left += [(at, inner) for inner in value]


def undeclared(arguments: str, declared: tuple[tuple[str, str], ...]) -> str:
    """The first secret among the arguments (JSON text) that their tool may not take there.

    Args:
        arguments: As they stand in the journal.
        declared: Argument and name of the secret that it may hold; an empty argument is any.
    """
    if "secret" not in arguments and "\\" not in arguments:
        return ""
    for at, name in handles_in(parse_object(arguments) or {}):
        if not at or not {("", name), (at, name)} & set(declared):
            return name
    return ""
