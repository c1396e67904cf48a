"""One small request to a model: what it took and cost, or what went wrong and what to do."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress
from typing import Any

from cairn.cli.plain import money, visible_line
from cairn.core.messages import Record, user
from cairn.core.names import nearest
from cairn.core.views.words import tokens
from cairn.errors import CairnError, ConfigError, ErrorClass, ModelError, said_by, words_of
from cairn.models.catalogue import SILENCE, Listed, meant, shown_address, some
from cairn.models.classify import NOT_A_REPLY
from cairn.models.endpoints import ENDPOINTS, Endpoint
from cairn.models.hiding import Hider
from cairn.ports import Model, ModelReply, ModelRequest

QUESTION = "Answer with the word ok."
MAX_OUTPUT = 64
TIMEOUT_S = 20.0
LIST_S = 5.0
"""How long a provider is waited for that is asked which models it has."""
SHOWN = 300

ADVICE: dict[ErrorClass, str] = {
    ErrorClass.AUTH: "{key}",
    ErrorClass.MODEL_NOT_FOUND: "{known}",
    ErrorClass.NETWORK: "nobody could be reached at {where}: is the address right ({url}), is "
    "the server up, is there a proxy?",
    ErrorClass.TIMEOUT: "no reply in {limit:g} s from {where}: try again; a model that is loaded "
    "for the first request takes longer",
    ErrorClass.RATE_LIMITED: "too many requests for this key: try again {wait}; "
    "RemoteModel(traffic=…) keeps a process below the limit",
    ErrorClass.QUOTA_EXHAUSTED: "the account has no credit or quota left: see the provider's page "
    "of billing",
    ErrorClass.OVERLOADED: "the provider is overloaded: try again {wait}; Agent(fallback_models=…) "
    "names others to go on with",
    ErrorClass.UNAVAILABLE: "the provider has a fault: try again {wait}; Agent(fallback_models=…) "
    "names others to go on with",
    ErrorClass.STREAM_INTERRUPTED: "the reply was cut: try again; RemoteModel(stream=False) is for "
    "servers that stream badly, finish_required=False for those that never say they are done",
    ErrorClass.INVALID_REQUEST: "the request is not taken in this form: look at the settings of "
    "the model, and whether {where} speaks {wire}",
    ErrorClass.MALFORMED_OUTPUT: "what came is no reply in this format: does {where} speak {wire}?",
    ErrorClass.CONTENT_FILTERED: "the provider's filter refused a harmless request: look at the "
    "filters of the account",
    ErrorClass.CONTEXT_OVERFLOW: "the request was tiny: the server's window is set too small",
    ErrorClass.REQUEST_TOO_LARGE: "the request was tiny: something before {where} refuses it",
}
"""What to do about each class of fault that a provider, a wire or a server can have."""
A_PAGE = "what stands at {where} is no server of models, or not at this path: look at {url}; it "
A_PAGE += "should speak {wire}"


class Trip(Record):
    """How a round trip went."""

    ok: bool
    text: str


def round_trip(model: Model) -> Trip:
    """Ask the model for one word. This costs a little, where a model costs anything."""
    began = time.monotonic()
    try:
        reply = asyncio.run(_ask(model))
    except ModelError as error:
        said = f"{error.error_class}: {without_keys(said_by(error))}"
        status = f" (HTTP {error.status})" if error.status else ""
        number = f" · request id {error.request_id}" if error.request_id else ""
        return Trip(ok=False, text=f"{said}{status}{number}. To do: {advice(error, model)}")
    except Exception as error:  # a model of the application's own may fail in any way
        said = without_keys(words_of(error))
        return Trip(ok=False, text=f"the model's own code failed: {said}")
    return Trip(ok=True, text=_story(reply, model, time.monotonic() - began))


async def _ask(model: Model) -> ModelReply:
    request = ModelRequest(
        system="",
        messages=(user(QUESTION),),
        max_output=min(MAX_OUTPUT, model.max_output),
        timeout_s=TIMEOUT_S,
    )
    try:
        async with asyncio.timeout(TIMEOUT_S + 1):
            return await model.request(request)
    except TimeoutError as error:
        said = f"no reply within {TIMEOUT_S:g} s"
        raise ModelError(ErrorClass.TIMEOUT, said) from error
    finally:
        close = getattr(model, "close", None)
        if close is not None:
            with suppress(CairnError, OSError):
                await close()


def _story(reply: ModelReply, model: Model, seconds: float) -> str:
    """Latency, first token, tokens, cost, and what to name when asking the provider about it."""
    pieces = [f"round trip in {seconds:.2f} s"]
    if reply.first_token_us:
        pieces.append(f"first token after {reply.first_token_us / 1e6:.2f} s")
    if reply.usage is None:
        pieces.append("it did not say how many tokens")
    else:
        price = model.price
        cost = "price unknown" if price is None else money(price.cost(reply.usage))
        pieces += [tokens(reply.usage), cost]
    if reply.finish == "length":
        pieces.append(f"cut after {MAX_OUTPUT} tokens, as models that think at length are")
    if reply.model not in {"", model.name, model.name.partition(":")[2]}:
        pieces.append(f"answered by {reply.model}")
    if reply.request_id:
        pieces.append(f"request id {reply.request_id}")
    return visible_line(" · ".join(pieces), 2 * SHOWN)


# ---------------------------------------------------------------- what to do


def advice(error: ModelError, model: Model) -> str:
    """What to do about a fault of this model."""
    text = ADVICE.get(error.error_class, "see docs/limits-and-errors.md")
    if NOT_A_REPLY in str(error):  # of the class of faults that pass, but a page stays a page
        text = A_PAGE
    endpoint = ENDPOINTS.get(model.name.partition(":")[0])
    wait = error.retry_after_s
    facts: dict[str, Any] = {
        "key": _about_key(endpoint, model),
        "url": url_of(model),
        "where": where_of(model) or "the server",
        "wire": "the format that is expected"
        if endpoint is None
        else f"the format {endpoint.wire!r}",
        "known": "",
        "wait": f"in {wait:g} s, as it asks" if wait else "later",
        "limit": TIMEOUT_S,
    }
    if error.error_class is ErrorClass.MODEL_NOT_FOUND:
        facts["known"] = _known(model)
    return text.format_map(facts)


def _about_key(endpoint: Endpoint | None, model: Model) -> str:
    """Whose key is refused, and where a good one belongs."""
    source = getattr(model, "key_from", "")
    variable = endpoint.keys[0] if endpoint is not None and endpoint.keys else ""
    if not source and variable:
        return f"it was asked without a key and wants one: export {variable}=…, or give api_key="
    if source == "api_key=" or not source:
        refused, mend = f"the key {f'in {source}' if source else ''}".rstrip(), "give a good one"
    else:
        refused, mend = f"the key in {source}", "export a good one"
    page = "look at the provider's page of keys"
    return f"{refused} is refused, or may not use this model: {page}, and {mend}"


def url_of(model: Model) -> str:
    """What says where the model's requests go, as it may be named to people."""
    source: str = getattr(model, "address_from", "")
    endpoint = ENDPOINTS.get(model.name.partition(":")[0])
    return source or (endpoint.url_key if endpoint is not None else "") or "base_url="


def listed_by(model: Model) -> Listed:
    """The models of its server, asked as the model itself is: at its address, with its key."""
    look = getattr(model, "listed", None)
    try:
        found: Listed = SILENCE if look is None else look(LIST_S)
    except ConfigError:
        return SILENCE
    return found


def _known(model: Model) -> str:
    """Which name was probably meant: the server's word, or that of the price data."""
    name = model.name.partition(":")[2]
    listed = listed_by(model)
    if listed.models:
        close = nearest(name, listed.models)
        return f"did you mean {' or '.join(close)}?" if close else f"it has {some(listed.models)}"
    own = getattr(model, "address_from", "")
    guess = "" if own == "base_url=" else meant(model.name).lstrip(". ")
    if own == "base_url=" and listed.said != "silence":
        return f"{where_of(model)} lists no models: look there what the model is called"
    return guess or "cairn models lists what can be used here"


def where_of(model: Model) -> str:
    """Where the model's requests go, as it may be shown; empty if that is nowhere or unknown."""
    try:
        return shown_address(getattr(model, "base_url", ""))
    except ConfigError:
        return ""


def without_keys(text: str) -> str:
    """A message on one line, without the keys that providers repeat in it, whole or in part."""
    return visible_line(Hider().text(text), SHOWN)
