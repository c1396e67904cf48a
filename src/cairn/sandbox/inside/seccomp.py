"""A system call filter, made by hand: a list of (test, answer) that the kernel runs per call.

It is a list of what is refused. What is refused is what reaches the host in spite of the other
walls: other processes, kernel interfaces, namespaces, sockets; and every call that is newer than
this list.
"""

from __future__ import annotations

import ctypes
import errno
import struct

MACHINES = {"x86_64": 0, "aarch64": 1, "arm64": 1}
_AUDIT = (0xC000003E, 0xC00000B7)
_NEWEST = 462
"""Later calls do not exist: nobody has looked at them here."""

_LOAD, _EQUAL, _ABOVE, _ANY_BIT, _RETURN = 0x20, 0x15, 0x25, 0x45, 0x06
_ALLOW = 0x7FFF0000
_KILL = 0x80000000
_REFUSE = 0x00050000 | errno.EPERM
_UNKNOWN = 0x00050000 | errno.ENOSYS
_BAD_FAMILY = 0x00050000 | errno.EAFNOSUPPORT

_NR, _ARCH = 0, 4
_NAMESPACES = 0x7E020080
"""CLONE_NEWNS, -CGROUP, -UTS, -IPC, -USER, -PID, -NET and -TIME."""
_AF_UNIX, _AF_INET, _AF_INET6 = 1, 2, 10
_TIOCSTI, _TIOCLINUX = 0x5412, 0x541C

# Numbers on x86_64 and aarch64; -1 where a machine lacks the call.
_NEVER = {
    "acct": (163, 89),
    "add_key": (248, 217),
    "adjtimex": (159, 171),
    "bpf": (321, 280),
    "chroot": (161, 51),
    "clock_adjtime": (305, 266),
    "clock_settime": (227, 112),
    "create_module": (174, -1),
    "delete_module": (176, 106),
    "fanotify_init": (300, 262),
    "fanotify_mark": (301, 263),
    "finit_module": (313, 273),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fsopen": (430, 430),
    "fspick": (433, 433),
    "init_module": (175, 105),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_uring_setup": (425, 425),
    "ioperm": (173, -1),
    "iopl": (172, -1),
    "kcmp": (312, 272),
    "kexec_file_load": (320, 294),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "lookup_dcookie": (212, 18),
    "memfd_create": (319, 279),  # memory that belongs to no file and to no mapping
    "memfd_secret": (447, 447),
    "migrate_pages": (256, 238),
    "modify_ldt": (154, -1),
    "mount": (165, 40),
    "mount_setattr": (442, 442),
    "move_mount": (429, 429),
    "move_pages": (279, 239),
    "mq_open": (240, 180),
    "mq_unlink": (241, 181),
    "msgctl": (71, 187),
    "msgget": (68, 186),
    "msgrcv": (70, 188),
    "msgsnd": (69, 189),
    "name_to_handle_at": (303, 264),
    "nfsservctl": (180, 42),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_madvise": (440, 440),
    "process_mrelease": (448, 448),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "ptrace": (101, 117),
    "quotactl": (179, 60),
    "quotactl_fd": (443, 443),
    "reboot": (169, 142),
    "request_key": (249, 218),
    "semctl": (66, 191),
    "semget": (64, 190),
    "semop": (65, 193),
    "semtimedop": (220, 192),
    "setdomainname": (171, 162),
    "sethostname": (170, 161),
    "setns": (308, 268),
    "settimeofday": (164, 170),
    "shmat": (30, 196),
    "shmctl": (31, 195),
    "shmget": (29, 194),
    "swapoff": (168, 225),
    "swapon": (167, 224),
    "sysfs": (139, -1),
    "syslog": (103, 116),
    "umount2": (166, 39),
    "uselib": (134, -1),
    "userfaultfd": (323, 282),
    "ustat": (136, -1),
    "vhangup": (153, 58),
}
# Without namespaces: what no rule about files covers, though it changes or watches files by name.
_BY_NAME = {
    "chmod": (90, -1),
    "chown": (92, -1),
    "fchmodat": (268, 53),
    "fchmodat2": (452, 452),
    "fchownat": (260, 54),
    "futimesat": (261, -1),
    "inotify_add_watch": (254, 27),
    "lchown": (94, -1),
    "lremovexattr": (198, 15),
    "lsetxattr": (189, 6),
    "removexattr": (197, 14),
    "setxattr": (188, 5),
    "utime": (132, -1),
    "utimes": (235, -1),
}
# Without namespaces: what reaches another process of the same user by its number.
_OTHERS = {
    "ioprio_set": (251, 30),
    "pidfd_open": (434, 434),
    "pidfd_send_signal": (424, 424),
    "sched_setaffinity": (203, 122),
    "sched_setattr": (314, 274),
    "sched_setparam": (142, 118),
    "sched_setscheduler": (144, 119),
    "setpriority": (141, 140),
}
_SIGNALS = {
    "rt_sigqueueinfo": (129, 138),
    "rt_tgsigqueueinfo": (297, 240),
    "tgkill": (234, 131),
    "tkill": (200, 130),
}
# Calls that set a file's mode, and which argument it is. Made setuid by a command that runs as
# root's alias, a file in the workspace would serve any other user of the host.
_MODES: tuple[tuple[tuple[int, int], int], ...] = (
    ((90, -1), 1),
    ((91, 52), 1),
    ((268, 53), 2),
    ((452, 452), 2),
)
_MODES += (((85, -1), 1), ((133, -1), 1), ((259, 33), 2))
_OPENS = (((2, -1), 1), ((257, 56), 2))
_OPENAT2 = (437, 437)
_SETUID_BITS = 0o6000
_CREATES = 0o100 | 0o20000000
_CLONE, _CLONE3, _UNSHARE = (56, 220), (435, 435), (272, 97)
_IOCTL, _KILL_CALL, _PRLIMIT, _SOCKET = (16, 29), (62, 129), (302, 261), (41, 198)
_TRUNCATE, _UTIMENSAT, _SOCKETPAIR = (76, 45), (280, 88), (53, 199)


