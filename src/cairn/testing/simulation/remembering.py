"""Worlds full of memory: what runs remember outlives them, people meddle with it, and leave.

Several people share a project. Their runs keep, look up and forget facts, search what was said
before, and find tools and skills, also in threads that end late or never. People review facts, put
sessions back, fork them, prune what is old, and have everything about themselves erased. What must
hold all the same: what was acknowledged is there once, nobody is told what is not theirs or is gone
or was never accepted, and of who was erased nothing is left.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context as Surroundings
from contextvars import copy_context
from functools import partial
from typing import TYPE_CHECKING

from cairn.core.messages import Principal
from cairn.engine.sessions import Conversation
from cairn.errors import IllegalTransition, SessionBusy
from cairn.memory.facts import Fact, Trust
from cairn.memory.rules import MemoryRules
from cairn.ports import ReplyCall
from cairn.testing.simulation.facts import ABOUT

if TYPE_CHECKING:
    from cairn.testing.simulation.chance import Chance
    from cairn.testing.simulation.people import People
    from cairn.testing.simulation.process import Process

DISTURBANCES = {
    "process: crash": 0.05,
    "process: short freeze": 0.03,
    "process: freeze past the lease": 0.04,
    "process: drained": 0.02,
    "clock: set forward": 0.03,
    "clock: set back": 0.03,
    "people: remember a fact": 0.08,
    "people: accept a fact": 0.12,
    "people: reject a fact": 0.03,
    "people: forget a fact": 0.05,
    "people: look a fact up": 0.05,
    "people: erase facts": 0.015,
    "people: erase a principal": 0.02,
    "people: put a session back": 0.12,
    "people: fork a session": 0.05,
    "people: prune": 0.04,
    "people: decide": 0.1,
    "people: message": 0.05,
    "people: session message": 0.14,
    "people: pause": 0.02,
    "people: resume": 0.03,
    "people: cancel": 0.03,
    "people: retry an ended run": 0.04,
    "people: run it again": 0.02,
}
"""How likely each is, per disturbance laid out."""
THREAD_FAULTS = {
    "thread: cannot be started": 0.03,
    "thread: slow": 0.05,
    "thread: outlasts its time": 0.03,
    "thread: crash while it works": 0.03,
    "thread: frozen while it works": 0.03,
}
"""How likely each way is that blocking work beside the loop goes wrong."""
KINDS = (
    "remember",
    "remember",
    "remember",
    "recall",
    "recall",
    "recall",
    "forget",
    "search_history",
    "search_history",
    "find_tools",
    "load_skill",
    "update_plan",
    "look",
    "fetch",
    "post",
    "refund",
    "secret",
)
"""What the model asks for there."""
BESIDE = frozenset({"search_history", "find_tools", "load_skill", "update_plan"})
"""Those that work in threads."""
PROJECT = "orchard"
SCOPES = ("user", "project")
REVIEWED: tuple[Trust, ...] = ("owner", "agent")
LOOKS = 10
"""How often somebody who wants to review a fact or to move a session looks whether they can."""
RULES = MemoryRules(project=PROJECT, agents=("clerk", "keeper", "saver"))
WHO = ("ann", "bob")
MOST = 7
"""Facts are asked for by numbers up to here."""
SKILL = """---
name: picking
description: How fruit is picked. Use it whenever fruit is to be picked.
---

# Picking

