"""Who may decide: roles, another person than asked, and how long there is time."""

import asyncio

import pytest
from tests.engine.kit import Ledger, Recorder, TurnedClock, events, results, runtime

from cairn import Agent, ApprovalTerms, Policy, Principal, Refused, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.core.terms import narrowed, unmet
from cairn.core.views import timeline
from cairn.errors import ConfigError, CorruptJournal
from cairn.store.inmemory import InMemoryStore

LEAD = ApprovalTerms(roles=("lead", "admin"))
OTHER = ApprovalTerms(other_person=True)


def payer(ledger: Ledger, **options):
    @tool(name="pay", effect="write", **options)
    async def pay(order: str) -> str:
        return ledger.add(f"pay {order}")

    return pay


def asking(ledger: Ledger, terms: ApprovalTerms | None, script=None, **options):
    lines = script if script is not None else [call("pay", order="7"), "done"]
    return runtime(lines, [payer(ledger)], policy=DEFAULT_POLICY, approval=terms, **options)


def test_terms_stand_in_the_request_and_are_shown():
    async def main():
        rt = asking(Ledger(), LEAD)
        await rt.run_async("a", "t", id="r")
        trace = await rt.trace_async("r")
        (asked,) = events(trace, ev.ApprovalRequested)
        assert asked.terms == LEAD
        (view,) = timeline(trace, "r").steps[0].calls
        assert view.approvals[0].terms == LEAD

    asyncio.run(main())


@pytest.mark.parametrize(
    ("by", "roles", "missing"),
    [
        ("", (), "needs to know who decides"),
        ("ann", (), "needs a person with one of lead, admin, and ann has none"),
        ("ann", ("clerk", "LEAD"), "and ann has LEAD, clerk"),
        ("ann", ("lead ",), "one of lead, admin"),
        (Principal(id="ann", roles=("clerk",)), (), "and ann has clerk"),
    ],
)
@pytest.mark.parametrize("verb", ["approve", "deny"])
def test_who_lacks_the_role_decides_nothing_and_is_told_what_is_missing(by, roles, missing, verb):
    async def main():
        ledger = Ledger()
        rt = asking(ledger, LEAD)
        await rt.run_async("a", "t", id="r")
        before = await rt.trace_async("r")
        decide = rt.approve_async if verb == "approve" else rt.deny_async
        with pytest.raises(Refused, match=missing):
            await decide("r/1", by=by, roles=roles)
        assert await rt.trace_async("r") == before
        assert (await rt.run_async("a", "t", id="r")).status == "waiting"
        assert ledger.lines == []

    asyncio.run(main())


@pytest.mark.parametrize("who", [("ann", ("lead",)), (Principal(id="ann", roles=("admin",)), ())])
def test_who_has_one_of_the_roles_decides_and_it_is_kept_as_what(who):
    by, roles = who

    async def main():
        ledger = Ledger()
        rt = asking(ledger, LEAD)
        await rt.run_async("a", "t", id="r")
        await rt.approve_async("r/1", by=by, roles=roles)
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        trace = await rt.trace_async("r")
        (granted,) = [e for e in trace if isinstance(e.event, ev.ApprovalGranted)]
        assert (granted.actor, granted.event.roles) == ("ann", roles or by.roles)
        assert ledger.lines == ["pay 7"]

    asyncio.run(main())


def test_roles_of_several_layers_are_all_needed():
    async def main():
        ledger = Ledger()
        pay = payer(ledger, approval=ApprovalTerms(roles=("finance",)))
        rt = runtime([call("pay", order="7"), "done"], [pay], policy=DEFAULT_POLICY, approval=LEAD)
        await rt.run_async("a", "t", id="r")
        for roles in (("lead",), ("finance",)):
            with pytest.raises(Refused, match="needs a person with"):
                await rt.approve_async("r/1", by="ann", roles=roles)
        await rt.approve_async("r/1", by="ann", roles=("finance", "admin"))
        assert (await rt.run_async("a", "t", id="r")).status == "completed"

    asyncio.run(main())


# ---------------------------------------------------------------- another person


def test_the_requester_may_not_decide_and_somebody_else_may():
    async def main():
        ledger = Ledger()
        rt = asking(ledger, OTHER)
        await rt.run_async("a", "t", id="r", principal="ann")
        for verb in (rt.approve_async, rt.deny_async):
            with pytest.raises(Refused, match="needs another person than ann"):
                await verb("r/1", by="ann")
            with pytest.raises(Refused, match="say by whom"):
                await verb("r/1")
        await rt.approve_async("r/1", by="bob")
        assert (await rt.run_async("a", "t", id="r", principal="ann")).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize("led_by", ["a message", "an edit", "a plan", "an answer", "a verdict"])
