"""Applying a unified diff: every line it names must stand there, exactly, before anything moves."""

from __future__ import annotations

import stat

from cairn.workspace.commit import Change, Drop, Put
from cairn.workspace.content import BOM, TextFile, decode, endings_of, lines_of
from cairn.workspace.descent import told_of
from cairn.workspace.intents import digest
from cairn.workspace.paths import Parts
from cairn.workspace.refusals import PatchRefused, PathRefused
from cairn.workspace.unified import FilePatch, Hunk, Line, parse
from cairn.workspace.workspace import Looked, Workspace

SHOWN_CHARS = 120


def plan(workspace: Workspace, diff: str) -> list[Change]:
    """The changes that a diff asks for, each checked against what is there now.

    Raises:
        PatchRefused: the diff cannot be read, or does not fit.
        WorkspaceError: a path may not be used, a file is no text, a limit would be passed.
    """
    changes: list[Change] = []
    touched: set[Parts] = set()
    for patch in parse(diff):
        for path in dict.fromkeys(each for each in (patch.old, patch.new) if each is not None):
            parts = workspace.parts(path)
            if parts in touched:
                raise PatchRefused(f"{told_of(parts)}: the diff names this file twice")
            touched.add(parts)
        changes += _changes(workspace, patch)
    for parts in touched:
        if any(parts[:depth] in touched for depth in range(1, len(parts))):
            said = "the diff names this both as a file and in a path below another of its files"
            raise PatchRefused(f"{told_of(parts)}: {said}")
    return changes


def _changes(workspace: Workspace, patch: FilePatch) -> list[Change]:
    if patch.old is None:
        return [_created(workspace, patch)]
    if patch.new is None:
        looked = workspace.read_to_change(patch.old)
        if applied(decode(looked.data, patch.told), patch):
            said = "the diff deletes the file, but does not name all of its lines"
            raise PatchRefused(f"{patch.told}: {said}")
        return [Drop(parts=looked.parts, seen=looked.seen, before=digest(looked.data))]
    if patch.old != patch.new and not patch.hunks and patch.executable is None:
        return [workspace.moving(patch.old, patch.new)]
    looked = workspace.read_to_change(patch.old)
    data = _new_data(workspace, patch, looked)
    if patch.old == patch.new:
        return [workspace.replacing(looked, data, patch.executable)]
    fresh = _fresh(workspace, patch.new, data)
    was = bool(stat.S_IMODE(looked.seen.st_mode) & 0o100)
    executable = was if patch.executable is None else patch.executable
    put = Put(parts=fresh.parts, data=data, executable=executable)
    return [put, Drop(parts=looked.parts, seen=looked.seen, before=digest(looked.data))]


def _new_data(workspace: Workspace, patch: FilePatch, looked: Looked) -> bytes:
    data = looked.data
    if patch.hunks:
        file = decode(looked.data, patch.told)
        data = file.encoded(applied(file, patch))
        workspace.limits.refuse_file(patch.told, len(data))
    changes_mode = patch.executable is not None
    if data == looked.data and patch.old == patch.new and not changes_mode:
        said = "the diff changes nothing in it; line endings are kept as they are"
        raise PatchRefused(f"{patch.told}: {said}")
    return data


def _created(workspace: Workspace, patch: FilePatch) -> Put:
    lines = [line for hunk in patch.hunks for line in hunk.lines]
    if any(line.mark != "+" for line in lines) or len(patch.hunks) > 1:
        raise PatchRefused(f"{patch.told}: a new file has one hunk, of lines that begin with +")
    text = "".join(line.body if line.no_newline else f"{line.body}\n" for line in lines)
    data = workspace.encoded(text, workspace.parts(patch.new))
    put = _fresh(workspace, patch.new or "", data)
    executable = patch.executable or None
    return Put(parts=put.parts, data=data, executable=executable)


def _fresh(workspace: Workspace, path: str, data: bytes) -> Put:
    parts = workspace.parts(path)
    workspace.limits.refuse_file(told_of(parts), len(data))
    try:
        return workspace.put(parts, data, overwrite=False)
    except PathRefused as error:
        if error.rule == "exists":
            said = "the diff makes this file, but it is there already"
            raise PatchRefused(f"{told_of(parts)}: {said}") from error
        raise


