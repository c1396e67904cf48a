"""Fork: a new run from any quiet point of another one's journal, with edits."""

import asyncio

import pytest
from tests.engine.kit import Ledger, Recorder, TurnedClock, events, names, results, runtime, texts

from cairn import (
    ConfigError,
    Context,
    ErrorClass,
    Limits,
    ModelError,
    Policy,
    Refused,
    RunConflict,
    UnknownRun,
    call,
    tool,
)
from cairn.core import events as ev

ASK = Policy(effects={"write": "ask"}, name="ask")


def payer(ledger: Ledger):
    @tool(effect="write")
    async def pay(n: int) -> str:
        return ledger.add(f"pay {n}")

    return pay


def seq_of(entries, kind, nth=0):
    return [e.seq for e in entries if isinstance(e.event, kind)][nth]


async def three(ledger, *more, policy=None, **options):
    """A finished run of three payments: `r`; its runtime, model and trace."""
    model = Recorder(*[call("pay", n=n) for n in (1, 2, 3)], "done", *more)
    given = {} if policy is None else {"policy": policy}
    rt = runtime(model, [payer(ledger)], **given, **options)
    assert (await rt.run_async("a", "task", id="r")).ok
    return rt, model, await rt.trace_async("r")


def test_a_fork_shares_what_came_before_and_does_the_rest_anew():
    async def main():
        ledger = Ledger()
        rt, model, trace = await three(ledger)
        at = seq_of(trace, ev.ToolCompleted, 0)
        fork = await rt.fork_async("r", at, id="f", by="ada")
        assert (fork.id, fork.ok, fork.steps) == ("f", True, 3)
        assert ledger.lines == ["pay 1", "pay 2", "pay 3", "pay 2", "pay 3"]
        theirs = await rt.trace_async("f")
        assert theirs[:at] == trace[:at]
        assert (theirs[at].event, theirs[at].actor) == (
            ev.RunForked(run="f", parent="r", at=at, reason="fork", grants="void"),
            "ada",
        )
        info = await rt.store.info("f")
        assert (info.parent, info.parent_at) == ("r", at)
        assert len(await rt.store.rows("f")) == info.head - at, "the prefix was copied"
        assert await rt.store.verify("f") == info.head
        assert await rt.trace_async("r") == trace
        assert results(model.last) == {"c1": "pay 1", "c2": "pay 2", "c3": "pay 3"}

    asyncio.run(main())


def test_a_fork_is_refused_where_something_is_in_the_air_and_told_where_it_may_be_made():
    async def main():
        rt, _, trace = await three(Ledger())
        asked = seq_of(trace, ev.ModelRequested, 1)
        started = seq_of(trace, ev.ToolStarted, 1)
        for at, near, why in (
            (asked, f"{asked - 1} or {asked + 1}", "in flight"),
            (started, f"{started - 1} or {started + 1}", "c2 was at work"),
            (len(trace), f"{len(trace) - 1}", "had ended"),
        ):
            with pytest.raises(Refused, match=f"{why}.* that will do: {near}$"):
                await rt.fork_async("r", at)
        for at in (0, -1, len(trace) + 1):
            with pytest.raises(UnknownRun, match=f"1 to {len(trace)}"):
                await rt.fork_async("r", at)
        with pytest.raises(ConfigError):
            await rt.fork_async("r", "3")
        assert len(await rt.runs_async()) == 1

    asyncio.run(main())


def test_a_fork_before_the_end_of_a_failed_run_is_what_a_retry_is():
    async def main():
        ledger = Ledger()
        broken = ModelError(ErrorClass.AUTH, "no")
        rt = runtime([call("pay", n=1), broken, "after all"], [payer(ledger)])
        await rt.run_async("a", "task", id="r")
        end = len(await rt.trace_async("r"))
        retried = await rt.retry_async("r", id="x")
        one = await rt.trace_async("x")
        forked = await rt.fork_async("r", end - 1, id="y")
        two = await rt.trace_async("y")
        assert names(one) == names(two)
        assert (retried.text, retried.usage, retried.steps) == (
            forked.text,
            forked.usage,
            forked.steps,
        )

    asyncio.run(main())


