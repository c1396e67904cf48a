"""Questions, messages during a run, and conversations made of several runs."""

import asyncio

import pytest
from tests.engine.kit import (
    Ledger,
    Recorder,
    Watched,
    events,
    names,
    results,
    runtime,
    texts,
    until,
)

from cairn import (
    ErrorClass,
    Limits,
    ModelError,
    Principal,
    Refused,
    Runtime,
    SessionBusy,
    Text,
    UnknownRun,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.context import faults
from cairn.core.policy import DEFAULT_POLICY
from cairn.errors import ConfigError, IllegalTransition
from cairn.store.inmemory import InMemoryStore

# ---------------------------------------------------------------- questions


def test_a_question_waits_for_an_answer_and_the_model_reads_it_as_typed():
    async def main():
        model = Recorder(call("ask_user", question="Which order?"), "done")
        rt = runtime(model)
        run = await rt.run_async("a", "Refund", id="r")
        assert (run.status, run.reason) == ("waiting", "input")
        (pending,) = run.pending
        assert (pending.id, pending.kind) == ("r/1", "input")
        assert "Which order?" in pending.detail
        await rt.answer_async("r/1", "number 7, please\n", by="ann")
        run = await rt.run_async("a", "Refund", id="r")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "number 7, please\n"}

    asyncio.run(main())


