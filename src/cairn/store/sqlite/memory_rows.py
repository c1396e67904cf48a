"""Facts as rows: the shelf of a memory inside the writer's transaction, or inside a snapshot."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, cast

import apsw
import msgspec

from cairn.core import events as ev
from cairn.core.messages import Principal
from cairn.core.words import words
from cairn.errors import CorruptJournal
from cairn.memory.facts import (
    Fact,
    FactFilter,
    Gone,
    Scope,
    State,
    Trust,
    Why,
    decoded,
    encoded,
)
from cairn.memory.ranking import Posting
from cairn.memory.shelf import VECTORS_AT_MOST
from cairn.store.sqlite.journal import Salts, prepare
from cairn.store.sqlite.transaction import Transaction

STORE = "store"
_COLUMNS = "no, state, trust, successor, data, salt, hash"
_FACTS = f"SELECT {_COLUMNS} FROM fact"  # noqa: S608 - our own words
_BY_STATE = "INDEXED BY fact_in"
"""Else the facts of a scope are walked in their order, those that were replaced with them."""
_POSTINGS = (
    "SELECT t.fact, t.term, t.times, f.length FROM fact_term AS t JOIN fact AS f ON f.no = t.fact "
    "WHERE t.scope = ? AND t.term IN ({}) AND (f.expires_at = 0 OR f.expires_at > ?) "
    "ORDER BY t.fact"
)
_VECTORS = (
    "SELECT v.fact, v.vector FROM fact AS f JOIN fact_vector AS v ON v.fact = f.no "
    "WHERE f.scope = ? AND f.state = 'live' AND (f.expires_at = 0 OR f.expires_at > ?) "
    "AND v.model = ? ORDER BY f.no DESC LIMIT ?"
)
_BARE = (
    "WHERE state = 'live' AND (expires_at = 0 OR expires_at > ?) AND no > ? AND NOT EXISTS "
    "(SELECT 1 FROM fact_vector WHERE fact = fact.no AND model = ?)"
)
_TERMS = (
    "SELECT DISTINCT term FROM fact_term WHERE scope = ? AND term >= ? AND term < ? "
    "ORDER BY term LIMIT ?"
)
_REPLACED = "WHERE successor = ? AND successor > 0"
"""In the words of the index, or it would not be used."""
_BEFORE = (
    "WITH RECURSIVE before (no, depth) AS ("  # noqa: S608 - our own words
    f"SELECT no, 1 FROM fact {_REPLACED} UNION ALL SELECT f.no, b.depth + 1 "
    "FROM before AS b CROSS JOIN fact AS f ON f.successor = b.no AND f.successor > 0 "
    "WHERE b.depth < ?) SELECT no FROM before ORDER BY depth DESC, no"
)
DEEPEST = 100_000
"""No chain is as long; a damaged file in which facts have replaced each other has an end."""
_LAST_LETTER = "\U0010ffff"
_TERMS_AT_ONCE = 100

Row = tuple[int, str, str, int, bytes, bytes, bytes]


class Rows:
    """What can be read; implements the reading half of `Shelf`."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def fact(self, n: int) -> Fact | None:
        """See `Shelf.fact`."""
        row = self.connection.execute(f"{_FACTS} WHERE no = ?", (n,)).fetchone()
        return None if row is None else fact_of(row)

    def gone(self, n: int) -> Gone | None:
        """See `Shelf.gone`."""
        found: Any = self.connection.execute(
            "SELECT no, hash, at, by, why, key FROM fact_gone WHERE no = ?", (n,)
        ).fetchone()
        return None if found is None else gone_of(found)

    def keyed(self, key: str) -> int:
        """See `Shelf.keyed`."""
        found: Any = self.connection.execute(
            "SELECT no FROM fact WHERE key = :key AND key <> '' "
            "UNION ALL SELECT no FROM fact_gone WHERE key = :key AND key <> ''",
            {"key": key},
        ).fetchone()
        return 0 if found is None else int(found[0])

    def facts(self, where: FactFilter, *, newest: bool = False) -> list[Fact]:
        """See `Shelf.facts`."""
        conditions, values = ["no > ?"], [cast("object", where.after)]
        if where.scope is not None:
            conditions.append("scope = ?")
            values.append(scope_number(where.scope))
        if where.principal:
            conditions.append("principal = ?")
            values.append(where.principal)
        if where.tenant is not None:
            conditions.append("tenant = ?")
            values.append(where.tenant)
        if where.state:
            conditions.append("state = ?")
            values.append(where.state)
        order = "DESC" if newest else "ASC"
        by = _BY_STATE if where.scope is not None and where.state else ""
        said = f"{_FACTS} {by} WHERE {' AND '.join(conditions)} ORDER BY no {order} LIMIT ?"
        rows = self.connection.execute(said, (*values, where.limit or -1))
        return [fact_of(row) for row in rows]

    def replaced_by(self, scope: Scope, n: int) -> list[Fact]:
        """See `Shelf.replaced_by`."""
        said = f"{_FACTS} {_REPLACED} AND scope = ? AND state = 'superseded' ORDER BY no"
        values = (n, scope_number(scope))
        return [fact_of(row) for row in self.connection.execute(said, values)]

    def before(self, n: int) -> list[int]:
        """See `Shelf.before`."""
        found: Any = self.connection.execute(_BEFORE, (n, DEEPEST)).fetchall()
        return [int(no) for (no,) in found]

    def overdue(self, scope: Scope, before: int, limit: int) -> list[Fact]:
        """See `Shelf.overdue`."""
        said = (
            f"{_FACTS} {_BY_STATE} WHERE scope = ? AND state IN ('live', 'waiting', 'superseded') "
            "AND expires_at > 0 AND expires_at <= ? ORDER BY no LIMIT ?"
        )
        values = (scope_number(scope), before, limit)
        return [fact_of(row) for row in self.connection.execute(said, values)]

    def count(self, scope: Scope, state: State, now: int) -> tuple[int, int]:
        """See `Shelf.count`."""
        found: Any = self.connection.execute(
            "SELECT count(*), coalesce(sum(length), 0) FROM fact INDEXED BY fact_in "
            "WHERE scope = ? AND state = ? AND (expires_at = 0 OR expires_at > ?)",
            (scope_number(scope), state, now),
        ).fetchone()
        return int(found[0]), int(found[1])

    def waiting_of(self, principal: Principal, now: int) -> int:
        """See `Shelf.waiting_of`."""
        found: Any = self.connection.execute(
            "SELECT count(*) FROM fact WHERE principal = ? AND tenant = ? AND state = 'waiting' "
            "AND (expires_at = 0 OR expires_at > ?)",
            (principal.id, principal.tenant, now),
        ).fetchone()
        return int(found[0])

    def postings(self, scope: Scope, asked: Sequence[str], now: int) -> Iterator[Posting]:
        """See `Shelf.postings`."""
        number = scope_number(scope)
        for at in range(0, len(asked), _TERMS_AT_ONCE):
            part = asked[at : at + _TERMS_AT_ONCE]
            said = _POSTINGS.format(", ".join("?" * len(part)))
            yield from cast("Any", self.connection.execute(said, (number, *part, now)))

    def terms(self, scope: Scope, beginning: str, limit: int) -> list[str]:
        """See `Shelf.terms`."""
        values = (scope_number(scope), beginning, beginning + _LAST_LETTER, limit)
        found: Any = self.connection.execute(_TERMS, values).fetchall()
        return [str(term) for (term,) in found]

    def vectors(self, scope: Scope, model: str, now: int) -> list[tuple[int, bytes]]:
        """See `Shelf.vectors`."""
        values = (scope_number(scope), now, model, VECTORS_AT_MOST + 1)
        found: Any = self.connection.execute(_VECTORS, values).fetchall()
        return list(found)

    def bare(
        self, model: str, scopes: Sequence[Scope], now: int, limit: int, after: int = 0
    ) -> list[Fact]:
        """The newest facts that may be recalled and have no vector of this model.

        Of all scopes where none is named; only those with a higher number than `after`.
        """
        within = f"AND scope IN ({', '.join('?' * len(scopes))})" if scopes else ""
        said = f"{_FACTS} {_BARE} {within} ORDER BY no DESC LIMIT ?"
        values = (now, after, model, *map(scope_number, scopes), limit)
        return [fact_of(row) for row in self.connection.execute(said, values)]

    def bare_count(self, model: str, now: int) -> int:
        """How many facts may be recalled and have no vector of this model."""
        said = f"SELECT count(*) FROM fact {_BARE}"  # noqa: S608 - our own words
        found: Any = self.connection.execute(said, (now, 0, model)).fetchone()
        return int(found[0])


