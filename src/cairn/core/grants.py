"""Standing grants: what a person allows from now on, so that nobody is asked for it each time.

They stand in the journal named `store` and hold for all its runs and processes. A grant is no
layer of the policy: it answers where the policy asks, and nothing else. It never answers a
dangerous call, nor one whose approval is bound to the content of files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from cairn.core import events as ev
from cairn.core.guard import canonical
from cairn.core.messages import Principal, Record, calls_of, parse_object
from cairn.core.state import Call, RunState, authors
from cairn.core.terms import ApprovalTerms, unmet
from cairn.errors import ConfigError, Refused, UnknownGrant, safe_repr

replace = msgspec.structs.replace
DAY_US = 86_400_000_000
PREFIX = "grant "
"""How the rule of a call begins that was started on one: `grant 7`."""


class Grant(Record):
    """A standing grant as it is now.

    Args:
        n: Its number.
        scope: What was granted.
        made_at, made_by: When, and by whom.
        revoked_at, revoked_by: The same of its end, 0 and empty while it holds.
        users: The calls it has answered, as `run/c4`, if it holds for so many only.
    """

    n: int
    scope: ev.GrantMade
    made_at: int
    made_by: str = ""
    revoked_at: int = 0
    revoked_by: str = ""
    users: tuple[str, ...] = ()

    def stands(self, now: int) -> str:
        """How it stands: `live`, `revoked`, `expired` or `used up`."""
        if self.revoked_at:
            return "revoked"
        if 0 < self.scope.until <= now:
            return "expired"
        if 0 < self.scope.uses <= len(self.users):
            return "used up"
        return "live"


class Grants(Record, gc=True):
    """All grants of a store, as of one head of its journal `store`.

    `recorded` are starts that a replay takes as they were: the grant by call and attempt.
    """

    head: int = 0
    at: int = 0
    known: dict[int, Grant] = {}
    recorded: dict[str, int] = {}

    def answering(
        self,
        state: RunState,
        call: Call,
        arguments: Mapping[str, Any],
        terms: ApprovalTerms | None,
        now: int,
    ) -> int:
        """Number of the grant that answers for a call, 0 for none.

        The oldest that fits; one for so many calls only before one for any number.
        """
        now = max(now, self.at)  # a clock that was set back revives no grant
        found = self.recorded.get(f"{call.id}#{call.attempt + 1}", 0)
        if found or not self.known:
            return found
        fitting = [
            grant
            for grant in self.known.values()
            if _holds(grant, state, call, now)
            and covers(grant.scope, call.tool, call.arguments, arguments)
            and concerns(grant.scope, state.agent, state.principal)
            and not unmet(terms, grant.made_by, grant.scope.roles, authors(state, call))
        ]
        fitting.sort(key=lambda grant: (not grant.scope.uses, grant.n))
        return fitting[0].n if fitting else 0

    def is_counted(self, n: int, run: str, call: str) -> bool:
        """Whether a start of this call on this grant is still to be counted."""
        grant = self.known.get(n)
        if grant is None or not grant.scope.uses:
            return False
        return f"{run}/{call}" not in grant.users


NO_GRANTS = Grants()


def _holds(grant: Grant, state: RunState, call: Call, now: int) -> bool:
    how = grant.stands(now)
    again = how == "used up" and f"{state.run}/{call.id}" in grant.users  # it is its own use
    return how == "live" or again


def covers(
    scope: ev.GrantMade, tool: str, text: str, arguments: Mapping[str, Any] | None = None
) -> bool:
    """Whether a call is what was granted: by its tool, and argument for argument.

    Args:
        scope: What was granted.
        tool: The tool that would run.
        text: The arguments as they are written in the call.
        arguments: As they are validated, defaults and all; as they are written by default.
    """
    if scope.tool != tool:
        return False
    if scope.exact and canonical(text) == canonical(scope.arguments or "{}"):
        return True
    wanted = parse_object(scope.arguments or "{}") or {}
    found = parse_object(text) if arguments is None else in_json(text, arguments)
    if found is None or (scope.exact and set(found) != set(wanted)):
        return False
    return all(name in found and _same(found[name], value) for name, value in wanted.items())


def in_json(text: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Validated arguments as grants keep and compare them.

    A value that has no JSON stands as it was written; one that was not written is left out.

    Args:
        text: The arguments as they are written.
        arguments: As they are validated, defaults and all.
    """
    written = parse_object(text) or {}
    found: dict[str, Any] = {}
    for name, value in arguments.items():
        try:
            found[name] = msgspec.json.decode(msgspec.json.encode(value, order="sorted"))
        except (TypeError, ValueError, RecursionError):
            if name in written:
                found[name] = written[name]
    return found