def _step(code: int, value: int, yes: int = 0, no: int = 0) -> bytes:
    return struct.pack("=HBBI", code, yes, no, value)


def _argument(index: int, *, high: bool = False) -> bytes:
    return _step(_LOAD, 16 + 8 * index + 4 * high)


def _when(number: int, *then: bytes) -> list[bytes]:
    """Run `then`, which must end in answers, if this is the call; else go on behind it."""
    return [] if number < 0 else [_step(_EQUAL, number, 0, len(then)), *then]


def _answer(value: int) -> bytes:
    return _step(_RETURN, value)


def program(
    machine: str, *, namespaces: bool, scoped: bool = True, truncates: bool = True
) -> bytes:
    """The filter, as the kernel wants it.

    Args:
        machine: As `os.uname().machine` names it.
        namespaces: Whether the process has its own; if not, sockets, other processes and file
            names of the host are within reach and are refused here.
        scoped: Whether Landlock keeps signals inside; if not, only the own group is signalled.
        truncates: Whether Landlock covers `truncate`.

    Raises:
        KeyError: there are no numbers for this machine.
    """
    at = MACHINES[machine]
    head = [
        _step(_LOAD, _ARCH),
        _step(_EQUAL, _AUDIT[at], 1, 0),
        _answer(_KILL),
        _step(_LOAD, _NR),
        _step(_ABOVE, _NEWEST, 0, 1),  # which holds for the numbers of the x32 calls, too
        _answer(_UNKNOWN),
    ]
    refused = dict(_NEVER)
    bare: list[bytes] = []
    if not namespaces:
        refused |= _BY_NAME | _OTHERS
        if not truncates:
            refused["truncate"] = _TRUNCATE
        if not scoped:
            refused |= _SIGNALS
        bare = _bare(at, scoped=scoped)
    never = [step for numbers in refused.values() for step in _when(numbers[at], _REFUSES)]
    judged = [*_sockets(at, namespaces=namespaces), *_judged(at), *bare]
    # What is refused whole comes before what depends on an argument: both lists name some calls.
    return b"".join([*head, *never, *judged, _ALLOWS])


