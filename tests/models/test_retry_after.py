"""How long a provider asked to wait, in all the ways in which providers say it."""

import json
import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from cairn.models.retry_after import retry_after_s

NOW = 1_790_000_000.25  # Monday 21 September 2026, 14:13:20.25 UTC
LATER = "Mon, 21 Sep 2026 14:13:51 GMT"  # 30.75 s ahead


def google(*details):
    return json.dumps({"error": {"code": 429, "status": "RESOURCE_EXHAUSTED", "details": details}})


def words(text):
    return json.dumps({"error": {"message": text}})


# --- B33: wait at least what the server says


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("3", 3.0),
        ("0", 0.0),
        (" 12 ", 12.0),
        ("1.5", 1.5),
        ("1.0001", 1.001),
        ("0.0000001", 0.001),
        ("86400", 86400.0),
        (LATER, 31.0),
        ("Monday, 21-Sep-26 14:13:51 GMT", 31.0),
        ("Mon, 21 Sep 2026 16:13:51 +0200", 31.0),
        ("Mon, 21 Sep 2026 14:13:20 GMT", 0.0),
        ("Wed, 21 Oct 2015 07:28:00 GMT", 0.0),
    ],
)
def test_a_refused_request_waits_as_long_as_retry_after_says_rounded_up(value, seconds):
    assert retry_after_s({"Retry-After": value}, "", NOW) == seconds


@pytest.mark.parametrize(
    "value",
    [
        *(
            "",
            "soon",
            "-5",
            "nan",
            "inf",
            "-inf",
            "1e3",
            "1_000",
            "٣",
            "0x10",
            "9" * 13,
            "9" * 5_000,
        ),
        *("12, 15", "12 s", "Mon, 99 Sep 2026 14:13:51 GMT", "1.2.3", "."),
    ],
)
def test_garbage_in_retry_after_is_no_wish(value):
    assert retry_after_s({"retry-after": value}, "", NOW) is None


@pytest.mark.parametrize("name", ["retry-after", "Retry-After", "RETRY-AFTER"])
def test_a_header_counts_in_any_case(name):
    assert retry_after_s({name: "7"}, "", NOW) == 7.0


def test_the_explicit_header_counts_before_everything_else():
    headers = {
        "retry-after": "2",
        "retry-after-ms": "9000",
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "9s",
    }
    assert retry_after_s(headers, words("Please try again in 9s"), NOW) == 2.0


def test_an_unreadable_header_leaves_the_word_to_the_next_form():
    headers = {"retry-after": "soon", "retry-after-ms": "350"}
    assert retry_after_s(headers, "", NOW) == 0.35


@pytest.mark.parametrize(
    ("value", "seconds"),
    [("350", 0.35), ("1", 0.001), ("350.5", 0.351), ("0", 0.0), ("-1", None), ("x", None)],
)
def test_milliseconds_are_read_and_rounded_up(value, seconds):
    assert retry_after_s({"retry-after-ms": value}, "", NOW) == seconds


# --- the body


@pytest.mark.parametrize(
    ("body", "seconds"),
    [
        (google({"@type": "google.rpc.RetryInfo", "retryDelay": "39s"}), 39.0),
        (google({"retryDelay": "38.2s"}), 38.2),
        (google({"retryDelay": "39.9264861s"}), 39.927),
        (google({"retryDelay": "2s"}, {"retryDelay": "5s"}), 5.0),
        ("[" + google({"retryDelay": "0s"}) + "]", 0.0),
        (words(google({"retryDelay": "26s"})), 26.0),
        ("{'error': {'details': [{'retryDelay': '7s'}]}}", 7.0),
        (google({"retryDelay": "-3s"}), None),
        (google({"retryDelay": "soon"}), None),
        (google({"retryDelay": 39}), None),
    ],
)
def test_google_s_retry_info_is_read_wherever_it_is_nested(body, seconds):
    assert retry_after_s({}, body, NOW) == seconds


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("Please retry in 39.5s.", 39.5),
        ("Please retry in 38.264861712s.", 38.265),
        ("Please try again in 1.2s. Visit the site.", 1.2),
        ("Please try again in 350ms.", 0.35),
        ("Please try again in 6m0s.", 360.0),
        ("try again in 1h2m3.5s", 3723.5),
        ("try again in 1h 2m", 3720.0),
        ("Please retry after 12 seconds. Go to the quota page.", 12.0),
        ("PLEASE RETRY AFTER 1 SECOND", 1.0),
        ("Please wait 30 seconds before retrying", 30.0),
        ("Please wait for 2 minutes", 120.0),
        ("Try again in 2 days", 172800.0),
        ("Please try again in 3 messages", None),
        ("Please try again in 3 sets", None),
        ("Please try again in a moment", None),
        ("Please try again in -3s", None),
        ("tokens per min: Limit 30000, Used 29000", None),
        ("a time-out after 30s", None),
        ("Please try again later", None),
    ],
)
def test_words_that_name_a_wait_are_read(text, seconds):
    assert retry_after_s({}, words(text), NOW) == seconds
    assert retry_after_s({}, text, NOW) == seconds


