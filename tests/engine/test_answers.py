"""Final answers: typed, checked, cited; and success that is earned."""

import asyncio

import pytest
from pydantic import BaseModel
from tests.engine.kit import Ledger, Recorder, events, names, results, runtime, texts

from cairn import (
    Agent,
    Answer,
    ErrorClass,
    Limits,
    ModelError,
    Runtime,
    Scripted,
    Source,
    call,
    tool,
)
from cairn.core import events as ev
from cairn.core.messages import Text
from cairn.errors import ConfigError
from cairn.ports import ModelReply
from cairn.store.inmemory import InMemoryStore


class Quote(BaseModel):
    item: str
    cents: int


GOOD = '{"item": "tea", "cents": 300}'


# ---------------------------------------------------------------- output types


@pytest.mark.parametrize("answer", [GOOD, f"```json\n{GOOD}\n```", f"  {GOOD}\n"])
def test_a_typed_answer_comes_back_as_its_type(answer):
    async def main():
        model = Recorder(answer)
        rt = runtime(model, output_type=Quote)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.output) == ("completed", Quote(item="tea", cents=300))
        assert run.text == answer
        assert model.last.output_schema["properties"].keys() == {"item", "cents"}
        assert model.last.output_mode == "schema"
        assert (await rt.run_async("a", "task", id="r")).output == run.output

    asyncio.run(main())


def test_an_answer_of_another_shape_is_mended_by_the_model():
    async def main():
        model = Recorder("It is tea.", '{"item": "tea"}', GOOD)
        rt = runtime(model, output_type=Quote)
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert "must be JSON of the agreed schema" in texts(model.requests[1])[-1]
        assert "cents" in texts(model.requests[2])[-1]
        assert run.steps == 3

    asyncio.run(main())


def test_an_answer_that_never_fits_fails_the_run_after_a_bounded_number_of_repairs():
    async def main():
        for repairs in (0, 1, 3):
            model = Recorder("no", repeat=True)
            rt = runtime(model, output_type=Quote, repairs=repairs)
            run = await rt.run_async("a", "task", id="r")
            assert (run.status, run.error_class) == ("failed", "malformed_output")
            assert run.output is None
            assert len(model.requests) == repairs + 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("output_type", "answer", "value"),
    [(int, "7", 7), (list[int], "[1,2]", [1, 2]), (dict[str, int], '{"a":1}', {"a": 1})],
)
def test_any_type_that_can_be_validated_may_be_the_output_type(output_type, answer, value):
    async def main():
        run = await runtime([answer], output_type=output_type).run_async("a", "task")
        assert run.output == value

    asyncio.run(main())


def test_a_run_that_did_not_complete_has_no_output():
    async def main():
        rt = runtime([ModelError(ErrorClass.AUTH, "no")], output_type=Quote)
        run = await rt.run_async("a", "task")
        assert (run.status, run.output) == ("failed", None)
        assert run.text.startswith(f"Run {run.id}: failed (auth)")

    asyncio.run(main())


def test_a_result_whose_type_has_changed_since_keeps_its_text():
    async def main():
        store = InMemoryStore()
        await runtime([GOOD], output_type=Quote, store=store).run_async("a", "task", id="r")
        run = await runtime(["x"], output_type=int, store=store).run_async("a", "task", id="r")
        assert (run.status, run.text, run.output) == ("completed", GOOD, None)

    asyncio.run(main())


# ---------------------------------------------------------------- completion checks


def test_a_completion_check_runs_as_a_journaled_task_and_accepts_the_answer():
    async def main():
        seen: list[Answer] = []

        def complete(answer: Answer) -> None:
            seen.append(answer)

        async def polite(answer: Answer) -> bool:
            return "please" in answer.text

        model = Recorder("give", "please give")
        rt = runtime(model, completion_checks=[complete, polite])
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.text) == ("completed", "please give")
        trace = await rt.trace_async("r")
        tasks = [e.name for e in events(trace, ev.StepStarted)]
        assert tasks == ["complete", "polite", "complete", "polite"]
        assert [a.text for a in seen] == ["give", "please give"]
        assert seen[0].run == "r"
        assert run.steps == 6
        again = await rt.run_async("a", "task", id="r")
        assert again == run
        assert len(seen) == 2

    asyncio.run(main())


def test_what_a_check_misses_is_told_to_the_model():
    async def main():
        def has_number(answer: Answer) -> str:
            return "" if any(c.isdigit() for c in answer.text) else "name the number"

        model = Recorder("some", "7")
        run = await runtime(model, completion_checks=[has_number]).run_async("a", "task")
        assert (run.status, run.text) == ("completed", "7")
        assert texts(model.last)[-1].endswith("Not accepted yet: name the number")

    asyncio.run(main())


