"""`RemoteModel`: a provider's model behind our port; nothing of a vendor loads before first use."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

from cairn.core.limits import FREE, Price
from cairn.errors import ConfigError, ErrorClass, ModelError
from cairn.models import LOCAL, check_model, option_values
from cairn.models.action import AnswerShown, decode, encode
from cairn.models.endpoints import (
    ENDPOINTS,
    EXTRAS,
    PACKAGES,
    Endpoint,
    address_of,
    address_variable,
    given_key,
    is_private,
    key_of,
    key_variable,
)
from cairn.models.traffic import TrafficLimits, lane_for, lane_key
from cairn.ports import Lane, ModelReply, ModelRequest, OnDelta

if TYPE_CHECKING:
    from cairn.models.catalogue import Listed
    from cairn.models.wire.clients import Connection

WINDOW = 128_000
MAX_OUTPUT = 8_192
TIMEOUT_S = 300.0
STALL_S = 120.0


class RemoteModel:
    """A model of a provider, found by `provider:name`.

    Args:
        name: `openai:gpt-5`, `anthropic:claude-sonnet-5`, `ollama:qwen3` … `cairn models` lists
            the providers.
        base_url: Where the server is, if not at the provider's own address.
        api_key: The key; by default the provider's environment variable.
        price: What its tokens cost. By default looked up in the price data that comes with the
            `providers` extra; a server of one's own on a private address costs nothing; else
            unknown.
        window: Tokens of a request and its reply together; looked up, or 128,000.
        max_output: Tokens a reply is given room for; 8,192, or half of a smaller `window`.
        timeout_s: Deadline of one request; 300 s.
        stall_s: How long the wire may be silent; 120 s.
        stream: Whether replies are streamed: it gives the time to the first token, and notices a
            stall. Off for servers that stream badly.
        takes_tools: False for a model that cannot call tools: it answers with one JSON action.
        traffic: Bounds shared by all requests to this provider from this process.
        cache: Whether to mark the stable prefix for the provider's prompt cache.
        finish_required: False for a server that never sends a finish reason. Cut replies cannot
            be told from whole ones then.
        settings: temperature, top_p, top_k, seed, stop_sequences, presence_penalty,
            frequency_penalty, parallel_tool_calls, thinking, extra_body.
        headers: More headers for every request.

    Raises:
        ConfigError: the provider is not known, or a value cannot be used.
    """

    def __init__(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        name: str,
        *,
        base_url: str = "",
        api_key: str = "",
        price: Price | None = None,
        window: int = 0,
        max_output: int | None = None,
        timeout_s: float = TIMEOUT_S,
        stall_s: float = STALL_S,
        stream: bool = True,
        takes_tools: bool = True,
        traffic: TrafficLimits | None = None,
        cache: bool = True,
        finish_required: bool = True,
        settings: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._endpoint, self._model = _found(name)
        self.name = name
        if max_output is None:
            max_output = option_values.room(window, MAX_OUTPUT)
        self.max_output = option_values.count("max_output", max_output)
        self.timeout_s = option_values.number("timeout_s", timeout_s)
        self.takes_tools = option_values.switch("takes_tools", takes_tools)
        self._stall_s = option_values.number("stall_s", stall_s)
        self._given_url = option_values.text("base_url", base_url)
        self._given_key = option_values.text("api_key", api_key)
        self._price = option_values.price(price)
        self._priced: list[Price | None] = []
        self._given_window = option_values.window(window, self.max_output)
        self._stream = option_values.switch("stream", stream)
        self._traffic = option_values.traffic(traffic)
        self._cache = option_values.switch("cache", cache)
        self._finish_required = option_values.switch("finish_required", finish_required)
        self._settings = option_values.settings(settings)
        self._headers = option_values.headers(headers)
        if base_url:
            address_of(self._endpoint, base_url)
        self._lane: Lane | None = None
        self._open: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Future[Connection]]
        self._open = WeakKeyDictionary()

    def __repr__(self) -> str:
        return f"RemoteModel({self.name!r})"

    # ---------------------------------------------------------------- what is known of it

    @property
    def base_url(self) -> str:
        """Where requests go.

        Raises:
            ConfigError: nobody says it.
        """
        return address_of(self._endpoint, self._given_url)

    @property
    def address_from(self) -> str:
        """Who says where requests go: `base_url=`, a variable, or empty for the provider's own."""
        if self._given_url.strip():
            return "base_url="
        return address_variable(self._endpoint)

    @property
    def key_from(self) -> str:
        """Who gives the key: `api_key=` or a variable; empty when it is asked without one."""
        return "api_key=" if self._given_key.strip() else key_variable(self._endpoint)

    def listed(self, timeout_s: float) -> Listed:
        """What its server says it has, asked where and with what key the model itself is.

        Args:
            timeout_s: How long the server may be silent.

        Raises:
            ConfigError: the address or the key is missing.
        """
        from cairn.models.catalogue import asked

        key = key_of(self._endpoint, self._given_key)
        return asked(self._endpoint, self.base_url, key, timeout_s)

    @property
    def price(self) -> Price | None:
        """What its tokens cost; None when nobody knows. The first look loads the price data."""
        if self._price is not None:
            return self._price
        if not self._priced:
            self._priced.append(self._found_price())
        return self._priced[0]

    def _found_price(self) -> Price | None:
        from cairn.models.prices import find_price

        if self._endpoint.free_key and is_private(self.base_url):
            return FREE
        return find_price(self._endpoint.price_name, self._model, self._elsewhere())

    def _elsewhere(self) -> str:
        """The address, unless it is the provider's own: whoever stands there sets the price."""
        base_url = self.base_url
        return base_url if base_url != self._endpoint.base_url else ""

    @property
    def window(self) -> int:
        """Tokens of a request and its reply together."""
        if self._given_window:
            return self._given_window
        from cairn.models.prices import find_window

        found = find_window(self._endpoint.price_name, self._model, self._elsewhere())
        return found or WINDOW

    @property
    def lane(self) -> Lane:
        """The way to this provider, shared by all runs of the process."""
        if self._lane is None:
            key = given_key(self._endpoint, self._given_key)
            named = lane_key(self._endpoint.provider, self.base_url, key)
            self._lane = lane_for(named, self._traffic)
        return self._lane

    def check(self) -> None:
        """Look whether it could be asked: package, address and key are there.

        Raises:
            ConfigError: one is missing; the message says what to do.
        """
        package = PACKAGES[self._endpoint.wire]
        for needed in ("pydantic_ai", "google.genai" if package == "google" else package):
            if not _is_installed(needed):
                raise ConfigError(
                    self.name, f"the package {needed} is not installed", f"Run: {EXTRAS}"
                )
        address_of(self._endpoint, self._given_url)
        key_of(self._endpoint, self._given_key)

    # ---------------------------------------------------------------- asking it

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Make one request.

        Raises:
            ModelError: the provider, the wire or the reply was at fault, or something is missing
                here that only a person can give: a key or a package.
        """
        try:
            connection = await self._connection()
        except ConfigError as error:
            raise ModelError(ErrorClass.AUTH, str(error)) from error
        from cairn.models.wire.exchange import Exchange

        exchange = Exchange(
            connection,
            self._endpoint,
            self._settings,
            stream=self._stream,
            cache=self._cache,
            finish_required=self._finish_required,
        )
        if request.output_mode != "action":
            return await exchange.make(request, on_delta)
        shown = AnswerShown(on_delta).feed if on_delta is not None else None
        return decode(await exchange.make(encode(request), shown), request)

    async def ready(self) -> None:
        """Load what a first request needs, so that its deadline is the provider's alone.

        Raises:
            ConfigError: as `check`.
        """
        await self._connection()

    async def _connection(self) -> Connection:
        """This loop's connection; the first one loads the vendor library in a thread."""
        loop = asyncio.get_running_loop()
        found = self._open.get(loop)
        if found is None or (found.done() and (found.cancelled() or found.exception())):
            self.check()
            found = asyncio.ensure_future(asyncio.to_thread(self._connect))
            self._open[loop] = found
        return await asyncio.shield(found)

    def _connect(self) -> Connection:
        from cairn.models.wire.clients import Address, Connection

        return Connection(
            Address(
                endpoint=self._endpoint,
                model=self._model,
                base_url=self.base_url,
                key=key_of(self._endpoint, self._given_key),
                stall_s=min(self._stall_s, self.timeout_s) if self._stream else self.timeout_s,
                finish_required=self._finish_required,
                headers=self._headers,
            )
        )

    async def close(self) -> None:
        """Give this loop's connections back; the next request opens new ones."""
        found = self._open.pop(asyncio.get_running_loop(), None)
        if found is not None:
            connection = await found
            await connection.close()


def model(provider: str, name: str) -> RemoteModel:
    """The model a `provider:name` string stands for."""
    return RemoteModel(f"{provider}:{name}")


def _found(name: object) -> tuple[Endpoint, str]:
    where = "RemoteModel.name"
    if not isinstance(name, str):
        fix = "Give a string such as 'openai:gpt-5-mini'"
        raise ConfigError(where, f"a {type(name).__name__} names no model", fix)
    check_model(name, where)
    provider, _, model_name = name.partition(":")
    if provider == LOCAL:
        fix = (
            f"Give the string {name!r} to Agent, or make it with "
            f"cairn.models.local.open_model({model_name!r})"
        )
        raise ConfigError(where, f"{name!r} runs in this process and is not remote", fix)
    return ENDPOINTS[provider], model_name


def _is_installed(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        return False
