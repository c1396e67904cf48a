"""The one seam before the codec: a fact, a command or a text without what must not be kept.

Known secrets become handles, what looks like a key becomes a marker, and a handle that nobody
could have been given is made harmless. Doing it twice changes nothing.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Literal, NamedTuple, Protocol, TypeVar, get_origin

import msgspec

from cairn.core.keylike import MARKER, is_credential, key_like, marker, near_key
from cairn.core.messages import Reasoning, Text
from cairn.core.remembered import MOST_CHARS, How, Remembered
from cairn.core.secrets import DEFUSED, HANDLE, OPENING, Finder

T = TypeVar("T")
_KEPT = re.compile(f"{HANDLE.pattern}|{MARKER.pattern}")
_STRUCTURE = {"after", "agent", "artifact", "call", "consumes", "digest", "fingerprint", "hash"}
_STRUCTURE |= {"head", "id", "limits", "messages", "model", "parent", "principal", "reserved"}
_STRUCTURE |= {"run", "seqs", "session", "step", "tenant", "tool", "tools", "type", "usage"}
"""Fields that hold the runtime's own words and numbers, or names that the deployer chose."""
_OPAQUE = frozenset({"opaque"})
_IDS = frozenset({"alias", "request_id"})
"""What others made up by chance: it looks like keys, and is none."""
_JSON = frozenset({"arguments"})
SHORTEST = 6
"""Nothing shorter is a secret or a key, a number in JSON neither."""
LOST = '"[the runtime could not read this]"'


class Registry(Protocol):
    """What a redaction knows of secrets; one for each principal."""

    @property
    def finder(self) -> Finder:
        """Finds all that is known, whoever it belongs to."""
        ...

    def handle(self, value: int, form: str) -> str:
        """What stands in the place of the finder's value of this number."""
        ...

    def judges(self) -> bool:
        """Whether it can tell a handle from a forged one: somebody registered a secret."""
        ...

    def holds(self, name: str, tag: str) -> bool:
        """Whether a handle is one, and for this principal."""
        ...


class _Change(NamedTuple):
    start: int
    end: int
    put: str


