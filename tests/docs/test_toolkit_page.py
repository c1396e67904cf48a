"""docs/toolkit.md and docs/reference.md tell of every public name that is not in `cairn` itself."""

import importlib
import re
from pathlib import Path

import pytest

from cairn import toolkit
from cairn.tools.tool import Tool

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROOMS = ("cairn.core.policy", "cairn.workspace", "cairn.sandbox", "cairn.toolkit")
TOOLS = [name for name in toolkit.__all__ if isinstance(getattr(toolkit, name), Tool)]


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_stands_on_the_page_with_its_effect_and_every_parameter(name: str) -> None:
    text = (DOCS / "toolkit.md").read_text(encoding="utf-8")
    spec, schema = getattr(toolkit, name).spec, getattr(toolkit, name).schema
    (row,) = re.findall(rf"^\| \[`{name}`\]\(#{name}\) \| (\w+) \| `(\w+)`", text, re.MULTILINE)
    assert row == (spec.effect, spec.recovery)
    (part,) = re.findall(rf"^### {name}\n(.*?)(?=^##|^<!-- end)", text, re.MULTILINE | re.DOTALL)
    told = re.findall(r"^\| `(\w+)` \| ", part, re.MULTILINE)
    assert told == list(schema.parameters["properties"])
    assert schema.description.split("\n")[0] in part


@pytest.mark.parametrize("room", ROOMS)
def test_every_public_name_of_a_room_stands_in_the_reference_with_words(room: str) -> None:
    text = (DOCS / "reference.md").read_text(encoding="utf-8")
    module = importlib.import_module(room)
    for name in module.__all__:
        found = re.search(rf"^### `{name}`\n\n(.+)", text, re.MULTILINE)
        assert found, f"{room}.{name} is missing"
        assert not found[1].startswith("#"), f"{room}.{name} has no words"
