"""Where a command works: the store it opens, and the application it loads if it needs one."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.core.messages import Record
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError
from cairn.governance.secrets import of_environment
from cairn.ports import Store
from cairn.settings import Settings, find_settings
from cairn.store import open_store

if TYPE_CHECKING:
    from cairn.runtime import Runtime

T = TypeVar("T")


class Place(Record):
    """What `--store` and `--app` said, over what the surroundings say."""

    settings: Settings
    store: str = ""
    app: str = ""

    @property
    def path(self) -> str:
        """The store without asking the application."""
        return self.store or self.settings.store

    @property
    def of_app(self) -> bool:
        """Whether the store is the application's own: nobody named one that goes before it."""
        if self.store:
            return False
        return bool(self.app) or (self.has_app and not self.settings.store_is_named)

    @property
    def has_app(self) -> bool:
        """Whether anybody named an application."""
        return bool(self.app or self.settings.app)


def locate(store: str, app: str) -> Place:
    """The place that the options and the surroundings name."""
    return Place(settings=find_settings(Path.cwd(), os.environ), store=store, app=app)


# ---------------------------------------------------------------- the application


def open_app(place: Place) -> Runtime:
    """The application's runtime, on the store that the place names, else on its own.

    Raises:
        ConfigError: none is named, or it cannot be loaded.
    """
    from cairn.cli.loading import load_app

    if not place.has_app:
        raise ConfigError(
            "--app",
            "this needs the application that knows the agent",
            "Pass --app module:name, set CAIRN_APP, or write [tool.cairn] app in pyproject.toml",
        )
    settings = place.settings
    source = "--app" if place.app else settings.app_from
    folders = [Path.cwd()]
    if not place.app and settings.folder:
        folders.append(Path(settings.folder))
    runtime = load_app(place.app or settings.app, source, folders)
    if not place.of_app:
        _move(runtime, place.path)
    return runtime


def file_of(store: Store) -> str:
    """The file behind an open store, as an absolute path; empty for one that has none."""
    from cairn.store.sqlite.store import SqliteStore

    return store.settings.path if isinstance(store, SqliteStore) else ""


def _move(runtime: Runtime, store: str) -> None:
    """Put the runtime on another store than its own, which it has opened, and made if need be."""
    file, own = store_file(store), file_of(runtime.store)
    if file is not None and own and os.path.realpath(file) == os.path.realpath(own):
        return  # it is there already, with the options it was made with
    opened = open_store(store)
    closing = threading.Thread(target=asyncio.run, args=(runtime.store.close(),))
    closing.start()  # in a thread of its own: a command may have a loop running here
    closing.join()
    runtime.portal.close()
    runtime.store = opened
    runtime.client = Client(opened, runtime.host.clock, runtime.host.secrets)


# ---------------------------------------------------------------- the store alone


def open_existing(place: Place) -> Store:
    """The store, which must be there: to read or to decide never makes a file.

    It is found in one way by all commands: `--store`; the own one of the application of `--app`;
    `CAIRN_STORE`; `[tool.cairn] store`; the own one of the application of `CAIRN_APP` or
    `[tool.cairn] app`; `./cairn.db`.

    Raises:
        ConfigError: there is no such file, or the application cannot be loaded.
    """
    if place.of_app:
        return open_app(place).store
    file = store_file(place.path)
    if file is not None and is_missing(file):
        raise ConfigError("--store", f"there is no store {file}", "Name another with --store")
    return open_store(place.path)


def store_file(address: str) -> Path | None:
    """The file behind a store's address; None for a store in memory."""
    if address == ":memory:":
        return None
    rest = address.removeprefix("sqlite:") if address.startswith("sqlite:") else address
    if rest != address and rest.startswith("///"):
        rest = rest.removeprefix("//")
    return Path(rest)


def is_missing(file: Path) -> bool:
    """Whether there is certainly no such file; one that we cannot look at may be there."""
    try:
        return not stat.S_ISREG(file.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:  # opening it says what is in the way
        return False


def with_store(place: Place, work: Callable[[Client], Coroutine[Any, Any, T]]) -> T:
    """What `work` finds out or does with the store alone; needs no application."""

    async def whole() -> T:
        try:
            return await work(Client(store, SystemClock(), secrets))
        finally:
            await store.close()

    secrets = of_environment()
    secrets.guard_logs()
    store = open_existing(place)
    with secrets.scrubbed():
        return asyncio.run(whole())
