"""How the tests of the wire speak through our adapters: one exchange against one answer."""

import asyncio
import gc
from collections.abc import Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest
from tests.models.wire.bodies import FORMATS, Format
from tests.models.wire.server import Answer, Loopback, Seen

from cairn.core.messages import user
from cairn.errors import ModelError
from cairn.models.endpoints import ENDPOINTS
from cairn.ports import ModelReply, ModelRequest, ToolSchema

FIND = ToolSchema(
    name="find",
    description="Find things.",
    parameters={"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
)
ASKED = ModelRequest(
    system="You help.", messages=(user("What is there?"),), tools=(FIND,), timeout_s=20.0
)
every_format = pytest.mark.parametrize("form", FORMATS, ids=repr)
streamed_or_whole = pytest.mark.parametrize("stream", [True, False], ids=["streamed", "whole"])


@dataclass
class Heard:
    """What came of one exchange: a reply or a fault, and what the server saw."""

    reply: ModelReply | None = None
    fault: ModelError | None = None
    deltas: list[str] = field(default_factory=list)
    seen: list[Seen] = field(default_factory=list)

    @property
    def sent(self) -> Any:
        """The body of the one request, read as JSON."""
        assert len(self.seen) == 1
        return self.seen[0].body


@asynccontextmanager
async def speaking(
    url: str,
    form: Format,
    *,
    provider: str = "",
    model: str = "",
    stall_s: float = 15.0,
    key: str = "k-1",
    **more: Any,
) -> Any:
    """A connection to the server in this format; it is closed in the end."""
    from cairn.models.wire.clients import Address, Connection

    endpoint = ENDPOINTS[provider or form.provider]
    base = url + ("/v1" if endpoint.wire in {"chat", "responses"} else "")
    address = Address(
        endpoint=endpoint,
        model=model or form.model,
        base_url=base,
        key=key,
        stall_s=stall_s,
        **more,
    )
    connection = Connection(address)
    try:
        yield connection
    finally:
        await connection.close()


async def exchange(
    connection: Any,
    form: Format,
    request: ModelRequest = ASKED,
    *,
    provider: str = "",
    stream: bool = True,
    on_delta: Callable[[str], None] | None = None,
    settings: dict[str, Any] | None = None,
    cache: bool = True,
    finish_required: bool = True,
) -> ModelReply:
    """One exchange, as a remote model makes it."""
    from cairn.models.wire.exchange import Exchange

    made = Exchange(
        connection,
        ENDPOINTS[provider or form.provider],
        settings or {},
        stream=stream,
        cache=cache,
        finish_required=finish_required,
    )
    return await made.make(request, on_delta)


def hear(
    form: Format,
    answer: Answer | Callable[[Seen], Answer],
    request: ModelRequest = ASKED,
    *,
    stall_s: float = 15.0,
    finish_required: bool = True,
    provider: str = "",
    model: str = "",
    key: str = "k-1",
    **more: Any,
) -> Heard:
    """Ask once, and say what came of it."""
    heard = Heard()

    async def main() -> None:
        async with (
            Loopback(answer) as server,
            speaking(
                server.url,
                form,
                provider=provider,
                model=model,
                stall_s=stall_s,
                key=key,
                finish_required=finish_required,
            ) as connection,
        ):
            heard.seen = server.seen
            try:
                heard.reply = await exchange(
                    connection,
                    form,
                    request,
                    provider=provider,
                    on_delta=heard.deltas.append,
                    finish_required=finish_required,
                    **more,
                )
            except ModelError as error:
                heard.fault = error

    run(main())
    return heard


def reply(form: Format, answer: Answer, request: ModelRequest = ASKED, **more: Any) -> ModelReply:
    """The reply; a fault is the test's failure."""
    heard = hear(form, answer, request, **more)
    if heard.fault is not None:
        raise heard.fault
    assert heard.reply is not None
    assert len(heard.seen) == 1
    return heard.reply


def fault(form: Format, answer: Answer, request: ModelRequest = ASKED, **more: Any) -> ModelError:
    """The fault; a reply is the test's failure, and so is a second request."""
    heard = hear(form, answer, request, **more)
    assert heard.reply is None
    assert heard.fault is not None
    assert len(heard.seen) == 1
    return heard.fault


def run(main: Coroutine[Any, Any, Any]) -> Any:
    """Run it in a loop of its own; nothing may be left unclosed or fail unseen in it."""
    unseen: list[dict[str, Any]] = []
    with asyncio.Runner() as runner:
        runner.get_loop().set_exception_handler(lambda _, context: unseen.append(context))
        result = runner.run(main)
    gc.collect(0)  # warnings about what was left unclosed are errors, and come now
    assert not unseen
    return result


def asked(**changes: Any) -> ModelRequest:
    """The usual request with changes."""
    return msgspec.structs.replace(ASKED, **changes)
