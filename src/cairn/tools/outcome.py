"""What a tool's exception says about its effect: failed, certainly not done, or nobody knows.

A tool that is not `read` and ends in a time-out or a lost connection may have done its work all
the same: that is *unsure*, and an unsure call is never repeated by itself (law 4). The author
knows better by raising `NotDone` (nothing happened) or `ToolError` (it failed for certain).
"""

from __future__ import annotations

from asyncio import CancelledError
from collections.abc import Iterator
from typing import Literal

from cairn.core.events import Effect
from cairn.core.messages import Record
from cairn.errors import ErrorClass, NotDone, ToolError, ToolSignal, Unsure, said_by, words_of
from cairn.tools.text import shorten

MESSAGE_CHARS = 2_000
"""What is recorded of an exception's words."""
DESCRIBED_CHARS = MESSAGE_CHARS + 16_384
"""What is read of them: they are cut after secrets were taken out, never through one."""
CHAIN = 10
"""How far back the causes of an exception are followed."""

TIMEOUTS = frozenset(
    {"Timeout", "TimeoutError", "TimeoutException", "TimeoutExpired", "DeadlineExceeded"}
    | {"ReadTimeout", "ConnectTimeout", "WriteTimeout", "PoolTimeout", "ConnectTimeoutError"}
    | {"ReadTimeoutError", "ServerTimeoutError", "SocketTimeoutError", "APITimeoutError"}
    | {"ConnectionTimeoutError"}
)
"""Names of time-outs of httpx, requests, aiohttp, urllib3, botocore and what is built on them."""
LOST = frozenset(
    {"ConnectionError", "NetworkError", "RemoteProtocolError", "ProxyError", "APIConnectionError"}
    | {"ClientConnectionError", "ClientPayloadError", "ServerDisconnectedError"}
    | {"IncompleteRead", "IncompleteReadError", "ChunkedEncodingError", "ConnectionClosedError"}
    | {"EndpointConnectionError", "NewConnectionError", "MaxRetryError", "ConnectionClosed"}
)
"""Names of lost connections, likewise: the libraries need not be installed to be known."""


class Outcome(Record):
    """What is known about a call that raised.

    Args:
        kind: `failed` is a known failure, `not_done` says that nothing happened, `unsure` that
            it may have.
        error_class: What kind of fault it was.
        message: For the model and for people.
    """

    kind: Literal["failed", "not_done", "unsure"]
    error_class: ErrorClass
    message: str


def classify(error: BaseException, effect: Effect) -> Outcome:
    """What an exception of a tool with this effect says about the call."""
    try:
        return _classified(error, effect)
    except BaseException:  # even its attributes may be code of the user's: then nobody knows
        kind: Literal["failed", "unsure"] = "failed" if effect == "read" else "unsure"
        name = type(error).__name__
        return Outcome(kind=kind, error_class=ErrorClass.TOOL_ERROR, message=name)


def _classified(error: BaseException, effect: Effect) -> Outcome:
    error_class = _error_class(error)
    message = describe(error)
    if isinstance(error, NotDone):
        return Outcome(kind="not_done", error_class=error_class, message=message)
    doubtful = effect != "read" and _is_doubtful(error)
    kind: Literal["failed", "unsure"] = "unsure" if doubtful else "failed"
    return Outcome(kind=kind, error_class=error_class, message=message)


def describe(error: BaseException) -> str:
    """The exception in words: a tool's own signal as it is, others with their type."""
    said = said_by(error) if isinstance(error, ToolSignal) else ""
    return shorten(said or words_of(error), DESCRIBED_CHARS)


def _is_doubtful(error: BaseException) -> bool:
    if isinstance(error, BaseExceptionGroup):
        return any(_is_doubtful(each) for each in error.exceptions)
    for each in _chain(error):
        if isinstance(each, Unsure | CancelledError) or _nature(each) is not None:
            return True
        if isinstance(each, ToolSignal):  # its author has looked at what is behind it
            return False
    return False


def _error_class(error: BaseException) -> ErrorClass:
    if isinstance(error, ToolError):
        return error.error_class
    for each in _chain(error):
        if (nature := _nature(each)) is not None:
            return nature
    return ErrorClass.TOOL_ERROR


def _chain(error: BaseException) -> Iterator[BaseException]:
    """The exception and those it was raised from or while handling, `from None` respected."""
    following: BaseException | None = error
    for _ in range(CHAIN):
        if following is None:
            return
        yield following
        hidden = following.__suppress_context__
        following = following.__cause__ or (None if hidden else following.__context__)


def _nature(error: BaseException) -> ErrorClass | None:
    names = {each.__name__ for each in type(error).__mro__}
    if names & TIMEOUTS:
        return ErrorClass.TOOL_TIMEOUT
    return ErrorClass.TOOL_UNAVAILABLE if names & LOST else None
