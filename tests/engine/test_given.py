"""What users give wrongly is named with its field and the fix, and leaves nothing behind."""

import asyncio

import pytest

from cairn import Agent, ContextBlock, Ladder, Limits, Policy, Principal, Runtime, Scripted, tool
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError, UnknownRun
from cairn.store import open_store
from cairn.store.inmemory import InMemoryStore


@tool(effect="write")
def drop(table: str) -> str:
    """Drop a table."""
    return table


def agent(**options):
    return Agent("a", Scripted(["done"]), tools=[drop], **options)


@pytest.mark.parametrize(
    ("script", "options", "named"),
    [
        (None, {}, "Scripted.script"),
        (7, {}, "Scripted.script"),
        (
            "hello",
            {},
            r"Scripted.script: 'hello' is no list of replies. Write Scripted\(\['hello'\]\)",
        ),
        (["hi"], {"window": "6000"}, "Scripted.window"),
        (["hi"], {"window": 0}, "Scripted.window"),
        (["hi"], {"max_output": True}, "Scripted.max_output"),
    ],
)
def test_a_script_that_cannot_be_one_is_refused_where_it_is_made(script, options, named):
    with pytest.raises(ConfigError, match=named):
        Scripted(script, **options)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"context": ContextBlock("a", "b")}, r"Agent\('a'\)\.context: .*Give a list"),
        ({"tools": ["no_such_module"]}, r"Agent\('a'\)\.tools: 'no_such_module' cannot be"),
        ({"tools": [7]}, r"Agent\('a'\)\.tools: 7 is no tool"),
    ],
)
def test_what_is_no_list_of_an_agents_parts_is_refused_with_the_agents_name(options, named):
    with pytest.raises(ConfigError, match=named):
        Agent("a", Scripted(["done"]), **options)


@pytest.mark.parametrize(
    ("verb", "arguments", "named"),
    [
        ("answer", ("r/1", 5), "text: 5 is no text"),
        ("answer", ("r/1", None), "text: None is no text"),
        ("follow", ("abc",), "posted: 'abc' is no place of a message"),
    ],
)
def test_what_a_verb_cannot_use_is_named(verb, arguments, named):
    with (
        Runtime(":memory:", agents=[agent()]) as rt,
        pytest.raises(ConfigError, match=named),
    ):
        getattr(rt, verb)(*arguments)


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "qery"}, "kind"),
        ({"approvals": "noone"}, "approvals"),
        ({"session": 5}, "session"),
        ({"id": 7}, "id"),
        ({"id": "with space"}, "id"),
        ({"id": "store"}, "id"),
        ({"principal": 5}, "principal"),
        ({"principal": Principal(id="u", roles=["clerk"])}, "principal.roles"),
        ({"limits": {"stepz": 3}}, "limits.stepz"),
        ({"limits": {"steps": 2.5}}, "limits.steps"),
        ({"limits": {"steps": -1}}, "limits.steps"),
    ],
)
def test_a_bad_option_of_run_is_named_and_no_run_is_left_behind(options, named):
    async def main():
        rt = Runtime(":memory:", agents=[agent()])
        with pytest.raises(ConfigError) as caught:
            await rt.run_async("a", "x", **{"id": "p", **options})
        assert caught.value.field == named
        assert caught.value.fix
        assert await rt.runs_async() == []

    asyncio.run(main())


def test_an_input_that_is_no_text_is_named():
    async def main():
        rt = Runtime(":memory:", agents=[agent()])
        with pytest.raises(ConfigError, match="input"):
            await rt.run_async("a", 5)
        assert await rt.runs_async() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"kind": "qury"}, "kind"),
        ({"on_loop": "x"}, "on_loop"),
        ({"repairs": -1}, "repairs"),
        ({"repairs": True}, "repairs"),
        ({"approval_days": 0}, "approval_days"),
        ({"completion_checks": ["x"]}, "completion_checks"),
        ({"instructions": 5}, "instructions"),
        ({"limits": ["steps"]}, "limits"),
        ({"builtins": "ask_usr"}, "builtins"),
        ({"fallback_models": ["gpt"]}, "fallback_models"),
    ],
)
def test_a_bad_option_of_an_agent_is_named_where_it_is_made(options, named):
    with pytest.raises(ConfigError) as caught:
        agent(**options)
    assert caught.value.field == f"Agent('a').{named}"


@pytest.mark.parametrize("name", [None, "", "with space", 5, "x" * 65])
def test_a_bad_agent_name_is_refused(name):
    with pytest.raises(ConfigError, match=r"Agent\.name"):
        Agent(name, Scripted(["done"]))


@pytest.mark.parametrize("model", [None, "gpt", "openai:", "nobody:gpt", Scripted, 5])
def test_a_model_that_is_none_is_refused_where_the_agent_is_made(model):
    with pytest.raises(ConfigError, match=r"Agent\('a'\)\.model"):
        Agent("a", model)


