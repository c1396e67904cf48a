"""The toolkit room: built-in tools for files, commands, Python and HTTP.

`FILE_TOOLS` are all tools for files, `READ_TOOLS` those that only read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from cairn.toolkit.files import FILE_TOOLS, READ_TOOLS
    from cairn.toolkit.http import http_tool
    from cairn.toolkit.python import python_tool
    from cairn.toolkit.shell import shell_tool

_HOMES = {
    "FILE_TOOLS": "cairn.toolkit.files",
    "READ_TOOLS": "cairn.toolkit.files",
    "http_tool": "cairn.toolkit.http",
    "python_tool": "cairn.toolkit.python",
    "shell_tool": "cairn.toolkit.shell",
}

__all__ = ["FILE_TOOLS", "READ_TOOLS", "http_tool", "python_tool", "shell_tool"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'cairn.toolkit' has no attribute {name!r}")
    return getattr(import_module(home), name)
