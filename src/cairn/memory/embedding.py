"""An embedder made safe: within a time limit, off the loop, checked, and quiet about its failures.

What goes wrong here is never an error of whoever keeps or asks: facts are found by their words
all the same, and the answer says why it is not by their meaning.
"""

from __future__ import annotations

import asyncio
import contextvars
import inspect
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Literal

from cairn.core.messages import Record, clean
from cairn.core.words import LONGEST_QUERY
from cairn.errors import ConfigError, safe_repr, words_of
from cairn.memory.facts import Fact, is_number
from cairn.memory.port import Embedder
from cairn.memory.ranking import packed, unpacked
from cairn.memory.resting import Clock, Rest

TIMEOUT_S = 3.0
LONGEST_S = 600
REST_S = 10.0
MOST_DIMENSIONS = 8192
REASON_CHARS = 200
AT_ONCE = 32
"""Facts that are handed to an embedder in one call."""
THREADS = 4
"""Calls of a plain function that run at once; one that never returns keeps its thread."""
MOST_ASIDE = 1_000
PROBE = "a"
"""A text that any embedder can take: it says whether the embedder or a fact is at fault."""
log = logging.getLogger("cairn")


class Made(Record, gc=True):
    """What came of facts that were to get vectors.

    Args:
        vectors: Those that were made, by the facts' numbers.
        why: Why there are not more; empty when each fact got one.
    """

    vectors: tuple[tuple[int, bytes], ...] = ()
    why: str = ""


class _Answer(Record, gc=True):
    vectors: tuple[bytes, ...] = ()
    why: str = ""
    how: Literal["", "failed", "late", "rests"] = ""


