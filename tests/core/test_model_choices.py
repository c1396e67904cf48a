"""What a request asks of a model, what is kept of its reply, and what nobody measured."""

import pytest
from tests.core.play import Play, rules_of, tool

from cairn.core import events as ev
from cairn.core.codec import decode, encode
from cairn.core.context import faults
from cairn.core.limits import Price, Usage
from cairn.core.messages import Blob, CallPart, Message, Reasoning, Text, Uri
from cairn.core.outcomes import Called, Reply
from cairn.core.rules import ModelSpec
from cairn.core.sizes import IMAGE_TOKENS, tokens_of
from cairn.core.views.words import words
from cairn.errors import ErrorClass

PLAIN = ModelSpec(name="plain", takes_tools=False)
ABLE = ModelSpec(name="able")
PRICED = ModelSpec(name="priced", price=Price(input=1_000_000, output=2_000_000, version="v7"))


def with_tools(*models: ModelSpec, **fields):
    return rules_of(tool("find"), tool("mail", "write"), models=models, offered="h1", **fields)


# ---------------------------------------------------------------- tool choice and output mode


def test_a_model_without_tools_is_asked_for_one_json_action():
    assert Play(with_tools(PLAIN)).settle().output_mode == "action"
    assert Play(with_tools(ABLE)).settle().output_mode == "text"


def test_where_no_tools_are_offered_no_action_is_asked_for():
    assert Play(rules_of(models=(PLAIN,))).settle().output_mode == "text"
    assert Play(rules_of(models=(PLAIN,), output_mode="schema")).settle().output_mode == "schema"


def test_each_fallback_is_asked_in_the_way_it_can_answer():
    play = Play(with_tools(ABLE, PLAIN, output_mode="schema"))
    assert play.settle().output_mode == "schema"
    play.fails(ErrorClass.AUTH)
    action = play.settle()
    assert (action.model, action.output_mode) == ("plain", "action")


@pytest.mark.parametrize("choice", ["required", "none", "find"])
def test_a_tool_choice_holds_until_the_first_call_so_that_the_run_can_end(choice):
    play = Play(with_tools(ABLE, tool_choice=choice))
    assert play.settle().tool_choice == choice
    play.calls(("find", {"q": 1}))
    play.returns("c1")
    assert play.settle().tool_choice == "auto"


def test_a_query_is_never_told_to_call_a_tool_that_writes():
    play = Play(with_tools(ABLE, tool_choice="mail"), kind="query")
    assert play.settle().tool_choice == "auto"


def test_without_tools_there_is_nothing_to_choose():
    assert Play(rules_of(models=(ABLE,), tool_choice="required")).settle().tool_choice == "auto"


# ---------------------------------------------------------------- what nobody measured


def test_a_whole_reply_without_usage_is_charged_at_its_reservation_and_marked():
    """B42: missing usage is unknown, not zero."""
    play = Play(rules_of(models=(PRICED,)))
    play.ask()
    reserved = play.state.request.reserved
    event = play.outcome(Reply(parts=(Text("Done."),), usage=None))
    assert not event.measured
    assert event.usage.tokens == reserved.tokens
    assert event.usage.micro_usd == reserved.micro_usd > 0
    assert play.state.usage.micro_usd == reserved.micro_usd


def test_a_reply_that_says_it_used_nothing_is_believed():
    play = Play(rules_of(models=(PRICED,)))
    event = play.says("Done.", usage=Usage())
    assert event.measured
    assert event.usage == Usage()


def test_an_unusable_reply_without_usage_is_charged_too():
    play = Play(rules_of(models=(PRICED,)))
    event = play.says("", usage=None)
    assert event.error_class is ErrorClass.EMPTY_OUTPUT
    assert event.usage.micro_usd > 0


def test_the_journal_names_the_model_that_answered_only_when_it_is_another():
    for name, written in (("able", ""), ("able-2026-11-30", "able-2026-11-30")):
        event = Play(rules_of(models=(ABLE,))).says("Done.", model=name)
        assert event.model == written


def test_the_version_of_the_price_stands_in_the_journal():
    event = Play(rules_of(models=(PRICED,))).says("Done.", usage=Usage(input_tokens=3))
    assert (event.price, event.usage.micro_usd) == ("v7", 3)


# ---------------------------------------------------------------- what a provider wants back


