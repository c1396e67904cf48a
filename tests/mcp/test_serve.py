"""Agents as tools of an MCP server: one run for one id, progress, cancel, and what is hidden."""

import asyncio
import contextlib
import json
import shlex
import subprocess
import sys

import pytest
from tests.mcp.kit import RAW, go

from cairn import Agent, ErrorClass, ModelError, Policy, Principal, Runtime, Scripted, call, tool
from cairn.errors import ConfigError
from cairn.servers.agent_calls import AgentCalls
from cairn.servers.mcp import build
from cairn.servers.mcp_http import app

CALLS = []


@tool(effect="write")
async def pay(cents: int) -> str:
    """Pay."""
    CALLS.append(cents)
    return f"paid {cents}"


def agents(hold=None):
    @tool(effect="read")
    async def look() -> str:
        """Look."""
        if hold is not None:
            hold["begun"].set()
            await hold["go_on"].wait()
        return "seen"

    fault = ModelError(ErrorClass.INVALID_REQUEST, "refused by the provider")
    return [
        Agent("echo", Scripted(["hello"])),
        Agent("payer", Scripted([call("pay", cents=5), "paid"]), tools=[pay]),
        Agent("looker", Scripted([call("look"), "done"]), tools=[look]),
        Agent("broken", Scripted([fault])),
    ]


@contextlib.asynccontextmanager
async def client_of(runtime, mode="legacy", **more):
    from mcp import Client

    calls = AgentCalls(runtime, **more)
    async with Client(build(calls), mode=mode) as client:
        yield client


def served(work, mode="legacy", hold=None, **more):
    async def main():
        async with (
            Runtime(":memory:", agents(hold)) as runtime,
            client_of(runtime, mode, **more) as client,
        ):
            return await work(client, runtime)

    return go(main())


@pytest.mark.parametrize("mode", ["legacy", "auto"])
def test_each_agent_is_a_tool_and_its_answer_the_result(mode):
    async def work(client, runtime):
        listed = await client.list_tools()
        assert [each.name for each in listed.tools] == ["broken", "echo", "looker", "payer"]
        assert listed.tools[0].input_schema["required"] == ["input"]
        found = await client.call_tool("echo", {"input": "hi", "run_id": "e"})
        assert found.content[0].text == "hello"
        assert found.structured_content == {"run_id": "e", "status": "completed"}
        assert not found.is_error
        assert (await runtime.get_async("e")).status == "completed"

    served(work, mode)


def test_the_same_id_is_the_same_run_and_nothing_is_done_twice():
    CALLS.clear()

    async def work(client, runtime):
        first = await client.call_tool("payer", {"input": "pay", "run_id": "p"})
        assert first.structured_content["status"] == "waiting"
        assert first.structured_content["pending"][0]["id"] == "p/1"
        assert "p/1" in first.content[0].text
        assert not first.is_error
        await runtime.approve_async("p/1")
        for _ in range(2):
            again = await client.call_tool("payer", {"input": "pay", "run_id": "p"})
            assert again.content[0].text == "paid"
        other = await client.call_tool("payer", {"input": "something else", "run_id": "p"})
        assert other.is_error
        assert other.structured_content["error"] == "RunConflict"

    served(work)
    assert CALLS == [5]


def test_a_denied_tool_is_denied_on_this_path_too():
    CALLS.clear()

    async def main():
        policy = Policy(tools={"pay": "deny"})
        async with (
            Runtime(":memory:", agents(), policy=policy) as runtime,
            client_of(runtime) as client,
        ):
            await client.call_tool("payer", {"input": "pay", "run_id": "p"})
            return [e.event.NAME for e in await runtime.trace_async("p")]

    seen = go(main())
    assert "tool.rejected" in seen
    assert "tool.started" not in seen
    assert CALLS == []


def test_a_run_that_ends_badly_is_an_error_with_its_class():
    async def work(client, runtime):
        found = await client.call_tool("broken", {"input": "x"})
        assert found.is_error
        assert found.structured_content["status"] == "failed"
        assert found.structured_content["error_class"] == "invalid_request"

    served(work)


@pytest.mark.parametrize(
    "arguments",
    [{}, {"input": ""}, {"input": 1}, {"input": "x", "run_id": 3}, {"input": "x", "a": 1}],
)
def test_arguments_that_do_not_fit_start_nothing(arguments):
    async def work(client, runtime):
        assert (await client.call_tool("echo", arguments)).is_error
        assert await runtime.runs_async() == []

    served(work)


