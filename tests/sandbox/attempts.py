"""What hostile code tries behind the walls: one line of JSON per attempt tells what came of it.

    python -I -S attempts.py facts.json

An attempt reached its aim if its function returns without an OSError and with something other
than None; `Held` is raised by those whose failure shows otherwise.
"""

# ruff: noqa: PTH101, PTH102, PTH106, PTH104, PTH108, PTH116, PTH118, PTH123, PTH208, PTH211 - hostile code speaks to the system directly

import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import struct
import sys
import traceback

libc = ctypes.CDLL(None, use_errno=True)
ARM = platform.machine() in {"aarch64", "arm64"}
ATTEMPTS = {}
FACTS = {}
NUMBERS = {  # x86_64, aarch64
    "add_key": (248, 217),
    "bpf": (321, 280),
    "clone": (56, 220),
    "clone3": (435, 435),
    "chroot": (161, 51),
    "fanotify_init": (300, 262),
    "finit_module": (313, 273),
    "fsopen": (430, 430),
    "init_module": (175, 105),
    "io_uring_setup": (425, 425),
    "kcmp": (312, 272),
    "kexec_load": (246, 104),
    "keyctl": (250, 219),
    "memfd_create": (319, 279),
    "mknodat": (259, 33),
    "mount": (165, 40),
    "mq_open": (240, 180),
    "msgget": (68, 186),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "open_tree": (428, 428),
    "openat": (257, 56),
    "openat2": (437, 437),
    "perf_event_open": (298, 241),
    "pidfd_getfd": (438, 438),
    "pivot_root": (155, 41),
    "process_vm_readv": (310, 270),
    "ptrace": (101, 117),
    "reboot": (169, 142),
    "setns": (308, 268),
    "shmget": (29, 194),
    "syslog": (103, 116),
    "userfaultfd": (323, 282),
    "unshare": (272, 97),
    "from_the_future": (9_999, 9_999),
    "x32": (0x40000000 + 39, 9_999),
}


class Held(Exception):
    """The walls held, which shows otherwise than by an error of the system."""


def attempt(function):
    ATTEMPTS[function.__name__] = function
    return function


def call(name, *arguments):
    """A raw system call; raises OSError as the wrappers do."""
    result = libc.syscall(NUMBERS[name][ARM], *arguments)
    if result < 0:
        raise OSError(ctypes.get_errno(), name)
    return f"{name} returned {result}"


# ---------------------------------------------------------------- the network


def connect(family, kind, address):
    with socket.socket(family, kind) as each:
        each.settimeout(2)
        each.connect(address)
        each.send(b"hello")
        return f"connected to {address}"


@attempt
def tcp_to_the_host():
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("127.0.0.1", FACTS["tcp"]))


@attempt
def tcp_over_ipv6_to_the_host():
    return connect(socket.AF_INET6, socket.SOCK_STREAM, ("::1", FACTS["tcp6"]))


@attempt
def tcp_to_the_world():
    return connect(socket.AF_INET, socket.SOCK_STREAM, ("192.0.2.1", 80))


@attempt
def udp_to_the_host():
    """A datagram into an empty network is lost without an error, so the host has the last word."""
    connect(socket.AF_INET, socket.SOCK_DGRAM, ("127.0.0.1", FACTS["udp"]))
    raise Held("the host says whether it came")


@attempt
def udp_to_a_name_server():
    return connect(socket.AF_INET, socket.SOCK_DGRAM, ("192.0.2.53", 53))


@attempt
def resolving_a_name():
    return str(socket.getaddrinfo("example.com", 80))


@attempt
def an_abstract_socket_of_the_host():
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, "\0" + FACTS["abstract"])


@attempt
def a_named_socket_of_the_host():
    return connect(socket.AF_UNIX, socket.SOCK_STREAM, FACTS["named"])


@attempt
def a_socket_to_the_hypervisor():
    return str(socket.socket(40, socket.SOCK_STREAM))


@attempt
def a_netlink_socket():
    return str(socket.socket(16, socket.SOCK_RAW))


@attempt
def a_packet_socket():
    return str(socket.socket(17, socket.SOCK_RAW))


