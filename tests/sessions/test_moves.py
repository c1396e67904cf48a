"""Forks, rewinds and titles of sessions; and that nothing of one reaches another principal."""

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.kit import events, names, runtime, texts

from cairn import ConfigError, IllegalTransition, Principal, SessionBusy, UnknownRun, call
from cairn.core import events as ev
from cairn.core.messages import Blob, Text
from cairn.core.titles import TITLE_COLUMNS, title_of
from cairn.store.inmemory import InMemoryStore


def echo(request):
    """Says all it was asked."""
    return " | ".join(texts(request))


async def talk(rt, *said, session="s", principal="local"):
    """A session with a run for each of these; their ids."""
    runs = []
    for text in said:
        run = await rt.send_async(session, text, agent="a", principal=principal)
        assert run.status == "completed"
        runs.append(run.id)
    return runs


# ---------------------------------------------------------------- rewind


def test_a_rewound_session_goes_on_from_the_earlier_run_and_the_later_ones_stay(tmp_path):
    async def main():
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            one, two, three = await talk(rt, "one", "two", "three")
            before = await rt.store.rows(three)
            assert await rt.rewind_async("s", one)
            assert not await rt.rewind_async("s", one), "it stands there already"
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            four = await rt.send_async("s", "four")
            assert four.text == "one | four"
            assert await rt.store.rows(three) == before
            seen = await rt.session_async("s")
            assert [r.run for r in seen.chain] == [one, four.id]
            assert [r.run for r in seen.superseded] == [two, three]
            facts = [e.event for e in await rt.store.read("store")]
            assert facts == [ev.SessionRewound(session="s", run=one, newest=three)]
            for run in (one, two, three, four.id, "store"):
                assert await rt.store.verify(run) > 0

    asyncio.run(main())


def test_a_rewind_is_taken_back_by_a_rewind_to_a_superseded_run():
    async def main():
        rt = runtime(echo)
        one, two = await talk(rt, "one", "two")
        await rt.rewind_async("s", one)
        await talk(rt, "other")
        await rt.rewind_async("s", two)
        assert (await rt.send_async("s", "three")).text == "one | two | three"
        seen = await rt.session_async("s")
        assert [r.run for r in seen.chain][:2] == [one, two]
        assert len(seen.superseded) == 1

    asyncio.run(main())


def test_a_session_at_work_is_not_rewound_and_no_session_to_a_run_that_is_not_its_own():
    async def main():
        rt = runtime(
            lambda r: call("ask_user", question="?") if "wait" in texts(r)[-1] else echo(r)
        )
        (one,) = await talk(rt, "one")
        (other,) = await talk(rt, "else", session="t")
        await rt.send_async("s", "wait", mode="queue")
        with pytest.raises(SessionBusy):
            await rt.rewind_async("s", one)
        with pytest.raises(UnknownRun, match="has no run"):
            await rt.rewind_async("s", other)
        with pytest.raises(UnknownRun, match="no session"):
            await rt.rewind_async("nobody", one)
        assert await rt.store.read("store") == []

    asyncio.run(main())


def test_messages_that_a_superseded_run_took_over_are_not_read_again_after_a_rewind():
    async def main():
        rt = runtime(lambda r: call("ask_user", question="?") if len(texts(r)) == 1 else echo(r))
        await rt.run_async("a", "one", id="r1", session="s")
        await rt.post_async("s", "unread")
        await rt.cancel_async("r1")
        await rt.drive_async("r1")
        (two,) = await talk(rt, "two")
        assert (await rt.get_async(two)).text == "one | unread | two"
        await rt.rewind_async("s", "r1")
        await rt.work_async(until_idle=True)
        assert len(await rt.runs_async(session="s")) == 2
        assert (await rt.send_async("s", "three")).text == "one | three"

    asyncio.run(main())


# ---------------------------------------------------------------- fork


def test_a_forked_session_goes_on_from_a_run_of_another_and_both_go_their_own_way(tmp_path):
    async def main():
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            one, two = await talk(rt, "one", "two")
            assert await rt.fork_session_async("s", "f", at=one) == one
            assert await rt.fork_session_async("s", "g") == two
        async with runtime(echo, store=tmp_path / "s.db") as rt:
            listed = [(i.session, i.title, i.runs) for i in await rt.sessions_async()]
            assert listed == [("g", "one", 0), ("f", "one", 0), ("s", "one", 2)]
            assert (await rt.send_async("f", "in f")).text == "one | in f"
            assert (await rt.send_async("s", "in s")).text == "one | two | in s"
            assert (await rt.send_async("g", "in g")).text == "one | two | in g"
            seen = await rt.session_async("f")
            assert seen.chain[0].run == one
            assert seen.superseded == ()
            assert (await rt.session_async("s")).superseded == ()

    asyncio.run(main())


def test_a_session_is_not_forked_over_another_one_nor_from_a_run_at_work():
    async def main():
        rt = runtime(
            lambda r: call("ask_user", question="?") if "wait" in texts(r)[-1] else echo(r)
        )
        (one,) = await talk(rt, "one")
        await talk(rt, "other", session="t")
        for name in ("s", "t"):
            with pytest.raises(ConfigError, match="new"):
                await rt.fork_session_async("s", name)
        await rt.send_async("s", "wait", mode="queue")
        with pytest.raises(IllegalTransition, match="not over"):
            await rt.fork_session_async("s", "f")
        assert await rt.fork_session_async("s", "f", at=one) == one
        with pytest.raises(UnknownRun):
            await rt.fork_session_async("s", "g", at="nothing")
        with pytest.raises(ConfigError, match="there is a session"):
            await rt.fork_session_async("s", "f", at=one)

    asyncio.run(main())


