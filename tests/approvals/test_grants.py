"""Standing grants: shown, made, used where the policy asks and nowhere else, revoked."""

import asyncio

import pytest
from tests.engine.kit import (
    FREE_HAND,
    Ledger,
    Recorder,
    TurnedClock,
    Watched,
    events,
    names,
    results,
    runtime,
)

from cairn import (
    Agent,
    ApprovalTerms,
    Context,
    Policy,
    Principal,
    Refused,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.grants import NO_GRANTS, covers, fold_grants, made
from cairn.core.policy import DEFAULT_POLICY
from cairn.errors import ConfigError, CorruptJournal, Moved, StoreBusy, UnknownRun
from cairn.store.inmemory import InMemoryStore


def payer(ledger: Ledger, effect: str = "write", **options):
    options.setdefault("conflict_key", "order")

    @tool(name="pay", effect=effect, **options)
    async def pay(order: str, cents: int = 100, note: str = "") -> str:
        return ledger.add(f"pay {order} {cents}")

    return pay


def asking(ledger: Ledger, script=None, effect: str = "write", **options):
    lines = script if script is not None else [call("pay", order="7"), "done"]
    options.setdefault("policy", DEFAULT_POLICY)
    declared = options.pop("declared", {})
    return runtime(lines, [payer(ledger, effect, **declared)], **options)


async def status(rt: Runtime, run: str = "r", **options) -> str:
    return (await rt.run_async("a", "t", id=run, **options)).status


def rules_of(trace) -> list[str]:
    return [e.rule for e in events(trace, ev.ToolStarted)]


# ---------------------------------------------------------------- used


def test_a_grant_answers_where_the_policy_asks_and_is_named_as_the_rule():
    async def main():
        ledger = Ledger()
        rt = asking(ledger)
        n = await rt.grant_async("pay", by="ann", reason="small change")
        assert await status(rt) == "completed"
        trace = await rt.trace_async("r")
        assert "approval.requested" not in names(trace)
        assert rules_of(trace) == [f"grant {n}"] == ["grant 1"]
        assert ledger.lines == ["pay 7 100"]

    asyncio.run(main())


def test_a_grant_is_no_layer_it_neither_allows_what_is_denied_nor_is_needed_where_allowed():
    async def main():
        ledger = Ledger()
        denied = asking(ledger, policy=Policy(tools={"pay": "deny"}))
        await denied.grant_async("pay")
        assert await status(denied) == "completed"
        assert ledger.lines == []
        free = asking(ledger, policy=FREE_HAND)
        await free.grant_async("pay")
        await status(free)
        assert rules_of(await free.trace_async("r")) == ["test: effect write"]
        query = asking(ledger)
        await query.grant_async("pay")
        assert await status(query, kind="query") == "completed"
        assert ledger.lines == ["pay 7 100"]

    asyncio.run(main())


def test_a_dangerous_call_is_never_granted_at_making_nor_answered_at_use():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        rt = asking(ledger, effect="dangerous", store=store)
        for make in (rt.grant_async, rt.show_grant_async):
            with pytest.raises(Refused, match="pay is dangerous"):
                await make("pay", arguments={"order": "7"}, exact=True)
        assert await store.read("store") == []
        # made while the tool was declared as a write, or written past us: it answers nothing
        harmless = asking(ledger, store=store)
        await harmless.grant_async("pay")
        assert await status(rt) == "waiting"
        assert ledger.lines == []

    asyncio.run(main())


def test_a_grant_whose_event_claims_another_effect_still_answers_no_dangerous_call():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        forged = ev.GrantMade(n=1, tool="pay", effect="read")
        await store.keep(0, [ev.Entry(seq=1, at=1, event=forged, actor="eve")])
        rt = asking(ledger, effect="dangerous", store=store)
        assert await status(rt) == "waiting"
        assert ledger.lines == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("scope", "answers"),
    [
        ({"arguments": {"order": "7"}}, True),
        ({"arguments": {"order": "8"}}, False),
        ({"arguments": {"order": 7}}, False),
        ({"arguments": {"cents": 100}}, True),  # validated: the default counts as given
        ({"arguments": {"cents": 100.0}}, False),
        ({"arguments": {"cents": True}}, False),
        ({"arguments": {"order": "7"}, "exact": True}, True),
        ({"arguments": {"order": "7", "cents": 100}, "exact": True}, True),  # the default, written
        ({"arguments": {"order": "7", "cents": 99}, "exact": True}, False),
        ({"arguments": {"order": "7", "note": "x"}, "exact": True}, False),
        ({"exact": True}, False),
        ({"agent": "a"}, True),
        ({"principal": "ann"}, True),
        ({"principal": "bob"}, False),
        ({"principal": Principal(id="ann", tenant="t2")}, False),
        ({"principal": Principal(id="ann", tenant="t1")}, True),
    ],
)
def test_a_grant_answers_exactly_its_scope(scope, answers):
    async def main():
        ledger = Ledger()
        rt = asking(ledger)
        await rt.grant_async("pay", **scope)
        tenant = "t1" if isinstance(scope.get("principal"), Principal) else ""
        who = Principal(id="ann", tenant=tenant)
        found = await status(rt, principal=who)
        assert found == ("completed" if answers else "waiting")
        assert bool(ledger.lines) == answers

    asyncio.run(main())


