"""A secret that was encoded and then put into base64 or hex is found, wherever it begins there."""

import base64
import json
import random
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.secrets.test_finding import ENCODINGS, ODD, PLAIN, base64_of, sealed

from cairn.core.encoded import has_run, has_word
from cairn.core.secrets import HANDLE, Finder, written

SECRETS = [PLAIN, ODD, "sixsix", "correct horse battery", "hunter2=&x"]

OUTER: dict[str, Callable[[str], str]] = {
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
}
for _before in range(3):
    for _url in (False, True):
        OUTER[f"base64 {'url ' * _url}{_before}"] = lambda s, n=_before, u=_url: base64_of(
            f"{s}?~", n, u, padded=False
        )
        OUTER[f"whole base64 {'url ' * _url}{_before}"] = lambda s, n=_before, u=_url: base64_of(
            s, n, u, padded=True
        )

EXACT: dict[str, Callable[[str], str]] = {
    **OUTER,
    "URL": lambda s: quote(s, safe=""),
    "URL in small letters": lambda s: re.sub("%..", lambda m: m[0].lower(), quote(s, safe="")),
    "form": quote_plus,
    "JSON": json.dumps,
    "JSON with all letters kept": lambda s: json.dumps({"a": s}, ensure_ascii=False),
    "JSON in JSON": lambda s: json.dumps({"a": json.dumps([s])}),
}
INNER = {**EXACT, **ENCODINGS, "with fillers": "\u3164".join}


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", INNER)
def test_a_secret_is_found_under_two_encodings(inner: str, outer: str) -> None:
    for secret in SECRETS:
        seal, finder = sealed(secret), Finder([secret])
        encoded = OUTER[outer](INNER[inner](secret))
        for before in ("see: ", "/v1/files/", "k=", "https://a/?x="):
            text = f"{before}{encoded} and more"
            row = (secret, text)
            assert finder.near(text), row
            spans = [(found.start, found.end) for found in finder.find(text)]
            assert spans, row
            start, end = spans[0]
            assert len(before) <= start < end <= len(text) - len(" and more"), row
            shown = seal.text(text)
            assert HANDLE.search(shown), row
            assert seal.text(shown) == shown, row
            assert not finder.near(shown), row


@pytest.mark.parametrize("outer", OUTER)
@pytest.mark.parametrize("inner", EXACT)
def test_arguments_encoded_twice_come_back_as_they_were(inner: str, outer: str) -> None:
    for secret in SECRETS:
        seal = sealed(secret)
        wanted = {"a": f"x={OUTER[outer](EXACT[inner](secret))}&y"}
        hidden = seal.json(json.dumps(wanted))
        assert "[[secret:s0" in hidden, (secret, hidden)
        assert json.loads(str(seal.restored(hidden, (("", "s0"),)))) == wanted, (secret, hidden)


def test_a_spelling_that_cannot_be_written_again_stays_a_handle() -> None:
    seal = sealed(PLAIN)
    odd = base64.b64encode(f"{PLAIN[:3]}%{ord(PLAIN[3]):02x}{PLAIN[4:]}".encode()).decode()
    hidden = seal.json(json.dumps({"a": odd}))
    assert "[[secret:s0~x.b0:" in hidden
    assert seal.restored(hidden, (("", "s0"),)) == json.dumps(json.loads(hidden))
    assert written(PLAIN, "x.b0") is None
    assert written(PLAIN, "b0.zz") is None


@given(st.sampled_from(sorted(INNER)), st.sampled_from(sorted(OUTER)), st.data())
def test_any_secret_is_found_under_two_encodings(
    inner: str, outer: str, data: st.DataObject
) -> None:
    letters = st.characters(min_codepoint=33, max_codepoint=126)
    secret = data.draw(st.text(letters, min_size=6, max_size=24))
    prefix = data.draw(st.text("abcXYZ019/_-+", max_size=9))
    text = f"{prefix}{OUTER[outer](INNER[inner](secret))} b"
    finder = Finder([secret])
    assert finder.near(text)
    assert finder.find(text)


def test_several_secrets_in_one_run_are_all_found() -> None:
    seal = sealed(PLAIN, ODD)
    inside = json.dumps({"a": PLAIN, "b": ODD, "c": quote(PLAIN, safe="")})
    shown = seal.text(base64.b64encode(inside.encode()).decode())
    assert len(HANDLE.findall(shown)) == 3


def test_runs_that_hold_no_secret_stay_as_they_are() -> None:
    seal, chance = sealed(*SECRETS), random.Random(7)
    for text in (
        base64.b64encode(chance.randbytes(20_000)).decode(),
        chance.randbytes(20_000).hex(),
        base64.b64encode("Die Straße ist naß und 订单已发货。".encode() * 50).decode(),
        base64.urlsafe_b64encode(json.dumps({"a": "100%25 \\u00e9"}).encode() * 50).decode(),
        "=" * 5_000 + "A" * 5_001,
    ):
        assert seal.text(text) == text


WORDS = st.text("aZ9+/_- \t\n\x1f\u2003.,é字", max_size=40)


@given(WORDS, st.integers(1, 12))
def test_a_run_is_long_enough_or_not_as_an_expression_says(text: str, least: int) -> None:
    assert has_run(text, least) is bool(re.search(rf"[A-Za-z0-9+/_-]{{{least}}}", text))
    if max(map(len, text.split()), default=0) >= least:
        assert has_word(text, least)