class WritableRows(Rows):
    """Rows inside a transaction of the writer; the whole `Shelf`."""

    def __init__(self, tx: Transaction, salts: Salts) -> None:
        super().__init__(tx.connection)
        self._tx = tx
        self._salts = salts
        # what is overwritten or moved must not stay behind in a page: from here on in this process
        tx.connection.execute("PRAGMA secure_delete = ON").fetchall()

    def next_number(self) -> int:
        """See `Shelf.next_number`."""
        found: Any = self.connection.execute(
            "SELECT seq FROM sqlite_sequence WHERE name = 'fact'"
        ).fetchone()
        return 1 if found is None else int(found[0]) + 1

    def salt(self) -> bytes:
        """See `Shelf.salt`."""
        return os.urandom(16)

    def add(self, fact: Fact) -> None:
        """See `Shelf.add`."""
        content, scope = fact.content, fact.scope
        self.connection.execute(
            "INSERT INTO fact (no, scope, principal, tenant, key, state, trust, successor, "
            "expires_at, length, data, salt, hash) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                *(fact.n, scope_number(scope), content.principal, scope.tenant, content.key),
                *(fact.state, fact.trust, fact.successor, content.expires_at, length_of(fact)),
                *(encoded(content), fact.salt, fact.hash),
            ),
        )

    def put(self, fact: Fact) -> None:
        """See `Shelf.put`."""
        self.connection.execute(
            "UPDATE fact SET state = ?, trust = ?, successor = ? WHERE no = ?",
            (fact.state, fact.trust, fact.successor, fact.n),
        )

    def index(self, fact: Fact, found: Mapping[str, int]) -> None:
        """See `Shelf.index`."""
        number = scope_number(fact.scope)
        self.connection.executemany(
            "INSERT INTO fact_term (scope, term, fact, times) VALUES (?, ?, ?, ?)",
            [(number, term, fact.n, times) for term, times in sorted(found.items())],
        )

    def unindex(self, fact: Fact) -> None:
        """See `Shelf.unindex`."""
        self.connection.execute("DELETE FROM fact_term WHERE fact = ?", (fact.n,))
        self.connection.execute("DELETE FROM fact_vector WHERE fact = ?", (fact.n,))

    def drop(self, fact: Fact, gone: Gone) -> None:
        """See `Shelf.drop`."""
        self.connection.execute("DELETE FROM fact WHERE no = ?", (fact.n,))
        self.connection.execute(
            "INSERT INTO fact_gone (no, hash, at, by, why, key) VALUES (?, ?, ?, ?, ?, ?)",
            (gone.n, gone.hash, gone.at, gone.by, gone.why, gone.key),
        )

    def rewrite(self) -> None:
        """Write all that is there anew: no page keeps a copy of what was once in it.

        Deleted rows are overwritten, but a page that was split keeps what was moved out of it.
        """
        for table in ("fact", "fact_term", "fact_vector"):
            self.connection.execute(f"CREATE TEMP TABLE staying AS SELECT * FROM main.{table}")  # noqa: S608 - our own words
            self.connection.execute(f"DELETE FROM main.{table}")  # noqa: S608 - our own words
            self.connection.execute(
                f"INSERT INTO main.{table} SELECT * FROM temp.staying ORDER BY rowid"  # noqa: S608 - our own words
            )
            self.connection.execute("DROP TABLE temp.staying")

    def note(self, event: ev.Event, now: int, actor: str) -> int:
        """See `Shelf.note`."""
        line = self._tx.line(STORE)
        at = max(now, line.updated_at)
        entry = ev.Entry(seq=line.head + 1, at=at, event=event, actor=actor)
        self._tx.extend(line, prepare(STORE, (entry,), self._salts))
        return at

    def set_vector(self, n: int, model: str, vector: bytes) -> None:
        """Keep the vector of a fact, if it is still one that may be recalled."""
        fact = self.fact(n)
        if fact is None or fact.state != "live":
            return
        self.connection.execute(
            "INSERT INTO fact_vector (fact, model, vector, hash) VALUES (?, ?, ?, ?) "
            "ON CONFLICT (fact) DO UPDATE SET model = excluded.model, vector = excluded.vector, "
            "hash = excluded.hash",
            (n, model, vector, vector_hash(fact.hash, model, vector)),
        )


