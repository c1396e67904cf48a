"""Worlds full of approvals hold, and they notice when something in the house does not."""

import pytest

from cairn.core import decisions, gate
from cairn.core import events as ev
from cairn.core.grants import Grant, Grants
from cairn.core.terms import BoundFile
from cairn.testing.simulation.simulation import Simulation


def told(seed: int, **options):
    return Simulation(seed=seed, theme="approvals", **options).run()


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_world_full_of_approvals_holds(store):
    for seed in range(3):
        assert told(seed, store=store).violations == ()


def test_the_same_seed_tells_the_same_story():
    assert told(5).journals() == told(5).journals()


@pytest.mark.slow
def test_everything_that_such_a_world_is_about_happens_in_it():
    seen: set[str] = set()
    rules: set[str] = set()
    for seed in range(40):
        for entries in told(seed).trace.values():
            for entry in entries:
                seen.add(entry.event.NAME)
                if isinstance(entry.event, ev.ToolStarted):
                    rules.add(entry.event.rule.split()[0])
                if isinstance(entry.event, ev.ApprovalGranted) and entry.event.arguments:
                    seen.add("with a change")
    assert rules >= {"approval", "grant"}
    assert seen >= {
        "approval.requested",
        "approval.granted",
        "approval.denied",
        "approval.expired",
        "with a change",
        "tool.edited",
        "takeover.begun",
        "takeover.turn",
        "takeover.result",
        "takeover.ended",
        "run.cancel_requested",
    }


def anybody(*_args, **_kwargs):
    return ""


def never(self, n, run, call):
    return False


def always(self, now):
    return "live"


def not_the_arguments(tool, arguments, files: tuple[BoundFile, ...] = ()):
    return tool


MUTANTS = {
    "who decides is not looked at": [(decisions, "unmet", anybody), (gate, "unmet", anybody)],
    "what a grant answers is not counted": [(Grants, "is_counted", never)],
    "a grant never ends": [(Grant, "stands", always)],
    "an approval is bound to the tool alone": [
        (decisions, "call_digest", not_the_arguments),
        (gate, "call_digest", not_the_arguments),
    ],
}


@pytest.mark.slow
@pytest.mark.parametrize("name", MUTANTS)
def test_a_world_notices_what_does_not_hold(name, monkeypatch):
    for where, what, instead in MUTANTS[name]:
        monkeypatch.setattr(where, what, instead)
    for seed in range(250):
        if any(found.name == "approval" for found in told(seed).violations):
            return
    raise AssertionError(f"nobody notices: {name}")
