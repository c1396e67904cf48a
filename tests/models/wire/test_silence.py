"""How long the wire may be silent is what the user said, for any number of seconds."""

import asyncio

import pytest
from tests.models.wire.bodies import FORMATS
from tests.models.wire.kit import asked, every_format, exchange, run, speaking
from tests.models.wire.server import SILENCE, Answer, Loopback

from cairn.errors import ErrorClass, ModelError

VENDORS_USUAL = [5, 5.0, 600]
"""Time-outs that HTTP and vendor libraries take for none given, and others near them."""


@every_format
@pytest.mark.parametrize("seconds", [*VENDORS_USUAL, 0.0001, 7.5], ids=str)
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_a_request_is_sent_with_the_silence_that_was_given(form, seconds, stream):
    sent = []

    async def note(request):
        sent.append(request.extensions["timeout"]["read"])

    async def main():
        async with (
            Loopback(Answer(status=503)) as server,
            speaking(server.url, form, stall_s=seconds) as connection,
        ):
            connection.http.event_hooks = {"request": [note]}
            with pytest.raises(ModelError):
                await exchange(connection, form, stream=stream)

    run(main())
    assert sent == [pytest.approx(seconds, abs=0.001)]


@pytest.mark.slow
@pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])
def test_five_silent_seconds_are_a_time_out_in_every_format(stream):
    """Five seconds are the usual time-out of HTTP clients, and were taken for none given."""

    async def one(form):
        async with (
            Loopback(SILENCE) as server,
            speaking(server.url, form, stall_s=5) as connection,
        ):
            with pytest.raises(ModelError) as caught:
                await exchange(connection, form, asked(timeout_s=20.0), stream=stream)
        return caught.value

    async def main():
        return await asyncio.gather(*map(one, FORMATS))

    for fault in run(main()):
        assert fault.error_class is ErrorClass.TIMEOUT
        assert "no whole reply within" not in str(fault), "the deadline came, not the silence"
