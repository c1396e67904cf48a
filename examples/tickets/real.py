"""The acts for a real model: what must hold whatever it says.

What needs the script is left out: how many requests, searches and replies there are, which
tickets are found, and what it all costs. How well the model did is told at the end, unchecked.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from stage import Demo, console

from cairn import Runtime
from cairn.core.limits import WORST_CASE
from cairn.ports import Model

PATIENCE_S = 900.0
ROUNDS = 12
"""So often people decide what waits, before the job is cancelled."""
JOB = "tickets"
AFFECTED = ("T-1004", "T-1007", "T-1011", "T-1016", "T-1019")
WAITING = ("T-1004", "T-1007")
STARTED = "tool.started"
FINISHED = {"tool.completed", "tool.failed"}


def about(model: Model) -> list[str]:
    """What is said before the play."""
    price = model.price
    told = [
        f"The model is real: {model.name}. So are processes, kills, journal, files, approvals.",
        "Left out is what only the script can promise: how many turns, searches and replies there",
        "are, which tickets are found, and what it costs to the cent.",
    ]
    if price is None:
        told.append(f"Its price is unknown: it is counted at the worst ({WORST_CASE.version}).")
    elif not price.free:
        told.append(f"It costs money ({price.version}), at most 2 USD; usually some cents.")
    return told


def first_death(demo: Demo) -> None:
    demo.chapter(
        "The job starts in a process of its own",
        "As soon as a tool has done something, the process is killed.",
    )
    if demo.kill_when(demo.start(), lambda: bool(effects(demo))):
        demo.check("the process was killed in the middle of the job", True)
    else:
        console.print(
            "   It ended before a tool did anything: there was no middle to be killed in."
        )
    left = demo.open_calls(JOB)
    demo.show("\n".join([f"{len(demo.journal(JOB))} events", *left.values()]))


def second_life(demo: Demo) -> None:
    demo.chapter(
        "The same command again, in a new process",
        "It goes on where the journal ends. Writes wait for a person.",
    )
    demo.finish(demo.start())
    demo.check("no reply was written before a person said yes", not written(demo))


def decisions(demo: Demo) -> None:
    demo.chapter(
        "People decide what waits, from other processes",
        "Replies are approved, questions are answered. When the first reply is sent, the process",
        "is killed before it can write down that it is.",
    )
    killed = False
    for _ in range(ROUNDS):
        if not decide(demo):
            break
        process = demo.start()
        before = len(written(demo))
        if not killed and approved(demo) > before:
            killed = demo.kill_when(process, lambda before=before: len(written(demo)) > before)
            if killed:
                demo.check("the process was killed after an effect, before its outcome", True)
                demo.show("\n".join(demo.open_calls(JOB).values()))
                demo.finish(demo.start())
        else:
            demo.finish(process)
    else:
        demo.cairn("cancel", JOB, "-m", "it asks for ever")
    if not killed:
        console.print("   No reply was sent, so nobody was killed while sending one.")


def decide(demo: Demo) -> bool:
    """Decide all that waits; whether anything did."""
    with Runtime(demo.store) as rt:
        pending = rt.get(JOB).pending
    for first, item in zip([True, *[False] * len(pending)], pending, strict=False):
        if item.kind == "approval" and first:
            code, _ = demo.cairn("approve", item.id, "--by", "desk-lead")
            demo.check("the approval is in the journal", code == 0)
        elif item.kind == "approval":
            with Runtime(demo.store) as rt:
                rt.approve(item.id, by="second-desk")
        elif item.kind == "input":
            demo.cairn("answer", item.id, "Do what you think is right.", "--by", "desk-lead")
        else:
            demo.cairn("resolve", item.id, "--give-up", "--by", "desk-lead")
    return bool(pending)


def the_end(demo: Demo) -> None:
    demo.chapter("And once more", "The job is over. Nothing is asked and nothing is executed.")
    with Runtime(demo.store) as rt:
        run = rt.get(JOB)
    before, heard = demo.did(), demo.lines()
    again = demo.finish(demo.start())
    demo.check("it was not executed again", demo.did() == before and demo.lines() == heard)
    demo.check("the exit code says how it ended", again == CODES.get(run.status, -1))
    demo.check("the job did not fail", run.status != "failed")
    marked = {f"[{each.mark}]" for each in run.citations}
    demo.check("every citation has a source", all(mark in run.text for mark in marked))


CODES = {"completed": 0, "failed": 1, "stopped": 3, "cancelled": 4}


def evidence(demo: Demo) -> None:
    demo.chapter("The trace is the journal", "Its first step:")
    code, _ = demo.cairn("trace", JOB, "--step", "1")
    demo.check("the trace is told", code == 0)
    with Runtime(demo.store) as rt:
        run = rt.get(JOB)
    usage = run.usage
    demo.show(
        f"{run.steps} steps, {run.calls} tool calls, {usage.tokens} tokens, {run.cost_usd} USD"
    )
    ends = {"model.completed", "model.failed", "model.rejected"}
    events = [e.event for e in demo.journal(JOB) if e.event.NAME in ends]
    known = [event.usage.micro_usd for event in events if getattr(event, "usage", None)]
    demo.check("the cost is the sum of what the requests cost", usage.micro_usd == sum(known))
    code, _ = demo.cairn("verify", JOB)
    demo.check("the hash chain holds", code == 0)


def count(demo: Demo) -> None:
    demo.chapter("Counted outside", "The tools and the model keep a log the runtime never sees:")
    did = demo.did()
    demo.show("\n".join(f"{n:3} x {what}" for what, n in sorted(did.items())))
    journal = demo.journal(JOB)
    names = Counter(entry.event.NAME for entry in journal)
    demo.check("every request is in the journal", did["model"] <= names["model.requested"])
    demo.check("every execution is in the journal", not effects(demo) - started(journal))
    demo.check("no finished call was started again", not restarted(journal))
    keys = written(demo)
    demo.check("every reply was sent exactly once", len(keys) == len(set(keys)))
    demo.check("every reply was approved", len(keys) <= approved(demo))


def bounded(demo: Demo) -> None:
    demo.chapter(
        "The same job with a bound of one cent and three steps",
        "Before every request its worst cost is set aside; what does not fit is not sent.",
    )
    demo.finish(demo.start("cheap"))
    with Runtime(demo.store) as rt:
        run = rt.get("tickets-cheap")
    demo.show(f"{run.status} {run.limit}: {run.steps} steps, {run.cost_usd} USD")
    demo.check("it kept both bounds", run.steps <= 3 and run.usage.micro_usd <= 10_000)


def how_well(demo: Demo) -> None:
    """What the model made of it; nothing here is a check."""
    demo.chapter("How well the model did", "Five tickets are meant, and two still wait.")
    with Runtime(demo.store) as rt:
        run = rt.get(JOB)
    cited = {c.source.uri.removeprefix("tickets/") for c in run.citations}
    found = [ticket for ticket in AFFECTED if ticket in run.text or ticket in cited]
    answered = {line["ticket"] for line in demo.lines() if line["did"] == "write_reply"}
    demo.show(
        f"tickets found: {len(found)} of {len(AFFECTED)}\n"
        f"waiting customers answered: {len(answered & set(WAITING))} of {len(WAITING)}\n"
        f"others answered: {len(answered - set(WAITING))}\n"
        f"the job is {run.status} {run.error_class or run.limit}".rstrip()
    )


# ---------------------------------------------------------------- what is known


def effects(demo: Demo) -> Counter[str]:
    """What the tools did, by tool, as they wrote it down themselves."""
    return Counter(line["did"] for line in demo.lines() if line["did"] != "model")


def written(demo: Demo) -> list[str]:
    """The keys of the replies that were sent, one for each time."""
    return [line["key"] for line in demo.lines() if line["did"] == "write_reply"]


def approved(demo: Demo) -> int:
    return sum(entry.event.NAME == "approval.granted" for entry in demo.journal(JOB))


def started(journal: list[Any]) -> Counter[str]:
    """How often each tool was started, as the journal has it."""
    names: dict[str, str] = {}
    for entry in journal:
        if entry.event.NAME == "model.completed":
            names |= {p.id: p.name for p in entry.event.parts if hasattr(p, "arguments")}
    return Counter(names[e.event.call] for e in journal if e.event.NAME == STARTED)


def restarted(journal: list[Any]) -> list[str]:
    """Calls that were started after they had an outcome."""
    finished: set[str] = set()
    found = []
    for event in (entry.event for entry in journal):
        if event.NAME in FINISHED:
            finished.add(event.call)
        elif event.NAME == STARTED and event.call in finished:
            found.append(event.call)
    return found


ACTS = (
    first_death,
    second_life,
    decisions,
    the_end,
    evidence,
    count,
    bounded,
    how_well,
)
