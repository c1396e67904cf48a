"""An approval is bound to what is in the files that a call names."""

import asyncio

import pytest
from tests.engine.kit import Ledger, Recorder, events, results, runtime

from cairn import Refused, Runtime, call, tool
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.core.views import timeline
from cairn.engine import files
from cairn.errors import ConfigError, ToolDefinitionError
from cairn.store.inmemory import InMemoryStore
from cairn.workspace import Workspace


def runner(ledger: Ledger, **options):
    options.setdefault("binds", "script")

    @tool(name="execute", effect="dangerous", **options)
    async def execute(script: str, also: list[str] | None = None) -> str:
        return ledger.add(f"ran {script}")

    return execute


def asking(ledger: Ledger, path, script=None, **options):
    lines = script if script is not None else [call("execute", script=str(path)), "done"]
    tools = [runner(ledger, **options.pop("declared", {}))]
    return runtime(lines, tools, policy=DEFAULT_POLICY, **options)


async def waiting(ledger: Ledger, path, **options) -> Runtime:
    rt = asking(ledger, path, **options)
    run = await rt.run_async("a", "t", id="r")
    assert run.status == "waiting", run.text
    return rt


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "deploy.sh"
    path.write_text("echo hello")
    return path


def test_a_script_that_stayed_as_it_was_runs_once_and_its_hash_stands_in_the_request(script):
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, script)
        (asked,) = events(await rt.trace_async("r"), ev.ApprovalRequested)
        assert [(f.path, len(f.hash)) for f in asked.files] == [(str(script), 64)]
        (shown,) = (await rt.get_async("r")).pending
        await rt.approve_async("r/1", digest=shown.digest)
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        assert ledger.lines == [f"ran {script}"]

    asyncio.run(main())


@pytest.mark.parametrize("change", ["content", "gone", "a link", "a folder"])
def test_a_script_that_changed_while_it_waited_is_asked_about_anew_and_then_refused(script, change):
    """B48."""

    async def main():
        ledger, model = Ledger(), Recorder(call("execute", script=str(script)), "done")
        rt = await waiting(ledger, script, script=model)
        await rt.approve_async("r/1", by="ann")
        script.unlink()
        match change:
            case "content":
                script.write_text("rm -rf /")
            case "a link":
                other = script.with_name("other.sh")
                other.write_text("rm -rf /")
                script.symlink_to(other)
            case "a folder":
                script.mkdir()
        run = await rt.run_async("a", "t", id="r")
        assert ledger.lines == []
        trace = await rt.trace_async("r")
        (void,) = events(trace, ev.ApprovalVoided)
        assert str(script) in void.message
        if change == "a folder":
            assert run.status == "completed"
            assert "nobody can approve it" in results(model.last)["c1"]
            return
        (again,) = run.pending
        assert again.id == "r/2"
        with pytest.raises(Refused, match="has changed since"):
            await rt.approve_async("r/1", by="ann")
        await rt.approve_async("r/2", by="ann")
        if change == "a link":
            other.write_text("and again")
        elif change == "gone":
            script.write_text("it is back")
        else:
            script.write_text("and again")
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("completed", [])
        assert "changed again after a person had approved it" in results(model.last)["c1"]
        (view,) = timeline(await rt.trace_async("r"), "r").steps[0].calls
        assert [a.decision for a in view.approvals] == ["void", "void"]

    asyncio.run(main())


def test_a_second_yes_to_the_changed_script_runs_it(script):
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, script)
        await rt.approve_async("r/1")
        script.write_text("echo better")
        await rt.run_async("a", "t", id="r")
        await rt.approve_async("r/2")
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        assert len(ledger.lines) == 1

    asyncio.run(main())


def test_a_file_that_is_not_there_is_bound_as_missing(tmp_path):
    async def main():
        path = tmp_path / "new.txt"
        ledger = Ledger()
        rt = await waiting(ledger, path)
        await rt.approve_async("r/1")
        path.write_text("somebody was faster")
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("waiting", [])

    asyncio.run(main())


def test_the_same_content_written_anew_is_the_same(script):
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, script)
        await rt.approve_async("r/1")
        text = script.read_text()
        script.unlink()
        script.write_text(text)
        assert (await rt.run_async("a", "t", id="r")).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize("path", ["", "\0", "/dev/null", "."])
def test_what_cannot_be_read_as_a_file_is_asked_of_nobody_and_not_run(path):
    async def main():
        ledger, model = Ledger(), Recorder(call("execute", script=path), "done")
        rt = asking(ledger, path, script=model)
        run = await rt.run_async("a", "t", id="r")
        missing = path == ""  # an empty path names no file, and is bound as such
        assert run.status == ("waiting" if missing else "completed")
        assert ledger.lines == []

    asyncio.run(main())


def test_a_file_too_large_to_be_read_is_asked_of_nobody(script, monkeypatch):
    monkeypatch.setattr(files, "MOST_BYTES", 4)

    async def main():
        model = Recorder(call("execute", script=str(script)), "done")
        run = await asking(Ledger(), script, script=model).run_async("a", "t", id="r")
        assert run.status == "completed"
        assert "is larger than" in results(model.last)["c1"]

    asyncio.run(main())


