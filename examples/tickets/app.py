"""The ticket desk as an application: an agent, its tools, and a store.

    python examples/tickets/app.py          start the job, or go on with it
    python examples/tickets/app.py cheap    the same job with a bound of one cent

`TICKETS_HOME` names the folder of store, replies and log; `TICKETS_PACE` slows the tools down.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from script import scripted
from tools import Desk, read_ticket, search_tickets, sum_amounts, write_reply

from cairn import Agent, Limits, Runtime

QUESTION = (
    "Since the 4.2 update some customers of Orrery Billing were charged twice. Find them in the "
    "archive, English and Chinese, say what is to be paid back, and answer those who still wait."
)
EXIT = {"completed": 0, "failed": 1, "stopped": 3, "cancelled": 4, "waiting": 5, "paused": 6}

home = Path(os.environ.get("TICKETS_HOME", "build/tickets"))
home.mkdir(parents=True, exist_ok=True)
desk = Desk(
    archive=Path(__file__).parent / "archive",
    outbox=home / "outbox",
    log=home / "effects.jsonl",
    pace_s=float(os.environ.get("TICKETS_PACE", "0")),
)
clerk = Agent(
    "clerk",
    scripted(heard=lambda turn: desk.note("model", turn=str(turn))),
    instructions="You work at a ticket desk. Cite the tickets you rely on as [s1].",
    tools=[search_tickets, read_ticket, sum_amounts, write_reply],
)
rt = Runtime(home / "cairn.db", agents=[clerk], deps=desk)

if __name__ == "__main__":
    cheap = sys.argv[1:] == ["cheap"]
    with rt:
        run = rt.run(
            "clerk",
            QUESTION,
            id="tickets-cheap" if cheap else "tickets",
            limits=Limits(micro_usd=10_000) if cheap else None,
        )
    print(run.text, *run.pending, sep="\n")
    sys.exit(EXIT[run.status])
