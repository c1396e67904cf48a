"""SQLite is driven beside the reference model; whatever is asked of them, they answer alike."""

import asyncio
import contextlib
import copy
import os
import shutil
import tempfile

import pytest
from hypothesis import assume, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    initialize,
    invariant,
    multiple,
    rule,
)

from cairn.core import events as ev
from cairn.core.commands import Approve, Cancel, Deny, Late, Pause, Queue, Resolve, Resume
from cairn.core.messages import Text
from cairn.core.state import RunState
from cairn.errors import CairnError, IllegalTransition
from cairn.ports import RunFilter
from cairn.store.inmemory import InMemoryStore
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.owners import LONG_AGO
from cairn.store.sqlite.store import SqliteStore
from cairn.testing.store_journals import note
from cairn.testing.store_story import LATER, START, Story

NOW = START + 60_000_000
NAMES = [f"r{n}" for n in range(6)]
COMMANDS = [
    Approve(n=1),
    Approve(n=2),
    Deny(n=1, message="no"),
    Queue(parts=(Text("hurry"),)),
    Queue(parts=(Text("hurry"),), id="m1"),
    Queue(parts=(Text("hurry"),), id="r4"),
    Cancel(reason="for another", gently=True),
    Resolve(call="c1", verdict="happened"),
    Resolve(call="c1", verdict="given_up"),
    Pause(),
    Resume(),
    Cancel(reason="enough"),
    Late(call="c1", ok=True),
]


def scenes(story):
    """Things that may be told next, by name; illegal ones raise."""
    return {
        "note": lambda: story.tell(note("x" * 9_000), note("y")),
        "note later": lambda: story.tell(note("z"), at=NOW),
        "ask": story.ask,
        "doubt": story.doubt,
        "finish": story.finish,
        "fail": story.fail,
        "retry": lambda: story.tell(ev.RetryScheduled(subject="model", at=NOW)),
        "cancelled": lambda: story.tell(ev.RunCancelled()),
        "go on": lambda: story.tell(ev.RunContinued(previous=ev.RunRef(run="r0", seq=1))),
        "nothing": list,
    }


async def head_of_facts(store):
    """Where the journal `store` ends; when it was written to is each store's own affair."""
    return (await store.info("store")).head


handles = st.integers(0, 1)


