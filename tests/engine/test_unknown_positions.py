"""A position that is none of the run's events is said to be none; nothing is left out silently."""

import asyncio
from contextlib import aclosing

import pytest
from tests.engine.kit import runtime

from cairn import UnknownRun


@pytest.mark.parametrize("position", [-1, 2, 99])
def test_a_position_that_is_no_event_of_the_run_is_refused_and_nothing_is_driven(position):
    """B71: unknown, foreign or ahead: events up to that number would be missed in silence."""

    async def main():
        rt = runtime(["done"])
        await rt.enqueue_async("a", "task", id="r")
        for stream in (rt.watch_async("r", after=position), rt.client.follow("r", after=position)):
            async with aclosing(stream):
                with pytest.raises(UnknownRun, match=f"run r has no event {position}; its events"):
                    await anext(stream)
        assert len(await rt.trace_async("r")) == 1

    asyncio.run(main())
