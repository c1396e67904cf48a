"""The context: what a tool sees of the call it serves, and how it starts processes."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from cairn.core.finding import Found
from cairn.core.messages import Principal
from cairn.errors import ConfigError, SyncInsideLoop, Unsure, safe_repr
from cairn.tools.process import TERM_GRACE_S, Completed, Process
from cairn.tools.text import shorten

if TYPE_CHECKING:
    from cairn.memory.desk import Desk
    from cairn.sandbox import Minimum
    from cairn.workspace.workspace import Workspace

Deps = TypeVar("Deps")
OnProgress = Callable[[str, float | None], None]
FindTools = Callable[[str, int], dict[str, str]]
SearchHistory = Callable[[str, int], list[Found]]
ReadArtifact = Callable[[str], Awaitable[tuple[str, str] | None]]

PROGRESS_CHARS = 500
MAX_OUTPUT = 1_000_000
NOBODY = Principal()


class Context(Generic[Deps]):
    """What a tool sees of the call it serves. One is made per attempt, by the engine.

    Attributes:
        run_id, session, step, call_id, attempt: Where in the trace the call stands.
        tool: Name of the tool that runs (a fallback has its own).
        principal: For whom the run works.
        deps: The deployment's own objects, typed.
        timeout_s: How long the attempt may take, in seconds; None for as long as it likes.
        deadline: When its time is up, in seconds of `monotonic`.
        workspace: The folder the run works in; None if the deployment gives none.
        memory: What is remembered, as this run may use it; None if the deployment gives none.
        sandbox: What the deployment asks of every sandbox; None if it asks nothing.

    `secret(name)` gives the value of a registered secret that the tool declares.
    """

    __slots__ = (
        "_closed",
        "_key",
        "_lock",
        "_processes",
        "artifact",
        "artifacts",
        "attempt",
        "call_id",
        "deadline",
        "deps",
        "facts",
        "history",
        "lock_path",
        "memory",
        "monotonic",
        "on_progress",
        "principal",
        "run_id",
        "sandbox",
        "secret",
        "session",
        "step",
        "timeout_s",
        "tool",
        "tools",
        "workspace",
    )

    def __init__(  # noqa: PLR0913 - the engine hands over plain values, each by its name
        self,
        *,
        run_id: str = "",
        session: str = "",
        step: int = 0,
        call_id: str = "",
        attempt: int = 1,
        tool: str = "",
        principal: Principal = NOBODY,
        key: str | Callable[[], str] = "",
        deps: Deps = None,  # type: ignore[assignment] # - a tool without deps never reads them
        timeout_s: float | None = None,
        monotonic: Callable[[], float] = time.monotonic,
        on_progress: OnProgress | None = None,
        lock_path: str | Callable[[], str] = "",
        artifact: ReadArtifact | None = None,
        artifacts: int = 0,
        history: SearchHistory | None = None,
        tools: FindTools | None = None,
        workspace: Workspace | None = None,
        memory: Desk | None = None,
        sandbox: Minimum | None = None,
        secret: Callable[[str], str] | None = None,
    ) -> None:
        """Made by the engine; in unit tests any value may be left out.

        Beside what the class lists:

            on_progress: Called with message and fraction in whatever thread the tool runs; must
                return at once.
            key, lock_path: The value, or a function that makes it when it is first wanted.
                The lock file is held by child processes as long as they live; empty for none.
            artifact: Reads name and text of an artifact of the run; None if there is none.
            artifacts: How many there are: a1, a2, …
            tools: Finds tools that are not on offer, name to description; None when all are.
            history: Searches the run's own messages, also those that are no longer sent.

        The list `facts` takes events that are to share the commit of the call's outcome; only
        built-in tools use it.
        """
        self.run_id = run_id
        self.session = session
        self.step = step
        self.call_id = call_id
        self.attempt = attempt
        self.tool = tool
        self.principal = principal
        self._key = key
        self.deps = deps
        self.timeout_s = timeout_s
        self.deadline = None if timeout_s is None else monotonic() + timeout_s
        self.monotonic = monotonic
        self.on_progress = on_progress
        self.lock_path = lock_path
        self.artifact = artifact
        self.artifacts = artifacts
        self.history = history
        self.tools = tools
        self.workspace = workspace
        self.memory = memory
        self.sandbox = sandbox
        self.secret = secret if secret is not None else _no_secret
        self.facts: list[Any] = []
        self._processes: set[Process] = set()
        self._closed = False
        self._lock = threading.Lock()

    @property
    def key(self) -> str:
        """Idempotency key: the same for every attempt of the call, for this call only."""
        if callable(self._key):
            self._key = self._key()
        return self._key

    def remaining(self) -> float | None:
        """Seconds until the deadline, 0 when it has passed, None when there is none."""
        return None if self.deadline is None else max(0.0, self.deadline - self.monotonic())

    @property
    def closed(self) -> bool:
        """Whether the call is over: its time was up, or it was cancelled."""
        return self._closed

    def progress(self, message: str, fraction: float | None = None) -> None:
        """Show how far the tool is; nothing of it is recorded.

        Args:
            message: A short text; cut at 500 characters.
            fraction: Between 0 and 1, if known.
        """
        if self.on_progress is None or self._closed:
            return
        known = fraction is not None and fraction == fraction  # noqa: PLR0124 - NaN is not itself
        self.on_progress(
            shorten(str(message), PROGRESS_CHARS),
            min(1.0, max(0.0, float(fraction or 0))) if known else None,
        )

    def run(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> Completed:
        """Run a command and wait for it; for sync tools.

        The process and its descendants end with the call: at the deadline, when the call is
        cancelled, and what is left of its group when the command itself ends. Only processes
        started here can be proven gone after a crash.

        Args:
            argv: Program and arguments. No shell is involved.
            input: What it reads from standard input; nothing by default.
            cwd: Its working folder; this process's by default.
            env: Its whole environment; this process's by default.
            timeout: Seconds it may take, within the rest of the call's own time.
            max_output: Bytes kept of each output; head and tail of a longer one.

        Raises:
            TimeoutError: the time was up and it was killed.
            Unsure: the call is over.
            OSError: it could not be started; nothing ran.
            SyncInsideLoop: called on an event loop; await `run_async` there.
        """
        if _on_a_loop():
            raise SyncInsideLoop("ctx.run would block the event loop: await ctx.run_async(...)")
        process = self._process(argv, input, cwd, env, max_output)
        try:
            return process.run(self._seconds(timeout))
        finally:
            self._forget(process)

    async def run_async(
        self,
        argv: Sequence[str | os.PathLike[str]],
        *,
        input: str | bytes | None = None,
        cwd: str | os.PathLike[str] | None = None,
        env: Mapping[str, str] | None = None,
        timeout: float | None = None,
        max_output: int = MAX_OUTPUT,
    ) -> Completed:
        """`run` for async tools. When the task is cancelled the process is killed first."""
        process = self._process(argv, input, cwd, env, max_output)
        done = _in_thread(lambda: process.run(self._seconds(timeout)))
        try:
            await asyncio.wait({done})
        except asyncio.CancelledError:
            process.stop()
            await asyncio.wait({done}, timeout=TERM_GRACE_S * 2)
            raise
        finally:
            self._forget(process)
        return done.result()

    def close(self) -> None:
        """The call is over: kill what it runs, start nothing more. From any thread, also twice."""
        with self._lock:
            self._closed = True
            processes = tuple(self._processes)
        for process in processes:
            process.stop()

    def _process(
        self,
        argv: Sequence[str | os.PathLike[str]],
        input: str | bytes | None,
        cwd: str | os.PathLike[str] | None,
        env: Mapping[str, str] | None,
        max_output: int,
    ) -> Process:
        lock_path = self.lock_path() if callable(self.lock_path) else self.lock_path
        process = Process(
            argv, input=input, cwd=cwd, env=env, max_output=max_output, lock_path=lock_path
        )
        with self._lock:
            if self._closed:  # not NotDone: what the tool did before may well have happened
                raise Unsure("the call is over; no process was started")
            self._processes.add(process)
        return process

    def _forget(self, process: Process) -> None:
        with self._lock:
            self._processes.discard(process)

    def _seconds(self, timeout: float | None) -> float | None:
        left = self.remaining()
        if timeout is None or left is None:
            return left if timeout is None else timeout
        return min(timeout, left)


def _no_secret(name: str) -> str:
    raise ConfigError(
        "ctx.secret", f"no secret {safe_repr(name)} is registered here", "Give secret="
    )


def _on_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _in_thread(work: Callable[[], Completed]) -> asyncio.Future[Completed]:
    """A future for work done in a thread of its own: the shared pool is small and can be full."""
    loop = asyncio.get_running_loop()
    done: asyncio.Future[Completed] = loop.create_future()
    done.add_done_callback(lambda each: each.cancelled() or each.exception())  # may be abandoned

    def settle(result: Completed | None, error: BaseException | None) -> None:
        if done.done():
            return
        if error is not None:
            done.set_exception(error)
        elif result is not None:
            done.set_result(result)

    def serve() -> None:
        result, error = None, None
        try:
            result = work()
        except BaseException as caught:  # belongs to whoever awaits it, not to this thread
            error = caught
        try:
            loop.call_soon_threadsafe(settle, result, error)
        except RuntimeError:
            return  # the loop is closed: nobody awaits it any more

    threading.Thread(target=serve, name="cairn-process", daemon=True).start()
    return done
