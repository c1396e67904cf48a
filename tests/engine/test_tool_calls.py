"""Tool calls as models write them and tools answer them: each alone with its own outcome."""

import asyncio
import datetime as dt
import threading
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    TurnedClock,
    attempts,
    events,
    names,
    results,
    runtime,
    until,
)

from cairn import Context, NotDone, Principal, ToolError, call, tool
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.ports import ReplyCall
from cairn.tools.slots import SLOTS


def looker(ledger: Ledger):
    @tool(effect="read")
    async def look(q: str = "") -> str:
        return ledger.add(f"look {q}")

    return look


# ---------------------------------------------------------------- as models write them


@pytest.mark.parametrize("text", ['{"q": "Oslo",', "null and void", "[1]", '"x"', "7", "{q: 1}"])
def test_arguments_that_cannot_be_read_run_nothing_and_can_be_mended(text):
    """B18, B21: a short error with a preview; the bad call is carried in a safe form."""

    async def main():
        ledger = Ledger()
        bad = ReplyCall(name="look", arguments=text)
        model = Recorder(bad, call("look", q="Oslo"), "done")
        run = await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert (run.status, ledger.lines) == ("completed", ["look Oslo"])
        told = results(model.requests[1])["c1"]
        assert told.startswith("Not executed. Error (invalid_arguments)")
        assert len(told) < 1000

    asyncio.run(main())


def test_arguments_that_stay_bad_end_the_run_after_a_bounded_number_of_repairs():
    """B18: the model may try again, a limited number of times."""

    async def main():
        ledger = Ledger()
        model = Recorder(ReplyCall(name="look", arguments="{"), repeat=True)
        run = await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert (run.status, run.error_class, ledger.lines) == ("failed", "invalid_arguments", [])
        assert len(model.requests) == 4

    asyncio.run(main())


def test_a_huge_bad_payload_is_not_echoed():
    async def main():
        bad = ReplyCall(name="look", arguments='{"q": "' + "x" * 200_000)
        model = Recorder(bad, "done")
        await runtime(model, [looker(Ledger())]).run_async("a", "task")
        sent = str(list(model.last.messages))
        assert len(sent) < 5_000

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", "null", "  ", "{}"])
def test_nothing_in_the_arguments_means_none(text):
    """B19: a tool without parameters runs; one with required fields has them named."""

    async def main():
        @tool(effect="read")
        async def now() -> str:
            return "noon"

        @tool(effect="read")
        async def look(city: str) -> str:
            return city

        model = Recorder(
            [ReplyCall(name="now", arguments=text), ReplyCall(name="look", arguments=text)], "done"
        )
        assert (await runtime(model, [now, look]).run_async("a", "task")).status == "completed"
        read = results(model.last)
        assert read["c1"] == "noon"
        assert "city" in read["c2"]
        assert "JSON" not in read["c2"]

    asyncio.run(main())


def test_a_field_the_tool_does_not_know_runs_nothing_and_names_the_known_ones():
    """B24: refused before running, the run goes on."""

    async def main():
        ledger = Ledger()
        model = Recorder(call("look", q="x", limt=5), call("look", q="x"), "done")
        run = await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert (run.status, ledger.lines) == ("completed", ["look x"])
        told = results(model.requests[1])["c1"]
        assert "limt" in told
        assert "q" in told

    asyncio.run(main())


@pytest.mark.parametrize(
    ("kind", "given", "read"),
    [
        ("flag", "false", "False"),
        ("flag", "0", "refused"),
        ("nested", '{"min": 1}', "{'min': 1}"),
        ("text", "2", "'2'"),
    ],
)
def test_the_schema_decides_what_a_value_is_turned_into(kind, given, read):
    """B22, B23: decoded where the field cannot be text; text stays text; false is never true."""

    async def main():
        got: list[Any] = []

        @tool(effect="read")
        async def flag(value: bool) -> str:
            got.append(value)
            return repr(value)

        @tool(effect="read")
        async def nested(value: dict[str, int]) -> str:
            return repr(value)

        @tool(effect="read")
        async def text(value: str) -> str:
            return repr(value)

        model = Recorder(call(kind, value=given), "done")
        await runtime(model, [flag, nested, text]).run_async("a", "task")
        told = results(model.last)["c1"]
        assert told == read or (read == "refused" and told.startswith("Not executed"))
        assert True not in got

    asyncio.run(main())


