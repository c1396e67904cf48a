"""An embedder made safe: within a time limit, checked, and quiet about its failures.

What goes wrong here is never an error of whoever keeps or asks: facts are found by their words
all the same, and the answer says why it is not by their meaning.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence

from cairn.core.messages import clean
from cairn.core.words import LONGEST_QUERY
from cairn.errors import ConfigError
from cairn.memory.facts import Fact, is_number
from cairn.memory.port import Embedder
from cairn.memory.ranking import packed, unpacked

TIMEOUT_S = 3.0
LONGEST_S = 600
REST_S = 10.0
MOST_DIMENSIONS = 8192
REASON_CHARS = 200
log = logging.getLogger("cairn")


class Embedding:
    """An embedder, and how long it may take.

    Args:
        embedder: Whoever makes the vectors.
        timeout_s: Seconds that a question, or a handful of facts, may take it. Default 3.
        rest_s: Seconds for which it is not asked again after a failure. Default 10.

    Raises:
        ConfigError: a value is not usable.
    """

    def __init__(
        self, embedder: Embedder, timeout_s: float = TIMEOUT_S, rest_s: float = REST_S
    ) -> None:
        if not all(hasattr(embedder, part) for part in ("name", "dimensions", "embed")):
            fix = "Give an object with name, dimensions and async embed(texts)"
            raise ConfigError("MemoryRules.embedder", f"{embedder!r:.200} is none", fix)
        dimensions = embedder.dimensions
        if not is_number(dimensions) or not 1 <= dimensions <= MOST_DIMENSIONS:
            fix = f"Use 1 to {MOST_DIMENSIONS}"
            raise ConfigError("Embedder.dimensions", f"{dimensions!r} are too many or none", fix)
        if not is_number(timeout_s) or not 0 < timeout_s <= LONGEST_S:
            fix = f"Give 0.1 to {LONGEST_S} s"
            raise ConfigError("embed_timeout", f"{timeout_s!r} s cannot be", fix)
        if not embedder.name or clean(embedder.name) != embedder.name:
            raise ConfigError("Embedder.name", "it has no name", "Say which model it is")
        self._embedder = embedder
        self._timeout_s = timeout_s
        self._rest_s = rest_s
        self._failed: tuple[float, str] | None = None
        self.model = f"{embedder.name}/{dimensions}"
        """What vectors are compared within."""

    async def of_question(self, query: str) -> tuple[tuple[float, ...], str]:
        """The meaning of a question; or nothing, and why not."""
        found, why = await self._made([query[:LONGEST_QUERY]])
        if why:
            return (), why
        return tuple(unpacked(found[0])), ""

    async def of_facts(self, facts: Sequence[Fact]) -> list[tuple[int, bytes]]:
        """Vectors of facts, by number; none at all when the embedder fails."""
        if not facts:
            return []
        found, why = await self._made([fact.text for fact in facts])
        if why:
            log.warning("facts got no vectors: %s", why)
            return []
        return [(fact.n, vector) for fact, vector in zip(facts, found, strict=True)]

    async def _made(self, texts: Sequence[str]) -> tuple[list[bytes], str]:
        """The vectors; or none, and why. Who has just failed is not asked again at once."""
        if self._failed is not None and time.monotonic() < self._failed[0] + self._rest_s:
            return [], self._failed[1]
        made, why = await self._asked(texts)
        self._failed = (time.monotonic(), why) if why else None
        return made, why

    async def _asked(self, texts: Sequence[str]) -> tuple[list[bytes], str]:
        name = self._embedder.name
        try:
            async with asyncio.timeout(self._timeout_s):
                made = list(await self._embedder.embed([clean(text) for text in texts]))
        except TimeoutError:
            return [], f"the embedder {name} gave no answer within {self._timeout_s:g} s"
        except Exception as error:  # an embedder's fault must not cost the fact or the answer
            said = f"{type(error).__name__}: {error}"[:REASON_CHARS]
            return [], clean(f"the embedder {name} failed: {said}")
        vectors = [packed(each, self._embedder.dimensions) for each in made]
        if len(vectors) != len(texts) or None in vectors:
            return [], f"the embedder {name} gave what are no vectors of its size"
        return [each for each in vectors if each is not None], ""
