"""`apply_patch`: a unified diff of several files, all of it or nothing."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cairn.errors import ToolError
from cairn.toolkit.pledge import TIMEOUT_S, Steps, came_of, counted, pledge, workspace_of
from cairn.tools.context import Context
from cairn.tools.tool import tool
from cairn.workspace.commit import steps_of
from cairn.workspace.patching import plan
from cairn.workspace.paths import is_text, shown

DIFF_CHARS = 4_000_000
FILES_SHOWN = 50


@tool(effect="write", recovery="probe", probe=came_of, timeout=TIMEOUT_S)
def apply_patch(
    diff: Annotated[str, Field(min_length=1, max_length=DIFF_CHARS)], ctx: Context[Any]
) -> str:
    """Apply a unified diff to files of the workspace: all of it or nothing.

    Every context line and every line that goes must stand in the file exactly. Files are made by
    --- /dev/null, deleted by +++ /dev/null, and renamed by diff --git with rename from and
    rename to. Line endings and the newline at the end of a file stay as they are.

    Args:
        diff: The diff, as `diff -u` or `git diff` writes it.
    """
    workspace = workspace_of(ctx)
    if not is_text(diff):
        raise ToolError("the diff holds half of a character, which UTF-8 cannot hold")
    changes = plan(workspace, diff)

    def say(steps: Steps) -> str:
        rows = [f"  {_what(*step)} {shown(path)}" for path, step in steps.items()]
        more = [f"  and {len(rows) - FILES_SHOWN} more"] if len(rows) > FILES_SHOWN else []
        return "\n".join([f"Changed {counted(len(rows), 'file')}:", *rows[:FILES_SHOWN], *more])

    workspace.commit(changes, pledge(ctx, workspace, say))
    return say(steps_of(changes))


def _what(before: str, after: str) -> str:
    if not before:
        return "made"
    return "changed" if after else "removed"
