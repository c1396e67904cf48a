"""Who decided what, by which rule: told of every run, and safe to open anywhere."""

import csv
import inspect
import io
import json
import re
from typing import get_args, get_type_hints

import pytest
from tests.audit.conftest import runtime, sql

from cairn import ApprovalTerms, Budget, Policy, call
from cairn.cli.audit_command import cell
from cairn.core import events as ev
from cairn.core.codec import GENESIS, seal
from cairn.core.views import audit as view
from cairn.core.views.audit import DECISIONS
from cairn.core.views.words import words

HOSTILE = (
    "=1+1",
    "+1",
    "-1",
    "@SUM(A1)",
    "\t=1",
    "\r=1",
    "\n=1",
    " =1",
    "\u00a0=1",
    "\uff1d1+1",
    "\uff20x",
    "\ufeff=1",
    "a;=1+1",
    "a; -1",
)


def told(said):
    """Run, seq and decision of each line."""
    return [(each["run"], each["seq"], each["decision"]) for each in said.objects]


def test_every_decision_is_told_with_who_and_by_which_rule(path, cairn):
    lines = cairn("audit", "--json", "--run", "granted").objects
    assert [
        (line["decision"], line["call"], line["tool"], line["who"], line["rule"], line["detail"])
        for line in lines
    ] == [
        ("asked", "c1", "refund", "", "default: write", "request 1"),
        ("granted", "c1", "refund", "ada", "request 1", "fine"),
        ("allowed", "c1", "refund", "ada", "approval 1", ""),
        ("allowed", "c2", "look", "", "default: read", ""),
    ]
    assert {(line["agent"], line["principal"]) for line in lines} == {("shop", "ann")}
    assert len({line["digest"] for line in lines[:3]}) == 1
    asked = json.loads(cairn("export", "granted").objects[lines[0]["seq"] - 1]["data"])
    assert lines[0]["digest"] == asked["digest"]
    assert lines[0]["hash"] == cairn("export", "granted").objects[lines[0]["seq"] - 1]["hash"]


def test_the_whole_store_is_told_the_newest_run_first_and_the_stores_facts_last(path, cairn):
    assert told(cairn("audit", "--json")) == [
        ("stopped", 4, "asked"),
        ("stopped", 5, "granted"),
        ("stopped", 6, "allowed"),
        ("stopped", 8, "budget stop"),
        ("again", 6, "forked"),
        ("denied", 4, "asked"),
        ("denied", 5, "denied"),
        ("denied", 6, "allowed"),
        ("granted", 4, "asked"),
        ("granted", 5, "granted"),
        ("granted", 6, "allowed"),
        ("granted", 8, "allowed"),
        ("store", 1, "budgets set"),
    ]


@pytest.mark.parametrize(
    ("options", "runs"),
    [
        (("--who", "eve"), {"denied"}),
        (("--decision", "denied"), {"denied"}),
        (("--decision", "budget stop"), {"stopped"}),
        (("--decision", "budget"), {"stopped"}),
        (("--principal", "bob"), {"denied", "again"}),
        (("--agent", "nobody"), set()),
        (("--tool", "look"), {"denied", "granted"}),
        (("--run", "again", "--run", "denied"), {"again", "denied"}),
        (("--since", "1d"), {"granted", "denied", "again", "stopped", "store"}),
        (("--since", "2100-01-01"), set()),
        (("--who", "ada", "--tool", "refund", "--decision", "granted"), {"granted", "stopped"}),
    ],
)
def test_lines_can_be_asked_for_by_what_they_say(path, cairn, options, runs):
    assert {run for run, _, _ in told(cairn("audit", "--json", *options))} == runs


def test_what_makes_no_sense_is_usage(path, cairn):
    assert cairn("audit", "--since", "yesterday").code == 2
    assert cairn("audit", "--json", "--csv").code == 2
    assert cairn("audit", "--run", "nobody").code == 2
    assert cairn("audit", "-o", "cairn.db").code == 2


def test_an_audit_goes_to_a_file(path, cairn):
    assert cairn("audit", "--json", "-o", "audit.jsonl").out == "wrote 13 lines to audit.jsonl\n"
    assert cairn("verify", "--heads", "audit.jsonl").code == 0


