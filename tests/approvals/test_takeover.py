"""A person in the agent's place: the next call, a result, the final answer, and back."""

import asyncio

import pytest
from tests.engine.kit import Ledger, Recorder, events, names, results, runtime, until

from cairn import (
    Agent,
    ApprovalTerms,
    ErrorClass,
    IllegalTransition,
    Ladder,
    ModelError,
    NotDone,
    Policy,
    Refused,
    Rung,
    Runtime,
    Scripted,
    UnknownRun,
    call,
    tool,
)
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.policy import DEFAULT_POLICY
from cairn.core.views import timeline
from cairn.errors import ConfigError
from cairn.store.inmemory import InMemoryStore


def tools(ledger: Ledger):
    @tool(name="pay", effect="write")
    async def pay(order: str) -> str:
        return ledger.add(f"pay {order}")

    @tool(effect="read")
    async def look(n: int = 0) -> str:
        return ledger.add(f"look {n}")

    return [pay, look]


def asking(ledger: Ledger, script=None, **options):
    lines = script if script is not None else [call("pay", order="7"), "done"]
    options.setdefault("policy", DEFAULT_POLICY)
    return runtime(lines, tools(ledger), **options)


async def waiting(ledger: Ledger, script=None, **options) -> Runtime:
    rt = asking(ledger, script, **options)
    assert (await rt.run_async("a", "t", id="r")).status == "waiting"
    return rt


async def go_on(rt: Runtime):
    return await rt.run_async("a", "t", id="r")


# ---------------------------------------------------------------- holding it


def test_a_run_that_was_taken_over_asks_no_model_until_it_is_handed_back():
    async def main():
        model = Recorder(call("pay", order="7"), "done")
        rt = await waiting(Ledger(), model)
        run = await rt.take_over_async("r", "it pays the wrong one", by="ann")
        assert [p.id for p in run.pending] == ["r/1", "r/takeover"]
        assert "ann acts in the agent's place" in run.text
        await rt.deny_async("r/1", by="ann")
        run = await go_on(rt)
        assert (run.status, run.reason, len(model.requests)) == ("waiting", "takeover", 1)
        assert "cairn takeover r --hand-back" in str(run.pending[0])
        assert [p.id for p in await rt.pending_async()] == ["r/takeover"]
        await rt.hand_back_async("r", "use the staging shop", by="ann")
        run = await go_on(rt)
        assert (run.status, run.pending, len(model.requests)) == ("completed", (), 2)
        said = model.last.messages[-1].parts[0].content
        assert "A person acted in your place until here" in said
        assert said.endswith("They say: use the staging shop")
        trace = await rt.trace_async("r")
        took = [(e.actor, e.event.NAME) for e in trace if e.event.NAME.startswith("takeover")]
        assert took == [("ann", "takeover.begun"), ("ann", "takeover.ended")]
        assert events(trace, ev.TakeoverBegun)[0].reason == "it pays the wrong one"

    asyncio.run(main())


@pytest.mark.parametrize("where", ["queued", "waiting", "paused"])
def test_a_run_can_be_taken_over_wherever_it_stands_still(where):
    async def main():
        model = Recorder(call("pay", order="7"), "done")
        rt = asking(Ledger(), model)
        await rt.enqueue_async("a", "t", id="r")
        if where == "waiting":
            await go_on(rt)
        if where == "paused":
            await rt.pause_async("r")
        run = await rt.take_over_async("r", "why not", by="ann")
        assert run.status == ("paused" if where == "paused" else "waiting")
        if where == "paused":
            await rt.resume_async("r")
        before = len(model.requests)
        run = await go_on(rt)
        assert ("takeover" in run.reason) == (where != "waiting")
        if where == "waiting":
            await rt.take_over_async("r", by="ann", did={"c1": "paid at the desk"})
        await rt.take_over_async("r", by="ann", answer="by a person")
        run = await go_on(rt)
        assert (run.status, run.text, len(model.requests)) == ("completed", "by a person", before)

    asyncio.run(main())


def test_a_queued_run_that_is_handed_back_is_the_agents_from_the_beginning():
    async def main():
        rt = asking(Ledger(), ["done"])
        await rt.enqueue_async("a", "t", id="r")
        await rt.take_over_async("r", "wait", by="ann")
        assert (await go_on(rt)).status == "waiting"
        await rt.hand_back_async("r", by="ann")
        assert (await go_on(rt)).status == "completed"

    asyncio.run(main())


