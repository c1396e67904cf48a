"""Options at their edges: empty ones, and numbers that are none or too large."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.conftest import Cairn
from tests.cli.test_one_store import WORDS
from typer.core import TyperOption
from typer.main import get_group

from cairn import ConfigError, Limits
from cairn.cli import options
from cairn.cli.entry import app
from cairn.cli.verbs import MAY_BE_EMPTY, Verb
from cairn.engine.numbers import MOST_LISTED, MOST_USD, check_limit, micro_usd

HUGE = "9" * 30


def commands(group: Any, *before: str) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *before, name)
        else:
            yield " ".join((*before, name)), command


ALL = dict(commands(get_group(app)))
MORE: dict[str, tuple[str, ...]] = {
    "mcp tools": ("python",),
    "memory add": ("x",),
    "memory show": ("m1",),
    "memory forget": ("m1",),
    "memory erase": ("--principal", "ann", "--yes"),
    "policy check": ("policy.yaml",),
    "sessions show": ("s",),
    "sessions post": ("s", "hello"),
    "sessions fork": ("s", "new"),
    "sessions rewind": ("s", "r"),
    "sessions title": ("s", "A title"),
    "sessions export": ("s", "out"),
    "sessions prune": ("s",),
    "skills check": (".",),
    "workspace list": ("r",),
    "workspace diff": ("r",),
}


def test_every_command_looks_at_its_options() -> None:
    assert {type(command) for command in ALL.values()} == {Verb}


@pytest.mark.parametrize("name", ALL)
def test_an_option_that_is_given_and_empty_is_refused(cairn: Cairn, name: str) -> None:
    for n, option in enumerate(ALL[name].params):
        words = [*WORDS.get(name, ()), *MORE.get(name, ())]
        if not isinstance(option, TyperOption) or option.is_flag:
            continue
        flag = option.opts[0]
        if flag in words:  # it is given already
            del words[words.index(flag) : words.index(flag) + 2]
        said = cairn(*name.split(), *words, flag, ("", "  ")[n % 2])
        if option.name in MAY_BE_EMPTY:
            assert "it is empty" not in said.err
            continue
        assert said.code == 2, (flag, said)
        assert "it is empty" in said.err or "Invalid value" in said.err, (flag, said)


@pytest.mark.parametrize("usd", ["inf", "nan", "1e300", "-1", HUGE, "-inf"])
def test_money_without_an_end_is_refused_in_words(cairn: Cairn, usd: str) -> None:
    for words in (("run", "quick", "go"), ("retry", "r")):
        said = cairn(*words, "--max-usd", usd)
        assert said.code == 2
        assert "Traceback" not in said.err
        assert "--max-usd" in said.err
    assert not Path("cairn.db").exists()


@pytest.mark.parametrize("limit", ["0", "-1", HUGE, str(MOST_LISTED + 1), "x", "1.5"])
@pytest.mark.parametrize(
    "words",
    [
        *(("runs",), ("sessions", "list"), ("memory", "list"), ("memory", "search", "tea")),
        *(("replay", "--all"), ("policy", "test", "policy.yaml"), ("workspace", "list", "r")),
    ],
    ids=" ".join,
)
def test_a_list_has_at_least_one_line_and_at_most_a_million(
    cairn: Cairn, words: tuple[str, ...], limit: str
) -> None:
    cairn("run", "quick", "go", "--id", "r")
    said = cairn(*words, "--limit", limit)
    assert said.code == 2
    assert "--limit" in said.err


@pytest.mark.parametrize("words", [("runs",), ("sessions", "list"), ("memory", "list")])
def test_the_longest_list_works(cairn: Cairn, words: tuple[str, ...]) -> None:
    cairn("run", "quick", "go", "--id", "r")
    assert cairn(*words, "--limit", str(MOST_LISTED)).code == 0


@pytest.mark.parametrize("option", ["--max-steps", "--max-calls", "--max-tokens", "--max-seconds"])
def test_a_bound_that_no_store_keeps_is_refused(cairn: Cairn, option: str) -> None:
    said = cairn("run", "quick", "go", option, HUGE)
    assert said.code == 2
    assert option in said.err


def test_python_and_the_command_line_have_the_same_bounds() -> None:
    assert micro_usd("usd", MOST_USD) == MOST_USD * 1_000_000
    for usd in (math.inf, math.nan, 1e300, -0.1, "1", None, True):
        with pytest.raises(ConfigError, match="usd"):
            micro_usd("usd", usd)
    assert check_limit("limit", MOST_LISTED) == MOST_LISTED
    for limit in (0, -1, MOST_LISTED + 1, 10**5_000, 1.0, "1", None, True):
        with pytest.raises(ConfigError, match="limit"):
            check_limit("limit", limit)
    for bound in (1 << 63, 10**5_000, -1, 1.0, True):
        with pytest.raises(ConfigError, match=r"limits\.tokens"):
            Limits(tokens=bound)  # type: ignore[arg-type]  # that is the test
    for given in (5, "agent", [("tokens", 5)]):
        with pytest.raises(ConfigError, match="limits"):
            Limits().narrowed(given)  # type: ignore[arg-type]  # that is the test


@pytest.mark.parametrize("within", ["0d", "0h", "0s", "3651d", "999999w", "-1d", "d", "1.5h"])
def test_a_fact_counts_for_some_time_and_not_longer_than_ten_years(
    cairn: Cairn, within: str
) -> None:
    cairn("run", "quick", "go")
    said = cairn("memory", "add", "tea at four", "--within", within)
    assert said.code == 2, said
    assert "--within" in said.err
    assert cairn("memory", "list", "--json").out == ""


def test_the_longest_time_of_a_fact_is_taken(cairn: Cairn) -> None:
    cairn("run", "quick", "go")
    assert cairn("memory", "add", "tea at four", "--within", "3650d").code == 0
    assert cairn("memory", "list", "--json").objects[0]["expires_at"]


def test_no_time_at_all_is_not_for_ever() -> None:
    assert options.lasting("", "--within") == 0
    for none in ("0d", "0s", "0w"):
        with pytest.raises(ConfigError, match="--within"):
            options.lasting(none, "--within")
