"""`cairn skills`: what agents have, and what is wrong in folders."""

import json
import sys
from pathlib import Path

import pytest
from tests.skills.test_form import GOOD, skill
from typer.testing import CliRunner

from cairn.cli.entry import app

APP = """
from cairn import Agent, Runtime, Scripted
rt = Runtime(":memory:", [
    Agent("clerk", Scripted(["done"]), skills=["skills"]), Agent("plain", Scripted(["done"]))
])
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    skill(tmp_path / "skills", "forms", GOOD.replace("---\n\n", "model: x\n---\n"))
    (tmp_path / "skilled_shop.py").write_text(APP)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    monkeypatch.delitem(sys.modules, "skilled_shop", raising=False)
    return tmp_path


def cairn(*words: str, ends: int = 0) -> str:
    found = CliRunner().invoke(app, list(words))
    assert found.exit_code == ends, found.output
    return found.output


def test_check_says_what_is_fine_and_which_fields_are_foreign(folder: Path) -> None:
    assert cairn("skills", "check") == ("forms: fine (fields that are not of the form: model)\n")


def test_check_says_all_that_is_wrong_and_fails(folder: Path) -> None:
    skill(folder / "skills", "Bad")
    skill(folder / "skills", "worse", "no\n")
    said = cairn("skills", "check", ends=1)
    assert said.count("SKILL.md:") == 2
    (one, two) = cairn("skills", "check", "skills", "--json", ends=1).splitlines()
    assert {json.loads(one)["line"], json.loads(two)["line"]} == {1, 2}


def test_list_shows_the_skills_of_agents_and_of_folders(folder: Path) -> None:
    shown = cairn("skills", "list", "--app", "skilled_shop:rt")
    assert "clerk" in shown
    assert "forms" in shown
    one = json.loads(cairn("skills", "list", "--app", "skilled_shop:rt", "--json"))
    other = json.loads(cairn("skills", "list", "skills", "--json"))
    assert one == {"agent": "clerk", **other}
    assert other["name"] == "forms"
    assert other["unknown_fields"] == ["model"]
    assert "agent plain has no skills" in cairn(
        "skills", "list", "--agent", "plain", "--app", "skilled_shop:rt"
    )
