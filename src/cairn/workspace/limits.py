"""How much a workspace may hold."""

from __future__ import annotations

from cairn.core.messages import Record
from cairn.errors import ConfigError, safe_repr
from cairn.workspace.refusals import WorkspaceLimit


class WorkspaceLimits(Record):
    """Bounds of one workspace; a write that would pass one is refused and names it.

    Args:
        file_bytes: Bytes of one file, read or written. Default 8 MiB.
        total_bytes: Bytes of all files together. Default 256 MiB.
        files: Files, folders and links together. Default 10,000.
        depth: Names in one path. Default 32.
        path_bytes: Bytes of one path in UTF-8. Default 1,024.
    """

    file_bytes: int = 8 << 20
    total_bytes: int = 256 << 20
    files: int = 10_000
    depth: int = 32
    path_bytes: int = 1_024

    def refuse_file(self, path: str, size: int) -> None:
        """Raise `WorkspaceLimit` if one file may not be so large."""
        if size > self.file_bytes:
            said = f"{path}: {size:,} bytes are too many for one file"
            raise WorkspaceLimit("file_bytes", size, self.file_bytes, said)


def checked_limits(given: object) -> WorkspaceLimits:
    """The limits, if they can be; the standard ones for None.

    Raises:
        ConfigError: these are none, or one of them is not a whole number above 0.
    """
    limits = WorkspaceLimits() if given is None else given
    if not isinstance(limits, WorkspaceLimits):
        raise ConfigError(
            "Workspace.limits", f"{safe_repr(given)} is none", "Give WorkspaceLimits(...)"
        )
    for name in limits.__struct_fields__:
        value = getattr(limits, name)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            said = f"{safe_repr(value)} is not possible"
            raise ConfigError(f"WorkspaceLimits.{name}", said, "Give a whole number above 0")
    return limits
