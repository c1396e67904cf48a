"""The tools for files: list, read, write, delete, move; and with them edit, patch and search.

They work in the run's workspace and cannot leave it. All that goes wrong is told so that a model
can mend it: which path, what is wrong, what to do.
"""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from cairn.errors import ToolError
from cairn.toolkit.edit import edit_file
from cairn.toolkit.patch import apply_patch
from cairn.toolkit.pledge import TAINT, TIMEOUT_S, Steps, came_of, counted, pledge, workspace_of
from cairn.toolkit.search import search_files
from cairn.tools.context import Context
from cairn.tools.tool import Tool, tool
from cairn.workspace.content import endings_of, lines_of
from cairn.workspace.paths import conflict_key, shown
from cairn.workspace.walk import Found

__all__ = ["FILE_TOOLS", "READ_TOOLS", "TAINT"]

MAX_LISTED = 1_000
MAX_LINES = 2_000
PAGE_CHARS = 40_000
LINE_CHARS = 2_000
LISTING_BYTES = 128 * 1024
PAGE_BYTES = 256 * 1024
"""A page or a listing, however it is escaped, stays below these: it never becomes an artifact."""

PathText = Annotated[str, Field(max_length=4_096)]


def by_path(arguments: dict[str, Any]) -> str:
    """Calls on different files may overlap."""
    return conflict_key(arguments["path"])


@tool(effect="read", timeout=TIMEOUT_S, result_bytes=LISTING_BYTES, taint=TAINT)
def list_files(
    ctx: Context[Any],
    path: PathText = "",
    pattern: Annotated[str, Field(max_length=200)] = "",
    depth: Annotated[int, Field(ge=1, le=64)] = 3,
    limit: Annotated[int, Field(ge=1, le=MAX_LISTED)] = 200,
) -> str:
    """List files and folders of the workspace.

    Links are listed but never followed. Folders end with a slash.

    Args:
        path: The folder, from the workspace's root; the root itself by default.
        pattern: Only what fits it, seen from that folder: *.py finds them in any folder,
            src/*.py only there, src/**/*.py also below.
        depth: How many folders deep to look; 1 is the folder alone.
        limit: How many entries at most.
    """
    listing = workspace_of(ctx).list(path, pattern=pattern, depth=depth, limit=limit)
    if not listing.found:
        where = shown(path) or "The workspace"
        return f"{where} has nothing that fits {pattern}." if pattern else f"{where} is empty."
    start = "/".join(name for name in path.split("/") if name not in {"", "."})
    lines = [_row(start, found) for found in listing.found]
    if listing.cut:
        lines.append("There is more: name a folder or a pattern, or raise the limit.")
    return "\n".join([*lines, *_alike(listing.found)])


def _row(start: str, found: Found) -> str:
    path = shown("/".join((start, *found.parts) if start else found.parts), 1_200)
    note = {
        "file": f"  {counted(found.size, 'byte')}",
        "folder": "/",
        "link": "  (a link: not followed)",
        "special": "  (no file: never opened)",
    }[found.kind]
    return f"{path}{note}" if found.nameable else f"{path}{note}  (this name cannot be given)"


def _alike(found: tuple[Found, ...]) -> list[str]:
    """Names that look the same and are not, written out."""
    by_key: dict[str, list[str]] = {}
    for each in found:
        path = "/".join(each.parts)
        by_key.setdefault(conflict_key(path), []).append(path)
    return [
        f"Different files with names that look alike: {', '.join(map(ascii, paths))}"
        for paths in by_key.values()
        if len(paths) > 1
    ]