def test_what_a_provider_wants_back_is_kept_with_each_part_and_in_its_order():
    play = Play(with_tools(ABLE))
    play.ask()
    play.outcome(
        Reply(
            parts=(Reasoning(content="a", opaque="o1"), Reasoning(content="b", opaque="o2")),
            calls=(
                Called(name="find", opaque="o3", place=1),
                Called(name="find", arguments='{"q":1}', opaque="o4", place=2),
            ),
        )
    )
    parts = play.state.messages[-1].parts
    assert [p.opaque for p in parts] == ["o1", "o3", "o2", "o4"]
    assert [p.id for p in parts if isinstance(p, CallPart)] == ["c1", "c2"]


@pytest.mark.parametrize(
    ("places", "order"),
    [
        ((-1, -1), "xy12"),
        ((0, 0), "12xy"),
        ((1, 1), "x12y"),
        ((0, 2), "1xy2"),
        ((2, 0), "xy12"),  # a place before an earlier call's would swap them
        ((9, 9), "xy12"),
    ],
)
def test_calls_stand_where_the_model_wrote_them_and_never_overtake_each_other(places, order):
    play = Play(with_tools(ABLE))
    play.ask()
    calls = tuple(
        Called(name="find", arguments=f'{{"q":{n}}}', place=place)
        for n, place in enumerate(places, 1)
    )
    play.outcome(Reply(parts=(Text("x"), Text("y")), calls=calls))
    parts = play.state.messages[-1].parts
    assert "".join(p.id[1:] if isinstance(p, CallPart) else p.content for p in parts) == order


# ---------------------------------------------------------------- files


def test_files_and_addresses_count_in_the_estimate_and_pass_the_codec():
    image = Blob(mime_type="image/png", content=b"\x89PNG\0\xff", name="a.png")
    pages = Blob(mime_type="application/pdf", content=b"x" * 40_000)
    address = Uri(uri="https://example.org/a.png")
    for part, least in ((image, IMAGE_TOKENS), (pages, 10_000), (address, IMAGE_TOKENS)):
        message = Message(role="user", parts=(Text("What is it?"), part))
        assert tokens_of(message) >= least
        assert faults([message]) == []
    event = ev.RunCreated(agent="a", digest="d", input=(image, address))
    assert decode(event.TYPE, event.V, encode(event)) == event


# ---------------------------------------------------------------- how long is waited


def test_a_long_wait_is_not_waited_for_while_another_model_could_answer():
    play = Play(with_tools(ABLE, PRICED))
    event = play.fails(ErrorClass.RATE_LIMITED, retry_after_us=61_000_000, status=429)
    assert event.disposition == "switch"
    assert (event.status, event.asked_us) == (429, 61_000_000)
    assert play.settle().model == "priced"


def test_a_short_wait_is_kept_and_so_is_a_long_one_where_nobody_else_could_answer():
    short = Play(with_tools(ABLE, PRICED)).fails(ErrorClass.RATE_LIMITED, retry_after_us=5_000_000)
    assert short.disposition == "retry"
    alone = Play(with_tools(ABLE))
    event = alone.fails(ErrorClass.RATE_LIMITED, retry_after_us=61_000_000)
    assert event.disposition == "retry"
    assert event.retry_at - alone.now >= 61_000_000


def test_a_failure_says_whether_its_use_was_measured():
    play = Play(rules_of(models=(PRICED,)))
    assert not play.fails(ErrorClass.TIMEOUT).measured
    play = Play(rules_of(models=(PRICED,)))
    assert play.fails(ErrorClass.RATE_LIMITED).measured
    play = Play(rules_of(models=(PRICED,)))
    known = play.fails(ErrorClass.MALFORMED_OUTPUT, usage=Usage(input_tokens=7))
    assert known.measured
    assert known.usage.micro_usd == 7


def test_what_a_failure_says_for_people_names_status_wish_and_guess():
    play = Play(rules_of(models=(PRICED,)))
    refused = play.fails(ErrorClass.RATE_LIMITED, retry_after_us=2_000_000, status=429)
    told = words(refused)
    assert "HTTP 429" in told
    assert "the provider asked for 2.0 s" in told
    assert "failed after" in told
    play = Play(rules_of(models=(PRICED,)))
    assert "use unknown, charged at its reservation" in words(play.fails(ErrorClass.TIMEOUT))
