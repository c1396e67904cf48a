"""A request whose use nobody knows is charged at its reservation: no limit can be dodged."""

import pytest
from tests.core.play import Play, raw, rules_of, tool

from cairn.core.commands import Resolve
from cairn.core.limits import Usage
from cairn.core.outcomes import Fault, lost_model, model_outcome
from cairn.errors import ErrorClass

RULES = rules_of()


def charged(error_class: ErrorClass) -> tuple[Usage, Usage]:
    """What such an end is charged, and what was reserved."""
    play = Play(RULES)
    play.ask()
    fault = Fault(error_class=error_class, message="no reply")
    event = model_outcome(play.state, RULES, fault, play.state.at, 5, 0.5)
    reserved = play.state.request.reserved
    whole = Usage(
        input_tokens=reserved.input_tokens,
        output_tokens=reserved.output_tokens,
        micro_usd=reserved.micro_usd,
    )
    assert lost_model(play.state, RULES).usage == whole
    return event.usage, whole


@pytest.mark.parametrize(
    "error_class",
    [ErrorClass.TIMEOUT, ErrorClass.STREAM_INTERRUPTED, ErrorClass.CANCELLED],
)
def test_an_end_that_says_nothing_of_its_use_is_charged_whole(error_class):
    usage, whole = charged(error_class)
    assert usage == whole
    assert usage.tokens > 0


@pytest.mark.parametrize(
    "error_class", [ErrorClass.RATE_LIMITED, ErrorClass.AUTH, ErrorClass.OVERLOADED]
)
def test_a_request_that_was_refused_costs_nothing(error_class):
    assert charged(error_class)[0] == Usage()


def test_a_priced_call_that_may_have_happened_is_charged_once():
    """B42 for tools: nobody knows, so it counts; a verdict afterwards adds nothing."""
    rules = rules_of(tool("buy", "write", micro_usd=700), tool("free", "write"))
    for name, cost in (("buy", 700), ("free", 0)):
        play = Play(rules)
        play.calls((name, {}))
        play.vanishes("c1")
        assert play.state.usage.micro_usd == cost
        play.submit(Resolve(call="c1", verdict="happened", result=raw("bought")))
        assert play.state.usage.micro_usd == cost
