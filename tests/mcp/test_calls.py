"""What is known of a call to a server that dies, hangs, lies or talks beside the point (law 4)."""

import asyncio
import json
import sys
import time

import pytest
from tests.mcp.kit import agent_of, called, do, go, gone, of, ran, raw, result, runtime

from cairn import Context, Progress, call
from cairn.core import events as ev
from cairn.errors import ConfigError, ErrorClass, NotDone, ToolsUnready
from cairn.mcp import McpServer
from cairn.mcp.faults import Down


def test_a_servers_tool_is_called_like_any_other_and_its_answer_recorded():
    run, events = go(ran(raw(), do, "fine"))
    assert run.status == "completed"
    assert result(events) == "done"
    assert of(events, ev.ToolStarted)[0].effect == "write"


def test_a_server_that_dies_in_a_call_leaves_its_effect_unknown(tmp_path):
    """B66: what waits for it fails at once, and nothing is sent again."""
    log = tmp_path / "log"
    run, events = go(ran(raw(how={"call": "exit", "log": str(log)}), do, "fine"))
    assert run.status == "waiting"
    assert run.reason == "in_doubt"
    assert "it broke" in of(events, ev.ToolUnknown)[0].message  # its last words are told
    assert log.read_text().count("call do") == 1  # and nothing is repeated


def test_a_server_killed_by_force_in_a_call_leaves_its_effect_unknown():
    run, events = go(ran(raw(how={"call": "suicide"}), do, "fine"))
    assert run.reason == "in_doubt"
    assert of(events, ev.ToolUnknown)[0].reason == "unsure"


@pytest.mark.slow
def test_a_read_that_was_lost_with_its_server_is_made_again_on_a_new_connection(tmp_path):
    how = {"call": "exit_once", "starts": str(tmp_path / "starts"), "log": str(tmp_path / "log")}
    run, events = go(ran(raw(effects={"do": "read"}, how=how), do, "fine"))
    assert run.status == "completed"
    assert of(events, ev.ToolFailed)[0].error_class is ErrorClass.MCP_DISCONNECTED
    assert result(events) == "done"
    assert (tmp_path / "starts").read_text() == "xx"


@pytest.mark.slow
def test_a_write_that_was_lost_is_not_repeated_and_the_next_call_reconnects(tmp_path):
    """B66."""
    how = {"call": "exit_once", "starts": str(tmp_path / "starts"), "log": str(tmp_path / "log")}

    async def main():
        async with runtime(raw(how=how), do, call("s__do", n=2), "fine") as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.reason == "in_doubt"
            run = await rt.resolve_async("r/c1", happened=True, result="it was done")
            run = await rt.run_async("a", "task", id="r")
            assert run.status == "completed"

    go(main())
    assert (tmp_path / "log").read_text().splitlines() == ['call do {"n": 1}', 'call do {"n": 2}']


def test_a_call_to_a_server_that_died_before_it_was_certainly_did_nothing():
    server = raw()

    async def main():
        await server.ready()
        server._command = ("/bin/false",)  # it cannot be started any more
        await server._side.run(server._disconnect)
        with pytest.raises(NotDone, match="cannot be reached"):
            await called(server, n=1)

    go(main())


def test_a_hanging_call_times_out_as_unknown_and_the_server_is_told(tmp_path):
    log = tmp_path / "log"
    server = raw(how={"call": "hang", "log": str(log)}, timeout_s=0.3)

    async def main():
        async with runtime(server, do, "fine") as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.reason == "in_doubt"
            while "cancelled" not in log.read_text():  # noqa: ASYNC110 - a file wakes nobody
                await asyncio.sleep(0.01)

    go(main())


def test_a_cancelled_run_tells_the_server_and_keeps_the_call_unknown(tmp_path):
    log = tmp_path / "log"
    log.touch()

    async def main():
        async with runtime(raw(how={"call": "hang", "log": str(log)}), do, "fine") as rt:
            await rt.start_async("a", "task", id="r")
            while "call" not in log.read_text():  # noqa: ASYNC110 - a file wakes nobody
                await asyncio.sleep(0.01)
            run = await rt.cancel_async("r")
            assert run.status == "cancelled"
            events = [e.event for e in await rt.trace_async("r")]
            assert of(events, ev.ToolUnknown)[0].reason == "cancelled"
            while "cancelled" not in log.read_text():  # noqa: ASYNC110 - a file wakes nobody
                await asyncio.sleep(0.01)

    go(main())


@pytest.mark.parametrize("how", ["wrong_id", "drip"])
def test_answers_to_nothing_we_asked_are_no_answers(how):
    run, events = go(ran(raw(how={"call": how}, timeout_s=0.4), do, "fine"))
    assert run.reason == "in_doubt"
    assert of(events, ev.ToolUnknown)[0].reason == "timeout"


