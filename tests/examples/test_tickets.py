"""The ticket desk: its archive, its search, its tools, and the demo from end to end."""

import importlib
import os
import re
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.cli.chat_server import ChatServer, Said, forget_providers

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
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("nobody:model-1", "there is no provider 'nobody'"),
        ("openai:gpt-5-mini", "export OPENAI_API_KEY=…"),
        ("compatible:toy", "CAIRN_COMPATIBLE_BASE_URL"),
    ],
)
def test_a_model_that_cannot_be_asked_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, name: str, told: str
) -> None:
    forget_providers(monkeypatch)
    done = demo(name) if way == "argument" else demo(MODEL=name, TICKETS_HOME=str(tmp_path))
    assert done.returncode == 2
    assert told in done.stdout
    assert "`cairn models` says what can be used here" in done.stdout
    assert not list(tmp_path.iterdir())


def clerk(body: dict[str, Any]) -> Said:
    """A model that searches, reads, adds up, asks, answers two customers, and concludes."""
    turn = sum(message["role"] == "assistant" for message in body["messages"])
    scenes = [
        [("search_tickets", {"query": "charged twice"}), ("search_tickets", {"query": "重复扣款"})],
        [("read_ticket", {"ticket_id": "T-1004"}), ("sum_amounts", {"ids": ["T-1004", "T-1007"]})],
        [
            ("ask_user", {"question": "Shall I write to them?"}),
            *(("write_reply", {"ticket_id": t, "text": "Sorry."}) for t in ("T-1004", "T-1007")),
        ],
    ]
    if turn < len(scenes):
        return Said(calls=tuple(scenes[turn]))
    return Said("T-1004 and T-1007 were charged twice [s1].")


def silent(body: dict[str, Any]) -> Said:
    """A model that calls nothing and only talks."""
    return Said("I would rather not.")


@pytest.mark.kill
@pytest.mark.timeout(240)
@pytest.mark.parametrize("model", [clerk, silent])
def test_the_demo_holds_what_it_can_promise_of_any_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: Callable[[dict[str, Any]], Said]
) -> None:
    forget_providers(monkeypatch)
    home = tmp_path / "home"
    with ChatServer(model).running() as server:
        env = {"CAIRN_COMPATIBLE_BASE_URL": server.url, "TICKETS_HOME": str(home)}
        done = demo(MODEL="compatible:toy", **env)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "NOT SO" not in done.stdout
    checks = re.search(r"(\d+) of (\d+) checks hold \(", done.stdout)
    assert checks
    assert checks[1] == checks[2]
    assert done.stdout.count("SIGKILL process") == (2 if model is clerk else 0)
    replies = sorted(path.name for path in home.glob("outbox/T-*.md"))
    assert replies == (["T-1004.md", "T-1007.md"] if model is clerk else [])
    assert "Left out is what only the script can promise" in done.stdout


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
