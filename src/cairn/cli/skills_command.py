"""`skills`: what skills agents have, and whether folders hold skills that can be used."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cairn.cli import options
from cairn.cli.outcome import print_json
from cairn.cli.paint import console
from cairn.cli.place import locate, open_app
from cairn.cli.plain import visible_line
from cairn.cli.say import complain, print_line
from cairn.cli.verbs import Verbs
from cairn.skills import Skill, Skills, SkillsError

app = Verbs(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="List the skills of agents, or check folders with skills.",
)
Folders = Annotated[
    list[Path] | None,
    typer.Argument(metavar="[FOLDER]...", help="Folders with skills, or of one skill."),
]
DESCRIPTION_CHARS = 200


@app.command("list")
def list_(
    folders: Folders = None,
    *,
    agent: Annotated[str, typer.Option("--agent", help="Whose. Default: all agents'.")] = "",
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List skills: their names, versions, hashes and what they are for.

    Of the agents of the application, or of the folders that are named; then no application is
    needed. The hash changes with every file of a skill; the agent's fingerprint holds it. What a
    skill calls its allowed tools is shown with --json, and permits nothing.
    """
    if folders:
        _show([("", skill) for skill in Skills(*folders)], json=json)
        return
    runtime = open_app(locate(store, app))
    names = [agent] if agent else sorted(runtime.host.agents)
    found = [(name, skill) for name in names for skill in runtime.agent(name).skills]
    if not found:
        print_line(f"agent {agent} has no skills" if agent else "no agent here has skills")
        return
    _show(found, json=json)


@app.command()
def check(folders: Folders = None, *, json: options.Json = False) -> None:
    """Check folders with skills; all that is wrong is said, with file and line.

    Exits with 1 if something is. Default: the folder ./skills. Fields that the form does not have
    are named and taken as they are.
    """
    try:
        found = Skills(*(folders or [Path("skills")]))
    except SkillsError as error:
        for fault in error.faults:
            if json:
                print_json(fault)
            else:
                complain(str(fault))
        raise typer.Exit(1) from error
    for skill in found:
        unknown = ", ".join(skill.front.unknown)
        note = f" (fields that are not of the form: {unknown})" if unknown else ""
        if json:
            print_json(_fields("", skill))
        else:
            print_line(f"{skill.name}: fine{note}")


def _fields(agent: str, skill: Skill) -> dict[str, object]:
    front = skill.front
    return {
        **({"agent": agent} if agent else {}),
        "name": skill.name,
        "version": skill.version,
        "hash": skill.hash,
        "description": front.description,
        "license": front.license,
        "compatibility": front.compatibility,
        "allowed_tools": list(front.allowed_tools),
        "unknown_fields": list(front.unknown),
        "files": sorted(skill.files),
        "folder": skill.place,
    }


def _show(found: list[tuple[str, Skill]], *, json: bool) -> None:
    if json:
        for agent, skill in found:
            print_json(_fields(agent, skill))
        return
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False, header_style="bold")
    of_agents = any(agent for agent, _ in found)
    for title in (*(("agent",) if of_agents else ()), "skill", "version", "hash", "what it is for"):
        table.add_column(title, overflow="fold")
    for agent, skill in found:
        cells = (skill.name, skill.version, skill.hash, skill.front.description)
        shown = (agent, *cells) if of_agents else cells
        table.add_row(*(Text(visible_line(cell, DESCRIPTION_CHARS)) for cell in shown))
    console(table=True).print(table)
