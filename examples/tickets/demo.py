"""`make demo`: one job, killed twice, approved from outside, finished, and checked.

A script plays the model, so no key and no network are needed. All else is real: the processes,
the SIGKILLs, the journal, the files, the approvals. The exit code is 0 only if every check holds.
`make demo MODEL=provider:name` has a real model play; see real.py for what is checked then.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import real
from rich.markup import escape
from stage import HERE, Demo, console

from cairn import CairnError, Runtime
from cairn.models import find_model

# ---------------------------------------------------------------- the acts


def first_death(demo: Demo) -> None:
    demo.chapter(
        "The job starts in a process of its own",
        "It plans, searches twice at once, reads ten tickets at once, and starts to add up.",
        "In the middle of adding up, the process is killed.",
    )
    process = demo.start()
    killed = demo.kill_when(process, lambda: demo.did()["sum_amounts"] == 1)
    demo.check("the process was killed while a tool was running", killed)
    demo.chapter("What the journal knows", "Every step was written down before it was taken:")
    events = demo.journal("tickets")
    left = demo.open_calls("tickets")
    demo.show("\n".join([f"{len(events)} events", *left.values()]))
    demo.check("one call is started and has no outcome", len(left) == 1)


def second_life(demo: Demo) -> None:
    demo.chapter(
        "The same command again, in a new process",
        "It goes on where the journal ends. Adding up is a read, so it is simply repeated.",
        "The replies are writes: they wait for a person, and no process has to wait with them.",
    )
    before = demo.did()
    code = demo.finish(demo.start())
    new = demo.did() - before
    demo.check("it waits for approval (exit code 5)", code == 5)
    demo.check("nothing was searched or read again", not new["search_tickets"] + new["read_ticket"])
    demo.check("no reply was written", not any(k.startswith("write_reply") for k in demo.did()))


def approvals(demo: Demo) -> None:
    demo.chapter(
        "Two people say yes, from two other processes",
        "One by the command line, one by the API. Neither needs the agent's code.",
    )
    code, _ = demo.cairn("approve", "tickets/1", "--by", "desk-lead")
    demo.check("the first approval is in the journal", code == 0)
    with Runtime(demo.store) as rt:
        run = rt.approve("tickets/2", by="second-desk")
    demo.check("the second approval is in the journal", run.pending == () and code == 0)


def second_death(demo: Demo) -> None:
    demo.chapter(
        "The worst moment",
        "Both replies are sent, and the process is killed before it can write down that they are.",
    )
    killed = demo.kill_when(demo.start(), lambda: sent(demo) == 2)
    demo.check("the process was killed between effect and outcome", killed)
    left = demo.open_calls("tickets")
    demo.show("\n".join(left.values()))
    demo.check("both calls are started and have no outcome", len(left) == 2)


def the_end(demo: Demo) -> None:
    demo.chapter(
        "The same command again",
        "A write is never repeated on a guess: its probe looks into the outbox first.",
    )
    code = demo.finish(demo.start())
    demo.check("the job is completed (exit code 0)", code == 0)
    demo.check("nothing was sent a second time", sent(demo) == 2)
    with Runtime(demo.store) as rt:
        run = rt.get("tickets")
    demo.show("\n".join(f"[{c.mark}] {c.source.uri} lines {c.source.span}" for c in run.citations))
    demo.check("five tickets are cited, and every citation has a source", len(run.citations) == 5)
    demo.chapter("And once more", "The result is stored; nothing is executed.")
    before = demo.did()
    demo.check("the same answer", demo.finish(demo.start()) == 0)
    demo.check("nothing was executed", demo.did() == before)


def evidence(demo: Demo) -> None:
    demo.chapter(
        "The trace is the journal",
        "Steps 3 and 4 are those in which the process died. Without --step all is shown.",
    )
    code, told = demo.cairn("trace", "tickets", "--step", "3")
    demo.check("step 3 tells of two attempts to add up", code == 0 and "attempt 2" in told)
    code, told = demo.cairn("trace", "tickets", "--step", "4")
    demo.check("step 4 tells of approvals and probes", code == 0 and "desk-lead" in told)
    demo.chapter(
        "What it cost, and that nothing was altered",
        "Tokens and prices come from the script; the bookkeeping is real.",
    )
    with Runtime(demo.store) as rt:
        run = rt.get("tickets")
    usage = run.usage
    demo.show(
        f"{run.steps} steps, {run.calls} tool calls, {usage.tokens} tokens, {run.cost_usd} USD"
    )
    demo.check("the cost is five replies at the script's price", usage.micro_usd == 5 * 3_450)
    code, _ = demo.cairn("verify", "tickets")
    demo.check("the hash chain holds", code == 0)


def count(demo: Demo) -> None:
    demo.chapter("Counted outside", "The tools and the script keep a log the runtime never sees:")
    did = demo.did()
    demo.show("\n".join(f"{n:3} x {what}" for what, n in sorted(did.items())))
    turns = [line["turn"] for line in demo.lines() if line["did"] == "model"]
    demo.check("five requests to the model, one for each turn", turns == ["0", "1", "2", "3", "4"])
    reads = did["search_tickets"], did["read_ticket"]
    demo.check("two searches and ten tickets read, none twice", reads == (2, 10))
    demo.check("adding up ran twice: it was killed once, and a read may", did["sum_amounts"] == 2)
    letters = {what: n for what, n in did.items() if what.startswith("write_reply")}
    demo.check("two replies, each sent exactly once", sorted(letters.values()) == [1, 1])


def bounded(demo: Demo) -> None:
    demo.chapter(
        "The same job with a bound of one cent",
        "Before every request its worst cost is set aside; what does not fit is not sent.",
    )
    code = demo.finish(demo.start("cheap"))
    with Runtime(demo.store) as rt:
        run = rt.get("tickets-cheap")
    demo.check(f"stopped by the limit {run.limit!r} (exit code 3)", code == 3)
    demo.check("it spent less than the bound", run.limit == "micro_usd" and run.cost_usd < 0.01)


def sent(demo: Demo) -> int:
    return sum(n for what, n in demo.did().items() if what.startswith("write_reply"))


ACTS = (first_death, second_life, approvals, second_death, the_end, evidence, count, bounded)


# ---------------------------------------------------------------- the evening


def play(demo: Demo, acts: Sequence[Callable[[Demo], None]], *about: str) -> int:
    """Play all acts and return the exit code."""
    began = time.monotonic()
    console.print("[bold]Cairn: a job that survives[/]")
    for line in (*about, f"Folder: {demo.home}"):
        console.print(escape(line))
    for act in acts:
        act(demo)
    wrong = [what for what, holds in demo.checks if not holds]
    took = time.monotonic() - began
    console.print(
        f"\n[bold]{len(demo.checks) - len(wrong)} of {len(demo.checks)} checks hold[/]"
        f" ({took:.1f} s)"
    )
    for what in wrong:
        console.print(f"[bold red]not so:[/] {escape(what)}")
    return 1 if wrong else 0


def play_script() -> int:
    """The whole play, with every check."""
    return play(
        Demo(fresh_home()),
        ACTS,
        "The model is a script (examples/tickets/script.py): no model, no key, no network.",
        "Everything else is real: processes, kills, journal, files, approvals. The tools are",
        "slowed down on purpose, so that there is a middle to be killed in.",
    )


def play_real(name: str) -> int:
    """The play with a real model; 2 if it cannot be asked, with what to do."""
    try:
        model = find_model(name)
        if check := getattr(model, "check", None):
            check()
    except CairnError as error:
        console.print(f"MODEL={escape(name)} cannot be used: {escape(str(error))}")
        console.print("`cairn models` says what can be used here. Without MODEL= a script plays.")
        return 2
    demo = Demo(fresh_home(), name, real.PATIENCE_S)
    return play(demo, real.ACTS, *real.about(model))


def fresh_home() -> Path:
    """An empty folder: `TICKETS_HOME`, or build/demo as it was never used before."""
    given = os.environ.get("TICKETS_HOME")
    home = Path(given) if given else HERE.parents[1] / "build" / "demo"
    if not given and home.exists():
        shutil.rmtree(home)
    home.mkdir(parents=True, exist_ok=True)
    return home.resolve()


def main(argv: Sequence[str]) -> int:
    model = next((arg for arg in argv if arg), os.environ.get("MODEL", ""))
    model = model.removeprefix("MODEL=")
    return play_real(model) if model else play_script()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
