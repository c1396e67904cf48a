"""Arguments and names that are not what they seem; and odd ones that are quite in order."""

import json
from typing import Any

from tests.governance.cases import Case, Place

KIND = "schema"
NAMELESS = "the whole: there is no such field"
WHOLE = ("not valid JSON", "JSON object", "out of range", "twice", "deep", "surrogate")
"""What is said of the arguments as a whole."""
ORDER = {"order": "R-7", "cents": 400}


def with_(**more: Any) -> str:
    return json.dumps({**ORDER, **more})


def keyed(name: str) -> str:
    """With a field of any name; Python itself would take two names of the same look for one."""
    return json.dumps({**ORDER, name: 1})


def raw(**fields: str) -> str:
    """Arguments as a model may write them, JSON or not."""
    given = {"order": '"R-7"', "cents": "400", **fields}
    return "{" + ", ".join(f'"{name}": {text}' for name, text in given.items()) + "}"


def _line(says: str) -> str:
    """A field is named by the line about it: all of them stand in what is expected."""
    return says if says in WHOLE else f"- {says}"


Bad = list[tuple[str, str]]
"""Arguments of a refund, and what must be said of them."""


def _fields() -> Bad:
    return [
        # fields that are not there
        (with_(extra=1), "extra"),
        (with_(__proto__={"admin": True}), "__proto__"),
        (with_(constructor={"prototype": {}}), "constructor"),
        (with_(__class__="x"), "__class__"),
        (with_(__init__="x"), "__init__"),
        (with_(ctx={"run_id": "r"}), "ctx"),
        (with_(self=1), "self"),
        (with_(Cents=1), "Cents"),
        (with_(CENTS=1), "CENTS"),
        (keyed("cents "), "cents "),
        (keyed("c\u0435nts"), "c\u0435nts"),
        (keyed("\uff43ents"), "\uff43ents"),
        (keyed("cents\u200b"), "cents"),
        (keyed("cents\x00"), "cents"),
        (keyed(""), NAMELESS),
        (with_(**{"items.0.sku": "x"}), "items.0.sku"),
        (with_(arguments={"cents": 1}), "arguments"),
        (with_(approved=True), "approved"),
        (with_(effect="read"), "effect"),
        (with_(**{"order ": "R-7"}), "order "),
        # missing
        ("{}", "order"),
        ("", "order"),
        ("null", "order"),
        (json.dumps({"order": "R-7"}), "cents"),
        # twice
        ('{"order": "R-7", "cents": 1, "cents": 999999}', "twice"),
        ('{"order": "R-7", "cents": 1, "\\u0063ents": 999999}', "twice"),
        ('{"order": "R-7", "cents": 1, "items": [{"sku": "a", "sku": "b"}]}', "twice"),
    ]


def _numbers() -> Bad:
    return [
        (with_(cents=-1), "cents"),
        (with_(cents=1_000_001), "cents"),
        (with_(cents=2**63), "cents"),
        (with_(cents=2**64 + 400), "cents"),
        (raw(cents="1" + "0" * 400), "cents"),
        (raw(cents="1" + "0" * 5_000), "out of range"),
        (raw(cents="1e999"), "out of range"),
        (raw(cents="4.5"), "cents"),
        (raw(cents="1e7"), "cents"),
        (raw(cents="NaN"), "not valid JSON"),
        (raw(cents="Infinity"), "not valid JSON"),
        (raw(cents="-Infinity"), "not valid JSON"),
        (raw(cents='"NaN"'), "cents"),
        (raw(cents='"Infinity"'), "cents"),
        (raw(cents="0x190"), "not valid JSON"),
        (raw(cents="0400"), "not valid JSON"),
        (raw(cents="+400"), "not valid JSON"),
        (raw(cents="4_0"), "not valid JSON"),
        (raw(cents='"0x190"'), "cents"),
        (raw(cents='"4_0"'), "cents"),
        (raw(cents='"\uff14\uff10\uff10"'), "cents"),
        (raw(cents='"1000001"'), "cents"),
        (raw(cents='"1e7"'), "cents"),
        (raw(cents='"-1"'), "cents"),
        (raw(cents='"400; drop"'), "cents"),
        (raw(cents="true"), "cents"),
        (raw(cents="false"), "cents"),
        (raw(cents='"true"'), "cents"),
        (raw(cents="null"), "cents"),
        (raw(cents="[400]"), "cents"),
        (raw(cents='{"value": 400}'), "cents"),
        (raw(cents='"[400]"'), "cents"),
        (raw(rate="1e400"), "out of range"),
        (raw(rate='"nan"'), "rate"),
        (raw(rate="NaN"), "not valid JSON"),
    ]


def _texts() -> Bad:
    return [
        (with_(order=7), "order"),
        (with_(order=None), "order"),
        (with_(order=["R-7"]), "order"),
        (with_(order={"$ne": None}), "order"),
        (with_(order="r-7"), "order"),
        (with_(order="R-7\n"), "order"),
        (with_(order="R-7\x00"), "order"),
        (with_(order="R-\u0667"), "order"),
        (with_(order="\uff32-7"), "order"),
        (with_(order="R\u20117"), "order"),
        (with_(order="R-7 R-8"), "order"),
        (with_(order="R-" + "7" * 100), "order"),
        (with_(order="x" * 2_000_000), "order"),
        (with_(note="x" * 501), "note"),
        ('{"order": "\\ud800", "cents": 1}', "surrogate"),
        ('{"order": "R-7\x00", "cents": 1}', "order"),
    ]


