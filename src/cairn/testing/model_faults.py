"""Promises of a model about faults: told at once, by class, asked once, and nothing left behind."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio
import inspect
from typing import Any

from cairn.errors import ErrorClass, ModelError
from cairn.ports import Model
from cairn.testing.model_promises import (
    PATIENCE_S,
    Far,
    ModelPromises,
    Says,
    ask,
    refused,
    text_of,
)

HALF = "This is said in part, and the rest of it never comes. " * 4
SHORT_S = 0.8


class FaultPromises(ModelPromises):
    """Refusals, cuts, garbage, silence, cancelling and closing."""

    def test_a_refusal_is_a_model_error_of_its_class_after_one_request(self) -> None:
        marks = {f"f{n}": fault for n, fault in enumerate(self.faults)}

        async def promise(model: Model, far: Far) -> None:
            for mark, fault in marks.items():
                error = await refused(model, ask(mark))
                assert (error.error_class, str(error) != "") == (fault, True)
                assert far.times(mark) == 1

        self.keep(promise, **{mark: Says(fault=fault) for mark, fault in marks.items()})

    def test_a_reply_that_breaks_off_is_never_handed_out_nor_asked_for_again(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            error = await refused(model, ask("a"))
            assert error.error_class in {ErrorClass.STREAM_INTERRUPTED, ErrorClass.NETWORK}
            assert HALF not in str(error)
            assert far.times("a") == 1

        self.keep(promise, a=Says(text=HALF, ending="cut"))

    def test_what_is_no_reply_at_all_is_a_model_error_after_one_request(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            error = await refused(model, ask("a"))
            assert error.error_class is not ErrorClass.INTERNAL
            assert far.times("a") == 1

        self.keep(promise, a=Says(ending="garbage"))

    def test_after_a_fault_the_next_request_is_answered(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            for mark in ("a", "b", "c"):
                await refused(model, ask(mark))
            assert text_of(await model.request(ask("d"))) == "Fine."

        self.keep(
            promise,
            a=Says(fault=self.faults[0]),
            b=Says(text=HALF, ending="cut"),
            c=Says(ending="garbage"),
            d=Says(text="Fine."),
        )

    # ------------------------------------------------------------ silence

    def test_a_request_that_gets_no_answer_ends_at_its_deadline(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            await model.request(ask("b"))  # what loads at the first request takes its own time
            async with asyncio.timeout(PATIENCE_S):
                if self.keeps_deadline:
                    error = await refused(model, ask("a", timeout_s=SHORT_S))
                    assert error.error_class is ErrorClass.TIMEOUT
                else:
                    await _left_alone(model.request(ask("a", timeout_s=SHORT_S)))
            assert far.times("a") == 1
            await self.gone()

        self.keep(promise, a=Says(text=HALF, ending="hang"), b=Says(text="Fine."))

    def test_a_cancelled_request_ends_at_once_and_leaves_nothing_behind(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            await model.request(ask("b"))
            before = asyncio.all_tasks()
            task = asyncio.ensure_future(model.request(ask("a"), lambda _: None))
            while not far.times("a"):  # noqa: ASYNC110 - the first arrival was that of `b`
                await asyncio.sleep(0.005)
            async with asyncio.timeout(PATIENCE_S):
                await _left_alone(task)
                await self.gone()
                while asyncio.all_tasks() - before - {task}:  # noqa: ASYNC110 - they tell nobody
                    await asyncio.sleep(0.005)
            assert far.times("a") == 1
            assert text_of(await model.request(ask("b"))) == "Fine."

        self.keep(promise, a=Says(text=HALF, ending="hang"), b=Says(text="Fine."))

    def test_cancelling_before_anything_was_sent_harms_nobody(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            for turns in range(6):
                task = asyncio.ensure_future(model.request(ask("a")))
                for _ in range(turns):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            assert text_of(await model.request(ask("a"))) == "Fine."

        self.keep(promise, a=Says(text="Fine."))

    # ------------------------------------------------------------ checking and closing

    def test_it_can_be_checked_without_being_asked_and_closed_more_than_once(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            anything: Any = model
            if hasattr(anything, "check"):
                assert anything.check() is None
            assert far.heard == []
            for _ in range(2):
                assert text_of(await model.request(ask("a"))) == "Fine."
                if hasattr(anything, "close") and inspect.iscoroutinefunction(anything.close):
                    await anything.close()
                    await anything.close()

        self.keep(promise, a=Says(text="Fine."))


async def _left_alone(work: Any) -> None:
    """Give a request a moment, then cancel it; it must end as cancelled, whatever it was doing."""
    task = asyncio.ensure_future(work)
    await asyncio.wait({task}, timeout=SHORT_S)
    task.cancel()
    try:
        await task
    except asyncio.CancelledError:
        return
    except ModelError as error:
        raise AssertionError(f"it was cancelled, and ended with {error!r}") from error
    raise AssertionError("it was cancelled, and replied all the same")