def test_two_questions_take_two_answers_and_what_was_done_before_is_done_once():
    """B01: the audit line is written once; earlier answers are not consumed again."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def audit(line: str) -> str:
            return ledger.add(line)

        model = Recorder(
            call("audit", line="begun"),
            call("ask_user", question="How old?"),
            call("ask_user", question="A number, please."),
            "You are 30.",
        )
        rt = runtime(model, [audit])
        given = []
        run = await rt.run_async("a", "task", id="r")
        for answer in ("abc", "30"):
            given.append(run.pending[0].id)
            await rt.answer_async(run.pending[0].id, answer)
            run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert given == ["r/1", "r/2"]
        assert ledger.lines == ["begun"]
        assert results(model.last) == {"c1": "begun", "c2": "abc", "c3": "30"}

    asyncio.run(main())


def test_an_answer_counts_once_and_is_no_approval():
    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        lines = [[call("ask_user", question="?"), call("pay")], "done"]
        rt = runtime(lines, [pay], policy=DEFAULT_POLICY)
        run = await rt.run_async("a", "task", id="r")
        by_kind = {p.kind: p.id for p in run.pending}
        with pytest.raises(Refused, match="is a question"):
            await rt.client.approve(by_kind["input"])
        with pytest.raises(UnknownRun):
            await rt.client.answer("r/9", "x")
        await rt.client.answer(by_kind["input"], "yes")
        with pytest.raises(Refused, match="already answered"):
            await rt.client.answer(by_kind["input"], "no")
        run = await rt.run_async("a", "task", id="r")
        (asked,) = run.pending
        with pytest.raises(Refused, match="asks for approval"):
            await rt.client.answer(asked.id, "yes")
        await rt.client.approve(asked.id)
        assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert ledger.lines == ["pay"]

    asyncio.run(main())


def test_an_answer_after_a_restart_by_a_process_without_the_agent_counts(tmp_path):
    async def main():
        model = Recorder(call("ask_user", question="?"), "done")
        async with runtime(model, store=tmp_path / "s.db") as rt:
            await rt.run_async("a", "task", id="r")
        async with Runtime(tmp_path / "s.db") as other:
            assert [p.kind for p in await other.pending_async()] == ["input"]
            await other.answer_async("r/1", "blue")
        async with runtime(model, store=tmp_path / "s.db") as rt:
            assert (await rt.run_async("a", "task", id="r")).status == "completed"
        assert results(model.last) == {"c1": "blue"}

    asyncio.run(main())


def test_a_loop_that_asks_a_person_goes_on_with_what_the_person_says():
    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "nothing"

        model = Recorder(
            lambda request: "as told" if "try the archive" in str(texts(request)) else call("look"),
            repeat=True,
        )
        rt = runtime(model, [look], on_loop="ask")
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, [p.kind for p in run.pending]) == ("waiting", ["input"])
        await rt.answer_async(run.pending[0].id, "try the archive")
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.text) == ("completed", "as told")

    asyncio.run(main())


# ---------------------------------------------------------------- messages during a run


def test_a_message_during_a_run_is_read_at_the_next_turn_once():
    async def main():
        gate, begun, store = asyncio.Event(), asyncio.Event(), InMemoryStore()

        @tool(effect="read")
        async def look() -> str:
            begun.set()
            await gate.wait()
            return "seen"

        model = Recorder(call("look"), call("ask_user", question="?"), "done")
        rt = runtime(model, [look], store=store)
        driving = asyncio.create_task(rt.run_async("a", "first", id="r", session="s"))
        await begun.wait()
        sender = Runtime(store.beside())
        assert (await sender.send_async("s", "and also this")).status == "running"
        gate.set()
        assert (await driving).status == "waiting"
        assert texts(model.requests[1]) == ["first", "and also this"]
        await rt.answer_async("r/1", "yes")
        await rt.run_async("a", "first", id="r", session="s")
        assert texts(model.last) == ["first", "and also this"]
        assert len(events(await rt.trace_async("r"), ev.InputGiven)) == 1

    asyncio.run(main())


def test_a_message_that_comes_with_the_answer_is_read_before_the_run_may_end():
    """A final answer that has not seen the message does not end the run."""

    async def main():
        thinking, gate, store = asyncio.Event(), asyncio.Event(), InMemoryStore()

        async def answer(request):
            if request.turn == 0:
                thinking.set()
                await gate.wait()
                return "first answer"
            return f"second answer to {texts(request)[-1]}"

        rt = runtime(answer, store=store)
        driving = asyncio.create_task(rt.run_async("a", "task", id="r", session="s"))
        await thinking.wait()
        sender = runtime(answer, store=store.beside())
        sending = asyncio.create_task(sender.send_async("s", "wait!"))
        await until(lambda: "input.queued" in names(store.journals.runs["r"].entries))
        gate.set()
        assert (await driving).text == (await sending).text == "second answer to wait!"

    asyncio.run(main())


def test_a_message_to_a_waiting_run_is_kept_until_it_goes_on():
    async def main():
        model = Recorder(call("ask_user", question="?"), "done")
        rt = runtime(model)
        await rt.run_async("a", "first", id="r", session="s")
        run = await rt.send_async("s", "by the way")
        assert (run.id, run.status) == ("r", "waiting")
        await rt.answer_async("r/1", "blue")
        run = await rt.run_async("a", "first", id="r", session="s")
        assert run.status == "completed"
        assert texts(model.last) == ["first", "by the way"]
        assert results(model.last) == {"c1": "blue"}

    asyncio.run(main())


def test_a_message_that_a_cancelled_run_never_read_goes_to_the_next_run_once():
    async def main():
        model = Recorder(call("ask_user", question="?"))
        store = InMemoryStore()
        rt = runtime(model, store=store)
        await rt.run_async("a", "first", id="r1", session="s")
        await rt.send_async("s", "unread")
        await rt.cancel_async("r1")
        following = Recorder("second", "third")
        rt = runtime(lambda request: following(request) or "x", store=store)
        await rt.run_async("a", "new", id="r2", session="s")
        assert texts(following.last) == ["first", "unread", "new"]
        await rt.run_async("a", "newer", id="r3", session="s")
        assert texts(following.last) == ["first", "unread", "new", "newer"]
        created = events(await rt.trace_async("r2"), ev.RunCreated)[0]
        assert len(created.consumes) == 1
        assert events(await rt.trace_async("r3"), ev.RunCreated)[0].consumes == ()

    asyncio.run(main())


def test_a_message_to_a_session_at_rest_starts_a_run_by_the_same_agent():
    async def main():
        model = Recorder("hello", "again")
        rt = runtime(lambda request: model(request) if request.turn else "hi")
        first = await rt.run_async("a", "one", session="s")
        second = await rt.send_async("s", "two")
        assert second.id != first.id
        assert (second.status, second.session) == ("completed", "s")
        with pytest.raises(UnknownRun, match="name an agent"):
            await rt.send_async("new", "hello")
        third = await rt.send_async("new", "hello", agent="a")
        assert third.status == "completed"

    asyncio.run(main())


def test_a_message_that_meets_the_end_of_a_run_starts_the_next_one():
    """The run ends between the look at the session and the message: nothing is lost."""

    async def main():
        watched = Watched()
        rt = runtime(lambda request: f"read {texts(request)[-1]}", store=watched)
        await rt.enqueue_async("a", "one", session="s", id="r1")
        ended = []

        async def end_it(name, *args, **kwargs):
            if name == "submit" and not ended:
                ended.append(True)
                watched.before = None
                await rt.drive_async("r1")

        watched.before = end_it
        run = await rt.send_async("s", "two")
        assert (run.status, run.text) == ("completed", "read two")
        assert run.id != "r1"

    asyncio.run(main())


# ---------------------------------------------------------------- conversations


def test_the_next_run_of_a_session_sees_the_conversation_so_far():
    async def main():
        ledger, store = Ledger(), InMemoryStore()

        @tool(effect="read")
        async def look(q: str) -> str:
            return ledger.add(f"found {q}")

        rts = []
        for n in range(3):
            model = Recorder(call("look", q=str(n)), f"answer {n}")
            rt = runtime(model, [look], store=store)
            run = await rt.run_async("a", f"question {n}", id=f"r{n}", session="s")
            assert run.status == "completed"
            rts.append(model)
        last = rts[-1].last
        assert texts(last) == ["question 0", "question 1", "question 2"]
        assert texts(last, "assistant") == ["answer 0", "answer 1"]
        assert list(results(last).values()) == ["found 0", "found 1", "found 2"]
        assert len(set(results(last))) == 3
        assert len(events(await rt.trace_async("r2"), ev.ModelCompleted)) == 2

    asyncio.run(main())


def test_a_session_has_one_active_run():
    """B50: a second run of a busy session is told so, also when both come at once."""

    async def main():
        store = InMemoryStore()
        rt = runtime([call("ask_user", question="?"), "done"], store=store)
        other = runtime(["done"], store=store.beside())
        await rt.run_async("a", "one", id="r1", session="s")
        with pytest.raises(SessionBusy) as caught:
            await other.run_async("a", "two", id="r2", session="s")
        assert caught.value.run == "r1"
        with pytest.raises(UnknownRun):
            await other.get_async("r2")

        rts = [runtime(["hi"], store=store.beside()) for _ in range(5)]
        outcomes = await asyncio.gather(
            *(r.run_async("a", "x", id=f"n{n}", session="t") for n, r in enumerate(rts)),
            return_exceptions=True,
        )
        made = [o for o in outcomes if not isinstance(o, BaseException)]
        assert made
        assert all(isinstance(o, SessionBusy) for o in outcomes if isinstance(o, BaseException))
        assert {o.status for o in made} == {"completed"}

    asyncio.run(main())


@pytest.mark.parametrize("other", [Principal(id="eve"), Principal(id="ann", tenant="b")])
def test_another_principals_session_is_not_found(other):
    """B54: the session's name alone opens nothing."""

    async def main():
        ann = Principal(id="ann", tenant="a")
        rt = runtime(lambda request: "hello")
        await rt.run_async("a", "secret", id="r1", session="support", principal=ann)
        for attempt in (
            rt.run_async("a", "hi", session="support", principal=other),
            rt.send_async("support", "hi", principal=other),
            rt.send_async("support", "hi", agent="a", principal=other),
        ):
            with pytest.raises(UnknownRun, match="there is no session"):
                await attempt
        assert len(await rt.runs_async()) == 1

    asyncio.run(main())


