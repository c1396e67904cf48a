"""What a workspace refuses, and why. Each is a `ToolError`: nothing of it happened.

WorkspaceError
├── PathRefused      the path may not be used, or cannot be; carries the rule
├── WorkspaceLimit   too large, too many, too deep; carries limit, figure and bound
├── NotText          the file is no UTF-8 text; says what it may be
├── EditRefused      what was to be replaced is not there exactly as often as said
├── PatchRefused     the diff does not fit; nothing of it was written
├── Changed          the file has changed since it was looked at
├── NoWorkspace      nothing has used it, so there is nothing to look at
└── WorkspaceFailed  the disk or the system refused; what was there is as it was
"""

from __future__ import annotations

from typing import Literal

from cairn.errors import ToolError

Rule = Literal[
    "empty",
    "absolute",
    "parent",
    "name",
    "reserved",
    "length",
    "link",
    "hard_link",
    "special",
    "missing",
    "exists",
    "kind",
]
"""Which rule refused a path."""


class WorkspaceError(ToolError):
    """The workspace refused or failed; what was there is as it was."""


class PathRefused(WorkspaceError):
    """A path may not be used.

    Attributes:
        rule: Which rule refused it.
        path: The path as it was given, safe to show.
        problem: What is wrong with it, in words.
    """

    def __init__(self, rule: Rule, path: str, problem: str, fix: str = "") -> None:
        end = f" {fix}." if fix else ""
        super().__init__(f"{path}: {problem}.{end} (rule: workspace.{rule})")
        self.rule: Rule = rule
        self.path = path
        self.problem = problem


class WorkspaceLimit(WorkspaceError):
    """A limit of the workspace would be passed.

    Attributes:
        limit: Its name in `WorkspaceLimits`.
        figure: What would be reached.
        bound: What is allowed.
    """

    def __init__(self, limit: str, figure: int, bound: int, said: str) -> None:
        super().__init__(f"{said} (limit: workspace.{limit}, {figure:,} of at most {bound:,})")
        self.limit = limit
        self.figure = figure
        self.bound = bound


class NotText(WorkspaceError):
    """The file holds no UTF-8 text."""


class EditRefused(WorkspaceError):
    """What was to be replaced does not stand in the file exactly as often as was said."""


class PatchRefused(WorkspaceError):
    """A diff cannot be read, or does not fit what is there."""


class Changed(WorkspaceError):
    """The file is no longer what it was when it was looked at."""


class NoWorkspace(WorkspaceError):
    """There is no workspace: nothing has used it yet."""


class WorkspaceFailed(WorkspaceError):
    """The system refused: no space, no permission, a folder that is gone."""
