"""What was redacted is cheap to see again, and is searched anew when more is known."""

import json
from typing import Any

import msgspec
import pytest

from cairn.core import events as ev
from cairn.core.messages import CallPart, Text
from cairn.core.redaction import MOST_CHARS, MOST_REMEMBERED, SHORTEST
from cairn.core.secrets import Finder
from cairn.governance.secrets import Secrets

VALUE, OTHER = "tR7q9Zx9vK2m", "Hw4xL0pQe8Vn"


@pytest.fixture
def searched(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The texts that were searched, in order, without the shortest."""
    texts: list[str] = []
    near = Finder.near

    def noted(finder: Finder, text: str) -> bool:
        texts.extend([text] * (len(text) >= SHORTEST))  # shorter ones cost nothing
        return near(finder, text)

    monkeypatch.setattr(Finder, "near", noted)
    return texts


def kept(what: Any) -> str:
    """As it would be kept."""
    return msgspec.json.encode(what).decode()


def turn() -> list[Any]:
    """What comes back in a turn with many calls."""
    calls = tuple(
        CallPart(id=f"c{n}", name="find", alias=f"call_{n}", arguments=f'{{"order": "A-{n:04}"}}')
        for n in range(MOST_REMEMBERED // 4)
    )
    return [
        ev.ModelCompleted(parts=(Text(f"look for {VALUE}, and more"), *calls)),
        ev.ToolCompleted(call="c1", result=msgspec.Raw(json.dumps([VALUE, "x" * 900]).encode())),
        ev.ToolUnknown(call="c2", reason="unsure", message=f"not with {VALUE}"),
    ]


def test_what_came_out_of_redaction_is_not_searched_again(searched: list[str]) -> None:
    seal = Secrets({"stripe": VALUE}).of()
    events = turn()
    once = [seal.value(event) for event in events]
    assert VALUE not in kept(once)
    searched.clear()
    assert [seal.value(event) for event in once] == once
    assert [seal.value(event) for event in events] == once
    assert searched == []


def test_a_secret_that_becomes_known_is_found_in_what_was_clean_before() -> None:
    secrets = Secrets({"stripe": VALUE})
    seal = secrets.of()
    event = ev.ToolCompleted(call="c1", result=msgspec.Raw(json.dumps([OTHER, VALUE]).encode()))
    part = CallPart(id="c1", name="find", alias=f"call-{OTHER}", arguments=f'{{"a": "{OTHER}"}}')
    once = seal.value(event)
    assert OTHER in kept(once)
    assert OTHER in kept(seal.value(part))
    secrets.rotate("stripe", OTHER)
    assert OTHER not in kept(seal.value(once))
    assert OTHER not in kept(seal.value(part))


def test_what_is_remembered_is_bounded(searched: list[str]) -> None:
    seal = Secrets({"stripe": VALUE}).of()
    first = "the first of many texts"
    seal.text(first)
    for number in range(2 * MOST_REMEMBERED + 2):
        seal.text(f"text number {number}")
    searched.clear()
    seal.text(first)
    assert searched == [first]
    long = "ab " * (MOST_CHARS // 3)
    for number in range(3):
        seal.text(f"{number}{long}")
    searched.clear()
    seal.text(first)
    assert searched == [first]


def test_a_text_means_the_same_in_json_and_outside_only_if_it_is_searched_twice() -> None:
    seal = Secrets({"stripe": '":"split","'}).of()
    text = '{"a":"split","b":1}'
    assert seal.text(text) != text
    assert seal.value(msgspec.Raw(text.encode())) != msgspec.Raw(text.encode())
    named = json.dumps({"password": "a8Fk2mQ9xZ4rT7vB"})
    quoted = seal.json(named)
    assert "[redacted credential]" in quoted
    assert seal.json(quoted) == quoted
