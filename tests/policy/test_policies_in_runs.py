"""Policies in real runs: from a file, of an agent, of a run; over restarts, forks and sessions."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from tests.engine.kit import FREE_HAND, Ledger, Recorder, events, names, results

from cairn import Agent, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import Policy, Range, Redirect, Rule
from cairn.core.views import timeline
from cairn.errors import ConfigError, ToolDefinitionError
from cairn.governance.policy_file import PolicyFileError
from cairn.store.inmemory import InMemoryStore
from cairn.testing.invariants import check


def hands(ledger: Ledger) -> list[Any]:
    @tool(effect="write")
    async def pay(order: str, cents: int = 100) -> str:
        return ledger.add(f"paid {cents} for {order}")

    @tool(effect="write")
    async def draft(order: str, cents: int) -> str:
        return ledger.add(f"drafted {cents} for {order}")

    @tool(effect="read", taint="web")
    async def fetch(url: str) -> str:
        return f"text of {url}"

    return [pay, draft, fetch]


def desk(
    ledger: Ledger, script: Any, store: Any, deployed: Any = FREE_HAND, **agent: Any
) -> Runtime:
    model = script if hasattr(script, "request") else Scripted(script)
    return Runtime(store, agents=[Agent("a", model, tools=hands(ledger), **agent)], policy=deployed)


def rule(name: str, decide: Any = "deny", **fields: Any) -> Rule:
    return Rule(name=name, decide=decide, **fields)


PAY = [call("pay", order="7"), "done"]
BIG = rule("big", tools=("pay",), arguments={"cents": Range(min=1000)})


def test_a_run_that_waited_is_judged_by_the_policy_of_the_process_that_goes_on(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        ledger, path = Ledger(), str(tmp_path / "s.db")
        async with desk(ledger, PAY, path, Policy()) as rt:
            assert (await rt.run_async("a", "task", id="r")).reason == "approval"
        closed = Policy(rules=(rule("closed", tools=("pay",), reason="shop is closed"),))
        async with desk(ledger, PAY, path, closed) as rt:
            await rt.approve_async("r/1")
            run = await rt.drive_async("r")
            assert run.status == "completed"
            trace = await rt.trace_async("r")
            (rejected,) = events(trace, ev.ToolRejected)
            assert (rejected.kind, rejected.rule) == ("denied", "deployment: closed")
            assert "shop is closed" in rejected.message
        assert ledger.lines == []

    asyncio.run(main())


def test_the_policy_of_a_run_stands_in_its_journal_and_holds_in_every_process(
    tmp_path: Path,
) -> None:
    async def main() -> None:
        ledger, path = Ledger(), str(tmp_path / "s.db")
        narrow = Policy(rules=(BIG,))
        script = [call("pay", order="7", cents=5000), call("pay", order="7", cents=5), "done"]
        async with desk(ledger, script, path) as rt:
            run = await rt.enqueue_async("a", "task", id="r", policy=narrow)
            (created,) = events(await rt.trace_async(run), ev.RunCreated)
            assert created.policy == narrow
        async with desk(ledger, script, path) as rt:
            assert (await rt.drive_async("r")).status == "completed"
            (rejected,) = events(await rt.trace_async("r"), ev.ToolRejected)
            assert rejected.rule == "run: big"
            assert ledger.lines == ["paid 5 for 7"]
            other = await rt.run_async("a", "task", id="r2")
            assert other.status == "completed"
            assert events(await rt.trace_async("r2"), ev.ToolRejected) == []

    asyncio.run(main())


def test_a_run_and_an_agent_cannot_allow_themselves_anything() -> None:
    async def main() -> None:
        ledger, free = Ledger(), Policy(tools={"pay": "allow"}, effects={"write": "allow"})
        rt = desk(ledger, PAY, InMemoryStore(), Policy(), policy=free)
        run = await rt.run_async("a", "task", id="r", policy=free)
        assert run.reason == "approval"
        assert ledger.lines == []
        await rt.close_async()

    asyncio.run(main())


def test_a_fork_keeps_the_policy_of_its_run() -> None:
    async def main() -> None:
        ledger, narrow = Ledger(), Policy(tools={"pay": "deny"})
        rt = desk(ledger, PAY, InMemoryStore())
        await rt.run_async("a", "task", id="r", policy=narrow)
        await rt.fork_async("r", 1, id="f")
        await rt.drive_async("f")
        assert ledger.lines == []
        assert [e.rule for e in events(await rt.trace_async("f"), ev.ToolRejected)] == [
            "run: tool pay"
        ]
        await rt.close_async()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ["none", "parts", "code", "typo"])
def test_a_policy_that_a_journal_cannot_hold_or_that_is_misspelt_starts_no_run(kind: str) -> None:
    class Own(Policy):
        pass

    given: Any = {
        "none": {"pay": "deny"},
        "parts": Policy(agents={"a": Policy()}),
        "code": Own(),
        "typo": Policy(tools={"pey": "deny"}),
    }[kind]

    async def main() -> None:
        rt = desk(Ledger(), PAY, InMemoryStore())
        with pytest.raises(ConfigError) as refused:
            await rt.run_async("a", "task", id="r", policy=given)
        assert refused.value.field.startswith("policy")
        assert await rt.runs_async() == []
        await rt.close_async()

    asyncio.run(main())


def test_a_redirected_call_runs_once_and_is_told_of_everywhere(tmp_path: Path) -> None:
    async def main() -> None:
        ledger = Ledger()
        model = Recorder(call("pay", order="7", cents=5000), "done")
        policy = Policy(
            rules=(
                rule(
                    "over 10", "redirect", tools=("pay",), arguments={"cents": Range(min=1000)},
                    redirect=Redirect(tool="draft"),
                ),
            ),
            effects={"write": "allow"},
        )  # fmt: skip
        async with desk(ledger, model, str(tmp_path / "s.db"), policy) as rt:
            assert (await rt.run_async("a", "task", id="r")).status == "completed"
            assert ledger.lines == ["drafted 5000 for 7"]
            told = results(model.last)["c1"]
            assert "redirected this call to draft (deployment: over 10)" in told
            assert told.endswith("drafted 5000 for 7")
            trace = await rt.trace_async("r")
            assert names(trace)[2:6] == [
                "model.completed",
                "tool.redirected",
                "tool.started",
                "tool.completed",
            ]
            rules = rt.host.crew("a").rules
            assert check(trace, rules=rules) == []
            (seen,) = [c for step in timeline(trace).steps for c in step.calls]
            assert (seen.name, seen.verdict, seen.rule) == (
                "pay",
                "redirect",
                "deployment: over 10",
            )
            assert [(r.tool, r.rule) for r in seen.redirects] == [("draft", "deployment: over 10")]
            assert seen.attempts[0].tool == "draft"
            assert (await rt.replay_async("r")).same

    asyncio.run(main())


def test_what_a_session_has_read_taints_its_later_runs() -> None:
    async def main() -> None:
        ledger = Ledger()
        careful = Policy(
            rules=(rule("tainted", tools=("pay",), taint=("web",)),), effects={"write": "allow"}
        )

        def script(request: Any) -> Any:
            said = [p.content for m in request.messages if m.role == "user" for p in m.parts]
            if request.messages[-1].role == "tool":
                return "done"
            return call("fetch", url="x") if said[-1] == "read" else call("pay", order="7")

        rt = desk(ledger, script, InMemoryStore(), careful)
        await rt.run_async("a", "pay", id="one", session="s")
        await rt.run_async("a", "read", id="two", session="s")
        await rt.run_async("a", "pay", id="three", session="s")
        await rt.run_async("a", "pay", id="four", session="other")
        assert ledger.lines == ["paid 100 for 7"] * 2
        (rejected,) = events(await rt.trace_async("three"), ev.ToolRejected)
        assert rejected.rule == "deployment: tainted"
        await rt.close_async()

    asyncio.run(main())


# ---------------------------------------------------------------- from a file


def test_a_runtime_takes_the_path_of_a_policy(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(
        "effects: {write: allow}\n"
        "rules:\n"
        "  - name: small only\n"
        "    decide: deny\n"
        "    tools: pay\n"
        "    arguments: {cents: {min: 1000}}\n"
        "    reason: pay it by hand\n"
    )

    async def main() -> None:
        ledger = Ledger()
        script = [call("pay", order="7", cents=5000), call("pay", order="8"), "done"]
        for path in (file, str(file)):
            rt = desk(ledger, script, InMemoryStore(), path)
            await rt.run_async("a", "task", id="r")
            (rejected,) = events(await rt.trace_async("r"), ev.ToolRejected)
            assert rejected.rule == "deployment: small only"
            await rt.close_async()
        assert ledger.lines == ["paid 100 for 8"] * 2

    asyncio.run(main())


def test_a_file_that_is_wrong_or_not_there_starts_no_runtime(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        desk(Ledger(), PAY, InMemoryStore(), tmp_path / "none.yaml")
    file = tmp_path / "policy.yaml"
    file.write_text("tools: {pay: perhaps}\n")
    with pytest.raises(PolicyFileError, match=r"policy.yaml:1: tools.pay: 'perhaps'"):
        desk(Ledger(), PAY, InMemoryStore(), file)


@pytest.mark.parametrize(
    ("policy", "where"),
    [
        (Policy(tools={"pey": "deny"}), "tools.pey"),
        (Policy(rules=(rule("r", tools=("pey",)),)), "rules.r.tools.pey"),
        (Policy(rules=(rule("r", agents=("b",)),)), "rules.r.agents.b"),
        (Policy(agents={"b": Policy()}), "agents.b"),
        (Policy(roles={"x": Policy(tools={"pey": "deny"})}), "roles.x.tools.pey"),
        (
            Policy(rules=(rule("r", "redirect", redirect=Redirect(tool="drafts")),)),
            "rules.r.redirect.tool",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_name_that_is_not_there_is_refused_wherever_it_stands(policy: Policy, where: str) -> None:
    with pytest.raises(ConfigError) as refused:
        desk(Ledger(), PAY, InMemoryStore(), policy)
    assert refused.value.field == f"Runtime.policy.{where}"


def test_the_agents_own_policy_is_checked_as_well() -> None:
    agent = Agent("b", Scripted(PAY), policy=Policy(tools={"pey": "deny"}))
    with pytest.raises(ConfigError) as refused:
        Runtime(InMemoryStore(), agents=[agent])
    assert refused.value.field == "Agent('b').policy.tools.pey"
    bad: Any = {"pay": "deny"}
    with pytest.raises(ConfigError, match="policy"):
        Agent("b", Scripted(PAY), policy=bad)


def test_other_code_of_a_policy_is_another_version_too() -> None:
    class One(Policy):
        def spoken(self, intent: Any) -> Any:
            return None

    class Two(Policy):
        def spoken(self, intent: Any) -> Any:
            return super().spoken(intent)

    prints = {
        desk(Ledger(), PAY, InMemoryStore(), policy).host.crew("a").fingerprint.policy
        for policy in (Policy(), One(), Two())
    }
    assert len(prints) == 3


def test_another_policy_is_another_version_of_the_agent() -> None:
    ledger = Ledger()
    prints = [
        desk(ledger, PAY, InMemoryStore(), policy, **own).host.crew("a").fingerprint.policy
        for policy, own in (
            (FREE_HAND, {}),
            (FREE_HAND, {}),
            (FREE_HAND, {"policy": Policy(tools={"pay": "ask"})}),
            (Policy(effects={"write": "allow"}, name="test", rules=(BIG,)), {}),
        )
    ]
    assert prints[0] == prints[1]
    assert len(set(prints)) == 3


# ---------------------------------------------------------------- the tool option


def test_a_tool_says_what_it_taints_the_run_with() -> None:
    @tool(effect="read", taint=["web", "mcp:crm"])
    def look() -> str:
        """Look."""
        return ""

    assert look.spec.taint == ("mcp:crm", "web")

    @tool(effect="read")
    def plain() -> str:
        """Look."""
        return ""

    assert plain.spec.taint == ()


@pytest.mark.parametrize("taint", ["", "Web", "a b", "any", ["none"], 5, [5], "x" * 200, "a\n"])
def test_what_is_no_label_is_refused(taint: Any) -> None:
    with pytest.raises(ToolDefinitionError, match="taint"):

        @tool(effect="read", taint=taint)
        def look() -> str:
            """Look."""
            return ""
