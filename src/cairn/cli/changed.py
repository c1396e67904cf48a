"""What a command that changes something says it has done: a line, or one small JSON object."""

from __future__ import annotations

from typing import Any

from cairn.cli.plain import json_line
from cairn.cli.say import print_line, write


def tell(json: bool, did: str, id: str, said: str, *, changed: bool = True, **more: Any) -> None:
    """Say what was done.

    Args:
        json: Whether as JSON.
        did: What, in a word or two: `approved`.
        id: To what: a request, a call, a run, a session, a fact, a principal, a file.
        said: The line for people.
        changed: False where it was so before, and for a dry run.
        more: What else the object holds.
    """
    if json:
        write(json_line({"did": did, "id": id, "changed": changed, "said": said, **more}))
    else:
        print_line(said)