@attempt
def a_socket_of_the_kernels_cryptography():
    return str(socket.socket(38, socket.SOCK_SEQPACKET))


# ---------------------------------------------------------------- files of the host


@attempt
def reading_a_file_of_the_host():
    with open(FACTS["secret"]) as file:
        return file.read()


@attempt
def reading_a_private_key():
    with open(FACTS["key"]) as file:
        return file.read()


@attempt
def reading_the_password_hashes():
    with open("/etc/shadow") as file:
        return file.read()


@attempt
def listing_a_folder_of_the_host():
    return str(os.listdir(FACTS["outside"]))


@attempt
def listing_the_home_of_the_host():
    names = os.listdir(FACTS["home"])
    if set(names) <= {".pyenv", ".local"}:  # where this interpreter lives, and nothing else
        raise Held(str(names))
    return str(names)


@attempt
def writing_a_file_of_the_host():
    with open(FACTS["writable"], "w") as file:
        return f"wrote {file.write('changed')}"


@attempt
def making_a_file_beside_the_workspace():
    with open(os.path.join(FACTS["outside"], "made"), "w") as file:
        return f"wrote {file.write('made')}"


@attempt
def reading_through_a_link_in_the_workspace():
    os.symlink(FACTS["secret"], "link-to-secret")
    with open("link-to-secret") as file:
        return file.read()


@attempt
def writing_through_a_link_in_the_workspace():
    os.symlink(FACTS["writable"], "link-to-writable")
    with open("link-to-writable", "w") as file:
        return f"wrote {file.write('changed')}"


@attempt
def climbing_out_of_the_workspace():
    with open("../secret") as file:
        return file.read()


@attempt
def linking_a_file_of_the_host_into_the_workspace():
    os.link(FACTS["writable"], "hard-link")
    return "linked"


@attempt
def moving_a_file_of_the_host_into_the_workspace():
    os.rename(FACTS["writable"], "moved")
    return "moved"


@attempt
def changing_the_mode_of_a_file_of_the_host():
    os.chmod(FACTS["writable"], 0o777)
    return "changed"


@attempt
def changing_the_owner_of_a_file_of_the_host():
    os.chown(FACTS["writable"], os.getuid(), os.getgid())
    return "changed"


@attempt
def changing_the_times_of_a_file_of_the_host():
    os.utime(FACTS["writable"], (1, 1))
    return "changed"


@attempt
def changing_an_attribute_of_a_file_of_the_host():
    os.setxattr(FACTS["writable"], "user.cairn", b"changed")
    return "changed"


@attempt
def cutting_a_file_of_the_host():
    os.truncate(FACTS["writable"], 0)
    return "cut"


@attempt
def removing_a_file_of_the_host():
    os.unlink(FACTS["writable"])
    return "removed"


@attempt
def watching_a_folder_of_the_host():
    handle = libc.inotify_init1(0)
    if handle < 0 or libc.inotify_add_watch(handle, FACTS["outside"].encode(), 0xFFF) < 0:
        raise OSError(ctypes.get_errno(), "inotify")
    return "watching"


@attempt
def writing_to_the_systems_programs():
    return opened("/usr/bin/env", os.O_WRONLY)


@attempt
def writing_to_the_top_folder():
    os.mkdir("/cairn-was-here")
    os.rmdir("/cairn-was-here")
    return "made a folder there"


@attempt
def writing_to_the_settings_of_the_system():
    return opened("/etc/passwd", os.O_WRONLY | os.O_APPEND)


# ---------------------------------------------------------------- other processes


@attempt
def killing_a_process_of_the_host():
    os.kill(FACTS["victim"], signal.SIGKILL)
    return "killed"


@attempt
def tracing_a_process_of_the_host():
    return call("ptrace", 16, FACTS["victim"], 0, 0)


@attempt
def tracing_the_parent():
    return call("ptrace", 16, PARENT, 0, 0)


@attempt
def reading_the_memory_of_the_parent():
    with open(f"/proc/{PARENT}/mem", "rb") as memory:
        return str(memory)


