"""The pages of the docs: generated parts are fresh, links lead somewhere, claims hold."""

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.store.inmemory import InMemoryStore

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
LINK = re.compile(r"(?<!!)\[[^\]]+\]\(([^)\s]+)\)")
PAGES = [*sorted(ROOT.glob("README*.md")), *sorted(DOCS.rglob("*.md"))]


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    text = re.sub(r"```.*?```", "", page.read_text(encoding="utf-8"), flags=re.DOTALL)
    heads = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


def test_generated_parts_are_fresh() -> None:
    done = subprocess.run(
        [sys.executable, str(DOCS / "generate.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr


def test_a_stale_page_is_noticed(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path; sys.path.insert(0, sys.argv[1]); import generate;"
        "generate.rendered = lambda: {generate.ROOT / 'docs' / 'events.md': 'something else'};"
        "sys.exit(generate.main(['--check']))"
    )
    argv = [sys.executable, "-c", code, str(DOCS)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1
    assert "docs/events.md" in done.stderr


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_every_link_leads_somewhere(page: Path) -> None:
    for target in LINK.findall(page.read_text(encoding="utf-8")):
        assert "://" not in target, f"{target}: the docs need no other place"
        path, _, anchor = target.partition("#")
        there = page.parent / path if path else page
        assert there.exists(), target
        assert not anchor or anchor in anchors(there), target


def test_every_page_can_be_reached_from_the_readme() -> None:
    reached: set[Path] = set()
    waiting = [ROOT / "README.md", ROOT / "README.zh-CN.md"]
    while waiting:
        page = waiting.pop()
        if page in reached or page.suffix != ".md":
            continue
        reached.add(page)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            there = (page.parent / target.partition("#")[0]).resolve()
            waiting += sorted(there.glob("*.md")) if there.is_dir() else [there]
    assert set(PAGES) <= reached


def test_decisions_say_context_decision_what_was_refused_and_what_would_change_it() -> None:
    for page in (DOCS / "decisions").glob("*.md"):
        text = page.read_text(encoding="utf-8")
        assert re.match(r"0*(\d+)", page.name)[1] == re.match(r"# (\d+)\. ", text)[1]  # type: ignore[index] # - a page without a number fails here
        for part in ("Context", "Decision", "Refused", "What would change our mind"):
            assert f"**{part}" in text, f"{page.name} lacks {part}"


def test_every_missed_target_is_marked_and_every_figure_is_shown() -> None:
    newest = max((DOCS / "figures").glob("*.json"))
    rows = json.loads(newest.read_text(encoding="utf-8"))["rows"]
    told = (DOCS / "performance.md").read_text(encoding="utf-8")
    assert told.count("| **not met**, by ") == sum(row["met"] is False for row in rows)
    assert all(f"| {row['what']} |" in told for row in rows)
    assert f"Taken on {newest.stem}:" in told


# ---------------------------------------------------------------- what the pages promise


class Counting(InMemoryStore):
    """Counts the writes that carry something."""

    commits = 0

    async def append(self, run: str, epoch: int, entries: Any, *args: Any, **more: Any) -> None:
        self.commits += bool(entries)
        await super().append(run, epoch, entries, *args, **more)


@tool(effect="write")
async def note(n: int) -> str:
    """Note a number."""
    return f"noted {n}"


def commits_of(script: list[Any]) -> int:
    store = Counting()
    agent = Agent("a", Scripted(script), tools=[note])

    async def go() -> None:
        async with Runtime(store, [agent], policy=Policy(effects={"write": "allow"})) as rt:
            assert (await rt.run_async("a", "x")).ok

    asyncio.run(go())
    return store.commits


@pytest.mark.parametrize("calls", [1, 2, 5])
def test_a_turn_waits_for_at_most_one_commit_more_than_it_has_calls(calls: int) -> None:
    """As durability.md has it: two commits for one call, at most 1 + k for k."""
    turn = [call("note", n=n) for n in range(calls)]
    cost = commits_of([turn, "done"]) - commits_of(["done"])
    assert cost <= 1 + calls
    assert calls > 1 or cost == 2


def test_the_page_of_the_command_line_has_a_section_for_every_command_of_every_group() -> None:
    from typer.main import get_group

    from cairn.cli.entry import app

    def named(group: Any, *before: str) -> set[str]:
        found = set()
        for word, command in group.commands.items():
            found.add(" ".join((*before, word)))
            if hasattr(command, "commands"):
                found |= named(command, *before, word)
        return found

    page = (DOCS / "cli.md").read_text(encoding="utf-8")
    shown = set(re.findall(r"^## `cairn ([\w -]+)`$", page, re.MULTILINE))
    assert shown == named(get_group(app))
    assert {"grants add", "policy explain", "mcp serve"} <= shown