def test_a_call_that_a_person_has_changed_and_one_that_is_unknown_are_told(path, cairn):
    with runtime(path, [[call("refund", order="7", cents=400)], "done"]) as rt:
        rt.run("shop", "go", id="edited", principal="x")
        rt.edit("edited", call="c1", arguments={"order": "7", "cents": 1}, by="ada")
        rt.resume("edited")
        rt.approve("edited/2", by="ada")
        rt.pause("edited", "lunch", by="bob")
        rt.resume("edited", by="bob")
        rt.cancel("edited")
    lines = cairn("audit", "--json", "--run", "edited").objects
    assert [(line["decision"], line["who"]) for line in lines][:6] == [
        ("asked", ""),
        ("edited", "ada"),
        ("asked", ""),
        ("granted", "ada"),
        ("paused", "bob"),
        ("resumed", "bob"),
    ]
    assert lines[0]["digest"] != lines[1]["digest"] == lines[2]["digest"] == lines[3]["digest"]


def test_a_policy_that_fails_is_told_apart_from_one_that_denies(path, cairn):
    class Failing(Policy):
        def judge(self, *args, **kwargs):
            raise RuntimeError("broken")

    with runtime(path, [[call("look", what="x")], "done"], policy=Failing()) as rt:
        rt.run("shop", "go", id="failing", principal="x")
    [line] = cairn("audit", "--json", "--run", "failing").objects
    assert line["decision"] == "policy failed"
    assert "RuntimeError: broken" in line["rule"]


def test_a_record_that_cannot_be_read_or_was_erased_is_told_and_hides_nothing(path, cairn):
    sql(path, "UPDATE event SET data = x'00' WHERE id & 4294967295 = 5 AND id >> 32 = 1")
    sql(path, "UPDATE event SET data = NULL WHERE id & 4294967295 = 6 AND id >> 32 = 1")
    lines = told(cairn("audit", "--json", "--run", "granted"))
    assert lines == [
        ("granted", 4, "asked"),
        ("granted", 5, "unreadable"),
        ("granted", 6, "erased"),
        ("granted", 8, "allowed"),
    ]


def test_every_kind_of_event_is_told_or_named_as_no_decision():
    assert set(ev.EVENTS.values()) == view.TOLD | view.NO_DECISION
    assert not view.TOLD & view.NO_DECISION


def line_of(event: ev.Event, actor: str = "") -> view.AuditLine:
    """How one event is told of."""
    entry = ev.Entry(seq=1, at=1_000_000, event=event, actor=actor)
    row = seal("r", entry, b"0" * 16, GENESIS)
    (line,) = view.audit("r", iter([row]))
    return line


@pytest.mark.parametrize(
    ("limit", "bound", "value", "said"),
    [
        ("micro_usd", 5_000_000, 4_998_000, "$5.00 of $5.00"),
        ("micro_usd", 50_000, 4_200, "$0.0042 of $0.05"),
        ("running_s", 1_800, 1_803, "30 min 3 s of 30 min 0 s"),
        ("tokens", 2_000_000, 1_999_000, "1,999,000 of 2,000,000"),
        ("steps", 50, 50, "50 of 50"),
    ],
)
def test_limits_are_told_in_units_that_people_read(limit, bound, value, said):
    event = ev.LimitReached(limit=limit, bound=bound, value=value)
    assert line_of(event).detail == said
    assert words(event) == f"{limit}: {said}"


def test_budgets_and_grants_are_told_in_units_that_people_read(path, cairn):
    with runtime(path, ["done"], budgets=[Budget(usd=2.5, tokens=9_000)]) as rt:
        rt.budgets()
        rt.grant("refund", hours=8, uses=1, by="ada", reason="known")
    budgets, grant = cairn("audit", "--json", "--run", "store").objects[-2:]
    assert budgets["detail"] == "store-day: per store and day, 9,000 tokens, 2.50 USD"
    assert grant["detail"] == "effect write, 1 call, for 8 h 0 min; known"
    assert not re.search(r"\d{7}", json.dumps([budgets["detail"], grant["detail"]]))


def test_a_run_that_is_handed_back_is_told_with_what_the_person_said_and_no_more(path, cairn):
    with runtime(path, [[call("refund", order="7", cents=4)], "done"]) as rt:
        for run, said in (("one", "use the other shop"), ("two", "")):
            rt.run("shop", "go", id=run, principal="x")
            rt.take_over(run, "let me see", by="ada")
            rt.hand_back(run, said, by="ada")
    for run, said in (("one", "use the other shop"), ("two", "")):
        line = cairn("audit", "--json", "--run", run).objects[-1]
        assert (line["decision"], line["who"], line["detail"]) == ("handed back", "ada", said)


