"""`Workspace`: the folder in which an agent works, and all that may be done in it."""

from __future__ import annotations

import os
import threading
from collections.abc import Sequence
from pathlib import Path

import msgspec

from cairn.core.messages import Record
from cairn.errors import Unsure
from cairn.workspace import baseline
from cairn.workspace.accounts import Accounts, Usage
from cairn.workspace.belonging import Owner, standing
from cairn.workspace.commit import (
    BeforeFirst,
    Change,
    Commit,
    Drop,
    Move,
    Put,
    hash_of,
    look_to_replace,
    taken,
)
from cairn.workspace.content import TextFile, decode
from cairn.workspace.descent import (
    descend,
    failed,
    look,
    missing,
    open_file,
    read_all,
    refuse_kind,
    told_of,
)
from cairn.workspace.intents import Found as Outcome
from cairn.workspace.intents import Intents, Note, digest, verdict
from cairn.workspace.limits import WorkspaceLimits, checked_limits
from cairn.workspace.paths import Parts, matches, parts_of, pattern_of, shown
from cairn.workspace.place import Held, Place
from cairn.workspace.refusals import (
    NoWorkspace,
    PathRefused,
    WorkspaceFailed,
)
from cairn.workspace.walk import Found, Walk, found_of

replace = msgspec.structs.replace


class Looked(Record):
    """A file as it was read.

    Args:
        parts: Where.
        data: All of its content.
        seen: What the system said of it.
    """

    parts: Parts
    data: bytes
    seen: os.stat_result


class Listing(Record, gc=True):
    """What was found, and whether there is more."""

    found: tuple[Found, ...]
    cut: bool = False


