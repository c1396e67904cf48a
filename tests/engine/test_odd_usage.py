"""A model of one's own that counts nonsense makes nothing cheaper, and no counter falls."""

import pytest

from cairn import Agent, Limits, ModelError, Price, Runtime, Usage
from cairn.core import events as ev
from cairn.core.messages import Text
from cairn.errors import ErrorClass
from cairn.ports import ModelReply

ODD = {
    "negative input": Usage(input_tokens=-1_000_000, output_tokens=5),
    "negative output": Usage(output_tokens=-1),
    "negative cached": Usage(input_tokens=10, cached_tokens=-10),
    "negative reasoning": Usage(output_tokens=10, reasoning_tokens=-3),
    "negative cost": Usage(input_tokens=1, micro_usd=-5_000_000),
    "half a token": Usage(input_tokens=0.5),
    "no number": Usage(input_tokens=float("nan")),
    "more than there can be": Usage(input_tokens=2**70),
    "words": "a lot",
}


class Own:
    """The least a model is; says what the test wants it to have used."""

    name = "own"
    window = 100_000
    max_output = 1_000
    price = Price(input=1_000_000, output=1_000_000)

    def __init__(self, usage, fails=False):
        self.usage = usage
        self.fails = fails

    async def request(self, request, on_delta=None):
        if self.fails:
            raise ModelError(ErrorClass.AUTH, "it broke", usage=self.usage)
        return ModelReply(parts=(Text(content="Done."),), usage=self.usage)


def outcome(model, **more):
    with Runtime(":memory:", [Agent("a", model)]) as rt:
        run = rt.run("a", "go", id="r", **more)
        entries = rt.trace("r")
    (reserved,) = [e.event.reserved for e in entries if isinstance(e.event, ev.ModelRequested)]
    kinds = ev.ModelCompleted | ev.ModelFailed
    (ended,) = [e.event for e in entries if isinstance(e.event, kinds)]
    return run, reserved, ended


@pytest.mark.parametrize("usage", ODD.values(), ids=list(ODD))
def test_a_reply_whose_usage_cannot_be_is_charged_at_its_reservation(usage):
    run, reserved, ended = outcome(Own(usage))
    assert run.status == "completed"
    assert not ended.measured
    assert ended.usage.input_tokens == reserved.input_tokens > 0
    assert ended.usage.output_tokens == reserved.output_tokens > 0
    assert ended.usage.micro_usd == reserved.micro_usd > 0
    assert run.usage.micro_usd == reserved.micro_usd


@pytest.mark.parametrize("usage", ODD.values(), ids=list(ODD))
def test_so_is_a_fault_whose_usage_cannot_be(usage):
    run, reserved, ended = outcome(Own(usage, fails=True))
    assert run.status == "failed"
    assert ended.usage.tokens == reserved.tokens > 0
    assert run.usage.tokens == reserved.tokens


def test_usage_that_can_be_is_taken_as_it_is_said():
    run, _, ended = outcome(Own(Usage(input_tokens=7, output_tokens=3)))
    assert ended.measured
    assert (run.usage.input_tokens, run.usage.output_tokens) == (7, 3)


def test_a_limit_cannot_be_held_off_by_negative_usage():
    run, reserved, _ = outcome(Own(Usage(input_tokens=-5_000)), limits=Limits(tokens=100_000))
    assert 0 < run.usage.tokens <= reserved.tokens
