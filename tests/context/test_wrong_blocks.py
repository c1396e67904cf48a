"""A block that could never be what was meant is refused when it is made."""

from typing import Any

import pytest

from cairn import ConfigError, ContextBlock, memory_block

STRANGE: list[Any] = [None, True, 0, -1, 10**30, 0.5, "x", b"x", [1], {"a": 1}, object()]


@pytest.mark.parametrize("text", ["\ud800", "a\0b"], ids=ascii)
def test_a_text_that_no_store_keeps_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match=r"ContextBlock\('a'\)\.text: it cannot be stored"):
        ContextBlock("a", text)


@pytest.mark.parametrize("arguments", [[1], [], "x", 5, ("a",), {1: object()}], ids=repr)
def test_arguments_that_are_no_mapping_are_refused(arguments: Any) -> None:
    with pytest.raises(ConfigError, match=r"ContextBlock\('a'\)\.arguments"):
        ContextBlock("a", tool="t", arguments=arguments)


def test_a_memory_block_that_is_named_and_not_called_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"memory_block is named, not called. Write memory_block"):
        ContextBlock("memory", memory_block)  # type: ignore[arg-type]  # that is the test


@pytest.mark.parametrize("name", ["limit", "tokens"])
@pytest.mark.parametrize("value", STRANGE, ids=repr)
def test_a_count_of_a_memory_block_is_a_whole_number_within_bounds(name: str, value: Any) -> None:
    with pytest.raises(ConfigError, match=rf"memory_block\.{name}.*Give a whole number of 1 to"):
        memory_block(**{name: value})


@pytest.mark.parametrize("words", ["", " ", "\ud800", None, 5, [1]], ids=ascii)
def test_words_that_find_nothing_are_refused(words: Any) -> None:
    with pytest.raises(ConfigError, match=r"memory_block\.query_from"):
        memory_block(words)


def test_words_as_they_stand_are_looked_for() -> None:
    assert callable(memory_block("opening hours"))
