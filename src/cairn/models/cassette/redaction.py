"""What must not stand on a tape: known secrets in every form, and what looks like a key.

The same replacement is made on the tape and in matching, and doing it twice changes nothing. So
a run that reads a placeholder from the tape asks, later on, what the recorded run asked.
"""

from __future__ import annotations

import base64
import binascii
import json
import re
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote, quote_plus

from cairn.errors import ConfigError

SECRET_NAMES = ("_KEY", "_TOKEN", "_SECRET", "_PASSWORD")
SHORTEST_SECRET = 8
"""Shorter values are too likely to be plain words."""
MOST_PASSES = 8
"""Two are enough, unless one secret's value is another one's name."""

_EDGE = r"(?<![A-Za-z0-9_-])"
_GAP = r"(?:\s|%20|\+)+"
SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = (
    (
        ("PRIVATE KEY-----",),
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----[^-]+-----END [A-Z ]*PRIVATE KEY-----"),
        "«PRIVATE_KEY»",
    ),
    (
        ("eyJ",),
        re.compile(_EDGE + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*"),
        "«JWT»",
    ),
    (("sk-",), re.compile(_EDGE + r"sk-[A-Za-z0-9_-]{16,}"), "«KEY»"),
    (("AIza",), re.compile(_EDGE + r"AIza[A-Za-z0-9_-]{30,}"), "«KEY»"),
    (
        ("gh", "github_pat_"),
        re.compile(_EDGE + r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}"),
        "«KEY»",
    ),
    (("AKIA", "ASIA"), re.compile(_EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"), "«KEY»"),
    (("xox",), re.compile(_EDGE + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"), "«KEY»"),
    (("hf_",), re.compile(_EDGE + r"hf_[A-Za-z0-9]{20,}"), "«KEY»"),
    (
        ("earer",),
        re.compile(rf"{_EDGE}(?P<kept>[Bb]earer{_GAP})[A-Za-z0-9._~+/%-]{{16,}}=*"),
        "«TOKEN»",
    ),
)
"""What must be in a text before it is searched, the shape of a key, and what stands for it."""

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
        for needed, pattern, placeholder in SHAPES:
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
        for needed, pattern, placeholder in SHAPES:
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
            f"{one!r} cannot be looked for",
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
    raw = secret.encode("utf-8", "replace")
    escaped = [secret]
    for _ in range(2):  # JSON, and JSON inside a text of JSON
        escaped += [json.dumps(e, ensure_ascii=a)[1:-1] for e in escaped for a in (False, True)]
    forms = {*escaped, raw.hex(), raw.hex().upper()}
    for url in (quote(raw, safe=""), quote(raw), quote_plus(raw)):
        forms |= {url, re.sub("%..", lambda m: m[0].lower(), url)}
    for encode in (base64.b64encode, base64.urlsafe_b64encode):
        whole = encode(raw).decode()
        forms |= {whole, whole.rstrip("="), *(_core(encode, raw, shift) for shift in range(3))}
    return {form for form in forms if len(form) >= SHORTEST_SECRET}


def _core(encode: Callable[[bytes], bytes], raw: bytes, shift: int) -> str:
    """The base64 characters that depend on the secret alone when `shift` bytes stand before."""
    text = encode(bytes(shift) + raw).decode().rstrip("=")
    whole = (shift + len(raw)) * 8 // 6
    return text[-(-shift * 8 // 6) : whole]


def _sub(pattern: re.Pattern[str], placeholder: str, text: str) -> str:
    """Replace all but empty matches, and keep what a pattern calls `kept`."""
    return pattern.sub(
        lambda m: m.groupdict("").get("kept", "") + placeholder if m[0] else "", text
    )


def _decoded(match: re.Match[str]) -> str:
    run = match[0].rstrip("=").replace("-", "+").replace("_", "/")
    run = run[: len(run) - (len(run) % 4 == 1)]
    try:
        inner = base64.b64decode(run + "=" * (-len(run) % 4)).decode("latin-1")
    except binascii.Error:
        return match[0]
    found = any(
        pattern.search(inner)
        for needed, pattern, _ in SHAPES
        if any(word in inner for word in needed)
    )
    return "«base64»" if found else match[0]
