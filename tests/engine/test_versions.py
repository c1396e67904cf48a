"""Another version of the agent goes on with a run: never silent, and never with an old leave."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.engine.kit import FREE_HAND, Ledger, Recorder, events, names

from cairn import (
    Agent,
    ConfigError,
    Policy,
    Refused,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.messages import Text
from cairn.engine.client import Task
from cairn.engine.worker import Worker
from cairn.errors import VersionMismatch
from cairn.store.inmemory import InMemoryStore

ROOT = Path(__file__).resolve().parents[2]
ASKS = Policy()
DENIES = Policy(tools={"pay": "deny"})
BOTH = [[call("pay", cents=1), call("send", to="x")], "Done."]


class World:
    """One store and one ledger, and every version of the agent `a` that comes along."""

    def __init__(self) -> None:
        self.store = InMemoryStore()
        self.ledger = Ledger()

    def pay(self, **options):
        @tool(effect="write", conflict_key="cents", **options)
        async def pay(cents: int) -> str:
            """Pay."""
            return self.ledger.add(f"paid {cents}")

        return pay

    def pay_with_reason(self):
        @tool(effect="write", conflict_key="cents")
        async def pay(cents: int, reason: str) -> str:
            """Pay."""
            return self.ledger.add(f"paid {cents} for {reason}")

        return pay

    def pay_in(self):
        @tool(effect="write", conflict_key="cents")
        async def pay(cents: int, currency: str = "EUR") -> str:
            """Pay."""
            return self.ledger.add(f"paid {cents} {currency}")

        return pay

    def send(self):
        @tool(effect="write", conflict_key="to")
        async def send(to: str) -> str:
            """Send."""
            return self.ledger.add(f"sent {to}")

        return send

    def version(self, script, *tools, policy=ASKS, on_change="continue", **fields) -> Runtime:
        model = script if hasattr(script, "request") else Scripted(script)
        agent = Agent("a", model, tools=tools or [self.pay()], **fields)
        return Runtime(self.store, agents=[agent], policy=policy, on_change=on_change)


ONE = [call("pay", cents=4), "Done."]


def changed(trace) -> list[ev.RunVersionChanged]:
    return events(trace, ev.RunVersionChanged)


def parts(trace) -> list[list[str]]:
    return [[change.part for change in each.changes] for each in changed(trace)]


def told(trace) -> list[str]:
    return [e.message for e in events(trace, ev.ToolRejected)]


async def asked(world: World, *tools, script=ONE, **fields) -> Runtime:
    """A run that waits for the approval of a payment."""
    first = world.version(script, *tools, **fields)
    run = await first.run_async("a", "pay", id="r")
    assert run.status == "waiting"
    return first


def test_an_unchanged_agent_in_another_process_writes_nothing_of_versions():
    async def main():
        world = World()
        await asked(world)
        second = world.version(ONE)
        await second.approve_async("r/1")
        run = await second.drive_async("r")
        assert run.status == "completed"
        assert changed(await second.trace_async("r")) == []

    asyncio.run(main())


def test_another_prompt_model_or_code_goes_on_and_says_so_before_anything_is_done():
    async def main():
        world = World()
        first = await asked(world)
        began = (await first.trace_async("r"))[0].event
        second = world.version(Scripted(ONE, name="newer"), instructions="Be kind.", repairs=2)
        await second.approve_async("r/1")
        run = await second.drive_async("r")
        trace = await second.trace_async("r")
        assert run.status == "completed"
        assert parts(trace) == [["agent", "prompt", "model"]]
        (note,) = changed(trace)
        assert note.changes[1].before == began.fingerprint.prompt
        assert note.decision == "continue"
        assert str(os.getpid()) in note.driver
        said = names(trace)
        assert said.index("run.version_changed") < said.index("tool.started")
        assert world.ledger.lines == ["paid 4"], "the approval stands: the tool is the same"

    asyncio.run(main())


def test_what_only_waits_is_looked_at_by_other_versions_without_a_trace():
    async def main():
        world = World()
        first = await asked(world)
        before = await first.trace_async("r")
        for on_change in ("continue", "pin", "refuse"):
            other = world.version(ONE, instructions="Be kind.", on_change=on_change)
            assert (await other.drive_async("r")).status == "waiting"
        assert await first.trace_async("r") == before

    asyncio.run(main())


def test_each_change_is_said_once_and_going_back_is_a_change_too():
    async def main():
        world = World()
        await asked(world, script=[call("pay", cents=4), call("pay", cents=5), "Done."])
        script = [call("pay", cents=4), call("pay", cents=5), "Done."]
        second = world.version(script, instructions="Be kind.")
        await second.approve_async("r/1")
        await second.drive_async("r")
        await second.drive_async("r")
        first = world.version(script)
        await first.approve_async("r/2")
        run = await first.drive_async("r")
        assert run.status == "completed"
        assert parts(await first.trace_async("r")) == [["prompt"], ["prompt"]]

    asyncio.run(main())


# ---------------------------------------------------------------- open calls


def test_arguments_that_no_longer_fit_are_told_to_the_model_and_never_started():
    async def main():
        world = World()
        await asked(world)
        model = Recorder(call("pay", cents=4), call("pay", cents=4, reason="rent"), "Done.")
        second = world.version(model, world.pay_with_reason())
        await second.approve_async("r/1")
        run = await second.drive_async("r")
        trace = await second.trace_async("r")
        assert run.status == "waiting"
        assert changed(trace)[0].calls == ("c1",)
        (rejected,) = events(trace, ev.ToolRejected)
        assert rejected.error_class == "invalid_arguments"
        assert world.ledger.lines == []
        await second.approve_async("r/2")
        assert (await second.drive_async("r")).status == "completed"
        assert world.ledger.lines == ["paid 4 for rent"]

    asyncio.run(main())


def test_a_tool_that_is_gone_is_told_to_the_model():
    async def main():
        world = World()
        await asked(world)
        second = world.version(ONE, world.send())
        await second.approve_async("r/1")
        run = await second.drive_async("r")
        (rejected,) = events(await second.trace_async("r"), ev.ToolRejected)
        assert rejected.error_class == "unknown_tool"
        assert run.status == "completed"
        assert world.ledger.lines == []

    asyncio.run(main())


def test_an_approval_is_asked_anew_when_the_tool_is_not_what_was_approved():
    async def main():
        world = World()
        await asked(world)
        second = world.version(ONE, world.pay_in())
        await second.approve_async("r/1")
        run = await second.drive_async("r")
        assert run.status == "waiting"
        assert world.ledger.lines == []
        assert [p.id for p in run.pending] == ["r/2"]
        with pytest.raises(Refused, match="withdrawn"):
            await second.deny_async("r/1")
        await second.approve_async("r/2")
        assert (await second.drive_async("r")).status == "completed"
        assert world.ledger.lines == ["paid 4 EUR"]

    asyncio.run(main())


def test_an_approval_outlives_changes_of_how_a_call_is_handled():
    async def main():
        world = World()
        await asked(world)
        second = world.version(ONE, world.pay(timeout=5.0, retries=2))
        await second.approve_async("r/1")
        assert (await second.drive_async("r")).status == "completed"
        assert parts(await second.trace_async("r")) == [["tool pay"]]
        assert changed(await second.trace_async("r"))[0].calls == ()
        assert world.ledger.lines == ["paid 4"]

    asyncio.run(main())


def test_a_policy_that_denies_now_wins_over_an_approval_given_before():
    async def main():
        world = World()
        await asked(world)
        second = world.version(ONE, policy=DENIES)
        await second.approve_async("r/1")
        run = await second.drive_async("r")
        assert run.status == "completed"
        assert "not allowed" in told(await second.trace_async("r"))[0]
        assert world.ledger.lines == []

    asyncio.run(main())


def test_a_policy_that_asks_now_asks_for_what_was_requested_when_it_allowed():
    """The first process dies between the reply and the start."""

    async def main():
        world = World()
        first = world.version(ONE, policy=FREE_HAND)

        def drain(run, what):
            first.host.draining = True

        first.host.watchers.watch("*", drain)
        await first.enqueue_async("a", "pay", id="r")
        await first.drive_async("r")
        assert "tool.started" not in names(await first.trace_async("r"))
        second = world.version(ONE, policy=ASKS)
        run = await second.drive_async("r")
        assert run.status == "waiting"
        trace = names(await second.trace_async("r"))
        assert trace.index("run.version_changed") < trace.index("approval.requested")
        assert world.ledger.lines == []

    asyncio.run(main())


def test_what_still_waits_beside_is_denied_or_asked_anew_as_soon_as_the_run_moves():
    async def main():
        for policy, pay, status in ((DENIES, None, "rejected"), (ASKS, World.pay_in, "anew")):
            world = World()
            await asked(world, world.pay(), world.send(), script=BOTH)
            tools = [pay(world) if pay else world.pay(), world.send()]
            second = world.version(BOTH, *tools, policy=policy)
            await second.approve_async("r/2")
            run = await second.drive_async("r")
            trace = await second.trace_async("r")
            assert changed(trace)[0].calls == ("c1",)
            assert world.ledger.lines == ["sent x"]
            if status == "rejected":
                assert run.status == "completed"
                assert "not allowed" in told(trace)[0]
            else:
                assert [p.id for p in run.pending] == ["r/3"]

    asyncio.run(main())


def test_a_wider_policy_leaves_what_was_asked_to_the_person_who_was_asked():
    async def main():
        world = World()
        await asked(world, world.pay(), world.send(), script=BOTH)
        second = world.version(BOTH, world.pay(), world.send(), policy=FREE_HAND)
        await second.approve_async("r/2")
        run = await second.drive_async("r")
        assert [p.id for p in run.pending] == ["r/1"]
        assert world.ledger.lines == ["sent x"]

    asyncio.run(main())


# ---------------------------------------------------------------- pin and refuse


def test_a_pinned_run_is_left_to_the_version_that_began_it():
    async def main():
        world = World()
        first = await asked(world)
        await first.approve_async("r/1")
        before = await first.trace_async("r")
        second = world.version(ONE, instructions="Be kind.", on_change="pin")
        with pytest.raises(VersionMismatch, match="prompt") as caught:
            await second.drive_async("r")
        assert (caught.value.run, caught.value.parts) == ("r", ("prompt",))
        assert await first.trace_async("r") == before
        assert (await first.drive_async("r")).status == "completed"
        assert world.ledger.lines == ["paid 4"]

    asyncio.run(main())


def test_a_retry_or_fork_of_a_pinned_run_is_kept_and_said_to_be():
    async def main():
        world = World()
        first = await asked(world)
        await first.approve_async("r/1")
        before = len(await first.trace_async("r"))
        await first.cancel_async("r")
        second = world.version(ONE, instructions="Be kind.", on_change="pin")
        with pytest.raises(
            VersionMismatch, match=r"'again' is kept.* To go on: cairn resume again"
        ):
            await second.retry_async("r", id="again")
        with pytest.raises(VersionMismatch, match=r"'fork' is kept.* To go on: cairn resume fork"):
            await second.fork_async("r", before, id="fork")
        for run in ("again", "fork"):
            assert (await first.drive_async(run)).reason == "approval"

    asyncio.run(main())


def test_a_worker_leaves_pinned_runs_alone_with_a_line_in_its_log(caplog):
    async def main():
        world = World()
        first = await asked(world)
        await first.approve_async("r/1")
        second = world.version(ONE, instructions="Be kind.", on_change="pin")
        await Worker(world.store, second.host).work(until_idle=True)
        assert world.ledger.lines == []
        await Worker(world.store, first.host).work(until_idle=True)
        assert world.ledger.lines == ["paid 4"]

    asyncio.run(main())
    assert "run r is left alone" in caplog.text
    assert "prompt" in caplog.text


def test_a_pinned_run_can_be_cancelled_by_any_version():
    async def main():
        world = World()
        await asked(world)
        second = world.version(ONE, instructions="Be kind.", on_change="pin")
        await second.cancel_async("r")
        assert (await second.drive_async("r")).status == "cancelled"

    asyncio.run(main())


def test_a_run_that_is_refused_fails_and_says_why_and_a_retry_goes_on():
    async def main():
        world = World()
        first = await asked(world)
        await first.approve_async("r/1")
        second = world.version(ONE, instructions="Be kind.", on_change="refuse")
        run = await second.drive_async("r")
        assert run.status == "failed"
        assert "another version" in run.reason
        assert "prompt" in run.reason
        assert names(await second.trace_async("r"))[-2:] == ["run.version_changed", "run.failed"]
        again = await second.retry_async("r")
        assert again.reason == "approval", "who retries it has decided, and a yes holds once"
        await second.approve_async(again.pending[0].id)
        assert (await second.drive_async(again.id)).status == "completed"
        assert world.ledger.lines == ["paid 4"]

    asyncio.run(main())


def test_a_run_of_which_no_version_is_known_goes_on_and_is_known_from_then_on():
    async def main():
        for on_change in ("continue", "pin", "refuse"):
            world = World()
            rt = world.version(ONE, policy=FREE_HAND, on_change=on_change)
            task = Task(agent="a", input=(Text("pay"),))
            await rt.client.start(task, "fresh")
            await rt.client.start(task, "old")
            await rt.client.submit("old", cmd.Queue(parts=(Text("quick"),)))
            assert (await rt.drive_async("fresh")).status == "completed"
            assert changed(await rt.trace_async("fresh")) == [], "it was begun by this version"
            assert (await rt.drive_async("old")).status == "completed"
            (note,) = changed(await rt.trace_async("old"))
            assert {change.before for change in note.changes} == {""}
            assert note.decision == "continue"

    asyncio.run(main())


def test_a_run_that_another_version_was_handed_says_so_when_it_begins():
    async def main():
        world = World()
        await world.version(ONE).enqueue_async("a", "pay", id="r")
        second = world.version(ONE, instructions="Be kind.")
        await second.drive_async("r")
        assert names(await second.trace_async("r"))[:3] == [
            "run.created",
            "run.version_changed",
            "model.requested",
        ]

    asyncio.run(main())


def test_news_that_comes_while_a_change_is_written_does_not_silence_it():
    async def main():
        world = World()
        first = await asked(world)
        await first.approve_async("r/1")
        second = world.version(ONE, instructions="Be kind.")
        append = world.store.append
        moved: list[bool] = []

        async def late(run, *rest, **more):
            if not moved:
                moved.append(True)
                await second.client.submit(run, cmd.Queue(parts=(Text("and hurry"),)))
            return await append(run, *rest, **more)

        world.store.append = late
        assert (await second.drive_async("r")).status == "completed"
        assert parts(await second.trace_async("r")) == [["prompt"]]

    asyncio.run(main())


def test_an_unknown_word_for_it_is_refused_at_once():
    with pytest.raises(ConfigError, match="on_change"):
        World().version(ONE, on_change="ignore")


# ---------------------------------------------------------------- processes

PROCESS = """
import asyncio, json, os, signal, sys
from pathlib import Path
from cairn import Agent, Context, Policy, Runtime, Scripted, call, tool

