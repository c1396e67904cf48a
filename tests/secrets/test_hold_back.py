"""Text as it streams: nothing of a secret is shown, nothing else is lost, and no more is held."""

import base64
import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.core.holdback import LONGEST_KEY, LONGEST_WORD, HoldBack
from cairn.governance.secrets import Secrets

VALUE = "tR7q9Zx9vK2m"
SPACED = "correct horse battery"
SECRETS = Secrets({"stripe": VALUE, "phrase": SPACED})
SEAL = SECRETS.of()
KEY = "sk-proj-a8Fk2mQ9xZ4rT7vB1nC6yH3w"


def streamed(pieces: Sequence[str], seal: object = SEAL) -> list[str]:
    held = HoldBack(seal)  # type: ignore[arg-type]  # always a Sealed
    return [*map(held.take, pieces), held.rest()]


def cut(text: str, places: Sequence[int]) -> list[str]:
    marks = sorted({0, len(text), *(place % (len(text) + 1) for place in places)})
    return [text[a:b] for a, b in itertools.pairwise(marks)]


WORDS = st.sampled_from(
    [
        "the",
        "Bearer",
        "password =",
        "中文，字",
        "tR7q9Zx",
        "correct horse",
        "%74R7",
        "\n\n",
        "x" * 40,
        VALUE,
        SPACED,
        KEY,
        VALUE.encode().hex(),
        "dFI3cTlaeDl2SzJt",
        "\u200b".join(VALUE),
        "\u3164\ufe0f".join(VALUE),
        base64.b64encode(base64.b64encode(f"u:{VALUE}".encode())).decode(),
        VALUE.encode().hex().encode().hex(),
        "a8Fk2mQ9xZ4rT7vB",
    ]
)


@settings(max_examples=150)
@given(st.lists(WORDS, max_size=12).map(" ".join), st.lists(st.integers(0, 500), max_size=40))
def test_what_is_shown_is_the_whole_text_redacted_in_order(text: str, places: list[int]) -> None:
    shown = streamed(cut(text, places))
    assert "".join(shown) == SEAL.text(text)


@pytest.mark.parametrize("hidden", [VALUE, SPACED, KEY, VALUE.encode().hex()])
def test_no_beginning_of_a_secret_is_ever_shown(hidden: str) -> None:
    held = HoldBack(SEAL)
    shown = ""
    for letter in f"so {hidden}":
        shown += held.take(letter)
        assert shown in ("", "so ")
    assert hidden[:4] not in shown + held.rest()


def test_a_private_key_is_held_over_its_lines() -> None:
    body = "\n".join(
        "MIIEpAIBAAKCAQEAx7Yw9fQ2kLm3Nb8Vc5Xz1Aq6Ws4Ed0Rf7Tg2Yh9Uj3Ik" for _ in range(20)
    )
    key = f"-----BEGIN RSA PRIVATE KEY-----\n{body}\n-----END RSA PRIVATE KEY-----"
    shown = streamed(list(f"here: {key} and more"))
    assert "".join(shown) == "here: [redacted private-key] and more"
    assert "MIIE" not in "".join(shown)


def test_words_are_shown_as_they_end_and_chinese_as_it_comes() -> None:
    held = HoldBack(SEAL)
    assert held.take("Hello wor") == "Hello "
    assert held.take("ld, all") == "world, "
    assert held.rest() == "all"
    plain = HoldBack(Secrets().of())
    assert plain.take("你好") == "你好"
    assert HoldBack(Secrets({"s": VALUE}).of()).take("你好") == "你好"


def test_what_is_held_is_bounded() -> None:
    held = HoldBack(SEAL)
    shown = "".join(held.take("z" * 100) for _ in range(400))
    assert len(shown) >= 40_000 - LONGEST_WORD - 200
    assert shown + held.rest() == "z" * 40_000
    endless = HoldBack(SEAL)
    lines = "".join(endless.take("-----BEGIN PRIVATE KEY-----\n"))
    lines += "".join(endless.take("ab cd ef\n") for _ in range(2 * LONGEST_KEY // 9))
    assert lines


def test_a_secret_at_the_bound_is_not_cut() -> None:
    for before in range(LONGEST_WORD - 1_050, LONGEST_WORD - 1_000, 3):
        text = "z" * before + VALUE + "z" * 3000
        assert VALUE[:6] not in "".join(streamed(cut(text, range(0, len(text), 500))))


def test_two_attempts_do_not_share_what_is_held() -> None:
    first = HoldBack(SEAL)
    first.take(VALUE[:6])
    assert "".join(streamed([VALUE[6:]])) == VALUE[6:]


@pytest.mark.parametrize("behind", [".\n", ".\nBye", ", ok?", ".\n\nNext", ""])
@pytest.mark.parametrize("step", [1, 2, 3, 5, 1_000])
@pytest.mark.parametrize("before", ["", "xxx ", "The phrase is "])
def test_a_secret_with_spaces_is_never_shown_in_part_whatever_stands_right_behind_it(
    before: str, behind: str, step: int
) -> None:
    sealed = Secrets({"door": "correct horse battery staple"}).of()
    text = f"{before}correct horse battery staple{behind}"
    held, shown = HoldBack(sealed), ""
    for at in range(0, len(text), step):
        shown += held.take(text[at : at + step])
    assert shown + held.rest() == sealed.text(text)
