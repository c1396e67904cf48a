"""The names that routing gives to conversations and to whom a shared one works for: nobody else's.

Whoever could begin a conversation under such a name by hand would have it before the one for whom
it is, who would never get in; and a person called like a shared one would read what all said there.
"""

from __future__ import annotations

import re

from cairn.core.erasing import SHARED
from cairn.core.messages import Principal
from cairn.errors import ConfigError

_PART = "[^/]*"
_PLACES = (
    f"principal/{_PART}/{_PART}"
    f"|(channel|key)/{_PART}/{_PART}/{_PART}"
    f"|thread/{_PART}/{_PART}/{_PART}/{_PART}"
)
_ROUTED = re.compile(f"[^/]+/({_PLACES})(/project={_PART})?")


def is_routed(session: str) -> bool:
    """Whether a session is called as routing calls one: agent, scope, tenant and so on."""
    return _ROUTED.fullmatch(session) is not None


def check_begun(session: str, field: str = "session") -> None:
    """Refuse a name for a new session that only routing gives.

    Raises:
        ConfigError: it has the form of one.
    """
    if is_routed(session):
        problem = f"{session!r} is called as only routing calls a conversation that it begins"
        raise ConfigError(field, problem, "Take another name, or send the message by rt.receive")


def check_person(who: Principal) -> Principal:
    """The principal, if it is none of those for whom shared conversations work.

    Raises:
        ConfigError: it is called like one.
    """
    if who.id.startswith(SHARED):
        problem = f"{who.id!r} is called like the principal of a shared conversation"
        raise ConfigError("principal", problem, "Write there by rt.receive, as the one who sends")
    return who
