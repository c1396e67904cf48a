"""`edit_file`: replace a text that stands in a file exactly as often as said."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cairn.errors import ToolError
from cairn.toolkit.pledge import TIMEOUT_S, came_of, counted, pledge, workspace_of
from cairn.tools.context import Context
from cairn.tools.tool import tool
from cairn.workspace.content import decode
from cairn.workspace.edits import replace
from cairn.workspace.paths import conflict_key, is_text, shown

MOST = 1_000
LINES_SHOWN = 20


@tool(
    effect="write",
    recovery="probe",
    probe=came_of,
    timeout=TIMEOUT_S,
    conflict_key=lambda arguments: conflict_key(arguments["path"]),
)
def edit_file(
    path: Annotated[str, Field(max_length=4_096)],
    old: str,
    new: str,
    ctx: Context[Any],
    count: Annotated[int, Field(ge=1, le=MOST)] = 1,
) -> str:
    """Replace a text in a file of the workspace.

    The old text must stand in the file exactly, and exactly `count` times. Everything else stays
    as it is, line endings too.

    Args:
        path: The file, from the workspace's root.
        old: The text to replace, with enough around it to be the only one. No line numbers.
        new: What takes its place; may be empty.
        count: How often the old text stands there; all of them are replaced.
    """
    workspace = workspace_of(ctx)
    told = shown(path)
    if not is_text(old) or not is_text(new):
        raise ToolError(f"{told}: old and new must be text that UTF-8 can hold")
    looked = workspace.read_to_change(path)
    file = decode(looked.data, told)
    replaced = replace(file.text, old, new, count, told)
    data = file.encoded(replaced.text)
    workspace.limits.refuse_file(told, len(data))
    lines = ", ".join(map(str, replaced.lines[:LINES_SHOWN]))
    more = ", …" if len(replaced.lines) > LINES_SHOWN else ""
    where = f"at line {lines}" if len(replaced.lines) == 1 else f"at lines {lines}{more}"
    said = f"{told}: replaced {counted(count, 'text')} {where}."
    change = workspace.replacing(looked, data)
    workspace.commit([change], pledge(ctx, workspace, lambda _: said))
    return said
