"""One connection to a server: made, kept and ended by one task, used by any number of calls."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from typing import Any, Protocol

from cairn.core.messages import Record
from cairn.mcp.asking import MAX_NOTES, Elicitation, OnElicit, answer, note
from cairn.mcp.faults import Down, first_of, sdk_words
from cairn.mcp.sent import SENT, Sent
from cairn.tools.text import shorten
from cairn.version import __version__

MAX_TOOLS = 500
MAX_PAGES = 50
MAX_ROUNDS = 8
"""How often one call may come back with questions."""
UNSUPPORTED = -32_022
PROGRESS_S = 0.1
"""Reports of one call that come closer together are dropped."""

log = logging.getLogger("cairn")


class Wire(Protocol):
    """What carries messages to a server and back."""

    @property
    def closed(self) -> bool:
        """Whether nothing can be sent any more."""
        ...

    def streams(self) -> Any:
        """A context manager with both directions."""
        ...

    def told(self) -> str:
        """What the server said last beside the protocol."""
        ...

    def stop(self, why: str) -> None:
        """The connection is over."""
        ...


class Settings(Record, gc=True):
    """What a connection goes by."""

    name: str
    wire: Callable[[Callable[[str], None]], Wire]
    connect_s: float
    roots: tuple[str, ...] = ()
    """Addresses of folders."""
    on_elicit: OnElicit | None = None
    on_list: Callable[[], None] | None = None


class Work(Record, gc=True):
    """A call at work: what the server may say meanwhile belongs to one of these."""

    label: str
    notes: list[str]


class Offer(Record, gc=True):
    """What a server has, as it says itself."""

    tools: tuple[Any, ...]
    resources: bool
    prompts: bool
    version: str
    info: str


class Connection:
    """One life of a connection. `start` it once; when it has ended, make another."""

    def __init__(self, settings: Settings) -> None:
        self.why = ""
        self._settings = settings
        self._end = asyncio.Event()
        self._keeper: asyncio.Task[None] | None = None
        self._session: Any = None
        self._wire: Wire = settings.wire(self._ended)
        self._work: dict[int, Work] = {}
        self._hello = Sent("initialize")

    @property
    def alive(self) -> bool:
        """Whether it can be used."""
        return self._session is not None and not self._end.is_set() and not self._wire.closed

    def told(self) -> str:
        """What the server said last beside the protocol."""
        return self._wire.told()

    async def start(self) -> Offer:
        """Connect, and hear what the server has.

        Raises:
            Down: it cannot be reached, or does not speak the protocol.
            ConfigError: it cannot be started here at all.
        """
        up: asyncio.Future[Offer] = asyncio.get_running_loop().create_future()
        self._keeper = asyncio.create_task(self._keep(up), name=f"mcp {self._settings.name}")
        try:
            return await up
        except asyncio.CancelledError:
            await self.close()
            raise

    async def close(self) -> None:
        """End it; calls at work come back as lost."""
        self._ended("it was closed")
        if self._keeper is not None:
            await asyncio.wait({self._keeper})

    def _ended(self, why: str) -> None:
        if not self._end.is_set():
            self.why = why
            self._end.set()

    async def _keep(self, up: asyncio.Future[Offer]) -> None:
        """The whole life, in one task, as the SDK's scopes ask for."""
        from cairn.errors import ConfigError

        name = self._settings.name
        SENT.set(self._hello)
        try:
            async with AsyncExitStack() as stack:
                async with asyncio.timeout(self._settings.connect_s):
                    offer = await self._open(stack)
                up.set_result(offer)
                await self._end.wait()
        except ConfigError as error:
            self._fail(up, error)
        except Exception as error:  # whatever the SDK raises, this connection is over
            late = f"it did not answer within {self._settings.connect_s:g} s"
            said = late if isinstance(first_of(error), TimeoutError) else sdk_words(error)
            self._fail(up, Down(self._down(said)))
            log.debug("the connection to the MCP server %s ended", name, exc_info=True)
        finally:
            self._session = None
            self._ended(self.why or "it has ended")

    def _down(self, said: str) -> str:
        told = self._wire.told()
        why = f"{self.why}; {said}" if self.why else said
        if self._hello.status >= 300 or self._hello.problem:
            why = f"HTTP {self._hello.status}, {why}" if self._hello.status else self._hello.problem
        heard = f" (it said: {told})" if told else ""
        return shorten(f"MCP server {self._settings.name} cannot be reached: {why}{heard}", 1_500)

    def _fail(self, up: asyncio.Future[Offer], error: Exception) -> None:
        self.why = self.why or str(error)
        if not up.done():
            up.set_exception(error)

    async def _open(self, stack: AsyncExitStack) -> Offer:
        from mcp import ClientSession
        from mcp.shared.exceptions import MCPError
        from mcp_types import Implementation

        read, write = await stack.enter_async_context(self._wire.streams())
        make: Any = ClientSession  # its callbacks are typed by protocols of its own
        session = make(
            read,
            write,
            elicitation_callback=self._elicit,
            list_roots_callback=self._roots if self._settings.roots else None,
            logging_callback=self._log,
            message_handler=self._heard,
            client_info=Implementation(name="cairn", version=__version__),
        )
        await stack.enter_async_context(session)
        try:
            await session.initialize()
        except MCPError as error:
            if error.code != UNSUPPORTED:
                raise
            await session.discover()  # a server of the newest protocol only
        self._session = session
        has = session.server_capabilities
        info = session.server_info
        return Offer(
            tools=await self.tools() if has is not None and has.tools is not None else (),
            resources=has is not None and has.resources is not None,
            prompts=has is not None and has.prompts is not None,
            version=session.protocol_version or "",
            info=shorten(f"{info.name} {info.version}".strip(), 200) if info is not None else "",
        )

    # ---------------------------------------------------------------- asking the server

    async def tools(self) -> tuple[Any, ...]:
        """Its tools as it lists them now, on all pages."""
        from mcp_types import PaginatedRequestParams

        found: list[Any] = []
        cursor: str | None = None
        for _ in range(MAX_PAGES):
            page = PaginatedRequestParams(cursor=cursor) if cursor else None
            listed = await self._session.list_tools(params=page)
            found += listed.tools
            before, cursor = cursor, listed.next_cursor
            if not cursor or cursor == before or len(found) > MAX_TOOLS:
                break
        if len(found) > MAX_TOOLS:
            log.warning("%s lists over %d tools; the rest is left", self._settings.name, MAX_TOOLS)
        return tuple(found[:MAX_TOOLS])

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        work: Work,
        progress: Callable[[str, float | None], None],
    ) -> Any:
        """One call, and what the server answered; questions on the way are declined or answered.

        Raises: what the SDK raises.
        """
        from mcp_types import (
            CallToolRequest,
            CallToolRequestParams,
            CallToolResult,
            InputRequiredResult,
        )
        from pydantic import TypeAdapter

        whole: Any = TypeAdapter(CallToolResult | InputRequiredResult)

        async def ask(responses: Any, state: str | None) -> Any:
            params = CallToolRequestParams(
                name=tool,
                arguments=dict(arguments),
                input_responses=responses,
                request_state=state,
            )
            return await self._session.send_request(
                CallToolRequest(params=params), whole, progress_callback=_reports(progress)
            )

        return await self._whole(ask, work)

    async def resources(self) -> list[Any]:
        """What it has to read, as it lists it; the first page is enough for a model."""
        listed = await self._session.list_resources()
        return list(listed.resources)

    async def read(self, uri: str, work: Work) -> Any:
        """The contents of one resource."""

        async def ask(responses: Any, state: str | None) -> Any:
            return await self._session.read_resource(
                uri, input_responses=responses, request_state=state, allow_input_required=True
            )

        return await self._whole(ask, work)

    async def prompts(self) -> list[Any]:
        """Its prompts, as it lists them."""
        listed = await self._session.list_prompts()
        return list(listed.prompts)

    async def prompt(self, name: str, arguments: Mapping[str, str], work: Work) -> Any:
        """One prompt, filled in."""

        async def ask(responses: Any, state: str | None) -> Any:
            return await self._session.get_prompt(
                name,
                dict(arguments),
                input_responses=responses,
                request_state=state,
                allow_input_required=True,
            )

        return await self._whole(ask, work)

    async def _whole(self, ask: Callable[[Any, str | None], Awaitable[Any]], work: Work) -> Any:
        """What comes of a request, its rounds of questions included."""
        from mcp_types import InputRequiredResult

        key = id(work)
        self._work[key] = work
        try:
            found = await ask(None, None)
            for _ in range(MAX_ROUNDS):
                if not isinstance(found, InputRequiredResult):
                    return found
                found = await ask(await self._inputs(found), found.request_state)
            raise RuntimeError(f"the server asked for input {MAX_ROUNDS} times and gave no answer")
        finally:
            del self._work[key]

    # ---------------------------------------------------------------- what the server asks for

    async def _inputs(self, required: Any) -> dict[str, Any]:
        """An answer for each question of a server of the newest protocol."""
        from mcp.shared.exceptions import MCPError
        from mcp_types import ElicitRequest, ErrorData, ListRootsRequest

        answers: dict[str, Any] = {}
        for key, request in (required.input_requests or {}).items():
            if isinstance(request, ElicitRequest):
                given = await self._elicit(None, request.params)
            elif isinstance(request, ListRootsRequest) and self._settings.roots:
                given = await self._roots(None)
            else:
                given = ErrorData(code=-32_600, message="not supported by this client")
            if isinstance(given, ErrorData):
                raise MCPError.from_error_data(given)
            answers[key] = given
        return answers

    async def _elicit(self, _context: Any, params: Any) -> Any:
        from mcp_types import ElicitResult

        asked = Elicitation(
            server=self._settings.name,
            message=shorten(params.message, 4_000),
            schema=_schema_of(params),
            url=str(getattr(params, "url", "") or ""),
            calls=tuple(work.label for work in self._work.values()),
        )
        action, content = await answer(asked, self._settings.on_elicit)
        for work in self._work.values():
            if len(work.notes) < MAX_NOTES:
                work.notes.append(note(asked, action))
        filled = content if action == "accept" and not asked.url else None
        return ElicitResult(action=action, content=filled)  # type: ignore[arg-type]  # one of three

    async def _roots(self, _context: Any) -> Any:
        from mcp_types import ListRootsResult, Root

        make: Any = Root  # pydantic reads the address from text
        return ListRootsResult(roots=[make(uri=root) for root in self._settings.roots])

    async def _log(self, params: Any) -> None:
        said = shorten(str(params.data), 500)
        log.debug("MCP server %s: %s: %s", self._settings.name, params.level, said)

    async def _heard(self, message: Any) -> None:
        if getattr(message, "method", "") == "notifications/tools/list_changed":
            if self._settings.on_list is not None:
                self._settings.on_list()
        elif isinstance(message, Exception):
            log.debug("MCP server %s: %s", self._settings.name, sdk_words(message))


def _schema_of(params: Any) -> dict[str, Any]:
    schema = getattr(params, "requested_schema", None)
    if schema is None:
        return {}
    dumped = schema if isinstance(schema, dict) else schema.model_dump(by_alias=True, mode="json")
    return dict(dumped)


def _reports(progress: Callable[[str, float | None], None]) -> Any:
    """Progress of one call, thinned out: a server may report as often as it likes."""
    loop = asyncio.get_running_loop()
    last = [-1.0]

    async def report(done: float, total: float | None, message: str | None) -> None:
        now = loop.time()
        fraction = done / total if total else None
        if now - last[0] < PROGRESS_S and fraction != 1:
            return
        last[0] = now
        told = message or (f"{done:g} of {total:g}" if total else f"{done:g}")
        progress(told, fraction)

    return report


async def marked(sent: Sent, work: Awaitable[Any]) -> Any:
    """What comes of it, while the wire marks how far the request gets."""
    token = SENT.set(sent)
    try:
        return await work
    finally:
        SENT.reset(token)
