"""Characters that are not seen hide nothing: not from redaction, not from a policy."""

import base64
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.core.holdback import HoldBack
from cairn.core.policy.predicates import Equals, Matches, OneOf
from cairn.core.secrets import HANDLE
from cairn.core.unseen import DEFAULT_IGNORABLE, FORMAT, as_seen, unseen
from cairn.errors import ConfigError
from cairn.governance.secrets import Secrets

VALUE = "tR7q9Zx9vK2m"
SEAL = Secrets({"stripe": VALUE}).of()
RANGES = DEFAULT_IGNORABLE + FORMAT
NAMED = "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b\u180e\u180f\u200b\u200f\u202a\u202e"
NAMED += "\u2060\u2065\u206f\u3164\ufe00\ufe0f\ufeff\uffa0\ufff0\U0001bca0\U0001d173\U0001d17a"
NAMED += "\U000e0001\U000e0020\U000e007f\U000e0100\U000e01ef\U000e0fff"
UNSEEN = st.sampled_from(RANGES).flatmap(lambda r: st.integers(*r)).map(chr)


def test_the_table_is_that_of_unicode() -> None:
    assert sum(high - low + 1 for low, high in DEFAULT_IGNORABLE) == 4_174
    assert all(map(unseen, NAMED))
    assert all(low <= high for low, high in RANGES)
    assert sorted(RANGES[: len(DEFAULT_IGNORABLE)]) == list(DEFAULT_IGNORABLE)


def test_every_format_character_is_in_it_and_no_letter_is() -> None:
    for code in range(0x110000):
        category = unicodedata.category(chr(code))
        if category == "Cf":
            assert unseen(chr(code)), hex(code)
        elif category[0] in "LNPSZ":
            fillers = chr(code) in "\u115f\u1160\u3164\uffa0"
            assert unseen(chr(code)) is fillers, hex(code)


@pytest.mark.parametrize("character", NAMED, ids=lambda c: f"U+{ord(c):04X}")
def test_a_secret_is_found_with_such_characters_in_it(character: str) -> None:
    for hidden in (character.join(VALUE), f"{VALUE[:5]}{character * 3}{VALUE[5:]}"):
        shown = SEAL.text(f"it is {hidden} so")
        assert HANDLE.fullmatch(shown.removeprefix("it is ").removesuffix(" so"))
        pieces = HoldBack(SEAL)
        told = "".join([*map(pieces.take, f"it is {hidden} so"), pieces.rest()])
        assert told == shown


@given(st.lists(UNSEEN, min_size=len(VALUE), max_size=len(VALUE)))
def test_a_secret_is_found_with_any_of_them_in_it(between: list[str]) -> None:
    hidden = "".join(a + b for a, b in zip(VALUE, between, strict=True))
    shown = SEAL.text(f"it is {hidden} so")
    assert HANDLE.search(shown)
    assert as_seen(hidden) == VALUE
    assert not any(letter in shown.replace("stripe", "") for letter in "RZK")


@pytest.mark.parametrize("character", NAMED, ids=lambda c: f"U+{ord(c):04X}")
def test_a_secret_that_holds_one_itself_is_found_with_it_and_without(character: str) -> None:
    secret = f"{VALUE[:6]}{character}{VALUE[6:]}"
    seal = Secrets({"odd": secret}).of()
    wide = "".join(chr(ord(c) + 0xFEE0) if c.isascii() else c for c in secret)
    for hidden in (secret, wide, VALUE, "\u200b".join(VALUE), secret.encode().hex()):
        assert HANDLE.search(seal.text(f"it is {hidden} so"))
    with pytest.raises(ConfigError, match="5 characters"):
        Secrets({"short": f"Zq7xK{character}"})


def _base64(raw: bytes) -> str:
    return base64.b64encode(raw).decode()


OUTER = {
    "base64 of UTF-16": _base64(VALUE.encode("utf-16-le")),
    "base64 of base64": _base64(_base64(VALUE.encode()).encode()),
    "base64 of hex": _base64(VALUE.encode().hex().encode()),
    "hex of hex": VALUE.encode().hex().encode().hex(),
    "hex of base64": _base64(VALUE.encode()).encode().hex(),
    "rows": base64.encodebytes(b"x" * 50 + VALUE.encode() + b"y" * 30).decode(),
}


@pytest.mark.parametrize("text", OUTER.values(), ids=OUTER)
def test_an_encoding_around_a_secret_is_read_in_any_width_and_with_them_in_it(text: str) -> None:
    wide = "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in text)
    for hidden in (wide, "\u200b".join(text), "\ufe0f".join(wide)):
        shown = SEAL.text(f"it is {hidden} so")
        assert HANDLE.search(shown), hidden
        assert SEAL.text(shown) == shown


def test_an_accent_finds_its_letter_over_what_is_not_seen() -> None:
    seal = Secrets({"word": "caféß-naïve"}).of()
    apart = unicodedata.normalize("NFD", "caféß-naïve")
    for hidden in ("\u034f".join(apart), "\u200d\u3164".join(apart), f"\ufeff{apart}"):
        assert HANDLE.search(seal.text(f"a {hidden} b"))


def test_a_letter_of_two_parts_is_found_apart() -> None:
    secret = "\u09cb\u0b4b\u0bca\u0ccb\u0d4a\u0dda-pass"
    apart = unicodedata.normalize("NFD", secret)
    assert apart != secret
    assert HANDLE.search(Secrets({"word": secret}).of().text(f"a {apart} b"))


@pytest.mark.parametrize("character", NAMED, ids=lambda c: f"U+{ord(c):04X}")
def test_a_policy_cannot_tell_what_only_looks_alike(character: str) -> None:
    given = f"pro{character}duction"
    assert Equals(value="production").test(given, {}) is None
    assert OneOf(values=("test", "production")).test(given, {}) is None
    assert Matches(pattern="production").test(given, {}) is None
    assert Equals(value="production").test("staging", {}) is False


def test_what_is_plain_text_is_left_as_it_is() -> None:
    for text in ("plain", "订单已发货，", "한국어 텍스트", "é à", "👍🏽 ok", "\u0e01\u0e33"):
        assert SEAL.text(text) == text
