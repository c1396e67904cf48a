"""What a model writes as arguments is read by the schema: exactly, kindly, never by guessing."""

import asyncio
import dataclasses
import datetime as dt
import enum
import json
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import AfterValidator, BaseModel, BeforeValidator, field_validator

from cairn.core.names import nearest, unknown_tool_message
from cairn.core.rules import Problem
from cairn.errors import ErrorClass
from cairn.tools.arguments import MESSAGE_CHARS
from cairn.tools.tool import tool


class Range(BaseModel):
    min: int
    max: int | None = None


class Level(enum.Enum):
    LOW = 1
    HIGH = 2


@dataclasses.dataclass
class Point:
    x: int
    label: str = ""


@tool
def now() -> str:
    return ""


@tool
def search(query: str, limit: int = 10) -> str:
    return ""


@tool
def join(a: str, b: str) -> str:
    return ""


@tool
def write(path: str, overwrite: bool = False) -> str:
    return ""


@tool
def narrow(
    filter: Range,
    points: list[Point] | None = None,
    level: Level | None = None,
    either: int | Literal["auto"] = "auto",
    number: Literal[1, 2] = 1,
    share: float = 0.5,
    day: dt.date | None = None,
    extra: dict[str, Any] | None = None,
) -> str:
    return ""


def problem(one: Any, text: str) -> str:
    found = one.spec.check(text)
    assert isinstance(found, Problem), found
    assert found.error_class is ErrorClass.INVALID_ARGUMENTS
    assert len(found.message) <= MESSAGE_CHARS
    found.message.encode()
    return found.message


@pytest.mark.parametrize("text", ['{"query": "Oslo",', "[1]", "5", '"x"', "{'query': 1}", "true"])
def test_b18_what_is_no_object_is_not_run_and_shown_in_short(text: str) -> None:
    assert text in problem(search, text)


def test_b18_a_huge_bad_payload_is_not_echoed() -> None:
    said = problem(search, '{"query": "' + "x" * 2_000_000)
    assert len(said) < 400
    assert "2000011 characters" in said


@pytest.mark.parametrize("text", ["", "null", "  \n ", " null ", "{}"])
def test_b19_nothing_means_an_empty_object(text: str) -> None:
    assert now.spec.check(text) == {}


@pytest.mark.parametrize("text", ["", "null", "   "])
def test_b19_nothing_for_a_tool_with_parameters_names_them_and_not_json(text: str) -> None:
    said = problem(search, text)
    assert "query: missing; expected string" in said
    assert "JSON" not in said


def test_b20_a_call_cut_off_in_the_middle_is_not_run() -> None:
    assert "JSON" in problem(write, '{"path": "a.txt", "overwrite": tru')


def test_b22_an_object_that_comes_as_text_is_opened() -> None:
    assert narrow.spec.check('{"filter": "{\\"min\\": 1}"}')["filter"] == Range(min=1)


def test_b22_text_is_opened_wherever_text_cannot_stand() -> None:
    points = json.dumps([{"x": "1", "label": "2"}, json.dumps({"x": 2})])
    given = {"filter": {"min": "1", "max": "null"}, "points": points, "number": "2"}
    found = narrow.spec.check(json.dumps(given | {"share": "0.25", "level": "2"}))
    assert found["filter"] == Range(min=1, max=None)
    assert found["points"] == [Point(1, "2"), Point(2, "")]
    assert (found["number"], found["share"], found["level"]) == (2, 0.25, Level.HIGH)


@given(st.text(), st.sampled_from(["2", "null", "true", "[1]", '{"a": 1}', '"x"', " 1 "]))
def test_b22_what_is_valid_is_never_touched(a: str, b: str) -> None:
    found = join.spec.check(json.dumps({"a": a, "b": b}))
    assert found == {"a": a, "b": b}
    inner = narrow.spec.check(json.dumps({"filter": {"min": 1}, "extra": {"k": [b, {"l": b}]}}))
    assert inner["extra"] == {"k": [b, {"l": b}]}


def test_b22_text_stays_text_where_the_field_can_be_text() -> None:
    assert "either" in problem(narrow, '{"filter": {"min": 1}, "either": "5"}')