def test_what_the_model_is_saying_meanwhile_is_waited_for():
    async def main():
        gate, asked = asyncio.Event(), []

        async def slow(request):
            asked.append(request)
            await gate.wait()
            return call("look", n=3)

        ledger = Ledger()
        rt = asking(ledger, slow)
        driving = asyncio.create_task(go_on(rt))
        await until(lambda: asked)
        await rt.take_over_async("r", "enough", by="ann")
        gate.set()
        run = await driving
        assert (run.status, run.reason, len(asked)) == ("waiting", "takeover", 1)
        assert ledger.lines == ["look 3"]

    asyncio.run(main())


def test_a_run_that_waits_for_its_next_attempt_can_be_answered_by_a_person():
    async def main():
        def down(request):
            raise ModelError(ErrorClass.UNAVAILABLE, "down")

        ladder = Ladder(rows={ErrorClass.UNAVAILABLE: (Rung("retry", 9, 3_600_000_000),)})
        rt = runtime(Scripted([down] * 5), [], ladder=ladder)
        runs = rt.store.journals.runs
        await rt.start_async("a", "t", id="r")
        await until(lambda: runs["r"].index.status == "waiting")
        await rt.take_over_async("r", "the model is down", by="ann", answer="It is 42.")
        await until(lambda: runs["r"].index.status == "completed")
        run = await rt.get_async("r")
        assert (run.status, run.text) == ("completed", "It is 42.")
        await rt.close_async()

    asyncio.run(main())


@pytest.mark.parametrize(
    ("by", "reason", "said"),
    [("", "x", "say by whom"), ("ann", "", "say why"), ("ann", " ", "say why")],
)
def test_nobody_takes_over_without_a_name_and_a_reason(by, reason, said):
    async def main():
        rt = await waiting(Ledger())
        before = await rt.trace_async("r")
        with pytest.raises(Refused, match=said):
            await rt.take_over_async("r", reason, by=by)
        assert await rt.trace_async("r") == before

    asyncio.run(main())


def test_only_who_has_taken_it_over_acts_and_somebody_else_may_take_it_from_them():
    async def main():
        rt = await waiting(Ledger())
        await rt.take_over_async("r", "mine", by="ann")
        with pytest.raises(Refused, match="say why"):
            await rt.take_over_async("r", by="bob", did={"c1": "x"})
        for command in (
            cmd.DoneByHand(by="bob", call="c1"),
            cmd.DoneByHand(by="", call="c1"),
            cmd.TakeTurn(by="bob", text="x"),
            cmd.HandBack(by="bob"),
            cmd.HandBack(by=""),
            cmd.HandBack("go on"),
        ):
            with pytest.raises(Refused, match="was taken over by ann"):
                await rt.client.submit("r", command, "ann")  # whoever it is passed on by
        await rt.take_over_async("r", "ann went home", by="bob", did={"c1": "paid in cash"})
        with pytest.raises(Refused, match="say why"):
            await rt.take_over_async("r", by="ann", answer="x")
        await rt.take_over_async("r", by="bob", answer="paid")
        assert (await go_on(rt)).text == "paid"
        trace = await rt.trace_async("r")
        assert [e.actor for e in trace if isinstance(e.event, ev.TakeoverBegun)] == ["ann", "bob"]

    asyncio.run(main())


# ---------------------------------------------------------------- a result


def test_what_a_person_did_by_hand_is_recorded_as_theirs_and_the_model_reads_it():
    async def main():
        ledger, model = Ledger(), Recorder(call("pay", order="7"), "thank you")
        rt = await waiting(ledger, model)
        await rt.take_over_async(
            "r",
            "the shop is down",
            by="ann",
            did={"c1": {"receipt": 12}},
            evidence="receipt in the till",
            hand_back=True,
        )
        assert (await go_on(rt)).status == "completed"
        assert ledger.lines == []
        told = results(model.last)["c1"]
        assert told.startswith("[runtime] A person did this by hand, in your place.")
        assert told.endswith('{"receipt":12}')
        with pytest.raises(Refused, match="already done by hand"):
            await rt.approve_async("r/1")
        trace = await rt.trace_async("r")
        assert "tool.started" not in names(trace)
        (view,) = timeline(trace, "r").steps[0].calls
        (settled,) = view.settlements
        assert (settled.verdict, settled.actor) == ("by hand", "ann")
        assert settled.evidence == "receipt in the till"
        assert [a.decision for a in view.approvals] == ["void"]
        assert view.status == "completed"

    asyncio.run(main())


