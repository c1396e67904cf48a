"""Cancelled in the middle: the connection is closed at once, and nothing is left behind."""

import asyncio

import pytest
from tests.models.wire.bodies import GEMINI, text
from tests.models.wire.kit import asked, every_format, exchange, run, speaking, streamed_or_whole
from tests.models.wire.server import SILENCE, SSE, Answer, Loopback

from cairn.core.messages import user
from cairn.errors import ModelError


async def cancelled(connection, form, server, ready, **more):
    """Make a request, cancel it when it is ready to be, and wait until the server knows."""
    task = asyncio.ensure_future(exchange(connection, form, **more))
    seen = await server.request()
    await seen.sent.wait()
    await ready(task)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(10):
        await seen.gone.wait()
    await server.closed()
    return seen


@every_format
def test_cancelling_in_the_middle_of_a_stream_closes_the_connection(form):
    async def main():
        answer = Answer(events=form.opening(), kind=SSE, end="hang")
        async with Loopback(answer) as server, speaking(server.url, form) as connection:
            heard = asyncio.Event()

            async def ready(_):
                await heard.wait()

            await cancelled(connection, form, server, ready, on_delta=lambda _: heard.set())
            assert len(server.seen) == 1

    run(main())


@every_format
@streamed_or_whole
def test_cancelling_before_the_first_byte_closes_the_connection(form, stream):
    async def main():
        async with Loopback(SILENCE) as server, speaking(server.url, form) as connection:

            async def ready(_):
                await asyncio.sleep(0)

            await cancelled(connection, form, server, ready, stream=stream)
            assert len(server.seen) == 1

    run(main())


@every_format
def test_after_a_cancelled_request_the_connection_serves_the_next_one(form):
    async def main():
        hanging = Answer(events=form.opening(), kind=SSE, end="hang")
        answer = form.answer(text("Later."), stream=True)
        async with Loopback(hanging, answer) as server, speaking(server.url, form) as connection:

            async def ready(_):
                await asyncio.sleep(0)

            await cancelled(connection, form, server, ready)
            found = await exchange(connection, form)
            assert found.parts[0].content == "Later."

    run(main())


@every_format
def test_a_request_past_its_deadline_leaves_no_connection_open(form):
    async def main():
        answer = Answer(events=form.opening(), kind=SSE, end="hang")
        async with Loopback(answer) as server, speaking(server.url, form) as connection:
            with pytest.raises(ModelError):
                await exchange(connection, form, asked(timeout_s=0.1))
            await server.closed()

    run(main())


@every_format
def test_every_loop_has_a_connection_of_its_own(form):
    answer = form.answer(text(), stream=True)

    async def main():
        async with Loopback(answer) as server, speaking(server.url, form) as connection:
            found = await exchange(connection, form)
            return found.parts[0].content

    assert [run(main()), run(main())] == ["Good morning.", "Good morning."]


@every_format
@streamed_or_whole
def test_requests_at_the_same_time_do_not_mix_what_they_bring(form, stream):
    def answer(seen):
        number = 1 if b"number 1" in seen.raw else 2
        said = text(f"Answer {number}.")
        return form.answer(said, stream=stream, headers={form.request_id: f"req-{number}"})

    async def main():
        async with Loopback(answer) as server, speaking(server.url, form) as connection:
            requests = [asked(messages=(user(f"This is number {n}."),)) for n in (1, 2)]
            found = await asyncio.gather(
                *(exchange(connection, form, each, stream=stream) for each in requests)
            )
            assert [each.parts[0].content for each in found] == ["Answer 1.", "Answer 2."]
            if form is not GEMINI:  # its bodies carry the id, and here it is always the same
                assert [each.request_id for each in found] == ["req-1", "req-2"]

    run(main())


@every_format
def test_a_whole_exchange_gives_its_connection_back_for_the_next(form):
    async def main():
        answer = form.answer(text(), stream=True)
        async with Loopback(answer) as server, speaking(server.url, form) as connection:
            for _ in range(3):
                await exchange(connection, form)
            assert server.connections == 1

    run(main())
