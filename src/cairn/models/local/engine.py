"""llama.cpp in this process: one engine per file and setup, loaded once, shared by all runs.

The engine is the server of llama.cpp, called directly. It insists on a socket: that is one in a
private folder, removed as soon as it stands, so nobody can reach it. It also takes Ctrl-C over
for the whole process: what was there before is put back.
"""

from __future__ import annotations

import ctypes
import os
import secrets
import signal
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from cairn.core.messages import Record
from cairn.errors import ErrorClass, ModelError
from cairn.models.local.gguf import has_template

BATCH = 64
"""Prompt tokens between two looks at whether the request is still wanted."""
PLAIN = (
    "{% for m in messages %}{{ m['role'] }}: {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}assistant:{% endif %}"
)
"""How a conversation is written for a file that brings no form of its own."""
TURN = "\nuser:"
"""Where such a model begins to speak for the other side."""
SIGACTION_BYTES = 1_024

SCHEMA = "json_schema"
COMPACT = {
    "x-guidance": {
        "whitespace_flexible": False,
        "item_separator": ", ",
        "key_separator": ": ",
        "lenient": True,
    }
}
"""Small models fill the space a grammar leaves them with line ends, until they are cut."""

OnChunk = Callable[[dict[str, Any]], bool]
"""Takes a chunk of the reply; true ends the generation."""


class Setup(Record):
    """What makes two engines the same: the file, and how it is run."""

    path: Path
    threads: int = 1
    slots: int = 1
    window: int = 8_192


class Engine:
    """A loaded file and the threads that ask it. There are never more threads than slots."""

    def __init__(self, setup: Setup) -> None:
        self._setup = setup
        self._server: Any = None
        self._formed = True
        self._loading = threading.Lock()
        self._pool = ThreadPoolExecutor(setup.slots, thread_name_prefix="cairn-local")

    def submit(self, body: dict[str, Any], on_chunk: OnChunk) -> Future[None]:
        """Generate in a thread; the first request loads the file there.

        The future fails with `ModelError` when the file cannot be loaded, or when this process
        was forked from one that had loaded it.
        """
        return self._pool.submit(self._generate, body, on_chunk)

    def _generate(self, body: dict[str, Any], on_chunk: OnChunk) -> None:
        with self._loading:
            if self._server is None:
                self._formed = has_template(self._setup.path)
                self._server = _load(self._setup, formed=self._formed)
        if not self._formed:
            body = {**body, "stop": [TURN]}
        try:
            self._server.handle_chat_completions(_forced(body), on_chunk)
        except ValueError as error:
            raise ModelError(ErrorClass.INVALID_REQUEST, f"llama.cpp refused: {error}") from error
        except RuntimeError as error:
            raise ModelError(ErrorClass.UNAVAILABLE, f"llama.cpp failed: {error}") from error

    def orphan(self) -> None:
        """Never free the server: its threads do not exist on this side of a fork."""
        if self._server is not None:
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(self._server))


class _Forked:
    """Stands in the child of a fork for an engine that was loaded before it."""

    def submit(self, body: dict[str, Any], on_chunk: OnChunk) -> Future[None]:
        refused: Future[None] = Future()
        refused.set_exception(
            ModelError(
                ErrorClass.MODEL_NOT_FOUND,
                "a local model was loaded before this process was forked from another, and "
                "cannot be used here; start child processes with 'spawn'",
            )
        )
        return refused


_engines: dict[Setup, Engine] = {}
_guard = threading.Lock()
_forked = False


def engine(setup: Setup) -> Engine | _Forked:
    """The engine of this setup, the same one for everybody in this process."""
    if _forked:
        return _Forked()
    with _guard:
        if setup not in _engines:
            _engines[setup] = Engine(setup)
        return _engines[setup]


def _after_fork() -> None:
    global _forked, _guard  # noqa: PLW0603 - the child has its own of both
    _guard = threading.Lock()
    if not _engines:
        return
    _forked = True
    for found in _engines.values():
        found.orphan()
    libc = ctypes.CDLL(None)
    if hasattr(libc, "on_exit"):  # else the library's own clean-up waits for those threads too
        libc.on_exit(ctypes.cast(libc["_exit"], ctypes.c_void_p), None)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


def _forced(body: dict[str, Any]) -> dict[str, Any]:
    """The body with the schema of its reply, if there is one, as a grammar without idle space."""
    if SCHEMA not in body:
        return body
    grammar = import_module("xllamacpp").json_schema_to_grammar({**body[SCHEMA], **COMPACT})
    return {**{k: v for k, v in body.items() if k != SCHEMA}, "grammar": grammar}


# ---------------------------------------------------------------- loading


def _load(setup: Setup, *, formed: bool) -> Any:
    try:
        llama = import_module("xllamacpp")
        params = _params(setup, llama.CommonParams())
        if not formed:
            params.chat_template = PLAIN
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder, _signals_kept():
            params.hostnames = [str(Path(folder) / "s.sock")]
            return llama.Server(params)
    except (ImportError, OSError, RuntimeError, ValueError) as error:
        raise ModelError(
            ErrorClass.MODEL_NOT_FOUND,
            f"llama.cpp cannot load {setup.path.name}: {error}",
        ) from error


def _params(setup: Setup, params: Any) -> Any:
    params.model.path = str(setup.path)
    params.n_ctx = setup.window * setup.slots
    params.n_parallel = setup.slots
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = setup.threads
    params.n_threads_http = 1
    params.api_keys = [secrets.token_hex(16)]
    params.cache_ram_mib = 0
    params.fit_params = False
    params.warmup = False
    params.ui = False
    params.verbosity = 0
    return params


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Put the process's handlers back that llama.cpp replaces while it loads.

    Python can only set handlers from its main thread, so this asks the C library.
    """
    sigaction = ctypes.CDLL(None).sigaction
    kept = {}
    for number in (signal.SIGINT, signal.SIGTERM):
        kept[number] = ctypes.create_string_buffer(SIGACTION_BYTES)
        sigaction(int(number), None, kept[number])
    try:
        yield
    finally:
        for number, before in kept.items():
            sigaction(int(number), before, None)
