"""Finds the skills in folders and reads their files: by handles, without following any link."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from cairn.core.messages import Record
from cairn.errors import ConfigError
from cairn.governance.nodes import Fault
from cairn.skills.form import FILE, FrontMatter, read_front_matter
from cairn.workspace.content import decode
from cairn.workspace.descent import (
    FOLDER,
    descend,
    kind_of,
    look,
    names_in,
    open_file,
    read_all,
)
from cairn.workspace.limits import WorkspaceLimits
from cairn.workspace.paths import Parts, parts_of, shown
from cairn.workspace.refusals import NotText, PathRefused, WorkspaceError
from cairn.workspace.walk import Walk

TEXT_BYTES = 1 << 20
"""Size of a file that is read to a model, `SKILL.md` included."""
LIMITS = WorkspaceLimits(file_bytes=8 << 20, total_bytes=64 << 20, files=1_000, depth=8)
"""Bounds of one skill's folder."""
MOST_SKILLS = 200
MOST_NAMES = 1_000
HASH_DIGITS = 16
FAULTS_SAID = 20


class Skill(Record):
    """A skill, as its folder was when the agent was made.

    Args:
        front: Its front matter.
        place: The skill's folder, as an absolute path.
        hash: Of all its files, names and content.
        files: The hash of each file, by its path in the folder.
    """

    front: FrontMatter
    place: str
    hash: str
    files: dict[str, str] = {}

    @property
    def name(self) -> str:
        """Name of the skill, and of its folder."""
        return self.front.name

    @property
    def version(self) -> str:
        """The version it names in its metadata; empty for none."""
        return self.front.version


class SkillFault(Record):
    """One thing that is wrong with a skill: in which file, in which line, and what to do."""

    file: str
    line: int
    field: str
    problem: str
    fix: str

    def __str__(self) -> str:
        where = f"{self.file}:{self.line}" if self.line else self.file
        said = f"{self.field}: {self.problem}" if self.field else self.problem
        return f"{where}: {said}. {self.fix}"


class SkillsError(ConfigError):
    """Skills cannot be used; `faults` are all that is wrong with them."""

    def __init__(self, field: str, faults: tuple[SkillFault, ...]) -> None:
        said = "\n".join(f"{field}: {fault}" for fault in faults[:FAULTS_SAID])
        more = len(faults) - FAULTS_SAID
        Exception.__init__(self, f"{said}\n… and {more} more" if more > 0 else said)
        self.field = field
        self.fix = faults[0].fix
        self.faults = faults


class Faults(list[SkillFault]):
    """What is wrong, as it is found."""

    def say(self, file: object, problem: str, fix: str, line: int = 0, field: str = "") -> None:
        """Keep one of them."""
        told = shown(str(file), 400)
        self.append(SkillFault(file=told, line=line, field=field, problem=problem, fix=fix))


def hash_of(data: bytes) -> str:
    """What the content of a file is known by."""
    return hashlib.sha256(data).hexdigest()[:HASH_DIGITS]


@contextmanager
def opened(place: str) -> Iterator[int]:
    """A handle of a skill's folder; its own name may be no link.

    Raises:
        OSError: it is gone, or is none.
    """
    handle = os.open(place, FOLDER)
    try:
        yield handle
    finally:
        os.close(handle)


def read_file(folder: int, parts: Parts, most: int) -> bytes | None:
    """The content of a regular file below a held folder; None when it is larger than `most`.

    Raises:
        WorkspaceError: it is missing, a link, a folder or a special file, or cannot be read.
    """
    with descend(folder, parts[:-1]) as inner, open_file(inner, parts) as handle:
        data = read_all(handle, most)
    return data if len(data) <= most else None


def is_part(parts: Parts) -> bool:
    """Whether a path is of the skill: hidden names and what Python leaves behind are not."""
    return not any(name.startswith(".") or name == "__pycache__" for name in parts)


# ---------------------------------------------------------------- looking


def find(given: str | Path, faults: Faults) -> list[Skill]:
    """The skills of a folder: itself, or those in it; what is wrong is added to `faults`."""
    place = Path(os.path.realpath(given))
    if place.is_file():
        fix = "Give its folder" if place.name == FILE else "Name a folder that holds skills"
        faults.say(given, "this is a file, and no folder", fix)
        return []
    if not place.is_dir():
        faults.say(given, "there is no such folder", "Name a folder that holds skills")
        return []
    try:
        with opened(str(place)) as handle:
            names = names_in(handle, MOST_NAMES)
            if FILE in names:
                return [skill for skill in [_skill(place, handle, faults)] if skill is not None]
            found = [_inside(place, handle, name, faults) for name in names]
    except OSError as error:
        faults.say(given, f"it cannot be read ({error.strerror})", "Name a folder you can read")
        return []
    before = len(faults)
    if not any(looked for looked, _ in found) and len(faults) == before:
        fix = f"Put each skill into a folder of its own with a {FILE}"
        faults.say(given, "it holds no skill", fix)
    return [skill for _, skill in found if skill is not None]