# ---------------------------------------------------------------- lines


def applied(file: TextFile, patch: FilePatch) -> str:
    """The text after all hunks."""
    old = lines_of(file.text)
    standard = "\r\n" if endings_of(file.text) == "CRLF" else "\n"
    new: list[tuple[str, str]] = []
    done = 0
    ends_with_newline = not old or old[-1][1] != ""
    for hunk in patch.hunks:
        if file.bom:
            for line in hunk.lines:
                line.body = line.body.removeprefix(BOM)
        at = _place(old, done, hunk, patch.told)
        new += old[done:at]
        done = at + len(hunk.old)
        new += _hunk_applied(old[at:done], hunk, new[-1][1] if new else "", standard)
        ends_with_newline = _ending_said(hunk, ends_with_newline)
    new += old[done:]
    text = "".join(body + (ending or standard) for body, ending in new[:-1])
    if new:
        body, ending = new[-1]
        text += body + (ending or standard) if ends_with_newline else body
    return text


def _ending_said(hunk: Hunk, ends_with_newline: bool) -> bool:
    for line in hunk.lines:
        if line.no_newline:
            ends_with_newline = line.mark == "-"
    return ends_with_newline


def _hunk_applied(
    old: list[tuple[str, str]], hunk: Hunk, before: str, standard: str
) -> list[tuple[str, str]]:
    """New lines of a hunk: what stays keeps its ending, what comes has that of what it replaces."""
    new: list[tuple[str, str]] = []
    at = 0
    gone: list[str] = []
    ending = before or (old[0][1] if old else "") or standard
    for line in hunk.lines:
        if line.mark == "+":
            ending = (gone.pop(0) if gone else "") or ending
            new.append((line.body, ending))
            continue
        if line.mark == "-":
            gone.append(old[at][1])
        else:
            gone.clear()
            new.append(old[at])
            ending = old[at][1] or ending
        at += 1
    return new


def _place(old: list[tuple[str, str]], done: int, hunk: Hunk, told: str) -> int:
    """Where the hunk's old lines stand: where it says, or in the one place that has them."""
    wanted = hunk.old
    if not wanted:
        if done <= hunk.at <= len(old):
            return hunk.at
        said = f"hunk {hunk.number} adds after line {hunk.at}, but there are {len(old)} lines"
        raise PatchRefused(f"{told}: {said}")
    stated = hunk.at - 1
    if stated >= done and _stands(old, stated, wanted):
        return stated
    places = [at for at in range(done, len(old) - len(wanted) + 1) if _stands(old, at, wanted)]
    if len(places) == 1:
        return places[0]
    if places:
        where = ", ".join(str(at + 1) for at in places[:5])
        said = f"hunk {hunk.number} fits at lines {where}, but not at {hunk.at}, as it says"
        raise PatchRefused(f"{told}: {said}. Correct its line number")
    raise PatchRefused(_difference(old, stated, wanted, hunk, told))


def _stands(old: list[tuple[str, str]], at: int, wanted: list[Line]) -> bool:
    if at < 0 or at + len(wanted) > len(old):
        return False
    for (body, ending), line in zip(old[at:], wanted, strict=False):
        if body != line.body or (line.no_newline and ending):
            return False
    return True


def _difference(
    old: list[tuple[str, str]], at: int, wanted: list[Line], hunk: Hunk, told: str
) -> str:
    """The first line that is not as the hunk says."""
    for number, line in enumerate(wanted, max(at, 0)):
        there = old[number][0] if number < len(old) else None
        if there != line.body:
            found = "the file ends" if there is None else f"there is {there[:SHOWN_CHARS]!r}"
            said = f"hunk {hunk.number} expects {line.body[:SHOWN_CHARS]!r} at line {number + 1}"
            return f"{told}: {said}, but {found}. Read the file again; nothing was written"
    said = "expects the end of the file where it is not"
    return f"{told}: hunk {hunk.number} {said}. Nothing was written"
