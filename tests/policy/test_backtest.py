"""A changed policy on recorded runs: each call as it was then, and nothing written or called."""

import asyncio
from pathlib import Path
from typing import Any

from tests.engine.kit import FREE_HAND, Ledger
from tests.policy.test_policies_in_runs import desk, hands, rule

from cairn import Agent, Runtime, Scripted, call, tool
from cairn.core.policy import Policy, Range, Redirect, Spend
from cairn.engine.load import start_of
from cairn.governance.backtest import Judged, backtest, counted

SCRIPT = [
    [call("pay", order="1"), call("pay", order="2", cents=5000)],
    call("fetch", url="x"),
    call("pay", order="3"),
    "done",
]


async def recorded(
    rt: Runtime, run: str, policy: Policy, own: Policy | None = None
) -> list[Judged]:
    entries = await rt.store.read(run)
    start = await start_of(rt.store, run, entries)
    rules = rt.host.crew("a").rules
    return backtest(run, start, entries, policy, lambda _: rules.tools, own)


def test_each_call_is_judged_in_the_state_its_run_had_then(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = Ledger()
        async with desk(ledger, SCRIPT, str(tmp_path / "s.db")) as rt:
            await rt.run_async("a", "task", id="r")
            before = [*ledger.lines], await rt.trace_async("r")
            policy = Policy(
                rules=(
                    rule("tainted", tools=("pay",), taint=("web",)),
                    rule("many", "ask", tools=("pay",), spend=Spend(calls=1)),
                ),
                effects={"write": "allow"},
            )
            found = await recorded(rt, "r", policy)
            assert [(j.call, j.was, j.was_rule, j.becomes, j.now.rule) for j in found] == [
                ("c1", "allow", "test: effect write", "allow", "deployment: effect write"),
                ("c2", "allow", "test: effect write", "ask", "deployment: many"),
                ("c3", "allow", "default: read", "allow", "default: read"),
                ("c4", "allow", "test: effect write", "deny", "deployment: tainted"),
            ]
            assert [j.changed for j in found] == [False, True, False, True]
            assert counted(found)["allow"] == {"allow": 2, "ask": 1, "redirect": 0, "deny": 1}
            assert ([*ledger.lines], await rt.trace_async("r")) == before

    asyncio.run(main())


def test_the_policy_that_drove_a_run_changes_nothing_of_it() -> None:
    big = {"cents": Range(min=1000)}
    policy = Policy(
        rules=(
            rule("far too big", tools=("pay",), arguments={"cents": Range(min=9000)}),
            rule("big", "redirect", tools=("pay",), arguments=big, redirect=Redirect(tool="draft")),
            rule("tainted", "ask", tools=("pay",), taint=("any",)),
        ),
        effects={"write": "allow"},
    )

    async def main() -> None:
        script = [call("pay", order="0", cents=9999), *SCRIPT]
        rt = desk(Ledger(), script, ":memory:", policy)
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        found = await recorded(rt, "r", policy)
        assert [(j.call, j.tool, j.was, j.becomes) for j in found] == [
            ("c1", "pay", "deny", "deny"),
            ("c2", "pay", "allow", "allow"),
            ("c3", "pay", "redirect", "redirect"),
            ("c3", "draft", "allow", "allow"),
            ("c4", "fetch", "allow", "allow"),
            ("c5", "pay", "ask", "ask"),
        ]
        assert [j.was_rule for j in found] == [j.now.rule for j in found]
        await rt.close_async()

    asyncio.run(main())


def test_a_run_that_asks_nobody_is_denied_what_would_be_asked() -> None:
    async def main() -> None:
        rt = desk(Ledger(), SCRIPT, ":memory:", Policy())
        await rt.run_async("a", "task", id="r", approvals="none")
        for policy, becomes in ((Policy(), "deny"), (FREE_HAND, "allow")):
            found = await recorded(rt, "r", policy)
            pays = [(j.was, j.becomes) for j in found if j.tool == "pay"]
            assert pays == [("deny", becomes)] * 3
        await rt.close_async()

    asyncio.run(main())


def test_the_policies_of_the_run_and_of_the_agent_count_as_well() -> None:
    async def main() -> None:
        rt = desk(Ledger(), SCRIPT, ":memory:")
        await rt.run_async("a", "task", id="r", policy=Policy(tools={"pay": "deny"}))
        wider = await recorded(rt, "r", Policy(tools={"pay": "allow"}))
        assert {j.now.rule for j in wider if j.tool == "pay"} == {"run: tool pay"}
        found = await recorded(rt, "r", FREE_HAND, Policy(tools={"fetch": "ask"}))
        assert {j.becomes for j in found if j.tool == "fetch"} == {"ask"}
        await rt.close_async()

    asyncio.run(main())


def test_what_a_fork_took_over_is_its_parents() -> None:
    async def main() -> None:
        rt = desk(Ledger(), SCRIPT, ":memory:")
        await rt.run_async("a", "task", id="r")
        head = len(await rt.trace_async("r"))
        await rt.fork_async("r", head - 1, id="f")
        assert len(await recorded(rt, "r", FREE_HAND)) == 4
        assert await recorded(rt, "f", FREE_HAND) == []
        await rt.close_async()

    asyncio.run(main())


def test_without_the_tools_effects_are_those_that_are_recorded() -> None:
    async def main() -> None:
        rt = desk(Ledger(), SCRIPT, ":memory:", Policy(tools={"pay": "deny"}))
        await rt.run_async("a", "task", id="r")
        entries = await rt.store.read("r")
        start = await start_of(rt.store, "r", entries)
        found = backtest("r", start, entries, FREE_HAND, lambda _: None)
        assert {j.tool: j.effect for j in found} == {"pay": "dangerous", "fetch": "read"}
        assert {j.tool: j.assumed.partition(":")[2] for j in found} == {
            "pay": " dangerous, and its arguments as they were written",  # it was never started
            "fetch": " read as recorded, and its arguments as they were written",
        }
        await rt.close_async()

    asyncio.run(main())


def test_arguments_that_no_longer_fit_are_judged_as_they_were_and_said_so() -> None:
    @tool(effect="write")
    async def pay(order: int) -> str:
        return ""

    async def main() -> None:
        rt = desk(Ledger(), SCRIPT, ":memory:")
        await rt.run_async("a", "task", id="r")
        entries = await rt.store.read("r")
        start = await start_of(rt.store, "r", entries)
        specs: dict[str, Any] = {"pay": pay.spec}
        found = backtest("r", start, entries, FREE_HAND, lambda _: specs)
        said = {j.assumed for j in found if j.call == "c2"}
        assert said == {"its arguments no longer fit the tool"}
        await rt.close_async()

    asyncio.run(main())


def shop(folder: Path) -> Runtime:
    """The application of the command's tests."""
    agents = [Agent("a", Scripted(SCRIPT), tools=hands(Ledger()))]
    return Runtime(folder / "s.db", agents=agents, policy=FREE_HAND)
