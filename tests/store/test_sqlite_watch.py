"""The thread that looks for other processes' news ends when it is told to, at any moment."""

import asyncio
import threading

from cairn.store import open_store


def test_a_store_closes_even_when_the_word_to_stop_comes_as_the_watcher_falls_asleep(tmp_path):
    async def main():
        store = open_store(tmp_path / "cairn.db")
        watch = store._watch
        stopping: list[threading.Thread] = []
        begun = threading.Event()

        class Untimely(threading.Event):
            """An event whose clearing erases the word to stop, which came just before it."""

            def clear(self) -> None:
                super().clear()
                if not stopping:
                    stopping.append(threading.Thread(target=watch.stop, daemon=True))
                    stopping[0].start()
                    assert self.wait(10)
                    super().clear()
                    begun.set()

        watch._wanted = Untimely()
        await store.news(0, 0.05)
        assert await asyncio.to_thread(begun.wait, 10)
        await asyncio.to_thread(stopping[0].join, 10)
        assert not stopping[0].is_alive()
        await store.close()

    asyncio.run(main())