def test_one_tool_or_one_builtin_may_be_given_without_a_list():
    one = Agent("a", Scripted(["done"]), tools=drop, builtins="ask_user")
    assert sorted(one.tools) == ["ask_user", "drop"]


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"agents": ["a"]}, "Runtime.agents"),
        ({"agents": 5}, "Runtime.agents"),
        ({"policy": {"drop": "allow"}}, "Runtime.policy"),
        ({"policy": None}, "Runtime.policy"),
        ({"ladder": {}}, "Runtime.ladder"),
        ({"on_wait": "nowhere"}, "Runtime.on_wait"),
        ({"on_wait": 5}, "Runtime.on_wait"),
        ({"clock": 3}, "Runtime.clock"),
        ({"clock": SystemClock}, "Runtime.clock"),
        ({"durability": "x"}, "durability"),
        ({"durability": None}, "durability"),
    ],
)
def test_a_bad_option_of_a_runtime_is_named(options, named):
    with pytest.raises(ConfigError) as caught:
        Runtime(":memory:", **{"agents": [agent()], **options})
    assert (caught.value.field, bool(caught.value.fix)) == (named, True)


PLACES = [3, None, b"x.db", 3.5, ["x.db"], "", " ", "a\0b.db", "\ud800.db"]


@pytest.mark.parametrize("given", PLACES, ids=ascii)
def test_what_can_be_no_place_for_a_store_is_named_and_makes_no_file(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as caught:
        Runtime(given, agents=[agent()])
    assert (caught.value.field, bool(caught.value.fix)) == ("store", True)
    assert list(tmp_path.iterdir()) == []


def test_a_durability_that_nobody_knows_is_refused_for_a_store_that_is_open_too():
    with pytest.raises(ConfigError, match="'most' is not known"):
        Runtime(InMemoryStore(), durability="most")
    with pytest.raises(ConfigError, match="'most' is not known"):
        open_store(":memory:", durability="most")


@pytest.mark.parametrize("given", ["openai:gpt-5-mini", [3], ["gpt"], 5])
def test_models_to_switch_to_that_are_none_are_named_by_their_own_field(given):
    with pytest.raises(ConfigError) as caught:
        Agent("a", Scripted(["done"]), fallback_models=given)
    assert caught.value.field == "Agent('a').fallback_models"


def test_two_agents_of_one_name_are_refused():
    with pytest.raises(ConfigError, match="two agents"):
        Runtime(":memory:", agents=[agent(), agent()])


def test_a_policy_for_a_tool_nobody_has_is_refused_because_it_would_deny_nothing():
    with pytest.raises(ConfigError, match="Did you mean 'drop'"):
        Runtime(":memory:", agents=[agent()], policy=Policy(tools={"dorp": "deny"}))


def test_a_ladder_row_for_no_class_of_fault_is_refused():
    with pytest.raises(ConfigError, match=r"ladder\.no_such"):
        Ladder(rows={"no_such": ()})


@pytest.mark.parametrize("bad", [{"steps": "3"}, {"micro_usd": -4}, {"calls": 1.5}])
def test_bounds_are_whole_numbers(bad):
    with pytest.raises(ConfigError, match="limits"):
        Limits(**bad)


def test_a_mapping_narrows_only_what_it_names_and_limits_narrow_by_all_fields():
    mine = Limits(steps=200, calls=900)
    assert mine.narrowed({"steps": 3}) == Limits(steps=3, calls=900)
    assert mine.narrowed({"steps": 900}).steps == 200
    assert mine.narrowed(Limits()) == Limits()
    assert mine.changed({"steps": 900}) == Limits(steps=900, calls=900)
    assert mine.changed(Limits()) == Limits()
    with pytest.raises(ConfigError, match=r"limits\.stepz"):
        mine.changed({"stepz": 1})


def test_an_agent_takes_its_limits_whole_or_as_a_mapping_of_some():
    assert Agent("a", Scripted(["x"]), limits={"steps": 90}).limits == Limits(steps=90)
    assert Agent("a", Scripted(["x"]), limits=Limits(calls=3)).limits == Limits(calls=3)
    assert Agent("a", Scripted(["x"])).limits == Limits()


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (7, r"Agent\('a'\)\.limits: .*Give Limits\(steps=10\)"),
        (["steps"], r"Agent\('a'\)\.limits"),
        ({"stepz": 3}, r"limits\.stepz: there is no such limit"),
        ({"steps": "3"}, r"limits\.steps: '3' is no bound"),
        ({1: 3}, r"limits\.1: there is no such limit"),
    ],
)
def test_limits_that_an_agent_cannot_have_are_named_with_the_fix(bad, said):
    with pytest.raises(ConfigError, match=said):
        Agent("a", Scripted(["x"]), limits=bad)


@pytest.mark.parametrize("request_", [None, "", "r", "r/", "r/x", 5])
def test_a_request_that_names_nothing_is_said_so(request_):
    async def main():
        rt = Runtime(":memory:", agents=[agent()])
        with pytest.raises(ConfigError):
            await rt.approve_async(request_)
        with pytest.raises(UnknownRun):
            await rt.approve_async("nobody/1")

    asyncio.run(main())


def test_a_status_that_is_none_is_refused_and_one_may_stand_alone():
    async def main():
        rt = Runtime(":memory:", agents=[agent()])
        await rt.run_async("a", "x", id="r")
        assert [i.run for i in await rt.runs_async(status="completed")] == ["r"]
        with pytest.raises(ConfigError, match="complete"):
            await rt.runs_async(status=["complete"])

    asyncio.run(main())
