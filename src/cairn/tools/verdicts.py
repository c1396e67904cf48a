"""What a probe may answer about a call whose outcome is unknown: did its effect happen."""

from __future__ import annotations

from typing import Any, Final

from cairn.core.messages import Record


class Happened(Record, gc=True):
    """The effect happened; `result` is what the call would have returned."""

    result: Any = None


class NotHappened(Record):
    """The effect certainly did not happen."""


class Unknown(Record):
    """The probe could not tell; a person is asked."""


Verdict = Happened | NotHappened | Unknown
NOT_HAPPENED: Final = NotHappened()
UNKNOWN: Final = Unknown()


def happened(result: object = None) -> Happened:
    """The probe found the effect; `result` stands for what the tool would have returned."""
    return Happened(result=result)


def verdict_of(answer: object) -> Verdict:
    """A probe's answer as a verdict. Anything that is none means: it could not tell."""
    return answer if isinstance(answer, Happened | NotHappened | Unknown) else UNKNOWN