def test_an_approved_call_that_a_person_has_done_by_hand_never_starts():
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger)
        await rt.approve_async("r/1")
        await rt.take_over_async("r", "faster", by="ann", did={"c1": "paid"}, hand_back=True)
        assert (await go_on(rt)).status == "completed"
        assert ledger.lines == []

    asyncio.run(main())


@pytest.mark.parametrize("how", ["unknown", "failed for certain"])
def test_a_call_that_was_started_is_not_done_by_hand_but_resolved(how):
    async def main():
        @tool(name="post", effect="write", retries=5, backoff=3600)
        async def post() -> str:
            raise (ConnectionError("reset") if how == "unknown" else NotDone("busy"))

        rt = runtime([call("post"), "done"], [post])
        runs = rt.store.journals.runs
        await rt.start_async("a", "t", id="r")
        await until(lambda: runs["r"].index.status == "waiting")
        with pytest.raises(Refused, match="has been started: say what came of it"):
            await rt.take_over_async("r", "x", by="ann", did={"c1": "sent"})
        await rt.cancel_async("r")
        await rt.close_async()

    asyncio.run(main())


@pytest.mark.parametrize("what", ["c2", "x", "c0", "c01"])
def test_a_call_that_is_not_there_cannot_be_done(what):
    async def main():
        rt = await waiting(Ledger())
        with pytest.raises(UnknownRun):
            await rt.take_over_async("r", "x", by="ann", did={what: "y"})

    asyncio.run(main())


def test_a_question_to_a_person_is_answered_and_not_done():
    async def main():
        rt = await waiting(Ledger(), [call("ask_user", question="which?"), "done"])
        with pytest.raises(Refused, match="is a question: answer it"):
            await rt.take_over_async("r", "x", by="ann", did={"c1": "y"})

    asyncio.run(main())


# ---------------------------------------------------------------- the next call


async def with_turn(ledger: Ledger, calls, **options):
    """A run whose first call was denied, and a turn that a person made."""
    model = Recorder(call("pay", order="7"), "done")
    rt = await waiting(ledger, model, **options)
    await rt.take_over_async("r", "I know better", by="ann")
    await rt.deny_async("r/1", by="ann")
    await rt.take_over_async("r", by="ann", calls=calls, text="I do it like this.")
    return rt, model


def test_a_persons_call_runs_by_the_policy_and_the_model_reads_it_as_its_own_turn():
    async def main():
        ledger = Ledger()
        rt, model = await with_turn(ledger, [("look", {"n": 1}), call("look", n=2)])
        run = await go_on(rt)
        assert (run.status, run.reason, run.steps) == ("waiting", "takeover", 2)
        assert ledger.lines == ["look 1", "look 2"]
        await rt.hand_back_async("r", by="ann")
        assert (await go_on(rt)).status == "completed"
        assert faults(model.last.messages) == []
        assert results(model.last) == {
            "c1": "Not executed: a person refused this call. No reason was given.",
            "c2": "look 1",
            "c3": "look 2",
        }
        roles = [message.role for message in model.last.messages]
        assert roles == ["user", "assistant", "tool", "assistant", "tool", "user"]
        steps = timeline(await rt.trace_async("r"), "r").steps
        assert [(s.kind, s.by, s.status) for s in steps] == [
            ("turn", "", "completed"),
            ("turn", "ann", "completed"),
            ("turn", "", "completed"),
        ]
        assert [c.by for c in steps[1].calls] == ["ann", "ann"]
        assert steps[1].text == "I do it like this."

    asyncio.run(main())


@pytest.mark.parametrize(
    ("policy", "started", "asked"),
    [
        (DEFAULT_POLICY, False, True),
        (Policy(effects={"write": "allow"}), True, False),
        (Policy(tools={"pay": "deny"}), False, False),
    ],
)
def test_a_persons_call_passes_the_same_gate_as_the_models(policy, started, asked):
    async def main():
        ledger = Ledger()
        rt = await waiting(ledger, [call("ask_user", question="?"), "done"], policy=policy)
        await rt.take_over_async("r", "x", by="ann")
        await rt.answer_async("r/1", "do not ask me")
        await rt.take_over_async("r", by="ann", calls=[("pay", {"order": "9"})])
        run = await go_on(rt)
        assert bool(ledger.lines) == started
        assert any(p.kind == "approval" for p in run.pending) == asked

    asyncio.run(main())