def test_a_grant_for_one_agent_answers_no_other():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        script = [call("pay", order="7"), "done"]
        agents = [Agent(name, Scripted(script), tools=[payer(ledger)]) for name in ("a", "b")]
        rt = Runtime(store, agents=agents)
        await rt.grant_async("pay", agent="b")
        assert (await rt.run_async("a", "t")).status == "waiting"
        assert (await rt.run_async("b", "t")).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("granted", "called"),
    [
        ('{"order":"7"}', '{"order":"\\u0037"}'),
        ('{"order":"é"}', '{"order":"e\\u0301"}'),
        ('{"order":"admin"}', '{"order":"аdmin"}'),
        ('{"order":"7"}', '{"order":"7","order":"8"}'),
        ('{"order":"7"}', '{"order":["7"]}'),
        ('{"order":null}', "{}"),
    ],
)
@pytest.mark.parametrize("exact", [True, False])
def test_spelling_tricks_are_told_apart_by_what_they_mean(granted, called, exact):
    scope = ev.GrantMade(n=1, tool="pay", effect="write", arguments=granted, exact=exact)
    same = called == '{"order":"\\u0037"}'  # the same text, otherwise written
    assert covers(scope, "pay", called) is same
    assert not covers(scope, "Pay", granted)


# ---------------------------------------------------------------- revoked, expired, used up


def test_a_revoked_grant_answers_nothing_any_more_in_no_process():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        one, two = asking(ledger, store=store), asking(ledger, store=store.beside())
        n = await one.grant_async("pay", by="ann")
        assert await status(two, "r1") == "completed"
        assert await one.revoke_grant_async(n, "enough", by="bob") is True
        assert await one.revoke_grant_async(n) is False
        assert await status(two, "r2") == "waiting"
        (grant,) = await two.grants_async()
        assert (grant.stands(0), grant.revoked_by, grant.made_by) == ("revoked", "bob", "ann")
        with pytest.raises(UnknownRun, match="no grant 2"):
            await one.revoke_grant_async(2)

    asyncio.run(main())


def test_a_grant_that_is_revoked_between_the_decision_and_the_start_starts_nothing():
    """The start is written only if the list has not moved since it was looked at."""

    async def main():
        ledger, inner = Ledger(), InMemoryStore()
        store = Watched(inner)
        rt = asking(ledger, store=store)
        other = Runtime(inner.beside())
        n = await rt.grant_async("pay")

        async def before(name, *args, **kwargs):
            starts = name == "append" and any(isinstance(e.event, ev.ToolStarted) for e in args[2])
            if starts:
                await other.revoke_grant_async(n)

        store.before = before
        assert await status(rt) == "waiting"
        assert ledger.lines == []
        trace = await rt.trace_async("r")
        assert "tool.started" not in names(trace)
        assert len(events(trace, ev.ModelCompleted)) == 1  # what the model said is not lost

    asyncio.run(main())


def test_a_grant_holds_until_its_time_and_not_at_it():
    async def main():
        ledger, clock = Ledger(), TurnedClock()
        rt = asking(ledger, clock=clock)
        await rt.grant_async("pay", hours=1)
        clock.now += 3_600_000_000 - 1
        assert await status(rt, "r1") == "completed"
        clock.now += 1
        assert await status(rt, "r2") == "waiting"
        (grant,) = await rt.grants_async()
        assert grant.stands(clock.now) == "expired"

    asyncio.run(main())


