"""What a grant could never answer is refused when it is made, or said when it is shown."""

import asyncio
import json
import sys

import pytest
from tests.mcp.kit import RAW

from cairn import Agent, ApprovalTerms, Policy, Refused, Runtime, Scripted, tool
from cairn.core.grants import covers
from cairn.core.policy import Equals, Range, Rule
from cairn.errors import ConfigError, ToolsUnready
from cairn.mcp import McpServer
from cairn.store.inmemory import InMemoryStore

LEAD = ApprovalTerms(roles=("lead",))


@tool(effect="write")
def pay(order: str, cents: int = 100, fast: bool = False) -> str:
    """Pay."""
    return f"{order} {cents} {fast}"


def desk(*rules, agents=None, **more):
    agents = agents or [Agent("a", Scripted(["x"]), tools=[pay])]
    return Runtime(InMemoryStore(), agents, policy=Policy(rules=rules, **more))


def shown(rt, **scope):
    return asyncio.run(rt.show_grant_async("pay", **scope))


def test_an_argument_that_the_tool_does_not_have_is_refused():
    rt = desk()
    for verb in (rt.grant_async, rt.show_grant_async):
        with pytest.raises(ConfigError, match=r"no argument 'ordre'; did you mean 'order'\?"):
            asyncio.run(verb("pay", arguments={"ordre": "7"}))
    scope = shown(rt, arguments={"order": "7"}).scope
    assert not covers(scope, "pay", '{"ordre": "7"}')


def test_a_value_that_no_call_can_have_is_warned_of():
    rt = desk()
    (said,) = shown(rt, arguments={"cents": "5"}).warnings
    assert said == "argument cents is integer: no call has '5'"
    assert shown(rt, arguments={"cents": 5, "order": "7", "fast": True}).warnings == ()


def test_a_grant_for_what_the_policy_denies_is_warned_of():
    rt = desk(tools={"pay": "deny"})
    (said,) = shown(rt).warnings
    assert said.startswith("the policy denies pay of agent a (deployment: tool pay)")
    assert f"warning: {said}" in str(shown(rt))
    deny = Rule(name="big", decide="deny", arguments={"cents": Range(min=1000)})
    (said,) = shown(desk(deny)).warnings
    assert said.endswith("(deployment: big), by arguments that the grant leaves open")
    assert shown(desk(deny), arguments={"cents": 5}).warnings == ()
    (said,) = shown(desk(deny), arguments={"cents": 5000}).warnings
    assert "the policy denies pay" in said
    agent = Agent("b", Scripted(["x"]), tools=[pay], policy=Policy(tools={"pay": "deny"}))
    both = [Agent("a", Scripted(["x"]), tools=[pay]), agent]
    (said,) = shown(desk(agents=both)).warnings
    assert "denies pay of agent b" in said
    assert shown(desk(agents=both), agent="a").warnings == ()


def test_who_may_not_approve_may_not_grant_and_where_that_hangs_on_arguments_is_warned():
    lead = Rule(name="lead", decide="ask", arguments={"cents": Range(min=1000)}, approval=LEAD)
    for scope in ({"arguments": {"cents": 2000}}, {"arguments": {"cents": 2000}, "agent": "a"}):
        with pytest.raises(Refused, match="the role lead, and ann has none"):
            shown(desk(lead), by="ann", **scope)
        assert shown(desk(lead), by="ann", roles=("lead",), **scope).warnings == ()
    assert shown(desk(lead), by="ann", arguments={"cents": 5}).warnings == ()
    (said,) = shown(desk(lead), by="ann").warnings
    assert "the role lead, and ann has none: the grant does not answer there" in said
    always = Rule(name="always", decide="ask", tools=("pay",), approval=LEAD)
    with pytest.raises(Refused, match="role lead"):
        shown(desk(always), by="ann")


def test_one_agent_of_several_for_whom_a_role_is_missing_is_warned_of():
    strict = Agent("b", Scripted(["x"]), tools=[pay], approval=LEAD)
    rt = desk(agents=[Agent("a", Scripted(["x"]), tools=[pay]), strict])
    (said,) = shown(rt, by="ann").warnings
    assert said == "a grant for pay of agent b needs a person with the role lead, and ann has none"
    with pytest.raises(Refused):
        shown(rt, by="ann", agent="b")


def test_a_preview_says_until_when_it_would_hold():
    rt = desk()
    assert "until: it is revoked" in str(shown(rt))
    found = shown(rt, hours=8)
    (line,) = [each for each in found.allows if each.startswith("until: ")]
    assert line.endswith(" UTC")
    assert found.scope.until > 0
    assert "until: further than a calendar tells" in str(shown(rt, hours=9e8))


def test_a_rule_on_another_tool_says_nothing_of_a_grant():
    other = Rule(name="o", decide="deny", tools=("*x",), arguments={"order": Equals(value="7")})
    assert shown(desk(other)).warnings == ()


def test_a_tool_of_a_server_can_be_granted_and_its_arguments_are_known():
    async def main(command):
        server = McpServer("s", command=command, effects={"do": "write"})
        agents = [Agent("a", Scripted(["x"]), tools=[server])]
        async with Runtime(InMemoryStore(), agents) as rt:
            with pytest.raises(ConfigError, match="no argument 'm'"):
                await rt.grant_async("s__do", arguments={"m": 1})
            return await rt.grant_async("s__do", arguments={"n": 1})

    assert asyncio.run(main([sys.executable, "-I", "-S", RAW, json.dumps({})])) == 1
    with pytest.raises(ToolsUnready):
        asyncio.run(main(["false"]))
