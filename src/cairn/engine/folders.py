"""Which workspace a run works in: the folder of its name, and whose that must be."""

from __future__ import annotations

from cairn.core.state import RunState
from cairn.errors import UnknownRun
from cairn.ports import Store
from cairn.workspace import GivesWorkspaces, Workspace
from cairn.workspace.belonging import owner_of


async def workspace_of(places: GivesWorkspaces, store: Store, state: RunState) -> Workspace:
    """The workspace of a run, untouched so far.

    Args:
        places: What the runtime was given.
        store: Where the run is.
        state: The run.

    Raises:
        StoreError: it cannot be looked up whose it is.
    """
    if isinstance(places, Workspace):  # all runs share it, so nobody is looked up
        return places
    run, principal = state.run, state.principal
    session = state.created.session if state.created is not None else ""
    first = await store.info(run)
    if places.shares(session):
        try:
            found = await store.session(session)
        except UnknownRun:  # the run was forked from one of a session that is gone
            return places.of(run, "", owner_of(principal, run, first.created_at))
        if found.first:
            first = await store.info(found.first)
    return places.of(run, session, owner_of(principal, first.run, first.created_at))