def _inside(place: Path, handle: int, name: str, faults: Faults) -> tuple[bool, Skill | None]:
    """The skill of this name in a folder, and whether there was one to look at."""
    if not is_part((name,)):
        return False, None
    found = look(handle, name)
    kind = kind_of(found) if found is not None else "special"
    if kind == "link" and (place / name).is_dir():
        fix = "Put the folder itself here, or name it beside this one"
        faults.say(place / name, "this is a link, and links are never followed", fix)
        return True, None
    if kind != "folder":
        return False, None
    with descend(handle, (name,)) as inner:
        names = names_in(inner, MOST_NAMES)
        if FILE in names:
            return True, _skill(place / name, inner, faults)
    other = next((each for each in names if each.lower() == FILE.lower()), "")
    if other:
        faults.say(place / name / other, "the file is not found like this", f"Call it {FILE}")
    return bool(other), None


def _skill(place: Path, handle: int, faults: Faults) -> Skill | None:
    """The skill of a held folder; None when something is wrong with it."""
    before = len(faults)
    front = _front(place, handle, faults)
    files = _contents(place, handle, faults)
    if front is None and len(faults) == before:
        faults.say(place / FILE, "it changed while it was read", "Look again")
    if front is None or len(faults) > before:
        return None
    listed = "\0".join(f"{path}\0{digest}" for path, digest in sorted(files.items()))
    whole = hash_of(listed.encode("utf-8", "surrogateescape"))
    return Skill(front=front, place=str(place), hash=whole, files=files)


def _front(place: Path, handle: int, faults: Faults) -> FrontMatter | None:
    path = place / FILE
    try:
        data = read_file(handle, (FILE,), TEXT_BYTES)
        if data is None:
            fix = "Keep it short, and put the rest into other files of the skill"
            faults.say(path, f"it is larger than {TEXT_BYTES:,} bytes", fix)
            return None
        text = decode(data, FILE).text
    except NotText as error:
        faults.say(path, str(error), "Save it as UTF-8")
        return None
    except PathRefused as error:
        if error.rule != "link":  # a link is named with the other files of the skill
            faults.say(path, error.problem, "Put the file itself here")
        return None
    except WorkspaceError as error:
        faults.say(path, str(error), "Put the file itself here")
        return None
    try:
        front, found = read_front_matter(text, place.name)
    except ImportError as error:
        fix = "Install it: pip install 'cairn-runtime[skills]'"
        raise ConfigError("skills", "reading skills needs PyYAML", fix) from error
    for fault in found:
        _say(path, fault, faults)
    return front


def _say(path: Path, fault: Fault, faults: Faults) -> None:
    faults.say(path, fault.problem, fault.fix, line=fault.line, field=fault.field)


def _contents(place: Path, handle: int, faults: Faults) -> dict[str, str]:
    """The hash of each file of a skill, by its path."""
    found: dict[str, str] = {}
    size = 0
    walk = Walk(handle, MOST_NAMES * 10, LIMITS.depth)  # hidden ones count here only
    for each in walk:
        if not is_part(each.parts) or each.kind == "folder":
            continue
        path = "/".join(each.parts)
        if each.kind != "file" or not each.nameable:
            kind = "a link" if each.kind == "link" else "no file with a plain name"
            said = f"this is {kind}, and a skill holds plain files only"
            faults.say(place / path, said, "Put a copy of the file here")
            continue
        size += each.size
        if each.size > LIMITS.file_bytes or size > LIMITS.total_bytes:
            said = f"files of a skill have {LIMITS.file_bytes:,} bytes at most, "
            said += f"{LIMITS.total_bytes:,} together"
            faults.say(place / path, said, "Keep large data elsewhere")
            break
        try:
            data = read_file(handle, each.parts, LIMITS.file_bytes)
        except WorkspaceError as error:
            why = error.problem if isinstance(error, PathRefused) else str(error)
            faults.say(place / path, f"it cannot be read: {why}", "Put a readable file here")
            continue
        found[path] = hash_of(data or b"")
    if walk.cut or walk.deep or len(found) > LIMITS.files:
        said = f"a skill has {LIMITS.files:,} files at most, {LIMITS.depth} folders deep"
        faults.say(place, said, "Keep large data elsewhere")
    return found


def parts_in(path: str) -> Parts:
    """The names of a path in a skill. Raises `WorkspaceError`."""
    return parts_of(path, LIMITS)
