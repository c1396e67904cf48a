"""What was there before a run began, kept outside the workspace, and what has changed since."""

from __future__ import annotations

import base64
import difflib
import hashlib
import os
import secrets
import zlib
from collections.abc import Iterator
from contextlib import suppress
from typing import Literal

import msgspec

from cairn.core.messages import Record
from cairn.workspace.content import as_text, lines_of
from cairn.workspace.descent import CHUNK, FILE, descend, open_file, read_all
from cairn.workspace.paths import Parts, shown
from cairn.workspace.refusals import WorkspaceError, WorkspaceFailed
from cairn.workspace.staging import sync_folder
from cairn.workspace.walk import Found, Walk

KEPT_FILE = 256 << 10
"""Bytes of a text file up to which its old content is kept, for a diff."""
KEPT_TOTAL = 8 << 20
"""Bytes of all old contents that are kept, before they are packed."""
DIFF_BYTES = 256 << 10
"""Bytes of a file up to which it is compared line by line."""
DIFF_LINES = 4_000
"""Lines up to which it is compared so."""
DIFF_CHARS = 20_000
"""Characters of one diff; what is over is cut."""
MANIFEST_BYTES = 256 << 20

What = Literal["created", "modified", "deleted"]


class Kept(Record):
    """One thing as it was.

    Args:
        kind: file, folder, link or special; folders themselves are not compared.
        size: In bytes.
        mode: Permission bits.
        hash: Of the content, or of where a link points to.
        text: The content, packed, if it is text and small enough.
    """

    kind: str
    size: int = 0
    mode: int = 0
    hash: str = ""
    text: str = ""


class Manifest(Record, gc=True):
    r"""All that was there when a workspace was first used.

    Args:
        name: The workspace's name.
        files: By path; bytes that are no UTF-8 are written as `\xNN`.
        cut: Whether there was more than could be looked at.
        owner: Whose the workspace is (`belonging.Owner`), empty while it is nobody's; None in what
            an earlier version has kept.
    """

    name: str
    files: dict[str, Kept]
    cut: bool = False
    owner: str | None = None


class Change(Record):
    """One file that is not as it was.

    Args:
        path: As it can be shown.
        what: created, modified or deleted.
        size: Bytes now; 0 if deleted.
        old_size: Bytes before; 0 if created.
        hash: SHA-256 of the content now; empty if deleted.
        old_hash: SHA-256 of the content before; empty if created.
        mode: Permission bits now, when they are new or others than before; else None.
        diff: A unified diff, for text of moderate size; empty otherwise.
        note: Why there is no diff, or that it is cut; empty otherwise.
    """

    path: str
    what: What
    size: int = 0
    old_size: int = 0
    hash: str = ""
    old_hash: str = ""
    mode: int | None = None
    diff: str = ""
    note: str = ""


def take(root: int, name: str, most: int, depth: int) -> Manifest:
    """Look at all that is there now."""
    walk = Walk(root, most, depth)
    files: dict[str, Kept] = {}
    left = KEPT_TOTAL
    for found in walk:
        if found.kind == "folder":
            continue
        content = _text_bytes(root, found) if found.size <= min(KEPT_FILE, left) else None
        if content is not None:
            left -= len(content)
            text = base64.b85encode(zlib.compress(content)).decode()
            kept = Kept(
                kind="file",
                size=len(content),
                mode=found.mode,
                hash=hashlib.sha256(content).hexdigest(),
                text=text,
            )
        else:
            kept = Kept(kind=found.kind, size=found.size, mode=found.mode, hash=_hash(root, found))
        files[_key(found.parts)] = kept
    return Manifest(name=name, files=files, cut=walk.cut)


def _key(parts: Parts) -> str:
    return shown("/".join(parts), 1 << 20)


def _text_bytes(root: int, found: Found) -> bytes | None:
    if found.kind != "file":
        return None
    content = _content(root, found.parts, KEPT_FILE)
    return None if content is None or as_text(content) is None else content


def _content(root: int, parts: Parts, most: int) -> bytes | None:
    """A file's bytes; None if it is longer, or cannot be read."""
    try:
        with descend(root, parts[:-1]) as folder, open_file(folder, parts) as handle:
            data = read_all(handle, most)
    except (WorkspaceError, OSError):
        return None
    return None if len(data) > most else data


def _hash(root: int, found: Found) -> str:
    """The hash of a content of any size, or of a link's target; empty if it cannot be read."""
    made = hashlib.sha256()
    with suppress(WorkspaceError, OSError), descend(root, found.parts[:-1]) as folder:
        if found.kind == "link":
            target = os.readlink(found.parts[-1], dir_fd=folder)
            return hashlib.sha256(os.fsencode(target)).hexdigest()
        if found.kind == "file":
            with open_file(folder, found.parts) as handle:
                while piece := os.read(handle, CHUNK):
                    made.update(piece)
            return made.hexdigest()
    return ""


