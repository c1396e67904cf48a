"""Many long runs driven by plain chance: what Hypothesis does in depth, this does in breadth."""

import os
from random import Random
from typing import Any

import pytest
from tests.core import world
from tests.core.play import DAY, SECOND, raw
from tests.core.world import NAMES, RETRIABLE, World, statuses

from cairn.core import commands as cmd
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.limits import Usage
from cairn.core.messages import Text
from cairn.core.outcomes import Called, Fault, Reply
from cairn.core.state import wake_at
from cairn.errors import ErrorClass

SEEDS = int(os.environ.get("CAIRN_CORE_SEEDS", "60"))
STEPS = 150
TEXTS = ("Done.", "All is bad.", "See [s1] and [s2].", " ", "")
ARGUMENTS = ('{"a":1,"question":"?"}', '{"a":2,"question":"?"}', '{"a":1}', "", "[1]", '{"a":')


class Chance:
    """All that is left to chance, from one seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        pick = self.random.randrange
        self.world: World = world.begin(
            models=pick(3),
            policy=pick(5),
            ladder=pick(3),
            setting=pick(5),
            checks=pick(3),
            repairs=pick(1, 4),
            bounds=pick(len(world.LIMITS)),
        )

    def reply(self) -> Reply | Fault:
        chance = self.random
        usage = Usage(input_tokens=chance.randrange(900), output_tokens=chance.randrange(400))
        dice = chance.random()
        if dice < 0.08:
            return Fault(error_class=chance.choice(list(ErrorClass)), message="no")
        if dice < 0.2:
            return Reply(parts=(Text(chance.choice(TEXTS)),), usage=usage)
        weights = (12, 9, 2, 1, 1, 1)
        calls = tuple(
            Called(
                name=chance.choice((*NAMES, "find_")),
                arguments=chance.choices(ARGUMENTS, weights)[0],
            )
            for _ in range(chance.choice((1, 1, 2, 3, 6)))
        )
        finish = "length" if dice > 0.98 else "tool_calls"
        return Reply(parts=(Text("I look."),), calls=calls, finish=finish, usage=usage)

    def landing(self) -> tuple[str, Any]:
        chance = self.random
        dice = chance.random()
        if dice < 0.55:
            return "returned", chance.choice((True, "same", chance.randrange(99)))
        if dice < 0.75:
            return "vanished", chance.choice(("timeout", "unsure"))
        if dice < 0.8:
            return "not done", ErrorClass.TOOL_UNAVAILABLE
        common = (ErrorClass.TOOL_ERROR, ErrorClass.TOOL_TIMEOUT, ErrorClass.TOOL_UNAVAILABLE)
        return "raised", chance.choice((*common, *common, *common, *ErrorClass))

    def command(self) -> cmd.Command:
        chance = self.random
        n, call = chance.randrange(8), f"c{chance.randrange(30)}"
        verdict: Any = chance.choice(("happened", "not_happened", "given_up"))
        return chance.choice(
            (
                cmd.Approve(n=n),
                cmd.Deny(n=n, message="no"),
                cmd.Answer(n=n, text="yes"),
                cmd.Queue(parts=(Text("and hurry"),)),
                cmd.Resolve(call=call, verdict=verdict),
                cmd.Pause(),
                cmd.Late(call=call, ok=chance.random() < 0.5, result=raw("late")),
                cmd.Cancel() if chance.random() < 0.2 else cmd.Resume(),
            )
        )

    def step(self) -> None:
        chance, here = self.random, self.world
        play, dice = here.play, chance.random()
        doubt = CallStatus.TAKEOVER in statuses(play.state)
        if play.state.status in RETRIABLE and dice < 0.5:
            here.retry()
        elif play.state.paused and dice < 0.4:
            here.submit(cmd.Resume())
        elif here.flights and dice < 0.12:
            here.land(chance.choice(here.flights), self.landing(), self.reply())
        elif play.state.in_flight and dice < 0.18:
            here.crash(gone=chance.random() < 0.5)
        elif here.ghosts and dice < 0.21:
            late = cmd.Late(call=here.ghosts.pop(), ok=chance.random() < 0.5, result=raw("late"))
            here.submit(late)
        elif dice < 0.27:
            here.submit(self.command())
        elif play.state.requests and dice < 0.37:
            here.decide_newest(yes=chance.random() < 0.7)
        elif doubt and dice < 0.45:
            here.settle_doubt(chance.choice(("happened", "not_happened", "not_happened")))
        elif dice < 0.5 and wake_at(play.state) > play.now:
            play.now = wake_at(play.state) - chance.choice((0, 0, 1))
        elif dice < 0.54:
            play.now += chance.choice((1, SECOND, 40 * SECOND, 100 * SECOND, DAY))
        else:
            here.act(self.landing(), self.reply())


@pytest.mark.parametrize("seed", range(SEEDS))
def test_a_long_run_of_this_seed_keeps_every_law(seed: int) -> None:
    chance = Chance(seed)
    for _ in range(STEPS):
        if chance.world.play.state.status is Status.COMPLETED:
            break
        chance.step()
    chance.world.verify()