class Workspace:
    """A folder that agents work in and cannot leave.

    Nothing is touched before the first use. From then on the folder is held by a handle: if its
    name is given to another folder, this one is still meant.

    Args:
        root: The folder; made, for its owner only, if it is missing. It may be no link itself.
        limits: How much it may hold.
        baseline: The file that keeps what was there at first, outside the workspace. By default
            `.cairn/<name>.json` in the folder that holds it.

    Raises:
        ConfigError: a value is not usable.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        limits: WorkspaceLimits | None = None,
        baseline: str | os.PathLike[str] | None = None,
        _own: bool = False,
        _owner: Owner | None = None,
    ) -> None:
        self.limits = checked_limits(limits)
        self._place = Place(root, baseline, own=_own)
        self._owner = _owner
        self._lock = threading.RLock()
        self._held: Held | None = None
        self._new = False
        self._accounts = Accounts(self.limits)

    def __repr__(self) -> str:
        return f"<Workspace {self._place.root}>"

    def of(self, run: str, session: str = "", owner: Owner | None = None) -> Workspace:
        """The workspace of a run: this one, whichever run it is."""
        return self

    def shares(self, session: str) -> bool:
        """Whether the runs of this session work in one folder: all runs do."""
        return True

    # ---------------------------------------------------------------- the folder

    def check_there(self) -> None:
        """Refuse to go on where the folder was never made; nothing is made.

        Raises:
            NoWorkspace: there is none, or only one of somebody else who had the name before.
        """
        if self._held is not None:
            return
        if not os.path.lexists(self._place.root) or self._place.is_foreign(self._owner):
            raise NoWorkspace(f"{shown(str(self._place.root))}: nothing has used a workspace here")

    @property
    def root(self) -> Path:
        """The folder's path, for commands that work in it; made if it is missing.

        What goes by the path, and not by the handle, must not follow links by itself. Once the
        path was asked for, what is there is counted before each write.

        Raises:
            WorkspaceFailed: it cannot be used, was removed, or another folder has its name now.
        """
        handle = self.open()
        path = self._place.root
        self._accounts.trusted = False
        try:
            found = path.lstat()
        except OSError as error:
            raise failed(shown(str(path)), "cannot be reached any more", error) from error
        if not os.path.samestat(found, os.fstat(handle)):
            raise WorkspaceFailed(f"{shown(str(path))}: another folder has this name now")
        return path

    def open(self) -> int:
        """The handle of the folder, which stays open as long as this object is used.

        At the first use the folder is made, its baseline taken, and what a killed writer left
        behind removed. A folder of somebody else who had the name before is set aside first.

        Raises:
            WorkspaceFailed: it cannot be used, or was removed.
        """
        with self._lock:
            if self._held is None:
                with self._place.freed(self._owner):
                    held = self._place.open()
                    self._keep_baseline(held)
                self._held = held
                self._accounts.count(held.root, tidy=True)
            handle = self._held.root
            if os.fstat(handle).st_nlink == 0:
                raise WorkspaceFailed(f"{shown(str(self._place.root))}: the workspace was removed")
            return handle

    def _keep_baseline(self, held: Held) -> None:
        name, owner = self._place.baseline.name, self._owner
        there = baseline.is_kept(held.state, name)
        if there and (owner is None or standing(held.state, name, owner) == "own"):
            return
        if there:
            manifest = baseline.load(held.state, name)
        else:
            self._new = True
            manifest = baseline.take(
                held.root, self._place.root.name, self._accounts.most, self._accounts.deepest
            )
        try:
            marked = replace(manifest, owner=owner.mark if owner is not None else "")
            baseline.save(held.state, name, marked, replace=there)
        except OSError as error:
            said = f"the baseline {self._place.baseline} cannot be kept: {error.strerror}"
            raise WorkspaceFailed(said) from error

    def usage(self) -> Usage:
        """How much is there, as far as it is known; `recount` looks."""
        root = self.open()
        with self._lock:
            return self._accounts.usage(root)

    def recount(self) -> Usage:
        """Count anew what is there: after something else than this object has written."""
        root = self.open()
        with self._lock:
            return self._accounts.count(root)

    def changes(self) -> list[baseline.Change]:
        """What is not as it was when the workspace was first used, by path, with diffs.

        Raises:
            NoWorkspace: it was never used, so that there is no folder; none is made.
            WorkspaceFailed: the baseline cannot be read.
        """
        self.check_there()
        root = self.open()
        assert self._held is not None  # noqa: S101 - it is open
        manifest = baseline.load(self._held.state, self._place.baseline.name)
        found = baseline.changes(root, manifest, self._accounts.most, self._accounts.deepest)
        return sorted(found, key=lambda change: change.path)

    # ---------------------------------------------------------------- reading

    def parts(self, path: object, *, root: bool = False) -> Parts:
        """The names of a path; raises `PathRefused` and `WorkspaceLimit`."""
        return parts_of(path, self.limits, root=root)

    def look(self, path: str) -> Found | None:
        """What a path names, links not followed; None if there is nothing.

        Raises:
            PathRefused: the path may not be used, or a folder on the way is missing or none.
        """
        parts = self.parts(path)
        with descend(self.open(), parts[:-1]) as folder:
            found = look(folder, parts[-1])
        return None if found is None else found_of(parts, found)

    def read(self, path: str) -> bytes:
        """The content of a file.

        Raises:
            PathRefused: there is no such file, or it is a link, a folder or a special file.
            WorkspaceLimit: it is too large.
        """
        parts = self.parts(path)
        with descend(self.open(), parts[:-1]) as folder, open_file(folder, parts) as handle:
            return self._content(handle, parts)

    def read_text(self, path: str) -> TextFile:
        """The content of a text file. Raises as `read`, and `NotText`."""
        return decode(self.read(path), told_of(self.parts(path)))

    def read_to_change(self, path: str) -> Looked:
        """The content of a file that is to be replaced or moved; raises as `read`.

        Raises:
            PathRefused: it has other names too (hard links).
        """
        parts = self.parts(path)
        with descend(self.open(), parts[:-1]) as folder:
            look_to_replace(folder, parts)
            with open_file(folder, parts) as handle:
                seen = os.fstat(handle)
                return Looked(parts=parts, data=self._content(handle, parts), seen=seen)

    def _content(self, handle: int, parts: Parts) -> bytes:
        told = told_of(parts)
        self.limits.refuse_file(told, os.fstat(handle).st_size)
        data = read_all(handle, self.limits.file_bytes)
        self.limits.refuse_file(told, len(data))
        return data

    def list(
        self, path: str = "", *, pattern: str = "", depth: int | None = None, limit: int = 1_000
    ) -> Listing:
        """What lies in a folder, by path; links are listed, never followed.

        Args:
            path: The folder; the root by default.
            pattern: Only what fits, from this folder: `*.py`, `src/**/*.md`. Default: all.
            depth: How many folders deep; 1 for the folder itself. Default: all.
            limit: How many things at most.

        Raises:
            PathRefused: there is no such folder.
        """
        parts = self.parts(path, root=True)
        wanted = pattern_of(pattern) if pattern else ()
        found: list[Found] = []
        with descend(self.open(), parts) as folder:
            walk = Walk(
                folder,
                self._accounts.most,
                min(depth or self._accounts.deepest, self._accounts.deepest),
            )
            for each in walk:
                if wanted and not matches(each.parts, wanted):
                    continue
                if len(found) == limit:
                    return Listing(found=tuple(found), cut=True)
                found.append(each)
        return Listing(found=tuple(found), cut=walk.cut or (walk.deep and depth is None))

    # ---------------------------------------------------------------- changing

    def write(
        self,
        path: str,
        content: str | bytes,
        *,
        overwrite: bool = False,
        before_first: BeforeFirst | None = None,
    ) -> bool:
        """Write a file whole, in one step: at any time its name means the old or the new content.

        Args:
            path: Where; missing folders are made.
            content: All of it, written as given.
            overwrite: Whether a file that is there may be replaced; its mode is kept.
            before_first: Called with what is about to happen, right before it does.

        Returns:
            Whether it is a new file.

        Raises:
            PathRefused: the path cannot be used, or its name is taken.
            WorkspaceLimit: a limit would be passed.
            WorkspaceFailed: the system refused; the old content stays.
        """
        parts = self.parts(path)
        data = self.encoded(content, parts)
        self.limits.refuse_file(told_of(parts), len(data))
        with self._lock:
            put = self.put(parts, data, overwrite=overwrite)
            self.commit([put], before_first)
        return put.seen is None

    def encoded(self, content: str | bytes, parts: Parts) -> bytes:
        """Content as bytes. Raises `WorkspaceFailed` for text that UTF-8 cannot hold."""
        if isinstance(content, bytes):
            return content
        try:
            return content.encode()
        except UnicodeEncodeError as error:
            said = f"{told_of(parts)}: the text holds half of a character at {error.start}"
            raise WorkspaceFailed(f"{said}, which UTF-8 cannot hold. Nothing was written") from None

    def put(self, parts: Parts, data: bytes, *, overwrite: bool) -> Put:
        """The change that writes a file, with what is there now looked at."""
        try:
            with descend(self.open(), parts[:-1]) as folder:
                if look(folder, parts[-1]) is None:
                    return Put(parts=parts, data=data)
                seen = look_to_replace(folder, parts)
                if not overwrite:
                    fix = "Set overwrite=true to replace it, or change it with edit_file"
                    raise taken(told_of(parts), fix)
                return Put(parts=parts, data=data, seen=seen, before=hash_of(folder, parts))
        except PathRefused as error:
            if error.rule == "missing":
                return Put(parts=parts, data=data)
            raise

    def delete(self, path: str, *, before_first: BeforeFirst | None = None) -> None:
        """Remove a file, a link or a special file; no folders. Raises as `write`."""
        parts = self.parts(path)
        with self._lock:
            self.commit([self.drop(parts)], before_first)

    def drop(self, parts: Parts) -> Drop:
        """The change that removes a file, with what is there now looked at."""
        with descend(self.open(), parts[:-1]) as folder:
            seen = look(folder, parts[-1])
            if seen is None:
                raise missing(folder, parts)
            before = hash_of(folder, parts)
            if before == "folder":
                said = "this is a folder, and only files are removed"
                raise PathRefused("kind", told_of(parts), said, "Name the files in it")
            return Drop(parts=parts, seen=seen, before=before)

    def move(self, path: str, to: str, *, before_first: BeforeFirst | None = None) -> None:
        """Give a file another path, not a taken one, in one step. Raises as `write`."""
        with self._lock:
            self.commit([self.moving(path, to)], before_first)

    def moving(self, path: str, to: str) -> Move:
        """The change that moves a file, with what is there now looked at."""
        parts, target = self.parts(path), self.parts(to)
        with descend(self.open(), parts[:-1]) as folder:
            seen = look(folder, parts[-1])
            if seen is None:
                raise missing(folder, parts)
            refuse_kind(told_of(parts), seen)
            before = hash_of(folder, parts)
        if parts == target:
            raise taken(told_of(target), "Nothing would change")
        return Move(parts=parts, to=target, seen=seen, before=before)

    @staticmethod
    def replacing(looked: Looked, data: bytes, executable: bool | None = None) -> Put:
        """The change that gives a file that was read another content."""
        before = digest(looked.data)
        return Put(looked.parts, data, seen=looked.seen, before=before, executable=executable)

    def commit(self, changes: Sequence[Change], before_first: BeforeFirst | None = None) -> None:
        """Carry changes out together: all is checked before the first of them is visible.

        Raises:
            WorkspaceError: one is refused; nothing of them happened.
            Unsure: the system failed in the midst of several; says which were done.
        """
        root = self.open()
        with self._lock:
            work = Commit(root)
            self._accounts.refuse_excess(root, changes)
            try:
                work.run(changes, before_first)
            except Unsure:
                self._accounts.forget()
                raise
            self._accounts.settle(changes, len(work.made))

    # ---------------------------------------------------------------- what calls were about to do

    def note(self, call: str, note: Note) -> None:
        """Note what a call is about to do; for `before_first`.

        Raises:
            WorkspaceFailed: it cannot be noted, so it must not begin.
        """
        self.open()
        assert self._held is not None  # noqa: S101 - it is open
        try:
            Intents(self._held.notes).write(call, note)
        except OSError as error:
            said = f"what is about to happen cannot be noted: {error.strerror}. Nothing was done"
            raise WorkspaceFailed(said) from error

    def came_of(self, call: str) -> tuple[Outcome, str]:
        """Whether a call took effect, by its note and by what the files are now.

        Returns:
            `done`, `not_done` or `unknown`, and what the call said it would answer.
        """
        in_use = self._held is not None
        root = self.open()
        assert self._held is not None  # noqa: S101 - it is open
        with self._lock:  # a call of this process that is at it right now ends first
            intents = Intents(self._held.notes)
            note = intents.read(call)
            if note is None:
                here_before = in_use or not self._new  # else the call was begun somewhere else
                return ("not_done" if here_before and intents.complete else "unknown"), ""
            now = {path: self._hash_at(root, path) for path in note.steps}
            return verdict(note.steps, now), note.said

    def _hash_at(self, root: int, path: str) -> str:
        parts = tuple(path.split("/"))
        try:
            with descend(root, parts[:-1]) as folder:
                return hash_of(folder, parts)
        except PathRefused as error:
            return "" if error.rule == "missing" else f"refused {digest(str(error).encode())}"
