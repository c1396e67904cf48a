"""What is settled before work starts: the kind of a task, what is missing, which tools fit."""

import asyncio

import pytest
from tests.engine.kit import Recorder, events, names

from cairn import (
    Agent,
    ErrorClass,
    Intake,
    Limits,
    ModelError,
    Need,
    Runtime,
    Scripted,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.evolve_context import FOUND_KEPT
from cairn.core.intake import CLASSIFY, FEW, LOOKED_AT, choose, missing, said_kind
from cairn.core.rules import IntakeRules
from cairn.core.words import words
from cairn.errors import ConfigError, IllegalTransition

ORDER = Need(name="order number", question="Which order?", pattern=r"\b[A-Z]{2}-\d{4}\b")
PLACE = Need(name="address", question="Where to?", pattern=r"\bto [A-Z]\w+")


def runtime(model, **options):
    model = [model] * 9 if isinstance(model, str) else model
    script = model if hasattr(model, "request") else Scripted(model)
    return Runtime(":memory:", [Agent("a", script, **options)])


def test_what_is_missing_is_asked_for_before_the_model_is_asked():
    async def main():
        model = Recorder("done")
        rt = runtime(Scripted(model), intake=Intake(needs=[ORDER, PLACE]))
        run = await rt.run_async("a", "Send it to Rome", id="r")
        assert (run.status, model.requests) == ("waiting", [])
        assert run.pending[0].question == "Which order?"
        await rt.answer_async(run.pending[0].id, "it is AB-4711")
        run = await rt.run_async("a", "Send it to Rome", id="r")
        assert run.status == "completed"
        told = [p.content for m in model.last.messages for p in m.parts]
        assert "Send it to Rome" in told[0]
        assert any("AB-4711" in text for text in told)

    asyncio.run(main())


def test_a_request_that_holds_all_it_needs_is_not_asked_about():
    async def main():
        rt = runtime("done", intake=Intake(needs=[ORDER, PLACE]))
        run = await rt.run_async("a", "Send AB-4711 to Rome", id="r")
        assert run.status == "completed"
        assert "input.requested" not in names(await rt.trace_async("r"))

    asyncio.run(main())


def test_after_two_answers_without_it_the_run_fails_and_names_what_is_missing():
    async def main():
        rt = runtime("done", intake=Intake(needs=[ORDER]))
        run = await rt.run_async("a", "Send it", id="r")
        for _ in range(2):
            assert run.status == "waiting"
            await rt.answer_async(run.pending[0].id, "no idea")
            run = await rt.run_async("a", "Send it", id="r")
        assert (run.status, run.error_class) == ("failed", "input_incomplete")
        assert "order number" in run.reason

    asyncio.run(main())


def test_where_nobody_can_be_asked_the_run_fails_at_once():
    async def main():
        rt = runtime("done", intake=Intake(needs=[ORDER]))
        run = await rt.run_async("a", "Send it", approvals="none")
        assert (run.status, run.error_class) == ("failed", "input_incomplete")

    asyncio.run(main())


def test_what_was_said_earlier_in_the_conversation_counts_for_thanks_needs_no_order_number():
    async def main():
        rt = runtime(lambda _: "done", intake=Intake(needs=[ORDER]))
        assert (await rt.run_async("a", "Send AB-4711", session="s")).status == "completed"
        assert (await rt.run_async("a", "Thanks", session="s")).status == "completed"
        assert (await rt.run_async("a", "Thanks", session="t")).status == "waiting"

    asyncio.run(main())


def test_a_message_to_a_run_that_waits_for_what_is_missing_is_the_answer():
    async def main():
        model = Recorder("done")
        rt = runtime(Scripted(model), intake=Intake(needs=[ORDER]))
        run = await rt.send_async("s", "Send it", agent="a")
        assert run.status == "waiting"
        again = await rt.send_async("s", "the blue one")
        assert (again.id, again.status) == (run.id, "waiting")
        assert again.pending[0].id == f"{run.id}/2", "it was read, and the number still lacks"
        done = await rt.send_async("s", "it is AB-4711", id="mine")
        assert (done.id, done.status) == (run.id, "completed")
        told = [p.content for m in model.last.messages for p in m.parts]
        assert told == ["Send it", "the blue one", "it is AB-4711"]
        with pytest.raises(IllegalTransition):
            await rt.answer_async(again.pending[0].id, "late")

    asyncio.run(main())


@pytest.mark.parametrize("text", ["", " \n\t"])
def test_an_empty_answer_is_refused_and_uses_up_no_try(text):
    async def main():
        rt = runtime("done", intake=Intake(needs=[ORDER]))
        run = await rt.run_async("a", "Send it", id="r")
        with pytest.raises(ConfigError, match="text"):
            await rt.answer_async(run.pending[0].id, text)
        assert (await rt.get_async("r")).pending == run.pending

    asyncio.run(main())


# ---------------------------------------------------------------- its kind


@tool(effect="read")
def look() -> str:
    """Look."""
    return "seen"


@tool(effect="write")
def send() -> str:
    """Send."""
    return "sent"


@pytest.mark.parametrize(
    ("given", "said", "kind"),
    [
        (None, "query", "query"),
        (None, None, "operate"),
        ("query", "operate", "query"),
        ("generate", "query", "query"),
    ],
)
def test_a_rule_narrows_the_kind_of_a_task_and_never_widens_it(given, said, kind):
    async def main():
        rt = runtime("done", intake=Intake(rule=lambda text: said), tools=[look, send])
        options = {"kind": given} if given else {}
        run = await rt.run_async("a", "where is it?", **options)
        created = events(await rt.trace_async(run.id), ev.RunCreated)[0]
        assert created.kind == kind
        assert created.kind_by == ("" if kind == (given or "operate") else "rule")

    asyncio.run(main())


def test_a_model_says_the_kind_in_a_request_of_its_own_and_a_query_is_offered_reads_only():
    async def main():
        model, asked = Recorder("done"), []

        def classify(request):
            asked.append(request)
            return "Query."

        sorter = Scripted(classify, name="sorter")
        rt = runtime(Scripted(model), intake=Intake(model=sorter), tools=[look, send])
        run = await rt.run_async("a", "where is it?", id="r")
        assert run.status == "completed"
        entries = await rt.trace_async("r")
        requested = events(entries, ev.ModelRequested)
        assert [(e.purpose, e.model) for e in requested] == [
            ("classify", "sorter"),
            ("turn", "scripted"),
        ]
        (found,) = events(entries, ev.TaskClassified)
        assert (found.kind, found.by) == ("query", "model")
        assert asked[0].system == CLASSIFY
        assert asked[0].tools == ()
        assert "send" not in {t.name for t in model.last.tools}

    asyncio.run(main())


@pytest.mark.parametrize(
    "cue",
    ["I would say operate or query", "no idea", "", ModelError(ErrorClass.AUTH, "no")],
    ids=str,
)
def test_a_model_that_says_no_kind_changes_nothing(cue):
    async def main():
        sorter = Scripted(lambda _: cue, name="sorter")
        rt = runtime("done", intake=Intake(model=sorter), tools=[look, send], kind="generate")
        run = await rt.run_async("a", "where is it?", id="r")
        assert run.status == "completed"
        (found,) = events(await rt.trace_async("r"), ev.TaskClassified)
        assert (found.kind, found.by) == ("generate", "none")

    asyncio.run(main())


def test_a_query_is_not_classified_for_there_is_nothing_narrower():
    async def main():
        sorter = Scripted([], name="sorter")
        rt = runtime("done", intake=Intake(model=sorter), kind="query")
        assert (await rt.run_async("a", "where is it?")).status == "completed"

    asyncio.run(main())


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("query", "query"),
        (" **Operate** ", "operate"),
        ("It is GENERATE, surely.", "generate"),
        ("querying", None),
        ("query, not operate", None),
        ("", None),
    ],
)
def test_a_kind_is_read_from_one_word_and_from_nothing_else(text, kind):
    assert said_kind(text) == kind


