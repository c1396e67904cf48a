"""`Runtime.replay`: what the engine wrote is decided again, offline and without a trace."""

import asyncio

import pytest
from tests.engine.kit import FREE_HAND, Ledger, TurnedClock, Watched, runtime
from tests.engine.test_chaos import POLICY, make_tools, story

from cairn import (
    Agent,
    ConfigError,
    ErrorClass,
    Limits,
    ModelError,
    NotDone,
    Policy,
    Runtime,
    Scripted,
    UnknownAgent,
    UnknownRun,
    Unsure,
    call,
    tool,
)
from cairn.core.ladder import Ladder, Rung
from cairn.engine.replay import Reader

SEEDS = range(12)


def broken(request):
    raise AssertionError("a model was asked")


def offline(rt: Runtime, store, **changed) -> Runtime:
    """The same store under an agent whose model and tools must not be touched."""

    @tool(effect="write")
    async def pay(cents: int) -> str:
        """Pay."""
        raise AssertionError("a tool was called")

    fields = {"instructions": "Be good.", "tools": [pay], **changed}
    return Runtime(store, agents=[Agent("a", Scripted(broken), **fields)], policy=FREE_HAND)


async def paid(store, *, policy=FREE_HAND, ledger=None) -> Runtime:
    @tool(effect="write")
    async def pay(cents: int) -> str:
        """Pay."""
        return (ledger or Ledger()).add(f"paid {cents}")

    script = [call("pay", cents=4), "Paid."]
    rt = runtime(script, [pay], store=store, policy=policy, instructions="Be good.")
    await rt.run_async("a", "pay", id="r")
    return rt


def test_a_run_replays_the_same_way_and_nothing_is_called_or_written():
    async def main():
        store = Watched()
        rt = await paid(store)
        before = await store.read("r")
        touched = []

        async def note(name, *args, **kwargs):
            touched.append(name)

        store.before = note
        found = await offline(rt, store).replay_async("r")
        assert found.same
        assert found.changes == ()
        assert found.events == len(before) == len(await store.inner.read("r"))
        assert set(touched) == {"info", "read"}

    asyncio.run(main())


def test_what_replays_can_only_read():
    assert Reader.__slots__ == ("info", "read"), "both only look"
    with pytest.raises(AttributeError):
        Reader(Watched()).append  # noqa: B018 - that there is none is the point


def test_another_agent_policy_ladder_or_limit_is_tried_without_a_new_runtime():
    async def main():
        store = Watched()
        rt = await paid(store)

        async def first(**changed):
            found = await rt.replay_async("r", **changed)
            return found.divergence.now.partition("\n")[0] if found.divergence else ""

        assert await first() == ""
        assert await first(policy=Policy()) == "approval.requested"
        assert await first(policy=Policy(tools={"pay": "deny"})) == "tool.rejected"
        assert await first(limits={"steps": 1}) == "limit.reached"
        assert await first(limits=Limits(calls=0)) == "tool.rejected"
        assert await first(agent=Agent("a", Scripted(broken, name="other"))) == "model.requested"
        named = Agent("a", Scripted(broken, name="other"))
        assert await first(agent=named, ignore=("model",)) == "tool.rejected"
        assert await first(agent=named, ignore="model") == "tool.rejected"
        assert await first(agent=Agent("a", Scripted(broken))) == "tool.rejected"
        switch = Ladder(rows={ErrorClass.TIMEOUT: (Rung(disposition="switch"),)})
        assert await first(ladder=switch) == "", "no rung of it was needed"
        few = Agent("a", Scripted(broken), limits=Limits(steps=1))
        assert await first(agent=few, policy=FREE_HAND, limits="agent") == "tool.rejected"

    asyncio.run(main())


