"""What a summary says is to be remembered: taken out, asked for once, never at a run's cost."""

from io import StringIO

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console
from tests.core.play import OPEN, SECOND, Play, need, rules_of, tool
from tests.golden.make import sealed

from cairn import Agent, ConfigError, ErrorClass, Limits, Policy, Scripted
from cairn import tool as as_tool
from cairn.cli.tree import run_tree
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.actions import AskModel, Wait
from cairn.core.compaction import INSTRUCTIONS, instructions
from cairn.core.context import faults, messages_of
from cairn.core.evolve import evolve
from cairn.core.keeping import FACT_CHARS, MOST_FACTS, WISH, mark_of, parted
from cairn.core.ladder import Ladder, Rung
from cairn.core.lifecycle import CallStatus, Status
from cairn.core.messages import Text
from cairn.core.outcomes import Reply
from cairn.core.rules import ModelSpec
from cairn.core.state import RunState, transcript
from cairn.core.summaries import SECTIONS
from cairn.core.views.audit import audit
from cairn.core.views.runs import timeline
from cairn.core.views.words import words
from cairn.crew import prepare
from cairn.errors import IllegalTransition
from cairn.testing.invariants import check
from cairn.toolkit import MEMORY_TOOLS

BODY = "\n".join(f"## {name}\nNone" for name in SECTIONS)
TEA, NIGHT = "Ann likes green tea.", "Ann works at night."
REMEMBER = tool("remember", "write", recovery="keyed")
SMALL = ModelSpec(name="m1", window=1_600, max_output=300)


def said(*facts: str, body: str = BODY) -> str:
    return f"{body}\n## To remember\n" + "\n".join(f"- {fact}" for fact in facts)


def rules(**more):
    given = {"models": (SMALL,), "summary": ModelSpec(name="cheap"), "keeps": True, **more}
    return rules_of(tool("look"), REMEMBER, **given)


def condensed(*facts: str, summaries=(), limits: Limits | None = None, **more) -> Play:
    """A run whose conversation was condensed just now, by a summary with these facts."""
    play = Play(rules(**more), limits=limits)
    look_on(play, (*summaries, said(*facts)))
    return play


def look_on(play: Play, summaries) -> None:
    """Read until a summary is adopted; these are written."""
    script, before = iter(summaries), play.count(ev.ContextCompacted)
    for _ in range(40):
        while isinstance(due := next_action(play), AskModel) and due.purpose == "summary":
            play.says(next(script))
        if play.count(ev.ContextCompacted) > before:
            return
        read_on(play)


def read_on(play: Play) -> None:
    """One more turn that brings something long and new."""
    n = play.state.last_call
    for each in play.calls(("look", {"n": n})):
        play.returns(each, f"record {n}: " + "words " * 60)


def next_action(play: Play):
    """Settle, and stop at the moment a summary is adopted."""
    before = play.count(ev.ContextCompacted)
    while hasattr(action := play.decide(), "events"):
        for step, event in action.events:
            play.add(event, step)
        if play.count(ev.ContextCompacted) > before:
            return None
    return action


def kept(play: Play) -> ev.TurnKept:
    found: ev.TurnKept = play.last(ev.TurnKept)
    return found


def texts(event: ev.TurnKept) -> list[str]:
    return [msgspec.json.decode(part.arguments)["text"] for part in event.parts]


# ---------------------------------------------------------------- the section


def test_the_section_is_cut_out_of_the_summary_wherever_it_stands():
    head, tail = BODY.split("## Open")
    text = f"{head}## To remember\n- {TEA}\n2. {NIGHT}\n\n## Open{tail}"
    assert parted(text) == (BODY, (TEA, NIGHT))
    assert parted(said(TEA, NIGHT)) == (BODY, (TEA, NIGHT))


@pytest.mark.parametrize("heading", ["## To remember", "**To remember:**", "TO REMEMBER:"])
def test_the_section_is_found_however_its_heading_is_written(heading):
    assert parted(f"{BODY}\n{heading}\n{TEA}") == (BODY, (TEA,))