given = json.loads(sys.argv[1])

@tool(effect="write", recovery=given["recovery"])
async def pay(cents: int, ctx: Context) -> str:
    with Path(given["effects"]).open("a") as file:
        file.write(f"{ctx.key} {given['version']}\\n")
    if given["version"] == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    return "paid"

tools = [pay] if given["version"] != 3 else []
agent = Agent("a", Scripted([call("pay", cents=4), "Done."]), tools=tools,
              instructions="Be kind." if given["version"] == 2 else "")
rt = Runtime(given["store"], agents=[agent], policy=Policy(effects={"write": "allow"}),
             on_change=given["on_change"])
run = rt.run("a", "pay", id="r")
trace = [[e.event.NAME, getattr(e.event, "calls", [])] for e in rt.trace("r")]
print(json.dumps([run.status, trace]))
"""


def process(folder: Path, version: int, recovery: str = "keyed", on_change: str = "continue"):
    script = folder / "version.py"
    script.write_text(PROCESS, encoding="utf-8")
    given = {
        "store": str(folder / "runs.db"),
        "effects": str(folder / "effects"),
        "version": version,
        "recovery": recovery,
        "on_change": on_change,
    }
    path = os.pathsep.join((str(ROOT / "src"), os.environ.get("PYTHONPATH", "")))
    return subprocess.run(
        [sys.executable, str(script), json.dumps(given)],
        check=False,
        capture_output=True,
        text=True,
        timeout=25,
        env={**os.environ, "PYTHONPATH": path},
    )


@pytest.mark.kill
def test_a_killed_run_is_resumed_by_another_version_with_the_same_key(tmp_path: Path):
    assert process(tmp_path, 1).returncode == -signal.SIGKILL
    done = process(tmp_path, 2)
    status, trace = json.loads(done.stdout)
    said = [name for name, _ in trace]
    assert status == "completed"
    assert said.count("tool.started") == 2
    assert said.index("tool.unknown") < said.index("run.version_changed")
    assert said.index("run.version_changed") < len(said) - said[::-1].index("tool.started") - 1
    one, other = (tmp_path / "effects").read_text().splitlines()
    assert (one.split()[0], one.split()[1]) == (other.split()[0], "1")


@pytest.mark.kill
def test_a_call_whose_tool_is_gone_after_a_kill_waits_for_a_person(tmp_path: Path):
    assert process(tmp_path, 1).returncode == -signal.SIGKILL
    status, trace = json.loads(process(tmp_path, 3).stdout)
    said = [name for name, _ in trace]
    assert status == "waiting"
    assert ["run.version_changed", ["c1"]] in trace
    assert said[-1] == "takeover.requested"
    assert "tool.rejected" not in said, "it has been started: nobody may say that it was not"


@pytest.mark.kill
def test_a_killed_run_that_is_pinned_is_not_touched_by_another_version(tmp_path: Path):
    assert process(tmp_path, 1).returncode == -signal.SIGKILL
    other = process(tmp_path, 2, on_change="pin")
    assert other.returncode == 1
    assert "VersionMismatch" in other.stderr
    rt = Runtime(tmp_path / "runs.db")
    assert names(rt.trace("r"))[-1] == "tool.started"
    rt.close()