def test_a_changed_prompt_is_shown_and_a_computed_one_is_asked_for_only_on_demand():
    async def main():
        store = Watched()
        rt = await paid(store)
        found = await offline(rt, store, instructions="Be better.").replay_async("r")
        assert found.same
        prompts = [c for c in found.changes if c.kind == "prompt"]
        assert [(c.recorded, c.now, c.times) for c in prompts] == [("Be good.", "Be better.", 2)]
        asked = []

        async def computed(briefing):
            asked.append((briefing.run, briefing.agent, briefing.step))
            return "Be good." if briefing.step < 2 else "Be gone."

        later = offline(rt, store, instructions=computed)
        assert [c.kind for c in (await later.replay_async("r")).changes] == ["reservation"]
        assert asked == []
        found = await later.replay_async("r", prompts=True)
        assert asked == [("r", "a", 1), ("r", "a", 2)]
        (prompt,) = [c for c in found.changes if c.kind == "prompt"]
        assert (prompt.now, prompt.step) == ("Be gone.", 2)

        def fails(briefing):
            raise OSError("no database")

        found = await offline(rt, store, instructions=fails).replay_async("r", prompts=True)
        assert "OSError: no database" in found.changes[0].now + found.changes[1].now

    asyncio.run(main())


def test_a_run_that_waits_is_replayed_as_far_as_it_has_come():
    async def main():
        store = Watched()
        rt = await paid(store, policy=Policy())
        found = await rt.replay_async("r")
        assert found.same
        assert found.steps[-1].recorded.startswith("approval.requested")

    asyncio.run(main())


def test_a_retry_and_a_conversation_replay_with_what_came_before_them():
    async def main():
        rt = runtime(
            lambda request: "Hello." if request.turn else ModelError(ErrorClass.AUTH, "no key"),
            store=Watched(),
        )
        run = await rt.run_async("a", "hi", id="r", session="s")
        assert run.status == "failed"
        again = await rt.retry_async("r", id="r2")
        assert again.status == "completed"
        await rt.send_async("s", "and you?")
        for info in await rt.runs_async():
            found = await rt.replay_async(info.run)
            assert found.same, found.divergence
            assert found.run == info.run
            assert found.changes == ()

    asyncio.run(main())


def test_faults_retries_and_unknown_effects_of_a_real_run_replay_the_same():
    async def main():
        tries = iter([NotDone("later"), Unsure("who knows")])

        @tool(effect="write", recovery="once", retries=1)
        async def pay(cents: int) -> str:
            raise next(tries)

        @tool(effect="read")
        async def look() -> str:
            raise OSError("disk")

        script = [
            ModelError(ErrorClass.OVERLOADED, "busy"),
            [call("pay", cents=1), call("look"), call("gone")],
            "Done.",
        ]
        rt = runtime(script, [pay, look], clock=TurnedClock())
        await rt.run_async("a", "go", id="r")
        await rt.client.resolve("r/c1", "happened")
        assert (await rt.drive_async("r")).status == "completed"
        found = await rt.replay_async("r")
        assert found.same, found.divergence
        assert found.changes == ()

    asyncio.run(main())


@pytest.mark.parametrize("seed", SEEDS)
def test_no_run_of_the_chaos_diverges_from_itself(seed, caplog):
    """Crashes, several owners, late people: whatever was decided is decided again."""
    caplog.set_level("CRITICAL")

    async def main():
        world, _ = await story(seed)
        store = world.journals.beside()
        rt = runtime(world.model, make_tools(world), store=store, policy=POLICY)
        return await rt.replay_async("r")

    found = asyncio.run(main())
    assert found.same, found.divergence
    assert found.changes == ()


def test_what_cannot_be_replayed_is_said():
    async def main():
        store = Watched()
        rt = await paid(store)
        with pytest.raises(UnknownRun):
            await rt.replay_async("nobody")
        with pytest.raises(UnknownAgent):
            await rt.replay_async("r", agent="other")
        with pytest.raises(ConfigError, match="policy"):
            await rt.replay_async("r", policy="deny")
        with pytest.raises(ConfigError, match="ladder"):
            await rt.replay_async("r", ladder={})
        with pytest.raises(ConfigError, match="no such limit"):
            await rt.replay_async("r", limits={"stepps": 3})

    asyncio.run(main())


def test_the_sync_verb_is_the_same():
    rt = runtime(["Done."])
    rt.run("a", "go", id="r")
    assert rt.replay("r").same
    rt.close()