@pytest.mark.parametrize("run", ["../x", "store", "a b", "x" * 65])
def test_an_id_that_is_none_is_refused(run):
    async def work(client, runtime):
        found = await client.call_tool("echo", {"input": "x", "run_id": run})
        assert found.is_error
        assert await runtime.runs_async() == []

    served(work)


def test_an_agent_that_is_not_offered_cannot_be_called():
    from mcp.shared.exceptions import MCPError

    async def work(client, runtime):
        assert [each.name for each in (await client.list_tools()).tools] == ["echo"]
        with pytest.raises(MCPError, match="no agent 'payer'"):
            await client.call_tool("payer", {"input": "x"})

    served(work, agents=["echo"])


def test_what_happens_in_a_run_is_reported_as_progress():
    async def work(client, runtime):
        told = []

        async def progress(done, total, message):
            told.append((done, message))

        await client.call_tool("looker", {"input": "x", "run_id": "l"}, progress_callback=progress)
        assert [done for done, _ in told] == sorted({done for done, _ in told})
        assert told[0][1].startswith("run l: run.created")
        assert any("tool.completed" in message for _, message in told)

    served(work)


def test_a_client_that_cancels_cancels_the_run():
    hold = {"begun": asyncio.Event(), "go_on": asyncio.Event()}

    async def work(client, runtime):
        asked = asyncio.create_task(client.call_tool("looker", {"input": "x", "run_id": "l"}))
        await hold["begun"].wait()
        asked.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await asked
        while (await runtime.get_async("l")).status != "cancelled":
            await runtime.store.changed("l", 0, 0.05)
            await asyncio.sleep(0.01)

    served(work, hold=hold)


def test_a_client_that_goes_away_leaves_the_run_to_go_on():
    hold = {"begun": asyncio.Event(), "go_on": asyncio.Event()}

    async def main():
        async with Runtime(":memory:", agents(hold)) as runtime:
            calls = AgentCalls(runtime)

            async def on_entry(run, entry):
                return

            asked = asyncio.create_task(calls.call("looker", "x", "l", on_entry))
            await hold["begun"].wait()
            asked.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await asked
            hold["go_on"].set()
            again = await calls.call("looker", "x", "l", on_entry)
            assert again.text == "done"
            await calls.close()

    go(main())


def test_a_run_can_be_read_by_its_own_principal_only():
    from mcp.shared.exceptions import MCPError

    async def main():
        async with Runtime(":memory:", agents()) as runtime:
            await runtime.run_async("echo", "secret", id="other", principal="somebody")
            async with client_of(runtime, principal=Principal(id="mcp")) as client:
                await client.call_tool("echo", {"input": "x", "run_id": "mine"})
                templates = await client.list_resource_templates()
                assert templates.resource_templates[0].uri_template == "cairn://run/{id}"
                found = await client.read_resource("cairn://run/mine")
                said = json.loads(found.contents[0].text)
                assert said["text"] == "hello"
                assert said["trace"][0].startswith("1 run.created")
                for uri in ("cairn://run/other", "cairn://run/none", "cairn://x", "file:///etc"):
                    with pytest.raises(MCPError):
                        await client.read_resource(uri)
            info = await runtime.store.info("mine")
            assert info.principal == "mcp"

    go(main())


# ---------------------------------------------------------------- over HTTP


async def asked(made, **headers):
    """The status of one request to the application."""
    sent = []
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "ping"}).encode()
    given = {"host": "127.0.0.1:8000", "content-type": "application/json", **headers}
    scope = {
        "type": "http",
        "method": "POST",
        "path": "/mcp",
        "raw_path": b"/mcp",
        "query_string": b"",
        "scheme": "http",
        "http_version": "1.1",
        "server": ("127.0.0.1", 8000),
        "client": ("127.0.0.1", 1),
        "headers": [(k.encode(), v.encode()) for k, v in given.items()],
    }

    async def receive():
        return {"type": "http.request", "body": body, "more_body": False}

    async def send(message):
        sent.append(message)

    await made(scope, receive, send)
    return sent[0]["status"]


