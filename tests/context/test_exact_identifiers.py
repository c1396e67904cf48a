"""What is of no use unless it is exact outlives a compaction by rule, in small summaries too."""

from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cairn.core import events as ev
from cairn.core.gist import MARKS_KEPT, marks_in
from cairn.core.limits import estimate_tokens
from cairn.core.messages import CallPart, Message, ResultPart, Text, user
from cairn.core.state import RunState, add_message, add_request
from cairn.core.summaries import SECTIONS, by_rule

SHA256 = "9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08"
KINDS: dict[str, Callable[[int], str]] = {
    "order": lambda n: f"AB-{4_000 + n}",
    "number": lambda n: f"{70_000 + n}",
    "path": lambda n: f"/srv/data/part{n}/list.csv",
    "chinese path": lambda n: f"/数据/第{n}组/报告.txt",
    "mixed path": lambda n: f"/data/用户{n}/报告.md",
    "hash": lambda n: f"{n:08x}{SHA256[8:]}",
    "short hash": lambda n: f"{n + 1}e83f0c",
    "address": lambda n: f"https://shop.example/orders/{n}?view=full",
    "mail": lambda n: f"ann.{n}@mail.example.org",
}
SAID = (
    "Please look at {} before you go on.",
    "请先查看{}，然后再继续处理。",
    "订单{}。",
    "注文は{}です、よろしく。",
    "({}) and nothing else",
)
FILLERS = ("Go on with it, as before.", "请继续。" * 30, "word " * 200)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("said", SAID)
def test_an_identifier_is_found_as_it_was_written_in_any_script(kind: str, said: str) -> None:
    exact = KINDS[kind](17)
    assert exact in marks_in(said.format(exact))


def test_a_sentence_around_an_identifier_is_no_part_of_it() -> None:
    text = (
        "请看/数据/报告.txt文件和/srv/app/log.txt，见https://a.example/b?c=1。然后给~/项目/说明.md"
    )
    found = ["/数据/报告.txt", "/srv/app/log.txt", "https://a.example/b?c=1", "~/项目/说明.md"]
    assert marks_in(text) == found
    assert marks_in("客户和/或供应商签字") == []
    assert marks_in("(see https://a.example/wiki/北京_(2008))!") == [
        "https://a.example/wiki/北京_(2008)"
    ]


@st.composite
def histories(draw: Any) -> tuple[RunState, list[str]]:
    """A run with identifiers in what was asked and called, and the identifiers, the last last."""
    named: list[str] = []
    state = RunState(run="r", created=ev.RunCreated(agent="a", input=(), digest=""))
    lines = draw(
        st.lists(
            st.tuples(
                st.sampled_from(["asked", "called", "said", "filler"]),
                st.sampled_from(sorted(KINDS)),
                st.integers(0, 400),
                st.sampled_from(SAID),
            ),
            max_size=40,
        )
    )
    state = add_request(state, user("The first request."))
    for at, (what, kind, n, said) in enumerate(lines, 1):
        exact = KINDS[kind](n)
        if what == "asked":
            state = add_request(state, user(said.format(exact)))
        elif what == "called":
            arguments = msgspec.json.encode({"about": exact}).decode()
            made = CallPart(id=f"c{at}", name="look", arguments=arguments)
            state = add_message(state, Message(role="assistant", parts=(made,)))
            result = ResultPart(id=f"c{at}", result="found " * draw(st.integers(1, 400)))
            state = add_message(state, Message(role="tool", parts=(result,)))
        elif what == "said":
            state = add_message(state, Message(role="assistant", parts=(Text("It is so. " * 40),)))
        else:
            state = add_request(state, user(FILLERS[n % len(FILLERS)]))
        if what in {"asked", "called"}:
            named.append(exact)
    return state, list(dict.fromkeys(reversed(named)))[::-1]


@given(history=histories(), tokens=st.sampled_from([50, 80, 120, 200, 400, 2_000]))
def test_no_identifier_is_given_up_while_anything_else_is_kept(
    history: tuple[RunState, list[str]], tokens: int
) -> None:
    state, named = history
    wanted = named[-MARKS_KEPT:]
    text = by_rule(state, len(state.messages), tokens)
    bare = "\n".join(f"## {name}\nNone" for name in SECTIONS[:-1])
    bare += f"\n## {SECTIONS[-1]}\n{' | '.join(wanted)}"
    missing = [exact for exact in wanted if exact not in text]
    if estimate_tokens(bare) <= tokens:
        assert missing == []
    assert [line[3:] for line in text.splitlines() if line.startswith("## ")] == [*SECTIONS]
    kept = text.rpartition("\n")[2]
    if missing:
        assert "first request" not in text, "what is left out gave way to something else"
        shortest = min(missing, key=estimate_tokens)
        fuller = f"{text.removesuffix('None')} | {shortest}"
        assert kept == "None" or estimate_tokens(fuller) > tokens, "there was room for more"
    assert estimate_tokens(text) <= tokens or kept == "None"


def test_what_only_results_and_the_agent_have_named_is_kept_as_long_as_there_is_room() -> None:
    state = add_request(RunState(run="r"), user("Find the parcel of order AB-4711."))
    made = CallPart(id="c1", name="look")
    state = add_message(state, Message(role="assistant", parts=(made,)))
    result = ResultPart(id="c1", result="word " * 100 + "parcel 00340434161094 " + "word " * 300)
    state = add_message(state, Message(role="tool", parts=(result,)))
    said = Text("It is in hall B-17-04. " + "And so on. " * 100)
    state = add_message(state, Message(role="assistant", parts=(said,)))
    ample = by_rule(state, len(state.messages), 600).rpartition("\n")[2]
    assert ample == "00340434161094 | B-17-04 | AB-4711"
    tiny = by_rule(state, len(state.messages), 50).rpartition("\n")[2]
    assert tiny == "AB-4711"
