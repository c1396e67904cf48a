"""Known secrets: every form in which they are found in a text, and the handles put in their place.

A handle reads `[[secret:NAME:TAG]]`, and `[[secret:NAME~FORM:TAG]]` where the secret stood encoded
(`INNER.OUTER` where it was encoded twice, with a third part where it was three times).
The tag is made from the value: who does not know it cannot write a handle that holds. A handle in
an argument becomes the value again only for a tool that is declared to take that secret.
"""

from __future__ import annotations

import base64
import json
import re
import string
import unicodedata
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple
from urllib.parse import quote, quote_plus

from cairn.core.encoded import BROKEN, MOST_BROKEN, Inner, Runs, core, encodings
from cairn.core.messages import parse_object
from cairn.core.readings import MOST_LAYERS, View, in_one_row, joins, that_matter, views
from cairn.core.remembered import Remembered
from cairn.core.unseen import as_seen

NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}")
SHORTEST = 6
"""Shorter values would be found in plain words, and text would be eaten."""
SHORTEST_FORM = 6
TAG_DIGITS = 8
OPENING = "[[secret:"
DEFUSED = "[[ secret:"
HANDLE = re.compile(
    rf"\[\[secret:(?P<name>{NAME.pattern})(?:~(?P<form>[a-z0-9]{{1,4}}(?:\.[a-z0-9]{{1,4}}){{0,2}}))?"
    rf":(?P<tag>[0-9a-f]{{{TAG_DIGITS}}})\]\]"
)
MOST_RUNS = 2
"""How many times base64 or hex is taken off; what is found under it may be encoded once more."""
WIDE = "n"
"""The label of characters with NUL between them, as UTF-16 has them."""
_OUTER = frozenset(string.ascii_letters + string.digits + '+/-_=%\\"')
"""What every encoding around a value is written in, whatever the value is."""
ODD = "x"
"""The label of a spelling that is not listed: it is found, and cannot be written again."""


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
    if label == WIDE:
        return "\0".join(secret)
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
    listed = {text: f"e{number}" for number, text in enumerate(escapes(secret))}
    return {"\0".join(secret): WIDE, **listed}


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
        self._alphabet = frozenset("".join(self._forms)) | _OUTER
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
        plain = as_seen(text) if that_matter(text, self._alphabet) else text
        if plain is not text and any(form in plain for form in self._quick):
            return True
        if self._runs.near(text) and next(self._encoded(text, MOST_RUNS), None) is not None:
            return True
        escaped = "%" in plain or "\\" in plain or "\0" in plain
        if not escaped and (plain is text or not self._apart(text, plain)):
            return False
        return any(  # one more than is taken off: that may be the JSON it is a text of
            next(self._seen_in(view, MOST_RUNS, text), None) is not None
            for view in views(text, self._alphabet, MOST_LAYERS + 1)
        )

    def _apart(self, text: str, plain: str) -> bool:
        """Whether a text that reads otherwise may hold a value in what it reads as."""
        return self._runs.near(plain) or any(map(joins, set(text)))

    def find(self, text: str) -> list[Found]:
        """Where values stand: in order, apart, in the widest form at each place."""
        if not self.values:
            return []
        found = [
            Found(m.start(), m.end(), *self._forms[m[0]]) for m in self._pattern.finditer(text)
        ]
        for view in views(text, self._alphabet):
            for each in self._seen_in(view, MOST_RUNS - 1, text):
                label = each.form if each.form[:1] == "b" or "." in each.form else ""
                _add(found, each._replace(form=label))
        for each in self._encoded(text, MOST_RUNS) if self._runs.near(text) else ():
            _add(found, each)
        return sorted(found)

    def _seen_in(self, view: View, runs: int, of: str) -> Iterator[Found]:
        """What stands in a view of a text, and not in the same runs of that text, at its place."""
        found = self._listed(view.text)
        if self._runs.near(view.text):
            found = chain(found, self._encoded(view.text, runs, of))
        return _back(view, found)

    def _listed(self, text: str) -> Iterator[Found]:
        """What stands in a text in one of the forms that are listed."""
        if any(form in text for form in self._quick):
            for match in self._pattern.finditer(text):
                yield Found(match.start(), match.end(), *self._forms[match[0]])

    def _encoded(self, text: str, runs: int, but: str = "") -> Iterator[Found]:
        """What stands in rows, or encoded under base64 or hex that is taken off so many times.

        The runs that the text has in common with another one, `but`, are passed over.
        """
        yield from self._under(text, runs, but)
        if (rows := in_one_row(text)) is not None:
            yield from _back(
                rows, chain(self._listed(rows.text), self._under(rows.text, runs, text))
            )

    def _under(self, text: str, runs: int, but: str) -> Iterator[Found]:
        """What stands encoded in base64 or in hex, whatever is the encoding inside."""
        for inner in self._runs.read(text, but) if runs else ():
            for found in self._listed(inner.text):
                yield self._outside(inner, self._spelled(found, inner.text))
            readable = inner.text.count(BROKEN) <= max(MOST_BROKEN, len(inner.text) // 4)
            layers = MOST_LAYERS if readable else 1  # what came about by chance is not worth more
            for view in views(inner.text, self._alphabet, layers):
                for found in self._seen_in(view, runs - 1, inner.text):
                    yield self._outside(inner, self._spelled(found, inner.text))
            if self._runs.near(inner.text):
                for found in self._encoded(inner.text, runs - 1):
                    yield self._outside(inner, self._spelled(found, inner.text))

    def _outside(self, inner: Inner, found: Found) -> Found:
        first, last, how = inner.back(found.start, found.end)
        return Found(first, last, found.value, f"{found.form}.{how}" if found.form else how)

    def _spelled(self, found: Found, text: str) -> Found:
        """The same with a label that leads back to exactly this spelling, or says that none does.

        Under base64 nothing may become longer or shorter: what follows would be read otherwise.
        """
        stands, number = text[found.start : found.end], found.value
        if written(self.values[number], found.form) == stands:
            return found
        if number not in self._spellings:
            self._spellings = {**self._spellings, number: _labelled(self.values[number])}
        return found._replace(form=self._spellings[number].get(stands, ODD))

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


def _back(view: View, found: Iterable[Found]) -> Iterator[Found]:
    """What was found in a view, at its place in the text that this is a view of."""
    for each in found:
        start, end = view.back(each.start, each.end)
        yield each._replace(start=start, end=end)


def _add(found: list[Found], each: Found) -> None:
    """Another one, unless something that was found before stands there."""
    if all(each.end <= f.start or each.start >= f.end for f in found):
        found.append(each)


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
