"""Approvals: bound to a call, decided once, by whoever and whenever, and never by accident."""

import asyncio

import pytest
from tests.engine.kit import (
    DAY_US,
    Ledger,
    Recorder,
    TurnedClock,
    events,
    names,
    results,
    runtime,
    until,
)

from cairn import Agent, Refused, Runtime, Scripted, UnknownRun, call, tool
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY, Policy
from cairn.errors import ConfigError
from cairn.store.inmemory import InMemoryStore


def writer(ledger: Ledger, name: str = "pay", effect: str = "write"):
    @tool(name=name, effect=effect)
    async def pay(order: str) -> str:
        return ledger.add(f"{name} {order}")

    return pay


def asking(ledger: Ledger, script, **options):
    return runtime(script, [writer(ledger)], policy=DEFAULT_POLICY, **options)


def test_a_granted_call_runs_once_and_the_model_reads_its_result():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        rt = asking(ledger, model)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.reason) == ("waiting", "approval")
        pending = run.pending[0]
        assert (pending.id, pending.tool, pending.detail) == ("r/1", "pay", '{"order":"7"}')
        assert "Not done: pay (c1)" in run.text
        await rt.approve_async("r/1", "go", by="ann")
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "pay 7"}
        assert ledger.lines == ["pay 7"]
        trace = await rt.trace_async("r")
        granted = next(e for e in trace if isinstance(e.event, ev.ApprovalGranted))
        assert (granted.actor, granted.event.message) == ("ann", "go")
        assert events(trace, ev.ToolStarted)[0].rule == "approval 1"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("use the staging host instead", "Reason: use the staging host instead"),
        ("", "No reason was given."),
    ],
)
def test_a_refused_call_is_never_run_and_the_model_reads_the_reason_as_typed(typed, read):
    """B44: refused by a person, not executed, the reason as typed; it survives the store."""

    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "I did not pay.")
        store = InMemoryStore()
        first = await asking(ledger, model, store=store).run_async("a", "task", id="r")
        assert first.status == "waiting"
        await Runtime(store.beside()).deny_async("r/1", typed, by="bob")
        run = await asking(ledger, model, store=store).run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {
            "c1": f"Not executed: a person refused this call.{' ' + read}"
        }
        assert ledger.lines == []

    asyncio.run(main())


@pytest.mark.parametrize("order", [(1, 2, 3), (3, 1, 2), (2, 3, 1)])
def test_several_waiting_calls_can_be_decided_in_any_order(order):
    """B43: all are listed, each decision acts on its own call, the rest keep waiting."""

    async def main():
        ledger, model = Ledger(), Recorder([call("pay", order=str(n)) for n in (1, 2, 3)], "done")
        tools = [tool(effect="write", conflict_key="order")(writer(ledger).function)]
        rt = runtime(model, tools, policy=DEFAULT_POLICY)
        run = await rt.run_async("a", "task", id="r")
        assert [p.id for p in run.pending] == ["r/1", "r/2", "r/3"]
        decided = []
        for n in order:
            await (rt.deny_async(f"r/{n}", "no") if n == 2 else rt.approve_async(f"r/{n}"))
            decided.append(n)
            run = await rt.run_async("a", "task", id="r")
            assert [p.id for p in run.pending] == [f"r/{k}" for k in (1, 2, 3) if k not in decided]
            assert sorted(ledger.lines) == [f"pay {k}" for k in (1, 3) if k in decided]
        assert run.status == "completed"
        assert list(results(model.last)) == ["c1", "c2", "c3"]

    asyncio.run(main())


def test_calls_that_keep_their_order_ask_one_after_the_other():
    """A waiting call holds back only the calls ordered after it."""

    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def look() -> str:
            return ledger.add("look")

        lines = [[call("pay", order="1"), call("look"), call("pay", order="2")], "done"]
        rt = runtime(lines, [writer(ledger), look], policy=DEFAULT_POLICY)
        run = await rt.run_async("a", "task", id="r")
        assert [p.call for p in run.pending] == ["c1"]
        assert ledger.lines == []
        await rt.approve_async("r/1")
        run = await rt.run_async("a", "task", id="r")
        assert [p.call for p in run.pending] == ["c3"]
        assert ledger.lines == ["pay 1", "look"]
        await rt.approve_async(run.pending[0].id)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["pay 1", "look", "pay 2"]

    asyncio.run(main())