def _shapes() -> Bad:
    return [
        # lists and deep ones
        (with_(items={"sku": "a"}), "items"),
        (with_(items="a"), "items"),
        (with_(items=[None]), "items"),
        (with_(items=["a"]), "items"),
        (with_(items=[{"sku": "a", "price": 1}]), "items[0].price"),
        (with_(items=[{"sku": 1}]), "items[0].sku"),
        (with_(items=[{"sku": "a"}] * 21), "items"),
        (with_(tree={"a": "b"}), "tree"),
        (raw(tree="[" * 10_000 + "]" * 10_000), "deep"),
        (raw(tree='{"a":' * 10_000 + "{}" + "}" * 10_000), "deep"),
        (raw(note="[" * 10_000 + "]" * 10_000), "deep"),
        (raw(cents='"' + "[" * 10_000 + "]" * 10_000 + '"'), "cents"),
        (raw(way='"TO"'), "way"),
        (raw(way='"to "'), "way"),
        (raw(way='"t\u043e"'), "way"),
        (raw(way='["to"]'), "way"),
        # no object at all
        ("[]", "JSON object"),
        ('[{"order": "R-7", "cents": 1}]', "JSON object"),
        ('"{}"', "JSON object"),
        ("400", "JSON object"),
        ("{", "not valid JSON"),
        ("{'order': 'R-7', 'cents': 1}", "not valid JSON"),
        ('{"order": "R-7", "cents": 1} {"order": "R-8"}', "not valid JSON"),
        ('{"order": "R-7", "cents": 1,}', "not valid JSON"),
        ('{"order": "R-7", /* c */ "cents": 1}', "not valid JSON"),
        ('\ufeff{"order": "R-7", "cents": 1}', "not valid JSON"),
        ("\x00", "not valid JSON"),
        ("order=R-7&cents=1", "not valid JSON"),
    ]


def hostile(place: Place) -> list[Case]:
    bad = [*_fields(), *_numbers(), *_texts(), *_shapes()]
    found = [Case(KIND, "clerk", "refund", text, _line(says)) for text, says in bad]
    names = [
        "Refund",
        "REFUND",
        "refund ",
        " refund",
        "refund\n",
        "refund\x00",
        "refund()",
        "ref und",
        "r\u0435fund",
        "\uff52efund",
        "refund\u200b",
        "refun",
        "functions.refund",
        "shop.refund",
        "refund/../refund",
        "__import__",
        "x" * 5_000,
        "wipe",  # another agent's
        "shell",
        "ask_user",  # not given to this agent
        "update_plan",
        "read_artifact",
        "old_refund",  # withdrawn
    ]
    found += [Case(KIND, "clerk", name, json.dumps(ORDER), "There is no tool") for name in names]
    denied = [
        ("close_shop", "{}", "deployment: tool close_shop"),
        ("forbidden", "{}", "agent clerk, its own: tool forbidden"),
        ("drop_table", "{}", "this run takes none (default: dangerous)"),
        ("refund", with_(cents=90_000), "deployment: only small refunds"),
        ("refund", raw(cents='"90000"'), "deployment: only small refunds"),
        ("refund", raw(cents="9e4"), "deployment: only small refunds"),
    ]
    found += [Case(KIND, "clerk", tool, text, says) for tool, text, says in denied]
    return found


def benign(place: Place) -> list[Case]:
    good = [
        with_(),
        raw(cents="4e2"),
        raw(cents="4.0"),
        raw(cents='"400"'),
        raw(cents="0"),
        raw(cents="50000"),
        raw(rate="1e-3"),
        raw(rate="3"),
        raw(rate="1.5E+2"),
        with_(note="NaN, null, true and 1e999"),
        with_(note='{"cents": 999999}'),
        with_(note="__proto__"),
        with_(note="a\x00b"),
        with_(note="gr\u00fc\u00dfe \U0001f5fb \u202e"),
        with_(note="line\nline\ttab"),
        with_(note=""),
        with_(note="x" * 500),
        with_(items=[]),
        with_(items=[{"sku": "a"}, {"sku": "b", "count": 2}]),
        raw(items='"[{\\"sku\\": \\"a\\"}]"'),
        with_(way="to"),
        with_(tree=[]),
        raw(tree="[" * 60 + "]" * 60),
        raw(tree='"[[], [[]]]"'),
        '  {"cents": 400, "order": "R-7"}  \n',
        '{"\\u0063ents": 400, "order": "R-7"}',
    ]
    found = [Case(KIND, "clerk", "refund", text) for text in good]
    found += [
        Case(KIND, "clerk", "look", ""),
        Case(KIND, "clerk", "look", "null"),
        Case(KIND, "clerk", "look", "{}"),
        Case(KIND, "warden", "wipe", "{}"),
    ]
    return found
