"""Requests that a provider refuses: the right class, how long to wait, and never a second try."""

import json
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from tests.models.wire.bodies import CHAT, GEMINI, MESSAGES, RESPONSES, sse, text
from tests.models.wire.kit import asked, every_format, fault, hear
from tests.models.wire.server import SSE, Answer

from cairn.core.messages import Message, Reasoning
from cairn.errors import ErrorClass as E


def openai(message, code=None, type_="invalid_request_error"):
    return {"error": {"message": message, "type": type_, "param": None, "code": code}}


def anthropic(type_, message):
    error = {"type": type_, "message": message}
    return {"type": "error", "error": error, "request_id": "req-1"}


def google(status, word, message, *details):
    error = {"code": status, "message": message, "status": word}
    return {"error": error | ({"details": list(details)} if details else {})}


LONG = "This model's maximum context length is 1000 tokens. Your messages have 2000 tokens."
KEY = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": "API_KEY_INVALID"}
OPENAI = [
    (400, openai("Unknown parameter: 'tea'.", "unknown_parameter"), E.INVALID_REQUEST),
    (400, openai(LONG, "context_length_exceeded"), E.CONTEXT_OVERFLOW),
    (401, openai("Incorrect API key provided.", "invalid_api_key"), E.AUTH),
    (403, openai("Country not supported.", "unsupported_country_region_territory"), E.AUTH),
    (404, openai("The model `x` does not exist.", "model_not_found"), E.MODEL_NOT_FOUND),
    (413, openai("Request body is too large."), E.REQUEST_TOO_LARGE),
    (429, openai("Rate limit reached.", "rate_limit_exceeded", "requests"), E.RATE_LIMITED),
    (
        429,
        openai("Check your plan.", "insufficient_quota", "insufficient_quota"),
        E.QUOTA_EXHAUSTED,
    ),
    (500, openai("The server had an error.", None, "server_error"), E.UNAVAILABLE),
    (503, openai("The engine is currently overloaded.", None, "server_error"), E.OVERLOADED),
]
TABLE = {
    CHAT: OPENAI,
    RESPONSES: OPENAI,
    MESSAGES: [
        (400, anthropic("invalid_request_error", "messages: bad"), E.INVALID_REQUEST),
        (400, anthropic("invalid_request_error", "prompt is too long: 9 > 5"), E.CONTEXT_OVERFLOW),
        (
            400,
            anthropic("invalid_request_error", "Your credit balance is too low."),
            E.QUOTA_EXHAUSTED,
        ),
        (401, anthropic("authentication_error", "invalid x-api-key"), E.AUTH),
        (403, anthropic("permission_error", "Not for you."), E.AUTH),
        (404, anthropic("not_found_error", "model: x"), E.MODEL_NOT_FOUND),
        (
            413,
            anthropic("request_too_large", "Request exceeds the maximum size"),
            E.REQUEST_TOO_LARGE,
        ),
        (429, anthropic("rate_limit_error", "Number of requests"), E.RATE_LIMITED),
        (500, anthropic("api_error", "Internal server error"), E.UNAVAILABLE),
        (529, anthropic("overloaded_error", "Overloaded"), E.OVERLOADED),
    ],
    GEMINI: [
        (400, google(400, "INVALID_ARGUMENT", "Unknown name."), E.INVALID_REQUEST),
        (400, google(400, "INVALID_ARGUMENT", "API key not valid.", KEY), E.AUTH),
        (
            400,
            google(400, "INVALID_ARGUMENT", "The input token count (9) exceeds the maximum (5)."),
            E.CONTEXT_OVERFLOW,
        ),
        (401, google(401, "UNAUTHENTICATED", "No key."), E.AUTH),
        (403, google(403, "PERMISSION_DENIED", "Not for you."), E.AUTH),
        (404, google(404, "NOT_FOUND", "models/x is not found"), E.MODEL_NOT_FOUND),
        (429, google(429, "RESOURCE_EXHAUSTED", "Too many per minute."), E.RATE_LIMITED),
        (500, google(500, "INTERNAL", "An internal error has occurred."), E.UNAVAILABLE),
        (503, google(503, "UNAVAILABLE", "The model is overloaded."), E.OVERLOADED),
    ],
}
ROWS = [(form, *row) for form, rows in TABLE.items() for row in rows]
PLAIN = [(408, E.TIMEOUT), (502, E.UNAVAILABLE), (504, E.UNAVAILABLE), (529, E.OVERLOADED)]
PLAIN += [(402, E.QUOTA_EXHAUSTED), (422, E.INVALID_REQUEST), (429, E.RATE_LIMITED)]


