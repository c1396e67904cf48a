"""The project of a run: said where it is handed over, passed on where it goes on."""

import pytest
from tests.memory.kit import ANN, BOB, runtime, told
from typer.testing import CliRunner

from cairn import Agent, ConfigError, Route, Runtime, Scripted, call
from cairn.cli.entry import app
from cairn.core.codec import encode
from cairn.core.events import RunCreated
from cairn.errors import RunConflict
from cairn.memory import MemoryRules, Scope
from cairn.store.inmemory import Journals
from cairn.toolkit import MEMORY_TOOLS


def keeps(text="Deploys on Monday."):
    return [call("remember", text=text, scope="project"), "done"]


def looks():
    return [call("recall", query="deploys when?"), "done"]


def project_of(rt, run):
    return rt.trace(run)[0].event.project


def seen(rt, run):
    return told(rt.trace(run), "recall")[0]


def in_project(name, tenant=""):
    return Scope(kind="project", name=name, tenant=tenant)


def test_runs_of_one_project_share_facts_and_those_of_another_or_of_none_do_not():
    store = Journals()
    with runtime(store, keeps()) as rt:
        rt.run("desk", "go", id="r1", principal=ANN, project="shop")
        (kept,) = rt.facts(ANN)
        assert kept.scope == in_project("shop")
        assert project_of(rt, "r1") == "shop"
        assert len(rt.recall("deploys", principal=BOB, project="shop").hits) == 1
        assert rt.recall("deploys", principal=BOB, project="blog").hits == ()
        assert rt.recall("deploys", principal=BOB).hits == ()
    with runtime(store, looks()) as rt:
        rt.run("desk", "go", id="same", principal=BOB, project="shop")
        rt.run("desk", "go", id="other", principal=BOB, project="blog")
        rt.run("desk", "go", id="none", principal=BOB)
        assert "Deploys on Monday." in seen(rt, "same")
        for run in ("other", "none"):
            assert seen(rt, run) == "Nothing is remembered that fits."


def test_a_project_of_one_tenant_is_not_that_of_another():
    with runtime(":memory:", keeps()) as rt:
        rt.remember("x", scope="project", project="shop")
        assert rt.facts()[0].scope == in_project("shop")
        from cairn import Principal

        other = Principal(id="ann", tenant="acme")
        assert rt.recall("x", principal=other, project="shop").hits == ()


def test_a_run_without_a_project_can_keep_nothing_for_one():
    with runtime(":memory:", keeps()) as rt:
        rt.run("desk", "go", id="r")
        assert (
            "facts of the scope 'project' are not shared here" in told(rt.trace("r"), "remember")[0]
        )
        assert rt.facts() == []


def test_what_a_run_is_about_is_no_part_of_an_old_journal_and_stands_in_a_new_one():
    bare = RunCreated(agent="a", input=(), digest="d")
    assert b"project" not in encode(bare)
    assert b'"project":"shop"' in encode(
        RunCreated(agent="a", input=(), digest="d", project="shop")
    )


def test_a_session_goes_on_with_its_project_and_refuses_another():
    with runtime(":memory:", ["done"]) as rt:
        rt.run("desk", "go", id="r1", session="s", project="shop")
        rt.run("desk", "on", id="r2", session="s")
        rt.send("s", "and on", id="three")
        assert [project_of(rt, run.run) for run in rt.session("s").chain] == ["shop"] * 3
        for tries in (
            lambda: rt.run("desk", "go", session="s", project="blog"),
            lambda: rt.send("s", "go", project="blog"),
        ):
            with pytest.raises(
                ConfigError, match="is about the project 'shop', and not 'blog'"
            ) as e:
                tries()
            assert e.value.field == "project"
        assert len(rt.session("s").chain) == 3
        rt.fork_session("s", "copy")
        copied = rt.send("copy", "go")
        assert project_of(rt, copied.id) == "shop"


