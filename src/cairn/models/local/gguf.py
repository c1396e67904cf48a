"""What the head of a GGUF file says: that it is one, and how much context its model knows."""

from __future__ import annotations

import mmap
import struct
from pathlib import Path
from typing import BinaryIO

from cairn.errors import ConfigError

MAGIC = b"GGUF"
SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}
"""Bytes of a value, by the number of its type."""
STRING, ARRAY = 8, 9
WHOLE_NUMBERS = frozenset({0, 1, 2, 3, 4, 5, 10, 11})
LONGEST_KEY = 65_535
TEMPLATE = b"tokenizer.chat_template"
HEAD_BYTES = 64 * 2**20
"""How much of a file is searched for a template; vocabularies are far smaller."""


def context_length(path: Path) -> int:
    """How many tokens the model was made for; 0 when the file does not say.

    Raises:
        ConfigError: it is no GGUF file, or cannot be read.
    """
    fix = "Give the path of a GGUF file, as llama.cpp runs it"
    try:
        with path.open("rb") as file:
            if file.read(4) != MAGIC:
                raise ConfigError("model", f"{str(path)!r} is no GGUF file", fix)
            return _context_length(file)
    except (OSError, ValueError, struct.error) as error:
        raise ConfigError("model", f"{str(path)!r} cannot be read: {error}", fix) from error


def _context_length(file: BinaryIO) -> int:
    _version, _tensors, count = struct.unpack("<IQQ", file.read(20))
    for _ in range(count):
        key = _string(file)
        kind = _number(file, "<I")
        if key.startswith("tokenizer.") or kind == ARRAY:
            break  # what is asked for stands before the long lists
        if key.endswith(".context_length") and kind in WHOLE_NUMBERS:
            return int.from_bytes(file.read(SIZES[kind]), "little")
        if kind == STRING:
            file.seek(_number(file, "<Q"), 1)
        elif kind in SIZES:
            file.seek(SIZES[kind], 1)
        else:
            raise ValueError(f"unknown type {kind} of {key!r}")
    return 0


def _number(file: BinaryIO, form: str) -> int:
    return int(struct.unpack(form, file.read(struct.calcsize(form)))[0])


def _string(file: BinaryIO) -> str:
    length = _number(file, "<Q")
    if length > LONGEST_KEY:
        raise ValueError("its head is damaged")
    return file.read(length).decode()


def has_template(path: Path) -> bool:
    """Whether the file brings the form its conversations are written in."""
    key = struct.pack("<Q", len(TEMPLATE)) + TEMPLATE + struct.pack("<I", STRING)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as head:
        return head.find(key, 0, HEAD_BYTES) >= 0