def test_a_summary_without_the_section_says_nothing_is_to_be_remembered_and_stays_as_it_is():
    assert parted(f"{BODY}\n") == (f"{BODY}\n", ())
    for nothing in ("None", "- none.", "", "无", "*"):
        assert parted(said(nothing)) == (BODY, ())


def test_what_is_no_fact_is_left_out():
    key = "The token is [redacted github-token]."
    handle = "The door opens with [[secret:door:0123abcd]]."
    long = "x" * (FACT_CHARS + 1)
    lines = (TEA, key, handle, long, "ann  likes GREEN tea.", "x" * FACT_CHARS)
    text, facts = parted(said(*lines) + f"\n## Ignore what came before\n{NIGHT}")
    assert text == BODY
    assert facts == (TEA, "x" * FACT_CHARS, NIGHT)


def test_no_more_facts_are_taken_than_may_be():
    assert len(parted(said(*map("fact {}".format, range(30))))[1]) == MOST_FACTS


@given(st.lists(st.sampled_from(["## To remember", "## Goal", "Goal:", "- a", "b", "", "None"])))
@settings(max_examples=200, deadline=None)
def test_a_line_is_in_the_summary_or_a_fact_or_a_heading_and_never_both(lines):
    text, facts = parted("\n".join(lines))
    assert set(facts) <= {"a", "b"}
    assert len(set(map(mark_of, facts))) == len(facts)
    assert "to remember" not in text.casefold()
    assert parted(text) == (text, ())


# ---------------------------------------------------------------- what is asked for


def test_only_where_it_is_wanted_a_model_is_asked_for_facts():
    play, without, query = Play(rules()), Play(rules(keeps=False)), Play(rules(), kind="query")
    assert instructions(play.state, play.rules) == INSTRUCTIONS + WISH
    assert instructions(without.state, without.rules) == INSTRUCTIONS
    assert instructions(query.state, query.rules) == INSTRUCTIONS


def test_the_request_that_asks_for_facts_reserves_what_it_takes():
    def reserved(*, keeps):
        play = Play(rules(keeps=keeps, summary=ModelSpec(name="cheap", max_output=4_000)))
        while (due := play.settle()) and due.purpose != "summary":
            read_on(play)
        return due.reserved

    less, more = reserved(keeps=False), reserved(keeps=True)
    assert more.input_tokens > less.input_tokens
    assert more.output_tokens > less.output_tokens


def test_the_facts_of_an_adopted_summary_are_asked_for_once_before_the_next_request():
    play = condensed(TEA, NIGHT)
    event = play.last(ev.ContextCompacted)
    assert event.keep == play.state.keeping == (TEA, NIGHT)
    assert TEA not in event.text
    assert play.start() == ["c9"] or play.state.calls
    assert texts(kept(play)) == [TEA, NIGHT]
    assert kept(play).of == play.state.compactions[-1].seq
    while play.state.calls:
        for call in [c.id for c in play.state.calls.values() if c.status.value == "started"]:
            play.returns(call, "Remembered.")
        play.start()
    assert isinstance(play.settle(), AskModel)
    assert play.count(ev.TurnKept) == 1


def test_the_model_is_not_told_of_the_calls_and_nothing_is_pushed_out_of_its_view():
    play = condensed(TEA)
    before = tuple(play.state.messages)
    (call,) = play.start()
    assert transcript(play.state) == before
    play.returns(call, "Remembered as m1.")
    assert tuple(play.state.messages) == before
    assert not faults(messages_of(play.state))
    due = play.settle()
    assert isinstance(due, AskModel)
    assert due.purpose == "turn"


def test_a_rule_keeps_nothing_and_a_refused_summary_neither():
    words_only = said(TEA, body="It went well.")
    play = condensed(NIGHT, summaries=(words_only,))
    assert play.state.keeping == (NIGHT,)
    play = Play(rules())
    look_on(play, (words_only, words_only))
    assert play.last(ev.ContextCompacted).by == "rule"
    assert play.state.keeping == ()
    assert isinstance(play.settle(), AskModel)
    assert play.count(ev.TurnKept) == 0


def test_without_the_option_the_section_is_part_of_the_summary():
    play = condensed(TEA, keeps=False)
    assert play.last(ev.ContextCompacted).keep == ()
    assert TEA in play.state.summary
    assert isinstance(play.settle(), AskModel)
    assert play.count(ev.TurnKept) == 0


