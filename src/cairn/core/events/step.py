"""Tasks of the deployer's own code: steps that ask no model."""

from __future__ import annotations

import msgspec

from cairn.core.events.form import EMPTY, Disposition, Event, Recovery
from cairn.errors import ErrorClass


class StepStarted(Event):
    """A task of the deployer's own code is about to run."""

    TYPE = 20
    NAME = "step.started"
    name: str
    recovery: Recovery = "repeat"
    attempt: int = 1


class StepCompleted(Event):
    """The task returned."""

    TYPE = 21
    NAME = "step.completed"
    output: msgspec.Raw = EMPTY
    duration_us: int = 0


class StepFailed(Event):
    """The task raised, or refused what it was shown; `message` says what was wrong."""

    TYPE = 22
    NAME = "step.failed"
    error_class: ErrorClass
    message: str
    disposition: Disposition = "repair"
    duration_us: int = 0


class StepLost(Event):
    """The process died inside the task."""

    TYPE = 23
    NAME = "step.lost"
