"""Short codes, and telephone and account numbers with blanks, are kept whole; noise is not."""

import pytest
from tests.context.test_exact_identifiers import SAID
from tests.context.test_what_outlives_a_summary import begun, condense, read

from cairn.core.gist import (
    MARKS_KEPT,
    SHORT_FIRST,
    SHORT_KEPT,
    both_ends,
    marks_in,
    marks_of_a_person,
)
from cairn.core.messages import user
from cairn.core.state import add_request

WHOLE = (
    *("K-1", "A1", "T-7", "AB1", "CO2", "Q-12"),
    *("+49 30 1234567", "(030) 123 456", "010-1234 5678", "+1 (415) 555-2671", "415 555 2671"),
    *("+33 1 42 68 53 00", "06 12 34 56 78", "+49 (0) 30 1234567", "+49(0)30 1234567"),
    *("138 0013 8000", "+86 138 0013 8000", "030/1234567", "0049 30 1234567", "02 1234 5678"),
    *("DE89 3704 0044 0532 0130 00", "GB82 WEST 1234 5698 7654 32", "NO93 8601 1117 947"),
    *("MT84 MALT 0110 0001 2345 MTLC AST0 01S", "DE89370400440532013000"),
)


@pytest.mark.parametrize("exact", WHOLE)
@pytest.mark.parametrize("said", [*SAID, "{}, or so.", "{}"])
def test_it_is_found_as_it_was_written(exact: str, said: str) -> None:
    assert exact in marks_in(said.format(exact))


@pytest.mark.parametrize("exact", WHOLE)
def test_it_is_in_the_request_after_any_summaries(exact: str) -> None:
    state = add_request(begun(f"Mind {exact}, please."), user("Go on."))
    for by in ("model", "rule", "model", "rule"):
        state = condense(add_request(state, user("And on.")), by)
        assert exact in read(state)


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("B2B, 2nd or 1, a 3D print, x1, v2, c3 and A1.5 of item-A1-b2", ["item-A1-b2"]),
        ("orders 1234 5678 9012", ["1234", "5678", "9012"]),
        ("1 000 000 at 10:30 on 5 May 2024", ["2024"]),
        (
            "/srv/00123/4567/89.txt and 00123/4567/file",
            ["/srv/00123/4567/89.txt", "00123/4567/file"],
        ),
        ("call 0171 123456 12-pack", ["0171 123456", "12-pack"]),
        ("cell A1/B2 in https://a.example/A1/+49", ["A1/B2", "https://a.example/A1/+49"]),
        ("0123.45678@mail.example", ["0123.45678@mail.example"]),
        ("A1.txt", []),
    ],
)
def test_what_only_looks_a_little_like_one_is_left_as_it_was(text: str, found: list[str]) -> None:
    assert marks_in(text) == found


def test_a_table_full_of_short_codes_pushes_out_no_order_number() -> None:
    cells = [f"{column}{row}" for column in "ABCDEF" for row in range(1, 30)]
    named = ["K-1", "AB-4711", "K-2", *(f"AB-{n}" for n in range(5_000, 5_006)), *cells]
    kept = both_ends(named)
    assert len(kept) <= MARKS_KEPT
    short = [mark for mark in kept if not mark.startswith("AB-")]
    assert short == [*("K-1", "K-2")[:SHORT_FIRST], *cells[SHORT_FIRST - SHORT_KEPT :]]
    assert [mark for mark in named if mark.startswith("AB-") and mark not in kept] == []
    state = add_request(begun("My order is AB-4711."), user("\t".join(cells)))
    state = add_request(state, user("Go on."))
    for by in ("rule", "model"):
        assert "AB-4711" in read(condense(state, by))


def test_short_codes_that_are_few_are_all_kept_in_their_order() -> None:
    text = "Ship K-1 to A1, then T-7 and K-1 again with AB-4711."
    assert both_ends(marks_of_a_person(text)) == ("K-1", "A1", "T-7", "AB-4711")
