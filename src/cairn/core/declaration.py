"""`Declaration`: records written by hand, which say what a misspelt field should have been."""

from __future__ import annotations

from typing import Any

import msgspec

from cairn.core.names import listed, nearest
from cairn.errors import ConfigError


class Declaration(type(msgspec.Struct)):  # type: ignore[misc]  # msgspec has no name for its metaclass
    """The metaclass of such records; reading one from JSON does not pass here.

    Raises:
        ConfigError: a field that the record does not have is given; names what may be meant.
    """

    def __call__(cls, *args: Any, **fields: Any) -> Any:
        """A new record of the class."""
        known: tuple[str, ...] = cls.__struct_fields__
        for name in fields:
            if name not in known:
                close = nearest(name, known)
                fix = f"Did you mean {close[0]!r}?" if close else f"Its fields are {listed(known)}"
                raise ConfigError(f"{cls.__name__}.{name}", "there is no such field", fix)
        return super().__call__(*args, **fields)