def test_a_clock_that_was_set_back_revives_no_grant():
    async def main():
        clock = TurnedClock()
        rt = asking(Ledger(), clock=clock)
        await rt.grant_async("pay", hours=1)
        clock.now += 3_600_000_000
        # the store's journal has seen the later time
        await rt.grant_async("pay", arguments={"order": "no such"})
        clock.now -= 1_800_000_000
        assert await status(rt, "r1") == "waiting"

    asyncio.run(main())


def test_a_grant_for_so_many_calls_answers_so_many_over_all_runs_and_processes():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        script = [[call("pay", order="1"), call("pay", order="2")], "done"]
        runtimes = [asking(ledger, script, store=store.beside()) for _ in range(3)]
        await runtimes[0].grant_async("pay", uses=3)
        done = await asyncio.gather(
            *(rt.run_async("a", "t", id=f"r{n}") for n, rt in enumerate(runtimes))
        )
        assert len(ledger.lines) == 3
        assert sum(len(run.pending) for run in done) == 3
        (grant,) = await runtimes[0].grants_async()
        assert (len(grant.users), grant.stands(0)) == (3, "used up")
        used = events(await store.read("store"), ev.GrantUsed)
        started = [
            f"{run.id}/{e.call}"
            for run in done
            for e in events(await store.read(run.id), ev.ToolStarted)
        ]
        assert sorted(f"{u.run}/{u.call}" for u in used) == sorted(started)

    asyncio.run(main())


def test_a_second_attempt_of_a_call_is_no_second_use():
    async def main():
        ledger = Ledger()
        tries = []

        @tool(name="pay", effect="write", retries=1, backoff=0.001)
        async def pay(order: str) -> str:
            from cairn import NotDone

            tries.append(1)
            if len(tries) == 1:
                raise NotDone("busy")
            return ledger.add(f"pay {order}")

        rt = runtime([call("pay", order="7"), "done"], [pay], policy=DEFAULT_POLICY)
        await rt.grant_async("pay", uses=1)
        assert await status(rt) == "completed"
        assert rules_of(await rt.trace_async("r")) == ["grant 1", "grant 1"]
        assert await status(rt, "r2") == "waiting"

    asyncio.run(main())


def test_a_grant_made_later_does_not_answer_what_was_asked_before():
    async def main():
        ledger = Ledger()
        rt = asking(ledger)
        assert await status(rt) == "waiting"
        await rt.grant_async("pay")
        assert await status(rt) == "waiting"
        await rt.deny_async("r/1")
        assert await status(rt) == "completed"
        assert ledger.lines == []

    asyncio.run(main())


def test_a_run_that_asks_nobody_may_still_be_answered_by_a_grant():
    async def main():
        ledger = Ledger()
        rt = asking(ledger)
        await rt.grant_async("pay")
        assert await status(rt, approvals="none") == "completed"
        assert ledger.lines == ["pay 7 100"]

    asyncio.run(main())


# ---------------------------------------------------------------- terms


def test_who_makes_a_grant_needs_what_the_terms_of_the_approval_ask_for():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        terms = ApprovalTerms(roles=("lead",), other_person=True)
        before = asking(ledger, store=store)  # where nothing was asked of who says yes
        await before.grant_async("pay", by="eve")
        rt = asking(ledger, store=store, declared={"approval": terms})
        for verb in (rt.grant_async, rt.show_grant_async):
            with pytest.raises(Refused, match="the role lead, and eve has none"):
                await verb("pay", by="eve")
            with pytest.raises(Refused, match="say by whom"):
                await verb("pay")
        await rt.grant_async("pay", by="ann", roles=("lead",))
        assert await status(rt, "r1", principal="ann") == "waiting"  # she asked for it herself
        assert await status(rt, "r2", principal="bob") == "completed"
        assert rules_of(await rt.trace_async("r2")) == ["grant 2"]

    asyncio.run(main())


def test_a_call_bound_to_files_is_answered_by_no_grant(tmp_path):
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        plain = asking(ledger, store=store)
        await plain.grant_async("pay")
        bound = asking(ledger, store=store, declared={"binds": "note"})
        assert await status(bound) == "waiting"
        with pytest.raises(ConfigError, match="bound to the content of files"):
            await bound.grant_async("pay")

    asyncio.run(main())


# ---------------------------------------------------------------- fail closed


@pytest.mark.parametrize("fault", [CorruptJournal("broken"), StoreBusy("held")])
@pytest.mark.parametrize("what", ["info", "read"])
def test_a_list_that_cannot_be_read_answers_nothing(fault, what):
    async def main():
        ledger, store = Ledger(), Watched()
        rt = asking(ledger, store=store)
        await rt.grant_async("pay")

        async def before(name, *args, **kwargs):
            if name == what and args[0] == "store":
                raise fault

        store.before = before
        assert await status(rt) == "waiting"
        assert ledger.lines == []

    asyncio.run(main())


