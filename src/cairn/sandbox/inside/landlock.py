"""Landlock: a process gives up, for itself and all it starts, every file it does not name here."""

# ruff: noqa: PTH112 - pathlib would cost more than all else at each start

from __future__ import annotations

import ctypes
import errno
import os
import struct
from collections.abc import Iterable

_CREATE, _ADD, _RESTRICT = 444, 445, 446  # the same on every machine
_BENEATH = 1

_EXECUTE, _WRITE, _READ, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_FIRST_ABI = (1 << 13) - 1
_REFER, _TRUNCATE, _IOCTL = 1 << 13, 1 << 14, 1 << 15
_MAKE_DEVICES = 1 << 6 | 1 << 11
_TCP = 3
_SCOPES = 3
"""Abstract sockets and signals."""

READ_ONLY = _EXECUTE | _READ | _READ_DIR
_ON_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE | _IOCTL


def abi(libc: ctypes.CDLL) -> int:
    """The version this kernel speaks; 0 when it has none, or it is switched off."""
    return int(max(0, libc.syscall(_CREATE, None, ctypes.c_size_t(0), 1)))


def handled(version: int) -> int:
    """All rights to files that a kernel of this version can take away."""
    rights = _FIRST_ABI
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL)):
        rights |= right if version >= since else 0
    return rights


def restrict(
    libc: ctypes.CDLL, *, readable: Iterable[str], writable: Iterable[str], devices: Iterable[str]
) -> int:
    """Keep only these places; names that do not exist are left out. Returns the version used.

    Also gives up TCP, abstract sockets of others and signals to others, as far as known.

    Raises:
        OSError: the kernel refused, or has no Landlock.
    """
    version = abi(libc)
    if version < 1:
        raise OSError(errno.ENOSYS, "this kernel has no Landlock, or it is switched off")
    rights = handled(version)
    fields = struct.pack("=QQQ", rights, _TCP * (version >= 4), _SCOPES * (version >= 6))
    size = 24 if version >= 6 else 16 if version >= 4 else 8
    ruleset = _checked(libc.syscall(_CREATE, fields, ctypes.c_size_t(size), 0), "ruleset")
    try:
        for path in readable:
            _allow(libc, ruleset, path, rights & READ_ONLY)
        for path in writable:
            _allow(libc, ruleset, path, rights & ~_MAKE_DEVICES)
        for path in devices:
            _allow(libc, ruleset, path, rights & (_READ | _WRITE))
        _checked(libc.syscall(_RESTRICT, ruleset, 0), "restrict")
    finally:
        os.close(ruleset)
    return version


def _allow(libc: ctypes.CDLL, ruleset: int, path: str, rights: int) -> None:
    try:
        place = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not os.path.isdir(path):
            rights &= _ON_FILES
        rule = struct.pack("=Qi", rights, place)
        _checked(libc.syscall(_ADD, ruleset, _BENEATH, rule, 0), path)
    finally:
        os.close(place)


def _checked(result: int, what: str) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, f"landlock {what}: {os.strerror(number)}")
    return result
