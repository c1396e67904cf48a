"""Several trials at once: processes that each take one trial after the other."""

import json
import os
import selectors
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict
from typing import Any

from trial import fork


def in_lanes(jobs: list[Any], lanes: int, work: Callable[[Any], Any]) -> Iterator[dict[str, Any]]:
    """What `work` gives for each job (a dataclass, as a dict), as it comes.

    Every lane takes each n-th job, so that what one of them does does not hang on the others.

    Raises:
        RuntimeError: a lane ended before its jobs did.
    """
    waiting = selectors.DefaultSelector()
    children = []
    for at in range(min(lanes, len(jobs))):
        reading, writing = os.pipe()
        share = jobs[at::lanes]
        children.append(fork(lambda r=reading, w=writing, s=share: _lane(r, w, s, work)))
        os.close(writing)
        waiting.register(reading, selectors.EVENT_READ, bytearray())
    came = 0
    while waiting.get_map():
        for key, _ in waiting.select():
            for line in _lines(key.fd, key.data, waiting):
                came += 1
                yield json.loads(line)
    for child in children:
        os.waitpid(child, 0)
    if came != len(jobs):
        raise RuntimeError(f"{len(jobs) - came} trials were lost")


def _lines(fd: int, pending: bytearray, waiting: selectors.BaseSelector) -> Iterable[bytes]:
    chunk = os.read(fd, 65_536)
    if not chunk:
        waiting.unregister(fd)
        os.close(fd)
        return []
    pending += chunk
    *whole, rest = bytes(pending).split(b"\n")
    pending[:] = rest
    return whole


def _lane(reading: int, writing: int, jobs: list[Any], work: Callable[[Any], Any]) -> None:
    os.close(reading)
    for job in jobs:
        line = json.dumps(asdict(work(job))).encode() + b"\n"
        while line:
            line = line[os.write(writing, line) :]
