"""What people decide about conversations as a whole."""

from __future__ import annotations

from cairn.core.events.form import Event


class SessionTitled(Event):
    """A person gave a session another title; an empty one gives it back its first words."""

    TYPE = 240
    NAME = "session.titled"
    session: str
    title: str


class SessionRewound(Event):
    """A session goes on from an earlier run; the later ones stay, and are superseded."""

    TYPE = 241
    NAME = "session.rewound"
    session: str
    run: str
    newest: str
    """Its newest run then: this one and all before it, but for what `run` goes on from."""


class SessionForked(Event):
    """A new session goes on from a run of another one."""

    TYPE = 242
    NAME = "session.forked"
    session: str
    run: str
    of: str
    """The session that the run is of."""


class SessionRemoved(Event):
    """The last run of sessions was removed, and what was said of them went with it.

    It names none of them: what a session is called may say whose it was.
    """

    TYPE = 243
    NAME = "session.removed"
    notes: tuple[int, ...]
    """Which events of the journal `store` hold no data any more: titles, rewinds and forks."""
