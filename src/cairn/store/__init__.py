"""Where journals live: `open_store` finds the store that a path or address names."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from cairn.errors import ConfigError, safe_repr
from cairn.ports import Store
from cairn.store.sqlite.filesystem import check_platform

if TYPE_CHECKING:
    from cairn.store.sqlite.inspection import Inspector

Durability = Literal["full", "process"]


def open_store(url_or_path: str | Path, *, durability: Durability = "full") -> Store:
    """Open a store, making it if there is none.

    Within a process all who open the same file share one object, and each closes it once.

    Args:
        url_or_path: A file path (or `sqlite:PATH`), or `:memory:` for a store that ends with
            the process.
        durability: `full` survives power loss; `process` survives the end of the process only
            and is faster.

    Raises:
        ConfigError: there is no such kind of store, no such folder, or the file is open with
            another durability.
        UnsupportedStore: this file, filesystem, library or platform cannot hold a store safely.
        SchemaTooNew: the file was written by a newer Cairn.
    """
    given: object = url_or_path
    if not isinstance(given, str | os.PathLike):
        fix = "Give a file path, or :memory:"
        raise ConfigError("store", f"{safe_repr(given)} is no place for a store", fix)
    _check_durability(durability)
    text = str(url_or_path)
    if not text.strip() or "\0" in text or not _is_encodable(text):
        fix = "Give a path in plain characters, as cairn.db"
        raise ConfigError("store", f"{safe_repr(text)} can be the path of no file", fix)
    if text == ":memory:":
        from cairn.store.inmemory import InMemoryStore

        return InMemoryStore()
    scheme, separator, rest = text.partition(":")
    if separator and scheme.isalpha() and len(scheme) > 1:
        if scheme != "sqlite":
            raise ConfigError("store", f"there is no store of kind {scheme!r}", "Give a file path")
        text = rest.removeprefix("//") if rest.startswith("///") else rest
    check_platform()
    from cairn.store.sqlite.store import open_sqlite

    return open_sqlite(text, durability=durability)


def store_of(given: object, durability: Durability) -> Store:
    """What a runtime is given as its store: one that is open already, or where to open it.

    Raises:
        As `open_store`.
    """
    _check_durability(durability)
    if all(hasattr(given, verb) for verb in ("append", "submit", "close")):
        return given  # type: ignore[return-value]  # it has what makes one
    return open_store(given, durability=durability)  # type: ignore[arg-type]  # which looks


def _check_durability(given: object) -> None:
    if given not in ("full", "process"):  # a tuple: what is given may have no hash
        fix = "Write 'full' or 'process'"
        raise ConfigError("durability", f"{safe_repr(given)} is not known", fix)


def _is_encodable(text: str) -> bool:
    """Whether the file system has a name for it; a lone surrogate has none."""
    try:
        os.fsencode(text)
    except UnicodeEncodeError:
        return False
    return True


def restore(backup_path: str | Path, path: str | Path) -> None:
    """Put a copy that `Store.backup` made in the place of a store, or where there is none.

    Runs that were being driven when the copy was made count as expired, not as dead: whoever
    drove them may still be at work.

    Args:
        backup_path: The copy; it stays as it is.
        path: The file path of the store.

    Raises:
        ConfigError: there is no such copy, or no such folder.
        UnsupportedStore: it is not a whole copy of a store, or the store in that place is in use.
        SchemaTooNew: a newer Cairn made the copy.
    """
    check_platform()
    from cairn.store.sqlite.store import restore as restore_sqlite

    restore_sqlite(backup_path, path)


def inspect_store(path: str | Path) -> Inspector:
    """Look at a store file without changing it: it may be a copy, or only readable.

    Args:
        path: The file path, or `sqlite:PATH`.

    Raises:
        ConfigError: there is no such file.
        SchemaTooNew, UnsupportedStore, StoreError: it is no store that can be looked at.
    """
    from cairn.store.sqlite.inspection import Inspector

    return Inspector(_file_of(str(path)))


def _file_of(text: str) -> str:
    rest = text.removeprefix("sqlite:")
    if rest != text and rest.startswith("///"):
        return rest.removeprefix("//")
    return rest