def test_an_effect_in_doubt_at_the_end_is_settled_in_the_fork_as_after_a_retry():
    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            ledger.add("pay")
            raise TimeoutError

        rt = runtime([call("pay"), "done"], [pay])
        await rt.run_async("a", "task", id="r")
        doubt = len(await rt.trace_async("r"))
        with pytest.raises(Refused, match="not known whether call c1"):
            await rt.fork_async("r", doubt)  # it may still be settled over there
        await rt.cancel_async("r")
        end = seq_of(await rt.trace_async("r"), ev.RunCancelled)
        await rt.resolve_async("r/c1", happened=True, result="receipt 9")
        forked = await rt.fork_async("r", end - 1)
        assert forked.ok
        assert ledger.lines == ["pay"]

    asyncio.run(main())


# ---------------------------------------------------------------- keys and grants


def test_a_call_of_the_prefix_keeps_its_key_and_a_new_one_gets_the_forks():
    async def main():
        keys = []

        @tool(effect="write", recovery="keyed")
        async def pay(ctx: Context, n: int) -> str:
            keys.append((ctx.run_id, ctx.call_id, ctx.key))
            return "paid"

        rt = runtime([call("pay", n=1), call("pay", n=2), "done"], [pay], policy=ASK)
        await rt.run_async("a", "task", id="r")
        asked = len(await rt.trace_async("r"))
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        await rt.approve_async("r/2")
        await rt.drive_async("r")
        await rt.fork_async("r", asked, id="f")
        for n in (1, 2):
            await rt.approve_async(f"f/{n}")
            await rt.drive_async("f")
        by_place = {(run, made): key for run, made, key in keys}
        assert by_place["f", "c1"] == by_place["r", "c1"]
        assert by_place["f", "c2"] != by_place["r", "c2"]

    asyncio.run(main())


def test_a_call_that_is_edited_at_the_fork_is_another_request_and_gets_its_own_key():
    """Or the other side would take it for the parent's, and answer with what that one did."""

    async def main():
        keys = []

        @tool(effect="write", recovery="keyed")
        async def pay(ctx: Context, n: int) -> str:
            keys.append((n, ctx.key))
            return "paid"

        rt = runtime([call("pay", n=1), "done"], [pay], policy=ASK)
        await rt.run_async("a", "task", id="r")
        asked = len(await rt.trace_async("r"))
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        await rt.fork_async("r", asked, id="f", edits={"arguments": {"c1": {"n": 2}}})
        await rt.approve_async("f/2")
        assert (await rt.drive_async("f")).ok
        assert [n for n, _ in keys] == [1, 2]
        assert len({key for _, key in keys}) == 2

    asyncio.run(main())


def test_one_approval_is_never_used_by_a_run_and_its_fork():
    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", n=1), "done"], [payer(ledger)], policy=ASK)
        await rt.run_async("a", "task", id="r")
        asked = len(await rt.trace_async("r"))
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        waiting = await rt.fork_async("r", asked, id="f")
        assert ([p.id for p in waiting.pending], ledger.lines) == (["f/1"], ["pay 1"])
        granted = await rt.fork_async("r", asked + 1, id="g")
        assert ([p.id for p in granted.pending], ledger.lines) == (["g/2"], ["pay 1"])
        with pytest.raises(Refused, match=r"withdrawn|has changed since"):
            await rt.approve_async("g/1")
        with pytest.raises(Refused, match="already granted"):
            await rt.deny_async("r/1")
        await rt.approve_async("f/1")
        assert (await rt.drive_async("f")).ok
        assert ledger.lines == ["pay 1", "pay 1"]
        await rt.deny_async("g/2")
        assert (await rt.drive_async("g")).ok
        assert ledger.lines == ["pay 1", "pay 1"]

    asyncio.run(main())


def test_retries_and_forks_of_a_run_that_was_cancelled_after_a_yes_all_ask_anew():
    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", n=1), "done"], [payer(ledger)], policy=ASK)
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")
        await rt.cancel_async("r")
        end = len(await rt.trace_async("r"))
        runs = [await rt.retry_async("r", id=f"b{n}") for n in range(3)]
        runs += [await rt.fork_async("r", at, id=f"f{at}") for at in (end - 2, end - 1)]
        runs.append(await rt.fork_async("b0", end, id="fork-of-a-fork"))
        assert ledger.lines == []
        assert {run.reason for run in runs} == {"approval"}
        for run in runs:
            await rt.approve_async(run.pending[0].id)
            assert (await rt.drive_async(run.id)).ok
        assert ledger.lines == ["pay 1"] * len(runs)

    asyncio.run(main())


