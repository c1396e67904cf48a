"""Whatever hooks say and people decide: all that runs was allowed, or asked about as it ran."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from tests.hooks.kit import Shop

from cairn import Deny, Policy, Refused, Rewrite, before_tool, call
from cairn.core import events as ev
from cairn.core.messages import calls_of
from cairn.core.policy import Rule
from cairn.core.policy.predicates import Equals, Range
from cairn.testing.invariants import check

SMALL = Rule(name="small", decide="allow", tools=("pay",), arguments={"cents": Range(max=10)})
BOB = Rule(name="bob", decide="deny", tools=("pay",), arguments={"to": Equals(value="bob")})
POLICY = Policy(effects={"write": "ask"}, rules=(BOB, SMALL))


def verdict(arguments: dict[str, Any]) -> str:
    """What the policy says of a payment, told here a second time."""
    if arguments.get("to", "ann") == "bob":
        return "deny"
    return "allow" if arguments.get("cents", 5) <= 10 else "ask"


def boom(call: Any) -> None:
    raise ValueError("boom")


WORDS: dict[str, Callable[[Any], Any]] = {
    "nothing": lambda call: None,
    "small": lambda call: Rewrite({**call.arguments, "cents": 1}),
    "more": lambda call: Rewrite({**call.arguments, "cents": call.arguments["cents"] + 7}),
    "bob": lambda call: Rewrite({**call.arguments, "to": "bob"}),
    "ann": lambda call: Rewrite({**call.arguments, "to": "ann"}),
    "no": lambda call: Deny("no"),
    "no to large": lambda call: Deny("no") if call.arguments["cents"] > 15 else None,
    "boom": boom,
    "nonsense": lambda call: 7,
}
PEOPLE = ("yes", "no", "yes to 3", "yes to 30", "edit to 4", "edit to 40")

payments = st.tuples(st.integers(0, 20), st.sampled_from(["ann", "bob"]))
some = st.lists(payments, min_size=1, max_size=3)
words = st.lists(st.tuples(st.sampled_from(sorted(WORDS)), st.booleans()), max_size=3)


@given(calls=some, before=words, after=words, people=st.lists(st.sampled_from(PEOPLE), max_size=6))
def test_nothing_runs_that_was_not_allowed_or_asked_about_as_it_ran(
    calls: list[tuple[int, str]],
    before: list[tuple[str, bool]],
    after: list[tuple[str, bool]],
    people: list[str],
) -> None:
    """Each decision is made in a process of its own; at first `before` are the hooks there."""

    def hooks(chosen: list[tuple[str, bool]]) -> list[Any]:
        return [
            before_tool(name=f"h{n}", on_error="ignore" if ignored else "deny")(WORDS[word])
            for n, (word, ignored) in enumerate(chosen)
        ]

    async def main() -> tuple[Shop, list[ev.Entry], Any]:
        shop = Shop()
        script = ([call("pay", cents=cents, to=to) for cents, to in calls], "done")
        async with shop.runtime(*script, hooks=hooks(before), policy=POLICY) as rt:
            run = await rt.run_async("a", "task", id="r")
        for word in [*people, *["no"] * 30]:
            if not run.pending:
                break
            async with shop.runtime(*script, hooks=hooks(after), policy=POLICY) as rt:
                await decide(rt, run.pending[0], word)
                run = await rt.drive_async("r")
                rules = rt.host.crew("a").rules
        async with shop.runtime(*script, policy=POLICY) as rt:
            rules = rt.host.crew("a").rules
        assert run.status == "completed", run
        entries = await shop.journals.beside().read("r")
        return shop, entries, rules

    shop, entries, rules = asyncio.run(main())
    assert check(entries, rules=rules) == []
    assert shop.paid == judged(entries)


async def decide(rt: Any, pending: Any, word: str) -> None:
    changed = {"cents": int(word.rsplit(maxsplit=1)[-1])} if " to " in word else {}
    if word == "no":
        await rt.deny_async(pending.id)
    elif word == "yes":
        await rt.approve_async(pending.id)
    elif word.startswith("yes to "):
        try:
            await rt.approve_async(pending.id, arguments=changed)
        except Refused:  # the policy would not take it like that
            await rt.deny_async(pending.id)
    else:
        await rt.edit_async("r", call=pending.call, arguments=changed)


def judged(entries: list[ev.Entry]) -> list[str]:
    """What was started, in order; each start is held against every form the call was left in.

    What a person gave it is theirs; what was asked about since then must have been said yes to.
    What one hook makes of a call for the next one to change is on no one's table: of hooks that
    change it one after the other, the form that the last one leaves counts.
    """
    now: dict[str, dict[str, Any]] = {}
    asks: dict[str, bool] = {}
    granted: dict[str, int] = {}
    of: dict[int, str] = {}
    paid: list[str] = []
    handed_on: dict[str, bool] = {}
    for entry in entries:
        if not isinstance(entry.event, ev.ToolEdited) or not entry.event.rule:
            handed_on.clear()
        match entry.event:
            case ev.ModelCompleted(parts=parts):
                for part in calls_of(parts):
                    now[part.id] = json.loads(part.arguments)
                    asks[part.id] = verdict(now[part.id]) == "ask"
            case ev.ToolEdited(call=name, arguments=arguments, rule=rule):
                now[name] = json.loads(arguments)
                granted.pop(name, None)
                changed = verdict(now[name]) == "ask"
                before = handed_on.setdefault(name, asks[name]) if rule else False
                asks[name] = before or changed
            case ev.ApprovalRequested(n=n, call=name):
                of[n] = name
            case ev.ApprovalGranted(n=n, arguments=arguments):
                granted[of[n]] = n
                if arguments:
                    now[of[n]] = json.loads(arguments)
                    asks[of[n]] = verdict(now[of[n]]) == "ask"
            case ev.ToolStarted(call=name, rule=rule):
                assert verdict(now[name]) != "deny", (name, now[name])
                assert not asks[name] or rule == f"approval {granted.get(name)}", (name, rule)
                paid.append(f"{now[name].get('cents', 5)} {now[name].get('to', 'ann')}")
            case _:
                pass
    return paid