def test_b22_text_that_opens_to_something_wrong_says_what() -> None:
    assert "filter.min" in problem(narrow, '{"filter": "{\\"min\\": \\"x\\"}"}')
    assert "filter" in problem(narrow, '{"filter": "{\\"min\\": 1, \\"min\\": 2}"}')
    assert "filter" in problem(narrow, '{"filter": "{\\"min\\": NaN}"}')


@pytest.mark.parametrize("said", ["false", "False", "FALSE", " false "])
def test_b23_the_word_false_is_false(said: str) -> None:
    text = json.dumps({"path": "a", "overwrite": said})
    assert write.spec.check(text) == {"path": "a", "overwrite": False}


@pytest.mark.parametrize(
    "sent", ['"0"', '"no"', '"off"', '""', '"f"', '"1"', '"yes"', "0", "1", "0.0", "[]", "null"]
)
def test_b23_nothing_else_becomes_a_truth_value(sent: str) -> None:
    said = problem(write, f'{{"path": "a", "overwrite": {sent}}}')
    assert "overwrite: should be a valid boolean" in said


@given(st.one_of(st.text(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)))
def test_b23_only_true_is_true(given: Any) -> None:
    found = write.spec.check(json.dumps({"path": "a", "overwrite": given}))
    if isinstance(found, dict) and found["overwrite"]:
        assert isinstance(given, str)
        assert given.strip().lower() == "true"


def test_b24_an_unknown_field_is_refused_with_the_nearest_and_all_known() -> None:
    said = problem(search, '{"query": "x", "limt": 5}')
    assert "limt: there is no such field. Did you mean limit? Known: query, limit" in said


def test_b24_an_unknown_field_deep_inside_is_refused_as_well() -> None:
    text = '{"filter": {"min": 1, "mx": 2}, "points": [{"x": 1, "lable": ""}]}'
    said = problem(narrow, text)
    assert "filter.mx: there is no such field. Did you mean max? Known: min, max" in said
    assert "points[0].lable: there is no such field. Did you mean label? Known: x, label" in said


def test_b24_a_tool_without_parameters_takes_none() -> None:
    assert "None are known" in problem(now, '{"zone": "UTC"}')


def test_b27_an_unknown_tool_is_answered_with_the_real_names() -> None:
    said = unknown_tool_message("search_web", ["web_search", "read_file"])
    assert "Did you mean web_search?" in said
    assert "read_file, web_search" in said
    assert "no tools" in unknown_tool_message("x", [])
    many = unknown_tool_message("x" * 500 + "\ud800", [f"tool_{n}" for n in range(500)])
    assert len(many) <= MESSAGE_CHARS
    assert "and 460 more" in many
    many.encode()


def test_names_are_near_whatever_their_case_and_order() -> None:
    known = ["web_search", "read_file", "readFile2"]
    assert nearest("READ_FILE", known)[0] == "read_file"
    assert nearest("file-read", known) == ("read_file",)
    assert nearest("zzzzzz", known) == ()


def test_defaults_are_filled_in_so_that_a_policy_sees_them() -> None:
    assert search.spec.check('{"query": "x"}') == {"query": "x", "limit": 10}


def test_each_fault_names_place_problem_given_and_wanted() -> None:
    text = '{"filter": {"min": "many"}, "points": [{"x": 1}, {}], "day": "soon", "share": null}'
    said = problem(narrow, text)
    assert 'filter.min: should be a valid integer; given "many"; expected integer' in said
    assert "points[1].x: missing; expected integer" in said
    assert "day: should be a valid date" in said
    assert "share: should be a valid number; given null; expected number, or leave it out" in said
    assert "Expected: {filter: {min: integer, max?: integer | null}" in said


def test_many_and_long_faults_stay_short() -> None:
    points = [{"x": "y" * 500} for _ in range(500)]
    said = problem(narrow, json.dumps({"filter": {"min": 1}, "points": points, "f" * 900: 1}))
    assert "more" in said