def test_a_made_up_tool_is_answered_with_the_real_names_and_its_siblings_run():
    """B27: siblings in the same reply still run; repeated misses end the run."""

    async def main():
        ledger = Ledger()
        model = Recorder([call("search_web"), call("look", q="x")], "done")
        run = await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert (run.status, ledger.lines) == ("completed", ["look x"])
        assert "look" in results(model.last)["c1"]
        stubborn = Recorder(call("search_web"), repeat=True)
        run = await runtime(stubborn, [looker(ledger)]).run_async("a", "task")
        assert run.status in {"failed", "stopped"}
        assert len(stubborn.requests) < 10

    asyncio.run(main())


def test_ids_a_provider_repeats_mix_nothing_up():
    """B17: inside one reply and on later turns: each distinct call runs once, with its result."""

    async def main():
        ledger = Ledger()

        def same(q):
            return ReplyCall(name="look", arguments=f'{{"q":"{q}"}}', id="x1")

        model = Recorder([same("a"), same("b")], [same("c")], "done")
        run = await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "look a", "c2": "look b", "c3": "look c"}
        assert faults(model.last.messages) == []
        assert sorted(ledger.lines) == ["look a", "look b", "look c"]

    asyncio.run(main())


def test_a_reply_of_two_hundred_calls_runs_none_and_is_mended():
    """B28: a cap per reply, checked before running; the reply is not kept."""

    async def main():
        ledger = Ledger()
        model = Recorder([call("look", q=str(n)) for n in range(200)], call("look", q="x"), "done")
        run = await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert (run.status, ledger.lines) == ("completed", ["look x"])
        assert "held 200 tool calls; at most 16" in str(model.requests[1].messages[-1])
        stubborn = Recorder([call("look", q=str(n)) for n in range(200)], repeat=True)
        run = await runtime(stubborn, [looker(ledger)]).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "malformed_output")

    asyncio.run(main())


@pytest.mark.parametrize("n", [16, 17])
def test_the_cap_per_reply_is_exact(n):
    async def main():
        ledger = Ledger()
        model = Recorder([call("look", q=str(k)) for k in range(n)], "done")
        await runtime(model, [looker(ledger)]).run_async("a", "task")
        assert len(ledger.lines) == (16 if n == 16 else 0)

    asyncio.run(main())


# ---------------------------------------------------------------- outcomes of several


def test_each_call_of_a_batch_has_its_own_outcome():
    """B06: one done, one slow, one that raises; every task is settled, nothing is lost."""

    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def ok() -> str:
            return ledger.add("ok")

        @tool(effect="read")
        async def slow() -> str:
            await asyncio.sleep(0.05)
            return ledger.add("slow")

        @tool(effect="read")
        async def bad() -> str:
            raise ValueError("broken")

        @tool(effect="read")
        def worse() -> str:
            raise SystemExit(3)

        model = Recorder([call("ok"), call("slow"), call("bad"), call("worse")], "done")
        rt = runtime(model, [ok, slow, bad, worse])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        read = results(model.last)
        assert list(read) == ["c1", "c2", "c3", "c4"]
        assert (read["c1"], read["c2"]) == ("ok", "slow")
        assert "ValueError: broken" in read["c3"]
        assert "SystemExit: 3" in read["c4"]
        assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()]

    asyncio.run(main())


def test_outcomes_are_journaled_as_they_come_and_read_in_the_order_of_the_calls():
    async def main():
        @tool(effect="read")
        async def wait(ms: int) -> str:
            await asyncio.sleep(ms / 1000)
            return f"{ms}"

        model = Recorder([call("wait", ms=60), call("wait", ms=1), call("wait", ms=30)], "done")
        rt = runtime(model, [wait])
        await rt.run_async("a", "task", id="r")
        done = [e.call for e in events(await rt.trace_async("r"), ev.ToolCompleted)]
        assert done == ["c2", "c3", "c1"]
        assert list(results(model.last).values()) == ["60", "1", "30"]

    asyncio.run(main())


