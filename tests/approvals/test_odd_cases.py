"""Each odd case of a decision has one defined outcome: twice, at once, too late, of another."""

import asyncio
import json
import subprocess
import sys

import pytest
from tests.engine.kit import Ledger, Recorder, TurnedClock, events, names, results, runtime

from cairn import (
    Agent,
    IllegalTransition,
    Policy,
    Refused,
    Runtime,
    Scripted,
    UnknownRun,
    call,
    tool,
)
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.core.views import timeline
from cairn.errors import ConfigError
from cairn.store.inmemory import InMemoryStore


def payer(ledger: Ledger, effect: str = "write", **options):
    @tool(name="pay", effect=effect, **options)
    async def pay(order: str, cents: int = 100) -> str:
        return ledger.add(f"pay {order} {cents}")

    return pay


def asking(ledger: Ledger, script=None, **options):
    lines = script if script is not None else [call("pay", order="7"), "done"]
    options.setdefault("policy", DEFAULT_POLICY)
    return runtime(lines, [payer(ledger)], **options)


async def waiting(ledger: Ledger, **options) -> Runtime:
    rt = asking(ledger, **options)
    await rt.run_async("a", "t", id="r")
    return rt


async def ends(rt: Runtime) -> str:
    return (await rt.run_async("a", "t", id="r")).status


# ---------------------------------------------------------------- twice


@pytest.mark.parametrize("first", ["approve", "deny"])
@pytest.mark.parametrize("second", ["approve", "deny"])
def test_a_second_click_of_the_same_person_changes_nothing_or_is_refused(first, second):
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger)
        verbs = {"approve": rt.client.approve, "deny": rt.client.deny}
        await verbs[first]("r/1", actor="ann")
        before = await rt.trace_async("r")
        if first == second:
            await verbs[second]("r/1", actor="ann")
        else:
            with pytest.raises(Refused, match="was already"):
                await verbs[second]("r/1", actor="ann")
        assert await rt.trace_async("r") == before
        assert await ends(rt) == "completed"
        assert ledger.lines == (["pay 7 100"] if first == "approve" else [])
        if first == second:  # and long after
            await verbs[second]("r/1", actor="ann")
        assert len(ledger.lines) == (first == "approve")

    asyncio.run(main())


def test_a_second_click_with_the_same_change_is_the_same_decision_also_when_it_has_run():
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger)
        new = {"order": "7", "cents": 5}
        await rt.approve_async("r/1", by="ann", arguments=new)
        before = await rt.trace_async("r")
        await rt.approve_async("r/1", by="ann", arguments='{"cents": 5, "order": "7"}')
        assert await rt.trace_async("r") == before
        with pytest.raises(Refused, match="with other arguments"):
            await rt.approve_async("r/1", by="ann", arguments={"order": "7", "cents": 6})
        with pytest.raises(Refused, match="with other arguments"):
            await rt.approve_async("r/1", by="bob")  # who saw the call as it was
        assert await ends(rt) == "completed"
        await rt.approve_async("r/1", by="ann", arguments=new)
        with pytest.raises(Refused, match="with other arguments"):
            await rt.approve_async("r/1", by="ann", arguments={"order": "7", "cents": 6})
        assert ledger.lines == ["pay 7 5"]

    asyncio.run(main())


# ---------------------------------------------------------------- at once

