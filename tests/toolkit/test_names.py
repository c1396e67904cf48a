"""What a name of the toolkit means: the tool a model calls by it, whatever was imported before."""

import importlib
import pkgutil
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import cairn.toolkit
from cairn import Agent, McpServer, Scripted
from cairn.tools.tool import Tool

ROOT = Path(__file__).resolve().parents[2]
MODULES = sorted(each.name for each in pkgutil.iter_modules(cairn.toolkit.__path__))
TOOLS = (
    "apply_patch",
    "delete_file",
    "edit_file",
    "http_fetch",
    "list_files",
    "move_file",
    "python",
    "read_file",
    "search_files",
    "shell",
    "write_file",
)
LOOK = """
import importlib, sys
for name in sys.argv[1].split(","):
    importlib.import_module("cairn.toolkit." + name)
import cairn.toolkit as toolkit
from cairn.tools.tool import Tool
for name in sys.argv[2].split(","):
    each = getattr(toolkit, name)
    assert isinstance(each, Tool) and each.name == name, (name, each)
print("same")
"""


@pytest.mark.parametrize("name", TOOLS)
def test_each_tool_is_imported_by_the_name_a_model_calls_it_by(name: str) -> None:
    found = getattr(importlib.import_module("cairn.toolkit"), name)
    assert isinstance(found, Tool)
    assert found.name == name


def test_every_public_name_is_there_and_every_tool_is_public() -> None:
    for name in cairn.toolkit.__all__:
        assert getattr(cairn.toolkit, name) is not None
    made = {
        name for name in cairn.toolkit.__all__ if isinstance(getattr(cairn.toolkit, name), Tool)
    }
    assert set(TOOLS) <= made
    assert {each.name for each in cairn.toolkit.FILE_TOOLS} < made
    assert set(cairn.toolkit.__all__) <= set(dir(cairn.toolkit))
    with pytest.raises(AttributeError, match="no attribute 'curl'"):
        _ = cairn.toolkit.curl


def test_no_module_has_the_name_of_something_that_is_imported_from_the_room() -> None:
    assert not set(MODULES) & set(cairn.toolkit.__all__)


@pytest.mark.parametrize("order", [MODULES, MODULES[::-1]])
def test_what_was_imported_before_changes_no_name(order: list[str]) -> None:
    plain = [name for name in order if name != "search_child"]  # a program, not a module
    done = subprocess.run(
        [sys.executable, "-c", LOOK, ",".join(plain), ",".join(TOOLS)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.stdout == "same\n", done.stderr


@pytest.mark.parametrize("page", ["README.md", "README.zh-CN.md"])
def test_what_the_readme_says_of_the_toolkit_can_be_typed(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    imported = re.search(r"`(from cairn\.toolkit import [^`]+)`", text)
    made = re.search(r"`(Agent\([^`]*FILE_TOOLS[^`]*)`", text)
    assert imported is not None
    assert made is not None
    named: dict[str, Any] = {"Agent": Agent, "McpServer": McpServer, "model": Scripted(["done"])}
    exec(imported[1], named)
    agent = eval(made[1], named)
    assert {"read_file", "write_file", "shell", "http_fetch"} <= set(agent.tools)
