"""The skills room: folders with instructions for particular tasks, in the Agent Skills form.

Names and descriptions stand in the prompt; the text of a skill is read when it is needed, with the
tool `load_skill`. A skill is content of the deployment and permits nothing.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from cairn.core.fingerprint import digest
from cairn.errors import ConfigError, safe_repr

if TYPE_CHECKING:
    from cairn.skills.folders import Skill, SkillFault, SkillsError
    from cairn.tools.tool import Tool

__all__ = ["Skill", "SkillFault", "Skills", "SkillsError", "skills_index", "skills_of"]

INTRO = (
    "Skills are instructions for particular tasks. When the task fits one of them, read it with "
    "load_skill before you begin."
)


class Skills:
    """The skills of some folders, as they are when this is made.

    Args:
        *folders: Each one a folder that holds skills, or the folder of one skill.
        field: How the option is called in messages.

    Attributes:
        index: What the prompt says of them: one line each, sorted by name; empty for none.
        hash: Changes with every file of every skill; empty for none.

    Raises:
        SkillsError: all that is wrong in them, each with its file and line.
        ConfigError: a folder is none, or PyYAML is not installed.
    """

    def __init__(self, *folders: Path | str, field: str = "skills") -> None:
        self._by_name: dict[str, Skill] = {}
        if folders:
            self._read(folders, field)
        self.index = skills_index(self)
        self.hash = digest([[s.name, s.hash] for s in self]) if self else ""

    def _read(self, folders: tuple[Path | str, ...], field: str) -> None:
        from cairn.skills.folders import MOST_SKILLS, Faults, SkillsError, find
        from cairn.skills.form import FILE

        faults = Faults()
        for folder in folders:
            given: Any = folder
            if not isinstance(given, str | os.PathLike) or not os.fspath(given):
                raise ConfigError(
                    field, f"{safe_repr(folder)} is no folder", "Give paths of folders"
                )
            for skill in find(folder, faults):
                other = self._by_name.setdefault(skill.name, skill)
                if other.place != skill.place:
                    said = f"another skill is called {skill.name}, in {other.place}"
                    file = f"{skill.place}/{FILE}"
                    faults.say(file, said, "Call one of them otherwise", field="name")
        if len(self._by_name) > MOST_SKILLS:
            said = f"{len(self._by_name)} skills are too many"
            faults.say(folders[0], said, f"Give an agent {MOST_SKILLS} at most")
        if faults:
            raise SkillsError(field, tuple(faults))

    def __iter__(self) -> Iterator[Skill]:
        """The skills, sorted by name."""
        return iter([self._by_name[name] for name in sorted(self._by_name)])

    def __len__(self) -> int:
        return len(self._by_name)

    def __getitem__(self, name: str) -> Skill:
        return self._by_name[name]

    def __contains__(self, name: object) -> bool:
        return name in self._by_name

    def __repr__(self) -> str:
        return f"Skills({', '.join(sorted(self._by_name))})"

    def and_(self, other: Skills, field: str) -> Skills:
        """Both together.

        Raises:
            ConfigError: two of them share a name.
        """
        both = Skills()
        both._by_name = dict(self._by_name)
        for skill in other:
            known = both._by_name.setdefault(skill.name, skill)
            if known.place != skill.place:
                said = f"two skills are called {skill.name}: in {known.place} and {skill.place}"
                raise ConfigError(field, said, "Call one of them otherwise")
        both.index = skills_index(both)
        both.hash = digest([[s.name, s.hash] for s in both]) if both else ""
        return both

    def tools(self) -> list[Tool[..., Any]]:
        """The tool `load_skill` that reads them; none without skills."""
        if not self:
            return []
        from cairn.skills.loading import load_skill_of

        return [load_skill_of(self)]


def skills_index(skills: Skills) -> str:
    """What the prompt says of skills: one line each, sorted by name; empty for none."""
    lines = [f"- {skill.name}: {skill.front.description}" for skill in skills]
    return "\n".join([INTRO, *lines]) if lines else ""


def skills_of(given: object, field: str) -> Skills:
    """What an agent is given as its skills: paths of folders, and `Skills`.

    Raises:
        ConfigError: something in it is neither, or its skills cannot be used.
    """
    if isinstance(given, str | os.PathLike | Skills):
        given = [given]
    if not isinstance(given, Sequence):
        fix = "Give a list of folders, or Skills"
        raise ConfigError(field, f"{safe_repr(given)} cannot be used", fix)
    folders = [one for one in given if not isinstance(one, Skills)]
    found = Skills(*folders, field=field)
    for one in given:
        if isinstance(one, Skills):
            found = found.and_(one, field)
    return found


def __getattr__(name: str) -> Any:
    if name not in {"Skill", "SkillFault", "SkillsError"}:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from cairn.skills import folders

    return getattr(folders, name)
