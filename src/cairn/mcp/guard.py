"""Starts a server's process and sees to it that the whole of it ends, even if we are killed.

Run as a script of its own, before anything else is imported: `python -I -S guard.py FD GRACE
PROGRAM ARGUMENT...`. FD is one end of a socket pair. The other end is held by Cairn alone, so
that its closing, by hand or by death, is the word to end. Then the server, whose input is closed
by the same hand, gets GRACE seconds, SIGTERM, GRACE seconds more, and SIGKILL with its group.
"""

import contextlib
import os
import select
import signal
import sys
import time

DEFAULTED = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
statuses: "dict[int, int]" = {}


def main(lifeline: int, grace: float, command: "list[str]") -> int:
    """Watch over one server; the exit status is its own."""
    os.set_inheritable(lifeline, False)
    woken, wake = os.pipe()
    for end in (woken, wake):
        os.set_blocking(end, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    for sign in DEFAULTED:
        signal.signal(sign, signal.SIG_IGN)  # only the lifeline and the server end us
    signal.set_wakeup_fd(wake)
    child = os.fork()
    if child == 0:
        become(command)
    os.write(lifeline, b"%d\n" % child)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # the server's alone from here on: they end when it does
        os.dup2(nothing, stream)
    while not ended(child):
        ready, _, _ = select.select([lifeline, woken], [], [], 1.0)
        if lifeline in ready:
            if not wait(child, woken, grace):
                tell(child, signal.SIGTERM)
                wait(child, woken, grace)
            break
        drain(woken)
    tell(child, signal.SIGKILL)
    status = statuses[child] if child in statuses else os.waitpid(child, 0)[1]
    return os.waitstatus_to_exitcode(status) & 0xFF


def become(command: "list[str]") -> None:
    """Turn into the server, in a session of its own."""
    try:
        os.setsid()
        signal.set_wakeup_fd(-1)
        for sign in (*DEFAULTED, signal.SIGCHLD, signal.SIGPIPE):
            signal.signal(sign, signal.SIG_DFL)
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted: this is the server
    except OSError as error:
        os.write(2, f"{command[0]} cannot be started: {error}\n".encode())
    finally:
        os._exit(127)


def ended(child: int) -> bool:
    """Whether it has ended; its pid stays ours until it is collected."""
    if not hasattr(os, "waitid"):  # macOS before Python 3.13
        if child not in statuses:
            pid, status = os.waitpid(child, os.WNOHANG)
            statuses.update({pid: status} if pid else {})
        return child in statuses
    return os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def wait(child: int, woken: int, seconds: float) -> bool:
    """Whether it ended within this time."""
    until = time.monotonic() + seconds
    while not ended(child):
        left = until - time.monotonic()
        if left <= 0:
            return False
        select.select([woken], [], [], min(left, 0.5))
        drain(woken)
    return True


def drain(woken: int) -> None:
    """Forget the signals that woke us."""
    with contextlib.suppress(BlockingIOError):
        os.read(woken, 512)


def tell(child: int, sign: signal.Signals) -> None:
    """Signal the server and its whole group; it may not have made the group yet."""
    for send in (os.killpg, os.kill):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            send(child, sign)


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), float(sys.argv[2]), sys.argv[3:]))
