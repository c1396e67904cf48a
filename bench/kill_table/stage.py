"""What every case of the kill table shares: the scene, the log of effects, and the death.

The standard library only, for each peer runs in an environment of its own. A case is called as
`python CASE.py SETTING SHAPE FOLDER LIFE`:

    SHAPE   serial: turn 1 calls `fast`, turn 2 calls `slow`, turn 3 answers
            together: turn 1 calls both, turn 2 answers
    LIFE    1 dies by SIGKILL inside `slow`, after its effect; 2 goes on in a new process
"""

import os
import signal
import sys
import time
from pathlib import Path

SETTING, SHAPE, FOLDER, LIFE = sys.argv[1], sys.argv[2], Path(sys.argv[3]), int(sys.argv[4])
EFFECTS = FOLDER / "effects"
TURNS = {"serial": (("fast",), ("slow",), ()), "together": (("fast", "slow"), ())}[SHAPE]
"""Which tools the model calls in each turn; none is the answer."""
SETTLE_S = 0.7
"""How long a finished sibling has to be recorded before the death."""


def effect(name: str) -> None:
    """One line, on the disk before anything else happens."""
    handle = os.open(EFFECTS, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    os.write(handle, f"{name}\n".encode())
    os.fsync(handle)
    os.close(handle)


def fast() -> str:
    """A short piece of work."""
    effect("fast")
    return "fast ok"


def slow() -> str:
    """A long piece of work; the first process dies in it."""
    while "fast" not in EFFECTS.read_text().split():
        time.sleep(0.01)
    effect("slow")
    if LIFE == 1:
        time.sleep(SETTLE_S)
        os.kill(os.getpid(), signal.SIGKILL)
    return "slow ok"


def key(value: str) -> None:
    """The idempotency key that `slow` was given."""
    with (FOLDER / "keys").open("a") as file:
        file.write(f"{value}\n")


def told(what: str) -> None:
    """What the second process has to say of the run in the end."""
    (FOLDER / "told").write_text(what)
