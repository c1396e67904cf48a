"""Whatever is written goes through redaction: every call of a store that writes is known here."""

import ast
from pathlib import Path

SRC = Path(__file__).resolve().parents[2] / "src" / "cairn"
WRITES = {"append", "submit", "create", "keep"}
STORES = {"store", "_store"}
KNOWN = {
    ("engine/advance.py", "append"): "gives a claim back, without events",
    ("engine/branch.py", "create"): "its edits were redacted by Client.fork",
    ("engine/calls.py", "submit"): "late outcomes, redacted where they landed",
    ("engine/client.py", "create"): "the task was redacted by Client.start",
    ("engine/client.py", "submit"): "redacts the command",
    ("engine/granting.py", "keep"): "the grant was redacted by Runtime.grant",
    ("engine/journal.py", "append"): "redacts what is recorded and decided",
    (
        "engine/sessions.py",
        "keep",
    ): "a title with a secret is refused; the rest is names",
    ("engine/turns.py", "append"): "says again what stands in the journal of the run before",
}
"""A new way to write must redact first; then it gets its line, and a place in the tests beside."""


def test_every_way_to_write_is_one_that_redacts() -> None:
    found = set()
    for path in sorted(SRC.rglob("*.py")):
        place = path.relative_to(SRC).as_posix()
        if place.startswith(("store/", "testing/")):
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not isinstance(node, ast.Call) or not isinstance(node.func, ast.Attribute):
                continue
            of = node.func.value
            name = of.attr if isinstance(of, ast.Attribute) else getattr(of, "id", "")
            if node.func.attr in WRITES and name in STORES:
                found.add((place, node.func.attr))
    assert found == set(KNOWN)
