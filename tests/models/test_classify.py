"""What a failed model call was: a realistic fault for each row, and its look-alikes.

The bodies are of our own making, in the shapes that providers send.
"""

import json

import msgspec
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairn.core.ladder import DEFAULT_LADDER, MODEL_CLASSES
from cairn.errors import ErrorClass as E
from cairn.models.classify import (
    KINDS,
    LOOKED_AT,
    Signal,
    classify,
    deciding_row,
    signal_from_body,
)
from cairn.models.fault_table import TABLE


def http(provider, status, body, **more):
    """The signal of a refused call."""
    text = body if isinstance(body, str) else json.dumps(body)
    return signal_from_body(provider, status, text, **more)


def event(provider, body, *, started=True, **more):
    """The signal of an error event in an open stream."""
    return http(provider, None, body, in_stream=True, started=started, **more)


def openai(status, message, code=None, type_="invalid_request_error", **more):
    error = {"message": message, "type": type_, "param": None, "code": code}
    return http("openai", status, {"error": error}, **more)


def anthropic(status, type_, message, **more):
    body = {"type": "error", "error": {"type": type_, "message": message}, "request_id": "req_7"}
    return http("anthropic", status, body, **more)


def google(status, word, message, *details, **more):
    error = {"code": status, "message": message, "status": word}
    if details:
        error["details"] = list(details)
    return http("google", status, {"error": error}, **more)


def quota(*ids):
    violations = [{"quotaMetric": "generate_content_requests", "quotaId": name} for name in ids]
    return {"@type": "type.googleapis.com/google.rpc.QuotaFailure", "violations": violations}


