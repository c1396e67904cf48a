"""Whether a place on disk can hold a store, and how its files are made."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from pathlib import Path

from cairn.errors import ConfigError, StoreFailed, UnsupportedStore

NETWORK = frozenset(
    {
        *("9p", "afpfs", "afs", "beegfs", "ceph", "cifs", "coda", "davfs", "glusterfs", "gpfs"),
        *("lustre", "ncpfs", "nfs", "nfs4", "ocfs2", "orangefs", "prl_fs", "smb3", "smbfs"),
        *("vboxsf", "virtiofs", "vmhgfs", "webdav"),
    }
)
"""Filesystems whose locks or shared memory cannot be relied on between processes."""

NETWORK_FUSE = frozenset(
    {
        *("ceph", "davfs2", "gcsfuse", "glusterfs", "gvfsd-fuse", "juicefs", "rclone", "s3fs"),
        *("sshfs", "vmhgfs-fuse"),
    }
)
"""The same among those that live in a process of their own."""

ANOTHER_PLACE = "Choose a path of your own, or have its owner change its mode"

PRIVATE_FILE = 0o600
PRIVATE_FOLDER = 0o700


def check_platform(platform: str = sys.platform) -> None:
    """Refuse platforms without the locks a store needs.

    Raises:
        UnsupportedStore: this is Windows.
    """
    if platform == "win32":
        raise UnsupportedStore(
            "a store needs file locks that Windows does not have. "
            "Use Linux, macOS, or Linux under WSL on a path inside it"
        )


def check_place(path: str) -> None:
    """Refuse a path whose folder is missing, closed to us, or on a network filesystem.

    Raises:
        ConfigError: there is no such folder, the path is one, or it may not be written.
        UnsupportedStore: the filesystem is a network one.
    """
    folder = Path(path).parent
    try:
        _check_access(path, str(folder))
    except OSError as error:  # a folder on the way is closed to us, or the name is too long
        raise ConfigError(
            "store", f"{path} cannot be reached by this user ({error.strerror})", ANOTHER_PLACE
        ) from error
    kind = filesystem_of(str(folder))
    if is_network(kind):
        raise UnsupportedStore(
            f"{path} lies on a network filesystem ({kind}), where file locks cannot be relied on. "
            "Put the store on a local disk"
        )


def _check_access(path: str, folder: str) -> None:
    if not stat.S_ISDIR(_mode(folder)):
        raise ConfigError(
            "store", f"the folder {folder} does not exist", f"Create it: mkdir -p {folder}"
        )
    mode = _mode(path)
    if stat.S_ISDIR(mode):
        raise ConfigError("store", f"{path} is a folder", f"Name a file in it: {path}/cairn.db")
    if mode and not os.access(path, os.R_OK | os.W_OK):
        raise ConfigError("store", f"{path} cannot be written by this user", ANOTHER_PLACE)
    if os.access(folder, os.W_OK | os.X_OK):
        return
    if not mode:
        raise ConfigError(
            "store", f"the folder {folder} cannot be written by this user", ANOTHER_PLACE
        )
    raise ConfigError(
        "store",
        f"{path}: its folder cannot be written by this user, and even reading a store needs to "
        "make files beside it",
        f"Have its owner make {folder} writable for you, or read a copy made by cairn backup",
    )


def _mode(path: str) -> int:
    """The mode of what is there, 0 for nothing.

    Raises:
        OSError: that cannot be found out.
    """
    try:
        return Path(path).stat().st_mode
    except (FileNotFoundError, NotADirectoryError):
        return 0


def is_network(kind: str) -> bool:
    """Whether a filesystem of this kind is shared between machines."""
    base, _, inner = kind.partition(".")
    return base in NETWORK or (base == "fuse" and inner in NETWORK_FUSE) or kind == "remote"


def filesystem_of(folder: str) -> str:
    """The kind of filesystem a folder lies on, empty when it cannot be told."""
    real = os.path.realpath(folder)
    try:
        if sys.platform == "darwin":
            command = ["/sbin/mount"]
            listing = subprocess.run(command, capture_output=True, text=True, check=True).stdout
            return kind_in_mount(listing, real)
        return kind_in_mountinfo(Path("/proc/self/mountinfo").read_text(encoding="utf-8"), real)
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        return ""


def kind_in_mountinfo(listing: str, folder: str) -> str:
    """The kind that Linux' mount table names for a folder; the last and longest mount wins."""
    best, kind = "", ""
    for line in listing.splitlines():
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode().decode("unicode_escape")
        if _within(folder, point) and len(point) >= len(best):
            best, kind = point, right.split()[0]
    return kind


def kind_in_mount(listing: str, folder: str) -> str:
    """The kind that macOS' `mount` names for a folder; `remote` for all it calls not local."""
    best, kind = "", ""
    for line in listing.splitlines():
        left, _, options = line.rpartition(" (")
        _, _, point = left.partition(" on ")
        if point and _within(folder, point) and len(point) >= len(best):
            words = [word.strip() for word in options.rstrip(")").split(",")]
            best, kind = point, words[0] if "local" in words else "remote"
    return kind


def _within(folder: str, point: str) -> bool:
    return folder == point or folder.startswith(point.rstrip("/") + "/")


def make_private(path: str) -> bool:
    """Make the file, readable and writable for its owner only; False if it exists.

    A file that exists is not so much as opened: when a process closes any descriptor of a
    database, the locks that the library holds on it in the same process are gone.

    Raises:
        StoreFailed: it cannot be made.
    """
    try:
        os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, PRIVATE_FILE))
    except FileExistsError:
        return False
    except OSError as error:
        raise StoreFailed(f"{path} cannot be made: {error.strerror}") from error
    return True