def test_a_second_click_changes_nothing_and_a_contrary_one_is_refused():
    """B47: the second identical decision is a no-op; what was decided stays decided."""

    async def main():
        ledger = Ledger()
        rt = asking(ledger, [[call("pay", order="1"), call("pay", order="2")], "done"])
        await rt.run_async("a", "task", id="r")
        await rt.client.approve("r/1")
        before = await rt.trace_async("r")
        await rt.client.approve("r/1")
        assert await rt.trace_async("r") == before
        with pytest.raises(Refused, match="already granted"):
            await rt.client.deny("r/1")
        run = await rt.run_async("a", "task", id="r")
        with pytest.raises(Refused, match="already granted"):
            await rt.client.deny("r/1", "too late")
        await rt.client.approve("r/1")  # the call it granted has run: still no second effect
        await rt.deny_async(run.pending[0].id)
        await rt.client.deny(run.pending[0].id)
        done = await rt.run_async("a", "task", id="r")
        assert done.status == "completed"
        await rt.client.deny(run.pending[0].id)
        with pytest.raises(Refused, match="already denied"):
            await rt.client.approve("r/2")
        assert ledger.lines == ["pay 1"]

    asyncio.run(main())


def test_a_decision_names_what_was_shown_or_is_refused():
    """B47: a decision bound to another digest executes nothing."""

    async def main():
        ledger = Ledger()
        rt = asking(ledger, [call("pay", order="1"), "done"])
        run = await rt.run_async("a", "task", id="r")
        with pytest.raises(Refused, match="no longer asks for what was shown"):
            await rt.approve_async("r/1", digest="0" * 32)
        await rt.approve_async("r/1", digest=run.pending[0].digest)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize("request_id", ["r/2", "r/0", "x/1"])
def test_a_request_that_is_not_there_is_unknown(request_id):
    async def main():
        rt = asking(Ledger(), [call("pay", order="1"), "done"])
        await rt.run_async("a", "task", id="r")
        with pytest.raises(UnknownRun):
            await rt.approve_async(request_id)

    asyncio.run(main())


@pytest.mark.parametrize("request_id", ["r", "r/x", "/1", "r/c1"])
def test_what_names_no_request_is_said_so(request_id):
    async def main():
        rt = asking(Ledger(), [call("pay", order="1"), "done"])
        with pytest.raises(ConfigError, match="names no request"):
            await rt.approve_async(request_id)

    asyncio.run(main())


def test_a_request_expires_by_time_and_a_late_yes_executes_nothing():
    """B45: expiry is checked in the write that records the decision, sweeper or not."""

    async def main():
        ledger, clock = Ledger(), TurnedClock()
        model = Recorder(call("pay", order="7"), "nobody said yes")
        rt = asking(ledger, model, clock=clock, approval_days=1)
        run = await rt.run_async("a", "task", id="r")
        assert run.pending[0].expires_at == clock.now + DAY_US
        clock.turn(86_399)
        assert (await rt.run_async("a", "task", id="r")).status == "waiting"
        clock.turn(2)
        with pytest.raises(Refused, match="expired"):
            await rt.client.approve("r/1")
        with pytest.raises(Refused, match="expired"):
            await rt.client.deny("r/1")
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "Not executed: nobody approved it in time."}
        assert ledger.lines == []

    asyncio.run(main())