RETRY = {"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "39s"}
MINUTE = "GenerateRequestsPerMinutePerProjectPerModel-FreeTier"
DAY = "GenerateRequestsPerDayPerProjectPerModel-FreeTier"
PLAN = "You exceeded your current quota, please check your plan and billing details."
TPM = (
    "Rate limit reached for gpt-x in organization org-a on tokens per min (TPM): Limit 30000, "
    "Used 29000, Requested 4000. Please try again in 6s. Visit the billing page to raise it."
)

EXAMPLES = [
    ("code_overflow", openai(400, "Too long, shorten it.", "context_length_exceeded")),
    ("code_overflow", Signal(code="context_length_exceeded")),
    (
        "code_overflow",
        http(
            "compatible",
            400,
            {
                "error": {
                    "code": 400,
                    "message": "request (9001 tokens) exceeds the available context size (8192)",
                    "type": "exceed_context_size_error",
                    "n_prompt_tokens": 9001,
                    "n_ctx": 8192,
                }
            },
        ),
    ),
    (
        "code_wait_for_own_requests",
        http(
            "openrouter",
            402,
            {
                "error": {
                    "code": 402,
                    "message": "Other requests of this key are still running",
                    "metadata": {"limit_source": "openrouter_in_flight_budget"},
                }
            },
        ),
    ),
    ("code_day_used_up", google(429, "RESOURCE_EXHAUSTED", PLAN, quota(DAY), RETRY)),
    ("code_day_used_up", google(429, "RESOURCE_EXHAUSTED", PLAN, quota(MINUTE, DAY), RETRY)),
    (
        "code_day_in_words",
        google(429, "RESOURCE_EXHAUSTED", "Quota exceeded for 'requests per day' of project 12"),
    ),
    (
        "code_google_money",
        google(429, "RESOURCE_EXHAUSTED", "Your prepayment credits are depleted. Add some."),
    ),
    (
        "code_google_billing",
        google(400, "FAILED_PRECONDITION", "No free tier here. Please enable billing."),
    ),
    ("code_quota", openai(429, PLAN, "insufficient_quota", "insufficient_quota")),
    (
        "code_quota",
        http("moonshot", 429, {"error": {"type": "exceeded_current_quota_error"}}),
    ),
    ("code_quota", openai(429, PLAN, None, "insufficient_quota")),
    ("code_quota", openai(400, "Hard limit", "billing_hard_limit_reached")),
    ("code_quota", anthropic(402, "billing_error", "See your billing settings")),
    ("code_quota", http("qwen", 400, {"code": "Arrearage", "message": "Overdue", "id": "x"})),
    ("code_overloaded", anthropic(529, "overloaded_error", "Overloaded")),
    (
        "code_overloaded",
        openai(503, "Busy, try later", "server_is_overloaded", "service_unavailable_error"),
    ),
    (
        "code_overloaded",
        http("compatible", 429, {"error": "Model is overloaded", "error_type": "overloaded"}),
    ),
    ("code_rate", openai(429, TPM, "rate_limit_exceeded", "tokens")),
    ("code_rate", openai(413, TPM, "rate_limit_exceeded", "tokens")),
    ("code_rate", anthropic(429, "rate_limit_error", "Above 40,000 input tokens per minute")),
    ("code_rate", google(429, "RESOURCE_EXHAUSTED", PLAN, quota(MINUTE), RETRY)),
    ("code_rate", google(429, "RESOURCE_EXHAUSTED", PLAN + " Please retry in 39.5s.")),
    ("code_rate", http("moonshot", 429, {"error": {"type": "rate_limit_reached_error"}})),
    ("code_rate", http("qwen", 429, {"code": "Throttling.RateQuota", "message": "Slower"})),
    (
        "code_filtered",
        http(
            "azure",
            400,
            {
                "error": {
                    "message": "The prompt was filtered",
                    "code": "content_filter",
                    "status": 400,
                    "innererror": {"code": "ResponsibleAIPolicyViolation"},
                }
            },
        ),
    ),
    (
        "code_filtered",
        http("azure", 400, {"error": {"innererror": {"code": "ResponsibleAIPolicyViolation"}}}),
    ),
    ("code_filtered", http("qwen", 400, {"code": "DataInspectionFailed", "message": "No"})),
    ("code_malformed", openai(400, "Failed to call a function.", "tool_use_failed")),
    ("code_too_large", anthropic(413, "request_too_large", "Over the maximum size")),
    ("code_other_missing", openai(404, "Gone: resp_1", "previous_response_not_found")),
    ("code_no_model", openai(400, "The model 'gpt-q' does not exist.", "model_not_found")),
    ("code_no_model", anthropic(404, "not_found_error", "model: claude-q")),
    ("code_no_model", google(404, "NOT_FOUND", "models/gemini-q is not here")),
    ("code_auth", openai(401, "Incorrect API key provided: sk-…", "invalid_api_key")),
    ("code_auth", anthropic(403, "permission_error", "Your key may not use this")),
    (
        "code_auth",
        google(400, "INVALID_ARGUMENT", "Bad key", {"reason": "API_KEY_INVALID"}),
    ),
    ("code_timeout", google(504, "DEADLINE_EXCEEDED", "Deadline expired")),
    ("code_timeout", anthropic(504, "timeout_error", "Took too long")),
    ("kind_overloaded", Signal(kind="overloaded", status=503)),
    ("kind_rate_in_words", Signal(kind="quota", status=429, message=TPM)),
    ("kind_quota", Signal(kind="quota", status=429)),
    ("kind_overflow", Signal(kind="context_window", status=400)),
    ("kind_filtered", Signal(kind="content_filter")),
    ("kind_timeout", Signal(kind="timeout")),
    ("kind_timeout", Signal(kind="request_timeout", started=True)),
    ("kind_cut", Signal(kind="connection", started=True)),
    ("kind_cut", Signal(kind="connection", in_stream=True)),
    ("kind_network", Signal(kind="connection", message="All connection attempts failed")),
    ("kind_interrupted", Signal(kind="interrupted", started=True)),
    ("status_401", Signal(status=401)),
    ("status_401", Signal(kind="auth", status=401)),
    ("status_401", Signal(status=407)),
    (
        "status_402",
        http(
            "deepseek",
            402,
            {"error": {"message": "Insufficient Balance", "type": "unknown_error"}},
        ),
    ),
    (
        "status_402",
        http(
            "openrouter",
            402,
            {"error": {"code": 402, "message": "Needs more credits, or fewer max_tokens"}},
        ),
    ),
    ("status_408", Signal(status=408)),
    ("status_529", Signal(status=529)),
    (
        "status_429_overloaded",
        http(
            "mistral",
            429,
            {"object": "error", "message": "Service tier capacity exceeded for this model."},
        ),
    ),
    ("status_429_quota", openai(429, "Your monthly quota is used up: 500 of 500 dollars.")),
    ("status_429_quota", http("zai", 429, {"error": {"message": "Insufficient balance"}})),
    ("status_429_day", http("compatible", 429, {"message": "Reached 200 requests per day"})),
    ("status_429", Signal(status=429)),
    ("status_429", Signal(kind="rate_limit")),
    (
        "status_429",
        http(
            "openrouter",
            200,
            {
                "error": {
                    "code": 429,
                    "message": "Provider returned error",
                    "metadata": {"raw": "model is rate-limited upstream", "provider_name": "P"},
                }
            },
        ),
    ),
    (
        "status_429",
        http(
            "azure",
            429,
            {
                "error": {
                    "code": "429",
                    "message": "You have exceeded the call rate limit of your pricing tier. "
                    "Please retry after 12 seconds. See aka.ms/quotaincrease.",
                }
            },
        ),
    ),
    ("words_rate", Signal(message="Rate limit exceeded")),
    ("words_rate", http("compatible", 403, "rate limit exceeded for this address")),
    ("words_rate_400", http("proxy", 400, "prompt is too long: TPM limit of 9000 tokens")),
    ("words_quota", anthropic(400, "invalid_request_error", "Your credit balance is too low.")),
    (
        "words_quota",
        http(
            "xai",
            403,
            {"code": "The caller has no permission", "error": "used all available credits"},
        ),
    ),
    ("words_quota", http("cohere", 403, {"message": "Limited to 1000 API calls / month"})),
    (
        "words_filtered",
        http(
            "openrouter",
            403,
            {"error": {"code": 403, "message": "Needs moderation. Your input was flagged."}},
        ),
    ),
    (
        "words_filtered",
        openai(400, "Your prompt was flagged as potentially violating policy", "invalid_prompt"),
    ),
    (
        "words_filtered",
        anthropic(400, "invalid_request_error", "Output blocked by content filtering policy"),
    ),
    (
        "words_too_large",
        google(400, "INVALID_ARGUMENT", "Request payload size exceeds the limit: 20971520 bytes"),
    ),
    (
        "words_too_large",
        anthropic(400, "invalid_request_error", "image.source: image exceeds 5 MB maximum"),
    ),
    ("words_overloaded", google(503, "UNAVAILABLE", "The model is overloaded. Come back.")),
    ("words_overloaded", http("deepseek", 503, {"error": {"message": "Server busy"}})),
    ("words_overloaded", http("ollama", 503, {"error": "server busy, please try again"})),
    (
        "words_overloaded",
        event("openai", {"error": {"code": "server_error", "message": "Servers overloaded"}}),
    ),
    ("words_no_model", http("deepseek", 400, {"error": {"message": "Model Not Exist"}})),
    (
        "words_no_model",
        http("openrouter", 400, {"error": {"code": 400, "message": "a/b is not a valid model ID"}}),
    ),
    ("words_auth", google(400, "INVALID_ARGUMENT", "API key not valid. Pass a valid one.")),
    ("words_auth", google(400, "FAILED_PRECONDITION", "User location is not supported")),
    ("words_auth", http("xai", 400, {"error": "Incorrect API key provided: xa***1"})),
    ("words_other_missing", openai(404, "Item with id 'rs_1' not found.")),
    ("words_other_missing", openai(404, "Item with id 'rs_1' not found.", kind="not_found")),
    ("words_cut", Signal(message="peer closed connection: incomplete chunked read")),
    ("words_cut_opened", Signal(message="connection reset by peer", started=True)),
    ("words_network", Signal(message="[Errno 111] Connection refused")),
    ("words_network", Signal(message="Name or service not known")),
    ("words_timeout", Signal(message="The read operation timed out")),
    ("general_403", Signal(status=403)),
    ("general_404", http("ollama", 404, {"error": "model 'x' not found, try pulling it first"})),
    ("general_404", http("compatible", 404, "404 page not found")),
    ("general_404", openai(404, "Invalid URL (POST /v1/v1/chat/completions)")),
    ("general_404", http("compatible", 301, "")),
    ("general_413", http("compatible", 413, "<html><title>Entity</title></html>")),
    ("general_passing_4xx", anthropic(409, "conflict_error", "Concurrent change")),
    ("general_passing_4xx", Signal(status=425)),
    ("general_4xx", openai(400, "Invalid 'temperature': below 0", "decimal_below_min_value")),
    (
        "general_4xx",
        http("compatible", 422, {"detail": [{"loc": ["body"], "msg": "Field required"}]}),
    ),
    ("general_4xx", Signal(status=418)),
    ("general_4xx", Signal(kind="rejected")),
    ("general_not_built", http("compatible", 501, {"error": {"type": "not_supported_error"}})),
    ("general_5xx", http("compatible", 503, {"error": {"message": "Loading model", "code": 503}})),
    ("general_5xx", http("hf", 503, {"error": "Model a/b is currently loading"})),
    ("general_5xx", http("compatible", 502, "<html><head><title>502 Bad Gateway</title>")),
    ("general_5xx", http("compatible", 504, "upstream request timeout")),
    ("general_5xx", Signal(status=500, kind="server")),
    ("general_5xx", http("compatible", 524, "error code: 524")),
    (
        "general_code_server",
        event("anthropic", {"type": "error", "error": {"type": "api_error", "message": "Oops"}}),
    ),
    (
        "general_code_server",
        event(
            "openai",
            {
                "type": "response.failed",
                "response": {
                    "status": "failed",
                    "error": {"code": "server_error", "message": "An error occurred"},
                },
            },
        ),
    ),
    (
        "general_code_request",
        event("anthropic", {"error": {"type": "invalid_request_error", "message": "Bad tool"}}),
    ),
    ("last_opened", event("compatible", {"error": "boom"})),
    ("last_opened", event("compatible", "{not json", kind="bad_reply")),
    ("last_opened", Signal(status=500, kind="server", in_stream=True, message="An error")),
    ("last", Signal()),
    ("last", http("compatible", 200, "<!doctype html><title>Sign in</title>")),
    ("last", http("compatible", 200, "")),
    ("last", http("compatible", 200, "{}")),
]

OVERFLOWS = [
    (400, "This model's maximum context length is 8192 tokens. However, you asked for 9000."),
    (400, "prompt is too long: 209353 tokens > 200000 maximum"),
    (400, "input length and `max_tokens` exceed context limit: 190000 + 21333 > 200000"),
    (400, "The input token count (1196265) exceeds the maximum number of tokens allowed (1048576)"),
    (400, "The input token count is 1100000 but model only supports up to 1048576"),
    (400, "the request exceeds the available context size, try increasing it"),
    (400, "This model's maximum prompt length is 131072 but the request has 537812 tokens"),
    (400, "The number of tokens to keep is greater than the context length"),
    (
        400,
        "Prompt contains 40000 tokens, too large for model with 32768 maximum context length",
    ),
    (400, "prompt too long; exceeded max context length by 500 tokens"),
    (400, "The input (1300 tokens) is longer than the model's context length (1024 tokens)."),
    (400, "Range of input length should be [1, 129024]"),
    (400, "Input is too long for requested model."),
    (400, "The file exceeds the maximum number of tokens allowed (1048576)"),
    (400, "The input tokens exceeded what the model can take"),
    (400, "prompt token count of 130000 exceeds the limit of 128000"),
    (400, "Your request exceeded model token limit: 262144"),
    (400, "You passed 9000 input tokens. However, the model's context length is only 8192 tokens"),
    (422, "`inputs` tokens + `max_new_tokens` must be <= 4096"),
    (413, "Prompt is too long"),
    (500, "Context size has been exceeded."),
]

# Row that must not decide, the look-alike, what it is instead.
LOOK_ALIKES = [
    ("code_overflow", openai(429, TPM, "rate_limit_exceeded", "tokens"), E.RATE_LIMITED),
    ("code_wait_for_own_requests", Signal(status=402, code="402"), E.QUOTA_EXHAUSTED),
    (
        "code_day_used_up",
        google(429, "RESOURCE_EXHAUSTED", PLAN, quota(MINUTE), RETRY),
        E.RATE_LIMITED,
    ),
    (
        "code_day_in_words",
        google(429, "RESOURCE_EXHAUSTED", "Quota exceeded for 'requests per minute'"),
        E.RATE_LIMITED,
    ),
    (
        "code_google_money",
        google(429, "RESOURCE_EXHAUSTED", "Spending limits grow. Please retry in 4s"),
        E.RATE_LIMITED,
    ),
    ("code_google_money", google(429, "RESOURCE_EXHAUSTED", PLAN), E.RATE_LIMITED),
    (
        "code_google_billing",
        google(400, "FAILED_PRECONDITION", "User location is not supported"),
        E.AUTH,
    ),
    ("code_quota", openai(429, TPM, "rate_limit_exceeded", "requests"), E.RATE_LIMITED),
    ("code_overloaded", anthropic(429, "rate_limit_error", "Slower"), E.RATE_LIMITED),
    ("code_rate", openai(429, PLAN, "insufficient_quota"), E.QUOTA_EXHAUSTED),
    ("code_filtered", openai(404, "No", "model_not_found"), E.MODEL_NOT_FOUND),
    ("code_malformed", openai(400, "Bad schema", "invalid_function_parameters"), E.INVALID_REQUEST),
    ("code_too_large", anthropic(413, "rate_limit_error", "Slower"), E.RATE_LIMITED),
    ("code_other_missing", openai(404, "No", "model_not_found"), E.MODEL_NOT_FOUND),
    ("code_no_model", openai(404, "No", "previous_response_not_found"), E.INVALID_REQUEST),
    ("code_auth", google(400, "INVALID_ARGUMENT", "Bad field"), E.INVALID_REQUEST),
    ("code_timeout", google(504, "UNAVAILABLE", "Gateway"), E.UNAVAILABLE),
    ("kind_overloaded", Signal(kind="unavailable", status=503), E.UNAVAILABLE),
    ("kind_rate_in_words", Signal(kind="quota", message=PLAN), E.QUOTA_EXHAUSTED),
    ("kind_quota", Signal(kind="quota", message=TPM), E.RATE_LIMITED),
    ("kind_overflow", Signal(kind="context_window", message=TPM), E.RATE_LIMITED),
    ("kind_filtered", Signal(kind="not_found", status=404), E.MODEL_NOT_FOUND),
    ("kind_timeout", Signal(kind="connection"), E.NETWORK),
    ("kind_cut", Signal(kind="connection"), E.NETWORK),
    ("kind_network", Signal(kind="connection", started=True), E.STREAM_INTERRUPTED),
    ("kind_interrupted", Signal(kind="timeout", started=True), E.TIMEOUT),
    ("status_401", Signal(status=401, code="insufficient_quota"), E.QUOTA_EXHAUSTED),
    ("status_402", Signal(status=402, code="rate_limit_exceeded"), E.RATE_LIMITED),
    ("status_408", Signal(status=409), E.UNAVAILABLE),
    ("status_529", Signal(status=529, in_stream=True), E.STREAM_INTERRUPTED),
    (
        "status_429_overloaded",
        http("compatible", 429, "Rate limit reached in times of high demand"),
        E.RATE_LIMITED,
    ),
    (
        "status_429_quota",
        http("groq", 429, "Rate limit reached, tokens per minute. Not enough credits? Upgrade."),
        E.RATE_LIMITED,
    ),
    (
        "status_429_quota",
        http("cohere", 429, {"message": "Trial keys: 20 API calls / minute, see usage limits"}),
        E.RATE_LIMITED,
    ),
    (
        "status_429_day",
        http("openai", 429, "On requests per day: Limit 200. Please try again in 7m12s."),
        E.RATE_LIMITED,
    ),
    ("status_429_day", http("x", 500, "the job of once per day failed"), E.UNAVAILABLE),
    ("status_429", Signal(status=429, kind="overloaded"), E.OVERLOADED),
    ("words_rate", http("x", 400, "Unknown parameter: 'rate_limit'"), E.INVALID_REQUEST),
    ("words_rate", Signal(message="unknown field rate_limit"), E.UNAVAILABLE),
    ("words_rate", http("x", 500, "rate limit store is down"), E.UNAVAILABLE),
    ("words_rate_400", http("x", 400, "'rate_limit' must be a number"), E.INVALID_REQUEST),
    ("words_rate_400", http("x", 400, "prompt is too long"), E.CONTEXT_OVERFLOW),
    ("words_rate_400", http("x", 500, "failed, retry in 5s"), E.UNAVAILABLE),
    ("words_overflow", http("x", 502, "prompt too long? rate limit?"), E.UNAVAILABLE),
    ("words_overflow", http("x", 429, TPM + " prompt is too long"), E.RATE_LIMITED),
    (
        "words_overflow",
        Signal(message="Rate limit: prompt is too long, per minute"),
        E.RATE_LIMITED,
    ),
    (
        "words_overflow",
        http("openai", 400, "max_tokens is too large: 99999. At most 16384 completion tokens."),
        E.INVALID_REQUEST,
    ),
    (
        "words_overflow",
        http("anthropic", 400, "max_tokens: 99999 > 8192, the maximum number of output tokens"),
        E.INVALID_REQUEST,
    ),
    ("words_overflow", http("x", 400, "tools exceeds the limit of 128"), E.INVALID_REQUEST),
    ("words_quota", Signal(message="rate limit exceeded, no credit spent"), E.RATE_LIMITED),
    ("words_quota", http("x", 500, "spending limit service crashed"), E.UNAVAILABLE),
    ("words_filtered", http("x", 400, "Unknown field 'content_filter'"), E.INVALID_REQUEST),
    ("words_filtered", http("x", 404, "content filter route not found"), E.MODEL_NOT_FOUND),
    ("words_too_large", http("x", 400, "name exceeds the limit of 64"), E.INVALID_REQUEST),
    ("words_overloaded", http("x", 400, "Tool name 'overloaded' is taken"), E.INVALID_REQUEST),
    (
        "words_no_model",
        http("x", 400, "Tool 'f' not found in the request to the model"),
        E.INVALID_REQUEST,
    ),
    ("words_auth", http("x", 500, "invalid api key cache entry"), E.UNAVAILABLE),
    ("words_other_missing", http("x", 404, "model not found"), E.MODEL_NOT_FOUND),
    ("words_other_missing", http("x", 400, "previous response is open"), E.INVALID_REQUEST),
    ("words_cut", http("x", 400, "unexpected EOF in JSON body"), E.INVALID_REQUEST),
    ("words_cut_opened", Signal(message="connection reset by peer"), E.NETWORK),
    ("words_network", http("x", 502, "connect: connection refused"), E.UNAVAILABLE),
    ("words_timeout", http("x", 504, "upstream timed out"), E.UNAVAILABLE),
    ("words_timeout", http("x", 400, "'timeout' must be a number"), E.INVALID_REQUEST),
    ("general_403", http("xai", 403, "monthly spending limit reached"), E.QUOTA_EXHAUSTED),
    ("general_404", Signal(status=404, code="item_not_found"), E.INVALID_REQUEST),
    ("general_413", http("x", 413, "input tokens exceed the context window"), E.CONTEXT_OVERFLOW),
    ("general_passing_4xx", Signal(status=422), E.INVALID_REQUEST),
    ("general_4xx", Signal(status=409), E.UNAVAILABLE),
    ("general_not_built", Signal(status=500), E.UNAVAILABLE),
    ("general_5xx", Signal(status=529), E.OVERLOADED),
    ("general_5xx", Signal(status=500, in_stream=True), E.STREAM_INTERRUPTED),
    (
        "general_code_server",
        event("x", {"error": {"code": "overloaded_error"}}),
        E.OVERLOADED,
    ),
    (
        "general_code_request",
        event("x", {"error": {"code": "invalid_request_error", "message": "prompt is too long"}}),
        E.CONTEXT_OVERFLOW,
    ),
    ("last_opened", event("x", {"error": {"code": 502, "message": "Gone"}}), E.UNAVAILABLE),
    ("last", Signal(message="prompt is too long"), E.CONTEXT_OVERFLOW),
]


@pytest.mark.parametrize(("row", "signal"), EXAMPLES)
def test_a_fault_is_decided_by_the_row_that_was_written_for_it(row, signal):
    assert deciding_row(signal).name == row


@pytest.mark.parametrize(("row", "signal", "instead"), LOOK_ALIKES)
def test_a_look_alike_keeps_its_own_class(row, signal, instead):
    assert deciding_row(signal).name != row
    assert classify(signal) is instead


def test_every_row_has_a_real_example_and_a_look_alike():
    rows = {row.name for row in TABLE}
    assert len(rows) == len(TABLE)
    assert {name for name, _ in EXAMPLES} | {"words_overflow"} == rows
    assert {name for name, _, _ in LOOK_ALIKES} == rows
    assert all(row.why for row in TABLE)


def test_every_class_of_the_table_is_a_model_class_with_something_to_do_about_it():
    for row in TABLE:
        assert row.error_class in MODEL_CLASSES
        assert DEFAULT_LADDER.row(row.error_class)
        assert row.kinds <= KINDS


CODES = {
    E.CONTEXT_OVERFLOW: "context_exceeded model_context_window_exceeded ContextWindowExceededError",
    E.RATE_LIMITED: "in_flight_budget_exhausted RateLimitReached rateLimitExceeded rate_limited "
    "too_many_requests limit_requests tokens_limit_reached ThrottlingException RESOURCE_EXHAUSTED",
    E.QUOTA_EXHAUSTED: "quota_exceeded usage_limit_reached credit_balance_exhausted "
    "project_spend_limit_exceeded organization_usage_limit_exceeded insufficient_balance "
    "openrouter_credits openrouter_key_limit ServiceQuotaExceededException billing_not_active "
    "AllocationQuota.FreeTierOnly payment_required",
    E.OVERLOADED: "slow_down NoCapacity service_tier_capacity_exceeded engine_overloaded_error",
    E.CONTENT_FILTERED: "content_filter contentFilter content_policy_violation moderation_blocked "
    "PROHIBITED_CONTENT cyber_policy_violation data_inspection_failed",
    E.MALFORMED_OUTPUT: "json_validate_failed output_parse_failed",
    E.REQUEST_TOO_LARGE: "payload_too_large request_entity_too_large",
    E.INVALID_REQUEST: "file_not_found BadRequestError FAILED_PRECONDITION OUT_OF_RANGE "
    "UNIMPLEMENTED not_supported_error ValidationException invalid_prompt INVALID_ARGUMENT",
    E.MODEL_NOT_FOUND: "NotFoundError DeploymentNotFound model_not_available unknown_model "
    "invalid_model ResourceNotFoundException ModelNotFound",
    E.AUTH: "incorrect_api_key authentication_error AuthenticationError UNAUTHENTICATED forbidden "
    "unauthorized PermissionDenied account_deactivated insufficient_permissions missing_scope "
    "unsupported_country_region_territory AccessDeniedException SERVICE_DISABLED InvalidApiKey "
    "ip_not_authorized",
    E.TIMEOUT: "request_timeout ModelTimeoutException timeout",
    E.UNAVAILABLE: "INTERNAL UNAVAILABLE service_unavailable_error ServiceUnavailableException "
    "ModelNotReadyException modelStreamErrorException ABORTED CANCELLED UNKNOWN DATA_LOSS "
    "conflict_error provider_error internal_server_error",
}


@pytest.mark.parametrize(
    ("code", "error_class"),
    [(code, error_class) for error_class, codes in CODES.items() for code in codes.split()],
)
def test_a_code_alone_is_enough_even_in_an_open_stream(code, error_class):
    assert classify(Signal(code=code, in_stream=True, started=True)) is error_class


PHRASES = {
    E.CONTEXT_OVERFLOW: "context_length_exceeded|exceed_context_size_error|context window exceeds "
    "limit|Prompt has 70000 tokens, but the configured context size is 65536|reduce the length of "
    "the messages|input length 300000 exceeds the maximum allowed input length of 262144 tokens",
    E.QUOTA_EXHAUSTED: "insufficient balance|out of credits|This requires more credits|not enough "
    "credits|credits have been exhausted|Payment Required|monthly spending limit reached|account "
    "in arrears|please recharge|账户已欠费|余额不足|insufficient_quota|exceeded your current quota"
    "|quota has been used up|monthly quota|the free tier of the model has been exhausted",
    E.CONTENT_FILTERED: "our content management policy|flagged by our moderation|content policy "
    "violation|inappropriate content",
    E.REQUEST_TOO_LARGE: "request entity too large|payload too large|exceeds 5 MB maximum",
    E.OVERLOADED: "The model is at capacity|capacity exceeded|high demand|under heavy load|servers "
    "are currently busy|server busy|maximum pending requests exceeded",
    E.MODEL_NOT_FOUND: "unknown model q|no such model|Invalid model: q|model identifier is invalid"
    "|the model `q` does not exist",
    E.AUTH: "Authentication failed|invalid api key|API key expired",
    E.RATE_LIMITED: "Too Many Requests|5000 tokens per minute reached|Throttled",
    E.STREAM_INTERRUPTED: "incomplete chunked read|peer closed connection|response ended "
    "prematurely|premature close|unexpected EOF|IncompleteRead(3 bytes)|stream was closed",
    E.NETWORK: "getaddrinfo failed|ENOTFOUND|ECONNREFUSED|ECONNRESET|certificate verify failed"
    "|Network is unreachable|Server disconnected",
    E.TIMEOUT: "timeout|deadline exceeded|Request timed out.",
}


@pytest.mark.parametrize(
    ("words", "error_class"),
    [(words, error_class) for error_class, text in PHRASES.items() for words in text.split("|")],
)
def test_words_of_an_untyped_error_are_enough_when_nothing_else_is_known(words, error_class):
    assert classify(Signal(message=f"Error: {words}.")) is error_class


# --- B34: quota and rate


def test_a_used_up_quota_ends_and_a_passing_limit_waits_whatever_the_status_says():
    used_up = openai(429, "You have used up your monthly quota.", "insufficient_quota")
    passing = Signal(message="rate limit exceeded")
    assert classify(used_up) is E.QUOTA_EXHAUSTED
    assert classify(passing) is E.RATE_LIMITED
    assert DEFAULT_LADDER.row(classify(used_up))[0].disposition != "retry"
    assert DEFAULT_LADDER.row(classify(passing))[0].disposition == "retry"


def test_the_body_s_code_counts_before_the_status_and_the_status_before_the_words():
    code = Signal(code="insufficient_quota", status=529, message="rate limit")
    status = Signal(status=529, message="rate limit, prompt is too long")
    assert classify(code) is E.QUOTA_EXHAUSTED
    assert classify(status) is E.OVERLOADED


def test_a_typed_error_counts_after_the_code_and_before_the_status():
    assert classify(Signal(kind="overloaded", code="insufficient_quota")) is E.QUOTA_EXHAUSTED
    assert classify(Signal(kind="overloaded", status=500)) is E.OVERLOADED
    assert classify(Signal(kind="rate_limit", status=500)) is E.RATE_LIMITED


RATES = (
    *("rate limit exceeded", "exceeded the rate limit", "too many requests", "throttled"),
    *("9 tokens per minute", "retry in 5s", "please try again in 5s", "retry after 5 s", "9 TPM"),
)


@pytest.mark.parametrize("rate", RATES)
def test_words_of_a_rate_are_never_taken_for_a_used_up_quota_or_for_overflow(rate):
    for kind in ("quota", "context_window"):
        assert classify(Signal(kind=kind, message=rate)) is E.RATE_LIMITED
    assert classify(http("x", 429, f"monthly quota: {rate}")) is E.RATE_LIMITED
    assert classify(http("x", 400, f"prompt is too long: {rate}")) is E.RATE_LIMITED


# --- B35: overload in three places


@pytest.mark.parametrize(
    "signal",
    [
        anthropic(529, "overloaded_error", "Overloaded"),
        anthropic(None, "overloaded_error", "Overloaded", in_stream=True),
        anthropic(None, "overloaded_error", "Overloaded", in_stream=True, started=True),
    ],
    ids=["on the call", "as the stream opens", "after ten words"],
)
def test_overload_is_one_class_in_all_three_places(signal):
    assert classify(signal) is E.OVERLOADED
    assert classify(msgspec.structs.replace(signal, code="")) is E.OVERLOADED


# --- B36: too long, in every wording


@pytest.mark.parametrize(("status", "words"), OVERFLOWS)
def test_a_prompt_that_is_too_long_is_known_by_words_alone(status, words):
    signal = http("compatible", status, {"error": {"message": words, "code": None}})
    assert deciding_row(signal).name == "words_overflow"
    assert classify(Signal(message=words, in_stream=True)) is E.CONTEXT_OVERFLOW


@pytest.mark.parametrize(("_status", "words"), OVERFLOWS)
def test_a_rate_limit_that_speaks_of_tokens_is_never_taken_for_overflow(_status, words):
    assert classify(Signal(status=429, message=f"{words}. {TPM}")) is E.RATE_LIMITED
    assert classify(Signal(message=f"{words}. {TPM}")) is E.RATE_LIMITED


# --- what a status inside a stream is worth


@pytest.mark.parametrize("status", [None, 200, 400, 401, 404, 429, 500, 529])
def test_a_status_that_was_guessed_for_an_event_in_a_stream_decides_nothing(status):
    assert classify(Signal(status=status, in_stream=True)) is E.STREAM_INTERRUPTED


def test_a_number_in_the_body_is_the_status_of_an_exchange_that_said_200():
    assert classify(http("openrouter", 200, {"error": {"code": 502}})) is E.UNAVAILABLE
    assert classify(event("openrouter", {"error": {"code": 402}})) is E.QUOTA_EXHAUSTED


# --- reading bodies


@pytest.mark.parametrize(
    ("body", "code", "message"),
    [
        ({"error": {"code": "c", "type": "t", "message": "m"}}, "c t", "m"),
        ({"type": "error", "error": {"type": "t", "message": "m"}}, "t", "m"),
        ({"error": {"code": 404, "status": "NOT_FOUND", "message": "m"}}, "404 NOT_FOUND", "m"),
        ([{"error": {"code": 400, "status": "S", "message": "m"}}], "400 S", "m"),
        ({"detail": "m"}, "", "m"),
        ({"detail": [{"msg": "m", "loc": ["body"]}, {"msg": "n"}]}, "", "m · n"),
        ({"error": "m"}, "", "m"),
        ({"message": "m"}, "", "m"),
        ({"object": "error", "message": "m", "type": "t", "code": "1300"}, "1300 t", "m"),
        ({"message": {"detail": [{"msg": "m"}]}}, "", "m"),
        ({"code": "Not allowed here", "error": "m"}, "Not_allowed_here", "m"),
        ({"type": "error", "code": "c", "message": "m"}, "c", "m"),
        ({"errors": [{"code": 7003, "message": "m"}]}, "7003", "m"),
        ("plain words", "", "plain words"),
        ("", "", ""),
        ("<html><title> A &amp; B </title><p>secret</p>", "", "A & B"),
        ("<p>secret</p>", "", "a page of HTML without a title"),
    ],
)
def test_code_and_words_are_read_from_every_shape_of_body(body, code, message):
    signal = http("compatible", 400, body)
    assert (signal.code, signal.message, signal.status) == (code, message, 400)


def test_the_reply_that_a_router_quotes_is_read_too():
    inner = json.dumps({"error": {"code": "context_length_exceeded", "message": "Too long"}})
    metadata = {"raw": inner, "provider_name": "P"}
    error = {"code": 400, "message": "Provider returned error", "metadata": metadata}
    signal = http("openrouter", 400, {"error": error})
    assert classify(signal) is E.CONTEXT_OVERFLOW
    assert signal.message == "Provider returned error · Too long"


def test_what_the_user_wrote_is_not_read_as_words_of_the_provider():
    detail = [{"msg": "Input should be a string", "input": "prompt is too long, rate limit"}]
    assert classify(http("compatible", 422, {"detail": detail})) is E.INVALID_REQUEST


def test_a_success_that_was_no_reply_is_a_bad_reply():
    assert http("compatible", 200, "").kind == "bad_reply"
    assert http("compatible", 200, "", in_stream=True).kind == ""
    assert http("compatible", 200, "", kind="timeout").kind == "timeout"
    assert http("compatible", 500, "").kind == ""


def test_words_of_a_success_that_cannot_be_read_may_be_the_model_s_and_accuse_nobody():
    assert classify(http("x", 200, "{'text': 'prompt is too long'")) is E.UNAVAILABLE
    assert classify(http("x", 200, {"error": {"code": 400, "message": TPM}})) is E.RATE_LIMITED


TEXT = st.text(max_size=60)
WORDS = st.sampled_from([*KINDS, "", "429", "rate_limit_error", "prompt is too long", TPM, PLAN])
SIGNALS = st.builds(
    Signal,
    provider=TEXT,
    kind=WORDS | TEXT,
    status=st.none() | st.integers() | st.sampled_from([200, 400, 404, 429, 500, 529]),
    code=WORDS | TEXT,
    message=WORDS | TEXT,
    in_stream=st.booleans(),
    started=st.booleans(),
)


@given(SIGNALS)
def test_every_signal_has_a_model_class(signal):
    assert classify(signal) in MODEL_CLASSES


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["error", "code", "message", "detail", "metadata", "raw"]), inner
        )
    ),
    max_leaves=20,
)


@given(st.none() | st.integers(), st.text() | JSON.map(json.dumps))
@example(400, "[" * 100_000)
@example(400, '{"error":' * 100_000)
@example(400, '{"code":1' + "0" * 5_000 + "}")
@example(400, "<title" * 100_000)
@example(400, "\ud800")
@example(400, json.dumps({"message": "x" * 1_000_000}))
def test_every_body_becomes_a_signal_that_has_a_model_class(status, body):
    signal = signal_from_body("compatible", status, body)
    assert classify(signal) in MODEL_CLASSES
    assert len(signal.message) <= LOOKED_AT
