"""Schemas of strangers: what fits is let through, and nothing they hold can hurt."""

import json
import time

import pytest

from cairn.core.rules import Problem
from cairn.mcp.schemas import MAX_DEPTH, Unusable, bind


def fits(schema, value):
    return not isinstance(bind("t", schema).check(json.dumps(value)), Problem)


def of(**fields):
    return {"type": "object", "properties": fields}


@pytest.mark.parametrize(
    ("schema", "good", "bad"),
    [
        (of(n={"type": "integer"}), {"n": 1}, {"n": "one"}),
        (of(n={"enum": ["a", "b"]}), {"n": "a"}, {"n": "c"}),
        (of(n={"pattern": "^a+$"}), {"n": "aa"}, {"n": "b"}),
        (of(n={"type": "array", "uniqueItems": True}), {"n": [1, 2]}, {"n": [1, 1]}),
        ({**of(a={}), "additionalProperties": False}, {"a": 1}, {"b": 1}),
        ({**of(a={}), "additionalProperties": {"type": "string"}}, {"b": "x"}, {"b": 1}),
        ({**of(), "patternProperties": {"^n_": {"type": "integer"}}}, {"n_1": 1}, {"n_1": "x"}),
        ({**of(a={}, b={}), "required": ["a"]}, {"a": 1}, {"b": 1}),
        ({**of(), "oneOf": [{"required": ["a"]}, {"required": ["b"]}]}, {"a": 1}, {"a": 1, "b": 1}),
        (
            {**of(n={"$ref": "#/$defs/N"}), "$defs": {"N": {"minimum": 3}}},
            {"n": 3},
            {"n": 2},
        ),
        (
            {
                **of(t={"$ref": "#/$defs/T"}),
                "$defs": {"T": {"type": "object", "properties": {"t": {"$ref": "#/$defs/T"}}}},
            },
            {"t": {"t": {}}},
            {"t": {"t": 1}},
        ),
        (
            {"$schema": "http://json-schema.org/draft-07/schema#", **of(n={"exclusiveMinimum": 1})},
            {"n": 2},
            {"n": 1},
        ),
        ({}, {"anything": 1}, []),
    ],
)
def test_arguments_are_held_to_the_schema(schema, good, bad):
    """B25: references are followed, to themselves too."""
    assert fits(schema, good)
    assert not fits(schema, bad)


CLOSED = {**of(name={}, note={}), "required": ["name"], "additionalProperties": False}
OPEN = {**of(name={}, note={}), "required": ["name"]}


@pytest.mark.parametrize(
    ("schema", "given", "lines"),
    [
        (CLOSED, {"name": 1, "nte": 2}, ["the whole: 'nte' is not known; did you mean 'note'"]),
        (CLOSED, {"name": 1, "zzz": 2}, ["the whole: 'zzz' is not known"]),
        (CLOSED, {"note": 1}, ["name: missing"]),
        (OPEN, {"nme": 1}, ["name: missing; 'nme' is not known; did you mean 'name'"]),
        (of(who=OPEN), {"who": {}}, ["who.name: missing"]),
    ],
)
def test_a_field_that_is_missing_or_not_known_is_named_and_what_was_meant(schema, given, lines):
    found = bind("t", schema).check(json.dumps(given)).message.splitlines()
    assert [line.removeprefix("- ") for line in found if line.startswith("- ")] == lines


def test_the_model_is_told_what_does_not_fit_and_what_would():
    found = bind("t", of(n={"type": "integer"}, m={"type": "string"})).check('{"n": "x", "m": 1}')
    assert "- n: 'x' is not of type 'integer'" in found.message
    assert "Expected: {n?: integer, m?: string}" in found.message


def doubling(depth):
    defs = {f"a{n}": {"allOf": [{"$ref": f"#/$defs/a{n + 1}"}] * 2} for n in range(depth)}
    return {**of(), "$defs": {**defs, f"a{depth}": {}}, "$ref": "#/$defs/a0"}


def nested(depth):
    schema = {"type": "string"}
    for _ in range(depth):
        schema = of(a=schema)
    return schema


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"type": "string"}, "no object"),
        ([], "no object"),
        ({"$ref": "#"}, "without end"),
        (doubling(30), "never ends"),
        (nested(MAX_DEPTH), "nested"),
        (of(**{f"f{n}": {} for n in range(5_000)}), "parts"),
        (of(a={"description": "x" * 70_000}), "bytes"),
        (of(a={"$ref": "http://169.254.169.254/schema"}), "never fetched"),
        (of(a={"$ref": "file:///etc/passwd"}), "never fetched"),
        (of(a={"$ref": "#/$defs/none"}), "not in it"),
        (of(a={"$dynamicRef": "#x"}), "dynamicRef"),
        (of(a={"pattern": "(?=x)y"}), "pattern"),
        (of(a={"pattern": r"(a)\1"}), "pattern"),
        (of(a={"pattern": "a" * 2_000}), "pattern"),
        (of(a={"pattern": "((a{1000}){1000}){1000}"}), "pattern"),
        (of(a={"type": "no such type"}), "none"),
        (of(a={"minimum": "x"}), "none"),
        (
            {**of(a={"$ref": "#/$defs/x"}), "$defs": {"x": {}}, "unevaluatedProperties": False},
            "uses",
        ),
    ],
)
def test_a_schema_that_cannot_be_held_is_refused_with_its_reason(schema, said):
    with pytest.raises(Unusable, match=said):
        bind("t", schema)


def test_a_schema_that_grows_with_its_arguments_is_given_up():
    schema = {
        **of(a={"$ref": "#/$defs/T"}),
        "$defs": {"T": {"anyOf": [{"properties": {"a": {"$ref": "#/$defs/T"}}}] * 2}},
    }
    deep = {}
    for _ in range(30):
        deep = {"a": deep}
    begun = time.monotonic()
    found = bind("t", schema).check(json.dumps(deep))
    assert not isinstance(found, Problem) or "never ends" in found.message
    assert time.monotonic() - begun < 20  # without the bound it is hours


def test_a_pattern_made_to_hang_does_not():
    bound = bind("t", of(a={"pattern": "^(a+)+$"}))
    assert isinstance(bound.check(json.dumps({"a": "a" * 50_000 + "!"})), Problem)


def test_endless_arguments_are_not_looked_at():
    assert isinstance(bind("t", of()).check(json.dumps({"a": "x" * 300_000})), Problem)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', "[]", "{", '{"a": NaN}', "[" * 5_000])
def test_text_that_is_no_plain_object_is_refused(text):
    assert isinstance(bind("t", of()).check(text), Problem)


def test_what_providers_refuse_at_the_top_is_not_shown_but_held():
    bound = bind("t", {**of(a={}), "anyOf": [{"required": ["a"]}], "$id": "http://x/y"})
    assert set(bound.shown) == {"type", "properties"}
    assert isinstance(bound.check("{}"), Problem)
