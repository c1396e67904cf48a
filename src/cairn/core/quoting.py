"""How words that came from elsewhere go into what the runtime itself tells a model.

A line of the runtime's own (`[runtime] …`) is believed. So no line break of another's text is taken
over into one, or what stands behind the break would be read as a line of the runtime's; and where
content from outside may have had a hand in the text, it is fenced as data.
"""

from __future__ import annotations

from collections.abc import Collection

from cairn.core.fence import fenced

RAISED = "the check {name} failed: "
"""How the record of a check that raised begins (`engine.perform`); what was raised follows."""


def one_line(text: str) -> str:
    """The words of a text on one line, whatever its breaks and blanks are."""
    return " ".join(text.split())


def with_words(lead: str, text: str, taint: Collection[str], seed: str) -> str:
    """What the runtime says, and the words of others behind it.

    Args:
        lead: The runtime's own words, up to a colon.
        text: The words of others, as of a check, a provider or an exception.
        taint: Where content came from that the run has met; with none the words stand in the line.
        seed: Names what brought them, for the fence; the model cannot choose it.
    """
    if not taint:
        return f"{lead} {one_line(text)}"
    return f"{lead}\n{fenced(text, sorted(taint), seed)}"


def of_check(name: str, said: str, taint: Collection[str], seed: str) -> str:
    """What the model is told of a check that did not accept its answer.

    On several lines, and of an exception, its words are fenced in any run: they are as good as a
    tool's result.
    """
    lead = "[runtime] Not accepted yet:"
    if taint or len(said.splitlines()) > 1 or said.startswith(RAISED.format(name=name)):
        return with_words(lead, said, taint or {f"check:{name}"}, seed)
    return f"{lead} {said}"
