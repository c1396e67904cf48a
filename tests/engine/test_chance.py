"""Waits are spread by a chance of the runtime's own."""

import os
import random

import pytest

from cairn.engine.host import CHANCE


def drawn() -> bytes:
    return b"".join(f"{CHANCE.random():.17f}".encode() for _ in range(4))


def test_no_seed_of_an_application_decides_what_is_drawn() -> None:
    before = random.getstate()
    try:
        random.seed(1)
        first = drawn()
        random.seed(1)
        assert drawn() != first
    finally:
        random.setstate(before)


@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_and_its_child_do_not_draw_alike() -> None:
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.write(write, drawn())
        finally:
            os._exit(0)
    os.close(write)
    mine = drawn()
    with os.fdopen(read, "rb") as pipe:
        theirs = pipe.read()
    assert os.waitpid(child, 0)[1] == 0
    assert len(theirs) == len(mine)
    assert theirs != mine