def test_what_was_asked_is_told_with_its_terms_and_reason():
    terms = ApprovalTerms(roles=("lead",), other_person=True)
    asked = ev.ApprovalRequested(
        n=1, call="c1", digest="d", expires_at=9, rule="big ones", reason="over 100", terms=terms
    )
    said = "request 1; needs lead, another person than asked; over 100"
    assert line_of(asked).detail == said


# ---------------------------------------------------------------- safe to open


@pytest.mark.parametrize("text", HOSTILE)
def test_no_cell_is_computed_by_a_spreadsheet(text):
    found = cell(text)
    for part in found.split(";"):
        assert not re.match(r"\s*[=+\-@\uff0b\uff0d\uff1d\uff20\t\r]", part), found
    assert len(found.splitlines()) == 1


def test_harmless_text_stays_as_it_is():
    for text in ("done", "a = b", "2 + 2", "ada@example.com", "x-y", "7", "", "a; b", "'quoted'"):
        assert cell(text) == text


def test_what_people_and_models_wrote_is_defused_in_a_table(path, cairn):
    said = cairn("audit", "--csv")
    rows = list(csv.reader(io.StringIO(said.out)))
    assert rows[0][:4] == ["at", "run", "seq", "decision"]
    assert len({len(row) for row in rows}) == 1
    assert len(rows) == 14
    denied = next(row for row in rows if row[3] == "denied")
    assert denied[rows[0].index("detail")] == """'=HYPERLINK("http://evil","x")"""
    for row in rows:
        for value in row:
            assert not value.startswith(("=", "+", "-", "@"))


def test_control_characters_never_reach_the_terminal_or_a_file(path, cairn):
    evil = "\x1b[2J\x07\u202egranted by root\x00\nfake line"
    with runtime(path, [[call("refund", order="1", cents=1)], "done"]) as rt:
        rt.run("shop", "go", id="evil", principal="x")
        rt.deny("evil/1", evil, by="eve\x1b[31m")
    for shape in ((), ("--csv",), ("--json",)):
        out = cairn("audit", "--run", "evil", *shape).out
        assert not re.search("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\u202e]", out)
        assert len(out.splitlines()) == 2 + (shape == ("--csv",))


def test_budgets_are_listed_for_people_and_for_programs(path, cairn):
    lines = cairn("budgets").out.splitlines()
    assert re.fullmatch(
        r"principal-month  ann: 3 calls of 3 calls; resets \d{4}-\d\d-01 00:00 UTC", lines[0]
    )
    assert lines[1].startswith("principal-month  bob: 1 call of 3 calls")
    ann, bob = cairn("budgets", "--json").objects
    assert (ann["key"], ann["used"], bob["key"]) == (
        "ann",
        {"calls": 3, "tokens": 300, "micro_usd": 300},
        "bob",
    )
    assert ann["cap"] == {"calls": 3, "tokens": None, "micro_usd": None}
    assert ann["reserved"] == {"tokens": 0, "micro_usd": 0}
    with runtime(path, ["done"], budgets=[Budget(usd=1), Budget(per="tenant", tokens=5)]) as rt:
        rt.budgets()
    lines = cairn("budgets").out.splitlines()
    assert lines[0].startswith("store-day  all runs: 0.0005 USD of 1.00 USD; resets ")
    assert lines[1].startswith("tenant-day  no tenant: 500 tokens of 5 tokens; resets ")
    with runtime(path, ["done"], budgets=[]) as rt:
        rt.budgets()
    assert cairn("budgets").out == "no budgets stand in this store\n"


def test_all_decisions_that_can_be_told_of_can_be_asked_for():
    source = inspect.getsource(view)
    found = set(re.findall(r'"?decision"?(?:: |=)"([a-z ]+)"', source))
    for event, word in ((ev.ToolResolved, "resolved"), (ev.MemoryReviewed, "fact")):
        said = get_args(get_type_hints(event)["verdict"])
        found |= {f"{word} {verdict.replace('_', ' ')}" for verdict in said}
    assert len(found) > 30
    assert found <= set(DECISIONS)