def test_an_agent_that_keeps_nothing_any_more_says_so_and_goes_on():
    play = condensed(TEA)
    play.rules = rules(keeps=False)
    assert isinstance(play.settle(), AskModel)
    assert (kept(play).parts, kept(play).why) == ((), "the agent keeps no facts any more")


# ---------------------------------------------------------------- once


def test_what_was_asked_for_before_in_the_same_words_is_not_asked_for_again():
    play = condensed(TEA)
    play.returns(*play.start())
    look_on(play, (said(TEA.upper(), NIGHT),))
    play.start()
    assert texts(kept(play)) == [NIGHT]
    assert kept(play).why == "1 asked for before in the same words"


def test_what_the_model_has_kept_itself_is_not_asked_for_again():
    play = Play(rules())
    play.one_turn("remember", {"text": TEA})
    (failed,) = play.calls(("remember", {"text": NIGHT}))
    play.raises(failed)
    look_on(play, (said(TEA, NIGHT),))
    play.start()
    assert texts(kept(play)) == [NIGHT]


def test_taken_back_before_it_is_asked_for_it_is_dropped_and_after_that_it_stays():
    play = condensed(TEA)
    play.submit(cmd.Restore())
    assert play.state.keeping == ()
    look_on(play, (said(TEA),))
    (call,) = play.start()
    play.returns(call, "Remembered.")
    look_on(play, (said(NIGHT),))
    play.returns(*play.start())
    play.submit(cmd.Restore())
    assert mark_of(NIGHT) in play.state.kept
    look_on(play, (said(TEA, NIGHT),))
    play.settle()
    assert (kept(play).parts, kept(play).why) == ((), "2 asked for before in the same words")


def test_nothing_is_kept_twice_or_of_another_summary():
    play = condensed(TEA)
    of = play.state.compactions[-1].seq
    for event in (ev.TurnKept(of=of - 1), ev.TurnKept(of=of + 1)):
        with pytest.raises(IllegalTransition, match="nothing of event"):
            evolve(play.state, ev.Entry(seq=play.state.seq + 1, at=play.now, event=event))
    play.returns(*play.start())
    with pytest.raises(IllegalTransition, match="nothing of event"):
        play.add(ev.TurnKept(of=of))


def test_a_fork_of_the_moment_before_asks_for_itself():
    play = condensed(TEA)
    play.add(ev.RunForked(run="r2", parent="r1", at=play.state.seq, grants="void"))
    assert play.start() == [f"c{play.state.last_call}"]
    assert texts(kept(play)) == [TEA]


def test_a_process_that_dies_repeats_only_what_it_did_not_know_the_end_of():
    play = condensed(TEA, NIGHT)
    (first,) = play.start()
    play.returns(first)
    (second,) = play.start()
    play.crash()
    assert play.refold() == play.state
    assert play.start() == [second]
    assert play.call(second).attempt == 2
    play.returns(second)
    assert isinstance(play.settle(), AskModel)
    assert play.count(ev.TurnKept) == 1


def test_a_person_who_answers_in_the_agents_place_loses_no_fact():
    play = condensed(TEA)
    play.submit(cmd.TakeOver(by="bert", reason="it is stuck"))
    assert isinstance(play.settle(), Wait)
    play.submit(cmd.TakeTurn(by="bert", text="I have done it."))
    (call,) = play.start()
    play.returns(call, "Remembered.")
    play.settle()
    assert play.state.end is not None
    assert play.state.end.status is Status.COMPLETED
    assert play.state.answer_text == "I have done it."
    assert check(play.journal, rules=play.rules) == []


# ---------------------------------------------------------------- never at the run's cost


def test_denied_or_failed_the_run_goes_on_and_the_model_is_not_blamed():
    for policy, how in ((Policy(tools={"remember": "deny"}), "denied"), (OPEN, "failed")):
        play = condensed(TEA, policy=policy, limits=Limits(errors_in_row=1))
        before = play.state
        for call in play.start():
            play.raises(call)
        due = play.settle()
        assert isinstance(due, AskModel), how
        assert due.purpose == "turn"
        after = play.state
        assert (after.errors_in_row, after.repairs, after.guard, after.degraded) == (
            (before.errors_in_row, before.repairs, before.guard, before.degraded)
        )
        assert after.spent.steps == before.spent.steps + 1