def test_a_grant_that_nobody_used_in_time_expires_as_well():
    """B45: expired, denied and pending are three states, and a stale grant starts nothing."""

    async def main():
        ledger, clock = Ledger(), TurnedClock()
        model = Recorder(call("pay", order="7"), "too late")
        rt = asking(ledger, model, clock=clock, approval_days=1)
        await rt.run_async("a", "task", id="r")
        await rt.client.approve("r/1")
        clock.turn(86_401)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, ledger.lines) == ("completed", [])
        assert "approval.expired" in names(await rt.trace_async("r"))

    asyncio.run(main())


def test_a_grant_that_expires_while_the_call_is_being_prepared_starts_nothing():
    """The instant of the start decides, not the instant the decision was taken."""

    async def main():
        ledger, clock = Ledger(), TurnedClock()

        def slow_deps():
            clock.turn(3600)

        model = Recorder(call("pay", order="7"), "too late")
        rt = asking(ledger, model, clock=clock, approval_days=1, deps=slow_deps)
        await rt.run_async("a", "task", id="r")
        clock.turn(86_000)
        await rt.client.approve("r/1")
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class, ledger.lines) == ("completed", "", [])
        assert "approval.expired" in names(await rt.trace_async("r"))

    asyncio.run(main())


def test_an_expiry_wakes_a_worker_without_any_caller():
    async def main():
        ledger, clock, store = Ledger(), TurnedClock(), InMemoryStore()
        rt = asking(ledger, [call("pay", order="7"), "late"], clock=clock, store=store)
        await rt.run_async("a", "task", id="r")
        await rt.work_async(until_idle=True)
        assert (await rt.get_async("r")).status == "waiting"
        clock.turn(7 * 86_400 + 1)
        rt = asking(ledger, [call("pay", order="7"), "late"], clock=clock, store=store)
        await rt.work_async(until_idle=True)
        assert (await rt.get_async("r")).status == "completed"
        assert ledger.lines == []

    asyncio.run(main())


def test_approvals_none_refuses_at_once_what_would_need_a_person():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "I may not.")
        rt = asking(ledger, model)
        run = await rt.run_async("a", "task", id="r", approvals="none")
        assert (run.status, ledger.lines) == ("completed", [])
        assert "this run takes none" in results(model.last)["c1"]
        assert "approval.requested" not in names(await rt.trace_async("r"))

    asyncio.run(main())


@pytest.mark.parametrize("when", ["before", "after"])
def test_an_approval_counts_whether_given_before_or_after_a_restart(when, tmp_path):
    """B46: waiting requests are stored, and the same id works after a restart."""

    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        path = tmp_path / "s.db"
        async with asking(ledger, model, store=path) as rt:
            await rt.run_async("a", "task", id="r")
            if when == "before":
                await rt.client.approve("r/1")
        async with asking(ledger, model, store=path) as rt:
            if when == "after":
                assert [p.id for p in await rt.pending_async()] == ["r/1"]
                await rt.client.approve("r/1")
            assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["pay 7"]
        assert len(model.requests) == 2

    asyncio.run(main())


def test_approving_while_the_worker_runs_another_tool_keeps_that_tools_outcome():
    """B02, B04: the sibling's result is kept, the granted call runs once, beside it."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()
        gate = asyncio.Event()

        @tool(effect="write", conflict_key="order")
        async def charge(order: str) -> str:
            await gate.wait()
            return ledger.add(f"charge {order}")

        policy = Policy(tools={"charge": "allow"})
        model = Recorder([call("charge", order="1"), call("pay", order="2")], "done")
        tools = [charge, tool(effect="write", conflict_key="order")(writer(ledger).function)]
        worker = runtime(model, tools, policy=policy, store=store)
        driving = asyncio.create_task(worker.run_async("a", "task", id="r"))
        other = Runtime(store.beside())
        await until(lambda: store.journals.inbox)
        await other.approve_async("r/1", by="ann")
        await until(lambda: ledger.lines)
        assert ledger.lines == ["pay 2"]
        gate.set()
        run = await driving
        assert run.status == "completed"
        assert results(model.last) == {"c1": "charge 1", "c2": "pay 2"}
        assert ledger.lines == ["pay 2", "charge 1"]
        assert len(model.requests) == 2

    asyncio.run(main())


def test_a_free_call_runs_once_though_its_sibling_waits_for_a_person():
    """B02: charge_card runs before the pause, and not again after the approval."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()
        policy = Policy(tools={"charge_card": "allow"})
        tools = [
            tool(name="charge_card", effect="write", conflict_key="order")(
                writer(ledger, "charge_card").function
            ),
            tool(name="delete_user", effect="dangerous", conflict_key="order")(
                writer(ledger, "delete_user").function
            ),
        ]
        model = Recorder([call("charge_card", order="1"), call("delete_user", order="2")], "done")
        run = await runtime(model, tools, policy=policy, store=store).run_async("a", "t", id="r")
        assert run.status == "waiting"
        assert ledger.lines == ["charge_card 1"]
        await Runtime(store.beside()).approve_async("r/1")
        rt = runtime(model, tools, policy=policy, store=store)
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        assert ledger.lines == ["charge_card 1", "delete_user 2"]

    asyncio.run(main())


