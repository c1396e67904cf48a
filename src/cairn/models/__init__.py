"""Language models behind one port, found by name; a vendor library loads only on first use."""

from __future__ import annotations

from importlib import import_module

from cairn.errors import ConfigError
from cairn.ports import Model

ADAPTERS: dict[str, str] = {}
"""Provider prefix → module with a `model(name)` function. Real providers register here."""


def check_model(model: object, where: str) -> None:
    """Refuse what can be no model, without loading anything.

    Raises:
        ConfigError: it is neither a model object nor a string of a known provider.
    """
    if not isinstance(model, str):
        if isinstance(model, type):
            raise ConfigError(where, f"{model.__name__} is a class", "Make an object of it")
        if not callable(getattr(model, "request", None)):
            raise ConfigError(
                where,
                f"{model!r} is no model",
                "Give a model object or a string such as 'provider:name'",
            )
        return
    provider, colon, name = model.partition(":")
    if not colon or not name:
        raise ConfigError(where, f"{model!r} names no provider", "Write it as 'provider:name'")
    if provider not in ADAPTERS:
        known = ", ".join(sorted(ADAPTERS)) or "none in this version"
        raise ConfigError(
            where,
            f"there is no provider {provider!r} (known: {known})",
            "Pass a model object, for example cairn.Scripted([...])",
        )


def find_model(model: Model | str) -> Model:
    """The model itself, or the one a `provider:name` string stands for.

    Raises:
        ConfigError: the string has no provider part, or the provider is not available.
    """
    check_model(model, "model")
    if not isinstance(model, str):
        return model
    provider, _, name = model.partition(":")
    found: Model = import_module(ADAPTERS[provider]).model(name)
    return found
