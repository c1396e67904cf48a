"""Promises of a model about replies: all of what was said, in its order, and nothing else."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio
import json
from typing import Any

import msgspec

from cairn.core.limits import Price, Usage
from cairn.core.messages import CallPart, Message, ResultPart, Text, user
from cairn.core.outcomes import CUT, REFUSED
from cairn.errors import ErrorClass
from cairn.ports import Model, ReplyCall
from cairn.testing.model_promises import (
    FIND,
    TALLY,
    Far,
    ModelPromises,
    Says,
    ask,
    refused,
    text_of,
)

WORDS = "Zwei Tassen\n\n  <b>Tee</b> 🫖 – 茶 \\u00e9 \t."
ODD = '{ "q" :\t"näive 茶"  ,\n "n":1.0 }'
BROKEN = '{"q": "te'
LONG = 300_000
"""Characters of a long prompt."""
CROWD = 20


class ReplyPromises(ModelPromises):
    """Words, calls, usage, and what is known of the model beforehand."""

    def test_it_says_who_it_is_what_it_costs_and_how_much_it_takes(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            assert model.name == model.name.strip() != ""
            assert model.price is None or isinstance(model.price, Price)
            assert 0 < model.max_output <= model.window
            assert far.heard == []

        self.keep(promise)

    def test_the_words_come_back_as_they_were_said(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            for mark, words in (("a", WORDS), ("b", "No."), ("c", "word " * 2_000)):
                reply = await model.request(ask(mark))
                assert (text_of(reply), reply.calls, reply.finish) == (words, (), "stop")
            assert [mark for mark, _ in far.heard] == ["a", "b", "c"]

        self.keep(promise, a=Says(text=WORDS), b=Says(text="No."), c=Says(text="word " * 2_000))

    def test_the_deltas_joined_are_the_words_and_listening_changes_nothing(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            deltas: list[str] = []
            heard = await model.request(ask("a"), deltas.append)
            alone = await model.request(ask("a"))
            assert text_of(heard) == text_of(alone) == WORDS
            assert "".join(deltas) in {WORDS, ""}  # a model that does not stream shows nothing

        self.keep(promise, a=Says(text=WORDS))

    def test_a_request_arrives_whole_however_long_or_strange_it_is(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            for words in (WORDS, "x" * LONG, " ", "", '"}]\\', "\u2028 \x7f"):
                reply = await model.request(ask("a", words, system=""))
                assert text_of(reply) == "Fine."
            texts = far.texts("a")
            assert "x" * LONG in texts[1]
            assert len(texts) == 6

        self.keep(promise, a=Says(text="Fine."))

    # ------------------------------------------------------------ calls

    def test_calls_come_back_in_order_with_their_ids_and_their_arguments(self) -> None:
        said = (
            ReplyCall(name="find", arguments=ODD, id="id_1"),
            ReplyCall(name="find", arguments="{}", id="id_2"),
        )

        async def promise(model: Model, far: Far) -> None:
            reply = await model.request(ask("a", tools=(FIND,)))
            assert reply.finish in {"tool_calls", "stop"}
            assert [call.name for call in reply.calls] == ["find", "find"]
            assert len({call.id for call in reply.calls}) == 2
            for got, due in zip(reply.calls, said, strict=True):
                assert json.loads(got.arguments) == json.loads(due.arguments)
                if self.exact_arguments:
                    assert (got.arguments, got.id) == (due.arguments, due.id)

        self.keep(promise, a=Says(calls=said))

    def test_arguments_that_are_no_json_are_handed_on_or_refused_and_never_mended(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            if self.exact_arguments:
                [call] = (await model.request(ask("a", tools=(FIND,)))).calls
                assert call.arguments == BROKEN
            assert far.times("a") == int(self.exact_arguments)

        broken = ReplyCall(name="find", arguments=BROKEN, id="id_1")
        self.keep(promise, a=Says(calls=(broken,)))

    def test_a_conversation_with_calls_and_results_is_told_in_full(self) -> None:
        messages = (
            user("What is there?"),
            Message(
                role="assistant",
                parts=(Text("I look."), CallPart(id="c1", name="find", arguments='{"q":"first"}')),
            ),
            Message(role="tool", parts=(ResultPart(id="c1", result="second"),)),
            user("And now? mark-a-"),
        )

        async def promise(model: Model, far: Far) -> None:
            reply = await model.request(ask("a", messages=messages, tools=(FIND,)))
            assert text_of(reply) == "Nothing."
            [text] = far.texts("a")
            assert text.index("I look.") < text.index("first") < text.index("second")

        self.keep(promise, a=Says(text="Nothing."))

    def test_the_other_side_is_told_whether_it_may_call(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            tools = (FIND, msgspec.structs.replace(FIND, name="keep"))
            for choice in ("auto", "none", "required", "find"):
                await model.request(ask("a", tools=tools, tool_choice=choice))
            if self.tells_choice:
                assert len(set(far.texts("a"))) == 4

        self.keep(promise, a=Says(text="Fine."))

    def test_an_action_becomes_a_call_or_the_answer_and_prose_is_refused(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            if not self.acts:
                return
            act: dict[str, Any] = {"tools": (FIND,), "output_mode": "action"}
            [call] = (await model.request(ask("a", **act))).calls
            assert (call.name, json.loads(call.arguments)) == ("find", {"q": "tea"})
            reply = await model.request(ask("b", **act))
            assert (text_of(reply), reply.calls) == ("Tea.", ())
            error = await refused(model, ask("c", **act))
            assert error.error_class is ErrorClass.MALFORMED_OUTPUT

        self.keep(
            promise,
            a=Says(text='{"tool": "find", "arguments": {"q": "tea"}}'),
            b=Says(text='{"answer": "Tea."}'),
            c=Says(text="I would look for tea."),
        )

    # ------------------------------------------------------------ the end of it

    def test_a_reply_that_was_cut_by_its_limit_or_refused_says_so(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            assert (await model.request(ask("a"))).finish in CUT
            assert (await model.request(ask("b"))).finish in REFUSED

        self.keep(
            promise,
            a=Says(text="And so", finish="length"),
            b=Says(text="I", finish="content_filter"),
        )

    def test_what_it_used_is_in_buckets_that_share_nothing_or_unknown(self) -> None:
        spent = Usage(input_tokens=60, cached_tokens=40, output_tokens=7, reasoning_tokens=5)

        async def promise(model: Model, far: Far) -> None:
            plain = (await model.request(ask("a"))).usage
            assert plain == TALLY
            usage = (await model.request(ask("b"))).usage
            assert usage is not None
            assert min(getattr(usage, name) for name in Usage.__struct_fields__) >= 0
            assert usage.tokens == spent.tokens
            assert usage.input_tokens + usage.cached_tokens == 100
            if self.says_usage:
                assert (await model.request(ask("c"))).usage is None

        self.keep(
            promise,
            a=Says(text="Fine."),
            b=Says(text="Fine.", usage=spent),
            c=Says(text="Fine.", usage=None),
        )

    # ------------------------------------------------------------ many at once, and again

    def test_requests_at_the_same_time_do_not_mix(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            deltas: dict[str, list[str]] = {f"n{n}": [] for n in range(CROWD)}
            replies = await asyncio.gather(
                *(model.request(ask(mark), shown.append) for mark, shown in deltas.items())
            )
            for (mark, shown), reply in zip(deltas.items(), replies, strict=True):
                assert text_of(reply) == f"I am {mark}. " * 20
                assert "".join(shown) in {text_of(reply), ""}
            assert sorted(mark for mark, _ in far.heard) == sorted(deltas)

        self.keep(promise, **{f"n{n}": Says(text=f"I am n{n}. " * 20) for n in range(CROWD)})

    def test_it_keeps_nothing_between_requests(self) -> None:
        async def promise(model: Model, far: Far) -> None:
            first = await model.request(ask("a"))
            await model.request(ask("b", tools=(FIND,)))
            await refused(model, ask("c"))
            again = await model.request(ask("a"))
            assert (text_of(first), first.usage) == (text_of(again), again.usage)
            before, after = far.texts("a")
            assert before == after
            assert far.texts("b")[0] not in before

        self.keep(
            promise,
            a=Says(text="Fine."),
            b=Says(calls=(ReplyCall(name="find", arguments='{"q":"tea"}', id="id_1"),)),
            c=Says(fault=ErrorClass.INVALID_REQUEST),
        )
