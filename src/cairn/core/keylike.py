"""What looks like a key, though nobody has registered it: the forms of well-known providers.

A form alone is no proof: prose, examples, hashes and ids look like keys too. `key_like` asks for
chance as well: letters and digits mixed as nobody writes them. A cassette's redaction takes the
forms without that question, because on a tape a false alarm costs nothing.
"""

from __future__ import annotations

import base64
import binascii
import math
import re
from collections import Counter
from itertools import pairwise
from string import ascii_lowercase, digits
from typing import NamedTuple

from cairn.core.encoded import has_run, has_word

_EDGE = r"(?<![A-Za-z0-9_-])"
_GAP = r"(?:\s|%20|\+)+"


class Shape(NamedTuple):
    """One form of key.

    Attributes:
        kind: As it is called where it stood.
        needed: What must be in a text before it is searched; one of them.
        pattern: The form; what a group `kept` matches stays.
        stand_in: What a cassette writes in its place.
    """

    kind: str
    needed: tuple[str, ...]
    pattern: re.Pattern[str]
    stand_in: str = "«KEY»"


def _shape(kind: str, needed: tuple[str, ...], pattern: str, stand_in: str = "«KEY»") -> Shape:
    return Shape(kind, needed, re.compile(pattern), stand_in)


SHAPES: tuple[Shape, ...] = (
    _shape(
        "private-key",
        ("PRIVATE KEY",),
        r"-----BEGIN [A-Z ]*PRIVATE KEY(?: BLOCK)?-----(?:[^-]|-(?!----))+"
        r"(?:-----END [A-Z ]*PRIVATE KEY(?: BLOCK)?-----|\Z)",
        "«PRIVATE_KEY»",
    ),
    _shape(
        "jwt",
        ("eyJ",),
        _EDGE + r"eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*",
        "«JWT»",
    ),
    _shape("api-key", ("sk-",), _EDGE + r"sk-[A-Za-z0-9_-]{16,}"),
    _shape("google-key", ("AIza",), _EDGE + r"AIza[A-Za-z0-9_-]{30,}"),
    _shape(
        "github-token",
        ("gh", "github_pat_"),
        _EDGE + r"(?:gh[pousr]_|github_pat_)[A-Za-z0-9_]{20,}",
    ),
    _shape("aws-key", ("AKIA", "ASIA"), _EDGE + r"(?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])"),
    _shape("slack-token", ("xox",), _EDGE + r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _shape("hf-token", ("hf_",), _EDGE + r"hf_[A-Za-z0-9]{20,}"),
    _shape(
        "bearer-token",
        ("earer",),
        rf"{_EDGE}(?P<kept>[Bb]earer{_GAP})[A-Za-z0-9._~+/%-]{{16,}}=*",
        "«TOKEN»",
    ),
    _shape("stripe-key", ("k_live_", "k_test_"), _EDGE + r"[rsp]k_(?:live|test)_[A-Za-z0-9]{16,}"),
    _shape("stripe-key", ("whsec_",), _EDGE + r"whsec_[A-Za-z0-9+/]{24,}={0,2}"),
    _shape("gitlab-token", ("glpat-",), _EDGE + r"glpat-[A-Za-z0-9_-]{20,}"),
    _shape("npm-token", ("npm_",), _EDGE + r"npm_[A-Za-z0-9]{36}"),
    _shape("pypi-token", ("pypi-",), _EDGE + r"pypi-[A-Za-z0-9_-]{50,}"),
    _shape("sendgrid-key", ("SG.",), _EDGE + r"SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
    _shape(
        "api-key",
        ("gsk_", "xai-", "pplx-", "nvapi-", "dop_v1_", "GOCSPX-", "ya29.", "xapp-"),
        _EDGE + r"(?:gsk_|xai-|pplx-|nvapi-|dop_v1_|GOCSPX-|ya29\.|xapp-)[A-Za-z0-9_-]{24,}",
    ),
)

_WORDS = (
    r"pass(?:word|wd|phrase)|pwd|(?:api|access|private|account|secret|encryption|signing)[_-]?key"
    r"|(?:auth|access|refresh|api|bot|bearer|secret)[_-]?token|(?:client|app)[_-]?secret|secret"
)
_NEAR_WORDS = ("passw", "passphrase", "pwd", "secret", "_key", "-key", "ikey", "skey", "token")
_ASSIGNED = re.compile(
    rf"(?P<kept>(?:{_WORDS})(?:\\?[\"'])?\s{{0,3}}(?:=>|:=|[:=])\s{{0,3}}(?:\\?[\"'])?)"
    r"[^\s\"'\\,;&<>(){}\[\]«»|`$]{12,}",
    re.IGNORECASE,
)
_NAMED = re.compile(rf"(?:{_WORDS})$", re.IGNORECASE)
_LOGIN = re.compile(
    r"(?P<kept>[A-Za-z][A-Za-z0-9+.-]{1,20}://[^\s:/@\"']{1,64}:)[^\s:@/\"']{8,}(?=@)"
)
_BASIC = re.compile(rf"(?P<kept>[Bb]asic{_GAP})[A-Za-z0-9+/_-]{{16,}}={{0,2}}")
_BASE64 = re.compile(r"(?<![A-Za-z0-9+/_-])[A-Za-z0-9+/_-]{24,}={0,2}")

KINDS = tuple(
    dict.fromkeys((*(s.kind for s in SHAPES), "credential", "url-password", "encoded-key"))
)
MARKER = re.compile(rf"\[redacted (?:{'|'.join(KINDS)})\]")
"""What stands in the place of a key that nobody has registered."""
BEGINNINGS = tuple(dict.fromkeys(word for s in SHAPES for word in s.needed if word != "gh"))
_NEAR = (*BEGINNINGS, "gho_", "ghp_", "ghr_", "ghs_", "ghu_", "://")
_RARE = "_9:JKYGZXQVx.-"
_BY_RARE = tuple(
    (rare, words)
    for rare in _RARE
    if (
        words := tuple(
            w for w in _NEAR if rare in w and not set(w) & set(_RARE[: _RARE.index(rare)])
        )
    )
)
_COMMON = tuple(word for word in _NEAR if not set(word) & set(_RARE))
"""One character is found much faster than a word: where it is missing, so is the word."""

_WORDED = re.compile(
    r"example|sample|placeholder|your|dummy|changeme|redacted|xxxx|\*{3}|\.{3}", re.IGNORECASE
)
_ORDERED = re.compile(r"0000000|1234567|abcdefg|fedcba|deadbeef", re.IGNORECASE)


def _row(characters: str) -> str:
    """At least four that follow each other in this order."""
    steps = "|".join(f"{one}(?={other})" for one, other in pairwise(characters))
    return f"(?:{steps}){{3,}}."


_ROW = re.compile(
    "|".join(_row(row[::way]) for row in (ascii_lowercase, digits + "0") for way in (1, -1))
    + r"|(.)\1{3,}|deadbeef",
    re.IGNORECASE,
)
_BY_VENDOR = frozenset(s.kind for s in SHAPES) - {"private-key", "jwt", "bearer-token"}
"""Kinds whose beginning says whose they are."""
_UUID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}", re.IGNORECASE)
_PIECES = re.compile(r"[-_./:@+=%~]+")
_REFERENCE = re.compile(
    r"[a-z][a-z0-9+.-]*://|arn:|projects/|env[.:]|vault:|op:|/|\.{1,2}/|%[A-Za-z]"
)
SHORTEST_VALUE = 12
SHORTEST_ENCODED = 24
SHORTEST_PIECE = 8
LEAST_BODY = 40
"""Characters of a private key; an ellipsis has less."""
LEAST_DISTINCT = 16
LEAST_DISTINCT_ID = 6
WOVEN = 4
"""Capital and small letters each in a random piece without digits; names have less of one."""
LEAST_ENTROPY = 2.8
"""Bits for each character; words have less, or no digit among them."""


def marker(kind: str) -> str:
    """What stands where a key of this kind was."""
    return f"[redacted {kind}]"


def near_key(text: str) -> bool:
    """Whether a text could hold something like a key; cheap, and True too often."""
    if len(text) < SHORTEST_VALUE:
        return False
    if not has_word(text, SHORTEST_VALUE):
        return False  # that is found out much faster than a pattern is looked for
    if _begun(text):
        return True
    low = text.lower()
    if ("=" in text or ":" in text) and _one_of(_NEAR_WORDS, low):
        return True
    return "basic" in low or has_run(text, SHORTEST_ENCODED)


def _one_of(words: tuple[str, ...], text: str) -> bool:
    for word in words:  # noqa: SIM110 - a generator costs more than what it looks for
        if word in text:
            return True
    return False


def _begun(text: str) -> bool:
    """Whether a text holds what one of the forms cannot do without."""
    for rare, words in _BY_RARE:
        if rare in text and _one_of(words, text):
            return True
    return _one_of(_COMMON, text)


def _possible(text: str) -> list[Shape]:
    """The forms of which a text holds what is needed, in order."""
    if not _begun(text):
        return []
    return [shape for shape in SHAPES if _one_of(shape.needed, text)]


def key_like(text: str) -> list[tuple[int, int, str]]:
    """Where something stands that looks like a key: start, end and kind, in order."""
    found: list[tuple[int, int, str]] = []
    for kind, _, pattern, _ in _possible(text):
        found += _matches(kind, pattern, text)
    low = text.lower()
    if _one_of(_NEAR_WORDS, low):
        found += _matches("credential", _ASSIGNED, text)
    if "basic" in low:
        found += _matches("credential", _BASIC, text)
    if "://" in text:
        found += _matches("url-password", _LOGIN, text)
    if len(text) >= SHORTEST_ENCODED:
        found += [
            (match.start(), match.end(), "encoded-key")
            for match in _BASE64.finditer(text)
            if holds_key(match[0])
        ]
    return _apart(found)


def is_credential(name: str, value: str) -> bool:
    """Whether a value that stands under this name, as in JSON, is a key or a password."""
    return _NAMED.search(name) is not None and not _REFERENCE.match(value) and _by_chance(value)


def holds_key(run: str, *, sure: bool = True) -> bool:
    """Whether a run of base64 holds a key; `sure` asks for chance in it, too."""
    inner = _decode(run).decode("latin-1")
    return any(
        _matches(shape.kind, shape.pattern, inner) if sure else shape.pattern.search(inner)
        for shape in _possible(inner)
    )


def _matches(kind: str, pattern: re.Pattern[str], text: str) -> list[tuple[int, int, str]]:
    found = []
    for match in pattern.finditer(text):
        start = match.start() + len(match.groupdict().get("kept") or "")
        if _real(kind, text[start : match.end()]):
            found.append((start, match.end(), kind))
    return found


def _real(kind: str, value: str) -> bool:
    """Whether it is a key, and not an example of one or a word that begins alike."""
    if kind == "private-key":
        body = value.split("-----")[2] if value.count("-----") > 1 else ""
        return len(body) >= LEAST_BODY and len(set(body)) >= LEAST_DISTINCT
    if kind == "jwt":
        return b'"alg"' in _decode(value.partition(".")[0])
    if kind in _BY_VENDOR and _ORDERED.search(value):  # chance makes a row now and then
        if _WORDED.search(value):
            return False
        value = _without_rows(value)
        if kind != "aws-key":
            return any(map(_random_piece, _PIECES.split(value)))
        return len(value) >= 4 + SHORTEST_PIECE and len(set(value[4:])) >= LEAST_DISTINCT_ID
    if kind == "aws-key":
        return not _WORDED.search(value) and len(set(value[4:])) >= LEAST_DISTINCT_ID
    if kind in {"credential", "url-password"} and _REFERENCE.match(value):
        return False
    return _by_chance(value)


def _without_rows(value: str) -> str:
    """A key without what was typed in order, as long as anything is; the rest put together."""
    while (left := _ROW.sub("", value)) != value:
        value = left
    return left


def _by_chance(value: str) -> bool:
    if len(value) < SHORTEST_PIECE or _UUID.fullmatch(value):
        return False
    if _WORDED.search(value) or _ORDERED.search(value):
        return False
    return any(map(_random_piece, _PIECES.split(value)))


def _random_piece(piece: str) -> bool:
    if len(piece) < SHORTEST_PIECE or not piece.isascii():
        return False
    numbers = sum(c.isdigit() for c in piece)
    upper = sum(c.isupper() for c in piece)
    lower = sum(c.islower() for c in piece)
    mixed = numbers > 0 and upper + lower > 0
    woven = upper >= WOVEN and lower >= WOVEN and len(piece) >= LEAST_DISTINCT
    return (mixed or woven) and _entropy(piece) >= LEAST_ENTROPY


def _entropy(text: str) -> float:
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _decode(run: str) -> bytes:
    run = run.rstrip("=").replace("-", "+").replace("_", "/")
    run = run[: len(run) - (len(run) % 4 == 1)]
    try:
        return base64.b64decode(run + "=" * (-len(run) % 4))
    except binascii.Error:
        return b""


def _apart(found: list[tuple[int, int, str]]) -> list[tuple[int, int, str]]:
    """In order; those that overlap become one."""
    apart: list[tuple[int, int, str]] = []
    for start, end, kind in sorted(found, key=lambda each: (each[0], -each[1])):
        if apart and start < apart[-1][1]:
            first, last, known = apart[-1]
            apart[-1] = (first, max(last, end), known)
        else:
            apart.append((start, end, kind))
    return apart
