"""Language models behind one port, found by name; a vendor library loads only on first use."""

from __future__ import annotations

from importlib import import_module

from cairn.errors import ConfigError
from cairn.ports import Model

ADAPTERS: dict[str, str] = {}
"""Provider prefix → module with a `model(name)` function. Real providers register here."""


def find_model(model: Model | str) -> Model:
    """The model itself, or the one a `provider:name` string stands for.

    Raises:
        ConfigError: the string has no provider part, or the provider is not available.
    """
    if not isinstance(model, str):
        if not callable(getattr(model, "request", None)):
            raise ConfigError(
                "Agent.model",
                f"{type(model).__name__} is no model",
                "Give a model object or a string such as 'provider:name'",
            )
        return model
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise ConfigError(
            "Agent.model", f"{model!r} names no provider", "Write it as 'provider:name'"
        )
    if provider not in ADAPTERS:
        known = ", ".join(sorted(ADAPTERS)) or "none in this version"
        raise ConfigError(
            "Agent.model",
            f"there is no provider {provider!r} (known: {known})",
            "Pass a model object, for example cairn.Scripted([...])",
        )
    found: Model = import_module(ADAPTERS[provider]).model(name)
    return found