@attempt
def killing_the_parent():
    """Only the first process of a namespace may be signalled without effect."""
    os.kill(PARENT, signal.SIGKILL)
    if PARENT == 1:
        os.kill(PARENT, 0)
        raise Held("the first process is immune")
    return "killed"


@attempt
def taking_a_descriptor_of_the_parent():
    with open(f"/proc/{PARENT}/fd/1", "wb") as file:
        return str(file)


@attempt
def reading_the_memory_of_a_process_of_the_host():
    return call("process_vm_readv", FACTS["victim"], 0, 0, 0, 0, 0)


@attempt
def reading_the_variables_of_the_first_process():
    with open("/proc/1/environ", "rb") as file:
        return repr(file.read())


@attempt
def reading_the_variables_of_a_process_of_the_host():
    with open(f"/proc/{FACTS['victim']}/environ", "rb") as file:
        return repr(file.read())


@attempt
def limiting_a_process_of_the_host():
    resource.prlimit(FACTS["victim"], resource.RLIMIT_CPU, (1, 1))
    return "limited"


@attempt
def slowing_a_process_of_the_host():
    os.setpriority(os.PRIO_PROCESS, FACTS["victim"], 19)
    return "slowed"


@attempt
def pinning_a_process_of_the_host():
    os.sched_setaffinity(FACTS["victim"], {0})
    return "pinned"


@attempt
def taking_a_descriptor_of_another_process():
    return call("pidfd_getfd", 0, 0, 0)


@attempt
def comparing_with_another_process():
    return call("kcmp", os.getpid(), os.getppid(), 0, 0, 0)


# ---------------------------------------------------------------- rights


@attempt
def becoming_root():
    os.setuid(0)
    return "root"


@attempt
def having_capabilities():
    data = ctypes.create_string_buffer(24)
    libc.capget(struct.pack("=Ii", 0x20080522, 0), data)
    if not any(data.raw):
        raise Held("none")
    return data.raw.hex()


@attempt
def gaining_rights_from_a_program():
    if libc.prctl(39, 0, 0, 0, 0) == 1:
        raise Held("no_new_privs is set")
    return "it is not set"


@attempt
def making_a_file_setuid():
    with open("setuid", "w") as file:
        os.fchmod(file.fileno(), 0o4755)
    return oct(os.stat("setuid").st_mode)


@attempt
def making_a_file_setuid_by_name():
    with open("setuid2", "w"):
        os.chmod("setuid2", 0o4755)
    return oct(os.stat("setuid2").st_mode)


@attempt
def making_a_file_setuid_at_once():
    os.close(os.open("setuid3", os.O_CREAT | os.O_WRONLY, 0o4755))
    return oct(os.stat("setuid3").st_mode)


@attempt
def making_a_file_setuid_by_the_newest_call():
    how = struct.pack("=QQQ", os.O_CREAT | os.O_WRONLY, 0o4755, 0)
    return call("openat2", -100, b"setuid4", how, 24)


@attempt
def making_a_device():
    return call("mknodat", -100, b"device", 0o60600, 0x0100)


@attempt
def a_user_namespace():
    return call("unshare", 0x10000000)


@attempt
def a_mount_namespace():
    return call("unshare", 0x00020000)


@attempt
def a_user_namespace_by_clone():
    return call("clone", 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0)


@attempt
def a_user_namespace_by_the_newest_call():
    return call("clone3", struct.pack("=Q", 0x10000000) + bytes(56), 64)


@attempt
def another_namespace():
    return call("setns", 0, 0)


@attempt
def mounting():
    return call("mount", b"none", b".", b"tmpfs", 0, 0)


@attempt
def changing_the_root():
    return call("chroot", b".")


@attempt
def turning_the_root():
    return call("pivot_root", b".", b".")


@attempt
def opening_by_handle():
    handle = struct.pack("=Ii", 8, 1) + bytes(8)
    return call("open_by_handle_at", -100, handle, 0)


# ---------------------------------------------------------------- the kernel


def raw(name, *arguments):
    def function():
        return call(name, *arguments)

    function.__name__ = f"the_call_{name}"
    attempt(function)