def test_whoever_led_to_the_call_may_not_approve_it(led_by):
    async def main():
        ledger = Ledger()

        @tool(effect="write", recovery="once")
        async def mail() -> str:
            raise ConnectionError("reset")

        first = {
            "an answer": call("ask_user", question="which?"),
            "a verdict": call("mail"),
        }.get(led_by, call("look"))

        @tool(effect="read")
        async def look() -> str:
            return "x"

        policy = Policy(tools={"mail": "allow", "look": "ask" if led_by == "an edit" else "allow"})
        agent = Agent(
            "a",
            Scripted([first, call("pay", order="7"), "done"]),
            tools=[payer(ledger, approval=OTHER), look, mail],
        )
        rt = Runtime(":memory:", agents=[agent], policy=policy)
        if led_by in {"a message", "a plan"}:
            await rt.enqueue_async("a", "t", id="r", principal="ann")
            words = {"message": "pay 7"} if led_by == "a message" else {"plan": ["pay 7"]}
            await rt.edit_async("r", **words, by="eve")
        run = await rt.run_async("a", "t", id="r", principal="ann")
        if led_by == "an answer":
            await rt.answer_async("r/1", "order 7", by="eve")
        elif led_by == "a verdict":
            await rt.resolve_async("r/c1", happened=True, result="pay order 7", by="eve")
        elif led_by == "an edit":
            await rt.approve_async("r/1", by="bob")
        run = await rt.run_async("a", "t", id="r", principal="ann")
        last = run.pending[-1]
        if led_by == "an edit":
            await rt.edit_async("r", call=last.call, arguments={"order": "8"}, by="eve")
            run = await rt.run_async("a", "t", id="r", principal="ann")
            last = run.pending[-1]
        with pytest.raises(Refused, match="another person than eve"):
            await rt.approve_async(last.id, by="eve")
        await rt.approve_async(last.id, by="bob")
        run = await rt.run_async("a", "t", id="r", principal="ann")
        assert run.status == "completed"
        assert len(ledger.lines) == 1

    asyncio.run(main())


def test_who_speaks_only_after_it_was_asked_has_not_led_to_it():
    async def main():
        rt = asking(Ledger(), OTHER)
        await rt.run_async("a", "t", id="r", principal="ann")
        await rt.edit_async("r", message="I am looking at it", by="bob")
        await rt.approve_async("r/1", by="bob")
        assert (await rt.run_async("a", "t", id="r", principal="ann")).status == "completed"

    asyncio.run(main())


def test_whoever_spoke_earlier_in_the_session_has_led_to_it():
    async def main():
        store, ledger = InMemoryStore(), Ledger()
        first = asking(ledger, OTHER, ["hello"], store=store)
        await first.enqueue_async("a", "hi", session="s", principal="ann", id="r0")
        await first.edit_async("r0", message="pay order 7 soon", by="eve")
        await first.run_async("a", "hi", session="s", principal="ann", id="r0")
        rt = asking(ledger, OTHER, store=store)
        await rt.run_async("a", "now", session="s", principal="ann", id="r")
        with pytest.raises(Refused, match="another person than eve"):
            await rt.approve_async("r/1", by="eve")
        await rt.approve_async("r/1", by="bob")

    asyncio.run(main())


def test_who_changes_the_arguments_may_not_approve_them_where_another_person_is_asked_for():
    async def main():
        ledger = Ledger()
        rt = asking(ledger, OTHER)
        await rt.run_async("a", "t", id="r", principal="ann")
        with pytest.raises(Refused, match="another person than the one who changes it"):
            await rt.approve_async("r/1", by="bob", arguments={"order": "8"})
        await rt.edit_async("r", call="c1", arguments={"order": "8"}, by="bob")
        await rt.run_async("a", "t", id="r", principal="ann")
        with pytest.raises(Refused, match="another person than bob"):
            await rt.approve_async("r/2", by="bob")
        await rt.approve_async("r/2", by="cas")
        await rt.run_async("a", "t", id="r", principal="ann")
        assert ledger.lines == ["pay 8"]

    asyncio.run(main())


@pytest.mark.parametrize("how", ["deny", "hand back"])
def test_whose_words_led_to_a_call_may_not_approve_it_where_another_person_is_asked_for(how):
    async def main():
        script = [call("pay", order="7"), call("pay", order="8"), "done"]
        rt = asking(Ledger(), OTHER, script)
        await rt.run_async("a", "t", id="r", principal="ann")
        if how == "deny":
            await rt.deny_async("r/1", "pay 8 instead", by="bob")
        else:
            await rt.deny_async("r/1", by="cas")
            await rt.take_over_async("r", "wait", by="bob")
            await rt.hand_back_async("r", "pay 8 instead", by="bob")
        await rt.run_async("a", "t", id="r", principal="ann")
        with pytest.raises(Refused, match="another person than"):
            await rt.approve_async("r/2", by="bob")
        await rt.approve_async("r/2", by="dan")

    asyncio.run(main())


