"""What a memory promises of facts whose time is up, and of those that they had replaced."""

# ruff: noqa: S101 - a contract asserts

from __future__ import annotations

import asyncio

from cairn.errors import Refused, UnknownRun
from cairn.memory.facts import MAX_WAITING, FactFilter, user_scope
from cairn.memory.port import Memory
from cairn.testing.memory_promises import (
    ANN,
    DAY,
    NOW,
    SHOP,
    MemoryPromises,
    chain,
    fact,
    known,
    refused,
    untrusted,
)

LATER = NOW + 10 * DAY
"""When what has expired after a day is removed."""


class EndPromises(MemoryPromises):
    """Facts that end."""

    def test_with_an_expired_fact_goes_what_it_had_replaced_though_a_newer_one_stays(self) -> None:
        """No gap is left in a chain, so that forgetting its end forgets all of it."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Lives in Rome."), "", NOW)
            await memory.keep(fact("Lives in Oslo.", supersedes=1, expires_at=NOW + DAY), "", NOW)
            await memory.keep(fact("Lives in Lima.", supersedes=2), "", NOW)
            await memory.keep(fact("Likes tea."), "", LATER)
            assert await chain(memory) == [(3, "live", 0), (4, "live", 0)]
            for n in (1, 2):
                gone = await memory.gone(n)
                assert gone is not None
                assert (gone.why, gone.by) == ("expired", "")
            assert await memory.forget(3, LATER) == [3]
            assert [each.n for each in await memory.facts(FactFilter(limit=0))] == [4]

        self.held(promise)

    def test_what_was_replaced_does_not_come_back_when_its_successor_expires(self) -> None:
        """The chain ends there, nobody is told to replace what counts no more, and both go."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Works in Rome."), "", NOW)
            await memory.keep(fact("Works at home.", supersedes=1, expires_at=NOW + DAY), "", NOW)
            assert await known(memory, "works", now=NOW + 2 * DAY) == []
            late = fact("Works in Oslo.", supersedes=1)
            error = await refused(Refused, memory.keep(late, "", NOW + 2 * DAY))
            assert "m2, which has expired" in str(error)
            assert "replace m2" not in str(error)
            await memory.keep(fact("Likes tea."), "", LATER)
            assert await chain(memory) == [(3, "live", 0)]
            await refused(UnknownRun, memory.keep(late, "", LATER))

        self.held(promise)

    def test_a_fact_that_has_long_expired_can_be_replaced_and_takes_nothing_along(self) -> None:
        """It is not removed in the moment in which another takes its place."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Works at home.", expires_at=NOW + DAY), "", NOW)
            await memory.keep(fact("Works in Oslo.", supersedes=1), "", LATER)
            assert await chain(memory) == [(1, "superseded", 2), (2, "live", 0)]
            await memory.keep(fact("Likes tea."), "", LATER)
            assert await chain(memory) == [(2, "live", 0), (3, "live", 0)]

        self.held(promise)

    def test_what_has_expired_is_not_accepted_and_what_it_would_replace_stays(self) -> None:
        """It is refused, whether it waits or lives; to reject it is no harm."""

        async def promise(memory: Memory) -> None:
            await memory.keep(fact("Pays by card.", trust="owner"), "", NOW)
            late = untrusted("Pays in gold.", supersedes=1, expires_at=NOW + DAY)
            await memory.keep(late, "", NOW)
            await memory.keep(fact("Pays on Mondays.", expires_at=NOW + DAY), "", NOW)
            for n in (2, 3):
                error = await refused(Refused, memory.review(n, "accepted", NOW + DAY, actor="ada"))
                assert f"m{n} has expired" in str(error)
            assert await known(memory, "card", now=NOW + DAY) == ["Pays by card."]
            assert (await memory.get(2)).state == "waiting"
            await memory.review(2, "rejected", NOW + DAY, actor="ada")

        self.held(promise)

    def test_expired_facts_that_wait_do_not_fill_the_queue(self) -> None:
        """As soon as their time is up, in whatever scope they are."""

        async def promise(memory: Memory) -> None:
            for scope in (user_scope(ANN), SHOP):
                await asyncio.gather(
                    *(
                        memory.keep(
                            untrusted(f"{n}", scope=scope, waits=True, expires_at=NOW + DAY),
                            *("", NOW),
                        )
                        for n in range(MAX_WAITING // 2)
                    )
                )
            one = untrusted("one more", waits=True)
            await refused(Refused, memory.keep(one, "", NOW))
            assert (await memory.keep(one, "", NOW + DAY)).state == "waiting"

        self.held(promise)
