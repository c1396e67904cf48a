"""Events to bytes and back: nothing is lost, nothing is changed unnoticed, old shapes stay read."""

import types
import typing
from enum import Enum
from typing import Any, ClassVar

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.play import Play, rules_of, tool

from cairn.core import codec
from cairn.core import events as ev
from cairn.core.codec import GENESIS, Row, check_chain, decode, encode, open_row, seal
from cairn.core.limits import Limits
from cairn.core.policy import Inside, Not, Policy, Range, Redirect, Rule
from cairn.core.terms import ApprovalTerms
from cairn.errors import CorruptJournal, ErrorClass

# ---------------------------------------------------------------- any event whatever

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | texts,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)
raws = json_values.map(lambda value: msgspec.Raw(msgspec.json.encode(value)))
SIMPLE: dict[Any, st.SearchStrategy[Any]] = {
    str: texts,
    bytes: st.binary(max_size=40),
    bool: st.booleans(),
    int: st.integers(-(2**53), 2**53),
    float: st.floats(allow_nan=False, allow_infinity=False),
    msgspec.Raw: raws,
    type(None): st.none(),
}


POLICIES = (
    Policy(),
    Policy(tools={"pay": "ask"}, effects={"write": "deny"}, name="night"),
    Policy(
        rules=(
            Rule(name="small", decide="allow", arguments={"cents": Range(max=100)}),
            Rule(
                name="out", decide="deny", arguments={"path": Not(predicate=Inside(roots=("a",)))}
            ),
            Rule(name="draft", decide="redirect", redirect=Redirect(tool="draft")),
        )
    ),
)


names = texts.filter(bool)
TERMS = st.builds(
    ApprovalTerms,
    roles=st.lists(names, max_size=3).map(tuple),
    other_person=st.booleans(),
    expires_in=st.floats(0, 1e6),
    further=st.lists(st.lists(names, max_size=2).map(tuple), max_size=2).map(tuple),
)


def values_of(kind: Any) -> st.SearchStrategy[Any]:
    """Any value a field of this type may hold."""
    origin = typing.get_origin(kind)
    if kind in SIMPLE:
        return SIMPLE[kind]
    if origin is typing.Literal:
        return st.sampled_from(typing.get_args(kind))
    if origin in {typing.Union, types.UnionType}:
        return st.one_of(*map(values_of, typing.get_args(kind)))
    if origin is tuple:
        of = typing.get_args(kind)
        if of[-1] is not Ellipsis:
            return st.tuples(*map(values_of, of))
        return st.lists(values_of(of[0]), max_size=3).map(tuple)
    if kind is ApprovalTerms:
        return TERMS
    if kind is Policy:
        return st.sampled_from(POLICIES)
    if isinstance(kind, type) and issubclass(kind, Enum):
        return st.sampled_from(kind)
    return records(kind)


def records(kind: type[Any]) -> st.SearchStrategy[Any]:
    """Any record of this class."""
    hints = typing.get_type_hints(kind)
    fields = {name: values_of(hints[name]) for name in kind.__struct_fields__}
    if kind is Limits:
        fields = dict.fromkeys(fields, st.integers(0, 2**53))
    return st.builds(kind, **fields)


KINDS = list(ev.EVENTS.values())


@pytest.mark.parametrize("kind", KINDS, ids=lambda k: k.NAME)
def test_every_event_comes_back_as_it_went_in(kind: type[ev.Event]) -> None:
    @given(records(kind))
    def check(event: ev.Event) -> None:
        data = encode(event)
        assert decode(event.TYPE, event.V, data) == event
        assert msgspec.json.decode(data) is not None  # strict JSON
        assert encode(decode(event.TYPE, event.V, data)) == data

    check()


def test_a_field_at_its_default_takes_no_room() -> None:
    assert encode(ev.RunResumed()) == b"{}"
    assert encode(ev.ToolCompleted(call="c1")) == b'{"call":"c1"}'


@pytest.mark.parametrize("value", [None, True, 0, "", "null", [], {}, [None], "中文", {"a": [1]}])
def test_a_result_stays_the_very_json_it_was(value: Any) -> None:
    data = msgspec.json.encode(value)
    event = ev.ToolCompleted(call="c1", result=msgspec.Raw(data))
    back = decode(event.TYPE, event.V, encode(event))
    assert isinstance(back, ev.ToolCompleted)
    assert bytes(back.result) == data


# ---------------------------------------------------------------- what cannot be read

