"""The workspace room: a folder for an agent, which it cannot leave, overfill or leave half written.

Every file is reached name by name by handles, links are never followed, every write is whole or
not at all, and what a run changed can be told from a baseline that is kept outside.
"""

from cairn.workspace.accounts import Usage
from cairn.workspace.baseline import Change
from cairn.workspace.folders import GivesWorkspaces, Workspaces, workspaces
from cairn.workspace.limits import WorkspaceLimits
from cairn.workspace.refusals import (
    Changed,
    EditRefused,
    NotText,
    NoWorkspace,
    PatchRefused,
    PathRefused,
    WorkspaceError,
    WorkspaceFailed,
    WorkspaceLimit,
)
from cairn.workspace.workspace import Workspace

__all__ = [
    "Change",
    "Changed",
    "EditRefused",
    "GivesWorkspaces",
    "NoWorkspace",
    "NotText",
    "PatchRefused",
    "PathRefused",
    "Usage",
    "Workspace",
    "WorkspaceError",
    "WorkspaceFailed",
    "WorkspaceLimit",
    "WorkspaceLimits",
    "Workspaces",
    "workspaces",
]
