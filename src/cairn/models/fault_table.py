"""The table of model faults, read from top to bottom; the first row that fits wins.

The order is that of trust, and the parts are named after it:

    CODE_ROWS      the provider's own code says it alone (`insufficient_quota`, `overloaded_error`)
    KIND_ROWS      the client library's typed error says it alone (a lost connection, a time-out)
    STATUS_ROWS    the HTTP status says it alone (401, 402, 529; 429 unless its words say more)
    WORD_ROWS      the provider's words, with words that must not be there
    GENERAL_ROWS   what a code or status used for many things means when nothing said more
    LAST_ROWS      nothing is known but where it happened

A code such as `invalid_request_error` and a status such as 400 stand for many faults: Anthropic
sends an empty account and an overlong prompt with both. So they decide last, not first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from cairn.core.messages import Record
from cairn.errors import ErrorClass


class Row(Record):
    """One line of the table. All facts that it names must be there.

    Args:
        name: What tests and traces call it.
        error_class: The class it gives.
        why: Who sends it, and why it is this class.
        code: Pattern that one word of the code must be, in lower case.
        kinds: The typed facts it is for.
        statuses: The statuses it is for; 0 stands for none.
        words: Pattern that the provider's words must hold, whatever their case.
        unless: Pattern that they must not hold.
        opened: Only when the stream had opened or a part of the reply had arrived.
    """

    name: str
    error_class: ErrorClass
    why: str
    code: str = ""
    kinds: frozenset[str] = frozenset()
    statuses: frozenset[int] = frozenset()
    words: str = ""
    unless: str = ""
    opened: bool = False


def _row(
    name: str,
    error_class: ErrorClass,
    why: str,
    *,
    on: Iterable[int] = (),
    kind: str = "",
    **more: Any,
) -> Row:
    return Row(
        name=name,
        error_class=error_class,
        why=why,
        kinds=frozenset(kind.split()),
        statuses=frozenset(on),
        **more,
    )


_E = ErrorClass
_NONE = {0}
_REFUSED = {0, *range(400, 500)}
_FAILED = {0, *range(500, 600)}
_RATE = (
    r"rate.?limit|per[ -]?(min|minute|sec|second)\b|/ ?min(ute)?\b|\b[tr]p[ms]\b|throttl"
    r"|too many requests|(try again|retry) (in|after) \d"
)
_MONEY = (
    r"credit balance|insufficient (balance|credits?|funds)|out of credits|requires more credits"
    r"|(used all available|exhausted your|not enough|monthly included|no remaining) credits"
    r"|credits? (are|is|have been|has been) (depleted|exhausted|used up)|payment required"
    r"|(monthly|usage|spend|spending|hard) limits?\b|in arrears|please recharge"
    r"|欠费|余额不足"
)
_QUOTA = (
    rf"{_MONEY}|insufficient_quota|exceeded your (current|monthly) quota|calls / month"
    r"|quota (has been |is |was )?(exhausted|used up|reached)|monthly quota"
    r"|free tier of the model has been exhausted"
)
_DAY = r"PerDay|per[ -]day\b|daily (quota|limit)"
_OVERLOAD = (
    r"overloaded|(at|over) capacity|capacity exceeded|high demand|heavy load"
    r"|servers? (is|are) (currently )?busy|server busy|maximum pending requests"
)
_OVERFLOW = (
    r"context_length_exceeded|exceed_context_size"
    r"|context[ _](length|window|size) (has been |is )?exceeded"
    r"|exceed(s|ed)? (the |this |its |model'?s |available |maximum |max )*"
    r"context[ _](length|window|size|limit)"
    r"|context window exceeds|maximum (context|prompt) length (is|of)|context length is only"
    r"|(greater|longer) than the (model'?s )?(maximum )?context length|prompt (is )?too long"
    r"|input is too long|input (token count|tokens)\b.{0,60}\b(exceed(s|ed)?|only supports)"
    r"|prompt token count of \d+ exceeds|exceeded model token limit|configured context size"
    r"|range of input length should be|reduce the length of the messages"
    r"|maximum allowed input length|maximum number of tokens allowed|too large for model with \d"
    r"|`inputs` tokens \+ `max_new_tokens`"
)
_FILTERED = (
    r"content management policy|flagged as potentially violating|content filtering policy"
    r"|input was flagged|flagged by (our |the )?moderation|content policy violation"
    r"|inappropriate content"
)
_BYTES = (
    r"(payload|body|image|file)\b.{0,40}\bexceeds? (the (size )?limit|(the )?maximum size|\d+ ?MB)"
    r"|request (entity|body) (is )?too large|payload too large|exceeds \d+ ?MB maximum"
)
_NO_MODEL = (
    r"\bmodel\b.{0,80}\b(does not exist|do(es)?n't exist|not exist|(is |was )?not found)"
    r"|not a valid model|unknown model|no such model|invalid model( name| id|:)"
    r"|model identifier is invalid"
)
_BAD_KEY = (
    r"api[ -]key (not valid|expired|is invalid|is missing)"
    r"|(incorrect|invalid|no|missing) api[ -]key"
    r"|location is not supported|authentication fail"
)
_NO_CONTACT = (
    r"connection (refused|reset|error|aborted)|getaddrinfo|name or service not known|ENOTFOUND"
    r"|ECONNREFUSED|ECONNRESET|certificate verify failed|network is unreachable|server disconnected"
)
_CUT = (
    r"incomplete chunked read|peer closed connection|ended prematurely|premature (close|end)"
    r"|unexpected eof|incompleteread|stream (was )?(closed|ended|interrupted|aborted)"
)

CODE_ROWS = (
    _row(
        "code_overflow",
        _E.CONTEXT_OVERFLOW,
        "OpenAI and Groq: context_length_exceeded; llama.cpp: exceed_context_size_error",
        code=r"context_(length|window)_exceeded(_error)?|exceed_context_size_error|context_exceeded"
        r"|model_context_window_exceeded|contextwindowexceedederror",
    ),
    _row(
        "code_wait_for_own_requests",
        _E.RATE_LIMITED,
        "OpenRouter sends 402 while other requests of the same key still hold the money: it passes",
        code=r"in_flight_budget_exhausted|openrouter_in_flight_budget",
    ),
    _row(
        "code_day_used_up",
        _E.QUOTA_EXHAUSTED,
        "Google names the limit in quotaId; a day's quota stays used up, whatever retryDelay says",
        code=r"\S*perday\S*",
    ),
    _row(
        "code_day_in_words",
        _E.QUOTA_EXHAUSTED,
        "Google, when only the words came through the client library",
        code=r"resource_exhausted",
        words=_DAY,
    ),
    _row(
        "code_google_money",
        _E.QUOTA_EXHAUSTED,
        "Google: prepaid credits are used up, under the same status as a passing limit",
        code=r"resource_exhausted",
        words=_MONEY,
        unless=_RATE,
    ),
    _row(
        "code_google_billing",
        _E.QUOTA_EXHAUSTED,
        "Google: no free tier where the key is used, so billing must be enabled first",
        code=r"failed_precondition",
        words=r"\bbilling\b",
    ),
    _row(
        "code_quota",
        _E.QUOTA_EXHAUSTED,
        "OpenAI insufficient_quota, Anthropic billing_error, Qwen Arrearage: waiting will not help",
        code=r"insufficient_quota|billing_(error|hard_limit_reached|not_active)|quota_exceeded"
        r"|usage_limit_(reached|exceeded)|credit_balance_exhausted|exceeded_current_quota_error|\S+_(spend|usage)_limit_exceeded|insufficient_balance"
        r"|arrearage|openrouter_credits|openrouter_key_limit|servicequotaexceededexception"
        r"|allocationquota\.freetieronly|payment_required",
    ),
    _row(
        "code_overloaded",
        _E.OVERLOADED,
        "Anthropic overloaded_error, OpenAI server_is_overloaded, Moonshot engine_overloaded_error",
        code=r"\S*overloaded(_error)?|slow_down|nocapacity|service_tier_capacity_exceeded",
    ),
    _row(
        "code_rate",
        _E.RATE_LIMITED,
        "OpenAI and Groq rate_limit_exceeded (Groq with 413 too), Google RESOURCE_EXHAUSTED",
        code=r"rate_limit(ed|_exceeded|_error|_reached|_reached_error)?|ratelimit(reached|exceeded)"
        r"|resource_exhausted|too_many_requests|throttl(ed|ing)\S*|limit_requests|tokens_limit_reached",
    ),
    _row(
        "code_filtered",
        _E.CONTENT_FILTERED,
        "Azure content_filter with ResponsibleAIPolicyViolation, Qwen DataInspectionFailed",
        code=r"content_?filter(ed)?|responsibleaipolicyviolation|\S*content_policy_violation"
        r"|moderation_blocked|data_?inspection_?failed|prohibited_content|cyber_policy\S*",
    ),
    _row(
        "code_malformed",
        _E.MALFORMED_OUTPUT,
        "Groq checks the reply itself and answers 400: the model wrote it, so the model is told",
        code=r"tool_use_failed|json_validate_failed|output_parse_failed",
    ),
    _row(
        "code_too_large",
        _E.REQUEST_TOO_LARGE,
        "Anthropic request_too_large: bytes, not tokens; compaction is no sure help",
        code=r"request_too_large|payload_too_large|request_entity_too_large",
    ),
    _row(
        "code_other_missing",
        _E.INVALID_REQUEST,
        "OpenAI: an earlier response is gone; another model would not have it either",
        code=r"previous_response_not_found|item_not_found|file_not_found",
    ),
    _row(
        "code_no_model",
        _E.MODEL_NOT_FOUND,
        "OpenAI model_not_found (with 400 or 404), Anthropic not_found_error, Azure",
        code=r"(model|resource)_?not_?found(_error|exception)?|not_found(_error)?|notfounderror"
        r"|deploymentnotfound|model_not_available|unknown_model|invalid_model",
    ),
    _row(
        "code_auth",
        _E.AUTH,
        "OpenAI invalid_api_key, Anthropic authentication_error, Google API_KEY_INVALID (with 400)",
        code=r"invalid_?api_?key|incorrect_api_key|authentication_error|authenticationerror"
        r"|unauthenticated|unauthorized|permission_(error|denied)|permissiondenied(error)?"
        r"|api_key_invalid|account_deactivated|insufficient_permissions|missing_scope|forbidden"
        r"|unsupported_country_region_territory|access_?denied(exception)?|service_disabled|ip_not_authorized",
    ),
    _row(
        "code_timeout",
        _E.TIMEOUT,
        "Anthropic timeout_error, Google DEADLINE_EXCEEDED: the server gave up waiting",
        code=r"timeout(_error)?|request_timeout|deadline_exceeded|modeltimeoutexception",
    ),
)
KIND_ROWS = (
    _row("kind_overloaded", _E.OVERLOADED, "typed by the client library", kind="overloaded"),
    _row(
        "kind_rate_in_words",
        _E.RATE_LIMITED,
        "typed as quota or context, though the words speak of a rate (tokens per minute)",
        kind="quota context_window",
        words=_RATE,
    ),
    _row("kind_quota", _E.QUOTA_EXHAUSTED, "typed by the client library", kind="quota"),
    _row(
        "kind_overflow", _E.CONTEXT_OVERFLOW, "typed by the client library", kind="context_window"
    ),
    _row(
        "kind_filtered", _E.CONTENT_FILTERED, "typed by the client library", kind="content_filter"
    ),
    _row(
        "kind_timeout",
        _E.TIMEOUT,
        "our own clock ended it, before the first word or later",
        kind="timeout request_timeout",
    ),
    _row(
        "kind_cut",
        _E.STREAM_INTERRUPTED,
        "the connection was lost after the stream had opened",
        kind="connection",
        opened=True,
    ),
    _row("kind_network", _E.NETWORK, "refused, reset, no such host, TLS", kind="connection"),
    _row(
        "kind_interrupted",
        _E.STREAM_INTERRUPTED,
        "the stream ended without a finish reason or with an unreadable event",
        kind="interrupted",
    ),
)
STATUS_ROWS = (
    _row("status_401", _E.AUTH, "no key, or a wrong one; 407: the proxy wants one", on={401, 407}),
    _row("status_402", _E.QUOTA_EXHAUSTED, "DeepSeek, OpenRouter, HF: no money", on={402}),
    _row("status_408", _E.TIMEOUT, "the server gave up waiting for the request", on={408}),
    _row("status_529", _E.OVERLOADED, "Anthropic's own status for overload", on={529}),
    _row(
        "status_429_overloaded",
        _E.OVERLOADED,
        "Mistral and Azure answer 429 when the service is full, not the caller too fast",
        on={429},
        words=_OVERLOAD,
        unless=r"rate.?limit|(tokens|requests) per",
    ),
    _row(
        "status_429_quota",
        _E.QUOTA_EXHAUSTED,
        "429 whose words say that credit or quota is used up",
        on={429},
        words=_QUOTA,
        unless=_RATE,
    ),
    _row(
        "status_429_day",
        _E.QUOTA_EXHAUSTED,
        "429 on a limit per day, without a time after which to try again",
        on={429},
        words=_DAY,
        unless=r"(try again|retry) (in|after) \d|per[ -]?min",
    ),
    _row("status_429", _E.RATE_LIMITED, "all others", on={429}),
)
WORD_ROWS = (
    _row(
        "words_rate",
        _E.RATE_LIMITED,
        "a limit that passes, said without 429; before overflow, since it may speak of tokens",
        words=r"rate.?limit|too many requests|(tokens|requests) per (min|sec|day)|throttl",
        unless=r"unknown (field|parameter)|invalid (field|parameter)",
        on={0, 403, 413, 503},
    ),
    _row(
        "words_rate_400",
        _E.RATE_LIMITED,
        "the same from a proxy that answers 400, where only plain words count",
        words=r"rate.?limit (has been |is |was )?(exceeded|reached|hit)|exceed.{0,40}rate.?limit"
        r"|too many requests|per[ -]minute|\b[tr]pm\b|throttl|(try again|retry) (in|after) \d",
        on={400},
    ),
    _row(
        "words_overflow",
        _E.CONTEXT_OVERFLOW,
        "Anthropic, Google, vLLM, Ollama, xAI, Mistral, Qwen …: no code of their own for it",
        words=_OVERFLOW,
        unless=_RATE,
    ),
    _row(
        "words_quota",
        _E.QUOTA_EXHAUSTED,
        "Anthropic sends an empty account with 400, xAI with 403",
        words=_QUOTA,
        on=_REFUSED,
    ),
    _row(
        "words_filtered",
        _E.CONTENT_FILTERED,
        "OpenRouter's moderation (403), Anthropic's output filter (400), OpenAI invalid_prompt",
        words=_FILTERED,
    ),
    _row(
        "words_too_large",
        _E.REQUEST_TOO_LARGE,
        "Google: payload over 20 MB; Anthropic: an image over 5 MB; both with 400",
        words=_BYTES,
        on=_REFUSED,
    ),
    _row(
        "words_overloaded",
        _E.OVERLOADED,
        "Google and DeepSeek 503, OpenAI server_error, Ollama's full queue",
        words=_OVERLOAD,
        on=_FAILED,
    ),
    _row(
        "words_no_model",
        _E.MODEL_NOT_FOUND,
        "DeepSeek and OpenRouter send an unknown model with 400",
        words=_NO_MODEL,
        on={0, 400, 422},
    ),
    _row(
        "words_auth",
        _E.AUTH,
        "Google and xAI send a wrong key with 400; a country that is not served",
        words=_BAD_KEY,
        on={0, 400},
    ),
    _row(
        "words_other_missing",
        _E.INVALID_REQUEST,
        "OpenAI: 404 for a part of the history that was never stored; the model is there",
        words=r"\bitem with id\b|previous response",
        on={404},
    ),
    _row(
        "words_cut",
        _E.STREAM_INTERRUPTED,
        "a body or stream that ended too early, told by an untyped error",
        words=_CUT,
        on=_NONE,
    ),
    _row(
        "words_cut_opened",
        _E.STREAM_INTERRUPTED,
        "the connection was lost after the stream had opened, told by an untyped error",
        words=_NO_CONTACT,
        opened=True,
    ),
    _row("words_network", _E.NETWORK, "told by an untyped error", words=_NO_CONTACT, on=_NONE),
    _row(
        "words_timeout",
        _E.TIMEOUT,
        "told by an untyped error; with 5xx it is a gateway that waited, see unavailable",
        words=r"\btimed? ?out\b|\btimeout\b|deadline exceeded",
        on=_NONE,
    ),
)
GENERAL_ROWS = (
    _row("general_403", _E.AUTH, "a key without the right to this", on={403}),
    _row(
        "general_404",
        _E.MODEL_NOT_FOUND,
        "unknown model, or a base_url with the wrong path (405, 3xx too): another model may do",
        on={404, 405, 410, *range(300, 400)},
    ),
    _row("general_413", _E.REQUEST_TOO_LARGE, "bytes, if no words speak of tokens", on={413}),
    _row(
        "general_passing_4xx",
        _E.UNAVAILABLE,
        "conflict, failed dependency, too early, cancelled on the way: the request is not to blame",
        on={409, 424, 425, 499},
    ),
    _row(
        "general_4xx",
        _E.INVALID_REQUEST,
        "400, 422 and every unknown one: sent again unchanged, it fails again",
        on=range(400, 500),
    ),
    _row(
        "general_not_built",
        _E.INVALID_REQUEST,
        "llama.cpp not_supported_error: the server cannot do what was asked",
        on={501},
    ),
    _row(
        "general_5xx",
        _E.UNAVAILABLE,
        "500, 502, 503 (also a model that is loading), 504, and 520 to 526 of a proxy in front",
        on=range(500, 600),
    ),
    _row(
        "general_code_server",
        _E.UNAVAILABLE,
        "an error event inside a stream: Anthropic api_error, OpenAI server_error, Google INTERNAL",
        code=r"api_error|(internal_)?server_error|internal(_error)?|(service_)?unavailable(_error)?"
        r"|serviceunavailableexception|model(notready|streamerror)exception|aborted|cancelled|unknown|data_loss|conflict_error|provider_error",
    ),
    _row(
        "general_code_request",
        _E.INVALID_REQUEST,
        "an error event inside a stream whose code blames the request",
        code=r"invalid_(request_error|request|argument|prompt|parameter|value)|bad_?request(error)?"
        r"|failed_precondition|out_of_range|unimplemented|not_supported_error|validation(_error|exception)?",
    ),
)
LAST_ROWS = (
    _row(
        "last_opened",
        _E.STREAM_INTERRUPTED,
        "an unknown error event or unreadable data in an open stream; nothing partial is executed",
        opened=True,
    ),
    _row(
        "last",
        _E.UNAVAILABLE,
        "200 with HTML, nothing or a strange shape, or no fact at all. What answered was not the "
        "model but something before it, so the model is not told to repair: it is tried again",
    ),
)
TABLE = CODE_ROWS + KIND_ROWS + STATUS_ROWS + WORD_ROWS + GENERAL_ROWS + LAST_ROWS