for name, *arguments in (
    ("add_key", b"user", b"k", b"v", 1, -3),
    ("bpf", 0, 0, 0),
    ("fanotify_init", 0, 0),
    ("finit_module", 0, b"", 0),
    ("fsopen", b"tmpfs", 0),
    ("init_module", b"", 0, b""),
    ("io_uring_setup", 1, bytes(120)),
    ("keyctl", 0, -3, 0),
    ("memfd_create", b"m", 0),
    ("mq_open", b"q", os.O_CREAT | os.O_RDWR, 0o600, 0),
    ("msgget", 0, 0o1600),
    ("name_to_handle_at", -100, b".", 0, 0, 0),
    ("open_tree", -100, b".", 1),
    ("perf_event_open", bytes(112), 0, -1, -1, 0),
    ("shmget", 0, 4096, 0o1600),
    ("syslog", 3, 0, 0),
    ("userfaultfd", 0),
    ("from_the_future",),
    ("x32",),
):
    raw(name, *arguments)


def opened(path, flags):
    handle = os.open(path, flags)
    os.close(handle)
    return f"opened {path}"


for path in (
    "/dev/kmsg",
    "/dev/mem",
    "/dev/tty",
    "/dev/vda",
    "/proc/kcore",
    "/proc/kmsg",
    "/proc/kallsyms",
    "/proc/keys",
    "/proc/kpageflags",
    "/proc/timer_list",
    "/sys/kernel/uevent_helper",
):

    def read_it(path=path):
        return opened(path, os.O_RDONLY)

    read_it.__name__ = "reading_" + path.strip("/").replace("/", "_")
    attempt(read_it)

for path in (
    "/proc/sysrq-trigger",
    "/proc/sys/kernel/core_pattern",
    "/proc/sys/kernel/hostname",
    "/proc/sys/vm/drop_caches",
    "/proc/sys/kernel/modprobe",
    "/sys/power/state",
):

    def write_it(path=path):
        return opened(path, os.O_WRONLY)

    write_it.__name__ = "writing_" + path.strip("/").replace("/", "_").replace("-", "_")
    attempt(write_it)


@attempt
def changing_a_program_of_the_system():
    with open("/usr/bin/env", "r+b") as file:
        return str(file)


@attempt
def typing_into_the_terminal():
    fcntl.ioctl(0, 0x5412, b"x")
    return "typed"


@attempt
def using_the_console():
    fcntl.ioctl(0, 0x541C, b"\x02")
    return "used"


@attempt
def having_a_terminal():
    libc.tcgetpgrp(0)
    return opened("/dev/tty", os.O_RDWR)


@attempt
def seeing_a_variable_of_the_runtime():
    if FACTS["variable"] in os.environ:
        return os.environ[FACTS["variable"]]
    raise Held("it is not there")


@attempt
def holding_a_descriptor_it_can_write():
    found = []
    for number in range(3, 256):
        try:
            flags = fcntl.fcntl(number, fcntl.F_GETFL)
        except OSError:
            continue
        if flags & os.O_ACCMODE != os.O_RDONLY and number not in OWN:
            found.append(number)
    if found:
        return str(found)
    raise Held("none")


OWN = set()
PARENT = os.getppid()  # the supervisor


def outcome(function):
    try:
        got = function()
    except (OSError, Held) as error:
        code = errno.errorcode.get(error.errno, "") if isinstance(error, OSError) else "Held"
        return {"held": True, "how": f"{code} {error}"}
    except BaseException:
        return {"held": False, "how": traceback.format_exc()}
    return {"held": got is None, "how": str(got)}


def main():
    with open(sys.argv[1]) as file:
        FACTS.update(json.load(file))
    for name, function in ATTEMPTS.items():
        seen, told = os.pipe()
        OWN.clear()
        OWN.update({seen, told})
        pid = os.fork()
        if pid == 0:
            signal.alarm(5)
            os.write(told, json.dumps({"name": name, **outcome(function)}).encode())
            os._exit(0)
        os.close(told)
        with os.fdopen(seen, "rb") as pipe:
            text = pipe.read().decode()
        status = os.waitpid(pid, 0)[1]
        killed = {"name": name, "held": False, "how": f"ended with status {status}"}
        print(text or json.dumps(killed), flush=True)


if __name__ == "__main__":
    main()
