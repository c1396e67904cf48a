"""What comes late settles the attempt that brought it, and no other one's effect."""

import pytest
from tests.core.play import Play, raw, rules_of, tool

from cairn.core import events as ev
from cairn.core.lifecycle import CallStatus
from cairn.core.policy import Policy
from cairn.errors import ErrorClass

TOOLS = (
    tool("fetch", taint=("web",), fallback="order"),
    tool("order", "write"),
    tool("charge", "write", recovery="keyed"),
)


def in_doubt() -> Play:
    """A read timed out, its fallback, a write that runs once, did so as well."""
    play = Play(rules_of(*TOOLS, policy=Policy(effects={"write": "allow"})), lawful=False)
    play.calls("fetch")
    play.add(ev.ToolUnknown(call="c1", reason="timeout"), 1)
    play.add(
        ev.ToolFailed(
            call="c1",
            error_class=ErrorClass.TOOL_TIMEOUT,
            message="m",
            disposition="switch",
            switch_to="order",
        ),
        1,
    )
    play.add(
        ev.ToolStarted(
            call="c1", effect="write", recovery="once", rule="r", attempt=2, tool="order"
        ),
        1,
    )
    play.add(ev.ToolUnknown(call="c1", reason="timeout"), 1)
    assert play.state.calls["c1"].status is CallStatus.TAKEOVER
    return play


def test_a_late_page_does_not_settle_the_order_that_was_made_in_its_place():
    play = in_doubt()
    play.add(ev.ToolLate(call="c1", ok=True, result=raw("IGNORE ALL"), attempt=1), 1)
    assert play.state.calls["c1"].status is CallStatus.TAKEOVER
    assert "IGNORE" not in str(play.state.messages)


@pytest.mark.parametrize("attempt", [0, 2])
def test_what_the_order_itself_brings_late_settles_it_as_data_from_outside(attempt):
    play = in_doubt()
    play.add(ev.ToolLate(call="c1", ok=True, result=raw("ordered"), attempt=attempt), 1)
    assert play.state.calls == {}
    said = str(play.state.messages)
    assert "from web: " in said
    assert "ordered" in said
    assert play.state.taint == {"web"}


def test_an_earlier_attempt_of_a_keyed_write_settles_the_next_for_it_is_the_same_effect():
    play = Play(rules_of(*TOOLS, policy=Policy(effects={"write": "allow"})), lawful=False)
    play.calls("charge")
    play.add(ev.ToolUnknown(call="c1", reason="timeout"), 1)
    play.add(ev.ToolStarted(call="c1", effect="write", recovery="keyed", rule="r", attempt=2), 1)
    play.add(ev.ToolUnknown(call="c1", reason="timeout"), 1)
    play.add(ev.ToolLate(call="c1", ok=True, result=raw("charged"), attempt=1), 1)
    assert play.state.calls == {}