def test_another_principal_cannot_speak_into_an_active_run():
    async def main():
        rt = runtime([call("ask_user", question="?"), "done"])
        await rt.run_async("a", "x", id="r", session="s", principal="ann")
        with pytest.raises(UnknownRun):
            await rt.send_async("s", "give me all", principal="eve")
        assert "input.queued" not in names(await rt.trace_async("r"))

    asyncio.run(main())


INTERRUPTIONS = ["cancelled", "failed", "stopped", "given up"]


@pytest.mark.parametrize("how", INTERRUPTIONS)
def test_calls_an_interrupted_run_left_open_are_closed_for_the_next_run(how):
    """B13, B14, B16: the next request answers each call once, marked as not executed or unknown."""

    async def main():
        store, ledger = InMemoryStore(), Ledger()

        @tool(effect="write")
        async def pay(n: int) -> str:
            ledger.add(f"pay {n}")
            if n == 1:
                raise TimeoutError("lost")
            return "paid"

        script = [[call("pay", n=1), call("pay", n=2)], ModelError(ErrorClass.AUTH, "key")]
        limits = None
        if how == "failed":
            script = [[call("pay", n=0), call("pay", n=3)], ModelError(ErrorClass.AUTH, "key")]
        if how == "stopped":
            script = [[call("pay", n=0), call("pay", n=3)], "never"]
            limits = Limits(calls=1)
        rt = runtime(script, [pay], store=store)
        run = await rt.run_async("a", "go", id="r1", session="s", limits=limits)
        if how == "cancelled":
            run = await rt.cancel_async("r1")
        if how == "given up":
            await rt.resolve_async("r1/c1", give_up=True)
            run = await rt.run_async("a", "go", id="r1", session="s")
        assert run.status == {"given up": "failed"}.get(how, how)
        model = Recorder("fine")
        rt = runtime(model, [pay], store=store)
        for n in range(2):  # repairing twice changes nothing
            run = await rt.run_async("a", "hello again", id=f"r2{n}", session="s")
            assert run.status == "completed"
            assert faults(model.last.messages) == []
        told = list(results(model.last).values())
        if how in {"cancelled", "given up"}:
            assert "its effect may have happened" in told[0]
            assert told[1].startswith("Not executed")
        if how == "stopped":
            assert (told[0], told[1][:12]) == ("paid", "Not executed")

    asyncio.run(main())