class Redaction:
    """Takes out what must not be kept, for the runs of one principal."""

    __slots__ = ("_finder", "_memory", "_registry")

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._finder = registry.finder
        self._memory: Remembered | None = None

    def text(self, text: str) -> str:
        """The text without secrets and what looks like one."""
        if text in self._registry.finder.clean.text:
            return text
        if not SHORTEST <= len(text) <= MOST_CHARS:
            return self._text(text) if text else text
        return self._remembered(text, self._text, "text")

    def _text(self, text: str) -> str:
        return _applied(text, self._changes(text)) if self._near(text) else text

    def _remembered(self, text: str, found: Callable[[str], str], how: How) -> str:
        """What was found of a text before; what comes back is seen again as what is recorded.

        That a text is clean depends on what is known alone, and is remembered for all redactions
        that know it. What depends on whose redaction this is stays with it.
        """
        finder = self._registry.finder
        known = finder.clean.get(text, how)
        if known is not None:
            return known
        memory = self._memory if self._finder is finder else None
        known = memory.get(text, how) if memory is not None else None
        if known is not None:
            return known
        known = found(text)
        if known == text and OPENING not in text and "\\u" not in text:
            finder.clean.keep(text, how, text)
            return text
        if memory is None:
            self._finder, self._memory = finder, (memory := Remembered())
        memory.keep(text, how, known)
        return known

    def found_in(self, text: str) -> bool:
        """Whether anything would be taken out of this text."""
        return self.text(text) != text

    def json(self, text: str) -> str:
        """A JSON text: still JSON afterwards, and untouched without a secret in it."""
        if text in self._registry.finder.clean.json:
            return text
        if not SHORTEST <= len(text) <= MOST_CHARS:
            return self._json(text) if text else text
        return self._remembered(text, self._json, "json")

    def _json(self, text: str) -> str:
        # a text alone, with nothing escaped, is near a secret if what stands in it is
        alone = text[:1] == '"' and "\\" not in text
        if not alone and not self._near(text) and "\\u" not in text:
            return text
        try:
            value = _READER.decode(text)
            hidden = self._tree(value)
        except (ValueError, RecursionError):
            return self.text(text)
        if hidden != value:
            text = json.dumps(hidden, ensure_ascii=False, separators=(",", ":"))
        return self._without_known(text)  # one that reaches over the marks of JSON

    def value(self, value: T) -> T:
        """A record, or what it is made of, with all its texts redacted."""
        redacted: T = self._value(value)
        return redacted

    def _value(self, value: Any) -> Any:
        kind = type(value)
        if kind is str:
            return self.text(value)
        if kind is msgspec.Raw:
            text = bytes(value).decode()
            hidden = self.json(text)
            return value if hidden == text else msgspec.Raw(_readable(hidden.encode()))
        if isinstance(value, msgspec.Struct):
            return self._record(value)
        if kind is tuple:
            return self._tuple(value)
        if kind is list:
            return [self._value(each) for each in value]
        if kind is dict:
            return {self._value(name): self._value(each) for name, each in value.items()}
        return value

    def _record(self, record: msgspec.Struct) -> msgspec.Struct:
        plan = _plans.get(type(record))
        if plan is None:
            plan = _plan(type(record))
        changed: dict[str, Any] = {}
        for name, redacted in plan:
            before = getattr(record, name)
            if before:
                after = redacted(self, before)
                if after is not before and after != before:
                    changed[name] = after
        return msgspec.structs.replace(record, **changed) if changed else record

    def _written(self, value: Any) -> Any:
        return self.json(value) if type(value) is str else self._value(value)

    def _id(self, value: Any) -> Any:
        if type(value) is str:
            if value in self._registry.finder.clean.id:
                return value
            return self._remembered(value, self._without_known, "id")
        return self._value(value)

    def _opaque(self, value: Any) -> Any:
        return "" if self._registry.finder.near(str(value)) else value

    def _tuple(self, values: tuple[Any, ...]) -> tuple[Any, ...]:
        if len(values) == 1:
            return values if (one := self._value(values[0])) is values[0] else (one,)
        hidden = tuple([self._value(each) for each in self._joined(values)])
        same = all(one is other for one, other in zip(values, hidden, strict=True))
        return values if same else hidden

    # ---------------------------------------------------------------- as it arrives

    @property
    def longest(self) -> int:
        """Characters of the longest form of a secret."""
        return self._registry.finder.longest

    @property
    def spaced(self) -> bool:
        """Whether a secret has spaces in it."""
        return self._registry.finder.spaced

    def begins(self, text: str) -> bool:
        """Whether a secret, in one of its forms, begins with this text."""
        return self._registry.finder.begins(text)

    def in_a_secret(self, character: str) -> bool:
        """Whether a secret holds this character."""
        return any(character in value for value in self._registry.finder.values)

    def after(self, before: str, text: str) -> str:
        """The text redacted, where `before` stood in front of it."""
        whole = before + text
        if not self._near(whole):
            return text
        at = len(before)
        changes = [
            _Change(max(c.start, at) - at, c.end - at, c.put)
            for c in self._changes(whole)
            if c.end > at
        ]
        return _applied(text, changes)

    def apart(self, text: str, at: int) -> int:
        """Where a text may be cut, near `at`, so that nothing is cut that must not be kept."""
        for change in self._changes(text) if self._near(text) else ():
            if change.start < at < change.end:
                return change.start or change.end
        return at

    # ---------------------------------------------------------------- over several parts

    def _joined(self, parts: tuple[Any, ...]) -> tuple[Any, ...]:
        """Parts of a message, with what reaches from one text to the next taken out of both."""
        if sum(type(part) in (Text, Reasoning) for part in parts) <= 1:
            return parts
        made = list(parts)
        at = 0
        while at < len(made):
            upto = at + 1
            while upto < len(made) and type(made[upto]) is type(made[at]):
                upto += 1
            if upto - at > 1 and type(made[at]) in (Text, Reasoning):
                made[at:upto] = self._together(made[at:upto])
            at = upto
        return tuple(made)

    def _together(self, parts: Sequence[Text | Reasoning]) -> list[Text | Reasoning]:
        whole = "".join(part.content for part in parts)
        changes = self._changes(whole) if self._near(whole) else []
        if not changes:
            return list(parts)
        made: list[Text | Reasoning] = []
        at = 0
        for part in parts:
            upto = at + len(part.content)
            inside = [
                _Change(
                    max(c.start, at) - at,
                    min(c.end, upto) - at,
                    c.put if at <= c.start < upto else "",
                )
                for c in changes
                if c.start < upto and c.end > at
            ]
            content = _applied(part.content, inside)
            same = content == part.content
            made.append(part if same else msgspec.structs.replace(part, content=content))
            at = upto
        return made

    # ---------------------------------------------------------------- inside one text

    def _near(self, text: str) -> bool:
        return OPENING in text or near_key(text) or self._registry.finder.near(text)

    def _without_known(self, text: str) -> str:
        if not self._registry.finder.near(text):
            return text
        return _applied(text, self._changes(text, keys=False))

    def _changes(self, text: str, *, keys: bool = True) -> list[_Change]:
        changes: list[_Change] = []
        search = self._between if keys else self._known
        at = 0
        for kept in _KEPT.finditer(text) if "[" in text else ():
            changes += search(text, at, kept.start())
            changes += self._judged(kept)
            at = kept.end()
        return changes + search(text, at, len(text))

    def _judged(self, kept: re.Match[str]) -> list[_Change]:
        registry = self._registry
        if kept["name"] is None or not registry.judges():
            return []
        if registry.holds(kept["name"], kept["tag"]):
            return []
        return [_Change(kept.start(), kept.start() + len(OPENING), DEFUSED)]

    def _between(self, text: str, start: int, end: int) -> list[_Change]:
        known = self._known(text, start, end)
        changes = list(known)
        at = start
        for upto in (*(c.start for c in known), end):
            if upto > at:
                changes += [
                    _Change(at + s, at + e, marker(kind)) for s, e, kind in key_like(text[at:upto])
                ]
            at = next((c.end for c in known if c.start == upto), end)
        return sorted(changes)

    def _known(self, text: str, start: int, end: int) -> list[_Change]:
        registry = self._registry
        if not registry.finder.values:
            return []
        return [
            _Change(start + f.start, start + f.end, registry.handle(f.value, f.form))
            for f in registry.finder.find(text[start:end])
        ]

    def _tree(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, dict):
            return {self.text(name): self._entry(name, inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._tree(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = str(value)  # a bare handle would be no JSON
            finder = self._registry.finder
            return self.text(written) if finder.near(written) else value
        return value

    def _entry(self, name: str, value: Any) -> Any:
        hidden = self._tree(value)
        if hidden == value and isinstance(value, str) and is_credential(name, value):
            return hidden if _KEPT.search(value) else marker("credential")
        return hidden


def _applied(text: str, changes: Sequence[_Change]) -> str:
    if not changes:
        return text
    made: list[str] = []
    at = 0
    for start, end, put in changes:
        made += (text[at:start], put)
        at = end
    return "".join((*made, text[at:]))


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ; of two equal ones JSON would drop what the first one says."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name stands twice")
    return value


def _readable(data: bytes) -> bytes:
    try:
        msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError):
        return LOST.encode()
    return data


_READER = json.JSONDecoder(object_pairs_hook=_distinct)

_Plan = tuple[tuple[str, Callable[[Redaction, Any], Any]], ...]
_plans: dict[type, _Plan] = {}


def _plan(kind: type[msgspec.Struct]) -> _Plan:
    """The fields of a record that are looked into, and how; made once for each kind."""
    made: list[tuple[str, Callable[[Redaction, Any], Any]]] = []
    for field in msgspec.structs.fields(kind):
        name, of = field.name, field.type
        if name in _STRUCTURE or of in (int, float, bool, bytes):
            continue
        if get_origin(of) is Literal or (isinstance(of, type) and issubclass(of, Enum)):
            continue
        how = "text" if of is str else "_value"
        made.append((name, getattr(Redaction, _HOW.get(name, how))))
    plan = _plans[kind] = tuple(made)
    return plan


_HOW = {
    **dict.fromkeys(_JSON, "_written"),
    **dict.fromkeys(_IDS, "_id"),
    **dict.fromkeys(_OPAQUE, "_opaque"),
}
"""By which method a field is redacted, if it is no plain value."""
