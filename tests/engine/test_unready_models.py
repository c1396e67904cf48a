"""A model that cannot be asked here, for want of a key or a package, leaves the run as it was."""

import asyncio

import pytest
from tests.engine.kit import runtime

from cairn import Agent, ConfigError, Runtime, Scripted
from cairn.ports import ModelReply


class Keyless(Scripted):
    """A scripted model that needs a key first."""

    def __init__(self, script):
        super().__init__(script)
        self.key = ""
        self.looked = 0

    def check(self):
        self.looked += 1
        if not self.key:
            raise ConfigError("keyless.api_key", "KEYLESS_KEY is not set", "Export it")


def test_a_missing_key_is_said_before_anything_is_asked_and_the_run_goes_on_when_it_is_there():
    async def main():
        model = Keyless(["Done."])
        async with runtime(model) as rt:
            with pytest.raises(ConfigError, match="KEYLESS_KEY is not set") as caught:
                await rt.run_async("a", "Do it", id="r1")
            assert caught.value.fix == "Export it"
            names = [e.event.NAME for e in await rt.trace_async("r1")]
            assert names == ["run.created"]
            model.key = "k"
            run = await rt.run_async("a", "Do it", id="r1")
            assert (run.status, run.text) == ("completed", "Done.")

    asyncio.run(main())


def test_a_finished_run_is_read_without_the_key():
    async def main():
        model = Keyless(["Done."])
        model.key = "k"
        async with runtime(model) as rt:
            await rt.run_async("a", "Do it", id="r1")
            model.key = ""
            assert (await rt.run_async("a", "Do it", id="r1")).text == "Done."

    asyncio.run(main())


def test_a_process_that_only_hands_over_needs_no_key():
    async def main():
        async with runtime(Keyless(["Done."])) as rt:
            run = await rt.enqueue_async("a", "Do it")
            assert (await rt.get_async(run)).status == "queued"

    asyncio.run(main())


def test_a_model_is_looked_at_once_and_not_before_every_request():
    async def main():
        model = Keyless(["One.", "Two."])
        model.key = "k"
        async with runtime(model) as rt:
            await rt.run_async("a", "1")
            await rt.run_async("a", "2")
        assert model.looked == 1

    asyncio.run(main())


def test_a_runtime_that_closes_gives_back_what_its_models_hold_open():
    closed = []

    class Open(Scripted):
        async def close(self):
            closed.append("async")

    class Shut(Scripted):
        def close(self):
            closed.append("sync")

    agents = [Agent("a", Open(["ok"]), fallback_models=[Shut(["ok"])])]
    with Runtime(":memory:", agents=agents) as rt:
        rt.run("a", "hi")
    assert closed == ["async", "sync"]


def test_what_a_provider_answers_without_usage_stands_in_the_journal_as_unmeasured():
    async def main():
        async with runtime([ModelReply(parts=(), usage=None), "Done."]) as rt:
            run = await rt.run_async("a", "Do it", id="r1")
            assert run.status == "completed"
            failed = [e.event for e in await rt.trace_async("r1") if e.event.NAME == "model.failed"]
            assert failed[0].usage.tokens > 0

    asyncio.run(main())


def test_loading_what_a_model_needs_is_no_part_of_its_requests_deadline():
    """A cold process must not charge, or blame a provider for, a request that never left."""

    async def main():
        loads = []

        class Cold(Scripted):
            timeout_s = 0.05

            async def ready(self):
                await asyncio.sleep(0.3)
                loads.append("loaded")

        async with runtime(Cold(["Done.", "Again."])) as rt:
            run = await rt.run_async("a", "Do it", id="r1")
            assert run.status == "completed"
            names = [e.event.NAME for e in await rt.trace_async("r1")]
            assert names.count("model.requested") == 1
            await rt.run_async("a", "Once more")
        assert loads == ["loaded"]

    asyncio.run(main())


def test_a_run_can_be_cancelled_while_its_model_loads():
    async def main():
        class Slow(Scripted):
            async def ready(self):
                await asyncio.sleep(60)

        async with runtime(Slow(["Done."])) as rt:
            run = await rt.start_async("a", "Do it")
            await asyncio.sleep(0.1)
            assert (await rt.cancel_async(run)).status == "cancelled"
            assert "model.requested" not in [e.event.NAME for e in await rt.trace_async(run)]

    asyncio.run(main())


def test_what_is_missing_when_a_model_loads_leaves_the_run_as_it_was():
    async def main():
        class Broken(Scripted):
            async def ready(self):
                raise ConfigError("broken.package", "it is not installed", "Install it")

        async with runtime(Broken(["Done."])) as rt:
            with pytest.raises(ConfigError, match="it is not installed"):
                await rt.run_async("a", "Do it", id="r1")
            assert (await rt.get_async("r1")).status in {"queued", "running"}

    asyncio.run(main())
