"""A part of a policy that cannot be is refused when it is written, with what to write instead."""

import pytest

from cairn import ConfigError, Rule
from cairn.core.policy import AllOf, Command, Equals, Host, IfGiven, Inside, Items, Not, OneOf

WRONG = [
    lambda: Inside("drafts"),
    lambda: Inside((1,)),
    lambda: OneOf("abc"),
    lambda: OneOf(None),
    lambda: Host("example.org"),
    lambda: Host(("example.org",), ports=443),
    lambda: Command("ls"),
    lambda: Command(("git",), first="status"),
    lambda: Command(("git",), no_flags="-f"),
    lambda: Command(("git",), words="x"),
    lambda: AllOf(Equals(1)),
    lambda: AllOf(("x",)),
    lambda: Not("x"),
    lambda: Items("all", "x"),
    lambda: IfGiven(["x"]),
    lambda: Rule(name="r", decide="allow", arguments={"path": "drafts"}),
    lambda: Rule(name="r", decide="allow", tools="shell"),
]


@pytest.mark.parametrize("make", WRONG, ids=range(len(WRONG)))
def test_a_text_in_place_of_a_tuple_is_never_read_letter_by_letter(make):
    with pytest.raises(ConfigError):
        make()


def test_the_refusal_shows_how_it_is_written():
    with pytest.raises(ConfigError, match=r"Write \('drafts',\)"):
        Inside("drafts")


def test_a_list_is_as_good_as_a_tuple():
    assert Inside(["drafts"]).test("drafts/a", {}) is True