@pytest.mark.parametrize("other_person", [True, False])
def test_who_wrote_a_call_may_approve_it_unless_another_person_is_asked_for(other_person):
    async def main():
        ledger = Ledger()
        terms = ApprovalTerms(other_person=True) if other_person else None
        rt = await waiting(
            ledger, [call("look"), "done"], policy=Policy(tools={"look": "ask"}), approval=terms
        )
        await rt.take_over_async("r", "x", by="ann", did={"c1": "nothing there"})
        await rt.take_over_async("r", by="ann", calls=[("pay", {"order": "9"})])
        request = (await go_on(rt)).pending[0].id
        if other_person:
            with pytest.raises(Refused, match="another person than ann"):
                await rt.approve_async(request, by="ann")
            await rt.approve_async(request, by="bob")
        else:
            await rt.approve_async(request, by="ann")
        await go_on(rt)
        assert ledger.lines == ["pay 9"]

    asyncio.run(main())


def test_a_persons_mistake_is_told_at_once_or_found_by_the_gate_and_is_not_the_models():
    async def main():
        store = InMemoryStore()
        rt, model = await with_turn(Ledger(), [("look", {})], store=store)
        with pytest.raises(ConfigError, match="no tool 'nothing'"):
            await rt.take_over_async("r", by="ann", calls=[("nothing", {})])
        with pytest.raises(ConfigError, match=r"calls\.look"):
            await rt.take_over_async("r", by="ann", calls=[("look", {"n": "many"})])
        await go_on(rt)
        other = Runtime(store.beside())  # knows no agent: the gate finds out
        for _ in range(3):
            await other.take_over_async("r", by="ann", calls=[("look", {"n": "x"})])
            run = await go_on(rt)
            assert (run.status, run.reason) == ("waiting", "takeover")
        rejected = events(await rt.trace_async("r"), ev.ToolRejected)
        assert [(e.kind, e.disposition) for e in rejected] == [("invalid", "repair")] * 3
        await rt.hand_back_async("r", by="ann")
        assert (await go_on(rt)).status == "completed"
        assert len(model.requests) == 2

    asyncio.run(main())


def test_a_turn_is_refused_while_a_call_is_open_a_message_unread_or_a_limit_reached():
    async def main():
        rt = await waiting(Ledger())
        await rt.take_over_async("r", "x", by="ann")
        for turn in ({"answer": "no"}, {"calls": [("look", {})]}):
            with pytest.raises(Refused, match="c1 must end first"):
                await rt.take_over_async("r", by="ann", **turn)
        await rt.deny_async("r/1")
        await rt.edit_async("r", message="wait", by="bob")
        with pytest.raises(Refused, match="a message is about to be read first"):
            await rt.take_over_async("r", by="ann", calls=[("look", {})])
        await go_on(rt)
        with pytest.raises(Refused, match="17 calls are too many"):
            await rt.take_over_async("r", by="ann", calls=[("look", {"n": 1})] * 17)
        rt = asking(Ledger())
        await rt.run_async("a", "t", id="r", limits={"steps": 1})
        await rt.take_over_async("r", "x", by="ann")
        await rt.deny_async("r/1")
        with pytest.raises(Refused, match="has used its 1 steps"):
            await rt.take_over_async("r", by="ann", calls=[("look", {})])

    asyncio.run(main())


@pytest.mark.parametrize(
    "bad",
    [
        {"calls": "look"},
        {"calls": ["look"]},
        {"calls": [("look",)]},
        {"calls": [("look", "[1]")]},
        {"calls": [("look", object())]},
        {"answer": ""},
        {"answer": "x", "calls": [("look", {})]},
        {"answer": "x", "text": "y"},
        {"by": 7},
    ],
)
def test_what_is_no_turn_is_refused_and_nothing_is_recorded(bad):
    async def main():
        rt = await waiting(Ledger())
        await rt.take_over_async("r", "x", by="ann", did={"c1": "done"})
        before = await rt.trace_async("r")
        with pytest.raises(ConfigError):
            await rt.take_over_async("r", **{"by": "ann", **bad})
        assert await rt.trace_async("r") == before

    asyncio.run(main())


