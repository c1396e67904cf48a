"""What the parts of a policy are made of: said at once, not found out when a call is judged."""

from __future__ import annotations

from typing import Any

from cairn.errors import ConfigError, safe_repr


def need(fine: object, field: str, problem: str, fix: str) -> None:
    """Refuse a part that cannot be.

    Raises:
        ConfigError: it is not `fine`.
    """
    if not fine:
        raise ConfigError(field, problem, fix)


def several(field: str, value: Any, kinds: type | tuple[type, ...] = str) -> None:
    """Refuse what is no tuple of these: a text alone would be read letter by letter."""
    fine = isinstance(value, tuple | list) and all(isinstance(each, kinds) for each in value)
    fix = (
        f"Write ({safe_repr(value)},)"
        if isinstance(value, kinds)
        else 'Write a tuple, as ("a", "b")'
    )
    need(fine, field, f"{safe_repr(value, 80)} is no tuple of them", fix)


def predicates(field: str, *values: Any) -> None:
    """Refuse what is no predicate."""
    for value in values:
        form = getattr(value, "__struct_config__", None)
        fix = "Write Equals(...), Inside(...) or the like"
        need(
            getattr(form, "tag_field", "") == "is",
            field,
            f"{safe_repr(value, 80)} is no predicate",
            fix,
        )