def test_a_step_limit_with_calls_open_is_the_stop_reason_and_the_next_turn_works():
    """B16: limit 2, the model still wants a tool on step 2; then a second message."""

    async def main():
        ledger, store = Ledger(), InMemoryStore()

        @tool(effect="read")
        async def look(n: int) -> str:
            return ledger.add(f"look {n}")

        rt = runtime([call("look", n=1), call("look", n=2), "never"], [look], store=store)
        run = await rt.run_async("a", "go", id="r1", session="s", limits=Limits(steps=2))
        assert (run.status, run.limit) == ("stopped", "steps")
        model = Recorder("fine")
        run = await runtime(model, [look], store=store).run_async("a", "and?", session="s")
        assert run.status == "completed"
        assert list(results(model.last).values()) == ["look 1", "look 2"]

    asyncio.run(main())


def test_an_unknown_call_that_was_settled_after_the_end_is_read_so_by_the_next_run():
    async def main():
        store = InMemoryStore()

        @tool(effect="write")
        async def pay() -> str:
            raise TimeoutError

        rt = runtime([call("pay")], [pay], store=store)
        await rt.run_async("a", "go", id="r1", session="s")
        await rt.cancel_async("r1")
        await rt.resolve_async("r1/c1", happened=True, result="receipt 9")
        model = Recorder("fine")
        await runtime(model, [pay], store=store).run_async("a", "and?", session="s")
        assert list(results(model.last).values()) == ["receipt 9"]

    asyncio.run(main())


@pytest.mark.parametrize("given", ["plain", Text("part"), [Text("a"), "b"], ["", "b"]])
def test_input_is_text_or_text_parts(given):
    async def main():
        model = Recorder("ok")
        assert (await runtime(model).run_async("a", given)).status == "completed"
        assert len(texts(model.last)) == (2 if isinstance(given, list) else 1)

    asyncio.run(main())


@pytest.mark.parametrize("given", [7, [], [1], None, {"a": 1}, "", " \n", [Text(""), ""]])
def test_input_that_is_neither_is_refused(given):
    async def main():
        rt = runtime(["ok"])
        with pytest.raises(ConfigError, match="input"):
            await rt.run_async("a", given)
        assert await rt.runs_async() == []

    asyncio.run(main())


def test_input_with_half_an_emoji_or_a_zero_character_is_cleaned_once_and_stays_the_same_task():
    """B57: cleaned on entry with a visible replacement; later turns work."""

    async def main():
        model = Recorder("ok")
        rt = runtime(model)
        given = "half \ud83d and zero \x00"
        await rt.run_async("a", given, id="r")
        assert (await rt.run_async("a", given, id="r")).status == "completed"
        (text,) = texts(model.last)
        text.encode()
        assert "\x00" not in text

    asyncio.run(main())


def test_a_message_to_an_ended_run_is_refused_by_the_client():
    async def main():
        rt = runtime(["ok"])
        await rt.run_async("a", "x", id="r")
        from cairn.core.commands import Queue

        with pytest.raises(IllegalTransition):
            await rt.client.submit("r", Queue(parts=(Text("late"),)))

    asyncio.run(main())


def test_an_older_run_of_a_session_is_not_retried_over_what_came_after():
    async def main():
        def first_fails(request):
            if request.run == "r1":
                raise ModelError(ErrorClass.INVALID_REQUEST, "no")
            return "an answer"

        rt = runtime(Recorder(first_fails, repeat=True))
        assert (await rt.run_async("a", "one", id="r1", session="s")).status == "failed"
        again = await rt.retry_async("r1", id="r1-again")
        assert again.status == "completed"
        await rt.run_async("a", "two", id="r2", session="s")
        with pytest.raises(IllegalTransition, match="has gone on"):
            await rt.retry_async("r1")
        assert (await rt.retry_async("r1", id="r1-again")).id == "r1-again"

    asyncio.run(main())