@pytest.mark.parametrize(
    ("options", "field"),
    [
        ({"needs": ["x"]}, "Intake.needs"),
        ({"needs": [Need(name="x", question="", pattern="x")]}, "question"),
        ({"needs": [Need(name="x", question="y?", pattern="(")]}, "pattern"),
        (
            {"needs": [Need(name="x", question="y?", pattern="x*")]},
            r"pattern: .* empty message.*x\+",
        ),
        (
            {"needs": [Need(name="x", question="y?", pattern=r"a|\s*$")]},
            "pattern: .* empty message",
        ),
        ({"needs": [Need(name="x", question="y?", pattern="")]}, "pattern"),
        ({}, "Intake: it settles nothing"),
        ({"needs": ()}, "Intake: it settles nothing"),
        ({"rule": 7}, "Intake.rule"),
        ({"model": 7}, "Intake.model"),
        ({"needs": ORDER}, r"Intake\.needs.*Give \[Need"),
        ({"needs": [ORDER, ORDER]}, r"Intake\.needs: two needs are called 'order number'"),
    ],
    ids=str,
)
def test_a_bad_intake_is_refused_with_its_field(options, field):
    with pytest.raises(ConfigError, match=field):
        Intake(**options)


@pytest.mark.parametrize(
    "rule", [lambda text: "both", lambda text: 1 / 0], ids=["no kind", "it raises"]
)
def test_a_rule_that_breaks_refuses_the_task_and_leaves_no_run_behind(rule):
    async def main():
        rt = runtime("done", intake=Intake(rule=rule))
        with pytest.raises(ConfigError, match=r"Intake\.rule"):
            await rt.run_async("a", "where is it?")
        assert await rt.runs_async() == []

    asyncio.run(main())


# ---------------------------------------------------------------- its tools


def many(count=60):
    def made(n):
        subjects = ["invoice", "shipment", "refund", "calendar", "weather", "stock"]

        def body(x: str) -> str:
            return f"{n}: {x}"

        subject = subjects[n % len(subjects)]
        body.__doc__ = f"Handle {subject} matter number {n}."
        return tool(name=f"{subject}_{n}", effect="read")(body)

    return [made(n) for n in range(count)]