# --- limits that reset


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3s", 3723.0),
        ("2m59.56s", 179.56),
        ("8", 8.0),
        ("1741305600000", None),
        ("6m0", None),
        ("s", None),
        ("", None),
    ],
)
def test_a_reset_counts_when_nothing_remains(value, seconds):
    headers = {"x-ratelimit-reset-tokens": value, "x-ratelimit-remaining-tokens": "0"}
    assert retry_after_s(headers, "", NOW) == seconds


def test_a_reset_of_a_limit_that_is_not_used_up_is_no_wish():
    reset = {"x-ratelimit-reset-tokens": "6m0s"}
    assert retry_after_s(reset, "", NOW) is None
    assert retry_after_s({**reset, "x-ratelimit-remaining-tokens": "17"}, "", NOW) is None
    assert retry_after_s({**reset, "x-ratelimit-remaining-requests": "0"}, "", NOW) is None


def test_of_several_used_up_limits_the_last_to_reset_counts():
    headers = {
        "x-ratelimit-remaining-requests": "0",
        "x-ratelimit-reset-requests": "2s",
        "x-ratelimit-remaining-tokens": "0",
        "x-ratelimit-reset-tokens": "5s",
    }
    assert retry_after_s(headers, "", NOW) == 5.0
    headers["x-ratelimit-remaining-tokens"] = "1"
    assert retry_after_s(headers, "", NOW) == 2.0


@pytest.mark.parametrize("counted", ["requests", "tokens", "input-tokens", "output-tokens"])
def test_anthropic_s_reset_moment_counts_when_nothing_remains(counted):
    headers = {
        f"Anthropic-RateLimit-{counted}-Reset": "2026-09-21T14:13:51Z",
        f"Anthropic-RateLimit-{counted}-Remaining": "0",
    }
    assert retry_after_s(headers, "", NOW) == 31.0
    headers[f"Anthropic-RateLimit-{counted}-Remaining"] = "1"
    assert retry_after_s(headers, "", NOW) is None


@pytest.mark.parametrize(
    ("moment", "seconds"),
    [
        ("2026-09-21T16:13:51+02:00", 31.0),
        ("2026-09-21T14:13:50.5Z", 31.0),
        ("2026-09-21T14:13:00Z", 0.0),
        ("tomorrow", None),
        ("", None),
    ],
)
def test_a_moment_is_counted_from_now_and_rounded_up(moment, seconds):
    headers = {
        "anthropic-ratelimit-requests-reset": moment,
        "anthropic-ratelimit-requests-remaining": "0",
    }
    assert retry_after_s(headers, "", NOW) == seconds


def test_what_the_body_says_of_this_refusal_counts_before_a_full_reset():
    headers = {"x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": "6m0s"}
    assert retry_after_s(headers, words("Please try again in 1.2s"), NOW) == 1.2


def test_nothing_said_is_no_wish():
    assert retry_after_s({}, "", NOW) is None
    assert retry_after_s({"content-type": "text/html"}, "<h1>429</h1>", NOW) is None


NAMES = st.sampled_from(
    [
        "Retry-After",
        "retry-after-ms",
        "x-ratelimit-remaining-tokens",
        "x-ratelimit-reset-tokens",
        "anthropic-ratelimit-tokens-remaining",
        "anthropic-ratelimit-tokens-reset",
    ]
)
VALUES = (
    st.text(max_size=30)
    | st.integers().map(str)
    | st.floats().map(str)
    | st.datetimes().map(lambda moment: moment.isoformat())
    | st.datetimes().map(lambda moment: moment.strftime("%a, %d %b %Y %H:%M:%S GMT"))
    | st.from_regex(r"\A([0-9.]{1,5}(ms|s|m|h|d)){1,4}\Z")
    | st.just("0")
)


@given(
    st.dictionaries(NAMES | st.text(max_size=8), VALUES, max_size=6),
    st.text() | VALUES.map(lambda value: f'"retryDelay": "{value}s" Please try again in {value}'),
    st.floats(),
)
@example({"retry-after": LATER}, "", math.nan)
@example({"retry-after": LATER}, "", math.inf)
@example({"retry-after": LATER}, "", 1.7e308)
@example({"retry-after": "Mon, 01 Jan 0001 00:00:00 +2359"}, "", 0.0)
@example({"retry-after": "Fri, 31 Dec 9999 23:59:59 -2359"}, "", 0.0)
@example({}, "try again in " + "1h " * 100_000, NOW)
@example({}, "retry in " + "9" * 100_000, NOW)
def test_any_reply_at_all_gives_a_finite_wait_or_none(headers, body, now_s):
    wait = retry_after_s(headers, body, now_s)
    assert wait is None or (math.isfinite(wait) and wait >= 0)


@given(st.decimals(min_value=0, max_value=1_000_000, places=5))
def test_no_wait_is_ever_shorter_than_what_was_asked(asked):
    for headers, body in (
        ({"retry-after": f"{asked:f}"}, ""),
        ({"retry-after-ms": f"{asked * 1000:f}"}, ""),
        ({}, f'"retryDelay": "{asked:f}s"'),
        ({}, f"Please try again in {asked:f}s."),
    ):
        wait = retry_after_s(headers, body, NOW)
        assert wait is not None
        assert float(asked) <= wait < float(asked) + 0.00101
