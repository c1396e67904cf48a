"""Where a message from outside goes: the most specific route, or a clear error; never a guess."""

import asyncio
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.engine.kit import texts

from cairn import Agent, ConfigError, NoRoute, Principal, Route, Runtime, Scripted, call
from cairn.runtime.routing import glob_fits, globs_meet


def echo(request):
    """Says all it was asked."""
    return " | ".join(texts(request))


def desk(*routes, script=echo):
    """A runtime with three agents and these routes."""
    agents = [Agent(name, Scripted(script)) for name in ("shop", "tech", "boss")]
    return Runtime(":memory:", agents=agents, routes=list(routes))


# ---------------------------------------------------------------- which route


def test_the_most_specific_route_decides_whatever_the_order_they_are_given_in():
    routes = [
        Route(agent="shop"),
        Route(agent="tech", channel="mail"),
        Route(agent="tech", channel="mail", pattern="bug-*"),
        Route(agent="shop", channel="mail", key="bug-7"),
        Route(agent="boss", principal="ann"),
        Route(agent="shop", principal="ann", channel="mail"),
    ]
    wanted = {
        ("", "bob", ""): "everything to shop",
        ("chat", "bob", "bug-1"): "everything to shop",
        ("mail", "bob", ""): "channel 'mail' to tech",
        ("mail", "bob", "bug-1"): "channel 'mail', pattern 'bug-*' to tech",
        ("mail", "bob", "bug-7"): "channel 'mail', key 'bug-7' to shop",
        ("chat", "ann", "bug-7"): "principal 'ann' to boss",
        ("mail", "ann", "bug-7"): "channel 'mail', principal 'ann' to shop",
    }
    for order in (routes, routes[::-1]):
        rt = desk(*order)
        for (channel, principal, key), route in wanted.items():
            assert rt.route(channel=channel, principal=principal, key=key).route == route


def test_no_route_is_an_error_that_names_what_was_asked_and_the_nearest():
    async def main():
        rt = desk(
            Route(agent="shop", channel="mail", key="orders"),
            Route(agent="tech", channel="chat", pattern="bug-*"),
        )
        with pytest.raises(NoRoute) as caught:
            await rt.receive_async(channel="mail", principal="ann", key="order", text="hi")
        said = str(caught.value)
        for word in ("'mail'", "'ann'", "'order'", "channel 'mail', key 'orders' to shop"):
            assert word in said
        assert (caught.value.channel, caught.value.key) == ("mail", "order")
        with pytest.raises(NoRoute, match="the nearest is"):
            rt.route(channel="chatt", principal="ann", key="bug-1")
        with pytest.raises(NoRoute, match="has no routes"):
            desk().route(channel="mail", principal="ann")
        assert await rt.runs_async() == []

    asyncio.run(main())


@pytest.mark.parametrize(
    ("one", "two"),
    [
        (Route(agent="shop"), Route(agent="tech")),
        (Route(agent="shop", channel="mail"), Route(agent="tech", channel="mail")),
        (Route(agent="shop", pattern="a*"), Route(agent="tech", pattern="*b")),
        (Route(agent="shop", pattern="a?c"), Route(agent="tech", pattern="ab*")),
        (Route(agent="shop", key="7"), Route(agent="shop", key="7", session="key")),
    ],
)
def test_routes_that_could_decide_alike_are_refused_when_the_runtime_is_made(one, two):
    with pytest.raises(ConfigError, match=r"Runtime\.routes.*equally specific"):
        desk(one, two)


def test_routes_that_no_message_fits_both_of_stand_side_by_side():
    desk(
        Route(agent="shop", channel="mail"),
        Route(agent="tech", channel="chat"),
        Route(agent="shop", pattern="a*"),
        Route(agent="tech", pattern="b*"),
        Route(agent="tech", pattern="c?"),
        Route(agent="tech", pattern="c"),
        Route(agent="boss", tenant="acme"),
        Route(agent="shop", tenant="other"),
    )


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"agent": ""}, "agent"),
        ({"agent": "nobody"}, "agent"),
        ({"session": "person"}, "session"),
        ({"key": "7", "pattern": "7*"}, "pattern"),
        ({"pattern": "x" * 300}, "pattern"),
        ({"shared": True}, "shared"),
        ({"shared": True, "session": "channel", "principal": "ann"}, "shared"),
        ({"mode": "later"}, r"Route\.mode"),
        ({"shared": "no", "session": "channel"}, r"Route\.shared.*True or False"),
        ({"channel": "a\0b"}, "channel"),
    ],
)
def test_a_route_that_cannot_work_is_refused_with_its_field(values, field):
    with pytest.raises(ConfigError, match=field):
        desk(Route(**{"agent": "shop"} | values))


def test_what_cannot_come_from_anywhere_is_refused_before_anything_is_written():
    rt = desk(Route(agent="shop"))
    for wrong in ({"principal": ""}, {"principal": "ann", "key": "x" * 2_000}):
        with pytest.raises(ConfigError):
            rt.route(**wrong)
    with pytest.raises(ConfigError, match="list of Route"):
        Runtime(":memory:", routes=["shop"])


# ---------------------------------------------------------------- which session