def test_no_row_of_the_ladder_ends_a_run_for_a_fact():
    play = condensed(TEA, ladder=Ladder(rows={ErrorClass.TOOL_ERROR: (Rung(disposition="end"),)}))
    failed = play.raises(*play.start())
    assert failed.disposition == "repair"
    assert isinstance(play.settle(), AskModel)


def test_a_tool_that_takes_no_such_text_any_more_ends_no_run():
    play = condensed(TEA, repairs=0)
    other = tool("remember", "write", recovery="keyed", check=need("fact"))
    play.rules = rules_of(tool("look"), other, models=(SMALL,), keeps=True, repairs=0)
    assert isinstance(play.settle(), AskModel)
    rejected = play.last(ev.ToolRejected)
    assert (rejected.kind, rejected.disposition) == ("invalid", "repair")
    assert play.state.repairs == {}


def test_a_person_who_must_say_yes_is_waited_for_and_no_is_an_answer():
    play = condensed(TEA, NIGHT, policy=Policy(tools={"remember": "ask"}))
    assert isinstance(play.settle(), Wait)
    play.submit(cmd.Approve(n=1))
    play.returns(*play.start())
    assert isinstance(play.settle(), Wait)
    play.submit(cmd.Deny(n=2, message="that is nobody's business"))
    assert isinstance(play.settle(), AskModel)


def test_where_too_few_steps_are_left_nothing_is_kept_and_the_reason_stands_there():
    steps = condensed(TEA).state.spent.steps
    for left, wanted in ((1, "too little is left of the limit steps"), (2, "")):
        play = condensed(TEA, limits=Limits(steps=steps + left))
        play.start()
        assert kept(play).why == wanted
        assert bool(kept(play).parts) is not bool(wanted)
        assert play.state.failing is None


def test_half_of_the_calls_that_are_left_stay_for_the_model():
    calls = condensed(TEA, NIGHT).state.spent.calls
    for left, facts, why in ((1, 0, "2 left out"), (2, 1, "1 left out"), (4, 2, "")):
        play = condensed(TEA, NIGHT, limits=Limits(calls=calls + left))
        play.start()
        assert len(kept(play).parts) == facts
        assert kept(play).why.startswith(why)
        while play.state.calls:
            for call in [c.id for c in play.state.calls.values() if c.status.value == "started"]:
                play.returns(call)
            play.start()
        assert isinstance(play.settle(), AskModel)


def test_without_time_left_nothing_is_kept():
    play = condensed(TEA)
    spent = msgspec.structs.replace(play.state.spent, running_us=3 * SECOND)
    play.state = msgspec.structs.replace(play.state, spent=spent, limits=Limits(running_s=2))
    play.settle()
    assert kept(play).why == "too little is left of the limit running_s"
    assert play.state.end is not None
    assert play.state.end.limit == "running_s"


# ---------------------------------------------------------------- any history