def test_a_run_that_waits_behind_others_is_about_what_the_last_of_them_is_about():
    with runtime(":memory:", ["done"]) as rt:
        first = rt.enqueue("desk", "one", session="s")
        rt.enqueue("desk", "two", session="s", mode="queue", id="r2", project="shop")
        rt.enqueue("desk", "three", session="s", mode="queue", id="r3")
        assert (project_of(rt, first), project_of(rt, "r2"), project_of(rt, "r3")) == (
            "",
            "shop",
            "shop",
        )
        with pytest.raises(ConfigError, match="about the project 'shop'"):
            rt.enqueue("desk", "four", session="s", mode="queue", project="blog")


def test_a_run_at_work_is_told_nothing_of_another_project():
    ask = Agent("desk", Scripted([call("forget", id="m1"), "done"]), tools=[*MEMORY_TOOLS])
    with Runtime(":memory:", [ask]) as rt:
        assert rt.run("desk", "go", id="r", session="s", project="shop").status == "waiting"
        assert rt.post("s", "more", project="shop", mode="steer").how == "steered"
        with pytest.raises(ConfigError, match="about the project 'shop'"):
            rt.post("s", "more", project="blog", mode="steer")
        assert rt.run("desk", "go", id="bare", session="t").status == "waiting"
        with pytest.raises(ConfigError, match="at work without a project"):
            rt.post("t", "more", project="shop", mode="steer")


def test_retries_and_forks_are_about_what_their_run_was_about():
    store = Journals()
    with runtime(store, [call("recall", query="x"), "done"]) as rt:
        failed = rt.run("desk", "go", id="r", project="shop", limits={"steps": 1})
        assert failed.status == "stopped"
    with runtime(store, ["no turn of it is left", *keeps()]) as rt:
        assert rt.retry("r", id="again", limits={"steps": 9}).status == "completed"
    with runtime(store, keeps("Deploys at night.")) as rt:
        assert rt.fork("r", 1, id="beside", limits={"steps": 9}).status == "completed"
        found = [(fact.content.run, fact.scope) for fact in rt.facts()]
        assert found == [("again", in_project("shop")), ("beside", in_project("shop"))]


def test_the_same_id_for_another_project_is_another_task():
    with runtime(":memory:", ["done"]) as rt:
        rt.run("desk", "go", id="r", project="shop")
        assert rt.run("desk", "go", id="r", project="shop").id == "r"
        for other in ({"project": "blog"}, {}):
            with pytest.raises(RunConflict, match="another project"):
                rt.run("desk", "go", id="r", **other)


def test_a_route_names_the_project_and_its_conversations_are_other_ones():
    worker = Agent("desk", Scripted(keeps()), tools=[*MEMORY_TOOLS])
    routes = [Route(agent="desk", channel="shop", project="shop"), Route(agent="desk")]
    from tests.memory.kit import ALLOW

    with Runtime(":memory:", [worker], routes=routes, policy=ALLOW) as rt:
        shop = rt.accept(text="go", principal="ann", channel="shop")
        other = rt.accept(text="go", principal="ann", channel="mail")
        assert shop.session != other.session
        assert (project_of(rt, shop.run), project_of(rt, other.run)) == ("shop", "")
        rt.follow(shop)
        assert rt.facts()[0].scope == in_project("shop")
    with pytest.raises(ConfigError, match=r"Route\.project"):
        Route(agent="desk", project=" shop")


@pytest.mark.parametrize(
    "bad", [" shop", "shop ", "a\nb", "a\0b", "\ud800", "x" * 201, 7, "\u202eshop"]
)
def test_a_name_that_is_none_is_refused_with_field_and_fix_before_anything_is_kept(bad):
    with runtime(":memory:", ["done"]) as rt:
        for tries in (
            lambda: rt.run("desk", "go", project=bad),
            lambda: rt.send("s", "go", agent="desk", project=bad),
            lambda: rt.remember("x", scope="project", project=bad),
            lambda: rt.recall("x", project=bad),
        ):
            with pytest.raises(ConfigError) as error:
                tries()
            assert error.value.field == "project"
            assert error.value.fix
        assert rt.runs() == []
        assert rt.facts() == []
    for field in ({"projects": (bad,)}, {"project": bad}):
        with pytest.raises(ConfigError, match=r"MemoryRules\.project"):
            MemoryRules(**field)


