"""The ticket desk as an application: an agent, its tools, and a store.

    python examples/tickets/app.py          start the job, or go on with it
    python examples/tickets/app.py cheap    the same job with a bound of one cent

`TICKETS_HOME` names the folder of store, replies and log; `TICKETS_PACE` slows the tools down;
`TICKETS_MODEL` is a real model's `provider:name`, where there is none the script plays.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from script import Overheard, scripted
from tools import Desk, read_ticket, search_tickets, sum_amounts, write_reply

from cairn import Agent, Limits, Runtime
from cairn.models import find_model

QUESTION = (
    "Since the 4.2 update some customers of Orrery Billing were charged twice. Find them in the "
    "archive, English and Chinese, say what is to be paid back, and answer those who still wait."
)
BOUND = Limits(micro_usd=2_000_000)
BOUND_AT_WORST = Limits(micro_usd=20_000_000)
"""For a real model whose price nobody knows: it is counted at the worst one."""
CHEAP = {"micro_usd": 10_000}
CHEAP_AND_SHORT = {**CHEAP, "steps": 3}
"""A real model may be so cheap that a cent is no bound."""
EXIT = {"completed": 0, "failed": 1, "stopped": 3, "cancelled": 4, "waiting": 5, "paused": 6}

home = Path(os.environ.get("TICKETS_HOME", "build/tickets"))
home.mkdir(parents=True, exist_ok=True)
desk = Desk(
    archive=Path(__file__).parent / "archive",
    outbox=home / "outbox",
    log=home / "effects.jsonl",
    pace_s=float(os.environ.get("TICKETS_PACE", "0")),
)


def heard(turn: int) -> None:
    desk.note("model", turn=str(turn))


name = os.environ.get("TICKETS_MODEL", "")
model = Overheard(find_model(name), heard) if name else scripted(heard)
clerk = Agent(
    "clerk",
    model,
    instructions="You work at a ticket desk. Cite the tickets you rely on as [s1].",
    tools=[search_tickets, read_ticket, sum_amounts, write_reply],
    limits=(BOUND_AT_WORST if model.price is None else BOUND) if name else None,
)
rt = Runtime(home / "cairn.db", agents=[clerk], deps=desk)

if __name__ == "__main__":
    cheap = sys.argv[1:] == ["cheap"]
    with rt:
        run = rt.run(
            "clerk",
            QUESTION,
            id="tickets-cheap" if cheap else "tickets",
            limits=(CHEAP_AND_SHORT if name else CHEAP) if cheap else None,
        )
    print(run.text, *run.pending, sep="\n")
    sys.exit(EXIT[run.status])