def test_reads_overlap_writes_keep_their_order_and_conflict_keys_set_them_free():
    async def main():
        ledger = Ledger()

        def making(name, **options):
            @tool(name=name, **options)
            async def work(k: str = "", ms: int = 20) -> str:
                ledger.add(f"{name}{k}>")
                await asyncio.sleep(ms / 1000)
                ledger.add(f"<{name}{k}")
                return name

            return work

        tools = [
            making("read", effect="read"),
            making("write", effect="write"),
            making("keyed", effect="write", conflict_key="k"),
        ]

        async def order(*calls):
            ledger.lines.clear()
            rt = runtime([list(calls), "done"], tools)
            assert (await rt.run_async("a", "t")).status == "completed"
            return list(ledger.lines)

        both = await order(call("read", k="1"), call("read", k="2"))
        assert both[:2] == ["read1>", "read2>"]
        serial = await order(call("write", k="1"), call("read", k="2"), call("write", k="3"))
        assert serial == ["write1>", "<write1", "read2>", "<read2", "write3>", "<write3"]
        free = await order(call("keyed", k="1"), call("keyed", k="2"), call("keyed", k="1"))
        assert free[:2] == ["keyed1>", "keyed2>"]
        assert free.index("<keyed1") < len(free) - 1 - free[::-1].index("keyed1>")

    asyncio.run(main())


def test_sync_tools_run_beside_each_other_and_beside_the_loop():
    async def main():
        meeting = threading.Barrier(3, timeout=5)

        @tool(effect="read")
        def meet() -> str:
            meeting.wait()
            return threading.current_thread().name

        model = Recorder([call("meet")] * 3, "done")
        run = await runtime(model, [meet]).run_async("a", "task")
        assert run.status == "completed"
        assert "cairn" in results(model.last)["c1"]

    asyncio.run(main())


def test_more_sync_calls_than_threads_over_several_runs_all_finish():
    """65 and more sync calls at once: who finds no thread waits for one."""

    async def main():
        ledger, most = Ledger(), 0
        lock = threading.Lock()
        running = 0

        @tool(effect="read", timeout=20)
        def work(n: int) -> str:
            nonlocal running, most
            with lock:
                running += 1
                most = max(most, running)
            threading.Event().wait(0.01)
            with lock:
                running -= 1
            return ledger.add("done")

        rt = runtime(lambda r: "end" if r.turn else [call("work", n=n) for n in range(16)], [work])
        runs = await asyncio.gather(*(rt.run_async("a", "t", id=f"r{n}") for n in range(9)))
        assert {r.status for r in runs} == {"completed"}
        assert len(ledger.lines) == 144
        assert most <= 64
        await until(lambda: SLOTS.taken == 0)

    asyncio.run(main())


def test_a_call_is_started_only_once_its_thread_is_held(monkeypatch):
    """`tool.started` is written when a slot is held, so a queue is no started effect."""

    async def main():
        from cairn.tools.slots import Slots

        one = Slots(1)
        monkeypatch.setattr("cairn.engine.calls.SLOT_WAIT_S", 0.05)
        gate = threading.Event()

        @tool(effect="write")
        def work() -> str:
            gate.wait(10)
            return "worked"

        rt = runtime(lambda r: "end" if r.turn else call("work"), [work])
        rt.host.slots = one
        driving = [asyncio.create_task(rt.run_async("a", "t", id=f"r{n}")) for n in range(2)]
        await asyncio.sleep(0.15)
        started = [names(await rt.trace_async(f"r{n}")).count("tool.started") for n in range(2)]
        assert sorted(started) == [0, 1]
        waiting = started.index(0)
        run = await rt.cancel_async(f"r{waiting}")
        assert (run.status, run.pending) == ("cancelled", ())
        gate.set()
        found = await asyncio.gather(*driving)
        assert sorted(r.status for r in found) == ["cancelled", "completed"]
        await until(lambda: one.taken == 0)

    asyncio.run(main())


# ---------------------------------------------------------------- ladders of tools


def test_a_known_failure_is_tried_again_as_often_as_the_tool_says():
    async def main():
        ledger, clock = Ledger(), TurnedClock()

        @tool(effect="read", retries=2, backoff=1.0)
        async def look() -> str:
            ledger.add("look")
            if len(ledger.lines) < 3:
                raise ToolError("not yet")
            return "seen"

        rt = runtime([call("look"), "done"], [look], clock=clock)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert attempts(await rt.trace_async("r")) == [("c1", 1), ("c1", 2), ("c1", 3)]
        assert len(clock.slept) == 2
        assert 0.5 <= clock.slept[0] <= 1.0 <= clock.slept[1] <= 2.0

    asyncio.run(main())


