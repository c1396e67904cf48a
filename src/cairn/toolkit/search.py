"""`search_files`: lines that hold a text or fit a regular expression.

A plain text is looked for here. A regular expression can take for ever on a single line, and
while Python's engine works nothing else of the process does; so it runs in a process of its own
that is given the contents, has no other business, and is killed when its time is up.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cairn.errors import ToolError
from cairn.toolkit.pledge import TAINT, TIMEOUT_S, counted, workspace_of
from cairn.tools.context import Context
from cairn.tools.tool import tool
from cairn.workspace.content import as_text, lines_of
from cairn.workspace.paths import is_text, shown
from cairn.workspace.refusals import WorkspaceError
from cairn.workspace.workspace import Workspace

MAX_MATCHES = 500
MAX_PATTERN = 1_000
FILE_BYTES = 1 << 20
"""Larger files are left out, and it is said so."""
TOTAL_BYTES = 16 << 20
"""What one search looks through at most."""
MOST_FILES = 5_000
REGEX_S = 10.0
"""How long a regular expression may take over all files."""
WIDTH = 300
"""Characters of a line that are shown."""
RESULT_BYTES = 512 * 1024
CHILD = Path(__file__).with_name("search_child.py")

Match = tuple[str, int, str]


class _Texts:
    """The texts to look through, and what was left out."""

    def __init__(self, workspace: Workspace, path: str, files: str) -> None:
        listing = workspace.list(path, pattern=files, limit=MOST_FILES)
        self._workspace = workspace
        self._start = workspace.parts(path, root=True)
        self._found = [each for each in listing.found if each.kind == "file" and each.nameable]
        self.cut = listing.cut
        self.large = 0
        self.binary = 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        left = TOTAL_BYTES
        for found in self._found:
            if found.size > FILE_BYTES:
                self.large += 1
                continue
            if found.size > left:
                self.cut = True
                return
            path = "/".join((*self._start, *found.parts))
            try:
                data = self._workspace.read(path)
            except WorkspaceError:  # gone or swapped since it was listed
                continue
            left -= len(data)
            text = as_text(data)
            if text is None:
                self.binary += 1
            else:
                yield path, text


@tool(effect="read", timeout=TIMEOUT_S, result_bytes=RESULT_BYTES, taint=TAINT)
def search_files(
    pattern: Annotated[str, Field(min_length=1, max_length=MAX_PATTERN)],
    ctx: Context[Any],
    path: Annotated[str, Field(max_length=4_096)] = "",
    files: Annotated[str, Field(max_length=200)] = "",
    regex: bool = False,
    ignore_case: bool = False,
    limit: Annotated[int, Field(ge=1, le=MAX_MATCHES)] = 100,
) -> str:
    """Find lines in the text files of the workspace.

    Args:
        pattern: The text to find, within one line.
        path: The folder to search, with all below it; all by default.
        files: Only files that fit it, such as *.py.
        regex: Whether the pattern is a regular expression of Python's re.
        ignore_case: Whether capital and small letters are the same.
        limit: How many lines at most.
    """
    if not is_text(pattern) or "\n" in pattern:
        raise ToolError("the pattern must be text within one line")
    texts = _Texts(workspace_of(ctx), path, files)
    if regex:
        found, more = _by_regex(ctx, pattern, ignore_case, limit, texts)
    else:
        found, more = _by_text(pattern, ignore_case, limit, texts)
    rows = [f"{shown(where, 1_200)}:{number}: {line}" for where, number, line in found]
    notes = []
    if more:
        notes.append(f"There are more; these are the first {limit}.")
    if texts.cut and not more:
        notes.append("Not all files were searched: name a folder or a pattern of files.")
    if texts.large:
        notes.append(f"{counted(texts.large, 'file')} above {FILE_BYTES:,} bytes left out.")
    if texts.binary:
        notes.append(f"{counted(texts.binary, 'file')} without UTF-8 text left out.")
    if not rows:
        notes.insert(0, "Nothing was found.")
    return "\n".join([*rows, *notes])


def _by_text(
    pattern: str, ignore_case: bool, limit: int, texts: _Texts
) -> tuple[list[Match], bool]:
    wanted = pattern.lower() if ignore_case else pattern
    found: list[Match] = []
    for path, text in texts:
        if wanted not in (text.lower() if ignore_case else text):
            continue
        for number, (body, _) in enumerate(lines_of(text), 1):
            at = (body.lower() if ignore_case else body).find(wanted)
            if at < 0:
                continue
            if len(found) == limit:
                return found, True
            found.append((path, number, around(body, at)))
    return found, False


def around(body: str, at: int) -> str:
    """A line, or what is around the match in a long one."""
    if len(body) <= WIDTH:
        return body
    begin = max(0, min(at - WIDTH // 3, len(body) - WIDTH))
    end = begin + WIDTH
    return f"{'…' if begin else ''}{body[begin:end]}{'…' if end < len(body) else ''}"


def _by_regex(
    ctx: Context[Any], pattern: str, ignore_case: bool, limit: int, texts: _Texts
) -> tuple[list[Match], bool]:
    bodies = {path: [body for body, _ in lines_of(text)] for path, text in texts}
    asked = {
        "pattern": pattern,
        "ignore_case": ignore_case,
        "limit": limit,
        "files": list(bodies.items()),
    }
    argv = [sys.executable, "-I", "-S", "-X", "utf8", str(CHILD)]
    try:
        done = ctx.run(argv, input=json.dumps(asked), env={}, timeout=REGEX_S)
    except TimeoutError as error:
        raise ToolError(
            f"the pattern takes longer than {REGEX_S:g} s on these files. Use a simpler one, "
            "without repeats inside repeats, or fewer files"
        ) from error
    try:
        answer = json.loads(done.stdout)
    except ValueError as error:
        said = f"the search ended without an answer (exit code {done.returncode})"
        raise ToolError(f"{said}. Use a simpler pattern, or fewer files") from error
    if "error" in answer:
        raise ToolError(f"the pattern is no regular expression: {answer['error']}")
    found = [
        (path, number, around(bodies[path][number - 1], at)) for path, number, at in answer["found"]
    ]
    return found, bool(answer["more"])
