"""From the library's exceptions to one class of fault."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping

import httpx2
from pydantic_ai import exceptions as lib

from cairn.core.messages import clean
from cairn.errors import ErrorClass, ModelError
from cairn.models.classify import LOOKED_AT, NOT_A_REPLY, Signal, classify, signal_from_body
from cairn.models.retry_after import retry_after_s

_KINDS: tuple[tuple[type[Exception], str], ...] = (
    (lib.ModelRateLimitError, "rate_limit"),
    (lib.ModelQuotaExceededError, "quota"),
    (lib.ModelOverloadedError, "overloaded"),
    (lib.ModelUnavailableError, "unavailable"),
    (lib.ModelServerError, "server"),
    (lib.ModelRequestTimeout, "request_timeout"),
    (lib.ModelTimeoutError, "timeout"),
    (lib.ModelConnectionError, "connection"),
    (lib.ModelContextWindowExceededError, "context_window"),
    (lib.ModelAuthenticationError, "auth"),
    (lib.ModelNotFoundError, "not_found"),
    (lib.ModelRequestRejectedError, "rejected"),
    (lib.ContentFilterError, "content_filter"),
    (lib.UnexpectedModelBehavior, "bad_reply"),
    (httpx2.TimeoutException, "timeout"),
    (httpx2.TransportError, "connection"),
    (json.JSONDecodeError, "bad_reply"),
)
"""Typed facts, the special before the general."""
SHOWN = 600
CAUSES = 20
"""Errors behind an error that are looked at."""
LONGEST_WORDS = 50_000
"""Characters of an error that are looked through for keys."""
_PAGES = frozenset({"text/html", "application/xhtml+xml"})


def fault_of(
    error: Exception,
    provider: str,
    headers: Mapping[str, str],
    *,
    started: bool,
    hide: Callable[[str], str] = str,
) -> ModelError | None:
    """What failed, as the ladder knows it; None for a fault of our own, before anything was sent.

    Args:
        error: What the library raised.
        provider: The prefix users write.
        headers: Of the response, if there was one.
        started: Whether a part of a reply had already arrived. That it had begun to is also told
            by the headers: of a stream, or of a body that never came whole.
        hide: Takes keys out of a text: providers repeat those they refuse.
    """
    if isinstance(error, lib.UserError | NotImplementedError):
        said = f"{provider} cannot be asked like this: {error}"
        return ModelError(ErrorClass.INVALID_REQUEST, _shown(said, hide))
    kind = next((name for cls, name in _KINDS if isinstance(error, cls)), "")
    if not kind and not isinstance(error, lib.ModelAPIError):
        if not headers:
            return None
        kind = "bad_reply"  # the library stumbled over what came back
    return _of_provider(error, kind, provider, headers, started=started, hide=hide)


def is_clean(error: BaseException | None, hide: Callable[[str], str]) -> bool:
    """Whether an error and those behind it can be shown whole: no key is in their words."""
    for _ in range(CAUSES):
        if error is None:
            break
        words = f"{error} {error!r}"
        if len(words) > LONGEST_WORDS or hide(words) != words:
            return False
        error = error.__cause__ or error.__context__
    return True


def _shown(said: str, hide: Callable[[str], str]) -> str:
    return clean(hide(said[:LOOKED_AT]))[:SHOWN]


def _of_provider(
    error: Exception,
    kind: str,
    provider: str,
    headers: Mapping[str, str],
    *,
    started: bool,
    hide: Callable[[str], str],
) -> ModelError:
    status: int | None = None
    known = {**headers}
    in_stream = False
    body = ""
    if isinstance(error, lib.ModelAPIError):
        body = _text(error.body)
        in_stream = error.in_stream
    if isinstance(error, lib.ModelHTTPError):
        status = error.status_code
        known |= error.headers or {}
    if isinstance(error, lib.UnexpectedModelBehavior):
        body = error.body or ""
    started = started or _is_begun(headers, kind)
    signal = signal_from_body(
        provider, status, body, kind=kind, in_stream=in_stream, started=started
    )
    signal = _completed(signal, error)
    said = signal.message or str(error) or type(error).__name__
    if page := _no_reply(status, known):
        said = page
    elif kind == "bad_reply" and not started and _is_plain(status, known):
        said = f"answered with text/plain, {NOT_A_REPLY} ({said})"
    return ModelError(
        classify(signal),
        _shown(f"{provider}: {said}", hide),
        retry_after_s=retry_after_s(known, body, time.time()),
        status=None if in_stream else status,
        request_id=hide(known.get("x-request-id") or known.get("request-id") or ""),
    )


def _no_reply(status: int | None, headers: Mapping[str, str]) -> str:
    """What is said of a success with a page in it: whoever answered is no provider."""
    kind = headers.get("content-type", "").partition(";")[0].strip().lower()
    if (status is None or status < 300) and kind in _PAGES:
        return f"answered with {kind}, {NOT_A_REPLY}"
    return ""


def _is_plain(status: int | None, headers: Mapping[str, str]) -> bool:
    kind = headers.get("content-type", "")
    return (status is None or status < 300) and kind.startswith("text/plain")


def _is_begun(headers: Mapping[str, str], kind: str) -> bool:
    """Whether the provider was at work on a reply, although nothing of it can be shown."""
    is_stream = headers.get("content-type", "").startswith("text/event-stream")
    return is_stream or (kind == "connection" and bool(headers))


def _completed(signal: Signal, error: Exception) -> Signal:
    """The signal with what the library read out of the body, where the body itself is gone."""
    codes = [signal.code]
    if isinstance(error, lib.ModelAPIError):
        found = (error.provider_error_code, error.provider_error_type)
        codes += [c for c in found if c and c not in signal.code]
    cause = error.__cause__
    words = signal.message or str(error)
    if cause is not None and not signal.message:
        words = f"{words} ({type(cause).__name__}: {cause})"
    return Signal(
        provider=signal.provider,
        kind=signal.kind,
        status=signal.status,
        code=" ".join(filter(None, codes)),
        message=words,
        in_stream=signal.in_stream,
        started=signal.started,
    )


def _text(body: object) -> str:
    if body is None:
        return ""
    if isinstance(body, str):
        return body
    try:
        return json.dumps(body, ensure_ascii=False, default=str)
    except (TypeError, ValueError, RecursionError):
        return str(body)
