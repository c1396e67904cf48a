"""The ways to a call that lead through a runtime's own verbs."""

import asyncio
import json
import sys
from typing import Any

from tests.governance.desk import (
    ASKING,
    CLOSED_ASKING,
    DENIES,
    OPEN,
    Desk,
    asked,
    ended,
    path,
)

from cairn import (
    Context,
    ContextBlock,
    ErrorClass,
    ModelError,
    Policy,
    Route,
    Scripted,
    call,
    tool,
)
from cairn.core.policy import Redirect, Rule
from cairn.engine.clock import SystemClock
from cairn.errors import NotDone, ToolError, Unsure
from cairn.models.action import decode, encode
from cairn.servers.agent_calls import AgentCalls
from cairn.tools.verdicts import NOT_HAPPENED

PAY = [call("pay"), "done"]


@path("Runtime.run_async")
async def run_async(desk: Desk) -> None:
    async with desk.runtime(*PAY) as rt:
        assert (await rt.run_async("a", "t")).status == "completed"


@path("Runtime.run_async")
def run(desk: Desk) -> None:
    with desk.runtime(*PAY) as rt:
        assert rt.run("a", "t").status == "completed"


@path("Runtime.start_async", "Runtime.drive_async")
async def start_and_drive(desk: Desk) -> None:
    async with desk.runtime(*PAY) as rt:
        run = await rt.start_async("a", "t")
        assert (await rt.drive_async(run)).status == "completed"


@path("Runtime.start_async")
async def start_alone(desk: Desk) -> None:
    async with desk.runtime(*PAY) as rt:
        await ended(rt, await rt.start_async("a", "t"))


@path("Runtime.enqueue_async", "Runtime.work_async", "Client.start")
async def a_workers_loop(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=OPEN) as rt:
        await rt.enqueue_async("a", "t", id="r")
    async with desk.runtime(*PAY) as rt:
        await rt.work_async(until_idle=True)
        assert (await rt.get_async("r")).status == "completed"


@path("Runtime.stream_async")
async def stream_async(desk: Desk) -> None:
    async with desk.runtime(*PAY) as rt:
        assert [each async for each in rt.stream_async("a", "t")]


@path("Runtime.stream_async")
def stream(desk: Desk) -> None:
    with desk.runtime(*PAY) as rt:
        assert list(rt.stream("a", "t"))


@path("Runtime.watch_async")
def watch(desk: Desk) -> None:
    with desk.runtime(*PAY) as rt:
        assert list(rt.watch(rt.enqueue("a", "t")))


@path("Runtime.send_async")
async def send_begins_a_run(desk: Desk) -> None:
    async with desk.runtime(*PAY) as rt:
        assert (await rt.send_async("s", "hello", agent="a")).status == "completed"


@path("Runtime.send_async", "Client.submit")
async def send_to_an_active_run(desk: Desk) -> None:
    script = [call("note"), call("pay"), "done"]
    async with desk.runtime(*script, policy=OPEN) as rt:
        await rt.enqueue_async("a", "t", id="r", session="s")
    async with desk.runtime(*script) as rt:
        assert (await rt.send_async("s", "hello")).id == "r"


@path("Runtime.post_async", "Runtime.follow_async", "Client.posted")
async def a_posted_message(desk: Desk) -> None:
    async with desk.runtime(*PAY) as rt:
        posted = await rt.post_async("s", "hello", agent="a", id="m1")
        assert (await rt.follow_async(posted)).status == "completed"


