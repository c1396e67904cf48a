"""What a deployment asks of every sandbox in it: a rung at least, and limits at most."""

from __future__ import annotations

from typing import Any, get_args

from cairn.core.messages import Record
from cairn.core.names import listed
from cairn.errors import ConfigError, safe_repr
from cairn.sandbox.launch import Rung
from cairn.sandbox.limits import Limits

STRENGTH: tuple[Rung, ...] = ("unsandboxed", "landlock", "bubblewrap-root", "bubblewrap")
"""From the weakest up."""


class Minimum(Record):
    """The least that the commands of a deployment run behind, and the most that each may take.

    Args:
        rung: The weakest rung that will do: `landlock` (default: any walls), `bubblewrap-root` or
            `bubblewrap`; `unsandboxed` asks for none.
        limits: Bounds of every command; those of a tool hold where they are lower. Default: those
            of the tools alone.

    Raises:
        ConfigError: there is no such rung, or the limits are none.
    """

    rung: Rung = "landlock"
    limits: Limits | None = None

    def __post_init__(self) -> None:
        if self.rung not in STRENGTH:
            names = listed(get_args(Rung))
            said = f"there is no rung {safe_repr(self.rung)}"
            raise ConfigError("sandbox.rung", said, f"The rungs are {names}")
        given: Any = self.limits
        if given is not None and not isinstance(given, Limits):
            fix = "Give a cairn.sandbox.Limits"
            raise ConfigError("sandbox.limits", f"{safe_repr(given, 80)} are none", fix)

    def takes(self, rung: Rung) -> bool:
        """Whether a rung is strong enough."""
        return STRENGTH.index(rung) >= STRENGTH.index(self.rung)


def minimum_of(given: object) -> Minimum | None:
    """The minimum that `Runtime(sandbox=...)` means; None for none.

    Raises:
        ConfigError: it is neither a `Minimum` nor the name of a rung.
    """
    if given is None or isinstance(given, Minimum):
        return given
    if given in STRENGTH:
        return Minimum(rung=given)
    fix = f"Give a cairn.sandbox.Minimum, or one of {listed(STRENGTH)}"
    raise ConfigError("Runtime.sandbox", f"{safe_repr(given, 80)} is no minimum", fix)