def test_a_decision_drives_on_a_run_that_was_started_in_the_background_here():
    async def main():
        ledger = Ledger()
        rt = asking(ledger, [call("pay", order="7"), "done"])
        await rt.start_async("a", "task", id="r")
        await until(lambda: not rt._driven)
        await rt.approve_async("r/1")
        await until(lambda: ledger.lines)
        await until(lambda: not rt._driven)
        assert (await rt.get_async("r")).status == "completed"

    asyncio.run(main())


def test_a_decision_only_records_itself_for_a_run_that_somebody_else_drives():
    async def main():
        ledger = Ledger()
        rt = asking(ledger, [call("pay", order="7"), "done"])
        await rt.run_async("a", "task", id="r")
        assert (await rt.approve_async("r/1")).status == "running"
        await asyncio.sleep(0.02)
        assert (ledger.lines, rt._driven) == ([], {})
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert len(ledger.lines) == 1

    asyncio.run(main())


def test_an_approval_that_comes_while_people_are_being_told_is_not_lost():
    """The run goes on although the approval fell between its last look and its return."""

    async def main():
        ledger = Ledger()

        async def told(run):
            await rt.approve_async(run.pending[0].id)

        rt = asking(ledger, [call("pay", order="1"), call("pay", order="2"), "done"], on_wait=told)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert ledger.lines == ["pay 1", "pay 2"]

    asyncio.run(main())


def test_an_approval_that_comes_while_the_background_tells_people_is_not_lost():
    async def main():
        ledger, gate, told = Ledger(), asyncio.Event(), []

        async def tell(run):
            told.append(run.id)
            await gate.wait()

        rt = asking(ledger, [call("pay", order="1"), "done"], on_wait=tell)
        await rt.start_async("a", "task", id="r")
        await until(lambda: told)
        await rt.approve_async("r/1")
        gate.set()
        await until(lambda: ledger.lines)
        await until(lambda: not rt._driven)
        assert (await rt.get_async("r")).status == "completed"

    asyncio.run(main())