def test_two_who_fork_or_rewind_at_once_both_find_a_whole_session():
    async def main():
        store = InMemoryStore()
        rts = [runtime(echo, store=store.beside()) for _ in range(4)]
        one, two, three = await talk(rts[0], "one", "two", "three")
        wishes = [
            rts[0].rewind_async("s", one),
            rts[1].rewind_async("s", two),
            rts[2].fork_session_async("s", "f", at=three),
            rts[3].fork_session_async("s", "f", at=one),
        ]
        outcomes = await asyncio.gather(*wishes, return_exceptions=True)
        assert sum(isinstance(o, ConfigError) for o in outcomes) == 1
        assert not [
            o for o in outcomes if isinstance(o, Exception) and not isinstance(o, ConfigError)
        ]
        head = await store.session_head("s")
        last = [
            e.event for e in await store.read("store") if isinstance(e.event, ev.SessionRewound)
        ]
        assert head.run == last[-1].run

    asyncio.run(main())


# ---------------------------------------------------------------- titles


def test_a_session_is_called_by_its_first_words_until_a_person_names_it():
    async def main():
        rt = runtime(echo)
        await talk(rt, "Please refund order 7", "and order 8")
        (info,) = await rt.sessions_async()
        assert info.title == "Please refund order 7"
        assert await rt.title_session_async("s", "  Lamps,\n broken ")
        assert not await rt.title_session_async("s", "Lamps, broken")
        (info,) = await rt.sessions_async()
        assert info.title == "Lamps, broken"
        assert await rt.title_session_async("s", "")
        assert (await rt.session_async("s")).title == "Please refund order 7"
        facts = [e.event.title for e in await rt.store.read("store")]
        assert facts == ["Lamps, broken", ""]
        with pytest.raises(ConfigError, match="title"):
            await rt.title_session_async("s", "x" * 500)
        with pytest.raises(UnknownRun):
            await rt.title_session_async("nobody", "x")

    asyncio.run(main())


@pytest.mark.parametrize(
    ("said", "title"),
    [
        ("hello", "hello"),
        ("  two\n\nlines ", "two lines"),
        ("", ""),
        (
            "Refund the order of the customer who called this morning about a lamp",
            "Refund the order of the customer who called this morning…",
        ),
        (
            "请帮我查一下订单七的状态" * 4,
            "请帮我查一下订单七的状态请帮我查一下订单七的状态请帮我查一…",
        ),
        ("x" * 80, "x" * 59 + "…"),
    ],
)
def test_titles_are_cut_between_words_and_between_wide_characters(said, title):
    assert title_of((Text(said),)) == title


@given(st.text(max_size=200))
def test_a_title_is_one_short_line_whatever_was_said(said):
    title = title_of((Text(said),))
    assert "\n" not in title
    assert len(title) <= TITLE_COLUMNS
    assert title == title_of((Text(said),))
    title.encode()


def test_a_session_that_began_with_a_file_is_called_by_the_file():
    assert title_of((Blob(mime_type="image/png", content=b"x", name="lamp.png"),)) == "lamp.png"


# ---------------------------------------------------------------- whose it is


OTHERS = [Principal(id="eve"), Principal(id="ann", tenant="other"), "eve"]


@pytest.mark.parametrize("other", OTHERS)
@pytest.mark.parametrize("mode", ["steer", "queue", "interrupt"])
def test_no_verb_finds_another_principals_session(other, mode):
    """B54: the session's name alone opens nothing, moves nothing and tells nothing."""

    async def main():
        rt = runtime(lambda r: call("ask_user", question="?") if len(texts(r)) == 2 else echo(r))
        ann = Principal(id="ann", tenant="acme")
        (one,) = await talk(rt, "secret", principal=ann)
        for at_work in (False, True):
            if at_work:
                await rt.send_async("s", "more", principal=ann)
            before = [await rt.store.rows(r.run) for r in await rt.runs_async()]
            for attempt in (
                rt.send_async("s", "hi", principal=other, mode=mode),
                rt.post_async("s", "hi", principal=other, mode=mode, agent="a", id="1"),
                rt.run_async("a", "hi", session="s", principal=other, mode="queue"),
                rt.session_async("s", principal=other),
                rt.fork_session_async("s", "mine", principal=other),
                rt.rewind_async("s", one, principal=other),
                rt.title_session_async("s", "mine", principal=other),
            ):
                with pytest.raises(UnknownRun, match="no session"):
                    await attempt
            assert [await rt.store.rows(r.run) for r in await rt.runs_async()] == before
            if isinstance(other, Principal):
                assert await rt.sessions_async(principal=other) == []
        assert await rt.store.read("store") == []
        assert [i.session for i in await rt.sessions_async(principal=ann)] == ["s"]

    asyncio.run(main())


def test_a_forked_session_belongs_to_whom_the_first_one_belonged():
    async def main():
        rt = runtime(echo)
        await talk(rt, "secret", principal="ann")
        await rt.fork_session_async("s", "f", principal="ann")
        for verb in (
            rt.send_async("f", "hi", principal="eve"),
            rt.session_async("f", principal="eve"),
        ):
            with pytest.raises(UnknownRun):
                await verb
        assert (await rt.send_async("f", "hi", principal="ann")).text == "secret | hi"
        assert "run.forked" not in names(await rt.trace_async((await rt.runs_async())[0].run))
        assert events(await rt.store.read("store"), ev.SessionForked)[0].of == "s"

    asyncio.run(main())
