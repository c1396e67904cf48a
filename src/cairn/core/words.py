"""From a text to the words it is found by; the same for what is kept and for what is asked.

Scripts that put spaces between words give words; the others (Chinese, Japanese, Korean, Thai and
their like) give each letter and each pair of neighbours. Nothing in here is a query language: a
quote, a star or a `NEAR` is a separator or a word, as in any text.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterator

from cairn.core.messages import clean

LONGEST_WORD = 64
"""Characters of a word that count; what comes behind them is nothing that people ask for."""
LONGEST_QUERY = 4_000
"""Characters of a question that count: of a longer one its beginning and its end."""
MOST_TERMS = 200
"""Different words of a question that are looked up."""

_RUNS = (
    (0x0E00, 0x0EFF),  # Thai, Lao
    (0x1000, 0x109F),  # Myanmar
    (0x1100, 0x11FF),  # Hangul letters
    (0x1780, 0x17FF),  # Khmer
    (0x2E80, 0x2FDF),  # radicals
    (0x3005, 0x3007),  # marks of repetition, zero
    (0x3040, 0x30FF),  # Hiragana, Katakana
    (0x3100, 0x31BF),  # Bopomofo
    (0x31F0, 0x31FF),
    (0x3400, 0x4DBF),  # Han
    (0x4E00, 0x9FFF),
    (0xA960, 0xA97F),
    (0xAC00, 0xD7FF),  # Hangul syllables
    (0xF900, 0xFAFF),
    (0x1B000, 0x1B16F),
    (0x20000, 0x3FFFF),  # the further planes of Han
)
"""Scripts that are written without spaces, or (Korean) with endings grown onto their words."""
_STARTS = [start for start, _ in _RUNS]
_ENDS = [end for _, end in _RUNS]
_ASCII_WORDS = re.compile(r"[0-9a-z]+")
_COMMON_LETTERS = frozenset("的了是在吗呢我你他她它们么吧啊のはがをにでともかねよ은는이가을를")
"""Letters of Chinese, Japanese and Korean that hold sentences together."""


def normal(text: str) -> str:
    """The text without differences of form: widths, ligatures, case, signs that nobody sees."""
    text = unicodedata.normalize("NFKC", clean(text)).casefold()
    return unicodedata.normalize("NFKC", text)


def words(text: str) -> Counter[str]:
    """Each word of a text, and how often it stands there."""
    return Counter(_words(normal(text)))


def asked(query: str) -> dict[str, float]:
    """The words of a question and how much each counts, in the order they stand in.

    Words that only hold sentences together are left out, unless there are no others. A single
    letter of a longer run counts little beside its pairs.
    """
    if len(query) > LONGEST_QUERY:
        query = f"{query[: LONGEST_QUERY // 2]} {query[-LONGEST_QUERY // 2 :]}"
    found: dict[str, float] = {}
    spare: dict[str, float] = {}
    for word, weight in _weighted(normal(query)):
        into = spare if _is_common(word) else found
        into[word] = max(into.get(word, 0.0), weight)
    chosen = found or spare
    return dict(list(chosen.items())[:MOST_TERMS])


def _words(text: str) -> Iterator[str]:
    return (word for word, _ in _weighted(text))


def _weighted(text: str) -> Iterator[tuple[str, float]]:
    if text.isascii():
        for match in _ASCII_WORDS.finditer(text):
            yield stem(match[0][:LONGEST_WORD]), 1.0
        return
    for piece, is_run in _pieces(text):
        if not is_run:
            yield (stem(piece[:LONGEST_WORD]), 1.0)
            continue
        alone = 1.0 if len(piece) == 1 else SINGLE
        for at, letter in enumerate(piece):
            yield letter, alone
            if at:
                yield piece[at - 1] + letter, 1.0


SINGLE = 0.3
"""What a letter counts beside the pairs it stands in."""


def _pieces(text: str) -> Iterator[tuple[str, bool]]:
    """Words and runs, in order, and which of the two each is."""
    piece: list[str] = []
    was_run = False
    for letter in text:
        kind = _kind(letter)
        if kind == "joins":
            continue
        is_run = kind == "run"
        if piece and (kind == "gap" or is_run is not was_run):
            yield "".join(piece), was_run
            piece = []
        if kind != "gap":
            piece.append(letter)
            was_run = is_run
    if piece:
        yield "".join(piece), was_run


def _kind(letter: str) -> str:
    """`word`, `run`, `gap`, or `joins` for what is not seen and separates nothing."""
    code = ord(letter)
    if code < 0x80:
        return "word" if letter.isalnum() else "gap"
    category = unicodedata.category(letter)
    if category == "Cf":
        return "joins"
    if category[0] not in "LMN":
        return "gap"
    at = bisect_right(_STARTS, code) - 1
    return "run" if at >= 0 and code <= _ENDS[at] else "word"


def _is_common(word: str) -> bool:
    return word in _COMMON or (len(word) <= 2 and all(each in _COMMON_LETTERS for each in word))


_PLURALS = (("ies", "y"), ("sses", "ss"), ("es", ""), ("s", ""))
_FORMS = (("ing", ""), ("ied", "y"), ("ed", ""))


def stem(word: str) -> str:
    """An English word without its commonest endings; any other word as it is.

    It need not be a word of the language, only the same for the forms of one word.
    """
    if len(word) < 4 or not word.isascii() or not word.isalpha():
        return word
    if not word.endswith(("ss", "us", "is")):
        word = _without(word, _PLURALS)
    word = _without(word, _FORMS)
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "aeiouls":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith("e") else word


def _without(word: str, endings: tuple[tuple[str, str], ...]) -> str:
    for ending, put in endings:
        if word.endswith(ending) and len(word) - len(ending) >= 3:
            return word[: -len(ending)] + put
    return word


_SAY_NOTHING = (
    "a about am an and any are as at be been being but by can could did do does for from had has "
    "have he her his how i if in into is it its like me my of on or our s she should so some t "
    "that the their them there they this to was we were what when where which who whom whose why "
    "will with would you your"
)
_COMMON = frozenset(map(stem, _SAY_NOTHING.split()))
"""English words that say nothing of what is asked for, as they are indexed."""