# ---------------------------------------------------------------- kept on disk


def save(state: int, name: str, manifest: Manifest, *, replace: bool = False) -> None:
    """Keep it, unless somebody else kept one first; theirs then holds, if it is not replaced.

    Raises:
        OSError: it could not be written.
    """
    temp = f".{secrets.token_hex(8)}"
    handle = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600, dir_fd=state)
    try:
        view = memoryview(msgspec.json.encode(manifest))
        while view:
            view = view[os.write(handle, view) :]
        os.fsync(handle)
        if replace:
            os.rename(temp, name, src_dir_fd=state, dst_dir_fd=state)
        else:
            with suppress(FileExistsError):
                os.link(temp, name, src_dir_fd=state, dst_dir_fd=state)
    finally:
        os.close(handle)
        with suppress(FileNotFoundError):
            os.unlink(temp, dir_fd=state)
    sync_folder(state)


def is_kept(state: int, name: str) -> bool:
    """Whether a baseline is there."""
    try:
        os.stat(name, dir_fd=state, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return True


def load(state: int, name: str) -> Manifest:
    """The baseline that was kept.

    Raises:
        WorkspaceFailed: it is missing, or cannot be read.
    """
    try:
        handle = os.open(name, FILE, dir_fd=state)
        try:
            return msgspec.json.decode(read_all(handle, MANIFEST_BYTES), type=Manifest)
        finally:
            os.close(handle)
    except (OSError, msgspec.MsgspecError) as error:
        said = f"the baseline {shown(name)} cannot be read ({error}); what changed is not known"
        raise WorkspaceFailed(said) from error


# ---------------------------------------------------------------- what changed


def changes(root: int, manifest: Manifest, most: int, depth: int) -> Iterator[Change]:
    """What is not as it was, by path."""
    seen: set[str] = set()
    found_now = [found for found in Walk(root, most, depth) if found.kind != "folder"]
    for found in found_now:
        key = _key(found.parts)
        seen.add(key)
        change = _compared(root, found, key, manifest.files.get(key))
        if change is not None:
            yield change
    for key, was in manifest.files.items():
        if key not in seen:
            diff, note = _diff(key, _old_text(was), "", was.kind, "deleted")
            yield Change(
                path=key, what="deleted", old_size=was.size, old_hash=was.hash, diff=diff, note=note
            )


def _compared(root: int, found: Found, key: str, was: Kept | None) -> Change | None:
    content = _content(root, found.parts, DIFF_BYTES) if found.kind == "file" else None
    now = hashlib.sha256(content).hexdigest() if content is not None else _hash(root, found)
    mode = found.mode if was is None or was.mode != found.mode else None
    same = was is not None and (was.kind, was.hash) == (found.kind, now)
    if same and mode is None:
        return None
    new = None if content is None else as_text(content)
    old = "" if was is None else _old_text(was)
    what: What = "created" if was is None else "modified"
    diff, note = "", "only the mode has changed"
    if not same:
        diff, note = _diff(key, old, new, found.kind, what)
    return Change(
        path=key,
        what=what,
        size=found.size,
        old_size=was.size if was is not None else 0,
        hash=now,
        old_hash=was.hash if was is not None else "",
        mode=mode,
        diff=diff,
        note=note,
    )


def _old_text(was: Kept) -> str | None:
    if was.kind == "file" and was.size == 0:
        return ""
    if not was.text:
        return None
    return zlib.decompress(base64.b85decode(was.text)).decode()


def _diff(key: str, old: str | None, new: str | None, kind: str, what: What) -> tuple[str, str]:
    """A diff and a note why there is none."""
    if kind != "file":
        return "", "a link" if kind == "link" else "a special file"
    if old is None or new is None:
        return "", "binary, or too large to compare"
    before, after = _shown_lines(old), _shown_lines(new)
    if max(len(before), len(after)) > DIFF_LINES:
        return "", "too many lines to compare"
    from_name = "/dev/null" if what == "created" else f"a/{key}"
    to_name = "/dev/null" if what == "deleted" else f"b/{key}"
    text = "\n".join(difflib.unified_diff(before, after, from_name, to_name, lineterm=""))
    if len(text) > DIFF_CHARS:
        return text[:DIFF_CHARS], f"the diff is cut; it has {len(text):,} characters"
    return text, ""


def _shown_lines(text: str) -> list[str]:
    lines = []
    for body, ending in lines_of(text):
        mark = "\r" if ending == "\r\n" else ""
        lines.append(body + mark if ending else f"{body}\n\\ No newline at end of file")
    return lines
