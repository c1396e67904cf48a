"""One trial: a world, a worker that may die, a worker that goes on, and what the world then says.

The process that runs trials is warm: it holds Cairn, the third-party packages and all cases, and
forks the world and each worker. Nothing but the world's socket and the store's file joins them.
"""

import asyncio
import copy
import json
import os
import shutil
import signal
import socket
import tempfile
import time
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from schemas import fits
from suites.case import Call, Case, Failed, Suite
from worker import Job, Recovery, carry_through
from worldserver import ask, serve

PATIENCE_S = 90.0
LOOK_S = 0.002
REFUSED = "Not executed."
SETTLED = "Settled: it did happen."
"""What a model reads of a call that was found to have happened and whose answer is nothing."""


@dataclass(frozen=True)
class Trial:
    """A case, a fault, and how writes recover.

    Attributes:
        mode: clean, kill, careless or timeout; see `plan.trials`.
        place: Where the worker dies; see `Job.die`.
        at: At which passage of that place, or which answer is late; from 1.
    """

    suite: str
    case: int
    mode: str = "clean"
    recovery: Recovery = "probe"
    place: str = ""
    at: int = 0


@dataclass
class Outcome:
    """What came of a trial. `problems` is empty when everything is as it should be."""

    trial: Trial
    problems: list[str] = field(default_factory=list)
    state_reached: bool = False
    duplicates: int = 0
    killed: bool = False
    asked: int = 0
    calls: int = 0
    rejected: int = 0
    timeouts: int = 0
    seconds: float = 0.0


@dataclass
class Bench:
    """What all trials share: made once, before the first fork."""

    suites: dict[str, Suite]
    writers: dict[str, set[str]]
    tools: dict[str, dict[Any, Any]]
    folder: Path
    hurried: bool = True


def fork(body: Callable[[], None]) -> int:
    """A child that does this and ends; its id."""
    pid = os.fork()
    if pid:
        return pid
    status = 0
    try:
        body()
    except BaseException:  # whatever it was, the parent is to see that it ended badly
        traceback.print_exc()
        status = 70
    finally:
        os._exit(status)


def wait(pid: int) -> int:
    """How the child ended; it is killed when it takes too long."""
    end = time.monotonic() + PATIENCE_S
    while True:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        if time.monotonic() > end:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            return 71
        time.sleep(LOOK_S)


def play(bench: Bench, trial: Trial) -> Outcome:
    """One trial from beginning to end."""
    began = time.monotonic()
    folder = Path(tempfile.mkdtemp(dir=bench.folder))
    suite = bench.suites[trial.suite]
    case = suite.cases[trial.case]
    path = folder / "world"
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(path))
    listening.listen(16)
    late = trial.at if trial.mode == "timeout" else 0
    world = fork(lambda: serve(suite.world(case), listening, late))
    listening.close()
    outcome = Outcome(trial)
    try:
        _work(bench, trial, case, folder, outcome)
    finally:
        try:
            asyncio.run(ask(path, {"what": "close"}))
        except OSError:
            outcome.problems.append("the world has gone")
        wait(world)
        shutil.rmtree(folder)
    outcome.seconds = time.monotonic() - began
    return outcome


def double(bench: Bench, trial: Trial) -> Outcome:
    """The truth with one write made twice, without the runtime: whether the third party notices."""
    suite = bench.suites[trial.suite]
    case = suite.cases[trial.case]
    world = suite.world(case)
    for n, each in enumerate(case.calls, 1):
        for _ in range(2 if n == trial.at else 1):
            try:
                world.call(each.tool, copy.deepcopy(each.arguments))
            except Failed:
                continue  # the second one may be refused, and that changes nothing
    noticed = world.judge(case.turns[-1].answer, case.calls)
    return Outcome(trial, state_reached=not noticed)


def _work(bench: Bench, trial: Trial, case: Case, folder: Path, outcome: Outcome) -> None:
    tools = bench.tools[trial.suite]
    result = folder / "result"

    def start(die: tuple[str, int]) -> int:
        job = Job(
            case=case,
            store=str(folder / "store.db"),
            world=str(folder / "world"),
            recovery=trial.recovery,
            short=trial.mode == "timeout",
            hurried=bench.hurried and trial.mode == "timeout",
            die=die,
        )

        def body() -> None:
            result.write_text(json.dumps(asyncio.run(carry_through(job, tools))))

        return wait(fork(body))

    if trial.place:
        ended = start((trial.place, trial.at))
        outcome.killed = ended == -signal.SIGKILL
        if not outcome.killed:
            outcome.problems.append(f"the worker was to be killed and ended with {ended}")
    ended = start(("", 0))
    if ended:
        outcome.problems.append(f"the worker ended with {ended}")
        return
    _compare(bench, trial, case, json.loads(result.read_text()), folder / "world", outcome)


