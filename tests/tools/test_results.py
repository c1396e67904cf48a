"""Whatever a tool returns becomes strict JSON by a written rule, or one typed error."""

import collections
import dataclasses
import datetime as dt
import decimal
import enum
import fractions
import ipaddress
import json
import math
import pathlib
import types
import uuid
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from cairn.core.messages import Source
from cairn.errors import ErrorClass, ToolError
from cairn.tools.results import UnserialisableResult, clip, drain, stand_in, to_json


class Colour(enum.Enum):
    RED = "red"


class Weight(enum.IntEnum):
    HEAVY = 3


class Spot(NamedTuple):
    x: int
    y: int


@dataclasses.dataclass
class Box:
    held: Any


class Model(BaseModel):
    raw: bytes
    tags: set[int]


class Tagged(msgspec.Struct, tag="t", rename="camel"):
    long_name: int = 0


class Text(str):
    __slots__ = ()


class Ratio(float):
    __slots__ = ()


@types.DynamicClassAttribute
def _boom(self: Any) -> Any:
    raise ZeroDivisionError


class Hostile:
    """Raises wherever it is touched."""

    __slots__ = ()
    model_dump = property(_boom.fget)
    __class__ = property(_boom.fget)  # type: ignore[assignment] # - a liar on purpose

    def __iter__(self) -> Any:
        raise ZeroDivisionError

    def __str__(self) -> str:
        raise ZeroDivisionError

    __repr__ = __str__


class BadMapping(collections.UserDict):
    def items(self) -> Any:
        raise ZeroDivisionError


def refuse_constant(word: str) -> None:
    raise AssertionError(f"{word} is not JSON")