def test_a_list_that_cannot_be_read_at_the_start_starts_nothing_on_what_was_known():
    async def main():
        ledger, store = Ledger(), Watched()
        rt = asking(ledger, store=store)
        await rt.grant_async("pay")
        looked = []

        async def before(name, *args, **kwargs):
            if name == "info" and args[0] == "store":
                looked.append(1)
                if len(looked) > 1:
                    raise StoreBusy("held")

        store.before = before
        assert await status(rt) == "waiting"
        assert (len(looked) > 1, ledger.lines) == (True, [])

    asyncio.run(main())


# ---------------------------------------------------------------- shown, made, listed


def test_what_a_grant_would_allow_and_would_have_answered_is_shown_before_it_is_made():
    async def main():
        ledger = Ledger()
        script = [
            [call("pay", order="7", cents=5), call("pay", order="8"), call("pay", order="9")],
            "done",
        ]
        rt = asking(ledger, script)
        await rt.run_async("a", "t", id="r")
        await rt.approve_async("r/1")
        await rt.deny_async("r/2")
        shown = await rt.show_grant_async("pay", arguments={"order": "7"}, agent="a", uses=2)
        assert list(shown.allows) == [
            "tool: pay (write)",
            'argument order = "7"',
            "any other arguments",
            "agent: a",
            "for: any principal",
            "calls: 2",
            "until: it is revoked",
        ]
        assert (shown.past.asked, shown.past.answered, shown.past.granted) == (3, 1, 1)
        everything = await rt.show_grant_async("pay")
        past = everything.past
        assert (past.answered, past.granted, past.denied) == (3, 1, 1)
        assert "of 3 requests in the last 1 runs it would have answered 3" in str(everything)
        assert await rt.store.read("store") == []

    asyncio.run(main())


@pytest.mark.parametrize(
    "bad",
    [
        {"arguments": "[1]"},
        {"arguments": {"a": object()}},
        {"arguments": {"other": None}},
        {"agent": "nobody"},
        {"hours": -1},
        {"hours": "1h"},
        {"uses": -1},
        {"uses": 1.5},
        {"uses": True},
        {"principal": 7},
        {"roles": "lead"},
        {"everything": True},
    ],
)
def test_a_scope_that_means_nothing_is_refused_and_nothing_is_written(bad):
    async def main():
        rt = asking(Ledger())
        with pytest.raises(ConfigError):
            await rt.grant_async("pay", **bad)
        with pytest.raises(ConfigError, match="no agent has a tool"):
            await rt.grant_async("paid")
        assert await rt.store.read("store") == []

    asyncio.run(main())


def test_two_people_who_make_grants_at_once_get_two_numbers():
    async def main():
        store = InMemoryStore()
        rts = [asking(Ledger(), store=store.beside()) for _ in range(8)]
        numbers = await asyncio.gather(*(rt.grant_async("pay") for rt in rts))
        assert sorted(numbers) == list(range(1, 9))
        assert await store.verify("store") == 8

    asyncio.run(main())


def test_the_journal_of_the_store_takes_nothing_that_was_decided_at_another_head(tmp_path):
    async def main():
        from cairn.store import open_store

        for store in (InMemoryStore(), open_store(str(tmp_path / "s.db"))):
            grant = made(NO_GRANTS, ev.GrantMade(n=0, tool="pay", effect="write"), 0)
            entry = ev.Entry(seq=1, at=5, event=grant)
            for head, entries in ((1, [entry]), (3, [])):
                with pytest.raises(Moved):
                    await store.keep(head, entries)
            await store.keep(0, [entry])
            with pytest.raises(Moved):
                await store.keep(0, [entry])
            (back,) = await store.read("store")
            assert back == entry
            assert fold_grants(NO_GRANTS, [back]).known[1].scope == grant
            assert await store.verify("store") == 1
            await store.close()

    asyncio.run(main())


def test_grants_outlive_the_process_and_work_in_a_file_too(tmp_path):
    async def main():
        ledger, path = Ledger(), tmp_path / "s.db"
        async with asking(ledger, store=path) as rt:
            await rt.grant_async("pay", uses=1, by="ann")
        async with asking(ledger, store=path) as rt:
            assert await status(rt, "r1") == "completed"
            assert await status(rt, "r2") == "waiting"
            (grant,) = await rt.grants_async()
            assert grant.users == ("r1/c1",)
            await rt.store.verify("store")
        assert ledger.lines == ["pay 7 100"]

    asyncio.run(main())


