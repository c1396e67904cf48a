"""Editing a live run: what comes next is changed, what was done and said stands."""

import asyncio

import pytest
from tests.engine.kit import (
    FREE_HAND,
    Ledger,
    Recorder,
    Watched,
    events,
    names,
    results,
    runtime,
    texts,
)

from cairn import ConfigError, IllegalTransition, Policy, Refused, UnknownRun, call, tool
from cairn.core import events as ev

ASK = Policy(effects={"write": "ask"}, name="ask")


def payer(ledger: Ledger):
    @tool(effect="write")
    async def pay(cents: int) -> str:
        return ledger.add(f"pay {cents}")

    return pay


def test_an_edited_call_is_approved_anew_runs_changed_and_the_model_reads_so():
    async def main():
        ledger = Ledger()
        model = Recorder(call("pay", cents=9000), "done")
        rt = runtime(model, [payer(ledger)], policy=ASK)
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")
        edited = await rt.edit_async("r", call="c1", arguments={"cents": 90}, by="ada")
        assert edited.status == "running"
        waiting = await rt.drive_async("r")
        assert [(p.id, p.detail) for p in waiting.pending] == [("r/2", '{"cents":90}')]
        assert ledger.lines == []
        with pytest.raises(Refused, match="changed since"):
            await rt.approve_async("r/1")
        await rt.approve_async("r/2")
        assert (await rt.drive_async("r")).text == "done"
        assert ledger.lines == ["pay 90"]
        told = results(model.last)["c1"]
        assert "A person changed the arguments" in told
        assert '{"cents":90}' in told
        assert told.endswith("pay 90")
        (entry,) = [e for e in await rt.trace_async("r") if isinstance(e.event, ev.ToolEdited)]
        assert entry.actor == "ada"

    asyncio.run(main())


def test_arguments_the_tool_does_not_take_are_refused_to_the_person_who_typed_them():
    async def main():
        rt = runtime([call("pay", cents=1), "done"], [payer(Ledger())], policy=ASK)
        await rt.run_async("a", "task", id="r")
        before = await rt.trace_async("r")
        for arguments in (
            {"cents": "many"},
            {"dollars": 1},
            {},
            '{"cents":',
            "[1]",
            {"cents": {1}},
        ):
            with pytest.raises(ConfigError, match="arguments"):
                await rt.edit_async("r", call="c1", arguments=arguments)
        assert await rt.trace_async("r") == before

    asyncio.run(main())


def test_an_edit_that_says_nothing_or_half_of_something_is_refused():
    async def main():
        rt = runtime([call("pay", cents=1), "done"], [payer(Ledger())], policy=ASK)
        await rt.run_async("a", "task", id="r")
        for half in ({}, {"call": "c1"}, {"arguments": {"cents": 1}}, {"plan": 7}):
            with pytest.raises(ConfigError):
                await rt.edit_async("r", **half)
        with pytest.raises(UnknownRun):
            await rt.edit_async("nope", message="x")
        with pytest.raises(UnknownRun):
            await rt.edit_async("r", call="c7", arguments={})
        await rt.cancel_async("r")
        for late in ({"message": "x"}, {"plan": ["x"]}, {"call": "c1", "arguments": {"cents": 2}}):
            with pytest.raises(IllegalTransition, match="cancelled"):
                await rt.edit_async("r", **late)

    asyncio.run(main())


def test_plan_and_message_reach_the_model_at_its_next_turn():
    async def main():
        model = Recorder(call("pay", cents=1), "done")
        rt = runtime(model, [payer(Ledger())], policy=ASK)
        await rt.run_async("a", "task", id="r")
        plan = ["count", {"text": "pay", "status": "doing"}]
        await rt.edit_async("r", plan=plan, message="and be quick", by="ada")
        await rt.approve_async("r/1")
        assert (await rt.drive_async("r")).ok
        assert texts(model.last)[1:] == [
            "[runtime] A person has replaced your plan. It is now:\n[ ] count\n[>] pay",
            "and be quick",
        ]
        actors = {e.event.NAME: e.actor for e in await rt.trace_async("r")}
        assert (actors["plan.updated"], actors["input.queued"]) == ("ada", "ada")

    asyncio.run(main())


def test_a_plan_may_be_written_as_lines():
    async def main():
        rt = runtime([call("pay", cents=1), "done"], [payer(Ledger())], policy=ASK)
        await rt.run_async("a", "task", id="r")
        await rt.edit_async("r", plan="- [x] look\n\n* [>] write it\nread\n[-] sing\n[ ] rest")
        (plan,) = events(await rt.trace_async("r"), ev.PlanUpdated)
        assert [(i.status, i.text) for i in plan.items] == [
            ("done", "look"),
            ("doing", "write it"),
            ("open", "read"),
            ("dropped", "sing"),
            ("open", "rest"),
        ]

    asyncio.run(main())