def test_the_policy_in_force_at_the_start_decides_and_not_the_one_at_the_question():
    """Law 5: it is checked again right before execution, so a grant does not outlive it."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()
        model = Recorder(call("pay", order="7"), "no more")
        await asking(ledger, model, store=store).run_async("a", "task", id="r")
        strict = Policy(tools={"pay": "deny"}, name="strict")
        rt = runtime(model, [writer(ledger)], policy=strict, store=store)
        await rt.client.approve("r/1")
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == []
        assert "not allowed here (strict: tool pay)" in results(model.last)["c1"]

    asyncio.run(main())


def test_a_grant_is_for_the_arguments_that_were_shown():
    """B48 in part: a granted call runs exactly what its digest binds; nothing else is started."""

    async def main():
        ledger = Ledger()
        rt = asking(ledger, [[call("pay", order="1"), call("pay", order="2")], "done"])
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")
        run = await rt.run_async("a", "task", id="r")
        assert ledger.lines == ["pay 1"]
        assert run.pending[0].detail == '{"order":"2"}'
        assert run.pending[0].id == "r/2"

    asyncio.run(main())


# ---------------------------------------------------------------- the deployment's policy


@pytest.mark.parametrize(
    ("policy", "effect", "status", "ran"),
    [
        (Policy(), "read", "completed", True),
        (Policy(), "write", "waiting", False),
        (Policy(), "dangerous", "waiting", False),
        (Policy(effects={"write": "allow"}), "write", "completed", True),
        (Policy(effects={"dangerous": "allow"}), "dangerous", "waiting", False),
        (Policy(tools={"pay": "allow"}), "dangerous", "waiting", False),
        (Policy(tools={"pay": "deny"}), "read", "completed", False),
        (Policy(effects={"read": "ask"}), "read", "waiting", False),
        (Policy(effects={"read": "deny"}, tools={"pay": "allow"}), "read", "completed", True),
    ],
)
def test_a_deployment_may_allow_writes_but_never_dangerous_calls(policy, effect, status, ran):
    async def main():
        ledger = Ledger()
        rt = runtime(
            [call("pay", order="7"), "done"], [writer(ledger, effect=effect)], policy=policy
        )
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, bool(ledger.lines)) == (status, ran)

    asyncio.run(main())


def test_a_denied_call_tells_the_model_which_rule_and_asks_nobody():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "not possible")
        policy = Policy(tools={"pay": "deny"}, name="shop rules")
        rt = runtime(model, [writer(ledger)], policy=policy)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.text, ledger.lines) == ("completed", "not possible", [])
        assert "pay is not allowed here (shop rules: tool pay)" in results(model.last)["c1"]
        rejected = events(await rt.trace_async("r"), ev.ToolRejected)
        assert [(r.kind, r.rule) for r in rejected] == [("denied", "shop rules: tool pay")]

    asyncio.run(main())


def test_a_query_is_offered_reads_only_and_a_write_it_asks_for_all_the_same_is_denied():
    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def look() -> str:
            return ledger.add("look")

        model = Recorder([call("look"), call("pay", order="7")], "answer")
        rt = runtime(model, [look, writer(ledger)])
        run = await rt.run_async("a", "task", id="r", kind="query")
        assert (run.status, ledger.lines) == ("completed", ["look"])
        offered = {schema.name for schema in model.requests[0].tools}
        assert "look" in offered
        assert "pay" not in offered
        assert "task kind: query" in results(model.last)["c2"]

    asyncio.run(main())


def test_an_agent_of_kind_query_makes_its_runs_queries():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "answer")
        agent = Agent("a", Scripted(model), tools=[writer(ledger)], kind="query")
        rt = Runtime(":memory:", agents=[agent], policy=Policy(effects={"write": "allow"}))
        await rt.run_async("a", "task", id="r")
        assert ledger.lines == []

    asyncio.run(main())


def test_a_policy_that_fails_lets_nothing_through():
    class Broken(Policy):
        def judge(self, tool, effect, arguments):
            raise KeyError("rule file")

    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "no")
        rt = runtime(model, [writer(ledger)], policy=Broken())
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, ledger.lines) == ("completed", [])
        assert "policy failed" in results(model.last)["c1"]

    asyncio.run(main())


@pytest.mark.parametrize("table", [{"tools": {"x": "yes"}}, {"effects": {"harmless": "allow"}}])
def test_a_policy_of_other_words_is_refused_where_it_is_made(table):
    with pytest.raises(ConfigError, match=r"policy\."):
        Policy(**table)


def test_a_run_that_asks_nobody_refuses_questions_too_and_goes_on():
    async def main():
        model = Recorder(call("ask_user", question="which one?"), "done without")
        run = await runtime(model).run_async("a", "task", approvals="none")
        assert (run.status, run.text) == ("completed", "done without")
        assert "this run asks nobody" in results(model.last)["c1"]

    asyncio.run(main())