BAD: dict[str, tuple[int, int, bytes]] = {
    "a type nobody knows": (9_999, 1, b"{}"),
    "a version from the future": (4, 2, b"{}"),
    "a version that never was": (4, 0, b"{}"),
    "a negative version": (4, -1, b"{}"),
    "no JSON": (41, 1, b'{"call":'),
    "nothing": (41, 1, b""),
    "zero bytes": (41, 1, bytes(40)),
    "no object": (41, 1, b"[]"),
    "a missing field": (41, 1, b"{}"),
    "a field of another type": (41, 1, b'{"call":7}'),
    "a word that is none of the literals": (45, 1, b'{"call":"c1","verdict":"perhaps"}'),
    "an error class nobody knows": (160, 1, b'{"error_class":"odd","message":"m"}'),
    "no UTF-8": (41, 1, b'{"call":"\xff"}'),
    "a bound that is none": (2, 1, b'{"run":"a","parent":"b","at":1,"limits":{"steps":-1}}'),
    "half an emoji": (41, 1, b'{"call":"\\ud83d"}'),
}


@pytest.mark.parametrize("name", BAD)
def test_what_cannot_be_read_is_one_typed_error(name: str) -> None:
    with pytest.raises(CorruptJournal) as found:
        decode(*BAD[name])
    assert str(found.value)


def test_the_error_of_an_unknown_type_speaks_of_a_newer_cairn() -> None:
    with pytest.raises(CorruptJournal, match="newer Cairn"):
        decode(9_999, 1, b"{}")


def test_a_field_that_a_later_release_added_is_passed_over() -> None:
    """So a field can be added without a new version, as long as old readers may ignore it."""
    event = decode(5, 1, b'{"reason":"enough","mood":"grim","more":{"a":[1]}}')
    assert event == ev.RunCancelRequested(reason="enough")


# ---------------------------------------------------------------- old shapes


class Third(ev.Event):
    """A fact as its third version stands."""

    TYPE: ClassVar[int] = 9_001
    NAME: ClassVar[str] = "test.third"
    V: ClassVar[int] = 3
    words: tuple[str, ...]
    result: msgspec.Raw = ev.EMPTY