@pytest.mark.parametrize(
    ("form", "status", "body", "expected"),
    ROWS,
    ids=[f"{form}-{status}-{error_class}" for form, status, _, error_class in ROWS],
)
def test_a_refusal_is_told_by_its_class_and_sent_only_once(form, status, body, expected):
    answer = Answer(json.dumps(body).encode(), status=status, headers={form.request_id: "req-1"})
    found = fault(form, answer, stream=status != 429)
    assert found.error_class == expected
    assert found.status == status
    assert found.request_id == "req-1"
    words = body["error"]["message"]
    assert words.rstrip(".") in str(found)


@every_format
@pytest.mark.parametrize(("status", "expected"), PLAIN)
def test_a_refusal_without_any_body_is_told_by_its_status(form, status, expected):
    body, kind = (b"", "application/json") if status % 2 else (b"<html>no</html>", "text/html")
    found = fault(form, Answer(body, status=status, kind=kind))
    assert found.error_class == expected
    assert found.status == status


@every_format
def test_overload_is_one_class_on_the_call_on_opening_and_after_ten_words(form):
    """B35."""
    body = next(b for s, b, c in TABLE[form] if c == E.OVERLOADED and s >= 500)
    status = 529 if form is MESSAGES else 503
    words = form.events(text("word " * 10))[:4]
    places = [
        Answer(json.dumps(body).encode(), status=status),
        Answer(events=[form.error_event("Overloaded")], kind=SSE),
        Answer(events=[*words, form.error_event("Overloaded")], kind=SSE),
    ]
    assert {fault(form, answer).error_class for answer in places} == {E.OVERLOADED}


# ---------------------------------------------------------------- how long to wait


def refused(form, headers, *details):
    body = google(429, "RESOURCE_EXHAUSTED", "Too many.", *details)
    if form is not GEMINI:
        body = openai("Too many.", "rate_limit_exceeded")
    if form is MESSAGES:
        body = anthropic("rate_limit_error", "Too many.")
    return fault(form, Answer(json.dumps(body).encode(), status=429, headers=headers))


@every_format
@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({"retry-after": "7"}, 7.0),
        ({"Retry-After": "1.5"}, 1.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({}, None),
        ({"retry-after": "soon"}, None),
    ],
)
def test_a_refused_request_says_how_long_the_provider_asks_to_wait(form, headers, expected):
    """B33."""
    assert refused(form, headers).retry_after_s == expected


@every_format
def test_a_date_to_wait_for_is_told_in_seconds(form):
    moment = datetime.now(UTC) + timedelta(hours=1)
    found = refused(form, {"retry-after": format_datetime(moment, usegmt=True)}).retry_after_s
    assert 3_500 < found <= 3_601


def test_google_says_how_long_to_wait_inside_the_body():
    retry = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39.5s"}
    assert refused(GEMINI, {}, retry).retry_after_s == 39.5


def test_an_error_inside_a_stream_may_say_how_long_to_wait():
    error = openai("Rate limit reached. Please try again in 1.2s.", "rate_limit_exceeded")
    found = fault(CHAT, Answer(events=[sse(error)], kind=SSE))
    assert found.error_class == E.RATE_LIMITED
    assert found.retry_after_s == 1.2
    assert found.status is None


# ---------------------------------------------------------------- what is never sent


def test_a_message_that_no_provider_takes_is_refused_before_anything_is_sent():
    strange = Message(role="user", parts=(Reasoning(content="a thought of the user"),))
    heard = hear(CHAT, Answer(), asked(messages=(strange,)))
    assert heard.fault.error_class == E.INVALID_REQUEST
    assert heard.seen == []
