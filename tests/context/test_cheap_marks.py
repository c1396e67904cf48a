"""Identifiers are looked for no further than they are kept, and the same ones are found."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.core import gist
from cairn.core.gist import CODE, LOOKED_AT, MARK, MARKS_KEPT, Gist, extended, marks_in
from cairn.core.messages import CallPart, Message, ResultPart, user

PIECES = ("A-1", "b2c3d4", "x" * 70, "v1.2", "C:", "~", "...", " ", "é", "注文", "_9-", "(", ")")
SIGNS = ("/", "\\", "@", "https://a.example/b?c=1", "a@b.example", "/etc/hosts", "C:\\x\\y")


@given(st.lists(st.sampled_from(PIECES)).map("".join))
def test_where_no_sign_of_a_path_stands_only_codes_are_found(text: str) -> None:
    assert CODE.findall(text) == MARK.findall(text)


@pytest.mark.parametrize("sign", SIGNS)
def test_any_sign_of_an_address_or_a_path_has_all_forms_looked_for(sign: str) -> None:
    text = f"see {sign} and A-1234"
    assert marks_in(text) == [m for f in MARK.findall(text) if (m := f.rstrip(".,;:"))]


def turns(results: list[str]) -> list[Message]:
    messages = [user("go")]
    for n, result in enumerate(results, 1):
        call = CallPart(id=f"c{n}", name="look")
        messages.append(Message(role="assistant", parts=(call,)))
        messages.append(Message(role="tool", parts=(ResultPart(id=f"c{n}", result=result),)))
    return messages


@given(st.lists(st.sampled_from(("A-1", "B-22 C-333", "none", "/etc/hosts A-1", "D-4 " * 40))))
def test_what_is_kept_of_results_is_the_last_of_all_that_stands_in_them(some: list[str]) -> None:
    results = [f"{text} N-{n:03}" if n % 3 else text for n, text in enumerate(some * 4)]
    found = [mark for text in results for mark in marks_in(text[:LOOKED_AT])]
    kept = tuple(dict.fromkeys(reversed(["OLD-1", *found])))[:MARKS_KEPT][::-1]
    messages = turns(results)
    assert extended(Gist(found=("OLD-1",)), messages, [0], len(messages)).found == kept


def test_results_are_read_from_their_end_until_enough_is_found(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    read: list[str] = []
    real = marks_in
    monkeypatch.setattr(gist, "marks_in", lambda text: read.append(text) or real(text))
    messages = turns([f"order A-{n:04}" for n in range(500)])
    found = extended(Gist(), messages, [0], len(messages)).found
    assert found[-1] == "A-0499"
    assert len(found) == MARKS_KEPT
    assert sum(text.startswith("order") for text in read) == MARKS_KEPT