def test_a_call_that_did_not_happen_is_asked_for_anew_before_a_fork_tries_it_again():
    async def main():
        tried = []

        @tool(effect="write")
        async def pay() -> str:
            tried.append(1)
            raise TimeoutError

        clock = TurnedClock()
        rt = runtime([call("pay"), "done"], [pay], policy=ASK, clock=clock)
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        await rt.cancel_async("r")
        await rt.retry_async("r", id="x")
        clock.turn(3_600)
        await rt.resolve_async("x/c1", happened=False)
        again = await rt.drive_async("x")
        assert (again.reason, len(tried)) == ("approval", 1)
        assert again.pending[0].id == "x/2"

    asyncio.run(main())


def test_a_request_that_nobody_answered_in_time_is_asked_anew_in_a_later_fork():
    async def main():
        ledger, clock = Ledger(), TurnedClock()
        rt = runtime([call("pay", n=1), "done"], [payer(ledger)], policy=ASK, clock=clock)
        await rt.run_async("a", "task", id="r")
        await rt.cancel_async("r")
        clock.turn(8 * 86_400)
        again = await rt.retry_async("r", id="x")
        assert ([p.id for p in again.pending], again.reason) == (["x/2"], "approval")

    asyncio.run(main())


# ---------------------------------------------------------------- edits


def test_each_edit_is_an_event_of_the_fork_with_its_actor_and_the_parent_stays_as_it_is():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", n=1), "done")
        rt = runtime(model, [payer(ledger)], policy=ASK)
        await rt.run_async("a", "task", id="r")
        before = await rt.trace_async("r")
        edits = {"message": "less", "plan": ["pay"], "arguments": {"c1": {"n": 7}}}
        fork = await rt.fork_async("r", len(before), edits=edits, id="f", by="ada", drive=False)
        assert fork.status == "running"
        own = (await rt.trace_async("f"))[len(before) :]
        assert names(own) == ["run.forked", "tool.edited", "plan.updated", "input.queued"]
        assert {e.actor for e in own} == {"ada"}
        await rt.approve_async((await rt.drive_async("f")).pending[0].id)
        assert (await rt.drive_async("f")).ok
        assert ledger.lines == ["pay 7"]
        assert texts(model.last)[-1] == "less"
        assert await rt.trace_async("r") == before
        await rt.approve_async("r/1")
        assert (await rt.drive_async("r")).ok
        assert ledger.lines == ["pay 7", "pay 1"]

    asyncio.run(main())


def test_a_completed_run_goes_on_when_something_is_said_before_its_end():
    async def main():
        model = Recorder("first answer", "second answer")
        rt = runtime(model)
        await rt.run_async("a", "task", id="r")
        fork = await rt.fork_async("r", 3, edits={"message": "think again"})
        assert fork.text == "second answer"
        assert texts(model.last) == ["task", "think again"]
        assert (await rt.get_async("r")).text == "first answer"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("edits", "error"),
    [
        ({"arguments": {"c1": {"n": 5}}}, Refused),
        ({"arguments": {"c9": {"n": 5}}}, UnknownRun),
        ({"result": {"c1": "nothing"}}, ConfigError),
        ({"arguments": {"c1": "[]"}}, ConfigError),
        ({"arguments": 3}, ConfigError),
        ([], None),
        ("message", ConfigError),
    ],
)
def test_an_edit_that_cannot_be_makes_no_fork(edits, error):
    """History is never rewritten: a result of the prefix is none of the things to edit."""

    async def main():
        rt, _, trace = await three(Ledger())
        at = seq_of(trace, ev.ToolCompleted, 0)
        if error is None:
            assert (await rt.fork_async("r", at, edits=edits, drive=False)).status == "running"
            return
        with pytest.raises(error) as refused:
            await rt.fork_async("r", at, edits=edits, id="not-made")
        assert "not-made" not in str(refused.value), "who reads it knows no such run"
        assert len(await rt.runs_async()) == 1

    asyncio.run(main())


# ---------------------------------------------------------------- ids, limits, forks of forks


def test_the_same_fork_under_the_same_id_is_one_run_and_another_one_a_conflict():
    async def main():
        rt, _, trace = await three(Ledger())
        at = seq_of(trace, ev.ToolCompleted, 1)
        edits = {"message": "again"}
        first = await rt.fork_async("r", at, id="f", edits=edits)
        assert await rt.fork_async("r", at, id="f", edits=edits) == first
        for other in (
            {"at": at - 1, "edits": edits},
            {"at": at, "edits": {"message": "other"}},
            {"at": at, "edits": {"plan": ["x"]}},
            {"at": at, "edits": edits, "limits": Limits(steps=9)},
        ):
            with pytest.raises((RunConflict, Refused)):
                await rt.fork_async("r", id="f", **other)
        with pytest.raises(RunConflict):
            await rt.fork_async("r", at, id="r")
        assert len(await rt.runs_async()) == 2

    asyncio.run(main())


