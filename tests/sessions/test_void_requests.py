"""Who decides what waits no more is told why; and what waits says what it waits for."""

import pytest

from cairn import (
    Agent,
    IllegalTransition,
    Intake,
    Need,
    Refused,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.tools.builtin import ask_user


@tool(effect="write")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


def runtime() -> Runtime:
    need = Need(name="order", question="Which\norder?", pattern="AB")
    return Runtime(
        ":memory:",
        [
            Agent("payer", Scripted(lambda r: call("pay", order="7")), tools=[pay]),
            Agent("needy", Scripted(["done"]), intake=Intake(needs=[need])),
            Agent("asker", Scripted([call("ask_user", question="When?")]), tools=[ask_user]),
        ],
    )


def test_who_decides_a_request_of_an_interrupted_run_is_told_what_ended_it() -> None:
    with runtime() as rt:
        waits = rt.send("s", "pay", agent="payer")
        stop = rt.post("s", "stop", mode="interrupt")
        rt.follow(stop)
        for decide in (rt.approve, rt.deny):
            with pytest.raises(Refused, match=f"is cancelled .interrupted by {stop.run}"):
                decide(waits.pending[0].id)


def test_who_answers_a_question_of_a_run_that_is_over_is_told_why_it_is() -> None:
    with runtime() as rt:
        waits = rt.run("asker", "help", id="r")
        rt.cancel("r", "the shop is closed")
        with pytest.raises(IllegalTransition, match="the shop is closed"):
            rt.answer(waits.pending[0].id, "now")


def test_what_waits_says_what_is_asked() -> None:
    with runtime() as rt:
        (needs,) = rt.run("needy", "hello", id="n").pending
        assert str(needs) == "n/1: input Which order? - cairn answer n/1 TEXT"
        (asks,) = rt.run("asker", "hello", id="a").pending
        assert str(asks) == "a/1: input When? - cairn answer a/1 TEXT"
        (pays,) = rt.run("payer", "hello", id="p").pending
        assert str(pays) == 'p/1: approval pay({"order":"7"}) - cairn approve p/1'
        assert [str(item) for item in rt.pending()] == [str(needs), str(asks), str(pays)]
