"""The workspaces of runs that are removed from a store: they go too, where it is known where."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from cairn.cli.place import Place, open_app
from cairn.cli.say import complain
from cairn.engine.client import Client
from cairn.errors import ConfigError, UnknownRun
from cairn.ports import Pruned, Store

if TYPE_CHECKING:
    from cairn.runtime import Runtime

AT_ONCE = 32
"""Folders that are removed while nobody else may open one."""
STAY = "workspaces, if there are any, stay"


class Leftovers:
    """What is left on disk of runs that a command removes.

    Args:
        place: Where the command works.
    """

    def __init__(self, place: Place) -> None:
        self._place = place
        self._runtime: Runtime | None = None

    def first(self, runtime: Runtime | None) -> None:
        """Take the application that was loaded with the store, if one was."""
        self._runtime = runtime

    async def clear(self, client: Client, gone: Pruned, before: int = 0) -> list[str]:
        """Remove the workspaces of what went, and any that were set aside before that time.

        Args:
            client: On the store from which it went.
            gone: What went.
            before: Microseconds since 1970, UTC; by default nothing that was set aside goes.

        Returns the folders that went. Standard error says why others stay.

        Raises:
            WorkspaceFailed: one cannot be removed.
        """
        if not gone and self._runtime is None:
            return []
        try:
            async with self._application(client) as runtime:
                return [] if runtime is None else await _cleared(runtime, client, gone, before)
        except ConfigError as error:
            complain(f"{STAY}: {error}")
            return []

    @asynccontextmanager
    async def _application(self, client: Client) -> AsyncIterator[Runtime | None]:
        if self._runtime is not None:
            yield self._runtime
        elif not self._place.has_app:
            complain(f"{STAY}: no application says where they are (--app module:name)")
            yield None
        elif self._place.store and not self._place.app:  # it may be a copy of the application's
            complain(f"{STAY}: to remove them too, name the application with the store (--app)")
            yield None
        else:
            runtime = open_app(self._place)
            try:
                yield runtime
            finally:
                if runtime.store is not client.store:
                    await runtime.close_async()


async def _cleared(runtime: Runtime, client: Client, gone: Pruned, before: int) -> list[str]:
    from cairn.workspace import Workspaces

    spaces = runtime.host.workspaces
    if not isinstance(spaces, Workspaces):  # a folder that was given for all stays
        return []
    removed: list[str] = []
    for runs, sessions in _parts(gone):
        with spaces.held():  # so that nobody who has a name anew has a folder yet
            free = [run for run in runs if not await _has_run(client.store, run)]
            ended = [name for name in sessions if not await _has_session(client.store, name)]
            removed += spaces.remove_gone(free, ended)
    with spaces.held():
        return removed + spaces.clear_aside(before)


def _parts(gone: Pruned) -> Iterable[tuple[list[str], tuple[str, ...]]]:
    for at in range(0, max(len(gone), len(gone.sessions)), AT_ONCE):
        yield gone[at : at + AT_ONCE], gone.sessions[at : at + AT_ONCE]


async def _has_run(store: Store, run: str) -> bool:
    try:
        await store.info(run)
    except UnknownRun:
        return False
    return True


async def _has_session(store: Store, session: str) -> bool:
    try:
        return bool((await store.session(session)).first)
    except UnknownRun:
        return False