@tool(effect="read", timeout=TIMEOUT_S, result_bytes=PAGE_BYTES, conflict_key=by_path, taint=TAINT)
def read_file(
    path: PathText,
    ctx: Context[Any],
    offset_line: Annotated[int, Field(ge=1)] = 1,
    limit_lines: Annotated[int, Field(ge=1, le=MAX_LINES)] = 500,
) -> str:
    """Read a text file of the workspace, with line numbers.

    The numbers and the tab behind them are no part of the file.

    Args:
        path: The file, from the workspace's root.
        offset_line: The first line to read; the first of a file is 1.
        limit_lines: How many lines to read.
    """
    file = workspace_of(ctx).read_text(path)
    lines = lines_of(file.text)
    told = shown(path)
    if not lines:
        return f"{told} is empty."
    if offset_line > len(lines):
        raise ToolError(f"{told} has {counted(len(lines), 'line')}; offset_line is {offset_line}")
    shown_lines: list[str] = []
    left = PAGE_CHARS
    for number, (body, _) in enumerate(
        lines[offset_line - 1 : offset_line - 1 + limit_lines], offset_line
    ):
        row = f"{number:>6}\t{_cut(body)}"
        left -= len(row) + 1
        if left < 0 and shown_lines:
            break
        shown_lines.append(row)
    last = offset_line + len(shown_lines) - 1
    kind = f"UTF-8{' with a byte-order mark' if file.bom else ''}"
    endings = endings_of(file.text)
    breaks = "no line break" if endings == "none" else f"{endings} line endings"
    final = "" if lines[-1][1] else ", none after the last line"
    head = f"{told}: lines {offset_line} to {last} of {len(lines)} ({kind}, {breaks}{final})"
    more = [f"Go on with offset_line={last + 1}."] if last < len(lines) else []
    return "\n".join([head, *shown_lines, *more])


def _cut(body: str) -> str:
    if len(body) <= LINE_CHARS:
        return body
    return f"{body[:LINE_CHARS]}… (this line has {len(body):,} characters)"


@tool(effect="write", recovery="probe", probe=came_of, timeout=TIMEOUT_S, conflict_key=by_path)
def write_file(path: PathText, content: str, ctx: Context[Any], overwrite: bool = False) -> str:
    """Write a text file in the workspace, whole.

    Missing folders are made. The content is written exactly as given. To change a part of a file
    use edit_file.

    Args:
        path: The file, from the workspace's root.
        content: All that the file is to hold.
        overwrite: Whether a file that is there may be replaced.
    """
    workspace = workspace_of(ctx)
    parts = workspace.parts(path)
    size = counted(len(workspace.encoded(content, parts)), "byte")

    def say(steps: Steps) -> str:
        is_new = all(not before for before, _ in steps.values())
        return f"{shown(path)}: wrote {size}, {'a new file' if is_new else 'in place of the old'}."

    is_new = workspace.write(
        path, content, overwrite=overwrite, before_first=pledge(ctx, workspace, say)
    )
    return say({path: ("" if is_new else "old", "new")})


@tool(effect="write", recovery="probe", probe=came_of, timeout=TIMEOUT_S, conflict_key=by_path)
def delete_file(path: PathText, ctx: Context[Any]) -> str:
    """Delete one file of the workspace. A link is removed itself, not what it points to.

    Args:
        path: The file, from the workspace's root.
    """
    workspace = workspace_of(ctx)
    said = f"{shown(path)}: deleted."
    workspace.delete(path, before_first=pledge(ctx, workspace, lambda _: said))
    return said


@tool(effect="write", recovery="probe", probe=came_of, timeout=TIMEOUT_S)
def move_file(path: PathText, to: PathText, ctx: Context[Any]) -> str:
    """Move or rename one file within the workspace. Missing folders are made.

    Args:
        path: The file, from the workspace's root.
        to: Its new path, which must not be taken.
    """
    workspace = workspace_of(ctx)
    said = f"{shown(path)}: moved to {shown(to)}."
    workspace.move(path, to, before_first=pledge(ctx, workspace, lambda _: said))
    return said


READ_TOOLS: tuple[Tool[..., Any], ...] = (list_files, read_file, search_files)
"""The tools that only read."""
FILE_TOOLS: tuple[Tool[..., Any], ...] = (
    *READ_TOOLS,
    write_file,
    edit_file,
    apply_patch,
    delete_file,
    move_file,
)
"""All tools for files."""