def no_double(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    assert len(dict(pairs)) == len(pairs)
    return dict(pairs)


def strict(raw: msgspec.Raw) -> Any:
    """Read JSON as the strictest reader would."""
    text = bytes(raw).decode("utf-8")
    assert "\\u0000" not in text or "\\\\u0000" in text
    return json.loads(text, parse_constant=refuse_constant, object_pairs_hook=no_double)


def refused(value: Any) -> UnserialisableResult:
    with pytest.raises(UnserialisableResult) as caught:
        to_json(value)
    assert isinstance(caught.value, ToolError)
    return caught.value


def test_b57_half_a_character_and_nul_are_replaced_where_one_can_see_it() -> None:
    assert strict(to_json("a\ud83dz")) == "a\ufffdz"
    assert strict(to_json("a\0b")) == "a␀b"
    assert strict(to_json({"k\0": ["\udc00", "\0"]})) == {"k␀": ["\ufffd", "␀"]}
    assert strict(to_json("\ud83d\ude00")) == "😀"
    assert strict(to_json("é\0")) == "é␀"
    assert strict(to_json("a literal \\u0000 stays")) == "a literal \\u0000 stays"


RULES: list[tuple[Any, Any]] = [
    (b"\x89PNG\xff", {"base64": "iVBOR/8=", "bytes": 5}),
    (bytearray(b"a"), {"base64": "YQ==", "bytes": 1}),
    (memoryview(b"a"), {"base64": "YQ==", "bytes": 1}),
    ({"p": math.nan}, {"p": None}),
    ([math.inf, -math.inf, Ratio("nan")], [None, None, None]),
    ({3, 1, 2}, [1, 2, 3]),
    (frozenset({"b", "a"}), ["a", "b"]),
    ({"a", 1, None, (1,)}, ["a", 1, [1], None]),
    (dt.date(2026, 1, 2), "2026-01-02"),
    (dt.datetime(2026, 1, 2, 3, tzinfo=dt.UTC), "2026-01-02T03:00:00+00:00"),
    (dt.time(1, 2), "01:02:00"),
    (dt.timedelta(days=1, seconds=2), "P1DT2S"),
    (decimal.Decimal("1.10"), "1.10"),
    (fractions.Fraction(1, 3), "1/3"),
    (uuid.UUID(int=1), "00000000-0000-0000-0000-000000000001"),
    (pathlib.PurePosixPath("a/b"), "a/b"),
    (ipaddress.ip_address("::1"), "::1"),
    (Colour.RED, "red"),
    (Weight.HEAVY, 3),
    ((1, "a"), [1, "a"]),
    (Spot(1, 2), {"x": 1, "y": 2}),
    (collections.deque([1]), [1]),
    (range(3), [0, 1, 2]),
    ((n for n in range(2)), [0, 1]),
    ({1: 2}.keys(), [1]),
    (map(str, [1]), ["1"]),
    (Box([Box({1})]), {"held": [{"held": [1]}]}),
    (Model(raw=b"\xff", tags={2}), {"raw": {"base64": "/w==", "bytes": 1}, "tags": [2]}),
    (Tagged(long_name=1), {"type": "t", "longName": 1}),
    (msgspec.Raw(b'{"a":[1]}'), {"a": [1]}),
    (ValueError("no"), {"error": "ValueError", "message": "no"}),
    (collections.UserDict(a=1), {"a": 1}),
    (types.MappingProxyType({"a": 1}), {"a": 1}),
    (Text("a"), "a"),
    (2**64 - 1, 2**64 - 1),
    (2**64, str(2**64)),
    ([-(2**63) - 1], [str(-(2**63) - 1)]),
    ({1: "a", 1.5: "b", False: "c"}, {"1": "a", "1.5": "b", "false": "c"}),
    ({Colour.RED: 1, dt.date(2026, 1, 2): 2}, {"red": 1, "2026-01-02": 2}),
    ({uuid.UUID(int=0): 1}, {str(uuid.UUID(int=0)): 1}),
]


def test_b58_every_type_has_its_rule() -> None:
    found = [(value, strict(to_json(value)), written) for value, written in RULES]
    assert [row for row in found if row[1] != row[2]] == []


def test_b58_what_has_no_rule_is_refused_by_place_and_type() -> None:
    error = refused({"items": [1, 2, 3, Box(object())]})
    assert error.path == "result.items[3].held"
    assert "result.items[3].held is of the type builtins.object" in str(error)
    for value in (object(), int, len, {(1, 2): 3}, {None: 1}, {b"k": 1}, ..., Hostile()):
        refused([value])
    assert "[0]" in str(refused([BadMapping(a=1)]))
    assert "ZeroDivisionError" in str(refused(BadMapping(a=1)))


def test_b58_a_coroutine_is_refused_with_the_way_out() -> None:
    async def later() -> None: ...

    waiting = later()
    assert "async" in str(refused(waiting))
    waiting.close()


def test_b58_two_keys_that_become_one_are_refused() -> None:
    assert "twice" in str(refused({1: "a", "1": "b"}))
    assert "twice" in str(refused({"\0": "a", "␀": "b"}))


def test_b58_what_contains_itself_is_refused() -> None:
    loop: list[Any] = []
    loop.append({"me": loop})
    assert "contains itself" in str(refused(loop))
    assert refused(loop).path == "result[0].me"
    box = Box(None)
    box.held = [box]
    assert "contains itself" in str(refused(box))
    assert strict(to_json([[1], [1]])) == [[1], [1]]
    shared = [1]
    assert strict(to_json([shared, (shared,)])) == [[1], [[1]]]


def test_b58_depth_is_bounded() -> None:
    deep: Any = 1
    for _ in range(64):
        deep = [deep]
    assert to_json(deep)
    for _ in range(100_000):
        deep = [deep]
    assert "64 levels" in str(refused(deep))


def test_b58_the_number_of_values_is_bounded_shared_ones_included() -> None:
    laughs: Any = ["ha"]
    for _ in range(60):
        laughs = [laughs, laughs]
    assert refused(laughs).error_class is ErrorClass.RESULT_TOO_LARGE
    assert refused((laughs,)).error_class is ErrorClass.RESULT_TOO_LARGE


def test_b58_an_endless_generator_ends() -> None:
    assert refused({"n": iter(int, 1)}).error_class is ErrorClass.RESULT_TOO_LARGE
    with pytest.raises(UnserialisableResult):
        drain(iter(int, 1))
    assert drain(iter([1, 2])) == [1, 2]


def test_b58_a_result_beyond_the_limit_is_refused() -> None:
    with pytest.raises(UnserialisableResult) as caught:
        to_json("x" * 100, limit=50)
    assert caught.value.error_class is ErrorClass.RESULT_TOO_LARGE


def test_b58_a_call_that_ran_is_recorded_as_done_even_if_its_result_is_not_writable() -> None:
    told = strict(stand_in(refused(object())))
    assert told["error"] == "UnserialisableResult"
    assert "ran" in told["note"]


def test_a_number_of_too_many_digits_is_still_text() -> None:
    assert isinstance(strict(to_json(10**5000)), str)


def test_sources_are_objects_as_any_struct() -> None:
    assert strict(to_json(Source(uri="a", text="b\0")))["text"] == "b␀"


LEAVES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters())
    | st.text(st.sampled_from("a\0\ud83d\ude00é"))
    | st.binary(max_size=8)
    | st.dates()
    | st.datetimes()
    | st.timedeltas()
    | st.decimals()
    | st.uuids()
    | st.complex_numbers()
    | st.sampled_from([Colour.RED, Weight.HEAVY, object(), int, ..., range(2)])
    | st.builds(Hostile)
)
KEYS = st.text() | st.integers() | st.floats() | st.booleans() | st.dates() | st.none()
VALUES = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.lists(inner, max_size=4).map(tuple)
        | st.dictionaries(KEYS, inner, max_size=4)
        | inner.map(Box)
        | inner.map(lambda value: iter([value]))
        | inner.map(lambda value: BadMapping(a=value))
    ),
    max_leaves=12,
)