class Beside(RuleBasedStateMachine):
    """Two processes on one SQLite file, and the same two on the reference's journals."""

    runs = Bundle("runs")

    @initialize(target=runs)
    def begin(self):
        self.loop = asyncio.new_event_loop()
        self.folder = tempfile.mkdtemp()
        self.settings = Settings(path=f"{self.folder}/cairn.db", durability="process", beat_s=1e6)
        self.real = [SqliteStore(self.settings), SqliteStore(self.settings)]
        first = InMemoryStore()
        self.model = [first, first.beside()]
        self.stories = {}
        self.epochs = {}
        self.gone = []
        return multiple(self.create(0, "r0", "s"), self.create(1, "r1", ""))

    def teardown(self):
        if hasattr(self, "loop"):
            for store in [*self.real, *self.gone]:
                self.loop.run_until_complete(store.close())
            self.loop.run_until_complete(self.loop.shutdown_default_executor())
            self.loop.close()
            shutil.rmtree(self.folder)

    # ------------------------------------------------------------ asking both

    def ask(self, wish, h=0):
        """The same wish to both; their common answer."""
        answers = []
        self.real[h]._owners._known.clear()  # it is believed for a second, and nobody waits here
        for store in (self.real[h], self.model[h]):
            try:
                answers.append(self.loop.run_until_complete(wish(store)))
            except CairnError as error:
                answers.append((type(error), str(error)))
        real, model = answers
        assert real == model
        return real

    def refusal(self, answer):
        return isinstance(answer, tuple) and len(answer) == 2 and isinstance(answer[0], type)

    def caught_up(self, run):
        """The story of a run as it stands in the store."""
        story = self.stories[run]
        story.follow(self.ask(lambda s: s.read(run, story.state.seq)))
        return story

    # ------------------------------------------------------------ rules

    @rule(
        target=runs,
        h=handles,
        name=st.sampled_from([*NAMES, "m1"]),
        session=st.sampled_from(["", "s", "t"]),
        behind=st.sampled_from(["", "r0"]),
    )
    def another(self, h, name, session, behind):
        name = self.create(h, name, session, behind if session else "")
        return multiple(name) if name else multiple()

    def create(self, h, name, session, behind=""):
        story = Story(name, session=session, behind=behind)
        entries = story.begin()
        answer = self.ask(lambda s: s.create(story.new, entries, story.index), h)
        if answer is not None:
            return None
        self.stories[name] = story
        self.epochs[name] = 0
        return name

    @rule(target=runs, h=handles, parent=runs, data=st.data())
    def fork(self, h, parent, data):
        free = [name for name in NAMES if name not in self.stories]
        assume(parent in self.stories and free)
        name = free[0]
        origin = self.caught_up(parent)
        at = data.draw(st.integers(1, len(origin.entries)))
        story = Story(name, parent=origin, at=at)
        entries = story.begin()
        assert self.ask(lambda s: s.create(story.new, entries, story.index), h) is None
        self.stories[name] = story
        self.epochs[name] = 0
        return name

    @rule(h=handles, run=runs)
    def claim(self, h, run):
        claim = self.ask(lambda s: s.claim(run), h)
        if claim is not None and not self.refusal(claim):
            assert claim.epoch == self.epochs[run] + 1
            self.epochs[run] = claim.epoch

    @rule(
        h=handles,
        run=runs,
        claimed=st.sampled_from([True, True, True, False]),
        off=st.sampled_from([0] * 8 + [-1, 1]),
        told=st.lists(st.sampled_from(sorted(scenes(Story("x")))), max_size=4),
        behind=st.sampled_from([False] * 5 + [True]),
        release=st.booleans(),
        indexed=st.sampled_from([True, True, True, False]),
    )
    def append(self, h, run, claimed, off, told, behind, release, indexed):
        assume(run in self.stories)
        if claimed:
            self.claim(h, run)
        story = copy.copy(self.caught_up(run))
        story.entries = list(story.entries)
        before = len(story.entries)
        for scene in told:
            with contextlib.suppress(IllegalTransition, KeyError):
                scenes(story)[scene]()
        entries = story.entries[before - behind :]
        index = story.index if indexed or len(entries) == 0 else None
        epoch = self.epochs[run] + off
        answer = self.ask(lambda s: s.append(run, epoch, entries, index, release=release), h)
        if answer is None:
            assert epoch == self.epochs[run]
            self.stories[run] = story

    @rule(h=handles, run=runs, command=st.sampled_from(COMMANDS), fresh=st.booleans())
    def submit(self, h, run, command, fresh):
        seen = RunState(run=run)
        if run in self.stories and not fresh:
            seen = self.stories[run].state
        self.ask(lambda s: s.submit(run, seen, command, NOW, "ann"), h)

    @rule(
        h=handles,
        session=st.sampled_from(["s", "t", "u"]),
        of=st.sampled_from(["s", "t"]),
        data=st.data(),
    )
    def said(self, h, session, of, data):
        head = self.ask(head_of_facts, h)
        facts = [
            ev.SessionTitled(session=session, title=data.draw(st.sampled_from(["", "Lamps"]))),
            ev.SessionForked(session=session, run=data.draw(st.sampled_from(NAMES)), of=of),
            *(
                ev.SessionRewound(session=session, run=run, newest=newest.run)
                for newest in self.ask(lambda s: s.runs(RunFilter(session=session, limit=1)), h)
                for run in NAMES
            ),
        ]
        entry = ev.Entry(seq=head + 1, at=LATER, event=data.draw(st.sampled_from(facts)))
        self.ask(lambda s: s.keep(head, [entry]), h)

    @rule(h=handles, trouble=st.sampled_from(["die", "reopen", "freeze"]))
    def meet(self, h, trouble):
        real, model = self.real[h], self.model[h]
        if trouble == "freeze":
            connection = real._writer._connection
            stop = "UPDATE owner SET beat = ? WHERE token = ?"
            connection.execute(stop, (LONG_AGO, real._owners.token))
            if real._owners._lock is not None:
                model.freeze()
            return
        if trouble == "reopen":
            self.loop.run_until_complete(real.close())
            self.loop.run_until_complete(model.close())
        else:
            real._watch.stop()
            if real._owners._lock is not None:
                os.close(real._owners._lock)
                real._owners._lock = None
            self.gone.append(real)
            model.crash()
        self.real[h] = SqliteStore(self.settings)
        self.model[h] = model.beside()

    @rule(h=handles, before=st.sampled_from([NOW, LATER]), dry=st.booleans())
    def prune(self, h, before, dry):
        removed = self.ask(lambda s: s.prune(before, dry_run=dry), h)
        if not dry:
            for run in removed:
                del self.stories[run], self.epochs[run]

    # ------------------------------------------------------------ what always holds

    @invariant()
    def what_was_acknowledged_is_there_and_both_say_the_same(self):
        for run in NAMES:
            entries = self.ask(lambda s, run=run: s.read(run))
            if run not in self.stories:
                assert self.refusal(entries)
                continue
            told = self.stories[run].entries
            assert entries[: len(told)] == told
            assert [e.seq for e in entries] == list(range(1, len(entries) + 1))
            assert self.ask(lambda s, run=run: s.verify(run), 1) == len(entries)

    @invariant()
    def the_lists_are_the_same(self):
        for h in (0, 1):
            self.ask(lambda s: s.runs(RunFilter()), h)
        for h in (0, 1):
            self.ask(lambda s: s.sessions(), h)
            self.ask(lambda s: s.unread(["shop"]), h)
            self.ask(lambda s: s.message("m1"), h)
            for session in ("s", "t", "u"):
                self.ask(lambda s, session=session: s.session_head(session), h)
                self.ask(lambda s, session=session: s.session_open(session), h)
                self.ask(lambda s, session=session: s.session(session), h)
        self.ask(lambda s: s.runs(RunFilter(session="s", status=("queued", "running"))))
        self.ask(lambda s: s.pending())
        self.ask(lambda s: s.session_head("s"))

    @invariant()
    def the_same_runs_can_be_driven(self):
        for h in (0, 1):
            self.ask(lambda s: s.runnable(["shop"], NOW), h)
            self.ask(lambda s: s.runnable([], LATER, 2), h)

    @invariant()
    def the_journal_of_the_store_is_whole(self):
        self.ask(lambda s: s.verify("store"))


@pytest.mark.slow
@pytest.mark.timeout(600)
class TestBeside(Beside.TestCase):
    settings = settings(stateful_step_count=30)
