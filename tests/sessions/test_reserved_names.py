"""What routing makes is nobody's to take: neither its conversations nor their shared principals."""

import pytest

from cairn import Agent, ConfigError, Principal, Route, Runtime, Scripted, UnknownRun
from cairn.core.routed import is_routed

BOB = "front/principal//bob"
ROOM = "front/channel///room"
SHARED = f"shared:{ROOM}"
ROUTES = [
    Route(agent="front", channel="mail"),
    Route(agent="front", channel="room", session="channel", shared=True),
    Route(agent="front", channel="desk", session="thread", project="shop"),
    Route(agent="front", channel="keyed", session="key"),
]


def model(request):
    said = [p.content for m in request.messages if m.role == "user" for p in m.parts]
    return "; ".join(said)


def runtime(path=":memory:", routes=ROUTES):
    return Runtime(path, [Agent("front", Scripted(model))], routes=routes)


@pytest.mark.parametrize("session", [BOB, ROOM, "front/thread/t/ann/desk/7/project=shop"])
def test_a_session_that_is_called_as_routing_calls_one_cannot_be_begun_by_hand(session):
    with runtime(routes=[]) as rt:
        begin = (
            lambda: rt.send(session, "mine", agent="front", principal="eve"),
            lambda: rt.post(session, "mine", agent="front", principal="eve"),
            lambda: rt.run("front", "mine", session=session, principal="eve"),
            lambda: rt.start("front", "mine", session=session, principal="eve"),
            lambda: rt.enqueue("front", "mine", session=session, principal="eve"),
            lambda: list(rt.stream("front", "mine", session=session, principal="eve")),
        )
        for way in begin:
            with pytest.raises(ConfigError, match=r"session: .* as only routing calls"):
                way()
        rt.run("front", "x", session="s", principal="eve")
        with pytest.raises(ConfigError, match=r"new: .* as only routing calls"):
            rt.fork_session("s", session, principal="eve")
        assert [info.session for info in rt.sessions()] == ["s"]


def test_whoever_was_faster_does_not_lock_out_those_for_whom_a_conversation_is():
    with runtime() as rt:
        for name in (BOB, ROOM):
            with pytest.raises(ConfigError):
                rt.send(name, "mine", agent="front", principal="eve")
        assert rt.receive(channel="mail", principal="bob", text="hello").text == "hello"
        assert rt.receive(channel="room", principal="bob", text="one").text == "one"
        assert rt.receive(channel="room", principal="ann", text="two").text == "one; two"


def test_a_principal_that_is_called_like_a_shared_one_gets_in_nowhere():
    with runtime() as rt:
        rt.receive(channel="room", principal="bob", text="bob's words")
        head = rt.sessions()[0].head
        for who in (SHARED, Principal(id=SHARED, roles=("admin",)), "shared:"):
            ways = (
                lambda who=who: rt.send(ROOM, "?", principal=who),
                lambda who=who: rt.post(ROOM, "?", principal=who),
                lambda who=who: rt.run("front", "?", session=ROOM, principal=who),
                lambda who=who: rt.run("front", "?", principal=who),
                lambda who=who: rt.session(ROOM, principal=who),
                lambda who=who: rt.fork_session(ROOM, "mine", principal=who),
                lambda who=who: rt.rewind(ROOM, head, principal=who),
                lambda who=who: rt.title_session(ROOM, "mine", principal=who),
                lambda who=who: rt.receive(channel="mail", principal=who, text="?"),
                lambda who=who: rt.route(channel="mail", principal=who),
            )
            for way in ways:
                with pytest.raises(ConfigError, match=r"principal: .* of a shared conversation"):
                    way()
        assert len(rt.runs()) == 1


def test_the_owner_of_a_routed_conversation_looks_at_it_and_goes_on_in_it_by_its_name():
    with runtime() as rt:
        first = rt.receive(channel="mail", principal="bob", text="one")
        assert rt.send(BOB, "two", principal="bob").text == "one; two"
        assert rt.run("front", "three", session=BOB, principal="bob").text == "one; two; three"
        assert rt.rewind(BOB, first.id, principal="bob")
        assert rt.title_session(BOB, "Letters", principal="bob")
        assert rt.session(BOB, principal="bob").title == "Letters"
        rt.fork_session(BOB, "mine", principal="bob")
        assert rt.receive(channel="mail", principal="bob", text="four").text == "one; four"
        with pytest.raises(UnknownRun):
            rt.send(BOB, "mine", principal="eve")


def test_a_routed_run_that_waits_is_gone_on_with_by_its_owner():
    with runtime() as rt:
        posted = rt.accept(channel="mail", principal="bob", text="one")
        assert rt.enqueue("front", "two", session=BOB, principal="bob", mode="queue")
        rt.work(until_idle=True)
        assert rt.follow(posted).text == "one"


def test_every_name_that_a_route_makes_is_reserved():
    with runtime() as rt:
        for channel in ("mail", "room", "desk", "keyed"):
            for who in (Principal(id="a/b", tenant="t/ü"), Principal(id="project=x")):
                for key in ("", "k/1", "project=k"):
                    assert is_routed(rt.route(channel=channel, principal=who, key=key).session)


@pytest.mark.parametrize(
    "session",
    ["ann-1", "a/b/c/d", "front/principal", "front/principal/x", "principal/a/b", "f/key/a/b",
     "/principal//bob", "front/principal//bob/more", "x/thread/a/b/c"],
)  # fmt: skip
def test_other_names_are_free(session):
    with runtime() as rt:
        assert rt.send(session, "hello", agent="front", principal="eve").status == "completed"