@given(VALUES)
def test_anything_becomes_strict_json_or_the_typed_error(value: Any) -> None:
    try:
        raw = to_json(value)
    except UnserialisableResult as error:
        raw = stand_in(error)
    strict(raw)


PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]))
    | st.floats(allow_nan=False, allow_infinity=False),
    lambda inner: (
        st.lists(inner)
        | st.dictionaries(
            st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"])), inner
        )
    ),
    max_leaves=20,
)


@given(PLAIN)
def test_what_is_json_already_stays_as_it_is(value: Any) -> None:
    assert strict(to_json(value)) == value


def test_b59_a_huge_text_keeps_head_and_tail_and_says_what_is_missing() -> None:
    text = "".join(f"line {n}\n" for n in range(200_000))
    shown, cut = clip(text, 16_384, "a3")
    assert cut
    assert len(shown.encode()) <= 16_384
    assert shown.startswith("line 0\n")
    assert shown.endswith("line 199999\n")
    assert 'read_artifact("a3")' in shown
    head, _, tail = shown.partition("\n[… ")
    left_out = int(tail.split(" ")[0])
    tail = tail.partition("…]\n")[2]
    assert len(head) + left_out + len(tail) == len(text)
    assert 1.3 < len(head) / len(tail) < 1.7


def test_b59_a_text_that_fits_is_not_touched() -> None:
    assert clip("é" * 100, 200) == ("é" * 100, False)
    assert clip("a" * 100, 100) == ("a" * 100, False)


@given(st.text(st.sampled_from("aé漢😀"), max_size=400), st.integers(0, 600))
def test_b59_a_cut_never_splits_a_character(text: str, max_bytes: int) -> None:
    shown, cut = clip(text, max_bytes)
    assert cut == (len(text.encode()) > max_bytes)
    if not cut:
        assert shown == text
        return
    head, _, rest = shown.partition("\n[… ")
    note, _, tail = rest.partition(" …]\n")
    assert text.startswith(head)
    assert text.endswith(tail)
    assert int(note.split()[0]) == len(text) - len(head) - len(tail)
    assert len(shown.encode()) <= max(max_bytes, len(f"\n[… {note} …]\n".encode()))
