"""Who watches which run: deltas, progress and events, as they happen in this process."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from cairn.ports import Observed, Observer


class Watchers:
    """Observers by run; `*` watches all."""

    def __init__(self) -> None:
        self._watchers: dict[str, list[Observer]] = {}

    def watch(self, run: str, observer: Observer) -> Callable[[], None]:
        """Have `observer` called for this run (`*` for all); returns what ends it."""
        self._watchers.setdefault(run, []).append(observer)

        def stop() -> None:
            with suppress(KeyError, ValueError):
                self._watchers[run].remove(observer)
                if not self._watchers[run]:
                    del self._watchers[run]

        return stop

    def watched(self, run: str) -> bool:
        """Whether anybody watches this run."""
        return bool(self._watchers) and (run in self._watchers or "*" in self._watchers)

    def observe(self, run: str, what: Observed) -> None:
        """Tell the observers. A broken one must not hurt the run."""
        for key in (run, "*"):
            for observer in tuple(self._watchers.get(key, ())):
                with suppress(Exception):
                    observer(run, what)
