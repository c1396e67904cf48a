"""What a review of the policies found: each stays mended."""

from typing import Any

import pytest

from cairn.core.policy import Command, Inside, Not, OneOf, Policy, Predicate, Rule
from cairn.core.policy.patterns import compiled
from cairn.core.policy.predicates import told
from cairn.governance.policy_file import PolicyFileError, parse_policy


def asked(predicate: Predicate, value: Any) -> bool | None:
    found: bool | None = told("x", predicate, {"x": value}, allows=True)
    return found


def decided(decide: Any, predicate: Predicate, value: Any) -> str:
    rule = Rule(name="r", decide=decide, arguments={"x": predicate})
    other: Any = "deny" if decide == "allow" else "allow"
    policy = Policy(rules=(rule,), effects={"write": other})
    return policy.judge("act", "write", {"x": value}).decision


def faults(predicate: str) -> list[tuple[int, str]]:
    text = f"rules:\n  - name: a\n    decide: ask\n    arguments:\n      x: {predicate}\n"
    try:
        parse_policy(text)
    except PolicyFileError as error:
        return [(fault.line, fault.problem) for fault in error.faults]
    return []


@pytest.mark.parametrize("written", ["NO", "yes", "on", "Off"])
def test_a_truth_value_in_disguise_is_a_fault(written: str) -> None:
    truth = "true" if written in {"yes", "on"} else "false"
    said = [(5, f"{written} reads as {truth}")]
    assert faults(f"{{one_of: [DE, {written}]}}") == said
    assert faults(f"{{equals: {written}}}") == said
    assert faults(f"{{equals: '{written}'}}") == []


@pytest.mark.parametrize("written", ["010", "-010", "0x1F", "0b11", "1:30", "1_000", "1_0.5"])
def test_a_number_in_disguise_is_a_fault(written: str) -> None:
    said = [(5, f"{written} reads as another number")]
    assert faults(f"{{equals: {written}}}") == said
    assert faults(f"{{max: {written}}}") == said
    assert faults(f"{{equals: '{written}'}}") == []


def test_plain_values_are_taken() -> None:
    for written in ("true", "false", "0", "-1", "0.5", "-0.5", "10", "1.0e+3", "null"):
        assert faults(f"{{equals: {written}}}") == []


def test_one_of_cannot_be_told_where_one_value_cannot() -> None:
    mixed = OneOf(values=(1, "a"))
    assert [asked(mixed, value) for value in (1, "a", "1", 2)] == [True, True, None, None]
    plain = OneOf(values=("a", "b"))
    assert [asked(plain, value) for value in ("a", "c", "B", 1)] == [True, False, None, None]


@pytest.mark.parametrize("predicate", ["{optional: true}", "{optional: false}", "{ports: 80}"])
def test_a_predicate_that_asks_for_nothing_is_a_fault(predicate: str) -> None:
    assert len(faults(predicate)) == 1


def test_without_case_a_negated_set_excludes_both_forms() -> None:
    pattern = compiled("(?i)[^a-z]+")
    assert not pattern.fits("ADMIN")
    assert not pattern.fits("admin")
    assert pattern.fits("42-7")
    assert compiled("[^a-z]+").fits("ADMIN")
    assert compiled("(?i)[a-z.]+").fits("ADmin.")
    assert compiled(r"(?i)\D.\W").fits("Ab-")


@pytest.mark.parametrize(
    ("fields", "command", "answer"),
    [
        ({"with_flags": ("--dry-run",)}, "git branch -dr x", None),
        ({"with_flags": ("-n",)}, "git push -on origin main", None),
        ({"no_flags": ("--dry-run",)}, "git push -dr x", None),
        ({"with_flags": ("--dry-run",)}, "git push --dry-run", True),
        ({"with_flags": ("--dry-run",)}, "git push --dry-run=yes", True),
        ({"with_flags": ("--dry-run",)}, "git push -v", False),
        ({"no_flags": ("--dry-run",)}, "git push --dry-run", False),
        ({"no_flags": ("--dry-run",)}, "git push -v", True),
    ],
)
def test_an_option_that_only_may_be_meant_cannot_be_told(
    fields: dict[str, Any], command: str, answer: bool | None
) -> None:
    predicate = Command(programs=("git",), **fields)
    assert asked(predicate, command) is answer
    if answer is None:
        for each in (predicate, Not(predicate=predicate)):
            assert decided("allow", each, command) == "deny"
            assert decided("deny", each, command) == "deny"


@pytest.mark.parametrize(
    "path",
    ["/ETC/x", "/etc./x", "/etc /x", "/a/../etc/x", "etc/x", "//etc/x", "\\etc", "~/x", "/.. /etc"],
)
def test_of_a_path_that_may_be_inside_it_cannot_be_told(path: str) -> None:
    inside = Inside(roots=("/etc",))
    assert asked(inside, path) is None
    assert decided("allow", Not(predicate=inside), path) == "deny"
    assert decided("deny", inside, path) == "deny"


def test_a_path_plainly_inside_or_elsewhere_is_told() -> None:
    inside = Inside(roots=("/etc", "/srv/data"))
    for path in ("/etc", "/etc/x", "/srv/data/./a.b"):
        assert asked(inside, path) is True
    for path in ("/srv/database", "/usr/x", "/etcetera/.x"):
        assert asked(inside, path) is False
    assert asked(Inside(roots=("docs",)), "src/a") is False
