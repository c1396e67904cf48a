"""What the tools for files share: the call's workspace, and finding out what came of a call.

Each write notes, right before its first step, what every file is and is to become. After a crash
the probe compares that with what is there. A write tool of this room is therefore `probe`.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable
from typing import Any

from cairn.errors import NotDone, ToolError
from cairn.tools.context import Context
from cairn.tools.verdicts import NOT_HAPPENED, UNKNOWN, Verdict, happened
from cairn.workspace.commit import BeforeFirst
from cairn.workspace.intents import Note, Step
from cairn.workspace.workspace import Workspace

TAINT = "files"
"""Where the content of a result comes from."""
TIMEOUT_S = 60.0
PLAIN = re.compile(r"[A-Za-z0-9_-]{1,80}")

Steps = dict[str, Step]


def workspace_of(ctx: Context[Any]) -> Workspace:
    """The workspace of a call.

    Raises:
        ToolError: the deployment gives its runs none.
    """
    workspace = ctx.workspace
    if not isinstance(workspace, Workspace):
        raise ToolError('there is no workspace here: the operator sets Runtime(workspace="folder")')
    return workspace


def pledge(ctx: Context[Any], workspace: Workspace, say: Callable[[Steps], str]) -> BeforeFirst:
    """What is to happen right before the first step of a write: the last look, and the note.

    Args:
        say: What the call will answer, by the steps it takes.
    """

    def before_first(steps: Steps) -> None:
        if ctx.closed or ctx.remaining() == 0:  # it was given up: its answer would be no news
            raise NotDone("the call's time was up before anything was written")
        if ctx.run_id:
            workspace.note(_name(ctx), Note(steps=steps, said=say(steps)))

    return before_first


def came_of(ctx: Context[Any]) -> Verdict:
    """The probe of every write: what the files are now, against what the call noted."""
    if not ctx.run_id:
        return UNKNOWN
    outcome, said = workspace_of(ctx).came_of(_name(ctx))
    if outcome == "done":
        return happened(said)
    return NOT_HAPPENED if outcome == "not_done" else UNKNOWN


def _name(ctx: Context[Any]) -> str:
    """A file name for a call: readable where its ids are plain."""
    name = f"{ctx.run_id}.{ctx.call_id}"
    if PLAIN.fullmatch(name.replace(".", "_")) and not name.startswith("."):
        return name
    return f"={hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()}"


def counted(number: int, word: str) -> str:
    """A number and a word, in the plural where it belongs."""
    return f"{number:,} {word}" if number == 1 else f"{number:,} {word}s"