def test_the_first_of_two_answers_counts():
    run, events = go(ran(raw(how={"call": "twice"}), do, do, "fine"))
    assert run.status == "completed"
    assert {result(events, 0), result(events, 1)} == {"first"}


@pytest.mark.parametrize("how", ["huge", "malformed"])
def test_an_answer_nobody_can_take_leaves_the_effect_unknown(how):
    run, _ = go(ran(raw(how={"call": how}), do, "fine"))
    assert run.reason == "in_doubt"


def test_noise_on_its_output_is_tolerated():
    """B67."""
    run, events = go(ran(raw(how={"call": "chatter", "lines": 900}), do, "fine"))
    assert run.status == "completed"
    assert result(events) == "after the noise"
    run, events = go(ran(raw(how={"call": "not_utf8"}), do, "fine"))
    assert result(events) == "after"


@pytest.mark.slow
def test_endless_noise_ends_the_connection_and_is_shown():
    run, events = go(ran(raw(how={"call": "chatter", "lines": 1_100}), do, "fine"))
    assert run.reason == "in_doubt"
    said = of(events, ev.ToolUnknown)[0].message
    assert "were no messages" in said
    assert "loading 1" in said


def test_a_tool_that_says_it_failed_has_failed_for_certain():
    said = {"content": [{"type": "text", "text": "no such file"}], "isError": True}
    run, events = go(ran(raw(how={"call": "reply", "result": said}), do, "fine"))
    assert run.status == "completed"
    assert "no such file" in of(events, ev.ToolFailed)[0].message


def test_an_error_the_server_answers_with_is_a_known_failure():
    run, events = go(ran(raw(how={"call": "error", "code": -32602}), do, "fine"))
    assert run.status == "completed"
    assert "no luck" in of(events, ev.ToolFailed)[0].message


def test_an_error_that_means_no_answer_is_unknown_whoever_says_it():
    run, _ = go(ran(raw(how={"call": "error", "code": -32001}), do, "fine"))
    assert run.reason == "in_doubt"


def test_calls_of_one_turn_share_the_connection(tmp_path):
    log = tmp_path / "log"
    server = raw(effects={"do": "read"}, how={"log": str(log), "starts": str(tmp_path / "s")})
    both = [call("s__do", n=1), call("s__do", n=2), call("s__do", n=3)]
    run, events = go(ran(server, both, "fine"))
    assert run.status == "completed"
    assert len(of(events, ev.ToolCompleted)) == 3
    assert (tmp_path / "s").read_text() == "x"


def test_progress_reaches_who_watches_however_much_of_it_comes():
    async def main():
        async with runtime(raw(how={"call": "progress"}), do, "fine") as rt:
            seen = [what async for what in rt.stream_async("a", "task", id="r")]
        return [each for each in seen if isinstance(each, Progress)]

    told = go(main())
    assert told[0].message == "on"
    assert told[-1].fraction == 1
    assert len(told) < 100  # thinned out


def test_one_connection_serves_loop_after_loop(tmp_path):
    starts = tmp_path / "starts"
    server = raw(effects={"do": "read"}, how={"starts": str(starts)})

    async def once():
        await server.ready()
        tool = server.tools()[0]
        return await tool.function({"n": 1}, Context(run_id="r", call_id="c1"))

    assert asyncio.run(once()) == asyncio.run(once()) == "done"
    assert starts.read_text() == "x"
    asyncio.run(server.close())


def test_images_and_resources_come_as_files_and_links():
    said = {
        "content": [
            {"type": "text", "text": "look"},
            {"type": "image", "data": "aGk=", "mimeType": "image/png"},
            {"type": "audio", "data": "not base64!", "mimeType": "audio/wav"},
            {"type": "resource", "resource": {"uri": "file:///a", "text": "inside"}},
            {"type": "resource_link", "uri": "file:///b", "name": "b"},
        ]
    }
    server = raw(how={"call": "reply", "result": said})
    run, events = go(ran(server, do, do, "fine"))
    found = result(events)
    assert found["text"] == "look"
    assert [each["kind"] for each in found["files"]] == ["image", "audio", "resource", "link"]
    assert [(each.id, each.name) for each in run.artifacts] == [
        ("a1", "s__do-c1-1"),
        ("a2", "s__do-c2-1"),
    ]
    assert found["files"][0]["kept_as"] == "s__do-c1-1"
    assert run.artifacts[0].media_type == "image/png"
    assert "cannot be read" in found["files"][1]["note"]
    assert found["files"][2]["text"] == "inside"


def test_structured_content_is_given_once():
    said = {"content": [{"type": "text", "text": '{"a": 1}'}], "structuredContent": {"a": 1}}
    _, events = go(ran(raw(how={"call": "reply", "result": said}), do, "fine"))
    assert result(events) == {"a": 1}


def test_a_broken_unicode_answer_is_stored_readable():
    said = {"content": [{"type": "text", "text": "a\u0000b"}]}
    _, events = go(ran(raw(how={"call": "reply", "result": said}), do, "fine"))
    assert result(events) == "a\u2400b"


