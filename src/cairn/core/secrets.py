"""Known secrets: every form in which they are found in a text, and the handles put in their place.

A handle reads `[[secret:NAME:TAG]]`, and `[[secret:NAME~FORM:TAG]]` where the secret stood encoded.
The tag is made from the value: who does not know it cannot write a handle that holds. A handle in
an argument becomes the value again only for a tool that is declared to take that secret.
"""

from __future__ import annotations

import base64
import json
import re
import unicodedata
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from cairn.core.messages import parse_object

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
SHORTEST = 6
"""Shorter values would be found in plain words, and text would be eaten."""
SHORTEST_FORM = 6
TAG_DIGITS = 8
OPENING = "[[secret:"
DEFUSED = "[[ secret:"
HANDLE = re.compile(
    rf"\[\[secret:(?P<name>{NAME.pattern})(?:~(?P<form>[a-z0-9]{{1,4}}))?"
    rf":(?P<tag>[0-9a-f]{{{TAG_DIGITS}}})\]\]"
)
MOST_LAYERS = 2
"""How many encodings one over the other are looked through."""

_ESCAPED = re.compile(
    r"\\u(?P<high>[dD][89abAB][0-9a-fA-F]{2})\\u(?P<low>[dD][c-fC-F][0-9a-fA-F]{2})"
    r"|\\(?:u(?P<four>[0-9a-fA-F]{4})|x(?P<two>[0-9a-fA-F]{2})|(?P<one>[\"\\/bfnrt]))"
)
_SHORT = {"b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t"}
_PERCENT = re.compile(r"(?:%[0-9A-Fa-f]{2})+")
_UNSEEN = re.compile(r"[\u00ad\u180e\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufeff]")


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
            found.setdefault(_core(encode, raw, shift), f"b{url}{shift}")
    plain = unicodedata.normalize("NFKC", secret)
    for each in (plain, secret.replace(" ", "+"), quote_plus(raw), quote(raw, safe="")):
        found.setdefault(each, "")
    return {form: label for form, label in found.items() if len(form) >= SHORTEST_FORM}


def spelled(secret: str) -> dict[str, str]:
    """The one text each label of a form stands for, to write it back."""
    found: dict[str, str] = {"": secret}
    for form, label in forms(secret).items():
        found.setdefault(label, form)
    return found


def escapes(secret: str) -> set[str]:
    """The secret as it is escaped for JSON, once and twice, and for a URL in its spellings."""
    escaped = [secret]
    for _ in range(2):  # JSON, and JSON inside a text of JSON
        escaped += [json.dumps(e, ensure_ascii=a)[1:-1] for e in escaped for a in (False, True)]
    found = set(escaped)
    raw = secret.encode("utf-8", "replace")
    for url in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        found |= {url, re.sub("%..", lambda m: m[0].lower(), url)}
    return found


def _core(encode: Callable[[bytes], bytes], raw: bytes, shift: int) -> str:
    """The base64 characters that depend on the secret alone when `shift` bytes stand before."""
    text = encode(bytes(shift) + raw).decode().rstrip("=")
    whole = (shift + len(raw)) * 8 // 6
    return text[-(-shift * 8 // 6) : whole]


def _least(secret: str) -> list[str]:
    """The forms that are part of no other: where a part is missing, so is the whole."""
    least: list[str] = []
    for form in sorted(forms(secret), key=len):
        if not any(part in form for part in least):
            least.append(form)
    return least


class Finder:
    """Finds known values in texts, in all their forms. Never changed; made anew for a new value.

    Args:
        values: The secrets. Of two forms that are equal the first one's counts.
    """

    __slots__ = (
        "_alphabet",
        "_forms",
        "_pattern",
        "_quick",
        "_starts",
        "longest",
        "spaced",
        "values",
    )

    def __init__(self, values: Iterable[str] = ()) -> None:
        self.values = tuple(values)
        self._forms: dict[str, tuple[int, str]] = {}
        for number, value in enumerate(self.values):
            for form, label in forms(value).items():
                self._forms.setdefault(form, (number, label))
        longest_first = sorted(self._forms, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, longest_first)) or r"(?!)")
        self._quick = tuple(dict.fromkeys(f for value in self.values for f in _least(value)))
        self._alphabet = frozenset("".join(self._forms)) | frozenset('%\\ux"')
        self._starts = sorted(self._forms)
        self.longest = max(map(len, self._forms), default=0)
        self.spaced = any(any(c.isspace() for c in value) for value in self.values)

    def __repr__(self) -> str:
        return f"<Finder of {len(self.values)} values>"

    def near(self, text: str) -> bool:
        """Whether a text holds one of the values."""
        if not self.values or len(text) < SHORTEST_FORM:
            return False
        if any(form in text for form in self._quick):
            return True
        plain = text
        if not text.isascii():
            plain = _UNSEEN.sub("", unicodedata.normalize("NFKC", text))
            if any(form in plain for form in self._quick):
                return True
        if "%" not in plain and "\\" not in plain and not any(map(_joins, set(text))):
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
            if any(form in view.text for form in self._quick):
                for match in self._pattern.finditer(view.text):
                    start, end = view.back(match.start(), match.end())
                    if all(end <= f.start or start >= f.end for f in found):
                        value, label = self._forms[match[0]]
                        found.append(Found(start, end, value, label if label[:1] == "b" else ""))
        return sorted(found)

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


def _views(text: str, alphabet: frozenset[str]) -> Iterator[_View]:
    """The text as it reads with one or two encodings taken off, in every order."""
    level: list[tuple[_View | None, str]] = [(None, text)]
    for _ in range(MOST_LAYERS):
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
    if text.isascii():
        return []
    wanted = {c for c in set(text) if not c.isascii() and _matters(c, alphabet)}
    if not wanted:
        return []
    pieces: list[tuple[int, int, str]] = []
    done = 0
    for at, character in enumerate(text):
        if at < done or character not in wanted:
            continue
        done = at + 1
        while done < len(text) and _joins(text[done]):
            done += 1
        start = at - 1 if at and _joins(character) else at
        seen = "".join(c for c in text[start:done] if not _unseen(c))
        read = unicodedata.normalize("NFKC", seen)
        if read != text[start:done]:
            pieces.append((start, done, read))
    return pieces


def _matters(character: str, alphabet: frozenset[str]) -> bool:
    return _odd(character) and (
        _joins(character)
        or _unseen(character)
        or not alphabet.isdisjoint(unicodedata.normalize("NFKC", character))
    )


@lru_cache(maxsize=65_536)
def _odd(character: str) -> bool:
    return (
        unicodedata.normalize("NFKC", character) != character
        or _joins(character)
        or _unseen(character)
    )


def _joins(character: str) -> bool:
    """Whether it is read together with what stands before it: an accent, a part of a syllable."""
    return unicodedata.combining(character) > 0 or "\u1160" <= character <= "\u11ff"


def _unseen(character: str) -> bool:
    return unicodedata.category(character) == "Cf"


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