@pytest.mark.parametrize("repairs", [0, 1, 3])
def test_a_check_that_never_accepts_fails_the_run_and_every_answer_was_looked_at(repairs):
    """The last answer is checked like the first: no paid reply is thrown away unseen."""

    async def main():
        looked: list[str] = []

        def never(answer: Answer) -> str:
            looked.append(answer.text)
            return "no"

        model = Recorder(*(f"try {n}" for n in range(10)))
        rt = runtime(model, completion_checks=[never], repairs=repairs)
        run = await rt.run_async("a", "task", id="r")
        assert (run.status, run.error_class) == ("failed", "malformed_output")
        assert looked == [f"try {n}" for n in range(len(model.requests))]
        assert len(model.requests) == repairs + 1

    asyncio.run(main())


def test_a_check_that_raises_has_not_accepted_the_answer():
    async def main():
        tried: list[int] = []

        def shaky(answer: Answer) -> None:
            tried.append(1)
            if len(tried) == 1:
                raise RuntimeError("database down")

        model = Recorder("answer", "answer again")
        run = await runtime(model, completion_checks=[shaky]).run_async("a", "task")
        assert run.status == "completed"
        assert "the check shaky failed: RuntimeError: database down" in texts(model.last)[-1]

    asyncio.run(main())


def test_a_check_sees_the_typed_output():
    async def main():
        def affordable(answer: Answer) -> str:
            return "" if answer.output.cents < 500 else "too dear"

        model = Recorder('{"item":"tea","cents":900}', GOOD)
        rt = runtime(model, output_type=Quote, completion_checks=[affordable])
        assert (await rt.run_async("a", "task")).output.cents == 300

    asyncio.run(main())


def test_checks_of_one_name_are_refused():
    def check(answer: Answer) -> None: ...

    with pytest.raises(ConfigError, match="two checks have one name"):
        Agent("a", Scripted(["x"]), completion_checks=[check, check])


def test_a_step_limit_reached_by_checks_is_named():
    async def main():
        def never(answer: Answer) -> str:
            return "no"

        rt = runtime(Recorder("x", repeat=True), completion_checks=[never])
        run = await rt.run_async("a", "task", limits=Limits(steps=3))
        assert (run.status, run.limit) == ("stopped", "steps")

    asyncio.run(main())


# ---------------------------------------------------------------- sources and citations


def library(ledger: Ledger, **options):
    @tool(effect="read", sources=True, **options)
    async def search(q: str) -> list[Source]:
        ledger.add(q)
        if q == "nothing":
            return []
        return [Source(uri=f"lib://{q}/{n}", text=f"{q} text {n}", span="1-2") for n in (1, 2)]

    return search


def test_sources_are_numbered_through_the_run_and_the_answers_citations_name_them():
    async def main():
        ledger = Ledger()
        model = Recorder(
            call("search", q="tea"), call("search", q="milk"), "Tea [s2], milk [s3], tea [s2]."
        )
        rt = runtime(model, [library(ledger)])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        assert [(c.mark, c.source.uri) for c in run.citations] == [
            ("s2", "lib://tea/2"),
            ("s3", "lib://milk/1"),
        ]
        read = results(model.last)
        assert read["c1"].startswith("[s1] lib://tea/1#1-2\ntea text 1")
        assert "[s4] lib://milk/2#1-2" in read["c2"]

    asyncio.run(main())


def test_a_citation_of_nothing_goes_to_repair_with_the_known_ones():
    async def main():
        model = Recorder(call("search", q="tea"), "As [s9] says.", "As [s1] says.")
        run = await runtime(model, [library(Ledger())]).run_async("a", "task")
        assert (run.status, run.text) == ("completed", "As [s1] says.")
        note = texts(model.last)[-1]
        assert "[s9]" in note
        assert "[s1] to [s2]" in note

    asyncio.run(main())


def test_a_citation_without_any_source_goes_to_repair():
    async def main():
        model = Recorder("Surely [s1].", "I do not know.")
        run = await runtime(model).run_async("a", "task")
        assert (run.status, run.text, run.citations) == ("completed", "I do not know.", ())
        assert "there are none" in texts(model.last)[-1]

    asyncio.run(main())


def test_an_empty_search_is_told_and_is_no_fault():
    async def main():
        model = Recorder(call("search", q="nothing"), "Nothing is known.")
        run = await runtime(model, [library(Ledger())]).run_async("a", "task")
        assert run.status == "completed"
        assert results(model.last) == {"c1": "Nothing was found."}

    asyncio.run(main())


def test_a_later_run_of_the_session_cites_the_sources_of_an_earlier_one():
    async def main():
        store = InMemoryStore()
        first = runtime([call("search", q="tea"), "Tea [s1]."], [library(Ledger())], store=store)
        await first.run_async("a", "one", session="s")
        model = Recorder(call("search", q="milk"), "Tea [s1], milk [s4].")
        second = runtime(model, [library(Ledger())], store=store)
        run = await second.run_async("a", "two", session="s")
        assert [c.source.uri for c in run.citations] == ["lib://tea/1", "lib://milk/2"]

    asyncio.run(main())