# ---------------------------------------------------------------- time


def test_terms_shorten_how_long_there_is_time_and_never_lengthen_it():
    async def main():
        for asked, days, wanted in ((60.0, 1, 60), (3 * 86_400.0, 1, 86_400), (0.0, 1, 86_400)):
            clock = TurnedClock()
            terms = ApprovalTerms(expires_in=asked)
            rt = asking(Ledger(), terms, clock=clock, approval_days=days)
            run = await rt.run_async("a", "t", id="r")
            assert run.pending[0].expires_at == clock.now + wanted * 1_000_000

    asyncio.run(main())


def test_at_the_very_instant_of_its_expiry_nothing_can_be_decided_and_nothing_starts():
    async def main():
        ledger, clock, model = Ledger(), TurnedClock(), None
        model = Recorder(call("pay", order="7"), "too late")
        rt = asking(ledger, ApprovalTerms(expires_in=60), model, clock=clock)
        await rt.run_async("a", "t", id="r")
        clock.now += 60_000_000 - 1
        await rt.client.approve("r/1")  # a microsecond is enough
        clock.now += 1
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("completed", [])
        assert results(model.last)["c1"] == "Not executed: nobody approved it in time."

        ledger, clock = Ledger(), TurnedClock()
        rt = asking(ledger, ApprovalTerms(expires_in=60), clock=clock)
        await rt.run_async("a", "t", id="r")
        clock.now += 60_000_000
        with pytest.raises(Refused, match="has expired"):
            await rt.client.approve("r/1")

    asyncio.run(main())


# ---------------------------------------------------------------- the gate looks again


def test_a_yes_does_not_outlive_terms_that_have_become_stricter():
    async def main():
        ledger, store = Ledger(), InMemoryStore()
        before = asking(ledger, None, store=store)
        await before.run_async("a", "t", id="r")
        await before.client.approve("r/1", actor="eve")
        after = asking(ledger, LEAD, store=store)
        run = await after.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("waiting", [])
        assert [p.id for p in run.pending] == ["r/2"]
        await after.approve_async("r/2", by="ann", roles=("lead",))
        assert (await after.run_async("a", "t", id="r")).status == "completed"

    asyncio.run(main())


# ---------------------------------------------------------------- the terms themselves


@pytest.mark.parametrize(
    "values",
    [
        {"roles": "lead"},
        {"roles": ["lead"]},
        {"roles": ("",)},
        {"roles": (1,)},
        {"further": ("lead",)},
        {"other_person": "yes"},
        {"expires_in": -1},
        {"expires_in": True},
        {"expires_in": float("nan")},
        {"expires_in": float("inf")},
        {"expires_in": "1h"},
    ],
)
def test_terms_that_mean_nothing_are_refused_where_they_are_made(values):
    with pytest.raises(ConfigError, match="terms"):
        ApprovalTerms(**values)


def test_terms_in_a_journal_that_mean_nothing_make_it_unreadable_and_not_free():
    from cairn.core.codec import decode

    data = b'{"n":1,"call":"c1","digest":"d","expires_at":9,"terms":{"roles":[""]}}'
    with pytest.raises(CorruptJournal):
        decode(ev.ApprovalRequested.TYPE, 1, data)


def test_two_layers_of_terms_only_narrow():
    one = ApprovalTerms(roles=("a", "b"), expires_in=60)
    two = ApprovalTerms(roles=("b", "c"), other_person=True, expires_in=30)
    both = narrowed(one, two)
    assert both is not None
    assert (both.other_person, both.expires_in) == (True, 30)
    assert narrowed(None, one) == narrowed(one, None) == narrowed(one, one) == one
    for roles in ((), ("a",), ("c",)):
        assert unmet(both, "x", roles, ())
    assert not unmet(both, "x", ("b",), ())
    assert not unmet(both, "x", ("a", "c"), ())
    assert unmet(both, "x", ("b",), ("x",))


@pytest.mark.parametrize(
    "bad",
    [{"by": 7}, {"by": Principal(id="x\0")}, {"roles": "lead"}, {"roles": ("\ud800",)}],
)
def test_names_that_cannot_be_stored_decide_nothing(bad):
    async def main():
        rt = asking(Ledger(), None)
        await rt.run_async("a", "t", id="r")
        with pytest.raises(ConfigError):
            await rt.approve_async("r/1", **bad)

    asyncio.run(main())