def test_a_large_answer_becomes_an_artifact():
    said = {"content": [{"type": "text", "text": "x" * 50_000}]}
    run, events = go(ran(raw(how={"call": "reply", "result": said}), do, "fine"))
    assert run.artifacts[0].size == 50_000
    assert of(events, ev.ToolCompleted)[0].artifact == "a1"


# ---------------------------------------------------------------- what the server asks


FORM = {
    "message": "Which colour?",
    "requestedSchema": {
        "type": "object",
        "properties": {"colour": {"type": "string"}, "n": {"type": "integer", "default": 3}},
    },
}


def test_a_question_during_a_call_is_declined_and_the_model_is_told_what_was_asked():
    _, events = go(ran(raw(how={"call": "ask", "question": FORM}), do, "fine"))
    found = result(events)
    assert 'heard {"action": "decline"}' in found["text"]
    assert "Which colour?" in found["notes"][0]
    assert "ask_user" in found["notes"][0]


def test_the_operator_may_answer_what_a_server_asks_and_defaults_are_filled_in():
    asked = []

    def answers(question):
        asked.append(question)
        return {"colour": "red"}

    server = raw(how={"call": "ask", "question": FORM}, on_elicit=answers)
    _, events = go(ran(server, do, "fine"))
    said = json.loads(result(events)["text"].removeprefix("heard "))
    assert said == {"action": "accept", "content": {"colour": "red", "n": 3}}
    assert asked[0].message == "Which colour?"
    assert asked[0].calls == ("r/c1",)


def test_an_operator_whose_answer_fails_has_not_answered():
    def broken(question):
        raise ValueError("no")

    server = raw(how={"call": "ask", "question": FORM}, on_elicit=broken)
    _, events = go(ran(server, do, "fine"))
    assert '"action": "cancel"' in result(events)["text"]


def test_sampling_is_refused_and_only_given_roots_are_told(tmp_path):
    _, events = go(ran(raw(how={"call": "sample"}), do, "fine"))
    assert result(events) == "-32600"
    _, events = go(ran(raw(how={"call": "roots"}, roots=[tmp_path]), do, "fine"))
    assert json.loads(result(events))["roots"] == [{"uri": tmp_path.as_uri()}]


# ---------------------------------------------------------------- its process


def test_a_server_that_is_lost_again_and_again_is_left_alone():
    """B66: connecting anew is bounded."""
    server = raw(how={"die_at_start": True})

    async def main():
        now = time.monotonic()
        server._attempts.extend([now] * 12)
        with pytest.raises(Down, match=r"left alone for .* after 12 attempts"):
            await server.ready()
        await server.close()

    go(main())


def test_a_server_gets_none_of_our_environment_but_the_basics(monkeypatch):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-secret")
    _, events = go(ran(raw(how={"call": "env"}, env={"MINE": "1"}), do, "fine"))
    found = json.loads(result(events))
    assert "OPENAI_API_KEY" not in found
    assert "MINE" in found
    assert "PATH" in found


def test_closing_the_runtime_ends_the_server(tmp_path):
    pids = tmp_path / "pid"
    go(ran(raw(how={"pids": str(pids)}), do, "fine"))
    assert gone(int(pids.read_text()))


@pytest.mark.slow
def test_a_server_that_will_not_end_is_killed(tmp_path):
    pids = tmp_path / "pid"
    go(ran(raw(how={"pids": str(pids), "stubborn": True}), do, "fine"))
    assert gone(int(pids.read_text()))


def test_a_model_without_a_server_in_reach_gets_the_run_back_to_go_on_later():
    server = raw(how={"die_at_start": True, "stderr": "licence expired"})

    async def main():
        async with runtime(server, do, "fine") as rt:
            with pytest.raises(ToolsUnready, match="licence expired"):
                await rt.run_async("a", "task", id="r")

    go(main())


def test_an_optional_server_that_is_down_is_gone_without():
    server = raw(how={"die_at_start": True}, required=False)
    run, _ = go(ran(server, "fine"))
    assert run.status == "completed"


def test_a_server_that_never_answers_is_given_up_in_time():
    """B66: starting has a limit."""
    server = raw(how={"mute": True}, connect_s=0.3)

    async def main():
        with pytest.raises(Down, match=r"within 0\.3 s"):
            await server.ready()
        await server.close()

    go(main())


def test_a_missing_sdk_is_said_with_the_extra_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "mcp.client", None)
    server = raw()

    async def main():
        with pytest.raises(ConfigError, match=r"cairn-runtime\[mcp\]"):
            await server.ready()
        await server.close()

    go(main())


def test_a_missing_program_is_said_by_name():
    server = McpServer("s", command=["no-such-program-here"])
    assert agent_of(server, "x").tools == {}

    async def main():
        with pytest.raises(ConfigError, match="no-such-program-here"):
            await server.ready()
        await server.close()

    go(main())
