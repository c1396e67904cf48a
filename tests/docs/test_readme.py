"""README.md and its translation say what the code says."""

import re
from pathlib import Path

import msgspec
import pytest

from cairn.cli.exits import OF_STATUS, USAGE
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits

ROOT = Path(__file__).resolve().parents[2]
READMES = ("README.md", "README.zh-CN.md")
EXAMPLE = re.compile(r"```python\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", READMES)
def test_the_first_example_is_the_file_under_examples(name: str) -> None:
    (block,) = EXAMPLE.findall((ROOT / name).read_text(encoding="utf-8"))
    source = (ROOT / "examples" / "shop" / "shop.py").read_text(encoding="utf-8")
    assert source.partition('"""\n\n')[2] == block


@pytest.mark.parametrize("name", READMES)
def test_every_limit_stands_in_the_readme_with_its_default(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for field in msgspec.structs.fields(Limits):
        found = re.search(rf"`{field.name}` \| ([\d,]+)", text)
        assert found, f"{field.name} is missing"
        assert int(found[1].replace(",", "")) == field.default


@pytest.mark.parametrize("name", READMES)
def test_every_status_stands_in_the_readme_with_its_exit_code(name: str) -> None:
    text = (ROOT / name).read_text(encoding="utf-8")
    for status in Status:
        (row,) = [
            line
            for line in text.splitlines()
            if line.startswith("|") and f"`{status.value}`" in line.split("|")[1]
        ]
        code = row.split("|")[-2].strip()
        assert code == str(OF_STATUS.get(status.value, "")), row
    assert f"Exit code {USAGE}" in text or f"退出码 {USAGE}" in text


def test_both_readmes_tell_the_same_in_the_same_order() -> None:
    counts = []
    for name in READMES:
        text = (ROOT / name).read_text(encoding="utf-8")
        lines = text.splitlines()
        heads = sum(line.startswith("## ") for line in lines)
        rows = sum(line.startswith("|") for line in lines)
        counts.append((heads, rows, sorted(set(re.findall(r"\]\((?!README)([^)]+)\)", text)))))
    english, chinese = counts
    assert english[:2] == chinese[:2]
    assert set(english[2]) <= set(chinese[2])
