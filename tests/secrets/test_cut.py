"""A secret is taken out before a text is cut, so no cut leaves a part of it."""

from typing import Annotated

import pytest
from pydantic import Field

from cairn import Agent, Context, Runtime, Scripted, Secrets, Text, call, tool
from cairn.errors import ToolError

VALUE = "Zq7-live.8fJx2LmPw04Tb"


@pytest.mark.parametrize("before", range(1_975, 2_001, 5))
def test_no_part_of_a_secret_is_left_where_an_errors_words_are_cut(before):
    @tool(effect="read", secrets=("stripe",))
    def charge(ctx: Context) -> str:
        """Charge."""
        raise ToolError("x" * before + ctx.secret("stripe"))

    told = []

    async def answer(request):
        told.append(str(request.messages))
        return "Done."

    agent = Agent("a", Scripted([call("charge"), answer]), tools=[charge])
    with Runtime(":memory:", [agent], secrets=Secrets({"stripe": VALUE})) as rt:
        rt.run("a", "go", id="r")
        journal = str(rt.trace("r"))
    assert "xxx" in told[0]
    for text in (journal, told[0]):
        assert VALUE[:6] not in text


def test_what_does_not_fit_with_the_secret_put_back_is_not_quoted():
    @tool(effect="read", secrets=("stripe",))
    def charge(key: Annotated[str, Field(pattern=r"^(\[\[secret:.*|never)$")]) -> str:
        """Charge."""
        return key

    async def ask(request):
        (said,) = [p.content for m in request.messages for p in m.parts if isinstance(p, Text)]
        return [call("charge", key=said)]

    agent = Agent("a", Scripted([ask, "Done."]), tools=[charge])
    with Runtime(":memory:", [agent], secrets=Secrets({"stripe": VALUE})) as rt:
        run = rt.run("a", VALUE, id="r")
        journal = str(rt.trace("r"))
    assert run.status == "completed"
    assert "with the secret put back" in journal
    assert VALUE[:6] not in journal
