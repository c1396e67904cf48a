"""Questions to the ticket archive: retrieve, rerank, answer with citations, each step traced.

    python examples/rag_tickets.py                 four questions
    python examples/rag_tickets.py "发票 抬头"      your own

Every question is a run of kind `query`: it is offered read tools only, and a call of any other
is denied at the gate. The model is a script; it quotes the best passages and adds nothing.
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path
from typing import Any

from cairn import Agent, Context, Run, Runtime, Scripted, call, tool
from cairn.core.messages import ResultPart, calls_of, text_of
from cairn.ports import ModelRequest

sys.path.insert(0, str(Path(__file__).parent / "tickets"))
from tools import Desk, passages, rank, search_tickets, write_reply

QUESTIONS = (
    "Which customers were charged twice?",
    "三月套餐 重复扣款",
    "deleted folder comes back",
    "parking permit",
)
HIT = re.compile(r"^\[s(\d+)\] (tickets/T-\d+)#([\d-]+)$", re.MULTILINE)
NOTHING = "The archive says nothing about this."


@tool(effect="read")
def rerank(query: str, spans: list[str], ctx: Context[Desk]) -> list[str]:
    """Order passages by how much of the question each one answers, best first.

    Args:
        query: The question.
        spans: Passages as `tickets/T-1001#12`.
    """
    texts = {}
    for span in spans:
        ticket, _, lines = span.removeprefix("tickets/").partition("#")
        texts[span] = dict(passages(ctx.deps.ticket(ticket)))[lines]
    scored = rank(query, texts)
    best = scored[0][0] if scored else 0.0
    return [span for score, span in scored if score >= best / 2][:3]


# ---------------------------------------------------------------- the script


def result(request: ModelRequest) -> str:
    part = request.messages[-1].parts[-1]
    return part.result if isinstance(part, ResultPart) else ""


def question(request: ModelRequest) -> str:
    return text_of(request.messages[0].parts)


def retrieve(request: ModelRequest) -> Any:
    return call("search_tickets", query=question(request), limit=8)


def narrow(request: ModelRequest) -> Any:
    hits = [f"{uri}#{span}" for _, uri, span in HIT.findall(result(request))]
    return call("rerank", query=question(request), spans=hits) if hits else NOTHING


def answer(request: ModelRequest) -> Any:
    found = text_of_results(request)
    marks = {f"{uri}#{span}": f"[s{n}]" for n, uri, span in HIT.findall(found)}
    lines = []
    for span in re.findall(r'"([^"]+)"', result(request)):
        quoted = found.partition(f" {span}\n")[2].partition("\n\n")[0]
        lines.append(f"- {quoted} {marks[span]}")
    return "\n".join(lines) or NOTHING


def text_of_results(request: ModelRequest) -> str:
    parts = (part for message in request.messages for part in message.parts)
    return "\n\n".join(part.result for part in parts if isinstance(part, ResultPart))


# ---------------------------------------------------------------- asking


def open_desk(home: Path) -> Runtime:
    """A runtime with one agent that answers questions, and a store in `home`."""
    desk = Desk(
        archive=Path(__file__).parent / "tickets" / "archive",
        outbox=home / "outbox",
        log=home / "effects.jsonl",
    )
    librarian = Agent(
        "librarian",
        Scripted([retrieve, narrow, answer], name="script"),
        instructions="Answer from the archive only, and cite every passage as [s1].",
        tools=[search_tickets, rerank, write_reply],
        kind="query",
    )
    return Runtime(home / "cairn.db", agents=[librarian], deps=desk)


def show(rt: Runtime, run: Run) -> None:
    """Print the steps of a run and its answer with what it cites."""
    print(f"{run.id}: {run.status}, {run.steps} steps")
    names: dict[str, str] = {}
    for entry in rt.trace(run.id):
        event = entry.event
        if event.NAME == "model.completed":
            names.update({each.id: each.name for each in calls_of(event.parts)})
        elif event.NAME == "tool.completed":
            took = f"{event.duration_us / 1000:.1f} ms"
            print(
                f"   step {entry.step}: {names[event.call]}, {len(event.sources)} sources, {took}"
            )
    print(run.text)
    for cited in run.citations:
        source = cited.source
        print(f"   [{cited.mark}] {source.uri} line {source.span}, version {source.version}")


def main(questions: tuple[str, ...]) -> None:
    with tempfile.TemporaryDirectory() as folder, open_desk(Path(folder)) as rt:
        for number, text in enumerate(questions, 1):
            print(f"\n== {text}")
            show(rt, rt.run("librarian", text, id=f"question-{number}"))


if __name__ == "__main__":
    main(tuple(sys.argv[1:]) or QUESTIONS)