def test_a_whole_number_written_with_a_point_is_whole_and_a_truth_value_is_no_number() -> None:
    assert search.spec.check('{"query": "x", "limit": 4.0}')["limit"] == 4
    assert "limit" in problem(search, '{"query": "x", "limit": 4.5}')
    assert "limit" in problem(search, '{"query": "x", "limit": true}')
    assert "query" in problem(search, '{"query": 7}')


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", "9" * 5000])
def test_numbers_that_json_does_not_have_are_refused(word: str) -> None:
    problem(narrow, f'{{"filter": {{"min": 1}}, "share": {word}}}')
    problem(narrow, f'{{"filter": {{"min": 1}}, "extra": {{"deep": [{word}]}}}}')


def test_a_field_named_twice_is_refused() -> None:
    assert "twice" in problem(search, '{"query": "a", "limit": 1, "query": "b"}')
    assert "twice" in problem(narrow, '{"filter": {"min": 1, "min": 2}}')
    assert search.spec.check('{"query": "a: b, \\"c\\": d"}')["query"] == 'a: b, "c": d'


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        '{"a":' * 5_000 + "1" + "}" * 5_000,
        '{"query": ' + "[" * 300 + "]" * 300 + "}",
        '{"query": "\ud83d"}',
        '{"query": "\\ud83d"}',
        "\ufeff{}",
        "{} {}",
        '{"query": "a\nb"}',
    ],
)
def test_hostile_text_is_refused_without_a_crash(text: str) -> None:
    problem(search, text)
    problem(narrow, text)


def test_a_validator_that_crashes_refuses_the_call() -> None:
    class Odd(BaseModel):
        a: int

        @field_validator("a")
        @classmethod
        def boom(cls, value: int) -> int:
            if value == 1:
                raise KeyError("boom")
            raise ValueError("must be even")

    @tool
    def odd(it: Odd) -> str:
        return ""

    assert "KeyError" in problem(odd, '{"it": {"a": 1}}')
    assert "KeyError" in problem(odd, '{"it": "{\\"a\\": 1}"}')
    assert "it.a: must be even; given 2" in problem(odd, '{"it": {"a": 2}}')


@given(st.text())
def test_any_text_gives_arguments_or_a_problem(text: str) -> None:
    for one in (now, search, narrow):
        found = one.spec.check(text)
        if isinstance(found, Problem):
            problem(one, text)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)
NAMES = st.sampled_from(["filter", "points", "level", "either", "number", "share", "x", "min"])


@given(st.dictionaries(NAMES, JSON | JSON.map(json.dumps) | st.fixed_dictionaries({"min": JSON})))
def test_any_json_gives_arguments_or_a_problem(given: Any) -> None:
    text = json.dumps(given)
    found = narrow.spec.check(text)
    if isinstance(found, Problem):
        problem(narrow, text)
    else:
        assert isinstance(found["filter"], Range)
        assert type(found["filter"].min) is int


@given(st.text(), st.integers(-(2**63), 2**63), st.floats(allow_nan=False, allow_infinity=False))
def test_what_fits_arrives_as_it_was_written(query: str, limit: int, share: float) -> None:
    assert search.spec.check(json.dumps({"query": query, "limit": limit})) == {
        "query": query,
        "limit": limit,
    }
    found = narrow.spec.check(json.dumps({"filter": {"min": limit}, "share": share}))
    assert found["share"] == share
    assert found["filter"].min == limit


ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_a_fault_that_cannot_be_put_into_words_is_still_a_problem(error: BaseException) -> None:
    def ends(*_: Any) -> Any:
        raise error

    odd = type("Odd", (ValueError,), {"__str__": ends, "__repr__": ends})
    shown = type("Shown", (), {"__repr__": ends})

    def refuses(value: int) -> int:
        raise odd

    @tool(effect="read")
    def raised(n: Annotated[int, AfterValidator(refuses)]) -> int:
        return n

    @tool(effect="read")
    def made(n: Annotated[int, BeforeValidator(lambda value: shown())]) -> int:
        return n

    async def checked() -> None:  # as a decision does it
        for each in (raised, made):
            for check in (each.spec.check, each.spec.check_some):
                assert check is not None
                found = check('{"n": 1}')
                assert isinstance(found, Problem)
                assert f"The arguments of {each.name} " in found.message

    asyncio.run(checked())