def test_by_default_each_principal_has_a_session_of_its_own_in_each_tenant():
    async def main():
        rt = desk(Route(agent="shop"))
        people = [Principal(id="ann"), Principal(id="bob"), Principal(id="ann", tenant="acme")]
        for who in people:
            assert (await rt.receive_async(principal=who, text="one")).text == "one"
        for who in people:
            run = await rt.receive_async(principal=who, text=f"two of {who.id}", channel="other")
            assert run.text == f"one | two of {who.id}"
        assert len({r.session for r in await rt.runs_async()}) == 3

    asyncio.run(main())


@pytest.mark.parametrize(
    ("scope", "sessions"), [("principal", 2), ("channel", 4), ("key", 4), ("thread", 8)]
)
def test_the_scope_says_what_has_a_conversation_of_its_own_and_never_mixes_people(scope, sessions):
    rt = desk(Route(agent="shop", session=scope))
    found: dict[str, set[str]] = {}
    for who in ("ann", "bob"):
        for channel in ("mail", "chat"):
            for key in ("7", "8"):
                to = rt.route(channel=channel, principal=who, key=key)
                found.setdefault(to.session, set()).add(to.principal.id)
    assert len(found) == sessions
    assert all(len(people) == 1 for people in found.values())


def test_people_share_a_session_only_where_the_route_says_so():
    async def main():
        rt = desk(Route(agent="shop", channel="room", session="thread", shared=True))
        boss = Principal(id="ann", roles=("boss",), tenant="acme")
        await rt.receive_async(channel="room", key="7", principal=boss, text="one")
        bob = Principal(id="bob", tenant="acme")
        run = await rt.receive_async(channel="room", key="7", principal=bob, text="two")
        assert run.text == "one | two"
        to = rt.route(channel="room", key="7", principal=boss)
        assert to.principal == Principal(id=f"shared:{to.session}", tenant="acme")
        assert to.principal.roles == (), "nobody's roles are lent to the others"
        eve = Principal(id="bob", tenant="other")
        assert (
            await rt.receive_async(channel="room", key="7", principal=eve, text="x")
        ).text == "x"

    asyncio.run(main())


NAMES = st.text(alphabet="a/%*é. -", max_size=4)
WHO = NAMES.filter(str.strip)
TENANTS = NAMES.filter(lambda name: not name or name.strip())


@given(st.lists(st.tuples(NAMES, WHO, TENANTS, NAMES), min_size=2, max_size=6, unique=True))
def test_two_places_never_have_the_same_session(places):
    rt = desk(Route(agent="shop", session="thread"))
    found = [
        rt.route(channel=channel, principal=Principal(id=who, tenant=tenant), key=key).session
        for channel, who, tenant, key in places
    ]
    assert len(set(found)) == len(places)


def test_the_mode_of_a_message_is_the_senders_then_the_routes_then_the_agents():
    async def main():
        rt = desk(
            Route(agent="shop", mode="queue"),
            script=lambda r: call("ask_user", question="?") if len(texts(r)) == 1 else echo(r),
        )
        await rt.receive_async(principal="ann", text="one")
        posted = await rt.accept_async(principal="ann", text="two", id="m")
        assert posted.how == "queued"
        again = await rt.accept_async(principal="ann", text="two", id="m")
        assert again.run == posted.run
        assert (await rt.accept_async(principal="ann", text="three", mode="steer")).how == "steered"

    asyncio.run(main())


# ---------------------------------------------------------------- patterns


@pytest.mark.parametrize(
    ("pattern", "fits", "not_fits"),
    [
        ("bug-*", ["bug-", "bug-7"], ["a bug-7", "bug", "Bug-7"]),
        ("*", ["", "x"], []),
        ("a?c", ["abc", "a中c"], ["ac", "abbc"]),
        ("*7*", ["7", "a7b"], ["8"]),
        ("a.b[c]", ["a.b[c]"], ["axb[c]", "a.bc"]),
        ("线程-*", ["线程-1"], ["线-1"]),
    ],
)
def test_a_pattern_is_held_against_the_whole_key(pattern, fits, not_fits):
    assert all(glob_fits(pattern, text) for text in fits)
    assert not any(glob_fits(pattern, text) for text in not_fits)


GLOBS = st.text(alphabet="ab?*", max_size=6)


@given(GLOBS, GLOBS, st.text(alphabet="ab", max_size=6))
def test_patterns_that_one_text_fits_are_known_to_meet(one, two, text):
    if glob_fits(one, text) and glob_fits(two, text):
        assert globs_meet(one, two)


@given(GLOBS, GLOBS)
def test_patterns_that_are_said_to_meet_have_a_text_that_fits_both(one, two):
    if globs_meet(one, two):
        pool = [""]
        for _ in range(len(one) + len(two)):
            pool = [word + char for word in pool for char in "ab"] + pool
            pool = list(dict.fromkeys(pool))[:2_000]
        short = max(len(one), len(two)) <= 3
        assert not short or any(glob_fits(one, t) and glob_fits(two, t) for t in pool)


def test_no_pattern_takes_long():
    started = time.perf_counter()
    assert not glob_fits("*a" * 120 + "b", "a" * 1_024)
    assert globs_meet("*a" * 60 + "*", "a*" * 60)
    assert time.perf_counter() - started < 5
