"""Where providers are and how they are spoken to: one row each, and keys from the environment."""

from __future__ import annotations

import os
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Literal
from urllib.parse import urlsplit

from cairn.core.messages import Record
from cairn.errors import ConfigError

Wire = Literal["chat", "responses", "messages", "gemini"]
PACKAGES: dict[Wire, str] = {
    "chat": "openai",
    "responses": "openai",
    "messages": "anthropic",
    "gemini": "google",
}
"""Wire format → the vendor library that speaks it."""
EXTRAS = "pip install 'cairn-runtime[providers]'"
LOCAL_EXTRA = "pip install 'cairn-runtime[local]'"
NO_KEY = "no-key-needed"
_TAILS = ("/chat/completions", "/responses", "/v1/messages")
"""Ends of addresses that requests are sent to, which users copy from a provider's page."""


class Endpoint(Record):
    """A provider, as far as it can be known before anything is loaded.

    Args:
        provider: The prefix users write.
        wire: The format it speaks.
        base_url: Where it is; empty means that the user must say it.
        keys: Environment variables that may hold its key, the first one that is set wins.
        url_key: Environment variable that may say where it is.
        free_key: Whether it works without a key, as servers of one's own do.
        profile: Which of the library's provider classes knows its peculiarities.
        prices: What the price data call it, if not by its own name.
        cache_key: Whether it takes a key that keeps equal prefixes on one machine.
        max_tokens: Whether it wants the output limit under its old name, `max_tokens`.
    """

    provider: str
    wire: Wire = "chat"
    base_url: str = ""
    keys: tuple[str, ...] = ()
    url_key: str = ""
    free_key: bool = False
    profile: str = ""
    prices: str = ""
    cache_key: bool = False
    max_tokens: bool = False

    @property
    def price_name(self) -> str:
        """What the price data call it."""
        return self.prices or self.provider


def _own(provider: str, base_url: str, variable: str, profile: str = "") -> Endpoint:
    """A server of one's own: it needs no key, and usually stands on this machine."""
    return Endpoint(
        provider=provider,
        base_url=base_url,
        keys=(f"{variable}_API_KEY",),
        url_key=f"{variable}_BASE_URL",
        free_key=True,
        profile=profile,
        max_tokens=not profile,
    )


_OPENAI = ("OPENAI_API_KEY",)
_ROWS = (
    Endpoint(
        provider="openai",
        wire="responses",
        base_url="https://api.openai.com/v1",
        keys=_OPENAI,
        url_key="OPENAI_BASE_URL",
        cache_key=True,
    ),
    Endpoint(
        provider="openai-chat",
        base_url="https://api.openai.com/v1",
        keys=_OPENAI,
        url_key="OPENAI_BASE_URL",
        prices="openai",
        cache_key=True,
    ),
    Endpoint(
        provider="anthropic",
        wire="messages",
        base_url="https://api.anthropic.com",
        keys=("ANTHROPIC_API_KEY",),
        url_key="ANTHROPIC_BASE_URL",
    ),
    Endpoint(
        provider="google",
        wire="gemini",
        base_url="https://generativelanguage.googleapis.com",
        keys=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
        url_key="GOOGLE_GEMINI_BASE_URL",
    ),
    Endpoint(
        provider="compatible",
        keys=("CAIRN_COMPATIBLE_API_KEY",),
        url_key="CAIRN_COMPATIBLE_BASE_URL",
        free_key=True,
        max_tokens=True,
    ),
    _own("ollama", "http://127.0.0.1:11434/v1", "OLLAMA", "ollama:OllamaProvider"),
    _own("vllm", "http://127.0.0.1:8000/v1", "VLLM", "vllm:VLLMProvider"),
    _own("llamacpp", "http://127.0.0.1:8080/v1", "LLAMACPP"),
    _own("lmstudio", "http://127.0.0.1:1234/v1", "LMSTUDIO"),
    Endpoint(
        provider="deepseek",
        base_url="https://api.deepseek.com",
        keys=("DEEPSEEK_API_KEY",),
        profile="deepseek:DeepSeekProvider",
    ),
    Endpoint(
        provider="qwen",
        base_url="https://dashscope-intl.aliyuncs.com/compatible-mode/v1",
        keys=("DASHSCOPE_API_KEY", "ALIBABA_API_KEY"),
        url_key="DASHSCOPE_BASE_URL",
        profile="alibaba:AlibabaProvider",
    ),
    Endpoint(
        provider="moonshot",
        base_url="https://api.moonshot.ai/v1",
        keys=("MOONSHOT_API_KEY", "MOONSHOTAI_API_KEY"),
        profile="moonshotai:MoonshotAIProvider",
    ),
    Endpoint(
        provider="zai",
        base_url="https://api.z.ai/api/paas/v4",
        keys=("ZAI_API_KEY",),
        profile="zai:ZaiProvider",
    ),
    Endpoint(
        provider="mistral",
        base_url="https://api.mistral.ai/v1",
        keys=("MISTRAL_API_KEY",),
        max_tokens=True,
    ),
    Endpoint(
        provider="groq",
        base_url="https://api.groq.com/openai/v1",
        keys=("GROQ_API_KEY",),
        max_tokens=True,
    ),
    Endpoint(
        provider="openrouter",
        base_url="https://openrouter.ai/api/v1",
        keys=("OPENROUTER_API_KEY",),
        profile="openrouter:OpenRouterProvider",
    ),
    Endpoint(
        provider="together",
        base_url="https://api.together.xyz/v1",
        keys=("TOGETHER_API_KEY",),
        profile="together:TogetherProvider",
    ),
    Endpoint(
        provider="fireworks",
        base_url="https://api.fireworks.ai/inference/v1",
        keys=("FIREWORKS_API_KEY",),
        profile="fireworks:FireworksProvider",
    ),
    Endpoint(
        provider="xai",
        base_url="https://api.x.ai/v1",
        keys=("XAI_API_KEY",),
        max_tokens=True,
        prices="x-ai",
    ),
    Endpoint(
        provider="cerebras",
        base_url="https://api.cerebras.ai/v1",
        keys=("CEREBRAS_API_KEY",),
        profile="cerebras:CerebrasProvider",
    ),
    Endpoint(
        provider="huggingface",
        base_url="https://router.huggingface.co/v1",
        keys=("HF_TOKEN",),
        max_tokens=True,
    ),
)
ENDPOINTS: dict[str, Endpoint] = {row.provider: row for row in _ROWS}


