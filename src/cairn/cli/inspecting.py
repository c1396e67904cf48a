"""A store looked at by the commands that trust nothing in it: it is opened for reading only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cairn.cli.place import BY_STORE, Place, file_of, is_missing, open_app, store_file
from cairn.errors import ConfigError
from cairn.store import inspect_store

if TYPE_CHECKING:
    from cairn.store.sqlite.inspection import Inspector


def inspector(place: Place) -> Inspector:
    """A look at the store, found as by all other commands (`place.open_existing`).

    Raises:
        ConfigError: there is no such file, or the application cannot be loaded.
    """
    path = place.path
    if place.of_app:
        with open_app(place, BY_STORE) as runtime:
            path = file_of(runtime.store) or ":memory:"
    file = store_file(path)
    if file is None:
        raise ConfigError("--store", "a store in memory has no file to look at", "Name a file")
    if is_missing(file):
        raise ConfigError("--store", f"there is no store {file}", "Name another with --store")
    return inspect_store(str(file))
