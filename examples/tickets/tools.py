"""The tools of the ticket desk: search, read, add up, and write a reply.

What they really did is also written to a log of their own. The runtime knows nothing of that
file, so whoever counts its lines counts effects and repeats from outside.
"""

from __future__ import annotations

import json
import math
import os
import re
import time
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from hashlib import sha256
from pathlib import Path
from typing import Any

from cairn import NOT_HAPPENED, Context, Source, ToolError, happened, tool

WORD = re.compile(r"[a-z0-9]+|[\u3400-\u9fff]+")
ENDINGS = ("ing", "ed", "es", "s", "e")
COMMON = frozenset(
    {"a", "an", "and", "are", "at", "for", "from", "has", "have", "in", "is", "it", "of", "on"}
    | {"one", "our", "that", "the", "there", "this", "to", "was", "we", "were", "which", "with"}
)


@dataclass(frozen=True)
class Desk:
    """What the tools work on; they get it as `ctx.deps`.

    Args:
        archive: Folder of the tickets, read only.
        outbox: Folder for replies.
        log: What the tools did, one JSON object a line.
        pace_s: How long the slow parts take; the demo needs a middle to be killed in.
    """

    archive: Path
    outbox: Path
    log: Path
    pace_s: float = 0.0

    def note(self, did: str, **more: str) -> None:
        """Add one line to the log; a line is there whole or not at all."""
        line = json.dumps({"did": did, **more, "pid": os.getpid()}, ensure_ascii=False) + "\n"
        handle = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(handle, line.encode())
        finally:
            os.close(handle)

    def noted(self) -> list[dict[str, Any]]:
        """Everything the log holds."""
        if not self.log.exists():
            return []
        return [json.loads(line) for line in self.log.read_text(encoding="utf-8").splitlines()]

    def ticket(self, ticket_id: str) -> str:
        """The text of a ticket. Raises `ToolError` if there is none of this id."""
        path = self.archive / f"{ticket_id}.md"
        if not re.fullmatch(r"T-\d{4}", ticket_id) or not path.is_file():
            raise ToolError(f"there is no ticket {ticket_id!r}; ids look like T-1001")
        return path.read_text(encoding="utf-8")


# ---------------------------------------------------------------- search


def terms(text: str) -> Counter[str]:
    """What a text is found by: words without endings, pairs of Chinese characters."""
    found: Counter[str] = Counter()
    for word in WORD.findall(text.lower()):
        if word[0] > "z":
            found.update(word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        elif word not in COMMON:
            end = next((e for e in ENDINGS if word.endswith(e) and len(word) > len(e) + 2), "")
            found[word.removesuffix(end)] += 1
    return found


def passages(text: str) -> list[tuple[str, str]]:
    """The paragraphs below the heading, each with its lines as `first-last` or `line`."""
    lines = text.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("# ")) + 1
    found: list[tuple[str, str]] = []
    while at < len(lines):
        end = at
        while end < len(lines) and lines[end].strip():
            end += 1
        if end > at:
            span = f"{at + 1}-{end}" if end > at + 1 else f"{end}"
            found.append((span, "\n".join(lines[at:end])))
        at = end + 1
    return found


def rank(query: str, texts: dict[str, str]) -> list[tuple[float, str]]:
    """Names of the texts that share terms with the query, best first; rare terms weigh more."""
    wanted = terms(query)
    counted = {name: terms(text) for name, text in texts.items()}
    spread = {term: sum(term in each for each in counted.values()) for term in wanted}
    scored = []
    for name, each in counted.items():
        score = sum(
            math.log(1 + len(texts) / spread[term]) * each[term] / (each[term] + 1.0)
            for term in wanted
            if term in each
        )
        scored.append((round(score, 3), name))
    return sorted((hit for hit in scored if hit[0] > 0), key=lambda hit: (-hit[0], hit[1]))


@tool(effect="read", sources=True)
def search_tickets(query: str, ctx: Context[Desk], limit: int = 5) -> list[Source]:
    """Find tickets by words or by Chinese characters; the best passage of each is returned.

    Args:
        query: A few words, in the language of the tickets that are wanted.
        limit: How many tickets at most.
    """
    desk = ctx.deps
    desk.note("search_tickets", query=query)
    texts = {path.stem: path.read_text(encoding="utf-8") for path in desk.archive.glob("T-*.md")}
    found = []
    for score, name in rank(query, texts)[: max(1, min(limit, 20))]:
        parts = dict(passages(texts[name]))
        best = rank(query, parts) or [(0.0, next(iter(parts)))]
        span = best[0][1]
        version = sha256(texts[name].encode()).hexdigest()[:12]
        found.append(
            Source(uri=f"tickets/{name}", text=parts[span], span=span, score=score, version=version)
        )
    return found


# ---------------------------------------------------------------- read and add up


def front_matter(text: str) -> dict[str, str]:
    """The `key: value` lines between the first two rules of a ticket."""
    head = text.split("---\n", 2)[1]
    pairs = (line.partition(": ") for line in head.splitlines())
    return {key: value.strip() for key, _, value in pairs}


@tool(effect="read")
def read_ticket(ticket_id: str, ctx: Context[Desk]) -> str:
    """Read one ticket whole.

    Args:
        ticket_id: Its id, such as T-1001.
    """
    ctx.deps.note("read_ticket", ticket=ticket_id)
    return ctx.deps.ticket(ticket_id)


@tool(effect="read")
def sum_amounts(ids: list[str], ctx: Context[Desk]) -> dict[str, str]:
    """Add up the amounts of tickets, by currency.

    Args:
        ids: Ids of the tickets; each counts once.
    """
    ctx.deps.note("sum_amounts", tickets=" ".join(ids))
    totals: dict[str, Decimal] = {}
    wanted = list(dict.fromkeys(ids))
    for done, ticket_id in enumerate(wanted):
        ctx.progress(f"ledger entry of {ticket_id}", done / len(wanted))
        time.sleep(ctx.deps.pace_s / len(wanted))
        number, _, currency = front_matter(ctx.deps.ticket(ticket_id))["amount"].partition(" ")
        totals[currency] = totals.get(currency, Decimal(0)) + Decimal(number)
    return {currency: str(total) for currency, total in sorted(totals.items())}


# ---------------------------------------------------------------- write


def reply_was_written(ctx: Context[Desk]) -> Any:
    """The probe of `write_reply`: its line in the log is the effect, so look for that."""
    for line in ctx.deps.noted():
        if line.get("key") == ctx.key:
            return happened(f"reply to {line['ticket']} is in the outbox")
    return NOT_HAPPENED


@tool(effect="write", recovery="probe", probe=reply_was_written, conflict_key="ticket_id")
def write_reply(ticket_id: str, text: str, ctx: Context[Desk]) -> str:
    """Send a reply to the customer of a ticket.

    Args:
        ticket_id: The ticket that is answered.
        text: The whole reply, in the customer's language.
    """
    desk = ctx.deps
    desk.ticket(ticket_id)
    desk.outbox.mkdir(parents=True, exist_ok=True)
    draft = desk.outbox / f".{ticket_id}.{ctx.key}"
    draft.write_text(text + "\n", encoding="utf-8")
    draft.replace(desk.outbox / f"{ticket_id}.md")
    desk.note("write_reply", ticket=ticket_id, key=ctx.key)  # from here on it has happened
    time.sleep(desk.pace_s)  # the far side takes its time to confirm
    return f"reply to {ticket_id} is in the outbox"