# ---------------------------------------------------------------- the final answer


def polite(answer):
    return None if "please" in answer.text else "say please"


def test_a_persons_final_answer_ends_the_run_when_it_passes_the_checks():
    async def main():
        rt = await waiting(Ledger(), completion_checks=[polite])
        await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"}, answer="take it, please")
        run = await go_on(rt)
        assert (run.status, run.text) == ("completed", "take it, please")
        trace = await rt.trace_async("r")
        turn = next(e for e in trace if isinstance(e.event, ev.TakeoverTurn))
        assert events(trace, ev.RunCompleted)[0].answer == turn.seq
        assert "step.completed" in names(trace)

    asyncio.run(main())


def test_an_answer_that_a_check_refuses_is_given_again_by_the_person():
    async def main():
        model = Recorder(call("pay", order="7"), "done, please")
        rt = await waiting(Ledger(), model, completion_checks=[polite])
        await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"}, answer="take it")
        run = await go_on(rt)
        assert (run.status, run.reason, len(model.requests)) == ("waiting", "takeover", 1)
        await rt.take_over_async("r", by="ann", answer="take it, please")
        assert (await go_on(rt)).text == "take it, please"

    asyncio.run(main())


@pytest.mark.parametrize("together", [True, False])
def test_a_run_that_was_given_its_final_answer_is_not_handed_back_and_ends_with_it(together):
    async def main():
        rt = await waiting(Ledger(), [call("pay", order="7"), "the agent's own"])
        act = {"did": {"c1": "paid"}, "answer": "by ann"}
        if together:
            before = await rt.trace_async("r")
            with pytest.raises(Refused, match=r"final answer that ann has given.*cairn resume r"):
                await rt.take_over_async("r", "x", by="ann", hand_back=True, **act)
            assert await rt.trace_async("r") == before
        run = await rt.take_over_async("r", "x", by="ann", **act)
        assert run.pending == ()  # nothing that says to hand it back
        with pytest.raises(Refused, match="final answer that ann has given"):
            await rt.hand_back_async("r", "go on", by="ann")
        assert (await go_on(rt)).text == "by ann"

    asyncio.run(main())


def test_a_run_is_handed_back_when_calls_took_the_place_of_the_answer():
    async def main():
        rt = await waiting(Ledger(), [call("pay", order="7"), "the agent's own"])
        await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"}, answer="by ann")
        await rt.take_over_async("r", by="ann", calls=[("look", {"n": 1})])
        await rt.hand_back_async("r", by="ann")
        assert (await go_on(rt)).text == "the agent's own"

    asyncio.run(main())


def test_a_typed_answer_must_be_of_the_agents_type():
    async def main():
        rt = await waiting(Ledger(), output_type=dict[str, int])
        await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"})
        with pytest.raises(ConfigError, match="answer"):
            await rt.take_over_async("r", by="ann", answer="seven")
        await rt.take_over_async("r", by="ann", answer={"orders": 7})
        run = await go_on(rt)
        assert (run.status, run.output) == ("completed", {"orders": 7})

    asyncio.run(main())


def test_an_answer_of_the_wrong_type_from_where_the_agent_is_unknown_is_not_accepted():
    async def main():
        store = InMemoryStore()
        rt = await waiting(Ledger(), output_type=dict[str, int], store=store)
        other = Runtime(store.beside())
        await other.take_over_async("r", "x", by="ann", did={"c1": "paid"}, answer="seven")
        run = await go_on(rt)
        assert (run.status, run.reason) == ("waiting", "takeover")
        trace = await rt.trace_async("r")
        assert "model.rejected" in names(trace)
        assert timeline(trace, "r").steps[1].rejection is not None

    asyncio.run(main())


# ---------------------------------------------------------------- and back, and around it


def test_a_run_that_is_over_takes_nobody():
    async def main():
        rt = asking(Ledger(), ["done"])
        await go_on(rt)
        with pytest.raises(IllegalTransition, match="is completed"):
            await rt.take_over_async("r", "x", by="ann")
        with pytest.raises(IllegalTransition, match="is completed"):
            await rt.hand_back_async("r", by="ann")

    asyncio.run(main())