class Embedding:
    """An embedder, and how long it may take.

    Args:
        embedder: Whoever makes the vectors.
        timeout_s: Seconds that a question, or a handful of facts, may take it. Default 3.
        rest_s: Seconds for which it is not asked again after a failure; twice as long after each
            further one, up to 5 minutes. Default 10.
        clock: Tells seconds that only grow.

    Raises:
        ConfigError: a value is not usable.
    """

    def __init__(
        self,
        embedder: Embedder,
        timeout_s: float = TIMEOUT_S,
        rest_s: float = REST_S,
        clock: Clock = time.monotonic,
    ) -> None:
        if not all(hasattr(embedder, part) for part in ("name", "dimensions", "embed")):
            fix = "Give an object with name, dimensions and async embed(texts)"
            raise ConfigError("MemoryRules.embedder", f"{safe_repr(embedder)} is none", fix)
        dimensions = embedder.dimensions
        if not is_number(dimensions) or not 1 <= dimensions <= MOST_DIMENSIONS:
            fix = f"Use 1 to {MOST_DIMENSIONS}"
            raise ConfigError(
                "Embedder.dimensions", f"{safe_repr(dimensions)} are too many or none", fix
            )
        if not is_number(timeout_s) or not 0 < timeout_s <= LONGEST_S:
            fix = f"Give 0.1 to {LONGEST_S} s"
            raise ConfigError("embed_timeout", f"{safe_repr(timeout_s)} s cannot be", fix)
        if not embedder.name or clean(embedder.name) != embedder.name:
            raise ConfigError("Embedder.name", "it has no name", "Say which model it is")
        embed: object = embedder.embed
        if not callable(embed):
            fix = "Give it a method embed(texts), async or not"
            raise ConfigError("Embedder.embed", "it cannot be called", fix)
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._rest_s = rest_s
        self._clock = clock
        self._questions, self._facts = Rest(rest_s, clock), Rest(rest_s, clock)
        self._at_once = AT_ONCE
        self._threads = threading.BoundedSemaphore(THREADS)
        self._left: set[asyncio.Future[Any]] = set()
        self.aside: set[int] = set()
        """Facts that the embedder fails at although it works: they are not tried again here."""
        self.model = f"{embedder.name}/{dimensions}"
        """What vectors are compared within."""

    def afresh(self) -> None:
        """Forget what has failed: a person wants it tried again at once."""
        self._questions = Rest(self._rest_s, self._clock)
        self._facts = Rest(self._rest_s, self._clock)
        self.aside.clear()

    async def of_question(self, query: str) -> tuple[tuple[float, ...], str]:
        """The meaning of a question; or nothing, and why not."""
        answer = await self._rested(self._questions, [query[:LONGEST_QUERY]])
        if answer.why:
            return (), answer.why
        return tuple(unpacked(answer.vectors[0])), ""

    async def of_facts(self, facts: Sequence[Fact]) -> Made:
        """Vectors of the first facts of these, as many as the embedder makes in its time.

        One that it cannot take is found and set aside; the others get theirs.
        """
        made: list[tuple[int, bytes]] = []
        left = [fact for fact in facts if fact.n not in self.aside]
        until = self._clock() + self._timeout_s
        why, size = "", self._at_once
        while left and self._clock() < until:
            part = left[:size]
            answer = await self._rested(self._facts, [fact.text for fact in part])
            if not answer.why:
                made += [(fact.n, v) for fact, v in zip(part, answer.vectors, strict=True)]
                left = left[len(part) :]
                size = self._at_once = min(2 * size, AT_ONCE)
                continue
            why = answer.why
            if answer.how == "late":  # fewer of them take less time
                self._at_once = max(size // 2, 1)
            if answer.how != "failed" or not await self._works():
                break
            if len(part) == 1:
                self._set_aside(part[0], why)
                left = left[1:]
            size = max(len(part) // 2, 1)
        if left and not why:
            why = f"the embedder {self._embedder.name} is slow: the others have to wait"
        if why:
            log.warning("facts got no vectors: %s", why)
        return Made(vectors=tuple(made), why=why)

    async def _works(self) -> bool:
        """Whether the embedder takes anything at all; if so, nobody need leave it alone."""
        begun = self._clock()
        answer = await self._asked([PROBE])
        if not answer.why:
            self._facts.end(begun, "")
        return not answer.why

    def _set_aside(self, fact: Fact, why: str) -> None:
        log.warning("%s gets no vector, and is found by its words alone: %s", fact.id, why)
        if len(self.aside) < MOST_ASIDE:
            self.aside.add(fact.n)

    async def _rested(self, rest: Rest, texts: list[str]) -> _Answer:
        """The vectors; or none, and why. Who has just failed is not asked again at once."""
        if not rest.begin():
            return _Answer(why=rest.why, how="rests")
        begun, answer = self._clock(), None
        try:
            answer = await self._asked(texts)
        finally:
            if answer is None:
                rest.leave()
        rest.end(begun, answer.why)
        return answer

    async def _asked(self, texts: list[str]) -> _Answer:
        name = self._embedder.name
        call = asyncio.ensure_future(self._called([clean(text) for text in texts]))
        self._left.add(call)
        call.add_done_callback(self._over)
        try:
            # not asyncio.timeout: an embedder that swallows its cancelling is not waited for either
            await asyncio.wait({call}, timeout=self._timeout_s)
        finally:
            call.cancel()
        if not call.done() or call.cancelled():
            said = f"the embedder {name} gave no answer within {self._timeout_s:g} s"
            return _Answer(why=said, how="late")
        try:
            vectors = [packed(each, self._embedder.dimensions) for each in call.result()]
        except BaseException as error:  # nothing is awaited here, so whatever it is, it is theirs
            return _Answer(why=f"the embedder {name} failed: {_said(error)}", how="failed")
        if len(vectors) != len(texts) or None in vectors:
            said = f"the embedder {name} gave what are no vectors of its size"
            return _Answer(why=said, how="failed")
        return _Answer(vectors=tuple(each for each in vectors if each is not None))

    def _over(self, call: asyncio.Future[Any]) -> None:
        self._left.discard(call)
        if not call.cancelled():
            call.exception()  # of one that nobody waits for any more: seen, so nobody is warned

    async def _called(self, texts: list[str]) -> Any:
        try:
            return await self._given(texts)
        except asyncio.CancelledError as error:
            task = asyncio.current_task()
            if task is None or task.cancelling():  # nobody waits for it any more
                raise
            raise RuntimeError(_said(error)) from error
        except GeneratorExit:  # its own, which who waits gets with the result; or the loop is gone
            raise
        except BaseException as error:  # even SystemExit ends this call and nothing else
            if isinstance(error, Exception):
                raise
            raise RuntimeError(_said(error)) from error

    async def _given(self, texts: list[str]) -> Any:
        embed: Any = self._embedder.embed
        if inspect.iscoroutinefunction(embed):
            return await embed(texts)
        made = await self._in_a_thread(lambda: embed(texts))
        return await made if inspect.isawaitable(made) else made

    async def _in_a_thread(self, work: Callable[[], Any]) -> Any:
        """What a plain function gives, without the loop standing still meanwhile."""
        if not self._threads.acquire(blocking=False):
            raise BlockingIOError(f"{THREADS} calls of it are still at work")
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[Any, BaseException | None]] = loop.create_future()
        variables = contextvars.copy_context()

        def tell(value: Any, error: BaseException | None) -> None:
            if not answered.done():
                answered.set_result((value, error))

        def serve() -> None:
            value, failed = None, None
            try:
                value = variables.run(work)
            except Exception as error:  # told to whoever waits
                failed = error
            except BaseException as error:  # even SystemExit ends this call and nothing else
                failed = RuntimeError(_said(error))
            finally:
                self._threads.release()
            with suppress(RuntimeError):  # the loop is closed: whoever waited is gone
                loop.call_soon_threadsafe(tell, value, failed)

        try:  # no pool: the end of the process would wait for a thread of one
            threading.Thread(target=serve, name="cairn-embed", daemon=True).start()
        except RuntimeError:  # the system has no more threads
            self._threads.release()
            raise
        value, error = await answered
        if error is not None:
            raise error
        return value


def _said(error: BaseException) -> str:
    """What went wrong, shortly."""
    return clean(words_of(error)[:REASON_CHARS])
