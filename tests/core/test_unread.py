"""What waits in a run until it reads it: so much and no more, and its number costs no square."""

import pytest
from tests.core.play import Play, rules_of
from tests.core.test_constant_work import counted

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.evolve import fold
from cairn.core.history import Growing
from cairn.core.messages import PlanItem, Text, text_of
from cairn.core.state import RunState
from cairn.errors import Refused

FEW, MANY = 200, 2_000


def message(text: str) -> cmd.Queue:
    return cmd.Queue(parts=(Text(text),))


def flooded(messages: int, actors: int) -> list[ev.Entry]:
    """A journal whose run was sent so many messages, by so many people, before it read any."""
    created = ev.RunCreated(agent="desk", input=(Text("go"),), digest="d")
    entries = [ev.Entry(seq=1, at=1, event=created)]
    for n in range(messages):
        queued = ev.InputQueued(parts=(Text(str(n)),))
        entries.append(ev.Entry(seq=n + 2, at=1, event=queued, actor=f"p{n % actors}"))
    return entries


@pytest.mark.parametrize("actors", [1, MANY])
def test_ten_times_the_unread_messages_take_ten_times_the_work(
    actors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    copied = [0]
    new = Growing.__init__

    def counting(self, items=None):
        copied[0] += 0 if items is None else len(items)
        new(self, items)

    monkeypatch.setattr(Growing, "__init__", counting)
    work, copies = {}, {}
    for length in (FEW, MANY):
        entries = flooded(length, actors)
        given = ev.InputGiven(seqs=tuple(e.seq for e in entries[1:]))
        entries.append(ev.Entry(seq=length + 2, at=1, event=given))
        copied[0] = 0
        work[length] = counted(lambda entries=entries: fold(RunState(run="r"), entries))
        copies[length] = copied[0]
    assert work[MANY] <= work[FEW] * (MANY / FEW) * 1.05
    assert copies[MANY] <= MANY, "the map of what is unread was copied for each message"
    assert isinstance(fold(RunState(run="r"), entries[:2]).queued, Growing)


def test_an_older_state_never_sees_what_a_newer_one_was_sent() -> None:
    entries = flooded(3, 3)
    states = [RunState(run="r")]
    for entry in entries:
        states.append(fold(states[-1], [entry]))
    given = fold(states[-1], [ev.Entry(seq=5, at=1, event=ev.InputGiven(seqs=(2, 3)))])
    another = ev.Entry(seq=3, at=1, event=ev.InputQueued(parts=(Text("else"),)), actor="else")
    branch = fold(states[2], [another])
    assert [dict(state.queued) for state in states[1:]] == [
        {seq: (Text(str(seq - 2)),) for seq in range(2, 2 + n)} for n in range(4)
    ]
    assert list(given.queued) == list(given.sent) == [4]
    assert dict(branch.queued) == {2: (Text("0"),), 3: (Text("else"),)}
    assert (set(states[2].voices), set(branch.voices)) == ({"p0"}, {"p0", "else"})
    assert 4 not in states[2].queued
    assert states[2].queued.get(4) is None
    assert set(states[-1].voices) == {"p0", "p1", "p2"}


def test_one_message_more_than_may_wait_is_refused_with_the_bound_and_what_to_do() -> None:
    play = Play(rules_of(), lawful=False)
    for n in range(cmd.MOST_UNREAD):
        play.submit(message(str(n)))
    before = play.state
    with pytest.raises(Refused, match=r"1,000 unread messages,.* was not kept: let it go on"):
        play.submit(message("one more"))
    assert play.state is before
    play.submit(cmd.Pause())
    with pytest.raises(Refused, match="cairn resume"):
        play.submit(message("one more"))
    play.submit(cmd.TakeOver(by="ada", reason="to look"))
    play.submit(cmd.HandBack(by="ada"))
    play.submit(cmd.SetPlan(items=(PlanItem(text="look"),)))  # what a person does has its own room
    play.submit(cmd.Resume())
    play.ask()
    read = [text_of(m.parts) for m in play.state.messages[1:]]
    assert read[: cmd.MOST_UNREAD] == [str(n) for n in range(cmd.MOST_UNREAD)]
    play.submit(message("one more"))
    assert len(play.state.queued) == 1


def test_changed_plans_and_takeovers_leave_only_so_many_notes() -> None:
    play = Play(rules_of(), lawful=False)
    play.submit(cmd.Pause())
    for n in range(cmd.MOST_UNREAD):
        play.submit(cmd.SetPlan(items=(PlanItem(text=str(n)),)))
    same = cmd.SetPlan(items=(PlanItem(text=str(cmd.MOST_UNREAD - 1)),))
    assert play.submit(same) is None, "nothing new is no note"
    with pytest.raises(Refused, match=r"1,000 unread notes .*, and this plan was not kept"):
        play.submit(cmd.SetPlan(items=()))
    with pytest.raises(Refused, match=r"1,000 unread notes .*, and this takeover was not kept"):
        play.submit(cmd.TakeOver(by="ada", reason="to look"))
    play.submit(message("a message has its own room"))
    assert len(play.state.queued) == cmd.MOST_UNREAD + 1
