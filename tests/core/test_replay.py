"""A journal replayed: unchanged rules take every decision again, changed ones are found out."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.play import DAY, MODEL, OPEN, SECOND, Play, need, rules_of, tool
from tests.core.test_core_seeds import STEPS, Chance
from tests.golden.make import FOLDER, INDEX, STORIES, row_of

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.codec import open_row
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits
from cairn.core.messages import Text
from cairn.core.outcomes import Reply
from cairn.core.policy import Policy
from cairn.core.replay import Replay, Replayer, replay
from cairn.core.rules import ModelSpec, Rules
from cairn.core.state import RunState
from cairn.errors import ConfigError, ErrorClass

E = ErrorClass
TOOLS = (
    tool("look", fallback="peek"),
    tool("peek"),
    tool("set", "write", conflict_key=lambda v: str(v.get("a"))),
    tool("pay", "write", recovery="keyed", check=need("cents")),
    tool("book", "write", recovery="probe"),
    tool("drop", "dangerous"),
    tool("ask_user", kind="question", check=need("question")),
)
RULES = rules_of(*TOOLS, models=(MODEL, ModelSpec(name="m2")), checks=("complete",))


def again(play: Play, rules: Rules | None = None, **changed: Any) -> Replay:
    """The play replayed; under its own rules, with these fields of them changed."""
    limits = changed.pop("limits", None)
    prompt = changed.pop("prompt", None)
    ignore = changed.pop("ignore", ())
    rules = msgspec.structs.replace(rules or play.rules, **changed)
    begin = RunState(run="r1")
    return replay(begin, play.journal, rules, limits=limits, prompt=prompt, ignore=ignore)


# ---------------------------------------------------------------- unchanged


@given(st.integers(0, 10**9))
@settings(max_examples=60, deadline=None)
def test_no_run_diverges_under_the_rules_it_was_made_by(seed: int) -> None:
    chance = Chance(seed)
    for _ in range(STEPS):
        if chance.world.play.state.status is Status.COMPLETED:
            break
        chance.step()
    play = chance.world.play
    found = again(play)
    assert found.divergence is None, found.divergence
    assert found.changes == ()
    assert found.events == len(play.journal)
    assert all(step.same for step in found.steps)


@pytest.mark.parametrize("story", STORIES, ids=lambda s: s.__name__)
def test_no_story_of_a_release_diverges_under_the_rules_it_was_told_by(story: Any) -> None:
    play = story()
    found = again(play)
    assert found.divergence is None, found.divergence
    assert {change.kind for change in found.changes} <= {"tools"}


@pytest.mark.parametrize("folder", sorted(p.parent for p in FOLDER.glob(f"*/{INDEX}")), ids=str)
def test_journals_of_any_release_can_be_replayed_under_rules_of_today(folder: Any) -> None:
    for name, said in json.loads((folder / INDEX).read_text(encoding="utf-8")).items():
        if name == "store" or said.get("parent"):
            continue
        lines = (folder / f"{name}.jsonl").read_text(encoding="utf-8").splitlines()
        entries = [open_row(row_of(line)) for line in lines]
        found = replay(RunState(run=name), entries, RULES)
        assert found.events == len(entries)
        assert found.first is not None, "these are other rules than it was made by"


def test_where_a_batch_was_cut_by_a_fork_the_rest_is_decided_anew() -> None:
    play = Play(rules_of(tool("look"), policy=Policy(effects={"read": "deny"})))
    play.says("", "look", "look")
    (first, second) = play.decide().events
    play.add(first[1], first[0])
    play.add(ev.RunForked(run="r2", parent="r1", at=play.state.seq))
    play.add(second[1], second[0])
    assert again(play).same


# ---------------------------------------------------------------- changed


def worked() -> Play:
    """A run with a read, a write that was asked for, a dangerous call, a check and an answer."""
    play = Play(msgspec.structs.replace(RULES, policy=Policy()))
    for call in play.calls(("look", {"q": 1})):
        play.returns(call, "found")
    play.calls(("pay", {"cents": 4}))
    play.submit(cmd.Approve(n=1))
    for call in play.start():
        play.returns(call, "paid")
    play.says("Paid.")
    play.step()
    play.accepts()
    play.settle()
    assert play.state.status is Status.COMPLETED
    return play


def where(play: Play, found: Replay) -> str:
    """The name of the event at which it diverges."""
    assert found.divergence is not None
    return play.journal[found.divergence.seq - 1].event.NAME


def test_a_narrower_policy_asks_where_a_call_was_started() -> None:
    play = worked()
    found = again(play, policy=Policy(effects={"read": "ask"}))
    assert where(play, found) == "tool.started"
    assert found.divergence is not None
    assert "approval.requested" in found.divergence.now
    assert "+approval.requested" in found.divergence.diff
    assert found.steps[1].now.startswith("approval.requested request 1 for c1")
    assert [s.now for s in found.steps[2:]] == [""] * len(found.steps[2:])
    assert not found.steps[2].same, "what lies behind it is not reached"


def test_a_denying_policy_rejects_where_a_person_was_asked() -> None:
    play = worked()
    found = again(play, policy=Policy(tools={"pay": "deny"}))
    assert where(play, found) == "approval.requested"
    assert found.divergence is not None
    assert "tool.rejected" in found.divergence.what
    assert "deployment: tool pay" in found.divergence.diff


def test_a_wider_policy_starts_where_a_person_was_asked() -> None:
    play = worked()
    found = again(play, policy=OPEN)
    assert where(play, found) == "approval.requested"
    assert found.divergence is not None
    assert found.divergence.now.startswith("tool.started")


def test_another_name_of_the_same_verdict_is_only_noted() -> None:
    play = worked()
    found = again(play, policy=Policy(effects={"write": "ask"}))
    assert found.same
    assert [(c.kind, c.recorded, c.now) for c in found.changes] == [
        ("rule", "default: write", "deployment: effect write")
    ]


def test_a_tool_that_was_removed_is_missed_at_its_first_call() -> None:
    play = worked()
    found = again(play, tools={n: s for n, s in RULES.tools.items() if n != "look"})
    assert found.divergence is not None
    assert found.divergence.seq == 4
    assert "unknown_tool" in found.divergence.now


def test_arguments_that_a_narrower_schema_refuses_are_found() -> None:
    play = worked()
    tools = {**RULES.tools, "pay": tool("pay", "write", check=need("cents", "reason"))}
    found = again(play, tools=tools)
    assert where(play, found) == "approval.requested"
    assert found.divergence is not None
    assert "missing: reason" in found.divergence.now


def test_lower_limits_end_the_run_where_they_are_reached() -> None:
    play = worked()
    found = again(play, limits=Limits(steps=2))
    assert found.divergence is not None
    assert found.divergence.now.startswith("limit.reached")
    assert "steps: 2 of 2" in found.divergence.what
    assert where(play, found) == "model.requested"
    assert again(play, limits=Limits(calls=1)).divergence is not None
    assert again(play, limits=Limits(steps=4)).same


def test_another_order_of_models_is_another_request() -> None:
    play = worked()
    found = again(play, models=RULES.models[::-1])
    assert found.divergence is not None
    assert found.divergence.seq == 2
    assert found.divergence.what == "model.requested: model was m1 and would be m2"


def test_the_name_of_the_model_can_be_overlooked_and_is_said_to_be() -> None:
    play = worked()
    models = tuple(msgspec.structs.replace(m, name=f"new-{m.name}") for m in RULES.models)
    assert not again(play, models=models).same
    found = again(play, models=models, ignore=("model",))
    assert found.same
    (change,) = [each for each in found.changes if each.kind == "ignored"]
    assert (change.what, change.recorded, change.now) == ("model.requested: model", "m1", "new-m1")
    assert change.times > 1
    denies = Policy(tools={"look": "deny", "set": "deny"}, name="denies")
    found = again(play, models=models, policy=denies, ignore=("model",))
    assert not found.same, "all else still counts"
    with pytest.raises(ConfigError, match=r"'prompt' cannot be overlooked.* Use one of: model"):
        again(play, ignore=("prompt",))


def test_another_row_of_the_ladder_is_found_in_the_outcome_it_decides() -> None:
    play = Play(RULES)
    play.fails(E.OVERLOADED)
    play.now += 60 * SECOND
    play.calls("look")
    play.raises("c1", E.DEPENDENCY_FAILED)
    switch = Ladder(rows={E.OVERLOADED: (Rung(disposition="switch"),)})
    found = again(play, ladder=switch)
    assert found.divergence is not None
    assert (found.divergence.seq, found.divergence.recorded, found.divergence.now) == (
        3,
        "retry",
        "switch",
    )
    told = Ladder(rows={E.DEPENDENCY_FAILED: (Rung(disposition="repair"),)})
    found = again(play, ladder=told)
    assert found.divergence is not None
    assert (found.divergence.recorded, found.divergence.now) == ("switch peek", "repair")
    assert "look (c1)" in found.divergence.what


def test_a_provider_that_asks_for_a_long_wait_is_left_as_it_was() -> None:
    play = Play(RULES)
    play.fails(E.RATE_LIMITED, "slow down", retry_after_us=90 * SECOND)
    assert play.last(ev.ModelFailed).disposition == "switch"
    assert again(play).same
    assert not again(play, models=RULES.models[:1]).same, "there is nobody to switch to"


def test_a_reply_with_more_calls_than_are_allowed_now_would_not_be_taken() -> None:
    play = Play(RULES)
    play.calls("look", "peek")
    found = again(play, limits=Limits(calls_per_reply=1))
    assert where(play, found) == "model.completed"
    assert found.divergence is not None
    assert "at most 1" in found.divergence.now


def test_another_order_between_calls_is_noted_and_followed_until_it_leads_elsewhere() -> None:
    play = Play(RULES)
    play.calls(("set", {"a": 1}), ("set", {"a": 2}))
    tools = {**RULES.tools, "set": tool("set", "write")}
    found = again(play, tools=tools)
    assert [(c.kind, c.now) for c in found.changes] == [("order", "c2 after c1")]


def test_a_check_that_is_new_is_run_before_the_end() -> None:
    play = worked()
    found = again(play, checks=("complete", "polite"))
    assert where(play, found) == "run.completed"
    assert found.divergence is not None
    assert "task polite" in found.divergence.what
    assert again(play, checks=()).divergence is not None


def test_an_answer_that_is_no_longer_accepted_is_found() -> None:
    play = worked()
    found = again(play, check_answer=lambda text: "it must be JSON")
    assert where(play, found) == "step.started"
    assert found.divergence is not None
    assert "it must be JSON" in found.divergence.what


def test_fewer_repairs_end_what_was_mended() -> None:
    play = Play(RULES)
    play.says("Done.")
    play.step()
    play.refuses("a total is missing")
    found = again(play, repairs=0)
    assert found.divergence is not None
    assert (found.divergence.recorded, found.divergence.now) == ("repair", "end")


def test_a_probe_that_is_gone_would_leave_it_to_a_person() -> None:
    play = Play(RULES)
    play.calls("book")
    play.vanishes("c1", "unsure", gone=True)
    play.now += DAY
    play.probe("happened")
    assert again(play).same
    walk = Replayer(RunState(run="r1"), play.rules)
    for entry in play.journal[:-1]:
        walk.feed(entry)
    tools = {n: s for n, s in RULES.tools.items() if n != "book"}
    later = Replayer(walk.state, msgspec.structs.replace(RULES, tools=tools))
    later.feed(play.journal[-1])
    assert later.divergence is not None
    assert later.divergence.now == "a person is asked"


def test_a_longer_key_is_waited_for_where_a_person_was_asked() -> None:
    rules = rules_of(tool("pay", "write", recovery="keyed", key_ttl_us=SECOND))
    play = Play(rules)
    play.calls("pay")
    play.vanishes("c1")
    play.now += DAY
    play.settle()
    longer = rules_of(tool("pay", "write", recovery="keyed", key_ttl_us=9 * DAY))
    found = again(play, tools=longer.tools)
    assert where(play, found) == "takeover.requested"
    assert found.divergence is not None
    assert "attempt 2" in found.divergence.what


def test_a_fault_of_the_runtime_itself_is_no_decision() -> None:
    play = Play(RULES)
    play.ask()
    play.crash()
    play.add(ev.RunFailed(error_class=E.INTERNAL, message="MemoryError: "))
    assert again(play).same


def test_a_process_that_was_stopped_is_no_fault_that_a_ladder_was_asked_about() -> None:
    play = Play(msgspec.structs.replace(RULES, models=(MODEL,)), lawful=False)
    for _ in range(4):
        play.ask()
        stopped = ev.ModelFailed(
            error_class=E.STREAM_INTERRUPTED,
            message="the process was stopped before the reply came",
            disposition="retry",
            lost=True,
        )
        play.add(stopped, 1)
    assert again(play).same


def test_what_would_be_waited_for_is_said_where_the_journal_goes_on() -> None:
    play = Play(rules_of(tool("drop", "dangerous")))
    play.calls("drop")
    play.add(ev.LimitReached(limit="steps", bound=1, value=1))
    found = again(play)
    assert found.divergence is not None
    assert found.divergence.now == "wait for approval"


# ---------------------------------------------------------------- requests


def test_a_changed_prompt_is_noted_once_with_a_diff_and_the_walk_goes_on() -> None:
    play = Play(RULES)
    action = play.settle()
    assert hasattr(action, "reserved")
    block = ev.Block(name="instructions", text="Be exact.\nBe kind.")
    asked = ev.ModelRequested(
        model="m1", reserved=action.reserved, blocks=(block,), messages=1, tools="5f2c"
    )
    play.add(asked, 1)
    play.outcome(Reply(parts=(Text("Done."),)))
    play.step()
    play.refuses("say more")
    play.says("Done, all of it.")
    found = again(play, offered="77ab", prompt="Be exact.\nBe brief.", overhead_tokens=50)
    assert found.same
    assert [(c.kind, c.seq, c.times) for c in found.changes] == [
        ("tools", 2, 2),
        ("prompt", 2, 2),
        ("reservation", 2, 2),
    ]
    prompt = found.changes[1]
    assert "-Be kind." in prompt.diff
    assert "+Be brief." in prompt.diff
    assert found.first == found.changes[0]
    assert again(play, offered="5f2c", prompt="Be exact.\nBe kind.").changes == ()


def test_a_prompt_that_changed_is_told_even_where_the_request_itself_differs() -> None:
    play = worked()
    found = again(play, models=RULES.models[::-1], prompt="New.")
    assert [c.kind for c in found.changes] == ["prompt"]
    assert found.first is not None
    assert found.first.seq == 2