def test_of_two_calls_only_the_one_whose_script_changed_is_asked_anew(tmp_path):
    async def main():
        one, two = tmp_path / "1.sh", tmp_path / "2.sh"
        one.write_text("1")
        two.write_text("2")
        ledger = Ledger()
        lines = [[call("execute", script=str(one)), call("execute", script=str(two))], "done"]
        declared = {"conflict_key": "script"}
        rt = await waiting(ledger, one, script=lines, declared=declared)
        await rt.approve_async("r/1")
        await rt.approve_async("r/2")
        one.write_text("other")
        run = await rt.run_async("a", "t", id="r")
        assert ledger.lines == [f"ran {two}"]
        assert [(p.id, p.call) for p in run.pending] == [("r/3", "c1")]

    asyncio.run(main())


def test_of_two_requests_of_one_turn_the_numbers_stay_gapless_when_one_cannot_be_bound(tmp_path):
    async def main():
        fine = tmp_path / "fine.sh"
        fine.write_text("1")
        lines = [[call("execute", script="."), call("execute", script=str(fine))], "done"]
        rt = await waiting(Ledger(), fine, script=lines, declared={"conflict_key": "script"})
        (open_,) = (await rt.get_async("r")).pending
        assert (open_.id, open_.call) == ("r/1", "c2")

    asyncio.run(main())


# ---------------------------------------------------------------- with a change


def test_other_arguments_are_bound_to_the_files_that_those_name(script):
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, script)
        other = script.with_name("other.sh")
        other.write_text("echo other")
        await rt.approve_async("r/1", by="ann", arguments={"script": str(other)})
        other.write_text("rm -rf /")
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("waiting", [])
        await rt.approve_async("r/2", by="ann")
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        assert ledger.lines == [f"ran {other}"]

    asyncio.run(main())


def test_where_the_files_are_not_known_a_change_is_no_yes(script):
    async def main():
        store, ledger = InMemoryStore(), Ledger()
        rt = await waiting(ledger, script, store=store)
        other = Runtime(store.beside())
        with pytest.raises(Refused, match="bound to the content of files"):
            await other.approve_async("r/1", arguments={"script": "/etc/passwd"})
        await other.approve_async("r/1")
        assert (await rt.run_async("a", "t", id="r")).status == "completed"

    asyncio.run(main())


# ---------------------------------------------------------------- declaring


def test_files_may_be_named_by_several_parameters_or_by_a_function(tmp_path):
    async def main():
        for n in "abc":
            (tmp_path / n).write_text(n)
        named = {"script": str(tmp_path / "a"), "also": [str(tmp_path / "b"), str(tmp_path / "c")]}
        declared = (("script", "also"), lambda args: [args["script"], *args["also"]])
        for binds in declared:
            lines = [call("execute", **named), "done"]
            rt = await waiting(Ledger(), "", script=lines, declared={"binds": binds})
            (asked,) = events(await rt.trace_async("r"), ev.ApprovalRequested)
            assert [f.path for f in asked.files] == [str(tmp_path / n) for n in "abc"]

    asyncio.run(main())


def test_a_function_that_fails_lets_nothing_through(script):
    async def main():
        model = Recorder(call("execute", script=str(script)), "done")
        declared = {"binds": lambda args: args["nothing"]}
        ledger = Ledger()
        rt = asking(ledger, script, script=model, declared=declared)
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("completed", [])
        assert "which files execute names cannot be told" in results(model.last)["c1"]

    asyncio.run(main())


@pytest.mark.parametrize("binds", ["path", ("script", "path"), (), 7, b"script"])
def test_parameters_that_are_not_there_are_refused_where_they_are_declared(binds):
    with pytest.raises((ToolDefinitionError, ConfigError), match="binds"):
        runner(Ledger(), binds=binds)


def test_a_workspace_is_where_the_files_are_looked_for_and_nothing_outside_it_is(tmp_path):
    async def main():
        place = Workspace(tmp_path / "w")
        place.write("deploy.sh", "echo hello")
        ledger = Ledger()
        rt = asking(ledger, "deploy.sh")
        rt.host.workspaces = place
        await rt.run_async("a", "t", id="r")
        await rt.approve_async("r/1")
        place.write("deploy.sh", "rm -rf /", overwrite=True)
        run = await rt.run_async("a", "t", id="r")
        assert (run.status, ledger.lines) == ("waiting", [])

        outside = tmp_path / "outside.sh"
        outside.write_text("x")
        model = Recorder(call("execute", script="../outside.sh"), "done")
        rt = asking(ledger, "", script=model)
        rt.host.workspaces = place
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        assert "nobody can approve it" in results(model.last)["c1"]

    asyncio.run(main())


def test_a_replay_takes_what_was_in_the_files_as_it_was(script):
    async def main():
        model = Recorder([call("execute", script=str(script)), call("execute", script=".")], "done")
        rt = await waiting(Ledger(), script, script=model, declared={"conflict_key": "script"})
        await rt.approve_async("r/1")
        script.write_text("other")
        await rt.run_async("a", "t", id="r")
        await rt.approve_async("r/2")
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
        replay = await rt.replay_async("r")
        assert replay.same, replay.divergence

    asyncio.run(main())
