"""What the runtime knows for certain outlives any summary, and every one after it.

Identifiers that a person has named, effects that were done, requests that still wait.
"""

import asyncio
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.context.test_compaction import HEADS, agent, said
from tests.core.play import rules_of
from tests.core.play import tool as spec
from tests.engine.kit import FREE_HAND, events

from cairn import Agent, Limits, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core.compaction import compacted
from cairn.core.context import messages_of
from cairn.core.evolve_context import CONTEXT_HANDLERS
from cairn.core.gist import MARKS_KEPT, OLDEST_KEPT
from cairn.core.limits import estimate_tokens
from cairn.core.messages import CallPart, Message, ResultPart, Text, text_of, user
from cairn.core.rules import Rules
from cairn.core.state import RunState, add_message, add_request
from cairn.core.summaries import SECTIONS, by_rule, completed

RULES = rules_of(spec("look"), spec("pay", "write"))
AMPLE = 3_000
"""Tokens in which a summary has room for all that must be exact."""


def condense(state: RunState, by: str, text: str = HEADS, rules: Rules = RULES) -> RunState:
    """The state after all but its last message was condensed."""
    cut = len(state.messages) - 1
    while cut > state.view.start and state.messages[cut].role == "tool":
        cut -= 1
    if cut <= state.view.start:
        return state
    if by == "rule":
        text = by_rule(state, cut, AMPLE)
    else:
        text = completed(state, rules, text, cut, AMPLE, AMPLE)
    event = compacted(state, cut, text, "rule" if by == "rule" else "model")
    entry = ev.Entry(seq=state.seq + 1, at=1, event=event)
    changed = CONTEXT_HANDLERS[ev.ContextCompacted](state, entry, event)
    return msgspec.structs.replace(changed, seq=entry.seq)


def begun(text: str = "Do it.") -> RunState:
    created = ev.RunCreated(agent="a", input=(), digest="")
    return add_request(RunState(run="r", created=created), user(text))


def called(state: RunState, n: int, name: str, result: str, *, ok: bool = True) -> RunState:
    made = CallPart(id=f"c{n}", name=name)
    state = add_message(state, Message(role="assistant", parts=(made,)))
    answer = ResultPart(id=f"c{n}", result=result, ok=ok)
    return add_message(state, Message(role="tool", parts=(answer,)))


def read(state: RunState) -> str:
    """All text of the next request."""
    found = []
    for message in messages_of(state):
        found.append(text_of(message.parts))
        found += [part.result for part in message.parts if isinstance(part, ResultPart)]
    return "\n".join(found)


def kept_of(named: list[str]) -> list[str]:
    """Those of them that are promised: the first ones, and the last ones of the others."""
    first = list(dict.fromkeys(named))[:OLDEST_KEPT]
    rest = list(dict.fromkeys(each for each in reversed(named) if each not in first))
    return [*first, *rest[: MARKS_KEPT - OLDEST_KEPT]]


# ---------------------------------------------------------------- identifiers

FORMS = (
    "AB-{}",
    "7{:05}",
    "/srv/part{}/list.csv",
    "https://a.example/o/{}?v=1",
    "p{}@mail.example",
)
LINES = st.lists(
    st.tuples(
        st.sampled_from(["asked", "asked", "asked", "said", "called", "model", "rule"]),
        st.lists(st.tuples(st.sampled_from(FORMS), st.integers(100, 160)), max_size=3),
    ),
    max_size=40,
)


@given(lines=LINES)
def test_every_identifier_of_a_person_is_in_the_request_after_any_compactions_up_to_the_bound(
    lines: list[tuple[str, list[tuple[str, int]]]],
) -> None:
    state, named = begun(), list[str]()
    for n, (what, marks) in enumerate(lines):
        exact = [form.format(number) for form, number in marks]
        if what == "asked":
            named += exact
            state = add_request(state, user(f"Mind these: {', '.join(exact)} and go on."))
        elif what == "said":
            state = add_message(state, Message(role="assistant", parts=(Text("So it is. " * 9),)))
        elif what == "called":
            state = called(state, n, "look", f"Result {n} of K-{n:05} " * 3)
        else:
            state = condense(state, what)
            text = read(state)
            assert [each for each in kept_of(named) if each not in text] == []


def test_an_identifier_that_is_a_part_of_a_longer_one_counts_as_left_out() -> None:
    state = add_request(begun("My order is AB-47."), user("Go on."))
    text = HEADS.replace("## Done\nNone", "## Done\nlooked at AB-4711")
    assert read(condense(state, "model", text)).splitlines().count("AB-47") == 1


def test_an_identifier_before_a_long_text_that_was_pasted_is_kept() -> None:
    state = begun("My account is KH-8888. Here is the log:\n" + "nothing of note\n" * 4_000)
    state = add_request(state, user("Go on."))
    for by in ("model", "rule", "model"):
        state = add_request(condense(state, by), user("And on."))
        assert "KH-8888" in read(state), by


