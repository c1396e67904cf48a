"""A secret in rows of base64 or hex, in UTF-16, and encoded three times is found."""

import base64
import json
import random
import re
from collections.abc import Callable
from urllib.parse import quote

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.secrets.test_finding import PLAIN, sealed
from tests.secrets.test_hold_back import cut, streamed

from cairn.core.encoded import ROW, breaks, open_rows
from cairn.core.secrets import HANDLE, Finder, written

LETTERS = st.characters(min_codepoint=33, max_codepoint=126)
SECRET = st.text(LETTERS, min_size=8, max_size=120)
GAPS = st.sampled_from(["\n", "\r\n", " ", "\n    ", "\r\n\t", "\n\n"])
RUNS: dict[str, Callable[[bytes], str]] = {
    "base64": lambda raw: base64.b64encode(raw).decode(),
    "URL-safe base64": lambda raw: base64.urlsafe_b64encode(raw).decode(),
    "hex": bytes.hex,
    "HEX": lambda raw: raw.hex().upper(),
}
TEXTS: dict[str, Callable[[str], str]] = {
    **{name: lambda s, run=run: run(s.encode()) for name, run in RUNS.items()},
    "URL": lambda s: quote(s, safe=""),
    "JSON": lambda s: json.dumps({"k": s}),
}


def in_rows(text: str, width: int, gap: str) -> str:
    return gap.join(text[at : at + width] for at in range(0, len(text), width))


@settings(max_examples=100)
@given(
    SECRET,
    st.sampled_from(sorted(RUNS)),
    st.integers(48, 80),
    GAPS,
    st.binary(max_size=90),
    st.binary(max_size=90),
)
def test_a_secret_over_several_rows_is_found(
    secret: str, run: str, width: int, gap: str, before: bytes, after: bytes
) -> None:
    rows = in_rows(RUNS[run](before + secret.encode() + after), width, gap)
    finder, seal, text = Finder([secret]), sealed(secret), f"see:\n{rows}\nend."
    assert finder.near(text)
    assert finder.find(text)
    shown = seal.text(text)
    assert HANDLE.search(shown)
    assert shown.startswith("see:\n")
    assert shown.endswith("end.")
    assert seal.text(shown) == shown
    assert HANDLE.search(seal.json(json.dumps({"file": text})))


@settings(max_examples=100)
@given(SECRET, st.integers(48, 80), GAPS, st.lists(st.integers(0, 2_000), max_size=40))
def test_rows_that_arrive_in_pieces_are_shown_as_the_whole_is(
    secret: str, width: int, gap: str, places: list[int]
) -> None:
    seal, chance = sealed(secret), random.Random(len(secret) * width)
    raw = chance.randbytes(90) + secret.encode() + chance.randbytes(90)
    rows = in_rows(RUNS["base64"](raw), width, gap)
    text = f"so it is\n{rows}\nand  more words, a_long_name_here on"
    shown = "".join(streamed(cut(text, places), seal))
    assert HANDLE.search(shown)
    assert shown == seal.text(text)
    assert "".join(streamed(list(text), seal)) == shown


ROWS = st.text("aZ9+ \n.é", max_size=12) | st.sampled_from(["x" * 48, "y" * 47, "z" * 99, " " * 33])


@given(st.lists(ROWS, max_size=9).map("".join), st.integers(0, 300))
def test_nothing_is_let_go_that_a_row_may_still_go_on_from(text: str, at: int) -> None:
    begun = text[: at % (len(text) + 1)]
    word = next((n for n in range(len(begun), 0, -1) if begun[n - 1] in " \n"), 0)
    held = open_rows(begun, word)
    assert 0 <= held <= word
    assert not any(start < held < end or held == end for start, end in breaks(text))


@settings(max_examples=100)
@given(SECRET, st.sampled_from(["utf-16-le", "utf-16-be", "utf-32-le"]), st.data())
def test_a_secret_in_utf_16_is_found_however_it_is_shown(
    secret: str, width: str, data: st.DataObject
) -> None:
    raw = data.draw(st.sampled_from(["key {}!", "{}"])).format(secret).encode(width)
    shown_as = {
        "characters": raw.decode("latin-1"),
        "escapes of Python": repr(raw),
        "escapes of JSON": json.dumps(raw.decode("latin-1")),
        "escapes of a URL": quote(raw),
        "base64": base64.b64encode(raw).decode(),
        "base64 in rows": base64.encodebytes(raw).decode(),
        "hex": raw.hex(),
    }
    for text in shown_as.values():
        finder, seal = Finder([secret]), sealed(secret)
        assert finder.near(text)
        assert finder.find(text)
        assert not finder.near(seal.text(text))
        places = data.draw(st.lists(st.integers(0, 500), max_size=9))
        assert "".join(streamed(cut(text, places), seal)) == seal.text(text)