def test_a_source_tool_that_returns_something_else_is_told_so():
    async def main():
        @tool(effect="read", sources=True)
        async def search() -> list[Source]:
            return ["not a source"]

        model = Recorder(call("search"), "no sources")
        run = await runtime(model, [search]).run_async("a", "task")
        assert run.status == "completed"
        assert "must return a list of Source" in results(model.last)["c1"]

    asyncio.run(main())


# ---------------------------------------------------------------- plans


def test_a_plan_is_journaled_with_the_outcome_of_its_call():
    async def main():
        items = [{"text": "look", "status": "done"}, {"text": "answer"}]
        rt = runtime([call("update_plan", items=items), "done"])
        run = await rt.run_async("a", "task", id="r")
        assert run.status == "completed"
        trace = await rt.trace_async("r")
        plan = events(trace, ev.PlanUpdated)[0]
        assert [(i.text, i.status) for i in plan.items] == [("look", "done"), ("answer", "open")]
        order = names(trace)
        assert order.index("tool.started") < order.index("plan.updated")
        assert order.index("plan.updated") < order.index("tool.completed")

    asyncio.run(main())


# ---------------------------------------------------------------- replies that are no answers


def test_text_beside_a_call_is_a_comment_and_the_call_runs():
    """B29: the call runs, the text is kept, the run ends on the later answer."""

    async def main():
        ledger = Ledger()

        @tool(effect="read")
        async def weather() -> str:
            return ledger.add("sunny")

        model = Recorder(["Let me check the weather.", call("weather")], "Sunny.")
        run = await runtime(model, [weather]).run_async("a", "task")
        assert (run.text, ledger.lines) == ("Sunny.", ["sunny"])
        assert texts(model.last, "assistant") == ["Let me check the weather."]

    asyncio.run(main())


@pytest.mark.parametrize("reply", [ModelReply(), [], ["   "]])
def test_an_empty_reply_is_nudged_and_never_answered_by_an_earlier_sentence(reply):
    """B30: a bounded nudge, then a failed run with its own class."""

    async def main():
        @tool(effect="read")
        async def look() -> str:
            return "seen"

        model = Recorder(["earlier words", call("look")], reply, "Now then.")
        run = await runtime(model, [look]).run_async("a", "task")
        assert (run.status, run.text) == ("completed", "Now then.")
        assert "was empty" in texts(model.last)[-1]
        stubborn = Recorder(["earlier words", call("look")], reply, repeat=True)
        run = await runtime(stubborn, [look]).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "empty_output")
        assert "earlier words" not in run.text
        assert len(stubborn.requests) == 4

    asyncio.run(main())


@pytest.mark.parametrize("parts", [(), (Text("I cannot help with that."),)], ids=["bare", "said"])
def test_a_refusal_ends_the_run_at_once_and_executes_nothing_of_the_reply(parts):
    """B31: its own class, no second try on the same input, no tool of that reply."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def pay() -> str:
            return ledger.add("pay")

        refused = ModelReply(parts=parts, calls=(call("pay"),), finish="content_filter")
        model = Recorder(refused, "never asked")
        run = await runtime(model, [pay]).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "content_filtered")
        assert all(part.content in run.reason for part in parts)
        assert ledger.lines == []
        assert len(model.requests) == 1

    asyncio.run(main())


def test_a_reply_that_was_cut_executes_nothing_and_the_model_is_told_to_send_less():
    """B20: cut at the limit inside a call: never executed, not repeated at the same size."""

    async def main():
        ledger = Ledger()

        @tool(effect="write")
        async def write_file(text: str) -> str:
            return ledger.add(text)

        cut = ModelReply(calls=(call("write_file", text="half a wor"),), finish="length")
        model = Recorder(cut, call("write_file", text="whole"), "done")
        run = await runtime(model, [write_file]).run_async("a", "task")
        assert (run.status, ledger.lines) == ("completed", ["whole"])
        assert "cut off at the output limit" in texts(model.requests[1])[-1]
        run = await runtime(Recorder(cut, repeat=True), [write_file]).run_async("a", "task")
        assert (run.status, run.error_class) == ("failed", "truncated_output")

    asyncio.run(main())


def test_two_runtimes_of_one_agent_name_keep_their_answers_apart():
    async def main():
        agents = [Agent("a", Scripted(["one"])), Agent("b", Scripted(["two"]))]
        rt = Runtime(":memory:", agents=agents)
        first, second = await asyncio.gather(rt.run_async("a", "t"), rt.run_async("b", "t"))
        assert (first.text, second.text) == ("one", "two")

    asyncio.run(main())
