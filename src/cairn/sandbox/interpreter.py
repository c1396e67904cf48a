"""Which Python runs behind the walls, and what it needs to see."""

from __future__ import annotations

import functools
import os
import sys
from pathlib import Path

from cairn.core.messages import Record

PACKAGE = Path(__file__).parent
BOOT = (
    "import sys;m=sys.modules;"
    "[m.setdefault(n,type(sys)(n)) for n in('cairn','cairn.sandbox')];"
    "m['cairn'].__path__=[];m['cairn.sandbox'].__path__=[sys.argv[1]];"
    "from cairn.sandbox.inside.jail import main;main()"
)
"""Starts the supervisor without the rest of the package, which a call need not pay for."""
SYSTEM = ("/usr/bin/python3", "/bin/python3")


class Interpreter(Record):
    """An interpreter and the folders it lives in, beside the system's own.

    Args:
        path: The program, free of symbolic links.
        folders: What must be readable for it to run.
        packages: Third-party packages below these folders, which are hidden.
    """

    path: str
    folders: tuple[str, ...] = ()
    packages: tuple[str, ...] = ()


@functools.cache
def own() -> Interpreter:
    """The one this process runs on, without the virtual environment around it."""
    base = getattr(sys, "_base_executable", "") or sys.executable
    path = os.path.realpath(base)
    prefixes = {os.path.realpath(each) for each in (sys.base_prefix, sys.base_exec_prefix)}
    folders = tuple(sorted(each for each in prefixes if not _is_below(each, "/usr")))
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    packages = [f"{folder}/lib/{version}/site-packages" for folder in folders]
    return Interpreter(path=path, folders=folders, packages=tuple(filter(os.path.isdir, packages)))


def for_user(uid: int) -> Interpreter | None:
    """One that another user can reach by name: this one, the system's, or none."""
    mine = own()
    if uid == os.getuid() or passable(mine.path):
        return mine
    for path in SYSTEM:
        if os.access(path, os.X_OK) and passable(os.path.realpath(path)):
            return Interpreter(path=os.path.realpath(path))
    return None


def command(path: str, folder: str) -> list[str]:
    """The supervisor's command line; the package's `inside` lies in `folder`."""
    return [path, "-I", "-S", "-c", BOOT, folder]


def _is_below(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def passable(path: str) -> bool:
    """Whether everybody may pass through all the folders above it."""
    return all(folder.stat().st_mode & 0o001 for folder in Path(path).parents)
