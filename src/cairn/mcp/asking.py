"""A server that asks something during a call: declined and noted, or answered by the operator.

A call at work cannot wait for a person: its time runs, and a person may take days. So a question
is declined at once, and the model is told what was asked: it can ask with `ask_user`, which waits
durably, and call again with the answer.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

import msgspec

from cairn.core.messages import Record
from cairn.core.takers import check_taker
from cairn.errors import ConfigError, safe_repr
from cairn.tools.blocking import called
from cairn.tools.text import shorten

log = logging.getLogger("cairn")

MAX_NOTES = 8
QUESTION_CHARS = 400


class Elicitation(Record, gc=True):
    """What a server wants to know of a person.

    Args:
        server: Its name.
        message: The question, in the server's words.
        schema: JSON Schema of the answer; empty when a page is to be opened.
        url: The page to be opened, empty for a form.
        calls: The calls that are at work there, as `run/c4`: one of them is meant.
    """

    server: str
    message: str
    schema: dict[str, Any] = {}
    url: str = ""
    calls: tuple[str, ...] = ()


Answers = Mapping[str, Any]
OnElicit = Callable[[Elicitation], "Answers | Awaitable[Answers | None] | None"]
"""The operator's own way to answer: what is given for the form, or None to decline."""


def answering(field: str, on_elicit: object) -> OnElicit | None:
    """The operator's function itself, if it is one that can be asked; None for none.

    Raises:
        ConfigError: it cannot be called with an `Elicitation`.
    """
    if on_elicit is None:
        return None
    if not callable(on_elicit):
        fix = "Give a function of an Elicitation"
        raise ConfigError(field, f"{safe_repr(on_elicit)} is no function", fix)
    check_taker(field, on_elicit, "an Elicitation")
    return on_elicit


async def answer(asked: Elicitation, on_elicit: OnElicit | None) -> tuple[str, dict[str, Any]]:
    """The action (accept, decline or cancel) and, when accepted, what is answered."""
    if on_elicit is None:
        return "decline", {}
    try:
        said: Any = await called(f"on_elicit of {asked.server}", on_elicit, asked)
    except Exception as error:  # the operator's own code; the server is told that nobody answers
        log.warning("on_elicit of the MCP server %s failed: %s", asked.server, error)
        return "cancel", {}
    if said is None or said is False:
        return "decline", {}
    given = dict(said) if isinstance(said, Mapping) else {}
    return "accept", {**_defaults(asked.schema), **given}


def _defaults(schema: Mapping[str, Any]) -> dict[str, Any]:
    fields = schema.get("properties")
    if not isinstance(fields, Mapping):
        return {}
    return {
        name: field["default"]
        for name, field in fields.items()
        if isinstance(field, Mapping) and "default" in field
    }


def note(asked: Elicitation, action: str) -> str:
    """What the model and the journal are told of it."""
    what = shorten(" ".join(asked.message.split()), QUESTION_CHARS)
    wants = f" (fields: {_fields(asked.schema)})" if asked.schema else ""
    page = f" (a page to open: {shorten(asked.url, 200)})" if asked.url else ""
    done = {"accept": "it was answered by the operator", "cancel": "the answer failed"}
    said = done.get(
        action,
        "it was declined, as a call at work cannot wait for a person. If the person should "
        "decide, ask them with ask_user and call again with what they say",
    )
    return f"During the call the server asked: {what!r}{wants}{page}; {said}."


def _fields(schema: Mapping[str, Any]) -> str:
    fields = schema.get("properties")
    named = list(fields)[:12] if isinstance(fields, Mapping) else []
    return shorten(msgspec.json.encode(named).decode(), 200)