def test_rows_are_held_whose_last_one_ends_in_a_word_that_begins_new_ones() -> None:
    rows = in_rows(base64.b64encode(b"\0" * 30 + PLAIN.encode()).decode(), 48, "\n")
    seal, text = sealed(PLAIN), f"{rows}.{'x' * 48}\n{'y' * 9} on"
    assert HANDLE.search(seal.text(text))
    assert "".join(streamed(list(text), seal)) == seal.text(text)


def test_a_secret_with_spaces_in_utf_16_is_not_shown_as_it_arrives() -> None:
    seal = sealed("correct horse battery")
    text = "say correct horse battery now".encode("utf-16-le").decode("latin-1")
    assert "".join(streamed(list(text), seal)) == seal.text(text)
    assert HANDLE.search(seal.text(text))


@settings(max_examples=100)
@given(
    SECRET,
    st.sampled_from(sorted(TEXTS)),
    st.sampled_from(sorted(TEXTS)),
    st.sampled_from(sorted(TEXTS)),
    st.text("abcXYZ019/_-+", max_size=9),
)
def test_a_secret_encoded_three_times_is_found(
    secret: str, first: str, second: str, third: str, prefix: str
) -> None:
    encoded = TEXTS[third](prefix + TEXTS[second](prefix + TEXTS[first](secret)))
    finder, seal = Finder([secret]), sealed(secret)
    text = f"{prefix}{encoded} b"
    assert finder.near(text)
    shown = seal.text(text)
    assert HANDLE.search(shown)
    assert seal.text(shown) == shown
    assert seal.json(json.dumps({"a": text})) != json.dumps({"a": text})


@settings(max_examples=60)
@given(
    SECRET,
    st.lists(st.sampled_from(sorted(RUNS)), min_size=3, max_size=3),
    st.binary(max_size=4),
    st.lists(st.integers(0, 900), max_size=20),
)
def test_what_was_encoded_three_times_comes_back_as_it_was(
    secret: str, runs: list[str], before: bytes, places: list[int]
) -> None:
    made = secret
    for run in runs:
        made = RUNS[run](before + made.encode())
    seal = sealed(secret)
    wanted = {"a": f"x={made}&y"}
    hidden = seal.json(json.dumps(wanted))
    assert "[[secret:s0" in hidden
    assert json.loads(str(seal.restored(hidden, (("", "s0"),)))) == wanted
    text = f"x={made} y"
    assert "".join(streamed(cut(text, places), seal)) == seal.text(text)


def test_utf_16_under_base64_comes_back_as_it_was() -> None:
    seal = sealed(PLAIN)
    command = base64.b64encode(f"login -key {PLAIN}; dir".encode("utf-16-le")).decode()
    hidden = seal.json(json.dumps({"a": command}))
    assert re.search(r"\[\[secret:s0~n\.b[012]:", hidden)
    assert json.loads(str(seal.restored(hidden, (("", "s0"),)))) == {"a": command}
    assert written(PLAIN, "n") == "\0".join(PLAIN)


def test_rows_under_base64_are_taken_out_and_not_put_back() -> None:
    secret = PLAIN * 9
    rows = in_rows(base64.b64encode(secret.encode()).decode(), 48, "\n")
    seal, text = sealed(secret), base64.b64encode(rows.encode()).decode()
    assert re.search(r"\[\[secret:s0~x\.b[012]:", seal.text(text))


@pytest.mark.parametrize("width", [48, 64, 76])
def test_rows_that_hold_no_secret_stay_as_they_are(width: int) -> None:
    seal, chance = sealed(PLAIN, "correct horse battery"), random.Random(7)
    for raw in (
        chance.randbytes(6_000),
        bytes(6_000),
        "The order was shipped. ".encode("utf-16") * 99,
    ):
        for run in RUNS.values():
            text = in_rows(run(raw), width, "\n")
            assert seal.text(text) == text
            assert "".join(streamed(cut(text, range(0, len(text), 700)), seal)) == text


def test_only_the_last_row_may_be_short() -> None:
    row = "A" * ROW
    assert breaks(f"{row}\n{row}\nAb cd") == [(48, 49), (97, 98)]
    assert breaks(f"see {row}\n  {row}, {row}") == [(52, 55)]
    assert breaks(f"{row[1:]}\n{row[1:]}") == []
    assert breaks(f"{row}{' ' * 33}{row}") == []
    assert breaks(f"{'-' * ROW}\n{row}\n{row}\n{'_' * ROW}\na") == [(97, 98), (146, 147)]