def test_a_name_that_holds_a_secret_is_refused():
    key = "ghp_" + "a9K2m4Qx7ZtB1vN8cL5pR3wY6sD0fG2hJ4kE"
    with runtime(":memory:", ["done"]) as rt:
        with pytest.raises(ConfigError, match="project: it holds a secret") as error:
            rt.run("desk", "go", project=key)
        assert key not in str(error.value)
        with pytest.raises(ConfigError, match="project: it holds a secret"):
            rt.remember("x", scope="project", project=key)
        assert rt.runs() == []


def test_where_the_deployment_names_projects_a_run_says_no_other():
    rules = MemoryRules(projects=("shop", "blog"))
    with runtime(":memory:", ["done"], memory=rules) as rt:
        rt.run("desk", "go", id="r", project="blog")
        with pytest.raises(ConfigError, match=r"say 'shpo'. Did you mean 'shop'\?"):
            rt.run("desk", "go", project="shpo")
        with pytest.raises(ConfigError, match="say 'shpo'"):
            rt.recall("x", project="shpo")


def test_where_the_project_follows_from_the_principal_no_run_says_anothers():
    rules = MemoryRules(project=lambda who: {"ann": "shop"}.get(who.id, ""))
    with runtime(":memory:", ["done"], memory=rules) as rt:
        rt.remember("Deploys on Monday.", scope="project", principal="ann")
        assert len(rt.recall("deploys", principal="ann", project="shop").hits) == 1
        with pytest.raises(ConfigError, match="let no run for 'bob' say 'shop'"):
            rt.run("desk", "go", principal="bob", project="shop")
        assert rt.runs() == []


def test_a_run_whose_project_the_rules_do_not_know_any_more_shares_nothing():
    store = Journals()
    with runtime(store, ["done"]) as rt:
        rt.remember("Deploys on Monday.", scope="project", project="shop")
        rt.enqueue("desk", "go", id="r", project="shop")
    with runtime(store, looks(), memory=MemoryRules(project="blog")) as rt:
        rt.drive("r")
        assert seen(rt, "r") == "Nothing is remembered that fits."


APP = """
from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.toolkit import MEMORY_TOOLS

def model(request):
    kept = call("remember", text=f"From {request.run}.", scope="project")
    return "done" if request.turn else kept

agent = Agent("desk", Scripted(model), tools=[*MEMORY_TOOLS])
def rt():
    return Runtime("cairn.db", [agent], policy=Policy(tools={"remember": "allow"}))
"""


@pytest.fixture
def cairn(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "project_desk.py").write_text(APP)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("CAIRN_STORE", "CAIRN_SECRETS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("CAIRN_APP", "project_desk:rt")

    def run(*words, input=None):
        return CliRunner().invoke(app, [*words], input=input)

    return run


def test_the_command_line_says_the_project_of_a_run_a_talk_and_a_message(cairn):
    assert cairn("run", "desk", "go", "--id", "r", "--project", "shop", "-q").exit_code == 0
    said = cairn("chat", "desk", "--session", "s", "--project", "shop", input="hello\n/quit\n")
    assert said.exit_code == 0, said.output
    assert cairn("chat", "desk", "--session", "s", input="again\n/quit\n").exit_code == 0
    words = ("sessions", "post", "t", "hi", "--agent", "desk", "--project", "shop")
    assert cairn(*words).exit_code == 0
    assert cairn("work", "--until-idle", "-q").exit_code == 0
    listed = cairn("memory", "list", "--project", "shop").stdout
    assert listed.count("project shop") == 4, listed
    assert "project shop" in cairn("trace", "r").stdout


def test_a_wrong_project_on_the_command_line_is_a_usage_error_with_its_fix(cairn):
    assert cairn("run", "desk", "go", "--session", "s", "--project", "shop", "-q").exit_code == 0
    said = cairn("run", "desk", "go", "--session", "s", "--project", "blog")
    assert said.exit_code == 2
    assert "project: session 's' is about the project 'shop', and not 'blog'" in said.stderr
    assert cairn("chat", "desk", "--project", " x", input="").exit_code == 2
    assert cairn("sessions", "post", "t", "hi", "--agent", "desk", "--project", " x").exit_code == 2
