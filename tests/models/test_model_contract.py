"""Every model keeps the contract: the scripted one, a cassette, and remote ones in each format."""

import asyncio
from contextlib import asynccontextmanager

import pytest
from tests.models.wire.bodies import CHAT, GEMINI, MESSAGES, RESPONSES, SSE, Said, Tokens
from tests.models.wire.server import SILENCE, Answer, Loopback

from cairn import Cassette, Scripted
from cairn.core.limits import FREE
from cairn.core.messages import Text
from cairn.errors import ErrorClass, ModelError
from cairn.models.remote import RemoteModel
from cairn.ports import ModelReply
from cairn.testing.model_contract import Far, ModelContract, Says
from cairn.testing.model_promises import PATIENCE_S

STATUS = {
    ErrorClass.RATE_LIMITED: 429,
    ErrorClass.UNAVAILABLE: 500,
    ErrorClass.AUTH: 401,
    ErrorClass.INVALID_REQUEST: 400,
    ErrorClass.MODEL_NOT_FOUND: 404,
}


# ---------------------------------------------------------------- in the process


def script(far: Far):
    """A script that says what the other side says."""

    async def line(request):
        says = far.hear(repr(request))
        if says.fault is not None:
            return ModelError(says.fault, "refused")
        if says.ending == "cut":
            return ModelError(ErrorClass.STREAM_INTERRUPTED, "the script breaks off")
        if says.ending == "garbage":
            return 42
        if says.ending == "hang":
            await asyncio.Event().wait()
        parts = (Text(says.text),) if says.text else ()
        return ModelReply(parts=parts, calls=says.calls, finish=says.finish, usage=says.usage)

    return line


class TestScripted(ModelContract):
    keeps_deadline = acts = False

    @asynccontextmanager
    async def open(self, far):
        yield Scripted(script(far))


class TestCassette(ModelContract):
    """While it records; what it plays was recorded like this."""

    keeps_deadline = acts = False

    @pytest.fixture(autouse=True)
    def _folder(self, tmp_path):
        self.path = tmp_path / "tape.jsonl"

    @asynccontextmanager
    async def open(self, far):
        with Cassette(self.path, Scripted(script(far)), mode="record") as cassette:
            yield cassette


# ---------------------------------------------------------------- over a socket


class OverTheWire(ModelContract):
    """A remote model and a server on the loopback."""

    form = CHAT
    stream = True
    cut_before = 3
    """How many of the last events a cut stream lacks."""

    @asynccontextmanager
    async def open(self, far):
        self.hung = []

        def answer(seen):
            says = far.hear(seen.raw.decode())
            if says.ending == "hang":
                self.hung.append(seen)
            return self.answer(says)

        async with Loopback(answer) as server:
            base = server.url + ("/v1" if self.form in {CHAT, RESPONSES} else "")
            model = RemoteModel(
                f"{self.form.provider}:{self.form.model}",
                base_url=base,
                api_key="k",
                price=FREE,
                stream=self.stream,
            )
            try:
                yield model
            finally:
                await model.close()

    async def gone(self):
        async with asyncio.timeout(PATIENCE_S):
            for seen in self.hung:
                await seen.gone.wait()

    def answer(self, says: Says) -> Answer:
        """What the server sends."""
        if says.fault is not None:
            return Answer(body=b'{"error": {"message": "No."}}', status=STATUS[says.fault])
        if says.ending == "garbage":
            return Answer(body=b"<html><body>Welcome</body></html>", kind="text/html")
        whole = self.form.answer(self.said(says), stream=self.stream)
        if says.ending == "whole":
            return whole
        if self.stream:
            events = whole.events[: -self.cut_before]
            return Answer(events=events, kind=SSE, end="hang" if says.ending == "hang" else "whole")
        if says.ending == "hang":
            return SILENCE
        return Answer(events=[whole.body[:-20]], end="drop")

    def said(self, says: Says) -> Said:
        """The same in the words of the bodies."""
        parts = [("text", says.text)] if says.text else []
        parts += [("call", c.name, c.arguments, c.id) for c in says.calls]
        finish = {"stop": "", "length": self.form.length, "content_filter": self.form.refused}
        used = says.usage and Tokens(
            fresh=says.usage.input_tokens,
            cached=says.usage.cached_tokens,
            spoken=says.usage.output_tokens,
            thought=says.usage.reasoning_tokens,
        )
        return Said(parts=parts, finish=finish[says.finish], tokens=used)


class TestChatStreamed(OverTheWire):
    pass


class TestChatWhole(OverTheWire):
    stream = False


class TestResponsesStreamed(OverTheWire):
    form, cut_before = RESPONSES, 1


class TestResponsesWhole(OverTheWire):
    form, stream = RESPONSES, False


class TestMessagesStreamed(OverTheWire):
    form, cut_before = MESSAGES, 2


class TestMessagesWhole(OverTheWire):
    form, stream, exact_arguments = MESSAGES, False, False


class TestGeminiStreamed(OverTheWire):
    form, cut_before, exact_arguments = GEMINI, 1, False


class TestGeminiWhole(OverTheWire):
    form, stream, exact_arguments = GEMINI, False, False