@pytest.fixture
def third(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The third version in force, with a translator from each of the earlier ones."""
    passed: list[str] = []

    def first(value: dict[str, Any]) -> dict[str, Any]:
        passed.append("1 to 2")
        return {"word": value["w"], **{k: v for k, v in value.items() if k != "w"}}

    def second(value: dict[str, Any]) -> dict[str, Any]:
        passed.append("2 to 3")
        return {"words": [value["word"]], **{k: v for k, v in value.items() if k != "word"}}

    monkeypatch.setitem(codec.EVENTS, Third.TYPE, Third)
    monkeypatch.setitem(codec._decoders, Third.TYPE, msgspec.json.Decoder(Third))
    monkeypatch.setitem(codec.UPCASTERS, (Third.TYPE, 1), first)
    monkeypatch.setitem(codec.UPCASTERS, (Third.TYPE, 2), second)
    return passed


@pytest.mark.parametrize(
    ("version", "data", "steps"),
    [
        (1, b'{"w":"a"}', ["1 to 2", "2 to 3"]),
        (2, b'{"word":"a"}', ["2 to 3"]),
        (3, b'{"words":["a"]}', []),
    ],
)
def test_an_old_shape_is_translated_version_by_version(
    third: list[str], version: int, data: bytes, steps: list[str]
) -> None:
    assert decode(Third.TYPE, version, data) == Third(words=("a",))
    assert third == steps


def test_a_translated_event_keeps_its_raw_json(third: list[str]) -> None:
    event = decode(Third.TYPE, 1, b'{"w":"a","result":{"b":[1,"x"]}}')
    assert isinstance(event, Third)
    assert msgspec.json.decode(event.result) == {"b": [1, "x"]}


def test_a_gap_in_the_translators_or_a_shape_they_do_not_know_is_a_typed_error(
    third: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(CorruptJournal):
        decode(Third.TYPE, 1, b'{"x":"a"}')
    monkeypatch.delitem(codec.UPCASTERS, (Third.TYPE, 2))
    with pytest.raises(CorruptJournal):
        decode(Third.TYPE, 1, b'{"w":"a"}')


def test_every_older_version_has_a_translator_to_the_next() -> None:
    wanted = {(kind.TYPE, v) for kind in ev.EVENTS.values() for v in range(1, kind.V)}
    assert set(codec.UPCASTERS) == wanted


# ---------------------------------------------------------------- the chain


def rows() -> list[Row]:
    """A journal of a few rows, sealed."""
    play = Play(rules_of(tool("find")))
    play.one_turn("find", {"a": 1}, "found")
    play.says("done")
    play.settle()
    found: list[Row] = []
    previous = GENESIS
    for n, entry in enumerate(play.journal):
        found.append(seal("r1", entry, bytes([n]) * 16, previous))
        previous = found[-1].hash
    return found


replace = msgspec.structs.replace
ROWS = rows()
OTHER = seal("r1", open_row(ROWS[2]), bytes(16), ROWS[1].hash)
TAMPERED: dict[str, list[Row]] = {
    "a row is missing": [*ROWS[:2], *ROWS[3:]],
    "the first row is missing": ROWS[1:],
    "two rows changed places": [ROWS[0], ROWS[2], ROWS[1], *ROWS[3:]],
    "a row stands twice": [*ROWS[:3], ROWS[2], *ROWS[3:]],
    "a row was put in": [*ROWS[:2], OTHER, *ROWS[3:]],
    "the order is backwards": ROWS[::-1],
}
CHANGED: dict[str, dict[str, Any]] = {
    "data": {"data": b'{"call":"c2"}'},
    "time": {"at": ROWS[2].at + 1},
    "step": {"step": 7},
    "actor": {"actor": "p2"},
    "type": {"type": 42},
    "version": {"v": 2},
    "salt": {"salt": bytes(16)},
    "hash": {"hash": bytes(32)},
    "number": {"seq": 4},
    "erased with another digest": {"data": None, "salt": bytes(32)},
}


def test_an_untouched_journal_verifies_and_hands_its_last_hash_out() -> None:
    assert check_chain("r1", ROWS) == ROWS[-1].hash
    assert check_chain("r1", []) == GENESIS
    assert [open_row(row).seq for row in ROWS] == list(range(1, len(ROWS) + 1))


@pytest.mark.parametrize("name", TAMPERED)
def test_a_row_removed_added_or_put_elsewhere_is_found(name: str) -> None:
    with pytest.raises(CorruptJournal, match="r1: event"):
        check_chain("r1", TAMPERED[name])


def test_a_missing_row_is_named_as_missing_and_not_as_changed() -> None:
    with pytest.raises(CorruptJournal, match="event 3 is missing"):
        check_chain("r1", TAMPERED["a row is missing"])


@pytest.mark.parametrize("name", CHANGED)
def test_a_change_to_any_field_of_a_row_is_found(name: str) -> None:
    changed = [*ROWS[:2], replace(ROWS[2], **CHANGED[name]), *ROWS[3:]]
    with pytest.raises(CorruptJournal, match=r"event [34] (was changed|is missing)"):
        check_chain("r1", changed)


def test_a_row_of_another_run_does_not_fit() -> None:
    with pytest.raises(CorruptJournal):
        check_chain("r2", ROWS)


def test_the_same_event_sealed_again_with_another_salt_has_another_hash() -> None:
    assert OTHER.hash != ROWS[2].hash
    assert OTHER.data == ROWS[2].data


@pytest.mark.parametrize("erased", [range(len(ROWS)), [2], [0, 3]])
def test_an_erased_journal_still_verifies_and_says_nothing(erased: Any) -> None:
    from hashlib import sha256

    kept = list(ROWS)
    for n in erased:
        digest = sha256(kept[n].salt + (kept[n].data or b"")).digest()
        kept[n] = replace(kept[n], data=None, salt=digest)
        with pytest.raises(CorruptJournal, match="erased"):
            open_row(kept[n])
    assert check_chain("r1", kept) == ROWS[-1].hash


def test_a_chain_goes_on_from_a_parents_hash() -> None:
    tail = ROWS[3:]
    assert check_chain("r1", tail, ROWS[2].hash) == ROWS[-1].hash
    with pytest.raises(CorruptJournal):
        check_chain("r1", tail, ROWS[1].hash)


def test_lines_in_a_persons_id_cannot_stand_for_other_fields() -> None:
    one = ev.Entry(seq=1, at=2, step=3, actor="a\n4\n1", event=ev.RunResumed())
    two = ev.Entry(seq=1, at=2, step=3, actor="a", event=ev.RunResumed())
    assert codec.header("r1", one, 4, 1) != codec.header("r1", two, 4, 1)


def test_errors_of_a_run_are_data_that_can_always_be_read_again() -> None:
    for error_class in ErrorClass:
        event = ev.ErrorRaised(error_class=error_class, message="any \u2400 text", where="x")
        assert decode(event.TYPE, event.V, encode(event)) == event
