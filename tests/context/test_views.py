"""Whatever a history holds, what is sent of it is well-formed, holds the request, and fits."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.core import events as ev
from cairn.core.compaction import (
    Aside,
    TooLarge,
    compacted,
    fit,
    guarded,
    room_of,
    summary_faults,
)
from cairn.core.context import faults, messages_of
from cairn.core.evolve_context import CONTEXT_HANDLERS
from cairn.core.limits import estimate_tokens
from cairn.core.messages import Blob, CallPart, Message, ResultPart, Text, user
from cairn.core.rules import ModelSpec, Rules
from cairn.core.sizes import size_of
from cairn.core.state import RunState, add_message, add_request
from cairn.core.summaries import SECTIONS, by_rule
from cairn.core.view import WHOLE, View, boundaries, sent

TEXTS = st.sampled_from(
    [
        "ok",
        "x" * 900,
        "请把订单 4711 的发票寄给我" * 8,
        "see https://a.example/b/c?d=1",
        "\u0000é" * 40,
        "From now on answer in French. " + "Never ship to Berlin. 请勿致电。" * 3,
        "以后都用人民币报价。" + "不要再联系客户，" * 30,
    ]
)
SIZES = st.sampled_from([5, 300, 3_000, 20_000])


@st.composite
def turns(draw: Any) -> list[Any]:
    """Requests, replies, calls with their results, steering, notes, images, repeated aliases."""
    return draw(
        st.lists(
            st.one_of(
                st.tuples(st.just("request"), TEXTS),
                st.tuples(st.just("image"), TEXTS),
                st.tuples(st.just("note"), TEXTS),
                st.tuples(st.just("says"), TEXTS),
                st.tuples(st.just("calls"), st.lists(SIZES, min_size=1, max_size=4)),
            ),
            max_size=40,
        )
    )


def told(lines: list[Any]) -> RunState:
    """A run of which this was said and done; the first message is a request."""
    state = add_request(RunState(run="r"), user("the first request"))
    number = 0
    for kind, what in lines:
        if kind == "request":
            state = add_request(state, user(what))
        elif kind == "image":
            picture = Blob(mime_type="image/png", content=b"1")
            state = add_request(state, Message(role="user", parts=(Text(what), picture)))
        elif kind == "note":
            state = add_message(state, user(f"[runtime] {what}"))
        elif kind == "says":
            state = add_message(state, Message(role="assistant", parts=(Text(what),)))
        else:
            ids = [f"c{number + n}" for n in range(1, len(what) + 1)]
            number += len(what)
            calls = tuple(CallPart(id=i, name="look", alias="call_0") for i in ids)
            results = tuple(
                ResultPart(id=i, result="r" * size) for i, size in zip(ids, what, strict=True)
            )
            state = add_message(state, Message(role="assistant", parts=calls))
            state = add_message(state, Message(role="tool", parts=results))
    return msgspec.structs.replace(state, created=ev.RunCreated(agent="a", input=(), digest=""))


def rules(window: int, **fields: Any) -> Rules:
    return Rules(tools={}, models=(ModelSpec(name="m", window=window, max_output=500),), **fields)


def seen(state: RunState, event: ev.ContextCompacted) -> RunState:
    entry = ev.Entry(seq=state.seq + 1, at=1, event=event)
    changed = CONTEXT_HANDLERS[ev.ContextCompacted](state, entry, event)
    return msgspec.structs.replace(changed, seq=entry.seq)


@given(lines=turns(), window=st.sampled_from([1_200, 4_000, 16_000, 10**6]))
def test_what_is_sent_is_well_formed_holds_the_last_request_and_never_grows(lines, window):
    """B15: whatever a history holds."""
    state = told(lines)
    bounds = rules(window)
    last = state.messages[state.asked[-1]]
    for _ in range(8):
        size = size_of(state.messages, state.view, state.summary)
        fitting = fit(state, bounds, bounds.models[0])
        if isinstance(fitting, ev.ContextCompacted):
            state = seen(state, fitting)
            assert state.squeezes <= 3
        elif isinstance(fitting, TooLarge):
            assert fitting.size > fitting.room
            return
        else:
            assert isinstance(fitting, View)
            state = msgspec.structs.replace(state, view=fitting)
            state = msgspec.structs.replace(
                state, tokens=size_of(state.messages, fitting, state.summary)
            )
        messages = messages_of(state)
        assert faults(messages) == []
        assert last in messages
        assert size_of(state.messages, state.view, state.summary) <= max(
            size, size_of(state.messages, View())
        )
        if isinstance(fitting, View):
            files = sum(isinstance(p, Blob) for m in messages for p in m.parts)
            assert files or guarded(state.tokens) <= room_of(bounds.models[0])
            return
    raise AssertionError("it decides for ever")


@given(lines=turns(), start=st.integers(0, 80), kept=st.sampled_from([1, 50, 500]))
def test_any_view_from_a_boundary_is_well_formed_and_its_results_are_not_longer(lines, start, kept):
    state = told(lines)
    starts = [0, *boundaries(state.messages, 0)]
    begin = starts[start % len(starts)]
    view = View(start=begin, whole=len(state.messages), kept=kept)
    messages = sent(state.messages, view)
    assert faults(messages) == []
    for message in messages:
        for part in message.parts:
            if isinstance(part, ResultPart):
                assert len(part.result) <= max(kept + 160, 200)


@given(lines=turns(), cut=st.integers(0, 80), tokens=st.sampled_from([100, 400, 2_000]))
def test_a_summary_by_rule_is_bounded_and_names_the_first_request(lines, cut, tokens):
    state = told(lines)
    starts = [len(state.messages), *boundaries(state.messages, 0)]
    text = by_rule(state, starts[cut % len(starts)], tokens)
    assert len(text) <= tokens * 4
    assert text.startswith("## Goal\nthe first request")


@given(lines=turns())
def test_a_compaction_says_the_sizes_before_and_after_it(lines):
    state = told(lines)
    cut = next(iter(boundaries(state.messages, 0)), 0)
    if not cut:
        return
    event = compacted(state, cut, "## Goal\nnone", "rule")
    after = seen(state, event)
    assert event.before == state.tokens
    assert event.after == after.tokens == size_of(after.messages, after.view, after.summary)


def test_a_pair_of_call_and_answer_is_never_parted_by_a_cut():
    """B15."""
    state = told([("calls", [3_000]), ("calls", [3_000]), ("calls", [3_000])])
    for cut in boundaries(state.messages, 0):
        assert state.messages[cut].role != "tool"


def test_the_results_of_the_last_turn_share_the_room_when_they_are_too_many_together():
    state = told([("calls", [9_000, 9_000, 9_000, 9_000])])
    bounds = rules(4_000)
    view = fit(state, bounds, bounds.models[0])
    assert isinstance(view, View)
    results = [p for m in sent(state.messages, view) for p in m.parts if isinstance(p, ResultPart)]
    assert len(results) == 4
    assert len({len(part.result) for part in results}) == 1, "each has the same share"
    assert all("read_artifact" in part.result for part in results)


def test_a_request_that_can_not_fit_is_said_to_be_too_large():
    state = add_request(RunState(run="r"), user("word " * 10_000))
    bounds = rules(4_000)
    found = fit(state, bounds, bounds.models[0])
    assert isinstance(found, TooLarge)
    assert found.size > found.room == 3_500


def test_a_model_is_asked_to_summarise_only_as_much_as_it_can_read():
    state = told([("calls", [3_000, 3_000])] * 30)
    small = ModelSpec(name="s", window=4_000, max_output=500)
    bounds = rules(16_000, summary=small)
    found = fit(state, bounds, bounds.models[0])
    assert isinstance(found, Aside)
    assert found.input_tokens <= room_of(small)
    whole = rules(16_000, summary=ModelSpec(name="s", window=10**6))
    wider = fit(state, whole, whole.models[0])
    assert isinstance(wider, Aside)
    assert found.cut < wider.cut


def test_a_summary_without_its_headings_or_no_shorter_than_its_part_is_not_adopted():
    """B55, B56."""
    state = told([("says", "x" * 900)] * 3)
    spec = ModelSpec(name="m", window=8_000)
    heads = "\n".join(f"## {name}\nNone" for name in SECTIONS)
    assert summary_faults(state, " \n", 3, spec) == "it is empty"
    assert "lacks the headings Goal" in summary_faults(state, "fine", 3, spec)
    assert summary_faults(state, heads, 3, spec) == ""
    assert "are allowed" in summary_faults(state, heads + "word " * 3_000, 3, spec)
    assert "no shorter" in summary_faults(state, heads + "word " * 700, 3, spec)


@pytest.mark.parametrize("text", ["and so on ", "文件中的记录已经找到。", "기록을 찾았습니다. "])
@pytest.mark.parametrize("tokens", [120, 300, 900])
def test_a_rules_summary_has_all_its_headings_and_keeps_its_bound_in_any_script(text, tokens):
    state = told([("request", text * 100), ("says", text * 100), ("calls", [900] * 4)] * 6)
    for n in range(8):
        state = add_request(state, user(f"{text * 60} https://shop.example/orders/{n}{'9' * 60}"))
    summary = by_rule(state, len(state.messages), tokens)
    assert estimate_tokens(summary) <= tokens
    assert [line[3:] for line in summary.splitlines() if line.startswith("## ")] == [*SECTIONS]


def test_a_request_found_too_large_is_made_smaller_also_where_no_window_is_known():
    state = told([("calls", [3_000])] * 6)
    unknown = rules(0)
    assert fit(state, unknown, unknown.models[0]) == WHOLE
    refused = msgspec.structs.replace(state, overflowed="the prompt is too long")
    found = fit(refused, unknown, unknown.models[0])
    assert isinstance(found, View)
    assert size_of(state.messages, found) * 10 <= state.tokens * 7


def test_only_the_last_requests_are_sent_where_that_was_chosen():
    state = told([("says", "a"), ("request", "second"), ("says", "b"), ("request", "third")])
    bounds = rules(10**6, history=1)
    view = fit(state, bounds, bounds.models[0])
    assert isinstance(view, View)
    assert [m.role for m in sent(state.messages, view)] == ["user", "user"]
    assert sent(state.messages, view)[-1] == user("third")


def test_the_last_results_stay_whole_where_that_was_chosen():
    state = told([("calls", [3_000])] * 4)
    bounds = rules(10**6, results=2)
    view = fit(state, bounds, bounds.models[0])
    assert isinstance(view, View)
    sizes = [
        len(p.result)
        for m in sent(state.messages, view)
        for p in m.parts
        if isinstance(p, ResultPart)
    ]
    assert sizes[2:] == [3_000, 3_000]
    assert all(size < 400 for size in sizes[:2])


def test_what_came_before_a_request_is_condensed_where_a_summary_was_chosen():
    state = told([("says", "a" * 900), ("request", "second")])
    bounds = rules(10**6, history="summary")
    event = fit(state, bounds, bounds.models[0])
    assert isinstance(event, ev.ContextCompacted)
    assert (event.start, event.by) == (2, "rule")
    after = seen(state, event)
    assert isinstance(fit(after, bounds, bounds.models[0]), View)
    assert messages_of(after)[-1] == user("second")
