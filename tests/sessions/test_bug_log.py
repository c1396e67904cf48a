"""What went wrong in conversations elsewhere, and must not here."""

import asyncio

import pytest
from tests.engine.kit import FREE_HAND, Ledger, Recorder, names, results, runtime, texts

from cairn import Principal, Refused, Route, Runtime, Scripted, SessionBusy, UnknownRun, call, tool
from cairn.agent import Agent
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.policy import DEFAULT_POLICY
from cairn.engine.load import load


def payer(ledger):
    """A tool that needs a yes."""

    @tool(effect="write")
    async def pay(n: int) -> str:
        return ledger.add(f"paid {n}")

    return pay


def test_a_conversation_that_is_cut_off_or_moved_never_parts_a_call_from_its_result(tmp_path):
    """B15: interrupted, forked and rewound, the next request answers each call exactly once."""

    async def main():
        ledger = Ledger()
        model = Recorder(
            lambda r: (
                [call("pay", n=1), call("pay", n=2)]
                if texts(r)[-1] == "pay" and r.messages[-1].role == "user"
                else "done"
            ),
            repeat=True,
        )
        rt = runtime(model, [payer(ledger)], policy=DEFAULT_POLICY, store=tmp_path / "s.db")
        waits = await rt.send_async("s", "pay", agent="a")
        assert waits.reason == "approval"
        after = await rt.send_async("s", "no", mode="interrupt")
        await rt.fork_session_async("s", "f", at=waits.id)
        await rt.rewind_async("s", waits.id)
        for session in ("s", "f"):
            await rt.send_async(session, "go on")
            assert faults(model.last.messages) == []
            assert len(results(model.last)) == 2
            assert all("Not executed" in said for said in results(model.last).values())
        assert after.status == "completed"
        assert ledger.lines == []
        await rt.close_async()

    asyncio.run(main())


def test_an_approval_that_a_session_waits_for_outlives_the_process_and_the_line_goes_on(tmp_path):
    """B46: the same id works after a restart, also with messages queued behind it."""

    async def main():
        ledger = Ledger()

        def answer(request):
            if texts(request)[-1] == "pay" and not results(request):
                return call("pay", n=1)
            return f"read {texts(request)[-1]}"

        options = {"policy": DEFAULT_POLICY, "store": tmp_path / "s.db"}
        async with runtime(answer, [payer(ledger)], **options) as rt:
            waits = await rt.send_async("s", "pay", agent="a")
            (asked,) = waits.pending
            queued = await rt.post_async("s", "and then", mode="queue")
        async with runtime(answer, [payer(ledger)], **options) as rt:
            assert [p.id for p in await rt.pending_async()] == [asked.id]
            await rt.approve_async(asked.id, by="ann")
            await rt.work_async(until_idle=True)
            assert (await rt.get_async(waits.id)).status == "completed"
            assert (await rt.get_async(queued.run)).text == "read and then"
            with pytest.raises(Refused):
                await rt.deny_async(asked.id, by="ann")
        assert ledger.lines == ["paid 1"]

    asyncio.run(main())


@pytest.mark.parametrize("word", ["approve", "yes", "/approve"])
@pytest.mark.parametrize("mode", ["steer", "queue", "interrupt"])
def test_a_yes_that_is_said_in_a_session_approves_nothing(word, mode):
    """B47: a decision names its request and what was shown; what is typed is only a message."""

    async def main():
        ledger = Ledger()

        def answer(request):
            return call("pay", n=1) if len(texts(request)) == 1 else "noted"

        rt = runtime(answer, [payer(ledger)], policy=DEFAULT_POLICY)
        waits = await rt.send_async("s", "pay", agent="a")
        await rt.send_async("s", word, mode=mode)
        assert "approval.granted" not in names(await rt.trace_async(waits.id))
        assert ledger.lines == []
        if mode == "interrupt":
            with pytest.raises(Refused):
                await rt.approve_async(waits.pending[0].id, by="ann")
        else:
            assert [p.id for p in await rt.pending_async()] == [waits.pending[0].id]

    asyncio.run(main())


def test_of_two_messages_at_the_same_time_neither_writes_over_the_others_turn(tmp_path):
    """B50: each has its whole turn, one after the other, or is told that the session is busy."""

    async def main():
        rts = [runtime(lambda r: f"read {texts(r)[-1]}", store=tmp_path / "s.db") for _ in range(4)]
        outcomes = await asyncio.gather(
            *(rt.send_async("s", f"m{n}", agent="a", mode="queue") for n, rt in enumerate(rts)),
            *(rt.run_async("a", f"r{n}", session="s") for n, rt in enumerate(rts)),
            return_exceptions=True,
        )
        told = [o for o in outcomes if isinstance(o, BaseException)]
        assert all(isinstance(o, SessionBusy) for o in told)
        seen = await rts[0].session_async("s")
        assert len(seen.chain) == len(outcomes) - len(told) >= 4
        last = await load(rts[0].store, seen.chain[-1].run)
        said = [p.content for m in last.messages if m.role == "user" for p in m.parts]
        answers = [p.content for m in last.messages if m.role == "assistant" for p in m.parts]
        assert answers == [f"read {text}" for text in said]
        for rt in rts:
            await rt.close_async()

    asyncio.run(main())


def test_two_people_who_use_the_same_session_id_never_meet():
    """B54: the key includes the owner, and nothing that a model says can choose another."""

    async def main():
        rt = runtime(lambda r: " | ".join(texts(r)))
        await rt.send_async("support", "my secret", agent="a", principal="u1")
        with pytest.raises(UnknownRun):
            await rt.send_async("support", "hello", agent="a", principal="u2")
        with pytest.raises(UnknownRun):
            await rt.fork_session_async("support", "mine", principal="u2")
        front = Runtime(
            ":memory:",
            agents=[Agent("a", Scripted(lambda r: " | ".join(texts(r))))],
            routes=[Route(agent="a", session="key")],
            policy=FREE_HAND,
        )
        for who in ("u1", "u2"):
            run = await front.receive_async(principal=who, key="support", text=f"of {who}")
            assert run.text == f"of {who}"

    asyncio.run(main())


def test_who_speaks_in_a_shared_session_is_kept_and_cannot_approve_what_he_led_to():
    async def main():
        ledger = Ledger()
        rt = Runtime(
            ":memory:",
            agents=[
                Agent(
                    "a",
                    Scripted(lambda r: call("pay", n=1) if not results(r) else "done"),
                    tools=[payer(ledger)],
                )
            ],
            routes=[Route(agent="a", session="channel", shared=True)],
        )
        bob = Principal(id="bob", roles=("boss",))
        run = await rt.receive_async(channel="room", principal=bob, text="pay it")
        assert run.reason == "approval"
        state = await load(rt.store, run.id)
        assert "bob" in state.voices
        assert state.principal.id.startswith("shared:")
        ann = await rt.accept_async(channel="room", principal="ann", text="please")
        entries = await rt.trace_async(ann.run)
        assert [e.actor for e in entries if isinstance(e.event, ev.InputQueued)] == ["ann"]
        assert entries[0].actor == "bob"

    asyncio.run(main())