def test_the_verbs_have_sync_forms():
    with asking(Ledger()) as rt:
        assert str(rt.show_grant("pay")).startswith("tool: pay")
        assert rt.grant("pay") == 1
        assert len(rt.grants()) == 1
        assert rt.revoke_grant(1) is True


# ---------------------------------------------------------------- replay


def test_a_replay_takes_what_was_granted_as_it_was():
    async def main():
        rt = asking(Ledger(), Recorder(call("pay", order="7"), "done"))
        n = await rt.grant_async("pay", uses=1)
        assert await status(rt) == "completed"
        await rt.revoke_grant_async(n)
        replay = await rt.replay_async("r")
        assert replay.same, replay.divergence
        denied = await rt.replay_async("r", policy=Policy(tools={"pay": "deny"}))
        assert denied.divergence is not None
        assert "tool.rejected" in denied.divergence.what

    asyncio.run(main())


def test_the_model_is_told_nothing_of_grants():
    async def main():
        model = Recorder(call("pay", order="7"), "done")
        rt = asking(Ledger(), model)
        await rt.grant_async("pay")
        await status(rt)
        assert results(model.last) == {"c1": "pay 7 100"}

    asyncio.run(main())


# ---------------------------------------------------------------- the write of a start


@pytest.mark.parametrize("kind", ["memory", "sqlite"])
def test_an_append_is_held_to_what_the_journal_of_the_store_says_and_writes_there_too(
    kind, tmp_path
):
    async def main():
        from cairn.core.index import Index
        from cairn.core.messages import Text
        from cairn.ports import Beside, NewRun
        from cairn.store import open_store

        store = InMemoryStore() if kind == "memory" else open_store(str(tmp_path / "s.db"))
        created = ev.RunCreated(agent="a", input=(Text("x"),), digest="d")
        first = ev.Entry(seq=1, at=1, event=created)
        await store.create(NewRun(run="r", agent="a", digest="d"), [first], Index(status="queued"))
        claim = await store.claim("r")
        paused = ev.Entry(seq=2, at=2, event=ev.RunPauseRequested())
        fact = ev.Entry(seq=1, at=2, event=ev.GrantUsed(n=1, run="r", call="c1"))
        for beside in (Beside(head=1), Beside(head=4, entries=(fact,))):
            with pytest.raises(Moved):
                await store.append("r", claim.epoch, [paused], None, beside=beside)
        assert (await store.info("r")).head == 1
        assert await store.read("store") == []
        await store.append("r", claim.epoch, [paused], None, beside=Beside(head=0, entries=(fact,)))
        assert (await store.info("r")).head == 2
        assert await store.read("store") == [fact]
        resumed = ev.Entry(seq=3, at=3, event=ev.RunResumed())
        with pytest.raises(Moved):
            await store.append("r", claim.epoch, [resumed], None, beside=Beside(head=0))
        await store.append("r", claim.epoch, [resumed], None, beside=Beside(head=1))
        assert await store.verify("r") == 3
        assert await store.verify("store") == 1
        await store.close()

    asyncio.run(main())


def test_a_call_that_was_lost_goes_on_on_its_grant_and_asks_nobody():
    """A new process knows no grant before it looks: it looks before it gives a call to people."""

    async def main():
        store, began, seen = InMemoryStore(), asyncio.Event(), []

        @tool(name="pay", effect="write", recovery="keyed")
        async def pay(order: str, ctx: Context) -> str:
            seen.append(ctx.key)
            began.set()
            if len(seen) == 1:
                await asyncio.sleep(60)
            return "paid"

        script = [call("pay", order="7"), "done"]
        rt = runtime(script, [pay], policy=DEFAULT_POLICY, store=store)
        await rt.grant_async("pay", uses=1)
        driving = asyncio.create_task(rt.run_async("a", "t", id="r"))
        await began.wait()
        store.crash()
        again = runtime(script, [pay], policy=DEFAULT_POLICY, store=store.beside())
        assert await status(again) == "completed"
        assert (len(seen), len(set(seen))) == (2, 1)
        assert rules_of(await again.trace_async("r")) == ["grant 1", "grant 1"]
        driving.cancel()
        await asyncio.gather(driving, return_exceptions=True)

    asyncio.run(main())