def concerns(scope: ev.GrantMade, agent: str, principal: Principal) -> bool:
    """Whether a run of this agent for this principal is in the scope."""
    if scope.agent not in {"", agent}:
        return False
    theirs = (principal.id, principal.tenant)
    return not scope.principal or (scope.principal, scope.tenant) == theirs


def _same(one: Any, other: Any) -> bool:
    """Equal, type and all: 1 is not true, not 1.0 and not "1"."""
    try:
        return msgspec.json.encode(one, order="sorted") == msgspec.json.encode(
            other, order="sorted"
        )
    except (TypeError, ValueError, RecursionError):
        return False  # no JSON: nothing that somebody could have granted


# ---------------------------------------------------------------- the journal


def fold_grants(grants: Grants, entries: Iterable[ev.Entry]) -> Grants:
    """The grants after these entries of the journal `store`."""
    known, head, at = dict(grants.known), grants.head, grants.at
    for entry in entries:
        head, at = entry.seq, max(at, entry.at)
        match entry.event:
            case ev.GrantMade(n=n):
                made = Grant(n=n, scope=entry.event, made_at=entry.at, made_by=entry.actor)
                known[n] = made
            case ev.GrantRevoked(n=n) if n in known and not known[n].revoked_at:
                known[n] = replace(known[n], revoked_at=entry.at, revoked_by=entry.actor)
            case ev.GrantUsed(n=n, run=run, call=call) if n in known:
                known[n] = replace(known[n], users=(*known[n].users, f"{run}/{call}"))
    return Grants(head=head, at=at, known=known)


def made(grants: Grants, wanted: ev.GrantMade, now: int) -> ev.GrantMade:
    """The event that makes a grant, with its number.

    Raises:
        Refused: it would be for dangerous calls.
        ConfigError: a part of it is not usable.
    """
    if wanted.effect == "dangerous":
        raise Refused(
            f"{wanted.tool} is dangerous: each of its calls needs an approval of its own, "
            "and no standing grant answers for it"
        )
    text = wanted.arguments
    if text and parse_object(text) is None:
        raise ConfigError(
            "grant.arguments", f"{safe_repr(text)} is no JSON object", 'Write {"order": "7"}'
        )
    if wanted.until and wanted.until <= now:
        raise ConfigError("grant.until", "it lies in the past", "Name a time that is to come")
    if wanted.uses < 0:
        raise ConfigError("grant.uses", f"{wanted.uses} is no number of calls", "Give 1 or more")
    if wanted.tenant and not wanted.principal:
        raise ConfigError("grant.principal", "a tenant alone names nobody", "Name the principal")
    return replace(
        wanted,
        n=max(grants.known, default=0) + 1,
        arguments=canonical(text).decode() if text else ("{}" if wanted.exact else ""),
    )


def revoked(grants: Grants, n: int, reason: str = "") -> ev.GrantRevoked | None:
    """The event that ends a grant; None when it has ended already.

    Raises:
        UnknownGrant: there is no grant of this number.
    """
    grant = grants.known.get(n)
    if grant is None:
        raise UnknownGrant(f"there is no grant {safe_repr(n)}")
    return None if grant.revoked_at else ev.GrantRevoked(n=n, reason=reason)


# ---------------------------------------------------------------- shown


def described(scope: ev.GrantMade) -> list[str]:
    """Exactly what a grant allows, a line for each condition."""
    lines = [f"tool: {scope.tool} ({scope.effect})"]
    values = parse_object(scope.arguments or "{}") or {}
    lines += [f"argument {name} = {_json(value)}" for name, value in values.items()]
    if scope.exact:
        lines.append("no other argument")
    else:
        lines.append("any other arguments" if values else "any arguments")
    lines.append(f"agent: {scope.agent or 'any'}")
    tenant = f" of tenant {scope.tenant}" if scope.tenant else ""
    lines.append(f"for: {scope.principal or 'any principal'}{tenant}")
    lines.append(f"calls: {scope.uses or 'any number'}")
    lines.append(f"until: {_when(scope.until) if scope.until else 'it is revoked'}")
    return lines