@pytest.mark.parametrize("window", [3_000, 8_000])
def test_a_session_whose_summaries_say_nothing_still_has_its_first_order_number(
    window: int,
) -> None:
    async def main() -> None:
        seen: list[str] = []

        def model(request: Any) -> str:
            seen.append(said(request))
            return "noted " + "blah " * 100

        scribe = Scripted(lambda _: HEADS, name="s", summarises=True)
        talk = Scripted(model, window=window, max_output=300)
        async with Runtime(":memory:", [Agent("t", talk, summary_model=scribe)]) as rt:
            await rt.send_async("s", "My order is ZX-9901, see https://a.example/c?d=1", agent="t")
            adopted = 0
            for n in range(90):
                run = await rt.send_async("s", f"Question {n}: " + "something long " * 15)
                found = events(await rt.trace_async(run.id), ev.ContextCompacted)
                adopted += sum(event.by == "model" for event in found)
        assert adopted >= 3
        assert all("ZX-9901" in text and "https://a.example/c?d=1" in text for text in seen)

    asyncio.run(main())


# ---------------------------------------------------------------- a model's empty summary


def test_a_summary_that_says_none_everywhere_hides_no_effect_that_was_done() -> None:
    paid: list[str] = []
    seen: list[str] = []

    @tool(effect="write")
    def pay(to: str) -> str:
        """Pay."""
        paid.append(to)
        return "paid"

    def model(request: Any) -> Any:
        seen.append(said(request))
        if request.turn < 3:
            return call("pay", to=f"person {request.turn}")
        return call("look", n=request.turn) if request.turn < 50 else "done"

    async def main() -> None:
        cheap = Scripted(lambda _: HEADS, name="cheap", summarises=True)
        rt = Runtime(
            ":memory:",
            [agent(Scripted(model, window=6_000, max_output=500), pay, summary_model=cheap)],
            policy=FREE_HAND,
        )
        run = await rt.run_async("a", "Pay three people, then look around.")
        assert run.status == "completed"
        assert events(await rt.trace_async(run.id), ev.ContextCompacted)
        assert paid == ["person 0", "person 1", "person 2"]
        condensed = [text for text in seen if "was condensed" in text]
        assert condensed
        assert all("pay" in text.split("Done")[1] for text in condensed)
        assert all("- pay: 3 done; the last: c3: paid" in text for text in condensed)

    asyncio.run(main())


def test_a_summary_that_says_none_everywhere_hides_no_request_that_is_still_open() -> None:
    seen: list[str] = []

    def model(request: Any) -> Any:
        seen.append(said(request))
        return call("look", n=request.turn) if request.turn < 50 else "done"

    async def main() -> None:
        cheap = Scripted(lambda _: HEADS, name="cheap", summarises=True)
        rt = Runtime(
            ":memory:", [agent(Scripted(model, window=6_000, max_output=500), summary_model=cheap)]
        )
        await rt.enqueue_async("a", "Find out who owns the red house.", id="r", session="s")
        for more in ("And paint the green door.", "And mind the dog."):
            await rt.edit_async("r", message=more)
        run = await rt.drive_async("r")
        assert run.status == "completed"
        condensed = [text for text in seen if "was condensed" in text]
        assert condensed
        for wanted in ("mind the dog", "green door", "red house"):
            assert all(wanted in text for text in condensed), wanted

    asyncio.run(main())


def test_what_is_added_stands_under_its_heading_and_what_the_model_said_stays() -> None:
    state = called(begun("Find the red house."), 1, "pay", "paid 5")
    state = called(state, 2, "pay", "no funds", ok=False)
    state = add_request(called(state, 3, "look", "seen"), user("And now?"))
    text = HEADS.replace("## Done\nNone", "## Done\n- all is well").replace("## Goal", "**Goal:**")
    summary = condense(state, "model", text).summary
    assert summary == (
        "**Goal:**\nNone\n## Constraints\nNone\n## Key evidence\nNone\n"
        "## Done\n- all is well\n- pay: 1 done, 1 not; the last: c2: failed: no funds\n"
        "## Decisions\nNone\n## Open\n- asked: Find the red house.\n"
        "## Next\nNone\n## Exact identifiers\nNone"
    )


def test_a_good_summary_stays_as_the_model_wrote_it() -> None:
    state = add_request(called(begun("Look at AB-4711."), 1, "look", "seen"), user("And now?"))
    state = msgspec.structs.replace(state, own=1)  # the first request was that of a run before
    text = HEADS.replace("## Goal\nNone", "## Goal\nLook at AB-4711.")
    assert condense(state, "model", text).summary == text


def test_effects_are_known_after_summaries_by_models_and_rules_in_any_order() -> None:
    for order in (["model"] * 3, ["rule", "model", "model"], ["model", "rule", "model"]):
        state = called(begun(), 1, "pay", "paid")
        for n, by in enumerate(order, 2):
            state = add_request(called(state, n, "look", "seen " * 50), user("Go on."))
            state = condense(state, by)
            assert "- pay: 1 done" in state.summary, order