@pytest.mark.parametrize(
    ("error", "tried"), [(ToolError("no"), 1), (ValueError("no"), 1), (NotDone("busy"), 6)]
)
def test_a_write_that_failed_is_not_tried_again_unless_nothing_happened(error, tried):
    async def main():
        ledger = Ledger()

        @tool(effect="write", retries=2)
        async def pay() -> str:
            ledger.add("pay")
            raise error

        model = Recorder(call("pay"), "done")
        run = await runtime(model, [pay], clock=TurnedClock()).run_async("a", "task")
        assert (run.status, len(ledger.lines)) == ("completed", tried)

    asyncio.run(main())


def test_a_fallback_tool_stands_in_and_the_call_keeps_its_place():
    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def archive(q: str) -> str:
            return ledger.add(f"archive {q}")

        @tool(effect="read", fallback=archive)
        async def search(q: str) -> str:
            ledger.add(f"search {q}")
            raise ToolError("index is down")

        model = Recorder(call("search", q="tea"), "done")
        rt = runtime(model, [search, archive])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, ledger.lines) == ("completed", ["search tea", "archive tea"])
        assert results(model.last) == {"c1": "archive tea"}
        started = events(await rt.trace_async("r"), ev.ToolStarted)
        assert [(s.call, s.attempt, s.tool) for s in started] == [
            ("c1", 1, ""),
            ("c1", 2, "archive"),
        ]

    asyncio.run(main())


def test_a_fallback_passes_the_gate_like_every_call():
    async def main():
        from cairn import Policy

        ledger = Ledger()

        @tool(effect="write")
        async def by_hand() -> str:
            return ledger.add("by hand")

        @tool(effect="write", fallback=by_hand)
        async def by_wire() -> str:
            raise NotDone("the line is down")

        policy = Policy(tools={"by_wire": "allow"})
        rt = runtime(
            [call("by_wire"), "done"], [by_wire, by_hand], policy=policy, clock=TurnedClock()
        )
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.pending[0].tool, ledger.lines) == ("waiting", "by_hand", [])
        await rt.client.approve(run.pending[0].id)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["by hand"]

    asyncio.run(main())


def test_a_fallback_is_not_switched_to_while_the_effect_is_unknown():
    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def by_hand() -> str:
            return ledger.add("by hand")

        @tool(effect="write", fallback=by_hand)
        async def by_wire() -> str:
            raise ConnectionError("reset")

        rt = runtime([call("by_wire"), "done"], [by_wire, by_hand])
        run = await rt.run_async("a", "task")
        assert (run.reason, ledger.lines) == ("in_doubt", [])

    asyncio.run(main())


# ---------------------------------------------------------------- results


@dataclass
class Point:
    x: int
    y: int


@pytest.mark.parametrize(
    ("value", "read"),
    [
        (None, "null"),
        (True, "true"),
        ({"p": float("nan")}, '{"p":null}'),
        (b"\x89PNG", '{"base64":"iVBORw==","bytes":4}'),
        ({3, 1}, "[1,3]"),
        (dt.date(2026, 11, 30), "2026-11-30"),
        (Decimal("1.10"), "1.10"),
        (Point(1, 2), '{"x":1,"y":2}'),
        ((1, 2), "[1,2]"),
        ("half \ud83d", "half �"),
        ("zero \x00", "zero ␀"),
    ],
)
@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_result_of_any_type_is_written_by_a_rule(value, read, effect):
    """B57, B58: a written rule per type; later turns work."""

    async def main():
        @tool(effect=effect)
        async def give() -> Any:
            return value

        model = Recorder(call("give"), "done")
        run = await runtime(model, [give]).run_async("a", "task")
        assert run.status == "completed"
        assert results(model.last) == {"c1": read}

    asyncio.run(main())


