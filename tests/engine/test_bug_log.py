"""What calls, results and decisions did to runs elsewhere, and must not here."""

import asyncio
import dataclasses
import logging
from typing import Any

import pytest
from tests.engine.kit import Ledger, Recorder, TurnedClock, events, results, runtime

from cairn import ConfigError, Policy, Refused, ToolError, call, tool
from cairn.core import events as ev
from cairn.core.policy import DEFAULT_POLICY
from cairn.ports import ReplyCall

DIRTY = "half \ud83d and zero \x00"
SHOWN = "half \ufffd and zero \u2400"


# ---------------------------------------------------------------- results that cannot be kept


@dataclasses.dataclass
class Order:
    """One field is worked out, and no argument of the constructor."""

    net: int
    gross: int = dataclasses.field(init=False)

    def __post_init__(self) -> None:
        self.gross = self.net * 119 // 100


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_computed_field_is_kept_and_what_cannot_be_is_refused_by_its_place(effect, tmp_path):
    """B10: the value after loading is the one before saving, or saving is refused at once."""

    async def main():
        ledger = Ledger()

        @tool(effect=effect)
        async def order() -> Order:
            return Order(net=100)

        @tool(effect=effect)
        async def pairs() -> Any:
            ledger.add("pairs")
            return {"places": {(1, 2): "a", (3, 4): "b"}}

        path = tmp_path / "s.db"
        model = Recorder(call("order"), call("pairs"), "done")
        async with runtime(model, [order, pairs], store=path) as rt:
            assert (await rt.run_async("a", "task", id="r", session="s")).status == "completed"
        before = results(model.last)
        assert before["c1"] == '{"net":100,"gross":119}'
        assert "places" in before["c2"]
        assert ledger.lines == ["pairs"]
        after = Recorder("done")
        async with runtime(after, [order, pairs], store=path) as rt:
            assert (await rt.run_async("a", "again", session="s")).status == "completed"
            assert (await rt.get_async("r")).status == "completed"
        assert list(results(after.last).values()) == list(before.values())

    asyncio.run(main())


def test_dirty_text_of_a_tool_breaks_no_turn_no_store_no_log_and_no_loop_guard(tmp_path, caplog):
    """B57: results, faults and repeated arguments; the same replacement everywhere."""

    async def main():
        @tool(effect="read")
        async def look(q: str) -> str:
            return f"{q} {DIRTY}"

        @tool(effect="read")
        async def fail() -> str:
            raise ToolError(DIRTY)

        half = ReplyCall(name="look", arguments='{"q": "\\ud83d"}')
        again = ReplyCall(name="look", arguments='{"q": "\\u0000"}')
        path = tmp_path / "s.db"
        model = Recorder(call("fail"), half, again, repeat=True)
        async with runtime(model, [look, fail], store=path) as rt:
            run = await rt.run_async("a", DIRTY, id="r", session="s")
            assert (run.status, run.limit) == ("stopped", "no_progress")
            assert await rt.store.verify("r") == len(await rt.trace_async("r"))
        after = Recorder("done")
        async with runtime(after, [look, fail], store=path) as rt:
            run = await rt.run_async("a", "go on", id="r2", session="s")
            assert run.status == "completed"
            for entry in await rt.trace_async("r2"):
                logging.getLogger("cairn").info("%s", entry)
        read = list(results(after.last).values())
        assert SHOWN in read[0]
        assert read[1].startswith("Not executed")
        assert read[2].endswith(SHOWN)
        for text in (*read, *caplog.messages):
            text.encode()
            assert "\x00" not in text

    caplog.set_level(logging.DEBUG)
    asyncio.run(main())


# ---------------------------------------------------------------- decisions that change a call


def test_an_edit_changes_what_a_call_is_given_and_never_which_tool_is_called():
    """B49: the name is fixed, new arguments are checked, and the model reads what ran."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def read_file(path: str, lines: int = 10) -> str:
            return ledger.add(f"read {path} {lines}")

        @tool(effect="dangerous")
        async def delete_file(path: str) -> str:
            return ledger.add(f"delete {path}")

        model = Recorder(call("read_file", path="a.txt", lines=9_000), "done")
        ask = Policy(effects={"write": "ask"}, name="ask")
        rt = runtime(model, [read_file, delete_file], policy=ask)
        await rt.run_async("a", "task", id="r")
        for wrong in (
            {"tool": "delete_file", "path": "a.txt"},
            {"name": "delete_file", "arguments": {"path": "a.txt"}},
            {"path": "a.txt", "lines": "all"},
        ):
            with pytest.raises(ConfigError, match="arguments"):
                await rt.edit_async("r", call="c1", arguments=wrong)
            with pytest.raises(ConfigError, match="arguments"):
                await rt.approve_async("r/1", arguments=wrong, by="ada")
        with pytest.raises(TypeError):
            await rt.edit_async("r", call="c1", tool="delete_file")  # type: ignore[call-arg]  # there is none
        await rt.approve_async("r/1", arguments={"path": "a.txt", "lines": 5}, by="ada")
        run = await rt.drive_async("r")
        assert run.status == "completed"
        assert ledger.lines == ["read a.txt 5"]
        told = results(model.last)["c1"]
        assert "person" in told
        assert '"lines":5' in told
        started = events(await rt.trace_async("r"), ev.ToolStarted)
        assert len(started) == 1
        (granted,) = [
            e for e in await rt.trace_async("r") if isinstance(e.event, ev.ApprovalGranted)
        ]
        assert (granted.actor, granted.event.arguments) == ("ada", '{"path":"a.txt","lines":5}')

    asyncio.run(main())


def test_a_yes_to_a_request_that_has_expired_does_nothing_for_the_one_that_came_after_it():
    """B47: each decision names its request, and what was shown with it."""

    async def main():
        ledger, clock = Ledger(), TurnedClock()

        @tool(effect="write")
        async def pay(to: str) -> str:
            return ledger.add(f"paid {to}")

        model = Recorder(call("pay", to="ann"), call("pay", to="eve"), "done")
        rt = runtime(model, [pay], policy=DEFAULT_POLICY, clock=clock, approval_days=1)
        (first,) = (await rt.run_async("a", "task", id="r")).pending
        clock.turn(86_401)
        (second,) = (await rt.run_async("a", "task", id="r")).pending
        assert (first.id, second.id) == ("r/1", "r/2")
        with pytest.raises(Refused, match="expired"):
            await rt.approve_async("r/1", by="ann")
        with pytest.raises(Refused, match="no longer asks for what was shown"):
            await rt.approve_async("r/2", digest=first.digest, by="ann")
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, [p.id for p in run.pending]) == ("waiting", ["r/2"])
        assert ledger.lines == []
        await rt.approve_async("r/2", digest=second.digest, by="ann")
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["paid eve"]

    asyncio.run(main())
