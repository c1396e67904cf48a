"""What a store file looks like, version by version, and how an older one is brought up to date."""

from __future__ import annotations

import contextlib
from pathlib import Path

import apsw

from cairn.errors import SchemaTooNew, UnsupportedStore
from cairn.store.sqlite import upgrading

APPLICATION_ID = 0x43414952
"""`CAIR`: says in the file's header whose it is."""


def migrations() -> list[Path]:
    """The migration files in order; the n-th one leads to version n."""
    return sorted((Path(__file__).parent / "sql").glob("[0-9]*.sql"))


def check_untouched(path: str) -> None:
    """Refuse a file that is not ours or from the future, before anything in it can change.

    The connection is told that nobody writes to the file, so it takes no locks and makes no log.

    Raises:
        SchemaTooNew: a newer Cairn made it.
        UnsupportedStore: it is something else.
    """
    address = f"{Path(path).as_uri()}?immutable=1"
    flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
    try:
        with contextlib.closing(apsw.Connection(address, flags=flags)) as connection:
            version = int(connection.pragma("user_version"))
            if int(connection.pragma("application_id")) == APPLICATION_ID:
                _check_version(version, path)
    except apsw.CorruptError:
        return  # cut off in a checkpoint: only together with its log does the file make sense
    except apsw.NotADBError as error:
        if Path(f"{path}-journal").exists():
            return  # cut off while it was being made: the journal says what stood there before
        raise UnsupportedStore(f"{path} is not a store: choose another path") from error


def check_version(connection: apsw.Connection, path: str) -> int:
    """The version of an open file, 0 for an empty one.

    Raises: as `check_untouched`.
    """
    version = int(connection.pragma("user_version"))
    application = int(connection.pragma("application_id"))
    if application == APPLICATION_ID:
        _check_version(version, path)
        return version
    if version or application or connection.execute("SELECT 1 FROM sqlite_schema").fetchone():
        raise UnsupportedStore(f"{path} holds another program's data: choose another path")
    return 0


def _check_version(version: int, path: str) -> None:
    newest = len(migrations())
    if version > newest:
        raise SchemaTooNew(
            f"{path} has version {version}; this Cairn knows {newest}. "
            "Use the newer Cairn that made it; the file was not touched"
        )


def migrate(connection: apsw.Connection, path: str) -> None:
    """Bring the file to the newest version, in one transaction, or leave it alone."""
    if check_version(connection, path) == len(migrations()):
        return
    connection.execute("BEGIN IMMEDIATE")
    try:
        version = check_version(connection, path)  # another process may have been first
        for number, file in enumerate(migrations()[version:], version + 1):
            connection.execute(file.read_text(encoding="utf-8"))
            connection.execute(f"PRAGMA user_version = {number}")
        upgrading.upgrade(connection, version)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute("COMMIT")
    except BaseException:  # whatever it was, no half of a migration may stay
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
