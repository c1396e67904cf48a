"""What the tables of memory say, compared with what follows from the journal `store`.

The journal names every fact that was kept, with its hash, and every change of it; it never says
what a fact is. From both together follows every column: what does not fit was changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, cast

import apsw
from msgspec.structs import replace

from cairn.core import events as ev
from cairn.core.codec import open_row
from cairn.core.messages import Record
from cairn.errors import CorruptJournal
from cairn.memory.facts import Fact, Gone, Trust, encoded, most_trusted, sealed
from cairn.memory.shelf import found_by
from cairn.store.sqlite.journal import spending_rows
from cairn.store.sqlite.lines import find_line
from cairn.store.sqlite.memory_rows import fact_of, gone_of, length_of, scope_number, vector_hash

SINCE = 4
"""The version of a file that has these tables first."""
TYPES = tuple(
    kind.TYPE for kind in (ev.MemoryKept, ev.MemoryReviewed, ev.MemoryForgotten, ev.MemoryErased)
)
_FACTS = (
    "SELECT f.no, f.state, f.trust, f.successor, f.data, f.salt, f.hash, f.principal, f.tenant, "
    "f.key, f.expires_at, f.length, f.scope FROM fact AS f ORDER BY f.no"
)
_STRAYS = (
    ("words of no fact", "SELECT fact FROM fact_term WHERE fact NOT IN (SELECT no FROM fact)"),
    ("a vector of no fact", "SELECT fact FROM fact_vector WHERE fact NOT IN (SELECT no FROM fact)"),
)


class Known(Record):
    """How a fact stands, as the journal has it."""

    hash: str
    state: str
    trust: str
    key: str = ""
    successor: int = 0
    gone: Gone | None = None


def wrong_facts(connection: apsw.Connection) -> Iterator[str]:
    """What the tables of memory say, and the journal `store` does not."""
    try:
        known = _known(connection)
    except CorruptJournal as error:
        yield f"what is remembered cannot be compared: {error}"
        return
    rows: Any = connection.execute(_FACTS).fetchall()
    there = {row[0] for row in rows}
    for row in rows:
        if row[1] == "superseded" and row[3] not in there:
            said = f"the fact m{row[0]} was replaced by m{row[3]}, which is gone"
            yield f"{said}: accept m{row[0]} again, or forget it"
        yield from _wrong_fact(connection, row, known.get(row[0]))
    for n, each in sorted(known.items()):
        if each.gone is None and n not in there:
            yield f"the fact m{n} is missing"
    yield from _wrong_tombs(connection, known)
    for what, said in _STRAYS:
        for number in sorted({number for (number,) in connection.execute(said)}):
            yield f"there is {what}: {number}"


def _known(connection: apsw.Connection) -> dict[int, Known]:
    known: dict[int, Known] = {}
    line = find_line(connection, "store")
    if line is None:
        return known
    for row in spending_rows(connection, line, TYPES):
        if row.data is None:
            continue  # erased with whom it was about, and so were the rows that followed from it
        entry = open_row(row)
        match entry.event:
            case ev.MemoryKept() as e:
                state = "waiting" if e.waits else "live"
                known[e.fact] = Known(hash=e.hash, state=state, trust=e.trust, key=e.key)
                for n in (e.supersedes, *e.also):
                    _replaced(known, n, e.fact)
            case ev.MemoryReviewed(verdict="accepted") as e if e.fact in known:
                _accepted(known, e)
            case ev.MemoryReviewed() as e:
                _gone(known, entry, e.fact, "rejected")
                _restored(known, e.restores)
            case ev.MemoryForgotten() as e:
                _gone(known, entry, e.fact, "expired" if e.expired else "forgotten")
            case ev.MemoryErased() as e:
                for n in e.facts:
                    _gone(known, entry, n, "erased")
                _restored(known, e.restores)
                for n, successor in e.moves:
                    _replaced(known, n, successor)
    return known


def _accepted(known: dict[int, Known], e: ev.MemoryReviewed) -> None:
    old, stands = known[e.fact], e.confirms or e.fact
    same = [known[n] for n in (e.confirms, *e.also) if n in known]
    known[e.fact] = Known(hash=old.hash, state="live", trust=e.trust, key=old.key)
    _replaced(known, e.supersedes, e.fact)
    for n in (e.fact, *e.also):
        if n != stands:
            _replaced(known, n, stands)
    if stands in known:
        best = most_trusted(*cast("list[Trust]", [e.trust, *(each.trust for each in same)]))
        known[stands] = replace(known[stands], trust=best)


def _replaced(known: dict[int, Known], n: int, successor: int) -> None:
    old = known.get(n)
    if old is not None and old.gone is None:
        known[n] = replace(old, state="superseded", successor=successor)


def _restored(known: dict[int, Known], facts: tuple[int, ...]) -> None:
    for n in facts:
        old = known.get(n)
        if old is not None and old.gone is None:
            known[n] = replace(old, state="live", successor=0)


def _gone(known: dict[int, Known], entry: ev.Entry, n: int, why: Any) -> None:
    old = known.get(n)
    if old is not None:
        hash_ = bytes.fromhex(old.hash)
        gone = Gone(n=n, hash=hash_, at=entry.at, by=entry.actor, why=why, key=old.key)
        known[n] = Known(hash=old.hash, state="gone", trust="", gone=gone)


def _wrong_fact(connection: apsw.Connection, row: Any, known: Known | None) -> Iterator[str]:
    n, *_, hash_ = row[:7]
    principal, tenant, key, expires_at, length, scope = row[7:]
    if known is None or known.gone is not None:
        yield f"the fact m{n} is there, and the journal says that it is not"
        return
    try:
        fact = fact_of(row[:7])
    except CorruptJournal as error:
        yield str(error)
        return
    content = fact.content
    if content.n != n or sealed(fact.salt, encoded(content)) != hash_ or hash_.hex() != known.hash:
        yield f"the fact m{n} was changed: its content is not the one that was kept"
        return
    follows = {
        "state": (fact.state, known.state),
        "trust": (fact.trust, known.trust),
        "successor": (fact.successor, known.successor),
        "principal": (principal, content.principal),
        "tenant": (tenant, content.scope.tenant),
        "key": (key, content.key),
        "expires_at": (expires_at, content.expires_at),
        "length": (length, length_of(fact)),
        "scope": (scope, scope_number(content.scope)),
    }
    for column, (says, is_) in follows.items():
        if says != is_:
            yield f"the fact m{n} says {column} {says!r}, from what was kept follows {is_!r}"
    yield from _wrong_index(connection, fact, known)


def _wrong_index(connection: apsw.Connection, fact: Fact, known: Known) -> Iterator[str]:
    is_live = known.state == "live"
    wanted = sorted(found_by(fact).items()) if is_live else []
    said = "SELECT scope, term, times FROM fact_term WHERE fact = ?"
    rows: Any = connection.execute(said, (fact.n,)).fetchall()
    scope = scope_number(fact.scope)
    listed = sorted((term, times) for number, term, times in rows if number == scope)
    if listed != wanted or len(rows) != len(listed):
        yield f"the fact m{fact.n} is found by other words than it has"
    said = "SELECT model, vector, hash FROM fact_vector WHERE fact = ?"
    vector: Any = connection.execute(said, (fact.n,)).fetchone()
    if vector is not None:
        model, numbers, hash_ = vector
        if not is_live or vector_hash(fact.hash, model, numbers) != hash_:
            yield f"the vector of the fact m{fact.n} is not the one that was kept"


def _wrong_tombs(connection: apsw.Connection, known: dict[int, Known]) -> Iterator[str]:
    said = "SELECT no, hash, at, by, why, key FROM fact_gone ORDER BY no"
    rows: Any = connection.execute(said).fetchall()
    listed: dict[int, Gone] = {row[0]: gone_of(row) for row in rows}
    wanted = {n: each.gone for n, each in known.items() if each.gone is not None}
    for n in sorted(listed.keys() | wanted.keys()):
        there, due = listed.get(n), wanted.get(n)
        if there != due:
            yield f"the tombstone of the fact m{n} says {there}, the journal {due}"
