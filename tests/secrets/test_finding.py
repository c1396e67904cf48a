"""Known values are found in every stated form, and what is put in their place leads back."""

import base64
import json
import unicodedata
from collections.abc import Callable
from urllib.parse import quote

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.core.messages import CallPart, Reasoning, Text
from cairn.core.rules import Problem
from cairn.core.secrets import HANDLE, Finder
from cairn.core.unseen import as_seen
from cairn.governance.secrets import Sealed, Secrets


def _escaped(letter: str) -> str:
    return f"\\u{ord(letter):04x}" if ord(letter) < 0x10000 else json.dumps(letter)[1:-1]


PLAIN = "tR7q9Zx9vK2m"
ODD = 'p/+& "é\\q=7%Z'

ENCODINGS: dict[str, Callable[[str], str]] = {
    "as it is": lambda s: s,
    "JSON": lambda s: json.dumps(s)[1:-1],
    "JSON with all letters kept": lambda s: json.dumps(s, ensure_ascii=False)[1:-1],
    "JSON in JSON": lambda s: json.dumps(json.dumps(s))[1:-1],
    "every letter escaped": lambda s: "".join(map(_escaped, s)),
    "URL": lambda s: quote(s, safe=""),
    "URL twice": lambda s: quote(quote(s, safe=""), safe=""),
    "every byte in percent": lambda s: "".join(f"%{b:02X}" for b in s.encode()),
    "URL in JSON": lambda s: json.dumps(quote(s, safe=""))[1:-1],
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
    "full width": lambda s: "".join(chr(ord(c) + 0xFEE0) if "!" <= c <= "~" else c for c in s),
    "accents apart": lambda s: unicodedata.normalize("NFD", s),
    "with letters that are not seen": "\u200b".join,
}


def base64_of(text: str, before: int, url: bool, padded: bool) -> str:
    encode = base64.urlsafe_b64encode if url else base64.b64encode
    made = encode(b"u" * before + text.encode()).decode()
    return made if padded else made.rstrip("=")


def sealed(*values: str) -> Sealed:
    return Secrets({f"s{n}": value for n, value in enumerate(values)}).of()


@pytest.mark.parametrize("secret", [PLAIN, ODD])
@pytest.mark.parametrize("encoding", ENCODINGS)
def test_a_secret_is_found_however_it_is_written(encoding: str, secret: str) -> None:
    written = ENCODINGS[encoding](secret)
    shown = sealed(secret).text(f"see: {written} | and more")
    assert HANDLE.search(shown)
    assert written not in shown
    assert secret not in shown
    assert shown.startswith("see: ")
    assert shown.endswith(" | and more")


@pytest.mark.parametrize("padded", [True, False])
@pytest.mark.parametrize("url", [True, False])
@pytest.mark.parametrize("before", range(7))
@pytest.mark.parametrize("secret", [PLAIN, ODD, "sixsix"])
def test_a_secret_in_base64_is_found_at_any_place(
    secret: str, before: int, url: bool, padded: bool
) -> None:
    for then in ("", "?>?>zz"):
        shown = sealed(secret).text("x=" + base64_of(secret + then, before, url, padded))
        assert HANDLE.search(shown)
        quoted = quote(base64_of(secret + then, before, url, padded), safe="")
        assert HANDLE.search(sealed(secret).text(f"https://a/?x={quoted}&y=1"))


def test_what_is_put_in_its_place_is_short_and_names_it() -> None:
    shown = sealed(PLAIN).text(f"key {PLAIN}.")
    assert HANDLE.fullmatch(shown.removeprefix("key ").removesuffix("."))
    assert "s0" in shown


def test_of_two_secrets_that_begin_alike_the_longer_one_is_taken() -> None:
    both = sealed(PLAIN, PLAIN + "-live")
    assert both.text(PLAIN + "-live").startswith("[[secret:s1:")
    assert both.text(PLAIN + "-test").startswith("[[secret:s0:")


def test_a_secret_that_is_a_word_of_its_own_handle_changes_nothing_twice() -> None:
    seal = Secrets({"secret": "secret", "other": "[[secret"}).of()
    once = seal.text("my secret is [[secret here")
    assert seal.text(once) == once


