"""What must not stand on a tape: known secrets in every form, and what looks like a key.

The same replacement is made on the tape and in matching, and doing it twice changes nothing. So
a run that reads a placeholder from the tape asks, later on, what the recorded run asked.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from cairn.core.keylike import SHAPES, holds_key
from cairn.core.secrets import escapes, forms
from cairn.errors import ConfigError, safe_repr

SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
SHORTEST_SECRET = 8
"""Shorter values are too likely to be plain words."""
MOST_PASSES = 8
"""Two are enough, unless one secret's value is another one's name."""

_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}={0,2}")
_PLACEHOLDER = re.compile(
    r"(«(?:KEY|TOKEN|JWT|PRIVATE_KEY|base64|redacted"
    rf"|[A-Za-z0-9_]*(?:{'|'.join(SECRET_NAMES)}))»)"
)


class Redactor:
    """Replaces secrets by placeholders.

    Args:
        environ: Where known secrets are looked for: values of at least 8 characters whose name
            ends in `_KEY`, `_TOKEN`, `_SECRET` or `_PASSWORD`.
        extra: Texts (found in their encoded forms, too) and compiled regular expressions.

    Raises:
        ConfigError: an item of `extra` is neither, is empty, or matches the empty text.
    """

    def __init__(
        self, environ: Mapping[str, str], extra: Sequence[str | re.Pattern[str]] = ()
    ) -> None:
        if isinstance(extra, str | re.Pattern):
            extra = (extra,)
        given: object = extra
        if not isinstance(given, Sequence | set | frozenset):
            problem = f"{safe_repr(given)} is no list"
            raise ConfigError("redact", problem, "Give texts and compiled regular expressions")
        self.extra = tuple(extra)
        _check(self.extra)
        named = [
            (value, f"«{re.sub(r'[^A-Za-z0-9_]', '_', name)}»")
            for name, value in sorted(environ.items())
            if name.endswith(SECRET_NAMES) and len(value) >= SHORTEST_SECRET
        ]
        named += [(text, "«redacted»") for text in self.extra if isinstance(text, str)]
        self._forms: dict[str, str] = {}
        for value, placeholder in named:
            for form in _forms(value):
                self._forms.setdefault(form, placeholder)
        longest_first = sorted(self._forms, key=len, reverse=True)
        # a placeholder is passed over as a whole, unless a secret holds it or it holds a secret
        self._known = re.compile("|".join([_PLACEHOLDER.pattern, *map(re.escape, longest_first)]))
        self._bytes = [
            (form.encode("utf-8", "replace"), self._forms[form].encode("utf-8", "replace"))
            for form in longest_first
            if len(form) >= SHORTEST_SECRET
        ]
        self._patterns = [one for one in self.extra if isinstance(one, re.Pattern)]
        self.text = lru_cache(maxsize=256)(self._text)
        """A text with its secrets replaced."""

    def tree(self, value: Any) -> Any:
        """A JSON value with the secrets in its texts and names replaced."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.tree(name): self.tree(inner) for name, inner in value.items()}
        if isinstance(value, list | tuple):
            return [self.tree(inner) for inner in value]
        return value

    def arguments(self, text: str) -> str:
        """The argument text of a call: still JSON afterwards, and untouched without a secret."""
        try:
            value = json.loads(text, object_pairs_hook=_distinct)
        except (ValueError, RecursionError):
            return self.text(text)
        hidden = self._numbers(self.tree(value))
        if hidden != value:
            text = json.dumps(hidden, ensure_ascii=False)
        return self._hidden(text)  # one that reaches over the marks of JSON is still there

    def data(self, content: bytes) -> bytes:
        """Bytes with known secrets and what looks like a key replaced.

        Patterns of `extra` are left out: one that is meant for a date could break an image.
        """
        for secret, hidden in self._bytes:
            content = content.replace(secret, hidden)
        text = content.decode("latin-1")
        for _, needed, pattern, placeholder in SHAPES:
            if any(word in text for word in needed):
                text = _sub(pattern, placeholder, text)
        return text.encode("latin-1")

    def _numbers(self, value: Any) -> Any:
        """A number that is a secret becomes a text, as a bare placeholder would be no JSON."""
        if isinstance(value, dict):
            return {name: self._numbers(inner) for name, inner in value.items()}
        if isinstance(value, list):
            return [self._numbers(inner) for inner in value]
        if isinstance(value, int | float) and not isinstance(value, bool):
            written = str(value)
            return hidden if (hidden := self.text(written)) != written else value
        return value

    def _text(self, text: str) -> str:
        for _ in range(MOST_PASSES):
            again = self._once(text)
            if again == text:
                break
            text = again
        return text

    def _once(self, text: str) -> str:
        text = self._hidden(text)
        for pattern in self._patterns:
            text = self._outside(text, partial(_sub, pattern, "«redacted»"))
        for _, needed, pattern, placeholder in SHAPES:
            if any(word in text for word in needed):
                text = self._outside(text, partial(_sub, pattern, placeholder))
        return self._outside(text, partial(_BASE64.sub, _decoded))

    def _hidden(self, text: str) -> str:
        if not any(form in text for form in self._forms):
            return text
        return self._known.sub(self._named, text)

    def _named(self, match: re.Match[str]) -> str:
        found = match[0]
        return self._forms.get(found) or self._forms.get(found[1:-1], found)

    def _outside(self, text: str, change: Callable[[str], str]) -> str:
        """Change what lies between placeholders."""
        if "«" not in text:
            return change(text)
        parts = _PLACEHOLDER.split(text)
        return "".join(part if n % 2 else change(part) for n, part in enumerate(parts))


def _check(extra: tuple[Any, ...]) -> None:
    for one in extra:
        if isinstance(one, str) and one and not _PLACEHOLDER.search(one):
            continue
        if isinstance(one, re.Pattern) and isinstance(one.pattern, str) and not one.search(""):
            continue
        raise ConfigError(
            "redact",
            f"{safe_repr(one)} cannot be looked for",
            "Give texts and compiled regular expressions that never match an empty text",
        )


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object whose names differ; of two equal ones JSON would drop what the first one says."""
    value = dict(pairs)
    if len(value) < len(pairs):
        raise ValueError("a name stands twice")
    return value


def _forms(secret: str) -> set[str]:
    """The secret as it may be written: plain, escaped for JSON or a URL, in base64 or hex."""
    if len(secret) < SHORTEST_SECRET:
        return {secret}
    return {f for f in {*forms(secret), *escapes(secret)} if len(f) >= SHORTEST_SECRET}


def _sub(pattern: re.Pattern[str], placeholder: str, text: str) -> str:
    """Replace all but empty matches, and keep what a pattern calls `kept`."""
    return pattern.sub(
        lambda m: m.groupdict("").get("kept", "") + placeholder if m[0] else "", text
    )


def _decoded(match: re.Match[str]) -> str:
    return "«base64»" if holds_key(match[0], sure=False) else match[0]
