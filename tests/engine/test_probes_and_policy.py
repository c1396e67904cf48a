"""A probe passes the gate too: as a read by its call's tool, by the policy of the moment."""

import asyncio

import pytest
from tests.engine.kit import FREE_HAND, Ledger, TurnedClock, events, results, runtime
from tests.engine.kit import Recorder as Model

from cairn import NOT_HAPPENED, Policy, Rule, call, happened, tool
from cairn.core import events as ev
from cairn.core.policy import Equals


class Turned(Policy, frozen=False):
    """What holds before the tool has run, and what holds afterwards."""

    later: Policy = FREE_HAND
    is_later: bool = False

    def spoken(self, intent):
        return (self.later if self.is_later else FREE_HAND).spoken(intent)


def paying(later: Policy, ledger: Ledger, answer=NOT_HAPPENED, **options):
    """A payment whose outcome nobody knows; from then on the other policy holds."""
    policy = Turned(later=later)

    async def find(order: str) -> object:
        ledger.add(f"probe {order}")
        return answer

    @tool(effect="write", recovery="probe", probe=find)
    async def pay(order: str) -> str:
        ledger.add(f"pay {order}")
        policy.is_later = True
        raise TimeoutError

    model = Model(call("pay", order="7"), "done")
    return model, runtime(model, [pay], policy=policy, clock=TurnedClock(), **options)


@pytest.mark.parametrize(
    "later",
    [
        Policy(tools={"pay": "deny"}),
        Policy(rules=(Rule(name="shut", decide="deny", arguments={"order": Equals(value="7")}),)),
        Policy(effects={"read": "deny"}),
    ],
    ids=["by name", "by a rule of its arguments", "every read"],
)
def test_the_probe_of_a_tool_that_is_now_denied_is_not_run_and_a_person_decides(later):
    async def main():
        ledger = Ledger()
        model, rt = paying(later, ledger)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "in_doubt")
        assert ledger.lines == ["pay 7"]
        (asked,) = events(await rt.trace_async("r"), ev.TakeoverRequested)
        assert "its probe is not allowed here" in asked.message
        await rt.resolve_async("r/c1", happened=True, result="paid")
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "paid"}
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "later",
    [Policy(effects={"write": "deny"}), Policy(tools={"pay": "ask"}), FREE_HAND],
    ids=["writes are denied", "it would ask", "as before"],
)
def test_a_probe_is_a_read_and_needs_no_second_yes(later):
    async def main():
        ledger = Ledger()
        model, rt = paying(later, ledger, happened("paid 7"))
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert ledger.lines == ["pay 7", "probe 7"]
        assert results(model.last) == {"c1": "paid 7"}

    asyncio.run(main())


def test_a_policy_that_fails_lets_no_probe_run():
    class Broken(Policy):
        def spoken(self, intent):
            raise RuntimeError("broken")

    async def main():
        ledger = Ledger()
        _, rt = paying(Broken(), ledger)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason, ledger.lines) == ("waiting", "in_doubt", ["pay 7"])

    asyncio.run(main())
