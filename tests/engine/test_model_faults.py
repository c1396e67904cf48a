"""Model faults: one layer retries, by class; fallbacks stand in; nothing is charged twice."""

import asyncio

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    TurnedClock,
    beside,
    events,
    names,
    runtime,
    texts,
)

from cairn import ErrorClass, Ladder, Limits, ModelError, Price, Rung, Scripted, Usage, call, tool
from cairn.core import events as ev
from cairn.core.ladder import RETRY_AFTER_CAP_US
from cairn.core.messages import Text
from cairn.ports import ModelReply

_E = ErrorClass


def fault(error_class: ErrorClass, **more) -> ModelError:
    return ModelError(error_class, f"it was {error_class.value}", **more)


# ---------------------------------------------------------------- retry


@pytest.mark.parametrize(
    "error_class",
    [_E.RATE_LIMITED, _E.OVERLOADED, _E.UNAVAILABLE, _E.TIMEOUT, _E.NETWORK, _E.STREAM_INTERRUPTED],
)
def test_a_passing_fault_is_waited_for_and_the_run_goes_on(error_class):
    async def main():
        clock, model = TurnedClock(), Recorder(fault(error_class), fault(error_class), "done")
        rt = runtime(model, clock=clock)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.steps) == ("completed", 1)
        assert [r.attempt for r in model.requests] == [1, 2, 3]
        assert {r.step for r in model.requests} == {1}
        assert len(clock.slept) == 2
        assert clock.slept[1] > clock.slept[0] > 0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error_class", "requests"),
    [
        (_E.RATE_LIMITED, 7),
        (_E.OVERLOADED, 6),
        (_E.UNAVAILABLE, 6),
        (_E.NETWORK, 6),
        (_E.TIMEOUT, 3),
        (_E.STREAM_INTERRUPTED, 4),
        (_E.QUOTA_EXHAUSTED, 1),
        (_E.AUTH, 1),
        (_E.MODEL_NOT_FOUND, 1),
        (_E.INVALID_REQUEST, 1),
        (_E.CONTEXT_OVERFLOW, 1),
        (_E.REQUEST_TOO_LARGE, 1),
        (_E.CONTENT_FILTERED, 1),
    ],
)
def test_a_model_that_only_errs_fails_the_run_with_its_class_after_a_bounded_number_of_tries(
    error_class, requests
):
    """B34: the class decides, so an empty account is not knocked at again."""

    async def main():
        model = Recorder(fault(error_class), repeat=True)
        run = await runtime(model, clock=TurnedClock()).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", error_class.value)
        assert f"it was {error_class.value}" in run.text
        assert len(model.requests) == requests

    asyncio.run(main())


@pytest.mark.parametrize(
    ("asked", "at_least"),
    [(3.0, 3.0), (30.8, 30.8), (None, 0.5), (100_000.0, RETRY_AFTER_CAP_US / 1e6)],
)
def test_the_wait_is_at_least_what_the_provider_asked_for_up_to_a_cap(asked, at_least):
    """B33: Retry-After is honoured by the one layer that retries, and capped."""

    async def main():
        clock = TurnedClock()
        rt = runtime([fault(_E.RATE_LIMITED, retry_after_s=asked), "done"], clock=clock)
        begun = clock.now
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        waited = (clock.now - begun) / 1e6
        assert at_least <= waited <= max(at_least, 1.0) + 0.01
        requested = [e.at for e in await rt.trace_async("r") if e.event.NAME == "model.requested"]
        assert requested[1] - requested[0] >= at_least * 1e6

    asyncio.run(main())


def test_waiting_for_a_retry_takes_no_running_time():
    async def main():
        clock = TurnedClock()
        rt = runtime([fault(_E.RATE_LIMITED, retry_after_s=500), "done"], clock=clock)
        run = await rt.run_async("a", "task", limits=Limits(running_s=60))
        assert run.status == "completed"

    asyncio.run(main())


def test_a_ladder_of_the_deployment_decides_instead():
    async def main():
        ladder = Ladder(rows={_E.RATE_LIMITED: (Rung(disposition="end"),)})
        model = Recorder(fault(_E.RATE_LIMITED), "done")
        run = await runtime(model, ladder=ladder).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "rate_limited")
        assert len(model.requests) == 1

    asyncio.run(main())


# ---------------------------------------------------------------- fallback models


def test_a_fallback_model_stands_in_and_stays():
    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "seen"

        first = Recorder(fault(_E.QUOTA_EXHAUSTED), repeat=True)
        second = Recorder("never", call("look"), "done by the second")
        rt = runtime(
            Scripted(first, name="first"), [look], fallback_models=[Scripted(second, name="second")]
        )
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.text) == ("completed", "done by the second")
        assert len(first.requests) == 1
        requested = [e.model for e in events(await rt.trace_async("r"), ev.ModelRequested)]
        assert requested == ["first", "second", "second"]

    asyncio.run(main())


def test_a_fallback_is_switched_to_once_the_retries_are_used_up():
    async def main():
        first = Recorder(fault(_E.OVERLOADED), repeat=True)
        second = Recorder(*["never"] * 6, "rescued")
        rt = runtime(
            Scripted(first, name="first"),
            fallback_models=[Scripted(second, name="second")],
            clock=TurnedClock(),
        )
        run = await rt.run_async("a", "task")
        assert (run.status, run.text, len(first.requests)) == ("completed", "rescued", 6)

    asyncio.run(main())


def test_when_every_model_fails_the_run_fails():
    async def main():
        models = [Recorder(fault(_E.AUTH), repeat=True) for _ in range(3)]
        rt = runtime(Scripted(models[0]), fallback_models=[Scripted(m) for m in models[1:]])
        run = await rt.run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "auth")
        assert [len(m.requests) for m in models] == [1, 1, 1]

    asyncio.run(main())


