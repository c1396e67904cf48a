"""Language models behind one port, found by name; a vendor library loads only on first use."""

from __future__ import annotations

from cairn.core.names import listed, nearest
from cairn.errors import ConfigError, safe_repr
from cairn.models.endpoints import ENDPOINTS
from cairn.ports import Model

LOCAL = "local"
PROVIDERS = (*ENDPOINTS, LOCAL)
"""What may stand before the colon of a model's name."""
EXAMPLES = {
    LOCAL: "local:/path/to/file.gguf or local:smollm2",
    "openai": "openai:gpt-5-mini",
    "anthropic": "anthropic:claude-haiku-5-5",
    "google": "google:gemini-2.5-flash",
}
ALSO_CALLED = {
    "alibaba": "qwen",
    "claude": "anthropic",
    "dashscope": "qwen",
    "gemini": "google",
    "glm": "zai",
    "gpt": "openai",
    "grok": "xai",
    "hf": "huggingface",
    "kimi": "moonshot",
    "llama.cpp": "llamacpp",
    "openai-responses": "openai",
}
"""What providers are called by people → their name here."""


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
                f"{safe_repr(model)} is no model",
                "Give a model object or a string such as 'provider:name'",
            )
        return
    provider, colon, name = model.partition(":")
    known_as = ALSO_CALLED.get(provider.lower())
    close = (known_as,) if known_as else nearest(provider, PROVIDERS)
    meant = f"Did you mean {' or '.join(close)}? " if close else ""
    if not colon:
        fix = f"{meant}Write a model as 'provider:name'"
        raise ConfigError(where, f"{safe_repr(model)} names no provider", fix)
    if provider not in PROVIDERS:
        raise ConfigError(
            where,
            f"there is no provider {safe_repr(provider)}",
            f"{meant}The providers are {listed(PROVIDERS)}; "
            "any OpenAI-compatible server is RemoteModel('compatible:name', base_url=…)",
        )
    if not name.strip():
        fix = f"Write the model after the colon, as in {EXAMPLES.get(provider, f'{provider}:name')}"
        raise ConfigError(where, f"{safe_repr(model)} names no model of provider {provider}", fix)
    if name != name.strip():
        right = f"{provider}:{name.strip()}"
        raise ConfigError(
            where, f"{safe_repr(model)} has white space around the name", f"Write {right!r}"
        )


def find_model(model: Model | str) -> Model:
    """The model itself, or the one a `provider:name` string stands for.

    Raises:
        ConfigError: the string has no provider part, or the provider is not known.
    """
    check_model(model, "model")
    if not isinstance(model, str):
        return model
    provider, _, name = model.partition(":")
    if provider == LOCAL:
        from cairn.models import local

        return local.model(name)
    from cairn.models import remote

    return remote.model(provider, name)