@given(
    requests=st.lists(st.text("word 字。", min_size=1, max_size=900), min_size=2, max_size=30),
    tools=st.integers(0, 40),
    tokens=st.sampled_from([50, 225, 1_000]),
)
def test_what_is_added_to_a_summary_is_bounded(
    requests: list[str], tools: int, tokens: int
) -> None:
    state = begun("https://a.example/" + "x" * 1_500)
    for n in range(tools):
        state = called(state, n, f"write_{n}", "done " * 90)
    for text in requests:
        state = add_request(state, user(text))
    cut = len(state.messages) - 1
    text = completed(state, RULES, HEADS, cut, tokens, tokens)
    barest = 60
    assert estimate_tokens(text) - estimate_tokens(HEADS) <= tokens + barest


# ---------------------------------------------------------------- a rule's summary


def section(text: str, name: str) -> str:
    return text.split(f"## {name}\n")[1].partition("\n## ")[0]


@pytest.mark.parametrize("window", [3_000, 8_000])
def test_what_a_person_laid_down_at_the_start_is_in_every_summary_by_rule(window: int) -> None:
    async def main() -> None:
        talk = Scripted(lambda _: "noted " + "blah " * 150, window=window, max_output=300)
        texts: list[str] = []
        async with Runtime(":memory:", [Agent("t", talk, limits=Limits(steps=500))]) as rt:
            await rt.send_async("s", "Hello", agent="t")
            await rt.send_async("s", "My account is KH-8888. Never ship to Berlin. 请用中文回答。")
            for n in range(60):
                asked = f"Question {n} about case CASE-{n:03d}: " + "something long " * 20
                run = await rt.send_async("s", asked)
                found = events(await rt.trace_async(run.id), ev.ContextCompacted)
                texts += [event.text for event in found]
        assert len(texts) > 3
        for text in texts:
            assert all(each in text for each in ("KH-8888", "Never ship to Berlin", "中文"))
            assert "search_history" in section(text, "Constraints")

    asyncio.run(main())


def test_a_rule_says_of_no_heading_it_cannot_fill_that_there_is_nothing() -> None:
    state = add_request(begun("Ship it to Berlin."), user("Go on."))
    text = condense(state, "rule").summary
    for name in ("Constraints", "Decisions", "Next"):
        assert section(text, name) == "Not known; search_history finds it"
    assert section(text, "Done") == "None", "that no tool was called is known"
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [*SECTIONS]


def test_what_a_model_has_said_of_constraints_outlives_two_rules() -> None:
    text = HEADS.replace("## Constraints\nNone", "## Constraints\n- never ship to Berlin")
    state = condense(add_request(begun(), user("Go on.")), "model", text)
    for _ in range(2):
        state = condense(add_request(state, user("And on.")), "rule")
        assert "- never ship to Berlin" in section(state.summary, "Constraints")


def test_rules_carry_on_what_a_model_said_heading_by_heading_however_long_its_goal_was() -> None:
    text = HEADS.replace("## Constraints\nNone", "## Constraints\n- never ship to Berlin")
    text = text.replace("## Goal\nNone", "## Goal\n" + "Sort out all of the orders. " * 40)
    text = text.replace("## Decisions\nNone", "## Decisions\n- refund AB-4003")
    text = text.replace("## Key evidence\nNone", "## Key evidence\n- the parcel was lost")
    state = condense(add_request(begun(), user("Go on.")), "model", text)
    for _ in range(3):
        state = condense(add_request(state, user("And on.")), "rule")
        assert section(state.summary, "Constraints") == "- never ship to Berlin"
        assert section(state.summary, "Decisions").startswith("- refund AB-4003")
        assert section(state.summary, "Key evidence").count("the parcel was lost") == 1


def test_the_agents_last_words_give_way_to_the_first_requests() -> None:
    state = begun("Hello")
    state = add_request(state, user("Never ship to Berlin."))
    for n in range(12):
        chatter = Message(role="assistant", parts=(Text("noted " + "blah " * 150),))
        state = add_request(add_message(state, chatter), user(f"Question {n}: " + "long " * 70))
    for tokens in range(200, 900, 50):
        text = by_rule(state, len(state.messages), tokens)
        assert "Berlin" in text, tokens
    assert "the agent said last" in by_rule(state, len(state.messages), 2_000)


def test_a_rule_tells_of_a_models_summary_without_its_marks_and_its_empty_headings() -> None:
    """It is fenced again as a whole: marks within marks would be read as forged ones."""
    text = HEADS.replace("## Constraints\nNone", "## Constraints\n- never ship to Berlin")
    state = add_request(begun(), user("Go on."))
    state = condense(msgspec.structs.replace(state, taint=frozenset({"web"})), "model", text)
    assert state.summary.startswith("[data ")
    state = condense(add_request(state, user("And on.")), "rule")
    told = section(state.summary, "Constraints")
    assert told == "- never ship to Berlin"
    assert state.summary.count("[data ") == state.summary.count("[end of data ") == 1