def settle_wait(play: Play, due: Wait, *, yes: bool) -> None:
    """A person says yes or no, or what came of a call that never answered."""
    if "in_doubt" in due.reasons:
        (call,) = (c.id for c in play.state.calls.values() if c.status is CallStatus.TAKEOVER)
        play.now += 3_600 * SECOND
        play.submit(cmd.Resolve(call=call, verdict="happened" if yes else "not_happened"))
    elif "approval" in due.reasons:
        n = play.state.requests
        play.submit(cmd.Approve(n=n) if yes else cmd.Deny(n=n))
    else:
        play.now = max(play.now, due.until)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_happens_each_fact_is_asked_for_once_and_the_run_comes_to_its_end(data):
    """Any facts, any outcomes, crashes, no and yes; the laws look at every event."""
    policy = data.draw(st.sampled_from([OPEN, Policy(tools={"remember": "ask"}), Policy()]))
    limits = Limits(steps=data.draw(st.sampled_from([14, 18, 60])), no_progress=90)
    play = Play(rules(policy=policy), limits=limits)
    facts = st.lists(st.sampled_from([TEA, NIGHT, "", "None", "x" * 400, "# Ignore it"]))
    for n in range(80):
        due = play.settle()
        if play.state.end is not None:
            break
        if isinstance(due, Wait):
            settle_wait(play, due, yes=data.draw(st.booleans()))
        elif isinstance(due, AskModel) and due.purpose == "summary":
            play.ask(due)
            if data.draw(st.booleans()):
                play.crash()
                continue
            body = data.draw(st.sampled_from([BODY, BODY, "It went well."]))
            play.outcome(Reply(parts=(Text(said(*data.draw(facts), body=body)),)))
        elif isinstance(due, AskModel):
            if n > 60:
                play.says("Done.")
                continue
            read_on(play)
        else:
            for call in play.start():
                what = data.draw(st.sampled_from(["returns", "raises", "dies"]))
                if what == "returns":
                    play.returns(call)
                elif what == "raises":
                    play.raises(call)
                else:
                    play.crash()
    wanted = [texts(e) for e in play.events if isinstance(e, ev.TurnKept)]
    every = [text for each in wanted for text in each]
    assert len(set(every)) == len(every)
    assert play.refold() == play.state
    end = play.state.end
    assert end is None or end.status is Status.COMPLETED or end.limit == "steps"
    assert check(play.journal, rules=play.rules) == []


# ---------------------------------------------------------------- what people see


def test_the_trace_and_the_audit_tell_of_it_in_words():
    play = condensed(TEA, NIGHT, policy=Policy(tools={"remember": "ask"}))
    play.settle()
    of = kept(play).of
    assert f"to be remembered: {TEA} / {NIGHT}" in words(play.last(ev.ContextCompacted))
    assert words(kept(play)).startswith(f"facts of event {of} · c")
    step = timeline(play.journal, "r1").steps[-1]
    assert (step.keeps, [call.name for call in step.calls]) == (of, ["remember"] * 2)
    shown = Console(width=200, file=StringIO())
    shown.print(run_tree(timeline(play.journal, "r1")))
    assert f"keeping facts of event {of}" in shown.file.getvalue()
    told = [line for line in audit("r1", sealed("r1", play.journal)) if line.decision == "asked"]
    assert [line.tool for line in told] == ["remember"]


# ---------------------------------------------------------------- the option


@as_tool(effect="write")
def remember(text: str) -> str:
    """Keep it, once."""
    return text


SCRIBE = Scripted(["x"], name="scribe", summarises=True)


@pytest.mark.parametrize(
    ("options", "says", "fix"),
    [
        ({"keeps_facts": 1}, "1 cannot be used", "Use True or False"),
        ({"keeps_facts": "yes"}, "'yes' cannot be used", "Use True or False"),
        ({"keeps_facts": None}, "None cannot be used", "Use True or False"),
        ({"summary_model": None}, "no model condenses", "Give it a summary_model"),
        ({"summary_model": "first"}, "no model condenses", "Give it a summary_model"),
        ({"tools": []}, "no tool 'remember'", "Give it MEMORY_TOOLS"),
        ({"tools": [remember]}, "takes no text alone", "Give it the one of MEMORY_TOOLS"),
    ],
)
def test_an_agent_that_cannot_keep_facts_is_refused_by_the_field_and_with_the_fix(
    options, says, fix
):
    given = {"tools": MEMORY_TOOLS, "summary_model": SCRIBE, "keeps_facts": True, **options}
    with pytest.raises(ConfigError) as caught:
        Agent("desk", Scripted(["x"]), **given)
    assert "Agent('desk').keeps_facts" in str(caught.value)
    assert says in str(caught.value)
    assert fix in str(caught.value)


def test_the_option_is_part_of_the_agents_version():
    def version(**options):
        agent = Agent("desk", Scripted(["x"]), tools=MEMORY_TOOLS, summary_model=SCRIBE, **options)
        return prepare(agent).fingerprint

    assert version() == version(keeps_facts=False)
    assert version().agent != version(keeps_facts=True).agent


def test_a_state_without_facts_folds_as_it_did():
    old = ev.ContextCompacted(start=1, text="x", by="model", before=9, after=1)
    assert old.keep == ()
    assert RunState(run="r").keeping == ()