def test_a_fork_counts_from_zero_under_the_old_limits_or_new_ones():
    async def main():
        ledger = Ledger()
        rt, _, trace = await three(ledger, limits=Limits(steps=4))
        at = seq_of(trace, ev.ToolCompleted, 0)
        assert (await rt.fork_async("r", at)).ok
        stopped = await rt.fork_async("r", at, limits={"steps": 1})
        assert (stopped.status, stopped.limit) == ("stopped", "steps")

    asyncio.run(main())


def test_a_fork_of_a_fork_at_a_point_of_their_common_past_is_a_fork_of_the_first():
    async def main():
        keys = {}

        @tool(effect="write", recovery="keyed")
        async def pay(ctx: Context, n: int) -> str:
            keys[ctx.run_id, ctx.call_id] = ctx.key
            return "paid"

        rt = runtime([call("pay", n=1), call("pay", n=2), "done"], [pay], policy=ASK)
        await rt.run_async("a", "task", id="r")
        first = len(await rt.trace_async("r"))
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        await rt.fork_async("r", first, id="f")
        await rt.approve_async("f/1")
        await rt.drive_async("f")
        last = (await rt.store.info("f")).head
        for run, at, parent in (("g", first, "r"), ("h", last, "f")):
            await rt.fork_async("f", at, id=run)
            info = await rt.store.info(run)
            assert (info.parent, info.parent_at) == (parent, at)
            for n in (1, 2) if run == "g" else (2,):
                await rt.approve_async(f"{run}/{n}")
                await rt.drive_async(run)
            assert (await rt.get_async(run)).ok
            assert await rt.store.verify(run) > last
        assert keys["g", "c1"] == keys["f", "c1"] == keys["r", "c1"]
        assert len({keys["g", "c2"], keys["h", "c2"]}) == 2

    asyncio.run(main())


def test_a_fork_of_a_sessions_run_reads_the_conversation_and_stands_beside_it():
    async def main():
        model = Recorder("one", "two", "three")
        rt = runtime(model)
        await rt.run_async("a", "first", id="r1", session="s")
        await rt.run_async("a", "second", id="r2", session="s")
        await rt.run_async("a", "third", id="r3", session="s")
        fork = await rt.fork_async("r2", 1, id="f", edits={"message": "in short"})
        assert fork.ok
        assert texts(model.last) == ["first", "second", "in short"]
        assert (await rt.store.session_head("s")).run == "r3"
        live = Recorder(call("ask_user", question="?"), "done")
        rt2 = runtime(live, store=rt.store)
        await rt2.run_async("a", "fourth", id="r4", session="s")
        assert (await rt2.fork_async("r4", 1, id="g")).status == "waiting"

    asyncio.run(main())


def test_a_live_run_is_forked_and_both_go_their_own_way():
    async def main():
        rt = runtime([call("ask_user", question="?"), lambda r: texts(r)[0] + " done"])
        await rt.run_async("a", "task", id="r")
        at = len(await rt.trace_async("r"))
        assert (await rt.fork_async("r", at, id="f")).pending[0].id == "f/1"
        await rt.answer_async("f/1", "yes")
        assert (await rt.drive_async("f")).ok
        assert (await rt.get_async("r")).status == "waiting"
        await rt.answer_async("r/1", "no")
        assert (await rt.drive_async("r")).ok
        assert len(events(await rt.trace_async("f"), ev.InputAnswered)) == 1

    asyncio.run(main())


def test_retention_keeps_the_conversation_that_a_living_fork_reads(tmp_path):
    async def main():
        model = Recorder("one", "two", "three", call("ask_user", question="?"))
        rt = runtime(model, store=str(tmp_path / "s.db"))
        for n, said in enumerate(("first", "second", "third"), 1):
            await rt.run_async("a", said, id=f"r{n}", session="s")
        asking = runtime(Recorder(call("ask_user", question="?"), "done"), store=rt.store)
        assert (await asking.fork_async("r2", 1, id="f")).status == "waiting"
        later = (await rt.store.info("f")).updated_at + 1
        assert await rt.store.prune(later) == ["r3"]
        await asking.answer_async("f/1", "yes")
        assert (await asking.drive_async("f")).ok
        assert set(await rt.store.prune(later + 10**9)) == {"f", "r2", "r1"}
        await rt.close_async()

    asyncio.run(main())