def test_a_secret_over_two_parts_of_a_message_is_taken_out_of_both() -> None:
    parts = (Text(f"it is {PLAIN[:5]}"), Text(PLAIN[5:9]), Text(f"{PLAIN[9:]} so"), Text("on"))
    hidden = sealed(PLAIN).value(parts)
    whole = "".join(part.content for part in hidden)
    assert whole.startswith("it is [[secret:s0:")
    assert whole.endswith("]] soon")
    assert [part.content for part in hidden[-2:]] == [" so", "on"]


def test_thinking_is_searched_as_text_is_and_signed_text_goes_with_its_secret() -> None:
    said = Reasoning(content=f"use {PLAIN}", opaque=f"sig-{PLAIN}")
    hidden = sealed(PLAIN).value(said)
    assert PLAIN not in msgspec.json.encode(hidden).decode()
    assert hidden.opaque == ""
    assert sealed(PLAIN).value(Text("a", opaque="sk-a1B2c3D4e5F6g7H8i9")).opaque


def test_arguments_stay_json_whatever_is_taken_out_of_them() -> None:
    pin = "4711081599"
    seal = sealed(pin, ODD)
    text = json.dumps({"n": int(pin), ODD: [1.5, ODD, {"deep": f"a{ODD}b"}], "keep": True})
    hidden = json.loads(seal.json(text))
    assert HANDLE.fullmatch(hidden["n"])
    assert hidden["keep"] is True
    assert ODD not in json.dumps(hidden, ensure_ascii=False)
    assert seal.value(msgspec.Raw(b'{"a": 1}')) == msgspec.Raw(b'{"a": 1}')


def test_a_secret_over_the_marks_of_json_leaves_something_that_can_be_read() -> None:
    seal = sealed('":"split","')
    hidden = seal.value(msgspec.Raw(b'{"a":"split","b":1}'))
    assert b'":"split","' not in bytes(hidden)
    msgspec.json.decode(hidden)


def test_names_that_stand_twice_are_both_searched() -> None:
    part = CallPart(id="c1", name="t", arguments=f'{{"a":"{PLAIN}","a":"x"}}')
    assert PLAIN not in sealed(PLAIN).value(part).arguments


def test_a_forged_handle_is_made_harmless_and_a_real_one_stays() -> None:
    seal = sealed(PLAIN)
    real = seal.text(PLAIN)
    forged = "[[secret:s0:00000000]]"
    assert seal.text(f"{real} {forged}") == f"{real} [[ secret:s0:00000000]]"
    assert not HANDLE.search(seal.text("[[secret:nobody:12345678]]"))


def test_the_tag_of_a_handle_depends_on_the_value_and_survives_a_restart() -> None:
    assert sealed(PLAIN).text(PLAIN) == sealed(PLAIN).text(PLAIN)
    assert sealed(PLAIN).text(PLAIN) != sealed(PLAIN + "x").text(PLAIN + "x")


@settings(max_examples=60)
@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc", "Cn"]), min_size=6, max_size=20).filter(
        lambda s: len(as_seen(s).strip()) >= 6
    ),
    st.sampled_from([*ENCODINGS, "base64 0", "base64 1", "base64 2"]),
)
def test_any_secret_is_found_in_any_form(secret: str, encoding: str) -> None:
    if encoding == "accents apart" and unicodedata.normalize("NFC", secret) != secret:
        secret = unicodedata.normalize("NFC", secret)
    if encoding.startswith("base64"):
        written = base64_of(f"{secret}!", int(encoding[-1]), url=False, padded=True)
    else:
        written = ENCODINGS[encoding](secret)
    finder = Finder([secret])
    text = f"a {written} b"
    assert finder.near(text)
    found = finder.find(text)
    assert found
    assert all(2 <= f.start < f.end <= len(text) - 2 for f in found)


@settings(max_examples=25)
@given(st.text(max_size=60), st.integers(0, 8), st.text(max_size=20))
def test_arguments_come_back_as_they_were_written(text: str, before: int, then: str) -> None:
    seal = sealed(PLAIN)
    wanted = {"a": f"{text}{PLAIN}", "b": [f"{then} {PLAIN.encode().hex()} {then}"]}
    wanted["c"] = base64_of(PLAIN + "zz", before, url=False, padded=True)
    hidden = seal.json(json.dumps(wanted))
    assert PLAIN not in hidden
    back = seal.restored(hidden, (("", "s0"),))
    assert not isinstance(back, Problem)
    assert json.loads(back) == wanted
