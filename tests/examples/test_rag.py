"""The question example: traced steps, citations that lead back, and no way to write."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn import Agent, Runtime, Scripted, call

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "examples"


@pytest.fixture
def rag(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(EXAMPLES / "tickets"))
    yield importlib.import_module("rag_tickets")
    for module in ("rag_tickets", "tools"):
        sys.modules.pop(module, None)


@pytest.mark.parametrize("question", ["Which customers were charged twice?", "三月套餐 重复扣款"])
def test_an_answer_quotes_and_cites_what_was_retrieved(
    rag: Any, tmp_path: Path, question: str
) -> None:
    with rag.open_desk(tmp_path) as rt:
        run = rt.run("librarian", question)
        names = [entry.event.NAME for entry in rt.trace(run.id)]
    assert (run.status, run.steps, run.calls) == ("completed", 3, 2)
    assert names.count("tool.completed") == 2
    assert run.citations
    for cited in run.citations:
        ticket = (
            EXAMPLES / "tickets" / "archive" / f"{cited.source.uri.removeprefix('tickets/')}.md"
        )
        assert cited.source.text in ticket.read_text(encoding="utf-8")
        assert cited.source.text in run.text
        assert f"[{cited.mark}]" in run.text


def test_without_a_hit_the_answer_says_so_and_cites_nothing(rag: Any, tmp_path: Path) -> None:
    with rag.open_desk(tmp_path) as rt:
        run = rt.run("librarian", "parking permit")
    assert (run.text, run.citations) == (rag.NOTHING, ())


def test_a_question_cannot_write(rag: Any, tmp_path: Path) -> None:
    script = [call("write_reply", ticket_id="T-1004", text="Hello"), "It cannot be done."]
    agent = Agent("a", Scripted(script), tools=[rag.write_reply], kind="query")
    with Runtime(tmp_path / "cairn.db", [agent]) as rt:
        run = rt.run("a", "Answer the customer", id="q")
        (rejected,) = [e.event for e in rt.trace("q") if e.event.NAME == "tool.rejected"]
    assert (run.status, run.calls) == ("completed", 0)
    assert rejected.rule == "task kind: query"
