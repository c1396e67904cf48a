"""Names in policies and declarations are held to what servers have; a misspelt one is refused."""

import asyncio
import logging
import sys

import pytest
from tests.mcp.kit import OPEN, RAW, agent_of, do, go, of, ran, raw, runtime

from cairn import Agent, Context, Policy, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.policy import Redirect, Rule
from cairn.errors import ConfigError, ToolsUnready, UnknownTools
from cairn.governance.policy_file import load_policy
from cairn.mcp import McpServer
from cairn.store.inmemory import InMemoryStore

PLAIN = {"type": "object", "properties": {"n": {"type": "integer"}}}
MISSPELT = Policy(effects={"write": "allow"}, tools={"s__dp": "deny"})


def tools(*names):
    return [{"name": name, "inputSchema": PLAIN} for name in names]


def down(name="t", **more):
    return McpServer(name, command=["false"], connect_s=5, **more)


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


# ---------------------------------------------------------------- policies


def test_a_misspelt_deny_for_a_servers_tool_is_refused_before_any_call_of_it(tmp_path):
    log = tmp_path / "log"

    async def main():
        async with runtime(raw(how={"log": str(log)}), do, "fine", policy=MISSPELT) as rt:
            with pytest.raises(UnknownTools, match=r"Runtime\.policy\.tools\.s__dp") as refused:
                await rt.run_async("a", "task", id="r")
            assert "Did you mean 's__do'?" in str(refused.value)
            assert refused.value.names == ("s__dp",)
            assert await rt.runs_async() == []
            with pytest.raises(ConfigError):  # not only the first time
                await rt.run_async("a", "task", id="r")

    go(main())
    assert not log.exists() or "call" not in log.read_text()


def test_the_rule_and_its_line_are_named_when_the_policy_is_a_file(tmp_path):
    file = tmp_path / "p.yaml"
    file.write_text(
        "tools: {s__do: allow}\n"
        "rules:\n"
        "  - {name: one, decide: deny, tools: s__dp}\n"
        "  - name: two\n"
        "    decide: redirect\n"
        "    tools: s__do\n"
        "    redirect: {tool: s__draft}\n"
    )

    async def main(policy, own=None):
        agent = agent_of(raw(), do, "fine", policy=own)
        async with Runtime(InMemoryStore(), [agent], policy=policy) as rt:
            with pytest.raises(UnknownTools) as refused:
                await rt.run_async("a", "task")
            return str(refused.value).splitlines()

    first, second = go(main(str(file)))
    assert first.startswith(f"Runtime.policy.rules.one.tools.s__dp: no agent has this tool ({file}")
    assert f"({file}:3)" in first
    assert f"({file}:4)" in second
    first, _ = go(main(OPEN, load_policy(file)))
    assert first.startswith("Agent('a').policy.rules.one.tools.s__dp")
    assert f"({file}:3)" in first


def test_a_name_that_no_server_could_have_is_refused_when_the_runtime_is_made():
    for name in ("do", "t__do", "s_do", "lok"):
        policy = Policy(rules=(Rule(name="r", decide="deny", tools=(name,)),))
        with pytest.raises(UnknownTools, match=f"rules.r.tools.{name}") as refused:
            Runtime(":memory:", [agent_of(raw(), "x")], policy=policy)
        assert "begin with s__..." in str(refused.value)
    rule = Rule(name="r", decide="redirect", redirect=Redirect(tool="doo"))
    with pytest.raises(UnknownTools, match="redirect"):
        Runtime(":memory:", [agent_of(raw(), "x")], policy=Policy(rules=(rule,)))


def test_a_name_without_the_servers_part_is_told_the_whole_name():
    server = raw()

    async def main():
        await server.ready()
        try:
            Runtime(":memory:", [agent_of(server, "x")], policy=Policy(tools={"do": "deny"}))
        finally:
            await server.close()

    with pytest.raises(UnknownTools, match="Did you mean 's__do'"):
        go(main())


def test_a_run_of_its_own_policy_is_refused_for_a_misspelt_name():
    async def main():
        async with runtime(raw(), do, "fine") as rt:
            with pytest.raises(UnknownTools, match=r"policy\.tools\.s__dp"):
                await rt.run_async("a", "task", policy=Policy(tools={"s__dp": "deny"}))
            run = await rt.run_async("a", "task", policy=Policy(tools={"s__do": "deny"}))
            assert run.status == "completed"

    go(main())


def test_names_of_tools_that_are_left_out_are_no_mistakes():
    bad = {"type": "object", "properties": {"n": {"$dynamicRef": "#x"}}}
    how = {"tools": [*tools("do", "wipe"), {"name": "bad", "inputSchema": bad}]}
    denied = {"s__wipe": "deny", "s__bad": "deny"}
    policy = Policy(effects={"write": "allow"}, tools=denied)
    run, _ = go(ran(raw(how=how, exclude=["wipe"]), do, "fine", policy=policy))
    assert run.status == "completed"


def test_another_agents_server_is_asked_only_if_it_could_have_the_name():
    """Of tools of `t` no call of this agent can be, so its names may wait."""

    async def main(policy, *servers):
        agents = [Agent(f"b{n}", Scripted(["x"]), tools=[s]) for n, s in enumerate(servers)]
        agents.insert(0, agent_of(raw(only=["do"]), do, "fine"))
        async with Runtime(InMemoryStore(), agents, policy=policy) as rt:
            return await rt.run_async("a", "task")

    policy = Policy(effects={"write": "allow"}, tools={"t__wipe": "deny"})
    assert go(main(policy, down("t"))).status == "completed"
    policy = Policy(effects={"write": "allow"}, tools={"s__wipe": "deny"})
    other = raw(how={"tools": tools("do", "wipe")})
    assert go(main(policy, other)).status == "completed"
    with pytest.raises(ToolsUnready, match="cannot be reached"):
        go(main(policy, down("s")))
    with pytest.raises(UnknownTools, match="nobody can tell yet"):
        go(main(policy, down("s", required=False)))