def test_a_web_page_cannot_reach_it_and_neither_can_who_lacks_the_token():
    token = "t" * 20

    async def main():
        async with Runtime(":memory:", agents()) as runtime:
            bare = app(AgentCalls(runtime), port=8000)
            async with bare.router.lifespan_context(bare):
                assert await asked(bare, host="evil.example:8000") == 421
                assert await asked(bare, host="127.0.0.1:9") == 421
                assert await asked(bare, origin="http://evil.example") == 403
                assert await asked(bare, origin="http://127.0.0.1:8000") == 406  # let in, then read
            guarded = app(AgentCalls(runtime), port=8000, token=token)
            assert await asked(guarded) == 401
            assert await asked(guarded, authorization="Bearer wrong") == 401

    go(main())


def test_it_is_not_opened_to_others_without_a_token():
    async def main():
        async with Runtime(":memory:", agents()) as runtime:
            calls = AgentCalls(runtime)
            with pytest.raises(ConfigError, match="can be reached by others"):
                app(calls, host="0.0.0.0", port=1)
            with pytest.raises(ConfigError, match="too short"):
                app(calls, host="0.0.0.0", port=1, token="short")

    go(main())


# ---------------------------------------------------------------- the commands

APP = """
from cairn import Agent, Runtime, Scripted, tool
from cairn.mcp import McpServer
import sys
print("noise on standard output")
command = [sys.executable, "-I", "-S", {raw!r}, "{{}}"]
server = McpServer("s", command=command, effects={{"do": "read"}})
user = Agent("user", Scripted(["x"]), tools=[server])
rt = Runtime("shop.db", [Agent("echo", Scripted(["hello"])), user])
"""


def command(*words):
    code = (
        "from cairn.cli import entry, mcp_command as m\n"
        "known = {getattr(g, 'name', '') for g in entry.app.registered_groups}\n"
        "'mcp' in known or entry.app.add_typer(m.app, name='mcp')\n"
        "entry.app()"
    )
    return [sys.executable, "-c", code, "mcp", *words]


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "shop.py").write_text(APP.format(raw=RAW))
    return tmp_path


@pytest.mark.slow
def test_the_command_serves_an_application_and_keeps_its_output_clean(folder):
    from mcp import Client, StdioServerParameters, stdio_client

    errors = folder / "err"
    program, *rest = command("serve", "--app", "shop:rt", "--agent", "echo")

    async def main():
        how = StdioServerParameters(command=program, args=rest, cwd=folder)
        with errors.open("w") as err:
            async with Client(stdio_client(how, errlog=err), mode="legacy") as client:
                found = await client.call_tool("echo", {"input": "x", "run_id": "e"})
                assert found.content[0].text == "hello"

    go(main())
    assert (folder / "shop.db").exists()


@pytest.mark.slow
def test_what_an_application_prints_never_reaches_the_client(folder):
    hello = {
        "protocolVersion": "2025-11-25",
        "capabilities": {},
        "clientInfo": {"name": "x", "version": "1"},
    }
    first = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": hello}
    done = subprocess.run(
        command("serve", "--app", "shop:rt"),
        cwd=folder,
        input=json.dumps(first) + "\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "noise on standard output" in done.stderr
    for line in done.stdout.splitlines():
        assert json.loads(line)["jsonrpc"] == "2.0"
    assert '"serverInfo"' in done.stdout


@pytest.mark.slow
def test_the_command_shows_what_a_server_would_bring(folder):
    done = subprocess.run(
        command("tools", "--app", "shop:rt", "--json"),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert (found["name"], found["effect"], found["why"]) == ("s__do", "read", "declared")


@pytest.mark.slow
def test_the_command_shows_the_tools_that_read_resources(folder):
    how = json.dumps({"has": {"resources": {}}})
    line = shlex.join([sys.executable, "-I", "-S", RAW, how])
    done = subprocess.run(
        command("tools", "--command", line, "--json"),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = [json.loads(each) for each in done.stdout.splitlines()]
    assert [(each["name"], each["effect"]) for each in found] == [
        ("server__do", "dangerous"),
        ("server__list_resources", "read"),
        ("server__read_resource", "read"),
    ]


@pytest.mark.slow
def test_the_command_says_that_it_serves_only_where_it_does(folder):
    done = subprocess.run(
        command("serve", "--app", "shop:rt", "--http", "8731", "--host", "0.0.0.0"),
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 2
    assert "0.0.0.0 can be reached by others" in done.stderr
    assert "serving" not in done.stderr + done.stdout