# ---------------------------------------------------------------- adapters that misbehave


class Adapter(Scripted):
    def __init__(self, behaviour):
        super().__init__(["unused"])
        self.behaviour = behaviour

    async def request(self, request, on_delta=None):
        return await self.behaviour(request)


@pytest.mark.parametrize("returned", [None, "text", {"a": 1}, ModelReply(calls=(None,))])
def test_an_adapter_that_returns_nonsense_fails_the_run_at_once(returned):
    async def main():
        async def behave(request):
            return returned

        run = await runtime(Adapter(behave)).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "internal")
        assert "the model adapter failed" in run.reason

    asyncio.run(main())


@pytest.mark.parametrize("error", [KeyError("choices"), RuntimeError("sdk"), AssertionError()])
def test_an_adapter_that_breaks_fails_the_run_and_nothing_else(error):
    async def main():
        async def behave(request):
            raise error

        run = await runtime(Adapter(behave)).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "internal")
        assert type(error).__name__ in run.reason

    asyncio.run(main())


@pytest.mark.parametrize(
    "wrong",
    [
        {"retry_after_s": "soon"},
        {"retry_after_s": float("inf")},
        {"status": "busy"},
        {"request_id": 7},
        {"error_class": "odd"},
    ],
    ids=str,
)
def test_an_adapter_whose_fault_cannot_be_read_fails_the_run_and_says_so(wrong):
    def fails(request):
        raise ModelError(**{"error_class": _E.RATE_LIMITED, "message": "slow down", **wrong})

    run = beside(lambda: runtime(Scripted(fails)).run("a", "task"))
    assert (run.status, run.error_class) == ("failed", "internal")
    assert run.reason.startswith("the model adapter's ModelError cannot be read: ")
    assert run.reason.endswith("; it says: slow down")


def test_an_adapters_own_time_out_is_a_time_out():
    async def main():
        async def behave(request):
            if request.attempt == 1:
                raise TimeoutError("read timed out")
            return ModelReply(parts=(Text("done"),))

        rt = runtime(Adapter(behave), clock=TurnedClock())
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        (failed,) = events(await rt.trace_async("r"), ev.ModelFailed)
        assert failed.error_class is _E.TIMEOUT

    asyncio.run(main())


def test_an_adapter_that_hangs_is_cut_off_at_its_deadline(monkeypatch):
    async def main():
        async def behave(request):
            if request.attempt == 1:
                await asyncio.sleep(60)
            return ModelReply(parts=(Text("done"),))

        rt = runtime(Adapter(behave), clock=TurnedClock())
        from msgspec.structs import replace

        crew = rt.host.crew("a")
        specs = tuple(replace(m, timeout_us=50_000) for m in crew.rules.models)
        rt.host._crews["a"] = replace(crew, rules=replace(crew.rules, models=specs))
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        (failed,) = events(await rt.trace_async("r"), ev.ModelFailed)
        assert (failed.error_class, failed.message) == (_E.TIMEOUT, "no reply within 0.05 s")

    asyncio.run(main())


# ---------------------------------------------------------------- usage and money

PRICED = Price(input=1_000_000, output=10_000_000, cached=100_000, version="test")


@pytest.mark.parametrize(
    ("usage", "micro_usd"),
    [
        (Usage(input_tokens=2_000, cached_tokens=8_000, output_tokens=100), 2_000 + 800 + 1_000),
        (Usage(input_tokens=10_000, output_tokens=100), 10_000 + 1_000),
        (Usage(output_tokens=50, reasoning_tokens=50), 1_000),
    ],
)
def test_cost_is_price_times_disjoint_buckets(usage, micro_usd):
    """B41: cached tokens are not billed twice, nor at the full price."""

    async def main():
        rt = runtime(Scripted(["done"], usage=usage, price=PRICED))
        run = await rt.run_async("a", "task", id="r")
        assert run.usage.micro_usd == micro_usd
        assert run.cost_usd == micro_usd / 1e6
        assert run.usage.tokens == usage.tokens

    asyncio.run(main())


def test_a_failed_attempt_that_says_what_it_used_is_charged():
    async def main():
        cut = ModelReply(finish="length", usage=Usage(input_tokens=10, output_tokens=4096))
        rt = runtime(Scripted([cut, "done"], price=PRICED))
        run = await rt.run_async("a", "task")
        assert run.status == "completed"
        assert run.usage.output_tokens == 4096

    asyncio.run(main())


def test_an_attempt_that_failed_on_the_other_side_costs_nothing():
    async def main():
        rt = runtime(Scripted([fault(_E.OVERLOADED), "done"], price=PRICED), clock=TurnedClock())
        run = await rt.run_async("a", "task")
        assert run.usage == Usage()

    asyncio.run(main())


def test_a_local_fault_is_told_once_and_changes_no_message():
    """A retry sends the same conversation again: no trace of the fault is in it."""

    async def main():
        model = Recorder(fault(_E.OVERLOADED), "done")
        await runtime(model, clock=TurnedClock()).run_async("a", "task")
        assert texts(model.requests[0]) == texts(model.requests[1]) == ["task"]

    asyncio.run(main())


def test_a_deployment_without_any_model_reply_left_says_which_turn():
    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def look() -> str:
            return ledger.add("look")

        rt = runtime([call("look")], [look])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class) == ("failed", "invalid_request")
        assert "has 1 items; this is turn 2" in run.reason
        assert names(await rt.trace_async("r"))[-1] == "run.failed"

    asyncio.run(main())