@path("Runtime.post_async", "Client.interrupt", "Client.take_over")
async def a_message_that_interrupts_a_run(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.enqueue_async("a", "t", id="q", session="s")
        await rt.post_async("s", "now this", mode="interrupt")
        await rt.work_async(until_idle=True)


@path("Runtime.receive_async", "Runtime.route")
async def a_message_by_a_route(desk: Desk) -> None:
    async with desk.runtime(*PAY, routes=[Route(agent="a")]) as rt:
        assert (await rt.receive_async(text="hello", principal="ann")).status == "completed"


@path("Runtime.accept_async")
async def a_message_by_a_route_that_a_worker_takes(desk: Desk) -> None:
    async with desk.runtime(*PAY, routes=[Route(agent="a")]) as rt:
        await rt.accept_async(text="hello", principal="ann")
        await rt.work_async(until_idle=True)


@path("Runtime.rewind_async", "Runtime.fork_session_async")
async def a_session_that_goes_on_from_an_earlier_run(desk: Desk) -> None:
    async with desk.runtime("first", "second", *PAY) as rt:
        first = await rt.send_async("s", "hello", agent="a")
        await rt.send_async("s", "again")
        await rt.rewind_async("s", first.id)
        await rt.fork_session_async("s", "other")
    for session in ("s", "other"):
        async with desk.runtime(*PAY) as rt:
            assert (await rt.send_async(session, "pay")).status == "completed"


@path("Runtime.run_async")
async def a_block_that_a_tool_feeds(desk: Desk) -> None:
    async with desk.runtime("done", context=[ContextBlock("paid", tool="pay")]) as rt:
        assert (await rt.run_async("a", "t")).status == "completed"


@path("Runtime.restore_context_async")
async def a_compaction_that_is_taken_back(desk: Desk) -> None:
    said = "please " * 450
    lines = iter(["one", "two", call("ask_user", question="which?"), *PAY])
    async with desk.runtime(Scripted(lambda _: next(lines), window=3_000, max_output=300)) as rt:
        await rt.send_async("s", said, agent="a")
        await rt.send_async("s", said)
        run = await rt.send_async("s", said)
        await rt.pause_async(run.id)
        await rt.answer_async(run.pending[0].id, "that")
        await rt.restore_context_async(run.id)
        await rt.resume_async(run.id)


@path("Runtime.run_async")
async def a_journal_of_a_process_that_was_killed_before_the_call(desk: Desk) -> None:
    """The model had asked for two calls, one after the other; the first one was at work."""
    script, begun = [[call("hold"), call("pay")], "done"], asyncio.Event()

    @tool(name="hold", effect="write", recovery="repeat")
    async def hanging() -> str:
        begun.set()
        await asyncio.sleep(60)
        return "never"

    @tool(name="hold", effect="write", recovery="repeat")
    async def holding() -> str:
        return "held"

    rt = desk.runtime(*script, policy=OPEN, tools=[hanging, desk.pay()])
    driving = asyncio.create_task(rt.run_async("a", "t", id="r"))
    await begun.wait()
    await desk.die(rt, driving)
    await desk.from_now_on()
    async with desk.runtime(*script, tools=[holding, desk.pay()]) as rt:
        assert (await rt.run_async("a", "t", id="r")).status == "completed"


@path("Runtime.pause_async", "Runtime.resume_async")
async def resume_after_a_pause(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.pause_async("r")
        await rt.approve_async("r/1")
        assert (await rt.resume_async("r")).status == "completed"


# ---------------------------------------------------------------- what people decide


@path("Runtime.approve_async", "Client.approve")
async def an_approval_while_the_policy_was_tightened(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.approve_async("r/1")
        assert (await rt.drive_async("r")).status == "completed"


@path("Runtime.approve_async")
async def an_approval_given_before_the_policy_was_tightened(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY, policy=ASKING) as rt:
        await rt.approve_async("r/1")
    async with desk.runtime(*PAY) as rt:
        assert (await rt.drive_async("r")).status == "completed"


@path("Runtime.approve_async")
async def an_approval_with_a_change(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.approve_async("r/1", arguments={"order": "8"})
        assert (await rt.drive_async("r")).status == "completed"


@path("Runtime.edit_async")
async def an_edit_of_arguments(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.edit_async("r", call="c1", arguments={"order": "8"})
        assert (await rt.drive_async("r")).status == "completed"


@path("Runtime.deny_async", "Client.deny")
async def a_denial_of_one_call_before_another(desk: Desk) -> None:
    script = [call("note"), call("pay"), "done"]
    async with desk.runtime(*script, policy=CLOSED_ASKING) as rt:
        run = await rt.start_async("a", "t")
        await rt.drive_async(run)
        await rt.deny_async(f"{run}/1")
        await ended(rt, run)


@path("Runtime.answer_async", "Client.answer")
async def an_answer_to_a_question(desk: Desk) -> None:
    script = [call("ask_user", question="now?"), call("pay"), "done"]
    async with desk.runtime(*script) as rt:
        run = await rt.start_async("a", "t")
        assert (await rt.drive_async(run)).status == "waiting"
        await rt.answer_async(f"{run}/1", "yes")
        await ended(rt, run)


@path("Runtime.resolve_async", "Client.resolve")
async def a_call_that_did_not_happen(desk: Desk) -> None:
    @tool(name="pay", effect="write")
    async def pay() -> str:
        desk.done.append("begun")
        raise Unsure("the line went dead")

    async with desk.runtime(*PAY, policy=OPEN, tools=[pay]) as rt:
        assert (await rt.run_async("a", "t", id="r")).reason == "in_doubt"
    await desk.from_now_on()
    async with desk.runtime(*PAY, clock=Later()) as rt:
        await rt.resolve_async("r/c1", happened=False)
        await rt.drive_async("r")


@path("Runtime.grant_async", "Runtime.run_async")
async def a_standing_grant(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=ASKING) as rt:
        await rt.grant_async("pay", by="ann")
        assert (await rt.run_async("a", "t", id="before")).status == "completed"
        assert desk.done == ["7"]  # it answers where the policy asks
    await desk.from_now_on()
    async with desk.runtime(*PAY) as rt:
        assert (await rt.run_async("a", "t", id="r")).status == "completed"


@path("Runtime.take_over_async")
async def a_persons_own_call(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.take_over_async("r", "by hand", by="ann", did={"c1": "paid at the desk"})
        await rt.take_over_async("r", by="ann", calls=[("pay", {"order": "8"})])
        await rt.drive_async("r")


@path("Runtime.take_over_async", "Runtime.hand_back_async")
async def a_run_that_is_handed_back(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        await rt.take_over_async("r", "to look", by="ann")
        await rt.hand_back_async("r", "go on", by="ann")
        await rt.approve_async("r/1")
        await rt.drive_async("r")


# ---------------------------------------------------------------- another tool, another run


@path("Runtime.run_async")
async def a_fallback_tool(desk: Desk) -> None:
    @tool(effect="write", fallback="pay")
    async def wire() -> str:
        raise ToolError("the line is down")

    async with desk.runtime(call("wire"), "done", tools=[wire, desk.pay()]) as rt:
        assert (await rt.run_async("a", "t")).status == "completed"


@path("Runtime.run_async")
async def a_redirect(desk: Desk) -> None:
    to = Rule(name="other", decide="redirect", tools=("note",), redirect=Redirect(tool="pay"))
    policy = Policy(effects={"write": "allow"}, rules=(DENIES, to))
    async with desk.runtime(call("note"), "done", policy=policy) as rt:
        assert (await rt.run_async("a", "t")).status == "completed"


@path("Runtime.retry_async", "Client.retry")
async def a_retry(desk: Desk) -> None:
    script = [ModelError(ErrorClass.AUTH, "no"), *PAY]
    async with desk.runtime(*script, policy=OPEN) as rt:
        assert (await rt.run_async("a", "t", id="r")).status == "failed"
    async with desk.runtime(*script) as rt:
        assert (await rt.retry_async("r", id="r-2")).status == "completed"


@path("Runtime.fork_async", "Client.fork")
async def a_fork(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=OPEN) as rt:
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
    assert desk.done == ["7"]
    await desk.from_now_on()
    async with desk.runtime(*PAY) as rt:
        assert (await rt.fork_async("r", 1, id="f")).status == "completed"


@path("Runtime.fork_async")
async def a_fork_with_edits(desk: Desk) -> None:
    await asked(desk, *PAY)
    async with desk.runtime(*PAY) as rt:
        head = (await rt.store.info("r")).head
        edits: Any = {"arguments": {"c1": {"order": "8"}}}
        assert (await rt.fork_async("r", head, id="f", edits=edits)).status == "completed"


@path("Runtime.replay_async")
async def a_replay(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=OPEN) as rt:
        assert (await rt.run_async("a", "t", id="r")).status == "completed"
    await desk.from_now_on()
    async with desk.runtime(*PAY) as rt:
        assert (await rt.replay_async("r", policy=OPEN)).same
        desk.told = str((await rt.replay_async("r")).divergence)


# ---------------------------------------------------------------- calls of which nobody knows


async def killed_in_a_call(desk: Desk, **options: Any) -> None:
    """A process is killed while the tool is at work; another one, under another policy, goes on."""
    begun = asyncio.Event()

    @tool(name="pay", **options)
    async def hanging(ctx: Context[Any]) -> str:
        desk.done.append("begun")
        begun.set()
        await asyncio.sleep(60)
        return "never"

    rt = desk.runtime(*PAY, policy=OPEN, tools=[hanging])
    driving = asyncio.create_task(rt.run_async("a", "t", id="r"))
    await begun.wait()
    await desk.die(rt, driving)
    await desk.from_now_on()
    async with desk.runtime(*PAY, tools=[desk.pay(**options)]) as rt:
        await rt.run_async("a", "t", id="r")


@path("Runtime.run_async")
async def a_read_that_would_be_repeated(desk: Desk) -> None:
    await killed_in_a_call(desk, effect="read")


@path("Runtime.run_async")
async def a_keyed_call_that_would_be_repeated(desk: Desk) -> None:
    await killed_in_a_call(desk, effect="write", recovery="keyed")


@path("Runtime.run_async")
async def a_repeatable_write_that_would_be_repeated(desk: Desk) -> None:
    await killed_in_a_call(desk, effect="write", recovery="repeat")


@path("Runtime.run_async")
async def a_call_whose_probe_says_that_it_did_not_happen(desk: Desk) -> None:
    async def find() -> Any:
        return NOT_HAPPENED

    await killed_in_a_call(desk, effect="write", recovery="probe", probe=find)


@path("Runtime.run_async")
async def an_attempt_after_a_known_failure(desk: Desk) -> None:
    """The policy is tightened between two attempts."""
    failed = asyncio.Event()

    @tool(name="pay", effect="write", retries=3, backoff=30.0)
    async def pay() -> str:
        desk.done.append("begun")
        failed.set()
        raise NotDone("not now")

    rt = desk.runtime(*PAY, policy=OPEN, tools=[pay])
    driving = asyncio.create_task(rt.run_async("a", "t", id="r"))
    await failed.wait()
    await asyncio.sleep(0.05)
    await desk.die(rt, driving)
    await desk.from_now_on()
    again = desk.pay(retries=3, backoff=0.01)
    async with desk.runtime(*PAY, tools=[again], clock=Later()) as rt:
        await rt.run_async("a", "t", id="r")


class Later(SystemClock):
    """A clock that is ten minutes ahead."""

    def now_us(self) -> int:
        return super().now_us() + 600_000_000


# ---------------------------------------------------------------- other models, other layers


class Actions(Scripted):
    """A model without tool calls: its replies are JSON actions."""

    takes_tools = False

    async def request(self, request: Any, on_delta: Any = None) -> Any:
        return decode(await super().request(encode(request), on_delta), request)


@path("Runtime.run_async")
async def a_model_that_writes_json_actions(desk: Desk) -> None:
    model = Actions(['{"tool": "pay", "arguments": {"order": "7"}}', '{"answer": "done"}'])
    async with desk.runtime(model) as rt:
        assert (await rt.run_async("a", "t")).status == "completed"


@path("Runtime.run_async", says="task kind: query")
async def a_run_of_the_query_kind(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=OPEN) as rt:
        assert (await rt.run_async("a", "t", kind="query")).status == "completed"


@path("Runtime.run_async", says="run: closed")
async def a_policy_of_the_run(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=OPEN) as rt:
        await rt.run_async("a", "t", policy=Policy(rules=(DENIES,)))


@path("Runtime.run_async", says="agent a, its own: closed")
async def a_policy_of_the_agent(desk: Desk) -> None:
    async with desk.runtime(*PAY, policy=OPEN, own=Policy(rules=(DENIES,))) as rt:
        await rt.run_async("a", "t")


# ---------------------------------------------------------------- MCP


@path("Runtime.run_async", says="deployment: tool s__do", slow=True)
async def a_tool_of_an_mcp_server(desk: Desk) -> None:
    from tests.mcp.kit import RAW

    from cairn.mcp import McpServer

    log = desk.folder / "log"
    command = [sys.executable, "-I", "-S", RAW, json.dumps({"log": str(log)})]
    server = McpServer("s", command=command, effects={"do": "write"})
    script = [call("s__do", n=1), "done"]
    policy = Policy(effects={"write": "allow"}, tools={"s__do": "deny"})
    async with desk.runtime(*script, policy=policy, tools=[server]) as rt:
        assert (await rt.run_async("a", "t")).status == "completed"
    lines = log.read_text().splitlines() if log.exists() else []
    desk.done += [line for line in lines if line.startswith("call")]


@path("AgentCalls.call")
async def a_call_of_an_agent_from_the_other_end_of_a_wire(desk: Desk) -> None:
    async def on_entry(*arguments: Any) -> None:
        return

    async with desk.runtime(*PAY) as rt:
        assert (await AgentCalls(rt).call("a", "t", "w", on_entry)).data["status"] == "completed"


@path("AgentCalls.call", "cli mcp serve", slow=True)
async def an_agent_as_a_tool_of_an_mcp_server(desk: Desk) -> None:
    from mcp import Client

    from cairn.servers.mcp import build

    async with desk.runtime(*PAY) as rt, Client(build(AgentCalls(rt)), mode="legacy") as client:
        found = await client.call_tool("a", {"input": "t", "run_id": "m"})
        assert found.structured_content == {"run_id": "m", "status": "completed"}