def _when(us: int) -> str:
    """A time to the second, in UTC."""
    try:
        found = datetime.fromtimestamp(us // 1_000_000, UTC)
    except (OverflowError, ValueError, OSError):
        return "further than a calendar tells"
    return found.strftime("%Y-%m-%d %H:%M:%S UTC")


def _json(value: Any) -> str:
    return msgspec.json.encode(value, order="sorted").decode()


class Asked(Record):
    """A call that somebody was asked about."""

    run: str
    call: str
    tool: str
    arguments: str
    agent: str
    principal: Principal
    decision: Literal["open", "granted", "changed", "denied", "expired"] = "open"


Read = Callable[[Asked], Mapping[str, Any] | None]
"""The arguments that a call was asked about for, as validated; None for those that do not fit."""


def _covered(scope: ev.GrantMade, asked: Asked, read: Read | None) -> bool:
    if read is None:
        return covers(scope, asked.tool, asked.arguments)
    arguments = read(asked)
    return arguments is not None and covers(scope, asked.tool, asked.arguments, arguments)


class PastAnswers(Record):
    """What a grant would have answered of what people were asked: so many of so many requests.

    `granted` and `denied` are how people decided those that it would have answered.
    """

    asked: int = 0
    answered: int = 0
    granted: int = 0
    denied: int = 0

    def plus(
        self, found: Sequence[Asked], scope: ev.GrantMade, read: Read | None = None
    ) -> PastAnswers:
        """With the requests of one more run; `read` validates their arguments."""
        mine = [
            each
            for each in found
            if each.tool == scope.tool
            and concerns(scope, each.agent, each.principal)
            and _covered(scope, each, read)
        ]
        return PastAnswers(
            asked=self.asked + len(found),
            answered=self.answered + len(mine),
            granted=self.granted + sum(each.decision == "granted" for each in mine),
            denied=self.denied + sum(each.decision == "denied" for each in mine),
        )


def asked_in(run: str, entries: Iterable[ev.Entry]) -> list[Asked]:
    """Every request for approval in a run's journal, with the call as it stood then."""
    calls: dict[str, tuple[str, str]] = {}
    found: dict[int, Asked] = {}
    agent, principal = "", Principal()
    for entry in entries:
        match entry.event:
            case ev.RunCreated():
                agent, principal = entry.event.agent, entry.event.principal
            case turn if isinstance(turn, ev.Turn):
                parts = turn.parts
                calls |= {p.id: (p.name, p.arguments) for p in calls_of(parts)}
            case ev.ToolEdited(call=call, arguments=text):
                calls[call] = (calls[call][0], text)
            case ev.ToolRedirected(call=call, tool=tool, arguments=text):
                calls[call] = (tool, text)
            case ev.ToolFailed(call=call, disposition="switch", switch_to=tool):
                calls[call] = (tool, calls[call][1])
            case ev.ApprovalRequested(n=n, call=call) if call in calls:
                tool, text = calls[call]
                found[n] = Asked(
                    run=run, call=call, tool=tool, arguments=text, agent=agent, principal=principal
                )
            case ev.ApprovalGranted(n=n, arguments=text) if n in found:
                found[n] = replace(found[n], decision="granted")
                if text:  # what was asked for was changed: nobody said yes to that
                    calls[found[n].call] = (found[n].tool, text)
                    found[n] = replace(found[n], decision="changed")
            case ev.ApprovalDenied(n=n) if n in found:
                found[n] = replace(found[n], decision="denied")
            case ev.ApprovalExpired(n=n) if n in found:
                found[n] = replace(found[n], decision="expired")
    return list(found.values())


def grant_of(rule: str) -> int:
    """The number of the grant that a call's rule names, 0 for none."""
    if not rule.startswith(PREFIX):
        return 0
    number = rule.removeprefix(PREFIX)
    return int(number) if number.isdecimal() else 0


def recorded_in(entries: Iterable[ev.Entry]) -> Grants:
    """What grants answered in a run's journal, for a replay: like all that people decided."""
    return Grants(
        recorded={
            f"{event.call}#{event.attempt}": n
            for event in (entry.event for entry in entries)
            if isinstance(event, ev.ToolStarted) and (n := grant_of(event.rule))
        }
    )