def test_without_an_optional_server_its_names_wait_and_that_is_said(caplog, tmp_path):
    """They are checked when it comes, in the middle of a run too, before its tools are offered."""
    sign = tmp_path / "up"
    script = (
        "import os, sys\n"
        "os.path.exists(sys.argv[1]) or sys.exit(1)\n"
        "os.execv(sys.argv[2], sys.argv[2:])"
    )
    start = [sys.executable, "-c", script, str(sign), sys.executable, "-I", "-S", RAW, "{}"]
    server = McpServer("s", command=start, required=False)
    agent = Agent("a", Scripted([call("come"), call("look"), "fine"]), tools=[server, look, come])
    policy = Policy(tools={"s__dp": "deny"})

    async def main():
        deps = {"sign": sign, "server": server}
        async with Runtime(InMemoryStore(), [agent], policy=policy, deps=deps) as rt:
            with pytest.raises(UnknownTools, match="s__dp"):
                await rt.run_async("a", "task", id="r")
            run = await rt.get_async("r")
            assert run.status not in {"completed", "failed"}, "it can be driven when that is mended"
            events = [e.event for e in await rt.trace_async("r")]
            assert len(of(events, ev.ToolStarted)) == 1, "nothing was called after the server came"

    with caplog.at_level(logging.WARNING, logger="cairn"):
        go(main())
    assert "Runtime.policy names tools that were not checked yet: s__dp" in caplog.text


@tool(effect="read", timeout=20)
async def come(ctx: Context) -> str:
    """Let the server come."""
    ctx.deps["sign"].write_text("up")
    for _ in range(10):
        await ctx.deps["server"].ready()
        if ctx.deps["server"].version:
            break
    return "it is there"


def test_a_name_that_goes_later_is_warned_of_and_the_run_goes_on(caplog):
    how = {"tools": tools("do", "wipe"), "call": "change", "then_listed": tools("do", "wipe2")}
    policy = Policy(effects={"write": "allow"}, tools={"s__wipe": "deny"})
    server = raw(how=how, effects={"do": "write", "wipe": "read"})

    async def main():
        lines = [do, call("wait"), call("s__wipe2", n=1), "fine"]
        agent = Agent("a", Scripted(lines), tools=[server, wait], builtins=())
        deps = {"server": server, "count": 3}
        async with Runtime(InMemoryStore(), [agent], policy=policy, deps=deps) as rt:
            run = await rt.run_async("a", "task")
            return run, {t.name: t.spec.effect for t in server.tools()}

    with caplog.at_level(logging.WARNING, logger="cairn"):
        run, effects = go(main())
    assert effects["s__wipe2"] == "dangerous", "nobody declared it"
    assert run.reason == "approval", "of the new tool"
    assert "MCP server s has no longer, though declared: wipe" in caplog.text
    assert "Runtime.policy names tools that are no longer there: s__wipe" in caplog.text


@tool(effect="read", timeout=20)
async def wait(ctx: Context) -> str:
    """Wait until the server's list has changed."""
    for _ in range(200):
        if any(each.name == "s__wipe2" for each in ctx.deps["server"].tools()):
            return "it has"
        await asyncio.sleep(0.05)
    return "it has not"


# ---------------------------------------------------------------- declarations


@pytest.mark.parametrize(
    ("options", "field", "meant"),
    [
        ({"effects": {"serach": "read"}}, r"McpServer\('s'\)\.effects\['serach'\]", "'search'"),
        ({"effects": {"s__do": "read"}}, r"effects\['s__do'\]", "'do'"),
        ({"only": ["serach"]}, r"McpServer\('s'\)\.only", "'search'"),
        ({"exclude": ["serach"]}, r"McpServer\('s'\)\.exclude", "'search'"),
        ({"exclude": ["qqq"]}, r"McpServer\('s'\)\.exclude", "do, search"),
    ],
    ids=range(5),
)
def test_a_misspelt_name_in_a_declaration_is_refused_each_time(options, field, meant):
    server = raw(how={"tools": tools("do", "search")}, **{"effects": {}, **options})

    async def main():
        for _ in range(2):
            with pytest.raises(UnknownTools, match=field) as refused:
                await server.ready()
            assert meant in refused.value.fix
            assert server.tools() == ()
            assert server.version == 0
        await server.close()

    go(main())


def test_all_misspelt_names_of_a_declaration_are_said_and_a_run_is_not_begun():
    server = raw(effects={"dp": "read"}, only=["do", "x"], exclude=["y"], required=False)

    async def main():
        async with runtime(server, do, "fine") as rt:
            with pytest.raises(UnknownTools) as refused:
                await rt.run_async("a", "task")
            assert len(str(refused.value).splitlines()) == 3
            assert refused.value.names == ("dp", "x", "y")
            assert await rt.runs_async() == []

    go(main())


def test_the_reading_of_resources_may_always_be_declared():
    run, _ = go(ran(raw(effects={"do": "write", "read_resource": "write"}), do, "fine"))
    assert run.status == "completed"
