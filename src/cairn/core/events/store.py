"""Facts that belong to no run: what was removed, what was granted, which budgets stand."""

from __future__ import annotations

from cairn.core.budgets import Cap
from cairn.core.events.form import Effect, Event


class StorePruned(Event):
    """A whole run was removed by retention; its last hash stays."""

    TYPE = 200
    NAME = "store.pruned"
    run: str
    head: int
    hash: str
    status: str = ""


class StoreErased(Event):
    """What a run's events said is gone, salts and all; their headers, digests and hashes stay."""

    TYPE = 201
    NAME = "store.erased"
    run: str
    head: int
    hash: str
    reason: str = ""


class PrincipalErased(Event):
    """All that was kept of one principal is gone; who it was shows only to who knows the id.

    `whose` is SHA-256 of `salt` (hex, both), the id and the tenant, with a NUL between the two.
    """

    TYPE = 202
    NAME = "store.principal_erased"
    whose: str
    salt: str
    runs: int
    events: int
    sessions: int = 0
    facts: int = 0
    grants: int = 0
    notes: tuple[int, ...] = ()
    """Which events of the journal `store` hold no data any more."""
    reason: str = ""


class GrantMade(Event):
    """A standing grant: calls in its scope need no approval of their own.

    Where the deployment asks, and nowhere else: it is no layer of the policy, and a dangerous
    call is never answered by it.
    """

    TYPE = 210
    NAME = "grant.made"
    n: int
    tool: str
    effect: Effect
    arguments: str = ""
    """JSON object of arguments that must be equal, type and all; empty for any."""
    exact: bool = False  # whether no other argument may stand beside these
    agent: str = ""  # empty for any
    principal: str = ""  # empty for any
    tenant: str = ""  # of the principal
    until: int = 0  # microseconds since 1970, 0 for as long as it is not revoked
    uses: int = 0  # how many calls it answers, 0 for any number
    roles: tuple[str, ...] = ()  # of who made it
    reason: str = ""


class GrantRevoked(Event):
    """From here on the grant answers nothing."""

    TYPE = 211
    NAME = "grant.revoked"
    n: int
    reason: str = ""


class GrantUsed(Event):
    """A call was started on a grant that holds for so many; in the same write as its start."""

    TYPE = 212
    NAME = "grant.used"
    n: int
    run: str
    call: str


class BudgetsSet(Event):
    """These budgets stand in the store from here on, and no others."""

    TYPE = 220
    NAME = "budgets.set"
    budgets: tuple[Cap, ...] = ()
    by: str = ""  # the process that was configured with them
