"""What was redacted is cheap to see again, and is searched anew when more is known."""

import json
import tracemalloc
from typing import Any

import msgspec
import pytest

from cairn.core import events as ev
from cairn.core.keylike import SHAPES, near_key
from cairn.core.messages import CallPart, Principal, Text
from cairn.core.redaction import SHORTEST
from cairn.core.remembered import MOST_CHARS, MOST_REMEMBERED
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


# ---------------------------------------------------------------- for all runs at once


def test_what_was_clean_for_one_run_is_not_searched_again_for_another(searched: list[str]) -> None:
    secrets = Secrets({"stripe": VALUE})
    result = msgspec.Raw(b'"nothing at all stands in here"')
    event = ev.ToolCompleted(call="c1", result=result)
    assert secrets.of().value(event) is event
    searched.clear()
    assert secrets.of(Principal(id="eve")).value(event) is event
    assert searched == []


def test_a_value_that_becomes_known_is_found_in_what_was_clean_for_every_run() -> None:
    secrets = Secrets({"stripe": VALUE})
    text = f"the other one is {OTHER}"
    assert secrets.of().text(text) == secrets.of(Principal(id="eve")).text(text) == text
    secrets.rotate("stripe", OTHER)
    assert OTHER not in secrets.of().text(text)
    assert OTHER not in secrets.of(Principal(id="eve")).text(text)


@pytest.mark.parametrize("escaped", [False, True], ids=["as it is", "escaped in JSON"])
def test_that_a_handle_holds_for_one_principal_says_nothing_of_another(escaped: bool) -> None:
    own = {"ann": {"key": VALUE}, "eve": {"other": OTHER}}
    secrets = Secrets(lambda principal: own[principal.id])
    ann, eve = (secrets.of(Principal(id=who)) for who in own)
    handle = ann.text(VALUE)
    assert handle.startswith("[[secret:key:")
    text = json.dumps({"note": handle})
    if escaped:
        text = text.replace("[[", "\\u005b\\u005b")
    assert json.loads(ann.json(text)) == {"note": handle}
    assert json.loads(eve.json(text))["note"].startswith("[[ secret:key:")
    assert json.loads(ann.json(text)) == {"note": handle}


def test_very_many_runs_together_remember_no_more_than_one_does() -> None:
    secrets = Secrets({"stripe": VALUE})
    texts = [f'"{number:04} {"plain words " * 170}"' for number in range(10)]
    keeps = []
    tracemalloc.start()
    try:
        for run in range(400):
            seal = secrets.of()
            for text in texts:
                seal.json(f'"{run:04}{text[1:]}')
            keeps.append(seal)
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(keeps) == 400
    assert held < 4 * MOST_CHARS, "8 MB of texts are held where 2 may be"


def test_a_handle_that_is_escaped_becomes_the_value_again_for_its_tool() -> None:
    seal = Secrets({"stripe": VALUE}).of()
    text = json.dumps({"key": seal.text(VALUE)}).replace("[[", "\\u005b\\u005b")
    restored = seal.restored(text, (("key", "stripe"),))
    assert isinstance(restored, str)
    assert json.loads(restored) == {"key": VALUE}


# ---------------------------------------------------------------- cheap looks miss nothing

ALONE = [
    f"pay with {VALUE} now",
    f"pay with {VALUE.encode().hex()} now",
    "".join(f"%{byte:02x}" for byte in VALUE.encode()),
    "".join(chr(ord(c) + 0xFEE0) for c in VALUE),
    "password=a8Fk2mQ9xZ4rT7vB",
    "nothing but words stand in here",
    "00000042".ljust(200, "x"),
    "ghp_a8Fk2mQ9xZ4rT7vBa8Fk2mQ9xZ4rT7vB",
]


@pytest.mark.parametrize("text", ALONE)
def test_a_text_alone_in_json_says_what_it_says_outside(text: str) -> None:
    secrets = Secrets({"stripe": VALUE})
    found = secrets.of().json(json.dumps(text, ensure_ascii=False))
    assert json.loads(found) == secrets.of().text(text)


def test_no_form_of_key_is_passed_over_by_the_cheap_look() -> None:
    words = {word for shape in SHAPES for word in shape.needed} - {"gh"}
    words |= {f"gh{letter}_" for letter in "pousr"}  # all that its form goes on with
    assert [word for word in words if not near_key(f"{'!' * 12}{word}")] == []