def fact_of(row: Any) -> Fact:
    """The fact in a row.

    Raises:
        CorruptJournal: its content cannot be read.
    """
    no, state, trust, successor, data, salt, hash_ = cast("Row", row)
    try:
        content = decoded(data)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CorruptJournal(f"the fact m{no} cannot be read: {error}") from error
    return Fact(
        content=content,
        state=cast("State", state),
        trust=cast("Trust", trust),
        successor=successor,
        salt=salt,
        hash=hash_,
    )


def gone_of(row: Any) -> Gone:
    """The tombstone in a row."""
    no, hash_, at, by, why, key = row
    return Gone(n=no, hash=hash_, at=at, by=by, why=cast("Why", why), key=key)


def scope_number(scope: Scope) -> int:
    """A scope as a number; that two have the same is as likely as two equal hashes."""
    said = f"{scope.kind}\0{scope.tenant}\0{scope.name}".encode("utf-8", "surrogatepass")
    return int.from_bytes(sha256(said).digest()[:8]) >> 1


def length_of(fact: Fact) -> int:
    """How many words a fact has, as the ranking counts them."""
    return words("\n".join([fact.text, *fact.content.tags])).total()


def vector_hash(fact: bytes, model: str, vector: bytes) -> bytes:
    """What says that a vector is the one that was kept for a fact."""
    return sha256(fact + model.encode("utf-8", "surrogatepass") + b"\0" + vector).digest()
