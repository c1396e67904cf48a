"""Folds for people: `timeline` is a run as steps, attempts and calls, `changes` its moves.

Every event of the journal is somewhere in a timeline: in the attempt, call or approval it
belongs to, or as a note of the step it fell into. Kinds of event that nobody tells of in
particular become notes, so nothing is ever lost from sight.
"""

from __future__ import annotations

from cairn.core.views.context import Line, Manifest, manifest
from cairn.core.views.runs import changes, timeline
from cairn.core.views.shapes import (
    Approval,
    CallAttempt,
    CallView,
    Change,
    Edit,
    Fault,
    ModelAttempt,
    Note,
    Question,
    Redirection,
    RunView,
    Settlement,
    StepView,
    TaskAttempt,
    Totals,
)

__all__ = [
    "Approval",
    "CallAttempt",
    "CallView",
    "Change",
    "Edit",
    "Fault",
    "Line",
    "Manifest",
    "ModelAttempt",
    "Note",
    "Question",
    "Redirection",
    "RunView",
    "Settlement",
    "StepView",
    "TaskAttempt",
    "Totals",
    "changes",
    "manifest",
    "timeline",
]
