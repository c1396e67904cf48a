"""The ticket desk: its archive, its search, its tools, and the demo from end to end."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn import Context, ToolError
from cairn.tools.verdicts import Happened, NotHappened

ROOT = Path(__file__).resolve().parents[2]
TICKETS = ROOT / "examples" / "tickets"
FIELDS = ["id", "date", "company", "product", "status", "amount", "language"]


@pytest.fixture
def tools(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(TICKETS))
    yield importlib.import_module("tools")
    for module in ("tools", "script"):
        sys.modules.pop(module, None)


@pytest.fixture
def desk(tools: Any, tmp_path: Path) -> Any:
    return tools.Desk(
        archive=TICKETS / "archive", outbox=tmp_path / "outbox", log=tmp_path / "log.jsonl"
    )


def texts() -> dict[str, str]:
    return {p.stem: p.read_text(encoding="utf-8") for p in (TICKETS / "archive").glob("*.md")}


def test_the_archive_is_whole_and_in_two_languages(tools: Any) -> None:
    heads = {name: tools.front_matter(text) for name, text in texts().items()}
    assert len(heads) == 30
    assert all(list(head) == FIELDS and head["id"] == name for name, head in heads.items())
    assert sum(head["language"] == "zh" for head in heads.values()) in range(13, 18)
    assert all(re.fullmatch(r"\d+\.\d\d (USD|CNY)", head["amount"]) for head in heads.values())


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("charged twice, double charge", {"T-1019", "T-1004"}),
        ("重复扣款", {"T-1007", "T-1016"}),
        ("发票抬头", {"T-1009"}),
        ("DELETED FOLDERS", {"T-1025"}),
    ],
)
def test_search_finds_english_and_chinese(tools: Any, query: str, first: set[str]) -> None:
    ranked = [name for _, name in tools.rank(query, texts())]
    assert set(ranked[: len(first)]) == first


@pytest.mark.parametrize("query", ["", "?!", "parking permit", "the and of", "停车证"])
def test_search_finds_nothing_where_there_is_nothing(tools: Any, query: str) -> None:
    assert tools.rank(query, texts()) == []


def test_a_source_names_the_lines_its_passage_stands_on(tools: Any, desk: Any) -> None:
    found = tools.search_tickets("重复扣款", Context(deps=desk), limit=3)
    assert [source.score for source in found] == sorted((s.score for s in found), reverse=True)
    for source in found:
        first, _, last = source.span.partition("-")
        lines = texts()[source.uri.removeprefix("tickets/")].splitlines()
        assert "\n".join(lines[int(first) - 1 : int(last or first)]) == source.text


def test_amounts_are_added_by_currency_and_each_ticket_counts_once(tools: Any, desk: Any) -> None:
    ids = ["T-1004", "T-1007", "T-1004", "T-1011"]
    totals = tools.sum_amounts(ids, Context(deps=desk))
    assert totals == {"CNY": "899.00", "USD": "193.50"}


@pytest.mark.parametrize("ticket", ["T-9999", "../app", "T-1004.md", ""])
def test_an_unknown_ticket_is_a_known_failure(tools: Any, desk: Any, ticket: str) -> None:
    with pytest.raises(ToolError, match="no ticket"):
        tools.read_ticket(ticket, Context(deps=desk))


def test_the_probe_knows_this_call_and_no_other(tools: Any, desk: Any) -> None:
    mine, other = Context(deps=desk, key="k1"), Context(deps=desk, key="k2")
    assert isinstance(tools.reply_was_written(mine), NotHappened)
    tools.write_reply("T-1004", "Hello", mine)
    assert isinstance(tools.reply_was_written(mine), Happened)
    assert isinstance(tools.reply_was_written(other), NotHappened)
    assert [path.name for path in desk.outbox.iterdir()] == ["T-1004.md"]


# ---------------------------------------------------------------- the demo


def demo(*args: str, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TICKETS / "demo.py"), *args],
        env={**os.environ, **env},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("way", ["argument", "variable"])
def test_a_real_model_is_refused_and_said_so(tmp_path: Path, way: str) -> None:
    name = "nobody:model-1"
    done = demo(name) if way == "argument" else demo(MODEL=name, TICKETS_HOME=str(tmp_path))
    assert done.returncode == 2
    assert "there is no provider 'nobody'" in done.stdout
    assert "not part of this version" in done.stdout
    assert not list(tmp_path.iterdir())


@pytest.mark.kill
@pytest.mark.timeout(90)
def test_the_demo_survives_two_kills_and_every_check_holds(tmp_path: Path) -> None:
    done = demo(TICKETS_HOME=str(tmp_path / "home"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT SO" not in done.stdout
    checks = re.search(r"(\d+) of (\d+) checks hold \(", done.stdout)
    assert checks
    assert checks[1] == checks[2]
    assert done.stdout.count("SIGKILL process") == 2
    assert "\x1b[" not in done.stdout
    replies = sorted(path.name for path in (tmp_path / "home" / "outbox").glob("T-*.md"))
    assert replies == ["T-1004.md", "T-1007.md"]