def _compare(
    bench: Bench, trial: Trial, case: Case, done: dict[str, Any], world: Path, outcome: Outcome
) -> None:
    if "stuck" in done:
        outcome.problems.append(done["stuck"])
        return
    outcome.asked = done["asked"]
    outcome.rejected = done["rejected"]
    outcome.timeouts = done["timeouts"]
    if trial.mode == "timeout" and not outcome.timeouts:
        outcome.problems.append("no tool's time was up")
    expected = case.calls
    if outcome.rejected:
        suite = bench.suites[trial.suite]
        refused = [n for n, (text, ok) in enumerate(done["read"]) if not ok and REFUSED in text]
        outcome.problems += _without_cause(suite, case, refused)
        expected = [each for n, each in enumerate(expected) if n not in refused]
    asked = {
        "what": "judge",
        "answer": case.turns[-1].answer,
        "calls": [{"tool": c.tool, "arguments": c.arguments} for c in expected],
    }
    if expected == case.calls:
        asked["calls"] = [vars(each) for each in expected]
    said = asyncio.run(ask(world, asked))
    outcome.state_reached = not said["problems"]
    outcome.problems += said["problems"]
    log = said["log"]
    outcome.calls = len(log)
    names = {key.rpartition("/")[2] for key in bench.writers[trial.suite]}
    outcome.problems += _order(log, expected, names, outcome)
    if not outcome.rejected:
        outcome.problems += _readings(done["read"], log, expected)


def _without_cause(suite: Suite, case: Case, refused: list[int]) -> list[str]:
    """Calls that were not run though the truth had a right to them."""
    offered = [turn.offered for turn in case.turns for reply in turn.replies for _ in reply]
    problems = []
    for n in refused:
        call = case.calls[n]
        keys = [key for key in offered[n] if key.rpartition("/")[2] == call.tool]
        if keys and fits(call.arguments, suite.offers[keys[0]].parameters):
            problems.append(f"{call.tool}({call.arguments}) was refused without cause")
    return problems


def _order(
    log: list[dict[str, Any]], expected: list[Call], writers: set[str], outcome: Outcome
) -> list[str]:
    """Whether the world executed each write once, in the order of the truth."""
    done: set[str] = set()
    for each in log:
        if each["tool"] in writers and "result" in each:
            outcome.duplicates += each["key"] in done
            done.add(each["key"])
        else:
            outcome.duplicates += each["key"] in done  # refused, but it was sent a second time
    problems = [f"{outcome.duplicates} writes were executed twice"] if outcome.duplicates else []
    # A call that was refused had no effect, so one that was cut off is rightly made again.
    writes = [
        (each["tool"], each["arguments"])
        for each in log
        if each["tool"] in writers and "error" not in each
    ]
    truth = [(c.tool, c.arguments) for c in expected if c.tool in writers and not c.error]
    if writes != truth:
        problems.append(f"the writes were {writes}, not {truth}")
    made = {(each["tool"], json.dumps(each["arguments"], sort_keys=True)) for each in log}
    wanted = {(c.tool, json.dumps(c.arguments, sort_keys=True)) for c in expected}
    if len(made) != len(wanted) or len(log) < len(expected):
        problems.append("other calls were made than those of the truth")
    return problems


def _readings(read: list[Any], log: list[dict[str, Any]], expected: list[Call]) -> list[str]:
    """Whether the model has read, for each call, what the world answered."""
    if len(read) != len(expected):
        return [f"the model has read {len(read)} results of {len(expected)}"]
    problems = []
    for (text, ok), call in zip(read, expected, strict=True):
        answers = [
            each for each in log if (each["tool"], each["arguments"]) == (call.tool, call.arguments)
        ]
        if not any(_same(text, ok, each) for each in answers):
            problems.append(f"of {call.tool} the model has read {text[:200]!r}")
        if call.error and call.error not in text:
            problems.append(f"of {call.tool} the model has not read {call.error!r}")
    return problems


def _same(text: str, ok: bool, answer: dict[str, Any]) -> bool:
    if "error" in answer:
        return not ok and answer["error"] in text
    if answer["result"] is None and text == SETTLED:
        return ok
    if isinstance(answer["result"], str):
        return ok and text == answer["result"]
    try:
        return ok and json.loads(text) == answer["result"]
    except ValueError:
        return False
