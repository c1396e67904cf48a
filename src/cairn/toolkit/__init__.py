"""The toolkit room: built-in tools for files, commands, Python, HTTP and memory.

Every tool is imported by the name a model calls it by, as `from cairn.toolkit import shell`; no
module here has the name of a tool. `FILE_TOOLS` are all tools for files, `READ_TOOLS` those that
only read, `MEMORY_TOOLS` all for memory; `shell_tool`, `python_tool` and `http_tool` make tools
with an operator's own choices.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cairn.toolkit.commands import shell, shell_tool
    from cairn.toolkit.edit import edit_file
    from cairn.toolkit.files import (
        FILE_TOOLS,
        READ_TOOLS,
        delete_file,
        list_files,
        move_file,
        read_file,
        write_file,
    )
    from cairn.toolkit.http import http_fetch, http_tool
    from cairn.toolkit.patch import apply_patch
    from cairn.toolkit.programs import python, python_tool
    from cairn.toolkit.remembering import MEMORY_TOOLS, forget, recall, remember
    from cairn.toolkit.search import search_files

_HOMES = {
    "cairn.toolkit.commands": ("shell", "shell_tool"),
    "cairn.toolkit.edit": ("edit_file",),
    "cairn.toolkit.files": (
        "FILE_TOOLS",
        "READ_TOOLS",
        "delete_file",
        "list_files",
        "move_file",
        "read_file",
        "write_file",
    ),
    "cairn.toolkit.http": ("http_fetch", "http_tool"),
    "cairn.toolkit.patch": ("apply_patch",),
    "cairn.toolkit.programs": ("python", "python_tool"),
    "cairn.toolkit.remembering": ("MEMORY_TOOLS", "forget", "recall", "remember"),
    "cairn.toolkit.search": ("search_files",),
}
_NAMES = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "FILE_TOOLS",
    "MEMORY_TOOLS",
    "READ_TOOLS",
    "apply_patch",
    "delete_file",
    "edit_file",
    "forget",
    "http_fetch",
    "http_tool",
    "list_files",
    "move_file",
    "python",
    "python_tool",
    "read_file",
    "recall",
    "remember",
    "search_files",
    "shell",
    "shell_tool",
    "write_file",
]


def __getattr__(name: str) -> Any:
    home = _NAMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cairn.toolkit' has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_NAMES})