@pytest.mark.parametrize("effect", ["read", "write"])
def test_a_result_without_a_rule_is_an_error_for_that_call_and_no_reason_to_call_again(effect):
    """B10, B58: an effect that happened is said to have happened, whatever it returned."""

    async def main():
        ledger = Ledger()

        @tool(effect=effect)
        async def give() -> Any:
            ledger.add("give")
            return object()

        model = Recorder(call("give"), "done")
        run = await runtime(model, [give]).run_async("a", "task")
        assert (run.status, ledger.lines) == ("completed", ["give"])
        told = results(model.last)["c1"]
        assert "object" in told
        if effect == "write":
            assert "do not call it again" in told

    asyncio.run(main())


def test_an_error_with_odd_arguments_is_kept_as_words_and_can_be_read_for_ever():
    """B09: errors are data; reading a failed run never fails."""

    class OddError(Exception):
        def __init__(self, *, code: int) -> None:
            super().__init__()
            self.code = code

        def __str__(self) -> str:
            raise RuntimeError("no words either")

    async def main():
        @tool(effect="read")
        async def look() -> str:
            raise OddError(code=7)

        model = Recorder(call("look"), "done")
        rt = runtime(model, [look])
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert "OddError" in results(model.last)["c1"]
        assert (await rt.get_async("r")).status == "completed"

    asyncio.run(main())


def test_a_large_result_becomes_an_artifact_with_head_tail_and_a_way_to_read_on():
    """B59: one cap where results enter the context; the whole text stays retrievable."""

    async def main():
        text = "".join(f"line {n}\n" for n in range(200_000))

        @tool(effect="read")
        async def dump() -> str:
            return text

        model = Recorder(
            call("dump"), call("read_artifact", id="a1", offset=1_000_000, limit=40), "done"
        )
        rt = runtime(model, [dump])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        read = results(model.last)
        assert len(read["c1"]) < 20_000
        assert read["c1"].startswith("line 0\n")
        assert "a1" in read["c1"]
        assert text[1_000_000:1_000_020].split("\n")[1] in read["c2"]
        (artifact,) = run.artifacts
        assert (artifact.id, artifact.size) == ("a1", len(text))
        assert await rt.artifact_async("r", "a1") == text

    asyncio.run(main())


def test_an_artifact_that_is_not_there_is_an_error_for_the_model_and_the_caller():
    async def main():
        from cairn import UnknownRun

        model = Recorder(call("read_artifact", id="a9"), "done")
        rt = runtime(model)
        await rt.run_async("a", "task", id="r")
        assert "there is no artifact" in results(model.last)["c1"]
        for wanted in ("a1", "a0", "x", "", "a-1"):
            with pytest.raises(UnknownRun):
                await rt.artifact_async("r", wanted)

    asyncio.run(main())


def test_two_large_results_of_one_batch_are_two_artifacts():
    async def main():
        @tool(effect="read")
        async def dump(c: str) -> str:
            return c * 30_000

        model = Recorder([call("dump", c="x"), call("dump", c="y")], "done")
        rt = runtime(model, [dump])
        run = await rt.run_async("a", "task", id="r")
        assert [a.id for a in run.artifacts] == ["a1", "a2"]
        found = {await rt.artifact_async("r", a.id) for a in run.artifacts}
        assert found == {"x" * 30_000, "y" * 30_000}
        for call_id, c in (("c1", "x"), ("c2", "y")):
            told = results(model.last)[call_id]
            named = next(a.id for a in run.artifacts if a.id in told)
            assert (await rt.artifact_async("r", named))[0] == c

    asyncio.run(main())


def test_a_context_tells_a_tool_where_it_stands():
    async def main():
        seen: list[Context] = []

        @tool(effect="read", timeout=12)
        async def look(ctx: Context) -> str:
            seen.append(ctx)
            return "seen"

        who = Principal(id="ann", roles=("clerk",), tenant="shop")
        rt = runtime([call("look"), "done"], [look])
        await rt.run_async("a", "task", id="r", principal=who, session="s")
        ctx = seen[0]
        assert (ctx.run_id, ctx.session, ctx.call_id, ctx.attempt) == ("r", "s", "c1", 1)
        assert (ctx.tool, ctx.principal, ctx.timeout_s) == ("look", who, 12.0)
        assert 0 < ctx.remaining() <= 12
        assert ctx.closed

    asyncio.run(main())
