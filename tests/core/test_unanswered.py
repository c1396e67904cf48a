"""A request whose use nobody knows is charged at its reservation: no limit can be dodged."""

import pytest
from tests.core.play import Play, rules_of

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
