"""A second yes that was shown something else is no repetition of the first."""

import pytest
from tests.core.play import Play, rules_of, tool

from cairn.core import commands as cmd
from cairn.core.policy import Policy
from cairn.errors import Refused


def test_the_same_yes_with_another_digest_is_refused():
    play = Play(rules_of(tool("mail", "write"), policy=Policy()))
    play.calls("mail")
    digest = play.state.calls["c1"].digest
    play.submit(cmd.Approve(n=1, digest=digest))
    assert cmd.accept(play.state, cmd.Approve(n=1, digest=digest), play.now) is None
    with pytest.raises(Refused):
        cmd.accept(play.state, cmd.Approve(n=1, digest="0000"), play.now)
