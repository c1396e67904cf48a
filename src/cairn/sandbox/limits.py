"""What one sandboxed command may take."""

from __future__ import annotations

from cairn.core.messages import Record
from cairn.errors import ConfigError, safe_repr

MIB = 1 << 20


class Limits(Record):
    """Bounds of one command and of all it starts.

    Args:
        wall_s: Seconds until it is ended. Default 50, within the call's own time.
        cpu_s: Seconds of processor time per process. Default 60.
        memory_bytes: Memory of all its processes together. Default 1 GiB.
        processes: Processes and threads alive at a time. Default 128.
        file_bytes: Size of one file. Default 256 MiB.
        disk_bytes: By how much the workspace may grow. Default 1 GiB.
        tmp_bytes: Each folder in memory (temporary files, shared memory). Default 64 MiB.
        open_files: Open descriptors per process. Default 256.
        output_bytes: Kept of each output, head and tail. Default 64 KiB.
    """

    wall_s: float = 50.0
    cpu_s: int = 60
    memory_bytes: int = 1024 * MIB
    processes: int = 128
    file_bytes: int = 256 * MIB
    disk_bytes: int = 1024 * MIB
    tmp_bytes: int = 64 * MIB
    open_files: int = 256
    output_bytes: int = 64 * 1024

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            number = isinstance(value, int | float) and not isinstance(value, bool)
            if not number or not value > 0:
                raise ConfigError(
                    f"limits.{name}", f"{safe_repr(value)} is no bound", "Give more than 0"
                )

    def within(self, most: Limits | None) -> Limits:
        """These bounds, none of them above the others; None bounds nothing."""
        if most is None:
            return self
        return Limits(
            **{n: min(getattr(self, n), getattr(most, n)) for n in self.__struct_fields__}
        )