Twist, and do not pull.
"""
ACTS = frozenset(
    {
        "remember a fact",
        "accept a fact",
        "reject a fact",
        "forget a fact",
        "look a fact up",
        "erase facts",
        "erase a principal",
        "put a session back",
        "fork a session",
        "prune",
    }
)


def whose(chance: Chance, run: str) -> Principal:
    """For whom a task is."""
    return Principal(id=chance.pick(f"whose {run}", WHO))


# ---------------------------------------------------------------- the model


def call_of(chance: Chance, run: str, place: str) -> ReplyCall:
    """A call that a model in such a world makes."""
    tool = chance.pick(place, KINDS)
    n, about = chance.between(place, 1, MOST), chance.pick(place, ABOUT)
    ways: dict[str, Callable[[], str]] = {
        "remember": partial(_to_remember, chance, run, place, about),
        "recall": lambda: f'"query":"{about}","limit":{n}',
        "forget": lambda: f'"id":"m{n}"',
        "search_history": lambda: f'"query":"{about} or what was found","limit":3',
        "find_tools": lambda: '"query":"weigh the basket"',
        "load_skill": lambda: f'"name":"{"picking" if n > 1 else "nothing"}"',
        "update_plan": lambda: f'"items":[{{"text":"pick the {about}"}}]',
    }
    arguments = ways.get(tool, lambda: f'"n":{n % 4}')()
    return ReplyCall(name=tool, arguments=f"{{{arguments}}}")


def _to_remember(chance: Chance, run: str, place: str, about: str) -> str:
    draw = chance.draw(place)
    text = f"{about} is ripe" if draw < 0.2 else f"{about} was picked by {run} at {place}"
    scope = chance.pick(place, ("user", "user", "project", "agent"))
    said = f'"text":"{text}","scope":"{scope}"'
    if chance.draw(place) < 0.4:
        said += f',"supersedes":"m{chance.between(place, 1, MOST)}"'
    if chance.draw(place) < 0.15:
        said += f',"expires_days":{chance.pick(place, (0.0001, 0.0005))}'
    return said


# ---------------------------------------------------------------- threads


def in_a_thread(process: Process, name: str, work: Callable[[], None]) -> None:
    """Blocking work beside the loop of a process, which ends when the seed says.

    Whatever becomes of the process meanwhile: what comes of it waits until that is served again.

    Raises:
        RuntimeError: the system has no more threads.
    """
    world = process.world
    place = f"{process.name} {name}"
    kind = world.chance.incident(place, THREAD_FAULTS)
    seconds = world.chance.draw(place) * 0.2
    if kind == "thread: cannot be started":
        raise RuntimeError("can't start new thread")
    if kind == "thread: slow":
        seconds += 15
    elif kind == "thread: outlasts its time":
        seconds += 65
    elif kind == "thread: crash while it works":
        world.later(seconds / 2, process.die)
    elif kind == "thread: frozen while it works":
        world.later(seconds / 2, partial(process.freeze, 31 + world.chance.draw(place) * 60))
    around = copy_context()
    world.threads.append(thread := Thread(process, partial(around.run, work)))
    world.loop.call_later(seconds, thread, context=Surroundings())


class Thread:
    """A thread of a process, as the world sees it, and whether it has ended."""

    def __init__(self, process: Process, work: Callable[[], None]) -> None:
        self.process = process
        self.over = False
        self._work = work

    def __call__(self) -> None:
        self.over = True
        self._work()


# ---------------------------------------------------------------- people


async def act(people: People, what: str, place: str) -> None:
    """One of the things that people do in such a world."""
    chance, rt = people.chance, people.world.people.rt
    who = chance.pick(place, WHO)
    match what:
        case "remember a fact":
            await _remember(people, who, place)
        case "accept a fact" | "reject a fact":
            await _review(people, what, place)
        case "forget a fact":
            await rt.forget_fact_async(f"m{chance.between(place, 1, MOST)}", by=who)
        case "look a fact up":
            await rt.recall_async(chance.pick(place, ABOUT), principal=who, agent="clerk")
        case "erase facts":
            await rt.erase_facts_async(who, by="dan")
        case "erase a principal":
            await rt.erase_async(who, force=chance.draw(place) < 0.6, by="dan")
        case "put a session back" | "fork a session":
            await _move(people, what, place)
        case "prune":
            now = people.clock.now_us()
            before = now - chance.between(place, 0, 10) * 1_000_000
            await people.client.store.prune(before, now=now)


async def _remember(people: People, who: str, place: str) -> None:
    """Somebody adds a fact; often it takes the place of one that they share."""
    chance, rt = people.chance, people.world.people.rt
    about, scope = chance.pick(place, ABOUT), chance.pick(place, SCOPES)
    text = f"{about} is what {who} likes, says {place}"
    old = [
        fact
        for fact in await rt.facts_async(state="live")
        if (fact.scope.kind, fact.scope.name) in {("user", who), ("project", PROJECT)}
        and fact.scope.kind == scope
    ]
    if not old or chance.draw(f"{place} replaces") < 0.3:
        await rt.remember_async(text, principal=who, scope=scope)
        return
    known = chance.pick(f"{place} replaces", old)
    if chance.draw(f"{place} says the same") < 0.2:
        text = chance.pick(f"{place} says the same", old).text
    await rt.remember_async(text, principal=who, scope=scope, supersedes=known.id)


async def _review(people: People, what: str, place: str) -> None:
    chance, rt = people.chance, people.world.people.rt
    waiting: list[Fact] = []
    for _ in range(LOOKS):
        waiting = await rt.facts_async(state="waiting")
        if what == "reject a fact":  # or one that counts already, in place of another
            replaced = {fact.successor for fact in await rt.facts_async(state="superseded")}
            waiting += [f for f in await rt.facts_async(state="live") if f.n in replaced]
        if waiting:
            break
        await asyncio.sleep(chance.draw(place) * 6)
    else:
        return
    fact = chance.pick(place, waiting).id
    if what == "accept a fact":
        trust = chance.pick(place, REVIEWED)
        await rt.accept_fact_async(fact, by="dan", trust=trust)
    else:
        await rt.reject_fact_async(fact, by="dan")


async def _move(people: People, what: str, place: str) -> None:
    """Let a session go on from an earlier run, or begin another one there; then say something."""
    chance, rt = people.chance, people.world.people.rt
    for _ in range(LOOKS):
        long = [info for info in await rt.sessions_async() if info.runs > 1]
        if long:
            info = chance.pick(place, long)
            talk = await rt.session_async(info.session, principal=info.principal)
            runs = [run.run for run in (*talk.chain, *talk.superseded) if run.run != info.head]
            with suppress(SessionBusy, IllegalTransition):  # not all is over there: they look again
                session = await _moved(people, what, talk, chance.pick(place, runs))
                if chance.draw(place) < 0.8:
                    await people.say_more(session, info.principal)
                return
        await asyncio.sleep(chance.draw(place) * 8)


async def _moved(people: People, what: str, talk: Conversation, to: str) -> str:
    """The session that goes on from this run from here on."""
    rt, info = people.world.people.rt, talk.info
    if what == "put a session back":
        await rt.rewind_async(info.session, to, principal=info.principal)
        return info.session
    people.made += 1
    new = f"{info.principal}-f{people.made}"
    await rt.fork_session_async(info.session, new, at=to, principal=info.principal)
    return new


async def the_last_wish(people: People) -> Principal:
    """When all is over, somebody has everything about themselves erased, and nothing is in the way.

    Raises:
        CairnError: it was refused.
    """
    who = Principal(id=people.chance.pick("last wish", WHO))
    await people.world.people.rt.erase_async(who, by="dan", reason="asked")
    return who
