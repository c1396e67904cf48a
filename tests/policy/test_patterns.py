"""Patterns: what the language is, that it agrees with `re`, and that it never runs away."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cairn.core.policy.patterns import Unreadable, compiled

ATOMS = st.sampled_from(["a", "b", "é", ".", "[ab]", "[^a]", r"\d", r"\w", r"\.", "[a-c-]", "1"])


def grown(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    repeats = st.sampled_from(["*", "+", "?", "{2}", "{0,2}", "{1,}"])
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda both: f"({both[0]}|{both[1]})"),
        st.tuples(inner, repeats).map(lambda both: f"(?:{both[0]}){both[1]}"),
    )


@settings(max_examples=150)
@given(
    st.recursive(ATOMS, grown, max_leaves=8),
    st.lists(st.text(alphabet="ab1é.-\nx", max_size=8), min_size=1, max_size=6),
)
def test_inside_the_language_it_says_what_the_standard_expressions_say(
    pattern: str, texts: list[str]
) -> None:
    standard = re.compile(pattern, re.ASCII)
    for text in texts:
        assert compiled(pattern).fits(text) is bool(standard.fullmatch(text)), (pattern, text)


@pytest.mark.parametrize(
    ("pattern", "fits", "not_fits"),
    [
        (r"ORD-\d{4}", "ORD-0042", "ORD-00421"),
        (r"[\w.+-]+@example\.org", "a.b+c@example.org", "a@example.org.evil.com"),
        (r"(?i)yes|no", "YES", "maybe"),
        (r"", "", "x"),
        (r"a|", "", "b"),
        (r"[\]a-]+", "]a-", "b"),
        (r"[^\s]+", "x-y", "x y"),
        (r"\(\d\)", "(5)", "5"),
        (r".*", "one line", "two\nlines"),
        (r"(?i)straße", "STRAßE", "strasse"),
    ],
)
def test_a_pattern_stands_for_the_whole_text(pattern: str, fits: str, not_fits: str) -> None:
    assert compiled(pattern).fits(fits)
    assert not compiled(pattern).fits(not_fits)


@pytest.mark.parametrize(
    "pattern",
    [
        "^a",
        "a$",
        "(a",
        "a)",
        "[a",
        "[]",
        "*a",
        "a**",
        "a+?",
        r"\1",
        r"(a)\1",
        "(?=a)",
        "(?<n>a)",
        "(?#x)",
        "a{3,2}",
        "a{999}",
        "a{x}",
        r"\q",
        r"[\W]",
        "[b-a]",
        "a" * 2_000,
        "(((a{99}){99}){99})",
        "(" * 50 + "a" + ")" * 50,
        "a\\",
        "a{1",
    ],
)
def test_what_is_outside_the_language_is_refused_with_a_fix(pattern: str) -> None:
    with pytest.raises(Unreadable) as refused:
        compiled(pattern)
    assert refused.value.fix


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a+)+b",
        r"(a|a)*b",
        r"(a|aa)+b",
        r"(.*a){12}b",
        r"(\w+\s?)*!",
        r"([a-z]+)*1",
        r"a*a*a*a*a*b",
    ],
)
def test_no_pattern_runs_away(pattern: str) -> None:
    assert not compiled(pattern).fits("a" * 4_096)