def address_of(endpoint: Endpoint, given: str, environ: Mapping[str, str] = os.environ) -> str:
    """Where requests go: what was given, what the environment says, or the provider's own.

    Raises:
        ConfigError: nobody says it, or it is no http address.
    """
    named = environ.get(endpoint.url_key, "") if endpoint.url_key else ""
    source = "base_url" if given.strip() else endpoint.url_key
    found = given.strip() or named.strip() or endpoint.base_url
    where = f"{endpoint.provider}.base_url"
    if not found:
        fix = f"Give base_url=, or set {endpoint.url_key}"
        raise ConfigError(where, "nobody says where the server is", fix)
    parts = urlsplit(found)
    if parts.scheme not in {"http", "https"} or not parts.hostname:  # perhaps a key was pasted
        fix = "Write it as 'https://host/v1'"
        raise ConfigError(where, f"what {source} says is no address of a server", fix)
    path = parts.path.rstrip("/")
    tail = next((each for each in _TAILS if path.endswith(each)), "")
    if tail:
        right = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{path.removesuffix(tail)}"
        problem = f"what {source} says ends in {tail}, which is added to it for each request"
        raise ConfigError(where, problem, f"Write {right!r}")
    return found.rstrip("/")


def address_variable(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> str:
    """The variable a provider's address comes from; empty if it is not set."""
    is_set = endpoint.url_key and environ.get(endpoint.url_key, "").strip()
    return endpoint.url_key if is_set else ""


def key_of(endpoint: Endpoint, given: str, environ: Mapping[str, str] = os.environ) -> str:
    """The key: what was given, or the first variable that is set. Blank counts as not set.

    Raises:
        ConfigError: there is none and the provider needs one, or it can be no key. The message
            never holds the key.
    """
    found = given_key(endpoint, given, environ)
    names = " or ".join(endpoint.keys)
    where = f"{endpoint.provider}.api_key"
    if found:
        if problem := _no_key(found):
            source = "api_key=" if given.strip() else key_variable(endpoint, environ)
            fix = f"Set {source} anew: the key alone, on one line, without quotes around it"
            raise ConfigError(where, f"the key in {source} {problem}", fix)
        return found
    if endpoint.free_key:
        return NO_KEY
    raise ConfigError(
        where,
        f"{names} is not set",
        f"Export it (export {endpoint.keys[0]}=…), or pass RemoteModel(…, api_key=…)",
    )


def given_key(endpoint: Endpoint, given: str, environ: Mapping[str, str] = os.environ) -> str:
    """What stands where a key should, without space around it; empty for nothing."""
    return given.strip() or environ.get(key_variable(endpoint, environ), "").strip()


def key_variable(endpoint: Endpoint, environ: Mapping[str, str] = os.environ) -> str:
    """The variable a provider's key comes from; empty if none is set."""
    return next((name for name in endpoint.keys if environ.get(name, "").strip()), "")


def _no_key(found: str) -> str:
    """Why this can be no key, without a word of it; empty if it can."""
    if not found.isascii():
        return "holds characters that no key has, such as quotes that a text program has bent"
    if any(each.isspace() for each in found):
        return "has white space or a line end inside"
    return "" if found.isprintable() else "holds control characters"


def is_private(base_url: str) -> bool:
    """Whether the server stands on this machine or in a network of one's own."""
    host = urlsplit(base_url).hostname or ""
    if host == "localhost":
        return True
    try:
        return ip_address(host).is_private
    except ValueError:
        return False
