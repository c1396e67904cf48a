"""Worlds full of approvals: people decide, change what they approve, grant, revoke, take over.

Requests expire within seconds, processes come and go, and every decision may come twice, late, or
from somebody who may not take it. What must hold all the same: no call runs more than once on an
approval, and none without an approval or a standing grant that is in force.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.grants import NO_GRANTS, Grants, covers, fold_grants, grant_of
from cairn.core.index import Pending
from cairn.core.messages import calls_of
from cairn.core.state import RunState
from cairn.engine.backs import capped
from cairn.engine.granting import make_grant, revoke_grant
from cairn.engine.load import load
from cairn.errors import Refused
from cairn.ports import Beside
from cairn.testing.invariants import Violation
from cairn.tools.results import to_json

if TYPE_CHECKING:
    from cairn.testing.simulation.people import People

DISTURBANCES = {
    "people: decide": 0.2,
    "people: decide twice at once": 0.06,
    "people: approve with a change": 0.12,
    "people: edit a call": 0.04,
    "people: grant": 0.06,
    "people: revoke a grant": 0.06,
    "people: take over": 0.06,
    "people: act in its place": 0.06,
    "people: hand back": 0.05,
    "people: pause": 0.02,
    "people: resume": 0.03,
    "people: cancel": 0.02,
    "people: message": 0.03,
    "people: retry an ended run": 0.03,
    "people: run it again": 0.03,
    "process: crash": 0.06,
    "process: short freeze": 0.03,
    "process: freeze past the lease": 0.03,
    "process: drained": 0.02,
    "clock: set forward": 0.03,
    "clock: set back": 0.03,
}
"""How likely each is, per disturbance laid out."""
KINDS = ("refund", "refund", "refund", "ship", "wipe", "look", "pay")
"""What the model asks for there."""
NAMES = ("ann", "bob", "local")
ROLES = ((), ("lead",), ("clerk", "lead"))
LOOKS = 6
"""How often somebody who wants to change something looks for what there is to change."""
ACTS = frozenset(
    {
        "approve with a change",
        "edit a call",
        "grant",
        "revoke a grant",
        "take over",
        "act in its place",
        "hand back",
    }
)


async def act(people: People, what: str, place: str) -> None:
    """One of the things that people do in such a world."""
    match what:
        case "approve with a change" | "edit a call":
            await _change(people, what, place)
        case "grant":
            await _grant(people, place)
        case "revoke a grant":
            number = people.chance.between(place, 1, 4)
            await revoke_grant(people.client.store, people.clock, number, "", "ann")
        case "take over" | "act in its place" | "hand back":
            await _in_its_place(people, what, place)


def somebody(people: People, place: str) -> tuple[str, tuple[str, ...]]:
    """Who decides, and their roles: not everybody may."""
    return people.chance.pick(place, NAMES), people.chance.pick(place, ROLES)


async def decide(people: People, pending: Pending, place: str) -> None:
    """A yes or a no, by somebody."""
    who, roles = somebody(people, place)
    if people.chance.draw(place) < 0.8:
        await people.client.approve(pending.id, "", who, pending.digest, roles=roles)
    else:
        await people.client.deny(pending.id, "not now", who, roles=roles)


async def _change(people: People, what: str, place: str) -> None:
    waiting: list[Pending] = []
    for _ in range(LOOKS):
        waiting = [p for p in await people.client.pending() if p.kind == "approval"]
        if waiting:
            break
        await asyncio.sleep(people.chance.draw(place) * 5)
    else:
        return
    pending = people.chance.pick(place, waiting)
    arguments = f'{{"n":{people.chance.between(place, 0, 3)}}}'
    who, roles = somebody(people, place)
    if what == "edit a call":
        run = pending.id.rpartition("/")[0]
        edit = cmd.EditCall(call=pending.call, arguments=arguments)
        await people.client.submit(run, edit, who)
        return
    await people.client.approve(pending.id, "", who, roles=roles, arguments=arguments)


async def _grant(people: People, place: str) -> None:
    chance = people.chance
    wanted = ev.GrantMade(
        n=0,
        tool=chance.pick(place, ("refund", "refund", "ship", "wipe")),  # wipe is dangerous: in vain
        effect="write",
        arguments=f'{{"n":{chance.between(place, 0, 3)}}}' if chance.draw(place) < 0.5 else "",
        exact=chance.draw(place) < 0.2,
        until=people.clock.now_us() + chance.between(place, 5, 60) * 1_000_000
        if chance.draw(place) < 0.4
        else 0,
        uses=chance.between(place, 1, 2) if chance.draw(place) < 0.5 else 0,
        roles=chance.pick(place, ROLES),
    )
    await make_grant(people.client.store, people.clock, wanted, chance.pick(place, NAMES))


async def _in_its_place(people: People, what: str, place: str) -> None:
    runs = await people.open_runs()
    if not runs:
        return
    run, who = people.chance.pick(place, runs), people.chance.pick(place, NAMES)
    if what == "hand back":
        if people.chance.draw(place) < 0.7:  # else by anybody, who may not
            who = (await load(people.client.store, run)).taken or who
        await people.client.submit(run, cmd.HandBack(by=who), who)
        return
    for _ in range(people.chance.between(place, 1, 6)):
        state = await load(people.client.store, run)
        if state.end is not None:
            return
        with suppress(Refused):  # it is not their turn yet: they look again
            if what == "take over" or not state.taken:
                what = "act in its place"
                taking = cmd.TakeOver(by=who, reason="it is stuck")
                await people.client.submit(run, taking, who)
            else:
                await people.client.submit(run, _turn(people, state, place), state.taken)
        await asyncio.sleep(people.chance.draw(place) * 6)


def _turn(people: People, state: RunState, place: str) -> cmd.Command:
    """What the person who has the run does next."""
    chance, who = people.chance, state.taken
    waiting = [c.id for c in state.calls.values() if not c.closed]
    if waiting:
        result = capped(to_json("done at the desk"))
        return cmd.DoneByHand(by=who, call=chance.pick(place, waiting), result=result)
    if chance.draw(place) < 0.4:
        return cmd.TakeTurn(by=who, text="This is my answer.")
    names = [chance.pick(place, KINDS) for _ in range(chance.between(place, 1, 3))]
    arguments = [f'{{"n":{chance.between(place, 0, 3)}}}' for _ in names]
    return cmd.TakeTurn(by=who, calls=tuple(zip(names, arguments, strict=True)))


# ---------------------------------------------------------------- what must hold


class GrantBook:
    """What the world saw of standing grants: the order in which facts became durable."""

    def __init__(self) -> None:
        self.head = 0
        self.found: list[Violation] = []
        self._grants: Grants = NO_GRANTS
        self._calls: dict[tuple[str, str], tuple[str, str]] = {}

    def kept(self, entries: Sequence[ev.Entry]) -> None:
        """Facts of the journal `store` are durable."""
        self._grants = fold_grants(self._grants, entries)
        self.head = self._grants.head

    def appended(self, run: str, entries: Sequence[ev.Entry], beside: Beside | None) -> None:
        """An owner's entries are durable; starts on a grant are looked at as of this moment."""
        before = self._grants
        if beside is not None:
            if beside.head != self.head:
                self._say(run, f"it was decided at {beside.head} of {self.head} and is written")
            self.kept(beside.entries)
        for entry in entries:
            self._learn(run, entry.event)
            event = entry.event
            if isinstance(event, ev.ToolStarted) and (n := grant_of(event.rule)):
                self._started(run, event, n, before, entry.at)

    def submitted(self, run: str, entry: ev.Entry) -> None:
        """Somebody else's entry is durable."""
        self._learn(run, entry.event)

    def _learn(self, run: str, event: ev.Event) -> None:
        if isinstance(event, ev.Turn):
            for part in calls_of(event.parts):
                self._calls[run, part.id] = (part.name, part.arguments)
        elif isinstance(event, ev.ToolEdited) and (run, event.call) in self._calls:
            self._calls[run, event.call] = (self._calls[run, event.call][0], event.arguments)
        elif isinstance(event, ev.ToolRedirected) and (run, event.call) in self._calls:
            self._calls[run, event.call] = (event.tool, event.arguments)

    def _started(self, run: str, event: ev.ToolStarted, n: int, before: Grants, at: int) -> None:
        grant = before.known.get(n)
        if grant is None:
            self._say(run, f"{event.call} starts on grant {n}, which nobody has made")
            return
        mine = f"{run}/{event.call}"
        how = grant.stands(at)
        if how != "live" and not (how == "used up" and mine in grant.users):
            self._say(run, f"{event.call} starts on grant {n}, which is {how}")
        if event.effect == "dangerous":
            self._say(run, f"{event.call} is dangerous and starts on grant {n}")
        asked = self._calls.get((run, event.call))
        if asked is not None and not covers(grant.scope, event.tool or asked[0], asked[1]):
            self._say(run, f"{event.call} {asked} starts on grant {n}, which is for others")
        counted = self._grants.known[n].users
        if grant.scope.uses and (mine not in counted or len(counted) > grant.scope.uses):
            self._say(run, f"{event.call} starts on grant {n} and is not counted")

    def _say(self, run: str, text: str) -> None:
        self.found.append(Violation(name="approval", run=run, seq=0, text=text))
