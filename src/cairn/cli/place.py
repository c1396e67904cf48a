"""Where a command works: the store it opens, and the application it loads if it needs one."""

from __future__ import annotations

import asyncio
import os
import stat
import threading
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from cairn.cli.say import complain
from cairn.core.messages import Record
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError
from cairn.governance.secrets import Secrets, of_environment
from cairn.ports import Store
from cairn.settings import Settings, find_settings
from cairn.store import open_store

if TYPE_CHECKING:
    from cairn.runtime import Runtime

T = TypeVar("T")


class Place(Record):
    """What `--store`, `--app` and `--as` said, over what the surroundings say."""

    settings: Settings
    store: str = ""
    app: str = ""
    by: str = ""

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


def locate(store: str, app: str, by: str = "") -> Place:
    """The place that the options and the surroundings name, and who was named to act there."""
    return Place(settings=find_settings(Path.cwd(), os.environ), store=store, app=app, by=str(by))


# ---------------------------------------------------------------- the application


def open_app(place: Place, otherwise: str = "") -> Runtime:
    """The application's runtime, on the store that the place names, else on its own.

    It knows the secrets that `CAIRN_SECRETS` names beside its own.

    Args:
        place: Where the command works.
        otherwise: What else there is to do where it cannot be loaded.

    Raises:
        ConfigError: none is named, or it cannot be loaded, or the name of who acts holds a secret.
    """
    if not place.has_app:
        raise ConfigError(
            "--app",
            "this needs the application that knows the agent",
            "Pass --app module:name, set CAIRN_APP, or write [tool.cairn] app in pyproject.toml",
        )
    own = of_environment()
    runtime = _loaded(place, otherwise)
    if own.names:
        runtime.host.secrets = own | runtime.host.secrets
        runtime.client.secrets = runtime.host.secrets
    if not place.of_app:
        _move(runtime, place.path)
    try:
        _check_actor(place, runtime.host.secrets)
    except ConfigError:
        _leave(runtime)
        raise
    return runtime


def _loaded(place: Place, otherwise: str) -> Runtime:
    from cairn.cli.loading import load_app

    settings = place.settings
    source = "--app" if place.app else settings.app_from
    folders = [Path.cwd()]
    if not place.app and settings.folder:
        folders.append(Path(settings.folder))
    try:
        return load_app(place.app or settings.app, source, folders)
    except ConfigError as error:
        if not otherwise:
            raise
        said = str(error).removeprefix(f"{error.field}: ").removesuffix(f". {error.fix}")
        raise ConfigError(error.field, said, f"{error.fix}. {otherwise}") from error


def _check_actor(place: Place, secrets: Secrets) -> None:
    """Refuse a name of who acts that holds a secret: it is kept as it is, and by every command."""
    if secrets.anyones().found_in(place.by):
        raise ConfigError("--as", "it holds a secret or what looks like a key", "Take another name")


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
    _leave(runtime)
    runtime.store = opened
    runtime.client = Client(opened, runtime.host.clock, runtime.host.secrets)


def _leave(runtime: Runtime) -> None:
    """Close the store of a runtime with which nothing was done yet."""
    closing = threading.Thread(target=asyncio.run, args=(runtime.store.close(),))
    closing.start()  # in a thread of its own: a command may have a loop running here
    closing.join()
    runtime.portal.close()


def runtime_of(client: Client) -> Runtime:
    """A runtime without agents, for verbs that need none: on a client's store, with its secrets."""
    from cairn.runtime import Runtime

    return Runtime(client.store, secrets=client.secrets)


def open_runtime(place: Place) -> Runtime:
    """The application's runtime where one is named, else one that knows the store alone.

    Raises:
        ConfigError: there is no such store, the application cannot be loaded, or the name of who
            acts holds a secret.
    """
    _check_there(place)
    if place.has_app:
        return open_app(place, ONLY_IT_KNOWS)
    secrets = of_environment()
    _check_actor(place, secrets)
    return runtime_of(Client(open_existing(place), SystemClock(), secrets))


def with_app(place: Place, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """What `work` does with the application's runtime; errors that come out of it say no secret.

    Raises:
        ConfigError: as `open_app`.
    """

    async def whole() -> T:
        runtime = open_app(place)
        try:
            with runtime.host.secrets.scrubbed():
                return await work(runtime)
        finally:
            await runtime.close_async()

    return asyncio.run(whole())


# ---------------------------------------------------------------- the store alone

ONLY_IT_KNOWS = (
    "Nothing was done: only the application knows which secrets must not be written. "
    "To look, and to decide without -m and --as, --store PATH is enough"
)
BY_STORE = "Or name the store: with --store PATH this needs no application"


def open_existing(place: Place) -> Store:
    """The store, which must be there: to read or to decide never makes a file.

    It is found in one way by all commands: `--store`; the own one of the application of `--app`;
    `CAIRN_STORE`; `[tool.cairn] store`; the own one of the application of `CAIRN_APP` or
    `[tool.cairn] app`; `./cairn.db`.

    Raises:
        ConfigError: there is no such file, or the application cannot be loaded.
    """
    if place.of_app:
        return open_app(place, BY_STORE).store
    _check_there(place)
    return open_store(place.path)


def _check_there(place: Place) -> None:
    """Refuse a named store that is not there. Raises `ConfigError`."""
    file = None if place.of_app else store_file(place.path)
    if file is not None and is_missing(file):
        raise ConfigError("--store", f"there is no store {file}", "Name another with --store")


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


def with_store(
    place: Place,
    work: Callable[[Client], Coroutine[Any, Any, T]],
    *,
    words: bool = True,
    first: Callable[[Runtime | None], None] | None = None,
    makes: bool = False,
) -> T:
    """What `work` finds out or does with the store.

    Args:
        place: Where the command works.
        work: Is given a client that takes the secrets which `CAIRN_SECRETS` names out of what it
            writes, and those of the application where one is named.
        words: Whether something that was typed may be written. Without any, also without the name
            of who acts, an application is loaded only if the store is its own.
        first: Looks at the application before anything is done, None where none was loaded; what
            it raises ends the command.
        makes: Whether a named store that is not there is made, which standard error says: for what
            can be the first that is written. Default: it must be there.

    Raises:
        ConfigError: there is no such store, the application cannot be loaded, or the name of who
            acts holds a secret.
    """

    async def whole() -> T:
        try:
            _check_actor(place, secrets)
            if first is not None:
                first(runtime)
            if made:
                complain(f"there was no store {made}: it was made")
            return await work(Client(store, SystemClock(), secrets))
        finally:
            await store.close()

    file = None if place.of_app else store_file(place.path)
    made = file if makes and file is not None and is_missing(file) else None
    if not made:
        _check_there(place)
    runtime: Runtime | None = None
    if place.has_app and (words or place.by or place.of_app):
        typed = words or bool(place.by)
        runtime = open_app(place, ONLY_IT_KNOWS if typed else BY_STORE)
        store, secrets = runtime.store, runtime.host.secrets
    else:
        secrets = of_environment()
        if made and first is not None:  # what is refused makes no file
            _check_actor(place, secrets)
            first(None)
        store = open_store(place.path) if made else open_existing(place)
    secrets.guard_logs()
    with secrets.scrubbed():
        return asyncio.run(whole())
