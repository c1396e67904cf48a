"""What servers of tools did to others: they die, chatter, share names, say more than fits."""

import json
import time

from tests.mcp.kit import OPEN, alive, do, go, of, ran, raw, result
from tests.mcp.test_web import at
from tests.mcp.web import serving

from cairn import Agent, Runtime, Scripted, call
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.mcp import ToolOptions

PLAIN = {"type": "object", "properties": {"n": {"type": "integer"}}}
NODE = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "below": {"$ref": "#/$defs/Node"}},
    "required": ["name"],
}
TREE = {
    "type": "object",
    "properties": {"top": {"$ref": "#/$defs/Node"}},
    "required": ["top"],
    "$defs": {"Node": NODE},
}


def told(request):
    """What the model reads of its calls; the list it was sent is well-formed."""
    assert faults(request.messages) == []
    return {p.id: p.result for m in request.messages if m.role == "tool" for p in m.parts}


def test_a_schema_that_refers_to_itself_is_shown_whole_and_held_to():
    """B25: the model sees the definitions, and arguments are followed into them."""
    requests = []
    script = [
        call("s__plant", top={"name": "a", "below": {"below": {"name": "c"}}}),
        call("s__plant", top={"name": "a", "below": {"name": "b", "below": {"name": "c"}}}),
        "fine",
    ]

    def model(request):
        requests.append(request)
        return script[request.turn]

    async def main():
        server = raw(
            effects={"plant": "write"}, how={"tools": [{"name": "plant", "inputSchema": TREE}]}
        )
        agent = Agent("a", Scripted(model), tools=[server], builtins=())
        async with Runtime(":memory:", [agent], policy=OPEN) as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.status == "completed"
            return [e.event for e in await rt.trace_async("r")]

    events = go(main())
    (shown,) = requests[0].tools
    assert json.loads(json.dumps(shown.parameters)) == TREE
    assert len(of(events, ev.ToolStarted)) == 1
    read = told(requests[-1])
    assert read["c1"].startswith("Not executed")
    assert "name" in read["c1"]
    assert "done" in read["c2"]


def test_the_end_of_a_server_ends_all_calls_that_wait_for_it_at_once(tmp_path):
    """B66: it exits inside a call while another one waits; nothing is sent again by itself."""
    log = tmp_path / "log"
    apart = {"do": ToolOptions(effect="write", conflict_key="n")}
    server = raw(effects=apart, how={"call": "second_exits", "log": str(log)})
    began = time.monotonic()
    run, events = go(ran(server, [do, call("s__do", n=2)], "fine"))
    assert time.monotonic() - began < 20, "the limit of a call is far off"
    assert run.reason == "in_doubt"
    assert {each.call for each in of(events, ev.ToolUnknown)} == {"c1", "c2"}
    assert {each.reason for each in of(events, ev.ToolUnknown)} == {"unsure"}
    assert log.read_text().count("call do") == 2


def test_a_banner_before_the_first_message_and_lines_between_answers_are_passed_over():
    """B67: a first line that is no message, then proper ones; then a line between two answers."""
    how = {"banner": "Server started", "call": "chatter", "lines": 1}
    run, events = go(ran(raw(how=how), do, call("s__do", n=2), "fine"))
    assert run.status == "completed"
    assert [result(events, n) for n in (0, 1)] == ["after the noise"] * 2


def test_a_list_that_changes_is_read_again_before_the_model_is_asked_again():
    """B68: a tool that was added stands in the very next request, one that went does not."""
    offered = []
    now = [{"name": "do", "inputSchema": PLAIN}, {"name": "beta", "inputSchema": PLAIN}]

    def model(request):
        offered.append({each.name for each in request.tools})
        return [do, call("s__beta", n=1), "fine"][request.turn]

    async def main():
        server = raw(how={"call": "change", "then_listed": now}, effects={"do": "write"})
        agent = Agent("a", Scripted(model), tools=[server], builtins=())
        async with Runtime(":memory:", [agent], policy=OPEN) as rt:
            return await rt.run_async("a", "task", id="r")

    go(main())
    assert offered[0] == {"s__do"}
    assert offered[1] == {"s__do", "s__beta"}


def test_a_server_that_refuses_who_we_are_is_asked_once_and_no_session_is_begun_for_it():
    """B69: only a session that is gone is begun anew; a refused key is not."""
    for status in (401, 403):
        with serving(call="status", status=status) as (server, url):
            run, events = go(ran(at(url), do, "fine"))
        assert run.status == "completed"
        assert (server.sessions, server.seen.count("tools/call")) == (1, 1)
        assert f"HTTP {status}" in of(events, ev.ToolFailed)[0].message


def test_two_servers_with_a_tool_of_one_name_are_two_tools_and_each_gets_its_own_calls(tmp_path):
    """B70: names carry the server's; also two names of one server that look alike stay apart."""
    mail = [{"name": name, "inputSchema": PLAIN} for name in ("send_email", "send-email")]
    logs = {name: tmp_path / name for name in ("a", "b")}

    async def main():
        servers = [
            raw(name, {"send_email": "write"}, how={"tools": mail, "log": str(log)})
            for name, log in logs.items()
        ]
        script = [call("a__send_email", n=1), call("b__send_email", n=2), "fine"]
        agent = Agent("a", Scripted(script), tools=servers, builtins=())
        async with Runtime(":memory:", [agent], policy=OPEN) as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.status == "completed"
        return [tool.name for server in servers for tool in server.tools()]

    found = go(main())
    assert len(set(found)) == 4
    assert logs["a"].read_text() == 'call send_email {"n": 1}\n'
    assert logs["b"].read_text() == 'call send_email {"n": 2}\n'


def test_two_million_letters_of_an_outside_tool_do_not_fill_the_window():
    """B59: the cap stands where results come in; what was cut is said and can be read on."""
    requests = []
    script = [do, call("read_artifact", id="a1", offset=1_999_990), "fine"]

    def model(request):
        requests.append(request)
        return script[request.turn]

    async def main():
        server = raw(how={"call": "long", "letters": 2_000_000})
        agent = Agent("a", Scripted(model), tools=[server])
        async with Runtime(":memory:", [agent], policy=OPEN) as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.status == "completed"
            assert run.artifacts[0].size == 2_000_000
            assert len(await rt.artifact_async("r", "a1")) == 2_000_000

    go(main())
    read = told(requests[-1])
    assert len(read["c1"]) < 20_000
    assert "a1" in read["c1"]
    assert "the end..." in read["c2"]


def test_a_server_that_never_answers_the_handshake_is_given_up_and_left_nowhere(tmp_path):
    """B66: starting has a limit of its own."""
    pids = tmp_path / "pid"
    server = raw(how={"mute": True, "pids": str(pids)}, connect_s=0.5, required=False)
    began = time.monotonic()
    run, _ = go(ran(server, "fine"))
    assert time.monotonic() - began < 20
    assert run.status == "completed"
    assert not alive(int(pids.read_text()))
