"""A grant, its preview and the call it answers are compared in one way: as the tool validates."""

import asyncio
import datetime as dt
import enum

import pytest
from pydantic import BaseModel

from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import Range, Rule
from cairn.errors import ConfigError
from cairn.store.inmemory import InMemoryStore


class Kind(enum.Enum):
    CASH = "cash"


class Address(BaseModel):
    city: str
    zip: int = 0


@tool(effect="write")
def pay(account: str, amount: float, note: str = "") -> str:
    """Pay."""
    return "paid"


@tool(effect="write")
def send(kind: Kind, day: dt.date, to: Address, items: tuple[int, ...] = ()) -> str:
    """Send."""
    return "sent"


def desk(called, *, tools=(pay, send), **policy):
    model = Scripted(lambda request: "done" if request.turn else called)
    return Runtime(InMemoryStore(), [Agent("a", model, tools=[*tools])], policy=Policy(**policy))


async def both(called, granted, **scope):
    """What the preview says of a call that somebody was asked about, and what the grant does."""
    rt = desk(called)
    assert (await rt.run_async("a", "t", id="r0")).status == "waiting"
    name = called.name
    shown = await rt.show_grant_async(name, arguments=granted, **scope)
    await rt.grant_async(name, arguments=granted, **scope)
    status = (await rt.run_async("a", "t", id="r1")).status
    return shown.past.answered, status


INT = call("pay", account="x", amount=500)
FLOAT = call("pay", account="x", amount=500.0, note="")


@pytest.mark.parametrize("called", [INT, FLOAT], ids=["call 500", "call 500.0"])
@pytest.mark.parametrize(
    ("granted", "scope"),
    [
        ({"amount": 500}, {}),
        ({"amount": 500.0}, {}),
        ({"note": ""}, {}),
        ({"account": "x", "amount": 500}, {"exact": True}),
        ({"account": "x", "amount": 500.0, "note": ""}, {"exact": True}),
    ],
)
def test_what_is_the_same_to_the_tool_is_the_same_to_preview_and_grant(called, granted, scope):
    assert asyncio.run(both(called, granted, **scope)) == (1, "completed")


@pytest.mark.parametrize(
    ("granted", "scope"),
    [
        ({"amount": 501}, {}),
        ({"amount": "500"}, {}),
        ({"account": "x"}, {"exact": True}),
        ({"account": "x", "amount": 500, "note": "n"}, {"exact": True}),
    ],
)
def test_what_is_another_value_is_so_to_preview_and_grant(granted, scope):
    assert asyncio.run(both(INT, granted, **scope)) == (0, "waiting")


SENT = {"kind": "cash", "day": "2026-03-01", "to": {"city": "Ulm"}, "items": [1, 2]}


@pytest.mark.parametrize("name", [*SENT, "all"])
def test_values_of_any_type_can_be_granted(name):
    granted = SENT if name == "all" else {name: SENT[name]}
    found = both(call("send", **SENT), granted, exact=name == "all")
    assert asyncio.run(found) == (1, "completed")
    other = {**SENT, "day": "2026-03-02", "to": {"city": "Bonn"}, "items": [2]}
    if name in {"day", "to", "items"}:
        found = both(call("send", **SENT), {name: other[name]})
        assert asyncio.run(found) == (0, "waiting")


def test_a_grant_is_kept_and_shown_as_the_tool_validates_it():
    async def main():
        rt = desk(INT)
        scope = {"arguments": {"account": "x", "amount": 500}, "exact": True}
        allows = (await rt.show_grant_async("pay", **scope)).allows
        assert {"argument amount = 500.0", 'argument note = ""'} <= set(allows)
        await rt.grant_async("pay", **scope)
        return (await rt.grants_async())[0].scope.arguments

    assert asyncio.run(main()) == '{"account":"x","amount":500.0,"note":""}'


def test_a_grant_of_an_earlier_release_still_answers_what_is_written_like_it():
    async def main():
        rt = desk(INT)
        old = ev.GrantMade(
            n=1, tool="pay", effect="write", arguments='{"account":"x","amount":500}', exact=True
        )
        await rt.store.keep(0, [ev.Entry(seq=1, at=1, event=old)])
        return (await rt.run_async("a", "t", id="r")).status

    assert asyncio.run(main()) == "completed"


def warnings(rt, tool="pay", **scope):
    return asyncio.run(rt.show_grant_async(tool, **scope)).warnings


def test_an_exact_grant_that_no_call_can_be_is_warned_of():
    (said,) = warnings(desk(INT), arguments={"account": "x"}, exact=True)
    assert said == "no call has these arguments and no other: amount: missing; expected number"
    (said,) = warnings(desk(INT), exact=True)
    assert "account: missing" in said


def test_a_value_that_does_not_fit_further_in_is_warned_of():
    (said,) = warnings(desk(INT), "send", arguments={"to": {"ctiy": "Ulm"}})
    assert said.startswith("no call has these arguments: to.")


def test_two_agents_that_read_a_value_differently_are_told_apart():
    @tool(name="pay", effect="write")
    def whole(account: str, amount: int) -> str:
        """Pay."""
        return "paid"

    agents = [
        Agent("a", Scripted(["x"]), tools=[pay]),
        Agent("b", Scripted(["x"]), tools=[whole]),
    ]
    rt = Runtime(InMemoryStore(), agents)
    (said,) = warnings(rt, arguments={"amount": 500})
    assert said == "agent b reads these arguments otherwise than a: name one"
    assert warnings(rt, arguments={"amount": 500}, agent="b") == ()


def test_a_grant_for_what_is_always_allowed_is_warned_of():
    (said,) = warnings(allowed())
    assert said.startswith("the policy allows pay of agent a unasked (deployment: tool pay)")
    assert said.endswith("can answer nothing there")


def allowed(**more):
    model = Scripted(["x"])
    policy = Policy(tools={"pay": "allow"}, **more)
    return Runtime(InMemoryStore(), [Agent("a", model, tools=[pay])], policy=policy)


def test_a_grant_is_not_warned_of_where_somebody_may_still_be_asked():
    tainted = Rule(name="t", decide="ask", tools=("p*",), taint=("memory",))
    assert warnings(allowed(rules=(tainted,))) == ()
    large = Rule(name="l", decide="ask", arguments={"amount": Range(min=100)})
    assert warnings(allowed(rules=(large,))) == ()
    assert warnings(allowed(roles={"guest": Policy(tools={"pay": "ask"})})) == ()
    other = Rule(name="o", decide="ask", effects=("dangerous",))
    assert len(warnings(allowed(rules=(other,)))) == 1


def test_a_misspelt_tool_of_a_grant_brings_the_nearest():
    with pytest.raises(ConfigError, match=r"no agent has a tool 'pya'\. Did you mean 'pay'\?"):
        warnings(desk(INT), "pya")


def test_a_misspelt_argument_of_a_grant_is_one_sentence():
    with pytest.raises(ConfigError) as caught:
        warnings(desk(INT), arguments={"acount": "x"})
    assert "?." not in str(caught.value)
    assert "did you mean 'account' or 'amount'? Name" in str(caught.value)