def test_a_run_that_was_handed_over_goes_on_by_itself_after_an_edit():
    async def main():
        ledger = Ledger()

        class Small:
            def judge(self, name, effect, arguments):
                small = arguments.get("cents", 0) < 100
                return Policy(tools={name: "allow" if small else "ask"}).judge(
                    name, effect, arguments
                )

        rt = runtime([call("pay", cents=500), "done"], [payer(ledger)], policy=Small())
        await rt.start_async("a", "task", id="r")
        assert (await rt.drive_async("r")).reason == "approval"
        await rt.edit_async("r", call="c1", arguments={"cents": 50})
        assert (await rt.drive_async("r")).ok
        assert ledger.lines == ["pay 50"]

    asyncio.run(main())


@pytest.mark.parametrize("round", range(6))
def test_an_approval_and_an_edit_at_once_never_run_what_nobody_approved(round):
    """Whichever came first, the old arguments do not run once the edit was taken."""

    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", cents=9000), "done"], [payer(ledger)], policy=ASK)
        await rt.start_async("a", "task", id="r")
        await rt.drive_async("r")
        both = [
            rt.approve_async("r/1"),
            rt.edit_async("r", call="c1", arguments={"cents": 90}),
        ]
        if round % 2:
            both.reverse()
        took = await asyncio.gather(*both, return_exceptions=True)
        edit = took[0 if round % 2 else 1]
        await rt.drive_async("r")
        if isinstance(edit, Refused):  # the call had been started already, as approved
            assert ledger.lines == ["pay 9000"]
        else:
            assert ledger.lines == []
            assert [p.id for p in (await rt.get_async("r")).pending] == ["r/2"]
        for entry in await rt.trace_async("r"):
            assert not isinstance(entry.event, ev.ErrorRaised)

    asyncio.run(main())


def test_an_edit_between_the_decision_to_start_and_its_write_wins():
    """The start is decided, then the edit is written: the owner finds it and decides anew."""

    async def main():
        ledger, store = Ledger(), Watched()
        rt = runtime([call("pay", cents=9000), "done"], [payer(ledger)], store=store, policy=ASK)
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")

        async def cut_in(name, *args, **kwargs):
            starts = name == "append" and "tool.started" in names(args[2])
            if starts:
                store.before = None
                await rt.edit_async("r", call="c1", arguments={"cents": 90})

        store.before = cut_in
        waiting = await rt.drive_async("r")
        assert (waiting.reason, ledger.lines) == ("approval", [])
        await rt.approve_async("r/2")
        await rt.drive_async("r")
        assert ledger.lines == ["pay 90"]

    asyncio.run(main())


def test_a_run_is_paused_edited_and_resumed_and_its_call_runs_as_edited():
    async def main():
        ledger, model = Ledger(), None

        def pause_then_call(request):
            return call("pay", cents=9000)

        model = Recorder(pause_then_call, "done")
        rt = runtime(model, [payer(ledger)], policy=ASK)
        await rt.run_async("a", "task", id="r")
        await rt.pause_async("r", by="ada")
        await rt.edit_async("r", call="c1", arguments={"cents": 1}, by="ada")
        assert (await rt.get_async("r")).status == "paused"
        waiting = await rt.resume_async("r")
        await rt.approve_async(waiting.pending[0].id)
        assert (await rt.drive_async("r")).ok
        assert ledger.lines == ["pay 1"]

    asyncio.run(main())


def test_the_key_of_an_edited_call_is_its_own_in_its_own_run():
    async def main():
        from cairn import Context

        keys = []

        @tool(effect="write", recovery="keyed")
        async def pay(ctx: Context, cents: int) -> str:
            keys.append(ctx.key)
            return "paid"

        script = [call("pay", cents=1), "done"]
        plain = runtime(script, [pay], policy=FREE_HAND)
        await plain.run_async("a", "task", id="r")
        edited = runtime(script, [pay], policy=ASK)
        await edited.run_async("a", "task", id="r")
        await edited.edit_async("r", call="c1", arguments={"cents": 2})
        await edited.approve_async((await edited.drive_async("r")).pending[0].id)
        await edited.drive_async("r")
        assert len(set(keys)) == 1  # H(run, call): it never ran with the first arguments

    asyncio.run(main())


@pytest.mark.parametrize("seq", [0, -1, 99, "3", True, 1.5])
def test_a_run_is_looked_at_only_where_it_has_an_event(seq):
    async def main():
        rt = runtime(["done"])
        await rt.run_async("a", "task", id="r")
        with pytest.raises((UnknownRun, ConfigError), match="1 to 4"):
            await rt.at_async("r", seq)
        with pytest.raises(UnknownRun):
            await rt.at_async("nope", 1)

    asyncio.run(main())


def test_a_run_is_seen_as_it_stood_after_any_of_its_events():
    async def main():
        ledger = Ledger()
        rt = runtime([call("pay", cents=1), "done"], [payer(ledger)], policy=ASK)
        await rt.run_async("a", "task", id="r")
        await rt.approve_async("r/1")
        await rt.drive_async("r")
        seen = [await rt.at_async("r", n) for n in range(1, 10)]
        assert [s.status for s in seen] == [
            *("queued", "running", "running", "waiting"),
            *("running", "running", "running", "running", "running"),
        ]
        assert [p.id for p in seen[3].pending] == ["r/1"]
        assert seen[4].pending == ()
        assert [s.calls for s in seen[4:7]] == [0, 1, 1]
        assert await rt.at_async("r", 10) == await rt.get_async("r")

    asyncio.run(main())
