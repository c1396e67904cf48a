"""What a store holds of one principal, and which facts of the journal `store` are theirs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from hashlib import sha256

from cairn.core import events as ev
from cairn.core.codec import Row
from cairn.core.messages import Principal, Record
from cairn.core.run_table import RunInfo
from cairn.core.verification import digest_of
from cairn.errors import Refused

SHARED = "shared:"
"""How the id of the principal begins for whom the runs of a shared session work."""
NAMED = 10
"""How many runs a refusal names."""


class Holdings(Record, gc=True):
    """What a store holds of one principal.

    Args:
        runs: Their runs, forks and retries among them, the oldest first.
        sessions: Their sessions.
        facts: How many facts are kept for them.
        grants: Numbers of the standing grants that were made for them.
        budgets: Names of the budgets that stand and name them.
        notes: The events of the journal `store` that are about them.
        live: Those of the runs that are not over, or that somebody drives.
        foreign: Runs of others that go on from one of theirs.
        elsewhere: Runs of others, in the same tenant, in which something stands that they have
            written: a message, an answer, a decision. Those of shared sessions are among them.
        recalled: Runs of others whose journals tell facts of theirs, recalled by a tool or told in
            a `memory_block`: such that are kept, and such that were removed before.
    """

    runs: tuple[RunInfo, ...] = ()
    sessions: tuple[str, ...] = ()
    facts: int = 0
    grants: tuple[int, ...] = ()
    budgets: tuple[str, ...] = ()
    notes: tuple[int, ...] = ()
    live: tuple[str, ...] = ()
    foreign: tuple[str, ...] = ()
    elsewhere: tuple[RunInfo, ...] = ()
    recalled: tuple[RunInfo, ...] = ()

    @property
    def shared(self) -> tuple[RunInfo, ...]:
        """Those of `elsewhere` that belong to a session which is shared."""
        return tuple(info for info in self.elsewhere if info.principal.startswith(SHARED))


class Erasure(Record, gc=True):
    """What was erased.

    Args:
        runs: The runs whose events hold nothing any more.
        events: How many events that are.
        sessions, facts, grants: How many of each are gone.
        notes: How many facts of the journal `store` hold nothing any more.
        budgets: Names of the budgets that stand and name the principal: they were left as they
            are. Set others, and erase again.
        stays: What of theirs was left in runs of others, and why, a line each: what they have
            written there, and their facts that were recalled there.
        cleared: Whether nothing is left in the store's file and its log either; False while
            another process works in it. Erase again then.
    """

    runs: tuple[str, ...] = ()
    events: int = 0
    sessions: int = 0
    facts: int = 0
    grants: int = 0
    notes: int = 0
    budgets: tuple[str, ...] = ()
    stays: tuple[str, ...] = ()
    cleared: bool = True


class Share(Record, gc=True):
    """What of the journal `store` is one principal's.

    Args:
        notes: The events, by their seq.
        sessions: Names of the sessions that they, or the runs, name.
        grants: Numbers of grants.
        budgets: Names of standing budgets that name them; those stay.
    """

    notes: tuple[int, ...]
    sessions: tuple[str, ...]
    grants: tuple[int, ...]
    budgets: tuple[str, ...]


def share_of(
    entries: Iterable[ev.Entry],
    principal: Principal,
    runs: Collection[str],
    sessions: Collection[str],
    facts: Collection[int],
) -> Share:
    """The facts of the journal `store` that are about one principal.

    Args:
        entries: The journal.
        runs, sessions, facts: What else is theirs.
    """
    theirs, grants = set(sessions), set[int]()
    notes: list[int] = []
    standing: ev.Entry | None = None
    for entry in entries:
        match entry.event:
            case ev.GrantMade() as e if (e.principal, e.tenant) == (principal.id, principal.tenant):
                grants.add(e.n)
                notes.append(entry.seq)
            case ev.GrantRevoked(n=n) | ev.GrantUsed(n=n) if n in grants:
                notes.append(entry.seq)
            case ev.SessionForked() as e if e.run in runs or theirs & {e.of, e.session}:
                theirs.add(e.session)
                notes.append(entry.seq)
            case ev.SessionTitled(session=name) | ev.SessionRewound(session=name):
                if name in theirs:
                    notes.append(entry.seq)
            case ev.MemoryReviewed() as e if e.reason and e.fact in facts:
                # what became of another's fact by it must still follow from the journal
                if not e.supersedes or e.supersedes in facts:
                    notes.append(entry.seq)
            case ev.BudgetsSet():
                if standing is not None and _named(standing.event, principal):
                    notes.append(standing.seq)
                standing = entry
            case _:
                pass
    return Share(
        notes=tuple(sorted(notes)),
        sessions=tuple(sorted(theirs)),
        grants=tuple(sorted(grants)),
        budgets=_named(standing.event, principal) if standing is not None else (),
    )


def removed_before(entries: Iterable[ev.Entry], principal: Principal) -> frozenset[int]:
    """Numbers of a principal's facts that are gone: forgotten, expired, rejected or erased.

    Of those that an older version removed only such are known as went with their principal.

    Args:
        entries: The journal `store`.
    """
    found, last = set[int](), tuple[int, ...]()
    for entry in entries:
        match entry.event:
            case ev.MemoryForgotten() | ev.MemoryReviewed() as e if e.whose:
                if whose(principal, bytes.fromhex(e.hash)) in e.whose:
                    found.add(e.fact)
            case ev.MemoryErased() as e:
                last = e.facts
                if e.whose and e.whose == whose(principal, bytes.fromhex(e.salt)):
                    found.update(e.facts)
            case ev.PrincipalErased() as e if e.facts and e.facts == len(last):
                if e.whose == whose(principal, bytes.fromhex(e.salt)):
                    found.update(last)
            case _:
                pass
    return frozenset(found)


def _named(budgets: ev.BudgetsSet, principal: Principal) -> tuple[str, ...]:
    """The budgets that count this principal by name."""
    return tuple(
        cap.name
        for cap in budgets.budgets
        if any(only.scope == "principal" and principal.id in only.names for only in cap.only)
    )


def check_over(principal: Principal, held: Holdings) -> None:
    """Refuse to erase what is not over, or what others go on from.

    Raises:
        Refused: names the runs.
    """
    if held.live:
        raise Refused(
            f"not all runs of {principal.id!r} are over: {_list(held.live)}. Wait for their end "
            "or cancel them; force=True (--force) cancels them"
        )
    if held.foreign:
        raise Refused(
            f"runs of others go on from those of {principal.id!r}, and would lose their "
            f"beginning: {_list(held.foreign)}. Remove those first"
        )


def check_shared(principal: Principal, sessions: Sequence[str]) -> None:
    """Refuse to leave, or to take without a word, what somebody has said among others.

    Args:
        principal: Who.
        sessions: The shared sessions, in words.

    Raises:
        Refused: there are such sessions; names them and who else took part.
    """
    if sessions:
        raise Refused(
            f"{principal.id!r} has written in shared sessions: {'; '.join(sessions)}. A message "
            "cannot be taken out of a conversation that goes on from it: shared=True (--shared) "
            "erases these sessions whole, with what the others said in them"
        )


def whole_of(one: Erasure, other: Erasure) -> Erasure:
    """What two erasures have erased together."""
    return Erasure(
        runs=(*one.runs, *other.runs),
        events=one.events + other.events,
        sessions=one.sessions + other.sessions,
        facts=one.facts + other.facts,
        grants=one.grants + other.grants,
        notes=one.notes + other.notes,
        budgets=tuple(dict.fromkeys((*one.budgets, *other.budgets))),
        stays=tuple(dict.fromkeys((*one.stays, *other.stays))),
        cleared=one.cleared and other.cleared,
    )


def _list(runs: Sequence[str]) -> str:
    more = f" and {len(runs) - NAMED} more" if len(runs) > NAMED else ""
    return ", ".join(runs[:NAMED]) + more


def whose(principal: Principal, salt: bytes) -> str:
    """What stands in place of a principal's id where something of theirs was removed, as hex."""
    said = f"{principal.id}\0{principal.tenant}".encode("utf-8", "surrogatepass")
    return sha256(salt + said).hexdigest()


def emptied(row: Row) -> Row:
    """The row without what it said; its digest stands in place of its salt."""
    return Row(
        seq=row.seq,
        at=row.at,
        step=row.step,
        actor=row.actor,
        type=row.type,
        v=row.v,
        data=None,
        salt=digest_of(row),
        hash=row.hash,
    )
