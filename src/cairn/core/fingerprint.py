"""Which version of an agent works on a run: a short hash for each of its parts.

The parts are `agent` (options that decide), `prompt`, `model`, `policy`, `ladder`, `code` (the
source of tools and checks, and Cairn's own version), `hooks` (their source and options), `skills`
(the content of their folders) and one for each tool, written as `contract.handling`: the first
half changes with parameters, effect and recovery, the second with everything else that is
declared. So a change names what changed.
"""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import msgspec

from cairn.core.messages import Record

PARTS = ("agent", "prompt", "model", "policy", "ladder", "code", "hooks", "skills")
DIGITS = 12
"""Length of a hash: enough to tell versions of one agent apart, short enough to be read."""


class Fingerprint(Record):
    """The hashes of an agent's parts; those of tools stand behind their names, sorted.

    `unread` names functions whose source could not be read.
    """

    agent: str = ""
    prompt: str = ""
    model: str = ""
    policy: str = ""
    ladder: str = ""
    code: str = ""
    hooks: str = ""
    skills: str = ""
    tools: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()


class PartChange(Record):
    """One part that is not what it was; an empty hash means that it is not known or not there."""

    part: str
    before: str = ""
    after: str = ""


def changes_between(before: Fingerprint | None, after: Fingerprint) -> tuple[PartChange, ...]:
    """The parts in which two fingerprints differ; all of them when nothing is known of before."""
    one, other = _flat(before or Fingerprint()), _flat(after)
    return tuple(
        PartChange(part=part, before=one.get(part, ""), after=other.get(part, ""))
        for part in dict.fromkeys((*one, *other))
        if one.get(part, "") != other.get(part, "")
    )


def changed(
    before: Fingerprint | None, changes: tuple[PartChange, ...], unread: tuple[str, ...]
) -> Fingerprint:
    """The fingerprint after these changes."""
    parts = _flat(before or Fingerprint())
    parts.update({change.part: change.after for change in changes})
    return Fingerprint(
        **{part: parts.get(part, "") for part in PARTS},
        tools=tuple(sorted(f"{tool_of(p)} {h}" for p, h in parts.items() if tool_of(p) and h)),
        unread=unread,
    )


def contract_changed(changes: tuple[PartChange, ...], tool: str) -> bool:
    """Whether what a person or a model was shown of a tool no longer holds, or the tool is gone."""
    found = next((c for c in changes if tool_of(c.part) == tool), None)
    if found is None or not found.before:
        return False
    return found.before.partition(".")[0] != found.after.partition(".")[0]


def tool_of(part: str) -> str:
    """`refund` for the part `tool refund`; empty for any other part."""
    kind, _, name = part.partition(" ")
    return name if kind == "tool" else ""


def digest(value: Any) -> str:
    """The hash of a part: of text as it is, of anything else as sorted JSON."""
    data = value.encode("utf-8", "replace") if isinstance(value, str) else _json(value)
    return sha256(data).hexdigest()[:DIGITS]


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted", enc_hook=repr)


def _flat(fingerprint: Fingerprint) -> dict[str, str]:
    parts = {part: getattr(fingerprint, part) for part in PARTS}
    for each in fingerprint.tools:
        name, _, found = each.partition(" ")
        parts[f"tool {name}"] = found
    return parts
