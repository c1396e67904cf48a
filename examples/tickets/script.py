"""The model of the ticket desk: a script. It knows nothing and only follows its lines.

Each scene answers one request. Where a model would judge, a scene goes by the messages of the
request: ids come from what the search returned, amounts from what the tools said.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import msgspec

from cairn import Price, Scripted, Usage, call
from cairn.core.messages import CallPart, ResultPart
from cairn.ports import Model, ModelReply, ModelRequest, OnDelta

PRODUCT = "Orrery Billing"
WRONG = re.compile(r"charged twice|two charges|double charge|重复扣款", re.IGNORECASE)
MARK = re.compile(r"\[s(\d+)\] tickets/(T-\d+)")
PLAN = (
    "Search the archive in English and in Chinese",
    "Read the candidates and add up what was charged twice",
    "Reply to the customers who still wait",
)
PRICE = Price(input=1_250_000, output=10_000_000, version="made up for the demo")
USAGE = Usage(input_tokens=1_800, output_tokens=120)
REPLIES = {
    "en": "Hello,\n\nyou were charged {amount} twice for one plan. The second charge was our "
    "mistake, and it will be back on your card within ten days.\n\nOrrery Billing, ticket {id}",
    "zh": "您好：\n\n同一个套餐被重复扣款 {amount}，这是我们的失误。"
    "多扣的一笔将在十天之内退回到您的账户。\n\nOrrery Billing，工单 {id}",
}


def results(request: ModelRequest, tool: str) -> list[str]:
    """What the calls of one tool brought so far, in order."""
    names: dict[str, str] = {}
    found = []
    for message in request.messages:
        for part in message.parts:
            if isinstance(part, CallPart):
                names[part.id] = part.name
            elif isinstance(part, ResultPart) and part.ok and names[part.id] == tool:
                found.append(part.result)
    return found


def fields(ticket: str) -> dict[str, str]:
    """The front matter of a ticket."""
    return dict(re.findall(r"^(\w+): (.+)$", ticket.split("---\n", 2)[1], re.MULTILINE))


def affected(request: ModelRequest) -> list[dict[str, str]]:
    """The tickets that were read and are about a plan that was charged twice."""
    tickets = dict.fromkeys(results(request, "read_ticket"))
    known = [(fields(ticket), ticket) for ticket in tickets]
    return [each for each, text in known if each["product"] == PRODUCT and WRONG.search(text)]


def plan(*states: str) -> Any:
    items = [{"text": text, "status": s} for text, s in zip(PLAN, states, strict=True)]
    return call("update_plan", items=items)


# ---------------------------------------------------------------- the scenes


def search(request: ModelRequest) -> Any:
    return [
        "I look for the double charges in both languages.",
        plan("doing", "open", "open"),
        call("search_tickets", query="charged twice, double charge, one plan", limit=5),
        call("search_tickets", query="重复扣款 同一个套餐 两笔", limit=5),
    ]


def read(request: ModelRequest) -> Any:
    hits = [ticket for _, ticket in MARK.findall("\n".join(results(request, "search_tickets")))]
    return [call("read_ticket", ticket_id=ticket) for ticket in dict.fromkeys(hits)]


def add_up(request: ModelRequest) -> Any:
    ids = [ticket["id"] for ticket in affected(request)]
    return [plan("done", "doing", "open"), call("sum_amounts", ids=ids)]


def reply(request: ModelRequest) -> Any:
    waiting = [ticket for ticket in affected(request) if ticket["status"] == "open"]
    letters = [
        call("write_reply", ticket_id=t["id"], text=REPLIES[t["language"]].format_map(t))
        for t in waiting
    ]
    return [plan("done", "done", "doing"), *letters]


def conclude(request: ModelRequest) -> Any:
    marks: dict[str, str] = {}
    for number, ticket in MARK.findall("\n".join(results(request, "search_tickets"))):
        marks.setdefault(ticket, f"[s{number}]")
    lines = [
        f"- {t['id']} {t['company']}: {t['amount']}, {t['status']} {marks[t['id']]}"
        for t in affected(request)
    ]
    totals = msgspec.json.decode(results(request, "sum_amounts")[-1])
    total = " and ".join(f"{amount} {currency}" for currency, amount in totals.items())
    sent = len(results(request, "write_reply"))
    return "\n".join(
        [
            f"{len(lines)} tickets report a plan of {PRODUCT} that was charged twice:",
            *lines,
            f"To be paid back: {total}. Customers answered now: {sent}.",
        ]
    )


SCENES: tuple[Callable[[ModelRequest], Any], ...] = (search, read, add_up, reply, conclude)


def scripted(heard: Callable[[int], None]) -> Scripted:
    """The script as a model; `heard` is told of every request, so that they can be counted."""

    def answer(request: ModelRequest) -> Any:
        heard(request.turn)
        return SCENES[request.turn](request)

    return Scripted(answer, name="script", usage=USAGE, price=PRICE)


class Overheard:
    """A real model in place of the script, whose requests are counted in the same way."""

    def __init__(self, model: Model, heard: Callable[[int], None]) -> None:
        self._model = model
        self._heard = heard

    def __getattr__(self, name: str) -> Any:
        return getattr(self._model, name)

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """Pass the request on."""
        self._heard(request.turn)
        return await self._model.request(request, on_delta)
