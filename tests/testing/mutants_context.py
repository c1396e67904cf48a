"""Broken variants of what a model is sent: condensing, feeding, and what a task is taken for."""

from contextlib import ExitStack

import msgspec
from tests.testing.variants import put, variant

from cairn.core import compaction, decide, evolve, evolve_context, intake, outcomes
from cairn.core import events as ev
from cairn.core.limits import Usage
from cairn.core.view import WHOLE
from cairn.engine import drive, requesting

replace = msgspec.structs.replace


def _handled(stack: ExitStack, kind: type[ev.Event], handler: object) -> None:
    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, kind: handler})


@variant
def cut_between_call_and_result(stack: ExitStack) -> None:
    """A view begins where a turn begins."""

    def anywhere(messages, start):
        return (n for n in range(len(messages) - 1, start, -1))

    put(stack, compaction, "boundaries", anywhere)
    put(stack, evolve_context, "_check_view", lambda *_: None)
    put(stack, requesting, "faults", lambda _: [])


@variant
def last_request_condensed_away(stack: ExitStack) -> None:
    """The last request of a person is sent whatever is condensed."""
    compacted = compaction.compacted

    def forgetful(*args):
        return replace(compacted(*args), asked=-1)

    put(stack, compaction, "compacted", forgetful)
    put(stack, decide, "compacted", forgetful)


@variant
def unchecked_summary_adopted(stack: ExitStack) -> None:
    """A summary is checked before it stands for anything."""
    put(stack, decide, "summary_faults", lambda *_: "")


@variant
def summary_of_any_size_adopted(stack: ExitStack) -> None:
    """A summary is no larger than what it stands for."""

    def adopted(state, rules, spec, draft):
        if draft.purpose == "classify":
            return intake.classified(state, draft.text)
        return decide.compacted(state, draft.cut, draft.text, "model")

    put(stack, decide, "_adopted", adopted)


@variant
def summary_counted_as_a_turn(stack: ExitStack) -> None:
    """What is asked beside the turns is no turn."""
    drafted = evolve.drafted

    def counted(state, event):
        more = state.request.purpose == "summary"
        return replace(drafted(state, event), replies=state.replies + more)

    put(stack, evolve, "drafted", counted)


@variant
def summary_taken_for_the_answer(stack: ExitStack) -> None:
    """What is asked beside the turns is no answer."""
    drafted = evolve.drafted

    def answered(state, event):
        after = drafted(state, event)
        return replace(after, answer=state.seq + 1, answer_text=after.draft.text)

    put(stack, evolve, "drafted", answered)


@variant
def calls_of_a_summary_taken(stack: ExitStack) -> None:
    """A model that summarises calls nothing."""
    wrong = outcomes._wrong

    def lax(state, reply):
        request = state.request and replace(state.request, purpose="turn")
        return wrong(replace(state, request=request), reply)

    put(stack, outcomes, "_wrong", lax)


@variant
def summary_not_charged(stack: ExitStack) -> None:
    """A summary costs what it has used."""
    drafted = evolve.drafted
    put(stack, evolve, "drafted", lambda *args: replace(drafted(*args), usage=Usage()))


@variant
def lost_summary_not_charged(stack: ExitStack) -> None:
    """A summary whose process died is charged at its reservation."""
    lost = outcomes.lost_model

    def free(state, rules):
        aside = state.request.purpose != "turn"
        event = lost(state, rules)
        return replace(event, usage=Usage()) if aside else event

    put(stack, outcomes, "lost_model", free)


@variant
def summary_asked_for_without_end(stack: ExitStack) -> None:
    """After two summaries that are of no use a rule condenses."""
    put(stack, compaction, "SUMMARY_TRIES", 1_000)
    put(stack, decide, "SUMMARY_TRIES", 1_000)


@variant
def window_not_looked_at(stack: ExitStack) -> None:
    """A request fits into its model's window."""
    put(stack, decide, "fit", lambda state, rules, spec: state.view)
    put(stack, decide, "guarded", lambda tokens: 0)


@variant
def condensed_while_at_work(stack: ExitStack) -> None:
    """Nothing is condensed between a call and its answer."""
    decided = drive.decide
    put(stack, evolve, "HANDLERS", {**evolve.HANDLERS, ev.ContextCompacted: _anyhow})

    def hasty(state, rules, now):
        if state.calls and state.view == WHOLE and len(state.messages) > 3:
            spec = rules.models[0]
            event = compaction.compacted(state, len(state.messages) - 1, "", "rule")
            if spec.window < 10_000 and event.after < event.before:
                return decide.append(event)
        return decided(state, rules, now)

    put(stack, drive, "decide", hasty)


def _anyhow(state, entry, event):
    idle = replace(state, calls={}, request=None)
    after = evolve_context._compacted(idle, entry, event)
    return replace(after, calls=state.calls, request=state.request)


@variant
def condensed_messages_deleted(stack: ExitStack) -> None:
    """What is condensed stays in the transcript."""

    def deleted(state, entry, event):
        after = evolve_context._compacted(state, entry, event)
        kept = type(state.messages)(after.messages[event.start :])
        view = replace(after.view, start=0, asked=-1)
        return replace(after, messages=kept, view=view, asked=type(state.asked)())

    _handled(stack, ev.ContextCompacted, deleted)


@variant
def compaction_not_taken_back(stack: ExitStack) -> None:
    """Who takes a compaction back has what was sent before sent again."""

    def kept(state, entry, event):
        return replace(state, compactions=state.compactions[:-1], squeezes=0)

    _handled(stack, ev.ContextRestored, kept)


@variant
def fed_again(stack: ExitStack) -> None:
    """What feeds a run comes once."""

    def twice(state, entry, event):
        return replace(evolve_context._fed(state, entry, event), fed=state.last_call > 2)

    _handled(stack, ev.TurnFed, twice)


@variant
def not_fed(stack: ExitStack) -> None:
    """A run is fed before its model is asked."""
    decided = drive.decide
    put(stack, drive, "decide", lambda s, rules, now: decided(s, replace(rules, feeds=()), now))


@variant
def classified_anew(stack: ExitStack) -> None:
    """A task is classified once."""

    def forgotten(state, entry, event):
        after = evolve_context._classified(state, entry, event)
        return replace(after, classified=None if state.step < 3 else event.kind)

    _handled(stack, ev.TaskClassified, forgotten)


@variant
def classification_widens(stack: ExitStack) -> None:
    """What a model says of a task only narrows it."""

    def wider(state, entry, event):
        return replace(state, classified=event.kind, draft=None, summary_tries=0)

    put(stack, intake, "narrower", lambda said, known: said)
    _handled(stack, ev.TaskClassified, wider)