def test_handing_back_what_nobody_has_taken_changes_nothing():
    async def main():
        rt = await waiting(Ledger())
        before = await rt.trace_async("r")
        await rt.hand_back_async("r", by="ann")
        assert await rt.trace_async("r") == before

    asyncio.run(main())


def test_a_run_taken_over_can_be_forked_cancelled_and_retried_and_the_new_one_is_the_agents():
    async def main():
        rt = await waiting(Ledger(), [call("pay", order="7"), "done", "again"])
        await rt.take_over_async("r", "x", by="ann")
        await rt.deny_async("r/1")
        head = (await rt.trace_async("r"))[-1].seq
        assert (await rt.fork_async("r", head, id="f")).status == "completed"
        assert (await rt.cancel_async("r")).status == "cancelled"
        assert (await rt.retry_async("r", id="r2")).status == "completed"

    asyncio.run(main())


def test_a_takeover_survives_a_restart(tmp_path):
    async def main():
        ledger, path = Ledger(), tmp_path / "s.db"
        async with asking(ledger, store=path) as rt:
            await go_on(rt)
            await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"})
            await rt.take_over_async("r", by="ann", calls=[("look", {"n": 5})])
        async with asking(ledger, store=path) as rt:
            assert (await go_on(rt)).reason == "takeover"
            assert (await go_on(rt)).reason == "takeover"
            await rt.take_over_async("r", by="ann", answer="all done")
        async with asking(ledger, store=path) as rt:
            assert (await go_on(rt)).text == "all done"
            assert (await rt.replay_async("r")).same
            assert await rt.store.verify("r")
        assert ledger.lines == ["look 5"]

    asyncio.run(main())


def test_a_worker_leaves_a_run_alone_that_a_person_has_in_hand():
    async def main():
        model, store = Recorder(call("pay", order="7"), "done"), InMemoryStore()
        rt = await waiting(Ledger(), model, store=store)
        await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"})
        await asking(Ledger(), model, store=store).work_async(until_idle=True)
        assert len(model.requests) == 1
        assert (await rt.get_async("r")).reason == "takeover"
        await rt.hand_back_async("r", by="ann")
        await asking(Ledger(), model, store=store).work_async(until_idle=True)
        assert (await rt.get_async("r")).status == "completed"

    asyncio.run(main())


def test_the_report_says_what_was_done_by_hand():
    async def main():
        rt = await waiting(Ledger())
        run = await rt.take_over_async("r", "x", by="ann", did={"c1": "paid"})
        assert "Done by hand: pay (c1)" in run.text

    asyncio.run(main())


def test_the_verbs_have_sync_forms():
    agent = Agent("a", Scripted([call("pay", order="7"), "done"]), tools=tools(Ledger()))
    with Runtime(":memory:", agents=[agent]) as rt:
        rt.run("a", "t", id="r")
        rt.take_over("r", "x", by="ann", did={"c1": "paid"})
        rt.hand_back("r", by="ann")
        assert rt.run("a", "t", id="r").status == "completed"


def test_errors_in_a_row_do_not_end_a_run_that_a_person_has_in_hand_and_count_anew_afterwards():
    async def main():
        @tool(name="break_it", effect="read")
        async def break_it() -> str:
            raise ValueError("broken")

        model = Recorder(call("ask_user", question="?"), "done")
        rt = runtime(model, [break_it])
        await rt.run_async("a", "t", id="r", limits={"errors_in_row": 1})
        await rt.take_over_async("r", "x", by="ann")
        await rt.answer_async("r/1", "wait")
        for _ in range(3):
            await rt.take_over_async("r", by="ann", calls=[("break_it", {})])
            run = await go_on(rt)
            assert (run.status, run.reason) == ("waiting", "takeover")
        await rt.hand_back_async("r", by="ann")
        assert (await go_on(rt)).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize("by", ["", "bob"])
def test_nobody_but_who_has_taken_a_run_over_hands_it_back(by):
    async def main():
        rt = await waiting(Ledger())
        await rt.take_over_async("r", "x", by="ann")
        with pytest.raises(Refused, match="taken over by ann, not by"):
            await rt.hand_back_async("r", "pay it all", by=by)
        assert not events(await rt.trace_async("r"), ev.TakeoverEnded)
        await rt.hand_back_async("r", by="ann")
        await rt.hand_back_async("r", by=by)  # it is the agent's: nothing changes

    asyncio.run(main())
