"""Servers at an address: sessions that end, answers that break off, redirects, secrets."""

import logging

import pytest
from tests.mcp.kit import called, do, go, of, ran, result
from tests.mcp.web import serving

from cairn.core import events as ev
from cairn.errors import ErrorClass, NotDone
from cairn.mcp import McpServer


def at(url, effect="write", **more):
    return McpServer("s", url=url, effects={"do": effect}, **more)


def test_a_server_at_an_address_is_called_like_any_other():
    with serving() as (_, url):
        run, events = go(ran(at(url), do, "fine"))
    assert run.status == "completed"
    assert result(events) == "done"


def test_a_server_without_a_stream_of_its_own_keeps_its_session():
    with serving(get=404) as (server, url):
        run, _ = go(ran(at(url), do, do, "fine"))
    assert run.status == "completed"
    assert server.sessions == 1


@pytest.mark.slow
def test_a_session_that_was_ended_is_begun_anew_and_the_refused_call_is_made_in_it():
    """B69: the old id is dropped, the list is read again, once."""
    with serving(call="expired") as (server, url):
        run, events = go(ran(at(url), do, "fine"))
    assert run.status == "completed"
    assert server.sessions == 2
    assert (server.seen.count("initialize"), server.seen.count("tools/list")) == (2, 2)
    assert of(events, ev.ToolFailed)[0].error_class is ErrorClass.TOOL_UNAVAILABLE
    assert [e.attempt for e in of(events, ev.ToolStarted)] == [1, 2]


@pytest.mark.parametrize("how", ["cut", "drop", "html", "stream_end"])
def test_an_answer_that_breaks_off_leaves_the_effect_unknown(how):
    with serving(call=how) as (server, url):
        run, _ = go(ran(at(url), do, "fine"))
    assert run.reason == "in_doubt"
    assert server.seen.count("tools/call") == 1


@pytest.mark.slow
def test_a_read_whose_answer_breaks_off_is_made_again():
    with serving(call="cut") as (server, url):
        run, _ = go(ran(at(url, "read"), do, "fine"))
    assert run.status == "completed"
    assert server.seen.count("tools/call") == 3


@pytest.mark.slow
def test_an_answer_without_end_is_not_taken():
    with serving(call="big", bytes=9 * 1024 * 1024) as (_, url):
        run, events = go(ran(at(url), do, "fine"))
    assert run.reason == "in_doubt"
    assert "longer than" in of(events, ev.ToolUnknown)[0].message


def test_a_refusal_is_a_known_failure_and_a_broken_server_is_not():
    with serving(call="status", status=403) as (_, url):
        run, events = go(ran(at(url), do, "fine"))
    assert run.status == "completed"
    assert "HTTP 403" in of(events, ev.ToolFailed)[0].message
    with serving(call="status", status=502) as (_, url):
        run, _ = go(ran(at(url), do, "fine"))
    assert run.reason == "in_doubt"


def test_a_redirect_to_another_host_is_not_followed():
    with serving() as (other, elsewhere):
        how = {"call": "status", "status": 307, "headers": {"location": elsewhere}}
        with serving(**how) as (_, url), pytest.raises(NotDone, match="not followed"):
            go(called(at(url, headers={"Authorization": "Bearer hidden"})))
        assert other.seen == []


def test_a_server_that_is_gone_was_asked_nothing():
    with serving() as (_, url):
        server = at(url)
        go(server.ready())
        go(server.close())
    with pytest.raises(NotDone, match="cannot be reached"):
        go(called(server))


def test_headers_are_sent_and_appear_in_no_log_event_or_error(caplog):
    caplog.set_level(logging.DEBUG)
    with serving(call="status", status=401) as (server, url):
        _, events = go(ran(at(url, headers={"Authorization": "Bearer s3cret"}), do, "fine"))
    assert all(each["Authorization"] == "Bearer s3cret" for each in server.headers)
    assert "s3cret" not in caplog.text
    assert "s3cret" not in repr(events)


def test_a_call_that_takes_too_long_is_unknown():
    with serving(call="wait") as (server, url):
        run, _ = go(ran(at(url, timeout_s=0.4), do, "fine"))
        server.released.set()
    assert run.reason == "in_doubt"
