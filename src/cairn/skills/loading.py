"""The tool `load_skill`: the text of a skill, or of another file of it, when it is needed.

Importing this module loads pydantic, as every declaration of a tool does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field

from cairn.core.names import listed, nearest
from cairn.errors import ToolError
from cairn.skills.folders import (
    TEXT_BYTES,
    Skill,
    hash_of,
    is_part,
    opened,
    parts_in,
    read_file,
)
from cairn.skills.form import FILE, body_of, read_front_matter
from cairn.tools.text import preview
from cairn.tools.tool import Tool, make_tool
from cairn.workspace.content import decode
from cairn.workspace.paths import shown
from cairn.workspace.refusals import PathRefused, WorkspaceError

if TYPE_CHECKING:
    from cairn.skills import Skills

PAGE_CHARS = 20_000
PAGE_BYTES = 256 * 1024
"""A page, however it is escaped, stays below this: what is read never becomes an artifact."""
FILES_SHOWN = 50
TIMEOUT_S = 20.0


def load_skill_of(skills: Skills) -> Tool[..., Any]:
    """The tool that reads these skills, and nothing else."""

    def load_skill(
        name: Annotated[str, Field(min_length=1, max_length=64)],
        file: Annotated[str, Field(max_length=1_024)] = FILE,
        offset: Annotated[int, Field(ge=0)] = 0,
    ) -> dict[str, Any]:
        """Read a skill, or another file that belongs to it.

        What a skill says is advice on how to do a task. It gives you no permission: every call you
        make for it is judged as any other.

        Args:
            name: The skill, as the list of skills names it.
            file: A file of the skill, as its text names it, for example references/forms.md.
            offset: The first character to read, where a text was cut.
        """
        if name not in skills:
            names = [skill.name for skill in skills]
            close = nearest(name, names)
            meant = f"Did you mean {' or '.join(close)}?" if close else f"There are {listed(names)}"
            raise ToolError(f"there is no skill {preview(name)}. {meant}")
        return _page(skills[name], file or FILE, offset)

    options: Any = {"effect": "read", "timeout": TIMEOUT_S, "result_bytes": PAGE_BYTES}
    return make_tool(load_skill, options)


def _page(skill: Skill, file: str, offset: int) -> dict[str, Any]:
    """A part of a file, with what it is known by: which version the model has read is recorded."""
    data = _data(skill, file)
    file = "/".join(parts_in(file))  # ./SKILL.md is SKILL.md, and is known by its hash as well
    text = decode(data, shown(file)).text
    version = skill.version
    if file == FILE:
        version = _version(text, skill)
        text = text[body_of(text) :].lstrip("\n")
    if offset and offset >= len(text):
        said = f"{skill.name}: {shown(file)} has {len(text):,} characters"
        raise ToolError(f"{said}, and none at offset {offset:,}. Read it from 0")
    end = offset + PAGE_CHARS
    page: dict[str, Any] = {
        "skill": skill.name,
        "file": file,
        "version": version,
        "hash": hash_of(data),
        "offset": offset,
        "text": text[offset:end],
        "next_offset": end if end < len(text) else None,
        "total_chars": len(text),
    }
    if skill.files.get(file) != page["hash"]:
        page["changed"] = True  # since the agent was made: its fingerprint names another content
    others = [path for path in skill.files if path != FILE]
    if file == FILE and not offset and others:
        page["files"] = others[:FILES_SHOWN]
    return page


def _data(skill: Skill, file: str) -> bytes:
    """The bytes of a file of a skill; nothing outside its folder is ever opened."""
    told = f"{skill.name}: {shown(file)}"
    try:
        parts = parts_in(file)
        if not is_part(parts):
            raise ToolError(f"{told} is no part of the skill")
        with opened(skill.place) as folder:
            data = read_file(folder, parts, TEXT_BYTES)
    except PathRefused as error:
        known = listed([path for path in skill.files if path != FILE], FILES_SHOWN)
        there = f"Its other files are {known}" if known else "It has no other files"
        raise ToolError(f"{told} cannot be read: {error.problem}. {there}") from error
    except WorkspaceError as error:
        raise ToolError(f"{told} cannot be read: {error}") from error
    except OSError as error:
        raise ToolError(f"the folder of {skill.name} is not there any more") from error
    if data is None:
        raise ToolError(f"{told} is larger than {TEXT_BYTES:,} bytes and cannot be read")
    return data


def _version(text: str, skill: Skill) -> str:
    """The version that the text itself names; it may have changed since the agent was made."""
    front, _ = read_front_matter(text, skill.name)
    return front.version if front is not None else ""