def test_a_few_tools_are_all_offered():
    async def main():
        model = Recorder("done")
        rt = runtime(Scripted(model), tools=many(FEW))
        await rt.run_async("a", "what about the refund?", id="r")
        assert len([t for t in model.last.tools if t.name.endswith("_2")]) == 1
        assert "find_tools" not in {t.name for t in model.last.tools}
        assert "tools.offered" not in names(await rt.trace_async("r"))

    asyncio.run(main())


def test_of_many_tools_those_that_fit_are_offered_and_others_can_be_found():
    async def main():
        model = Recorder(
            call("find_tools", query="weather 4"),
            lambda request: call(
                next(t.name for t in request.tools if t.name.startswith("weather")), x="Rome"
            ),
            "done",
        )
        rt = runtime(Scripted(model), tools=many())
        run = await rt.run_async("a", "what about the refund?", id="r")
        assert run.status == "completed"
        first, second, _ = model.requests
        offered = {t.name for t in first.tools}
        assert {name.split("_")[0] for name in offered if name[-1].isdigit()} == {"refund"}
        assert "find_tools" in offered
        assert any(t.name.startswith("weather") for t in second.tools)
        chosen = events(await rt.trace_async("r"), ev.ToolsOffered)
        assert [event.why for event in chosen] == ["request", "search"]
        assert offered < {t.name for t in second.tools}

    asyncio.run(main())


def test_the_choice_stays_as_it_is_until_the_person_asks_for_something_else():
    async def main():
        model = Recorder(call("ask_user", question="?"), "one", "two")
        rt = runtime(lambda request: "ok", tools=many())
        await rt.run_async("a", "what about the refund?", id="r1", session="s")
        await rt.run_async("a", "and the weather?", id="r2", session="s")
        assert model.requests == []
        first = events(await rt.trace_async("r1"), ev.ToolsOffered)
        second = events(await rt.trace_async("r2"), ev.ToolsOffered)
        assert len(first) == len(second) == 1
        assert any(name.startswith("weather") for name in second[0].names)

    asyncio.run(main())


def test_searching_for_tools_again_and_again_does_not_fill_the_window():
    async def main():
        def model(request):
            offered.append([t.name for t in request.tools if t.name[-1].isdigit()])
            if request.turn < 30:
                return call("find_tools", query=f"weather {request.turn}", limit=10)
            return "done"

        offered: list[list[str]] = []
        limits = Limits(no_progress=100)
        rt = runtime(Scripted(model), tools=many(200), limits=limits)
        assert (await rt.run_async("a", "what about the refund?", id="r")).status == "completed"
        assert max(map(len, offered)) <= 2 * FOUND_KEPT
        assert set(offered[0]) < set(offered[-1])
        last = events(await rt.trace_async("r"), ev.ToolsOffered)[-1]
        assert set(last.names) < set(offered[-1]), "what was found last is on offer"

    asyncio.run(main())


def test_tools_are_found_in_chinese_too():
    catalogue = {"a": words("发送 邮件 给 客户"), "b": words("查询天气"), "c": words("invoice")}
    assert choose(catalogue, "今天天气怎么样", frozenset(), 2) == ("b",)


# ---------------------------------------------------------------- where a need is looked for


LOG = "line of a log\n" * 5_000


def test_an_answer_counts_however_long_what_was_said_before_it_is():
    async def main():
        rt = runtime("done", intake=Intake(needs=[ORDER]))
        run = await rt.run_async("a", LOG, id="r")
        assert run.status == "waiting"
        await rt.answer_async(run.pending[0].id, "AB-4711")
        assert (await rt.run_async("a", LOG, id="r")).ok

    asyncio.run(main())


def test_a_need_is_found_at_the_end_of_a_long_message_and_in_any_message_of_the_conversation():
    async def main():
        rt = runtime("done", intake=Intake(needs=[ORDER]))
        assert (await rt.send_async("s", LOG + "it is AB-4711", agent="a")).ok
        assert (await rt.send_async("s", LOG)).ok
        assert (await rt.send_async("s", "thanks")).ok

    asyncio.run(main())


def test_each_message_is_searched_by_itself_newest_first_and_only_till_all_is_found():
    searched = []

    def holds(pattern, text):
        searched.append(text)
        return pattern in text

    a, b = (Need(name=p, question="?", pattern=p) for p in "ab")
    rules = IntakeRules(needs=(a, b), holds=holds)
    assert missing(rules, "b", "a", "never") == ()
    assert searched == ["b", "b", "a"]
    assert missing(rules, "b" + "x" * LOOKED_AT, "c") == (a, b)
    assert missing(rules, "x" * LOOKED_AT + "ab") == ()
    joined = IntakeRules(needs=(Need(name="ab", question="?", pattern="a\nb"),), holds=holds)
    assert len(missing(joined, "b", "a")) == 1


def test_needs_are_looked_for_in_one_way_and_never_without_it():
    with pytest.raises(ConfigError, match=r"IntakeRules\.holds"):
        IntakeRules(needs=(ORDER,))
    assert missing(IntakeRules(), "AB-1234") == ()