RACER = """
import asyncio, json, sys, time
from pathlib import Path
from cairn import Runtime
from cairn.errors import Refused

store, who, verb, gate, many = sys.argv[1:6]

async def main():
    said = {}
    async with Runtime(store) as rt:
        Path(gate + who).touch()
        while not Path(gate).exists():
            time.sleep(0.001)
        for n in range(1, int(many) + 1):
            try:
                if verb == "approve":
                    await rt.client.approve(f"r/{n}", actor=who)
                else:
                    await rt.client.deny(f"r/{n}", actor=who)
                said[n] = "ok"
            except Refused as error:
                said[n] = str(error)
    print(json.dumps(said))

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("verbs", [("approve", "approve"), ("approve", "deny")])
def test_two_people_in_two_processes_decide_at_once_and_the_first_stands(verbs, tmp_path):
    many = 12
    store, gate = str(tmp_path / "s.db"), str(tmp_path / "gate")
    ledger = Ledger()

    def make():
        agent = Agent(
            "a",
            Scripted([[call("pay", order=str(n)) for n in range(many)], "done"]),
            tools=[payer(ledger, conflict_key="order")],
        )
        return Runtime(store, agents=[agent])

    with make() as rt:
        assert len(rt.run("a", "t", id="r").pending) == many
    racers = [
        subprocess.Popen(
            [sys.executable, "-c", RACER, store, who, verb, gate, str(many)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for who, verb in zip(("ann", "bob"), verbs, strict=True)
    ]
    from pathlib import Path

    while not all(Path(gate + who).exists() for who in ("ann", "bob")):
        if any(racer.poll() is not None for racer in racers):
            raise AssertionError("a racer did not start")
    Path(gate).touch()
    said = {
        who: json.loads(racer.communicate(timeout=25)[0])
        for who, racer in zip(("ann", "bob"), racers, strict=True)
    }
    with make() as rt:
        run = rt.run("a", "t", id="r")
        trace = rt.trace("r")
    assert run.status == "completed"
    granted = {e.event.n: e.actor for e in trace if isinstance(e.event, ev.ApprovalGranted)}
    denied = {e.event.n: e.actor for e in trace if isinstance(e.event, ev.ApprovalDenied)}
    assert sorted([*granted, *denied]) == list(range(1, many + 1))  # one decision each
    assert sorted(ledger.lines) == sorted(f"pay {n - 1} 100" for n in granted)
    for n in range(1, many + 1):
        outcomes = {said["ann"][str(n)], said["bob"][str(n)]}
        if verbs[0] == verbs[1]:
            assert outcomes == {"ok"}
        else:
            assert "ok" in outcomes
            assert any("was already" in each for each in outcomes)


def test_a_no_and_a_yes_with_a_change_at_once_leave_one_decision():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        rt = await waiting(ledger, store=store)
        other = Runtime(store.beside())
        done = await asyncio.gather(
            rt.client.deny("r/1", actor="ann"),
            other.client.approve("r/1", actor="bob", arguments='{"order": "8"}'),
            return_exceptions=True,
        )
        assert sum(isinstance(each, Refused) for each in done) == 1
        await ends(rt)
        assert ledger.lines in ([], ["pay 8 100"])

    asyncio.run(main())


# ---------------------------------------------------------------- after something else


def test_a_decision_after_a_restart_counts_once(tmp_path):
    async def main():
        ledger, path = Ledger(), tmp_path / "s.db"
        async with asking(ledger, store=path) as rt:
            await rt.run_async("a", "t", id="r")
        async with asking(ledger, store=path) as rt:
            await rt.approve_async("r/1", by="ann", arguments={"order": "8"})
        async with asking(ledger, store=path) as rt:
            assert await ends(rt) == "completed"
            assert await ends(rt) == "completed"
        assert ledger.lines == ["pay 8 100"]

    asyncio.run(main())


def test_after_expiry_cancel_end_or_an_edit_a_decision_is_refused_and_says_why():
    async def main():
        clock, ledger = TurnedClock(), Ledger()
        rt = await waiting(ledger, clock=clock)
        clock.turn(8 * 86_400)
        with pytest.raises(Refused, match="has expired; nothing was executed"):
            await rt.approve_async("r/1", arguments={"order": "8"})
        assert await ends(rt) == "completed"
        with pytest.raises(Refused, match="was already expired"):
            await rt.approve_async("r/1")

        rt = await waiting(ledger)
        await rt.client.submit("r", cmd.Cancel())
        with pytest.raises(Refused, match=r"is ending: .* so r/1 is void"):
            await rt.client.approve("r/1")  # a yes that starts nothing would be no yes
        assert await ends(rt) == "cancelled"
        assert "tool.started" not in names(await rt.trace_async("r"))

        rt = await waiting(ledger)
        await rt.cancel_async("r")
        for decide in (rt.client.approve, rt.client.deny):
            with pytest.raises(Refused, match="was already settled"):
                await decide("r/1")

        rt = await waiting(ledger)
        await rt.edit_async("r", call="c1", arguments={"order": "9"}, by="eve")
        with pytest.raises(Refused, match="has changed since"):
            await rt.approve_async("r/1")
        assert ledger.lines == []

    asyncio.run(main())


def test_in_a_pause_a_decision_counts_and_nothing_starts_before_the_pause_ends():
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger)
        await rt.pause_async("r")
        await rt.approve_async("r/1", by="ann", arguments={"order": "8"})
        assert (await rt.run_async("a", "t", id="r")).status == "paused"
        assert ledger.lines == []
        assert (await rt.resume_async("r")).status == "completed"
        assert ledger.lines == ["pay 8 100"]

    asyncio.run(main())


def test_deny_and_then_approve_is_refused_and_the_model_may_ask_again():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), call("pay", order="8"), "done")
        rt = await waiting(ledger, script=model)
        await rt.deny_async("r/1", "the wrong order", by="ann")
        with pytest.raises(Refused, match="was already denied"):
            await rt.approve_async("r/1", by="ann")
        run = await rt.run_async("a", "t", id="r")
        assert [p.id for p in run.pending] == ["r/2"]
        await rt.approve_async("r/2", by="ann")
        assert await ends(rt) == "completed"
        assert ledger.lines == ["pay 8 100"]

    asyncio.run(main())


def test_what_an_earlier_version_asked_for_is_asked_anew_when_it_means_something_else():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        await waiting(ledger, store=store)
        newer = runtime(
            [call("pay", order="7"), "done"],
            [payer(ledger, effect="dangerous")],
            policy=DEFAULT_POLICY,
            store=store,
        )
        await Runtime(store.beside()).client.approve("r/1")  # of what it was
        run = await newer.run_async("a", "t", id="r")
        assert (run.status, [p.id for p in run.pending]) == ("waiting", ["r/2"])
        assert ledger.lines == []
        await newer.approve_async("r/2")
        assert await ends(newer) == "completed"
        assert ledger.lines == ["pay 7 100"]

    asyncio.run(main())


# ---------------------------------------------------------------- of what was shown


def test_a_digest_of_something_else_decides_nothing_with_or_without_a_change():
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger)
        (shown,) = (await rt.get_async("r")).pending
        for more in ({}, {"arguments": {"order": "8"}}):
            with pytest.raises(Refused, match="no longer asks for what was shown"):
                await rt.approve_async("r/1", digest="0" * 32, **more)
        await rt.approve_async("r/1", digest=shown.digest, arguments={"order": "8"})
        assert await ends(rt) == "completed"
        assert ledger.lines == ["pay 8 100"]

    asyncio.run(main())


@pytest.mark.parametrize(
    "said", ["नहीं 不 🙅\u200d♀️", "x" * 200_000, "\0 \ud800", "", "line\nline\t\x1b[31m"]
)
def test_a_message_of_any_kind_and_length_is_kept_as_typed_and_read_by_the_model(said):
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        rt = await waiting(ledger, script=model)
        await rt.deny_async("r/1", said, by="ann")
        assert await ends(rt) == "completed"
        told = results(model.last)["c1"]
        kept = said.replace("\0", "\u2400").replace("\ud800", "\ufffd")
        assert (kept in told) if said else ("No reason was given" in told)
        assert len(events(await rt.trace_async("r"), ev.ApprovalDenied)) == 1

    asyncio.run(main())


@pytest.mark.parametrize("n", ["r/0", "r/2", "r/999999999999999999999", "x/1"])
def test_a_request_that_is_not_there_is_unknown_with_a_change_too(n):
    async def main():
        rt = await waiting(Ledger())
        with pytest.raises(UnknownRun):
            await rt.approve_async(n, arguments={"order": "8"})

    asyncio.run(main())


# ---------------------------------------------------------------- with a change


def test_a_change_and_a_yes_are_one_write_and_the_trace_says_who_changed_what():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "done")
        rt = await waiting(ledger, script=model)
        before = len(await rt.trace_async("r"))
        await rt.approve_async("r/1", "only five", by="ann", arguments={"order": "7", "cents": 5})
        trace = await rt.trace_async("r")
        assert [e.event.NAME for e in trace[before:]] == ["approval.granted"]
        assert await ends(rt) == "completed"
        trace = await rt.trace_async("r")
        (view,) = timeline(trace, "r").steps[0].calls
        (edit,) = view.edits
        assert (json.loads(edit.before), json.loads(edit.arguments), edit.actor) == (
            {"order": "7"},
            {"order": "7", "cents": 5},
            "ann",
        )
        (approval,) = view.approvals
        assert (approval.decision, approval.actor, approval.message) == (
            "granted",
            "ann",
            "only five",
        )
        assert events(trace, ev.ToolStarted)[0].rule == "approval 1"
        told = results(model.last)["c1"]
        assert "A person changed the arguments" in told
        assert told.endswith("pay 7 5")
        assert ledger.lines == ["pay 7 5"]

    asyncio.run(main())


def test_arguments_that_do_not_fit_are_refused_where_the_agent_is_known_and_rejected_otherwise():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        model = Recorder(call("pay", order="7"), "done")
        rt = await waiting(ledger, script=model, store=store)
        with pytest.raises(ConfigError, match="cents"):
            await rt.approve_async("r/1", arguments={"order": "7", "cents": "many"})
        with pytest.raises(ConfigError, match="no JSON object"):
            await rt.approve_async("r/1", arguments="[1]")
        other = Runtime(store.beside())  # knows no agent
        await other.approve_async("r/1", by="ann", arguments={"order": "7", "cents": "many"})
        assert await ends(rt) == "completed"
        assert ledger.lines == []
        (rejected,) = events(await rt.trace_async("r"), ev.ToolRejected)
        assert rejected.kind == "invalid"

    asyncio.run(main())


def test_a_change_is_no_way_around_a_rule_that_denies():
    class Small(Policy):
        def judge(self, tool, effect, arguments):
            verdict = super().judge(tool, effect, arguments)
            if arguments.get("cents", 0) > 1_000:
                return type(verdict)(decision="deny", rule="at most 1000")
            return verdict

    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, policy=Small())
        await rt.approve_async("r/1", by="ann", arguments={"order": "7", "cents": 5_000})
        assert await ends(rt) == "completed"
        (rejected,) = events(await rt.trace_async("r"), ev.ToolRejected)
        assert (rejected.kind, rejected.rule) == ("denied", "at most 1000")
        assert ledger.lines == []

    asyncio.run(main())


def test_a_change_to_what_needs_more_than_the_person_has_is_asked_anew():
    """A clerk may approve 100 and not make 5,000 of it in the same breath."""
    from cairn import ApprovalTerms

    class Tiers(Policy):
        def judge(self, tool, effect, arguments):
            verdict = super().judge(tool, effect, arguments)
            role = "director" if arguments.get("cents", 100) > 1_000 else "clerk"
            return type(verdict)(
                decision="ask", rule=f"a {role} decides", terms=ApprovalTerms(roles=(role,))
            )

    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, policy=Tiers())
        big = {"order": "7", "cents": 5_000}
        await rt.approve_async("r/1", by="ann", roles=("clerk",), arguments=big)
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("waiting", [])
        (again,) = run.pending
        assert json.loads(again.detail) == big
        with pytest.raises(Refused, match="the role director"):
            await rt.approve_async(again.id, by="ann", roles=("clerk",))
        await rt.approve_async(again.id, by="dora", roles=("director",))
        assert await ends(rt) == "completed"
        assert ledger.lines == ["pay 7 5000"]

    asyncio.run(main())


def test_the_same_arguments_in_another_spelling_are_no_change():
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger)
        await rt.approve_async("r/1", by="ann", arguments=' {"order" : "7"} ')
        (granted,) = events(await rt.trace_async("r"), ev.ApprovalGranted)
        assert granted.arguments == ""
        assert await ends(rt) == "completed"

    asyncio.run(main())


def test_a_run_that_has_ended_takes_no_change():
    async def main():
        rt = await waiting(Ledger())
        await rt.deny_async("r/1")
        assert await ends(rt) == "completed"
        with pytest.raises(Refused, match="was already denied"):
            await rt.approve_async("r/1", arguments={"order": "8"})
        with pytest.raises(IllegalTransition):
            await rt.edit_async("r", call="c1", arguments={"order": "8"})

    asyncio.run(main())