_ALLOWS, _REFUSES = _answer(_ALLOW), _answer(_REFUSE)


def _sockets(at: int, *, namespaces: bool) -> list[bytes]:
    families = (_AF_UNIX, _AF_INET, _AF_INET6) if namespaces else ()
    wanted = [_step(_EQUAL, each, len(families) - rank, 0) for rank, each in enumerate(families)]
    code = _when(
        _SOCKET[at], _argument(0), *wanted, _answer(_BAD_FAMILY), *([_ALLOWS] if families else [])
    )
    pair = _step(_EQUAL, _AF_UNIX, 1, 0)
    return code + _when(_SOCKETPAIR[at], _argument(0), pair, _answer(_BAD_FAMILY), _ALLOWS)


def _judged(at: int) -> list[bytes]:
    """Calls that depend on an argument."""
    code = _when(
        _IOCTL[at],
        _argument(1),
        _step(_EQUAL, _TIOCSTI, 2, 0),
        _step(_EQUAL, _TIOCLINUX, 1, 0),
        _ALLOWS,
        _REFUSES,
    )
    for number in (_CLONE[at], _UNSHARE[at]):
        code += _when(number, _argument(0), _step(_ANY_BIT, _NAMESPACES, 1, 0), _ALLOWS, _REFUSES)
    for numbers, flags in _OPENS:
        code += _when(
            numbers[at],
            _argument(flags),
            _step(_ANY_BIT, _CREATES, 0, 2),
            _argument(flags + 1),
            _step(_ANY_BIT, _SETUID_BITS, 1, 0),
            _ALLOWS,
            _REFUSES,
        )
    for numbers, mode in _MODES:
        bits = _step(_ANY_BIT, _SETUID_BITS, 1, 0)
        code += _when(numbers[at], _argument(mode), bits, _ALLOWS, _REFUSES)
    # What these are to do lies in memory, where no filter looks; others are used in their place.
    for number in (_CLONE3[at], _OPENAT2[at]):
        code += _when(number, _answer(_UNKNOWN))
    # Only its own limits: another process could be starved to death by them.
    return code + _when(_PRLIMIT[at], _argument(0), _step(_EQUAL, 0, 1, 0), _REFUSES, _ALLOWS)


def _bare(at: int, *, scoped: bool) -> list[bytes]:
    """What depends on an argument where there are no namespaces."""
    # Times only through a descriptor, that is with no name: (fd, NULL, ...).
    code = _when(
        _UTIMENSAT[at],
        _argument(1),
        _step(_EQUAL, 0, 1, 0),
        _REFUSES,
        _argument(1, high=True),
        _step(_EQUAL, 0, 1, 0),
        _REFUSES,
        _ALLOWS,
    )
    if not scoped:
        own = _step(_EQUAL, 0, 1, 0)
        code += _when(_KILL_CALL[at], _argument(0), own, _REFUSES, _ALLOWS)
    return code


def install(libc: ctypes.CDLL, code: bytes) -> None:
    """Filter this process and all it will start, for good. `no_new_privs` must be set.

    Raises:
        OSError: the kernel refused.
    """
    instructions = ctypes.create_string_buffer(code, len(code))
    head = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(instructions))
    wanted = ctypes.create_string_buffer(head, len(head))
    if libc.prctl(22, 2, ctypes.c_void_p(ctypes.addressof(wanted)), 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"seccomp: {errno.errorcode.get(number, number)}")
