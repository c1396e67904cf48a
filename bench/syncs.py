"""Counts syncs where strace is not to be had: a layer under SQLite prints the file of each one.

Usage: `python bench/syncs.py FOLDER TURNS`; one line for each sync.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import Any

import apsw
from workloads import KB, cairn_run, make_agent

from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore

LAYER = "cairn-bench"


class CountedFile(apsw.VFSFile):
    """A file that says so when it is synced."""

    def __init__(self, name: str, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._name = name

    def xSync(self, flags: int) -> None:  # noqa: N802 - SQLite's name
        sys.stdout.write(f"{self._name}\n")
        super().xSync(flags)


class Counted(apsw.VFS):
    """The usual file layer, with `CountedFile` for files."""

    def __init__(self) -> None:
        super().__init__(LAYER, "")

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802 - SQLite's name
        if name is None:
            return super().xOpen(name, flags)
        path = name if isinstance(name, str) else name.filename()
        if not path.endswith("-wal"):
            return CountedFile(name, flags) if isinstance(name, str) else _of(name, flags, path)
        return _of(name, flags, path)


def _of(name: Any, flags: list[int], path: str) -> CountedFile:
    file = CountedFile(name, flags)
    file._name = path  # noqa: SLF001 - this module's own class
    return file


def main() -> None:
    folder, turns = Path(sys.argv[1]), int(sys.argv[2])
    layer = Counted()
    store = SqliteStore(Settings(path=str(folder / "store.db"), vfs=LAYER))
    asyncio.run(cairn_run(store, make_agent(turns, KB)))
    del layer


if __name__ == "__main__":
    main()
