"""A server that breaks on purpose and judges its client, against whole runs over real models.

`llmock` fails in every way it can, in three wire formats, streamed and whole; each case is a run
of its own, with its own prompt, model name and account, so that nothing is shared but the server.
Compared are its journal and ours, request by request, and what it says of its client.

`python -m tests.models.referee` prints the whole table.
"""

from __future__ import annotations

import asyncio
import sys
import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import Any

from llmock.chaos import StreamChaos
from llmock.journal import RequestRecord
from llmock.ratelimit import LimitSettings
from llmock.scenarios import (
    Delay,
    Fail,
    Match,
    Reply,
    SlowFirstToken,
    StreamFault,
    ToolCall,
    ToolFault,
)
from llmock.testing import LLMockServer
from llmock.verdict import Verdict, judge

from cairn import Agent, Ladder, Rung, Runtime, tool
from cairn.core import events as ev
from cairn.core.ladder import TABLE
from cairn.core.limits import FREE
from cairn.models.remote import RemoteModel

BACKOFF_US = 400_000
"""In place of half a second or one: the referee's clock is the real one."""
WRITTEN_US = 20_000
"""A wait begins when the refusal arrives, a moment before it stands in the journal."""
PATIENCE_S = 4.0
"""Silence for longer than this is a time-out, where a case is about that."""
CHUNK_MS = 15
TOKENS_A_MINUTE = 120_000
WINDOW_TOKENS = 2_000
RATE, DOWN, BUSY = ("rate_limited:retry",), ("unavailable:retry",), ("overloaded:retry",)
CUT, LATE = ("stream_interrupted:retry",), ("timeout:retry",)


@dataclass(frozen=True)
class Wire:
    """A format, and who of our providers speaks it."""

    name: str
    provider: str
    path: str
    model: str


WIRES = (
    Wire("chat", "openai-chat", "/v1", "gpt-4o"),
    Wire("responses", "openai", "/v1", "gpt-5-mini"),
    Wire("messages", "anthropic", "/anthropic", "claude-sonnet-4-5"),
)


@dataclass(frozen=True)
class Case:
    """One way to fail, and what must come of it.

    Args:
        name: What happens.
        does: What the server does, in the referee's words.
        steps: Class and disposition of every failed request or refused call, in order.
        ends: Status of the run, and its class when it failed.
        on: Only streamed or whole replies can fail like this.
        works: How often the tool ran; None for an agent without tools.
        asked_s: How long the server asked to wait, each time.
        differs: Steps of one format, where it says something else with its words.
        wires: In which formats the server can do it.
        more: Options of the model.
        prompt: The task, before the case's own words.
        finding: What the referee finds, where it cannot know better.
    """

    name: str
    does: tuple[Any, ...] = ()
    steps: tuple[str, ...] = ()
    ends: str = "completed"
    on: str = "streamed, whole"
    works: int | None = None
    asked_s: float = 0.0
    differs: dict[str, tuple[str, ...]] = field(default_factory=dict)
    wires: str = "chat, responses, messages"
    more: dict[str, Any] = field(default_factory=dict)
    prompt: str = "Say something."
    finding: str = ""


def _refused(status: int, error_class: str, **more: Any) -> Case:
    return Case(
        f"{status}", (Fail(status),), (f"{error_class}:end",), f"failed {error_class}", **more
    )


def _cut(kind: str, at: int, *, works: int | None = None) -> Case:
    """A stream that breaks long before its end, so that a client can still hang up."""
    after = f"after {at} events{', in a call' if works else ''}"
    call = ToolCall("look", {"place": "somewhere " * 200})
    long = Reply(tool_calls=(call,)) if works else Reply(text="word " * 200)
    does = (long, StreamFault(kind, at))
    return Case(f"stream {kind} {after}", does, CUT, on="streamed", works=works)


IMPATIENT = {"stall_s": PATIENCE_S, "timeout_s": PATIENCE_S}
CASES = (
    Case("no fault"),
    Case("no fault, with a tool", works=1),
    Case("429, Retry-After 0.3, twice", (Fail(429, 0.3, times=2),), RATE * 2, asked_s=0.3),
    Case("429, Retry-After 0", (Fail(429, 0.0),), RATE),
    Case("429, Retry-After by default", (Fail(429),), RATE, asked_s=1.0, works=1),
    Case("500, three times", (Fail(500, times=3),), DOWN * 3),
    Case("502", (Fail(502),), DOWN),
    Case("503", (Fail(503, 0.2),), DOWN, asked_s=0.2, differs={"messages": BUSY}),
    Case("504", (Fail(504, 0.2),), DOWN, asked_s=0.2),
    Case("529", (Fail(529, 0.2),), BUSY, asked_s=0.2),
    Case("408", (Fail(408),), LATE),
    Case("409", (Fail(409),), DOWN),
    Case("599", (Fail(599),), DOWN),
    Case("503, then 429, then 500", (Fail(503, 0.2), Fail(429, 0.2), Fail(500)),
         DOWN + RATE + DOWN, differs={"messages": BUSY + RATE + DOWN}, works=1),
    Case("500 for ever", (Fail(500, times=None),), (*DOWN * 5, "unavailable:end"),
         "failed unavailable"),
    Case("429 for ever", (Fail(429, 0.05, times=None),), (*RATE * 6, "rate_limited:end"),
         "failed rate_limited", asked_s=0.05),
    Case("forced by a header", (), (*DOWN * 5, "unavailable:end"), "failed unavailable",
         more={"headers": {"x-llmock-force-status": "500"}}),
    _refused(400, "invalid_request"),
    _refused(401, "auth"),
    _refused(402, "quota_exhausted"),
    _refused(403, "auth"),
    _refused(404, "model_not_found"),
    _refused(413, "request_too_large"),
    _refused(422, "invalid_request"),
    _refused(501, "invalid_request"),
    Case("prompt over the window", (), ("context_overflow:retry",), "failed context_overflow",
         prompt="Read this. " + "word " * 2_500),
    Case("tokens of the minute used up", (), RATE, works=1, more={"max_output": 62_000}),
    Case("late, but in time", (Delay(0.3),), more=IMPATIENT),
    Case("too late", (Delay(PATIENCE_S + 2.0),), LATE, more=IMPATIENT),
    Case("first word late, but in time", (SlowFirstToken(0.3),), on="streamed", more=IMPATIENT),
    Case("first word too late", (SlowFirstToken(30.0),), LATE, on="streamed", more=IMPATIENT),
    Case("stream stalls, not for long", (StreamFault("stall", 2, stall_seconds=0.3),),
         on="streamed", more=IMPATIENT),
    Case("stream stalls", (StreamFault("stall", 2),), LATE, on="streamed", more=IMPATIENT),
    *(_cut(kind, at) for kind in ("disconnect", "truncate", "malformed") for at in (0, 1, 3)),
    *(_cut(kind, 3, works=1) for kind in ("disconnect", "truncate", "malformed")),
    Case("malformed arguments", (ToolFault("malformed_arguments"),), ("invalid_arguments:repair",),
         works=0),
    Case("unknown tool", (ToolFault("unknown_tool"),), ("unknown_tool:repair",), works=0),
    Case("empty reply", (Reply(text=""),), ("empty_output:repair",)),
    Case("cut at the output limit", (Reply(text="And so", finish_reason="length"),),
         ("truncated_output:repair",)),
    Case("content filter", (Reply(text="I", finish_reason="content_filter"),),
         ("content_filtered:end",), "failed content_filtered", wires="chat, messages"),
    Case("429, the account is empty",
         (Fail(429, message="You exceeded your current quota, please check your plan and billing "
               "details.", code="insufficient_quota"),),
         ("quota_exhausted:end",), "failed quota_exhausted", finding="gave_up"),
)  # fmt: skip
QUICK = (
    "no fault, with a tool",
    "502",
    "503",
    "401",
    "stream disconnect after 1 events",
    "stream truncate after 3 events, in a call",
    "stream malformed after 3 events",
    "unknown tool",
)
"""What the fast tests try."""


@dataclass
class Row:
    """What came of one case in one format."""

    case: Case
    wire: Wire
    mode: str
    model: str = ""
    run: Any = None
    entries: Sequence[ev.Entry] = ()
    works: int = 0
    records: Sequence[RequestRecord] = ()
    verdict: Verdict = field(default_factory=lambda: Verdict(()))

    @property
    def name(self) -> str:
        return f"{self.case.name}, {self.wire.name} {self.mode}"

    @property
    def steps(self) -> tuple[str, ...]:
        """Class and disposition of all that failed, as our journal has it."""
        kinds = (ev.ModelFailed, ev.ToolRejected, ev.ToolFailed)
        failed = [e.event for e in self.entries if isinstance(e.event, kinds)]
        return tuple(f"{e.error_class.value}:{e.disposition}" for e in failed)

    @property
    def asked(self) -> list[ev.Entry]:
        """Our requests."""
        return [e for e in self.entries if isinstance(e.event, ev.ModelRequested)]

    @property
    def ends(self) -> str:
        """Status of the run, and its class if it failed."""
        return f"{self.run.status} {self.run.error_class}".strip()

    def complaints(self) -> list[str]:
        """All that is not as it must be."""
        case = self.case
        due = case.differs.get(self.wire.name, case.steps)
        found = []
        if self.steps != due:
            found.append(f"steps {self.steps}, not {due}")
        if self.ends != case.ends:
            found.append(f"ended {self.ends}, not {case.ends}")
        if self.works != (case.works or 0):
            found.append(f"the tool ran {self.works} times, not {case.works}")
        findings = [f.code for f in self.verdict.findings]
        if findings != ([case.finding] if case.finding else []):
            found.append(f"findings {findings}")
        return found + self._one_by_one() + self._waits()

    def _one_by_one(self) -> list[str]:
        """Each request they have is one that we have, in order, and failed or not as ours did."""
        outcomes = [
            isinstance(e.event, ev.ModelCompleted)
            for e in self.entries
            if isinstance(e.event, ev.ModelCompleted | ev.ModelFailed)
        ]
        if not len(self.records) == len(self.asked) == len(outcomes):
            counts = f"{len(self.records)} theirs, {len(self.asked)} ours, {len(outcomes)} outcomes"
            return [f"requests: {counts}"]
        return [
            f"request {n} was answered, and here it has failed or was believed: {record.fault}"
            for n, (record, ok) in enumerate(zip(self.records, outcomes, strict=True), 1)
            if record.failed and ok
        ]

    def _waits(self) -> list[str]:
        """No request is made before the wait that was asked for is over."""
        found = []
        due = 0
        for entry in self.entries:
            event = entry.event
            if isinstance(event, ev.ModelRequested) and entry.at < due:
                found.append(f"asked again {(due - entry.at) / 1e6:.3f} s too soon")
            if isinstance(event, ev.ModelFailed) and event.disposition == "retry":
                due = event.retry_at or entry.at  # what is made smaller first is not waited for
                if due - entry.at < self.case.asked_s * 1e6 - WRITTEN_US:
                    found.append(f"waits {(due - entry.at) / 1e6:.3f} s")
        return found

    def line(self) -> str:
        """One line of the table."""
        steps = ", ".join(f"{step}{f' ×{n}' if n > 1 else ''}" for step, n in _grouped(self.steps))
        counts = f"{len(self.asked)}/{len(self.records)}"
        found = ", ".join(f.code for f in self.verdict.findings) or "clean"
        cells = (self.case.name, self.wire.name, self.mode, steps or "–", self.ends, counts, found)
        return f"| {' | '.join(cells)} |"


def _grouped(steps: Iterable[str]) -> list[tuple[str, int]]:
    made: list[tuple[str, int]] = []
    for step in steps:
        if made and made[-1][0] == step:
            made[-1] = (step, made[-1][1] + 1)
        else:
            made.append((step, 1))
    return made


def quick_ladder() -> Ladder:
    """The built-in table, with shorter waits of our own where a row waits."""
    return Ladder(
        rows={
            error_class: tuple(
                Rung(disposition=r.disposition, times=r.times, backoff_us=BACKOFF_US) for r in rungs
            )
            for error_class, rungs in TABLE.items()
            if any(r.disposition == "retry" for r in rungs)
        }
    )


def rows_of(names: Iterable[str] = (), modes: Sequence[str] = ("streamed", "whole")) -> list[Row]:
    """The cases of these names, by default all, in every format and mode they can happen in."""
    wanted = set(names) or {case.name for case in CASES}
    assert wanted <= {case.name for case in CASES}
    return [
        Row(case, wire, mode)
        for case in CASES
        for wire in WIRES
        for mode in modes
        if case.name in wanted and mode in case.on and wire.name in case.wires
    ]


def _agent(row: Row, number: int, url: str) -> Agent:
    row.model = f"{row.wire.model}-case-{number}"
    model = RemoteModel(
        f"{row.wire.provider}:{row.model}",
        base_url=url + row.wire.path,
        api_key=f"account-{number}",
        price=FREE,
        window=1_000_000,
        stream=row.mode == "streamed",
        **row.case.more,
    )

    @tool(effect="read")
    async def look(place: str) -> str:
        """Look at a place."""
        row.works += 1
        return f"nothing at {place}"

    tools = [look] if row.case.works is not None else []
    return Agent(f"case-{number}", model, tools=tools, builtins=())


async def _play(rows: Sequence[Row], server: LLMockServer, at_once: int) -> None:
    agents = [_agent(row, n, server.url) for n, row in enumerate(rows)]
    room = asyncio.Semaphore(at_once)
    async with Runtime(":memory:", agents=agents, ladder=quick_ladder()) as rt:
        rt.host.jitter = lambda: 0.5  # chance must not look like a wait that does not grow

        async def one(number: int, row: Row) -> None:
            async with room:
                match = Match(model=row.model)
                server.state.scenarios.add(*(replace(b, match=match) for b in row.case.does))
                prompt = f"{row.case.prompt} (case {number})"
                row.run = await rt.run_async(f"case-{number}", prompt, id=f"r{number}")
                row.entries = await rt.trace_async(f"r{number}")

        longest_first = sorted(enumerate(rows), key=lambda each: -len(each[1].case.steps))
        await asyncio.gather(*(one(n, row) for n, row in longest_first))
        for agent in agents:
            await agent.models[0].close()


def play(rows: Sequence[Row], at_once: int = 12) -> Verdict:
    """Run all cases against one server, at most so many at once; what it says of all together."""
    for name in ("openai", "anthropic"):  # takes seconds, which count for a first request
        import_module(f"pydantic_ai.models.{name}")
    limits = LimitSettings(tpm=TOKENS_A_MINUTE, context_window=WINDOW_TOKENS)
    with LLMockServer() as server:
        server.state.limiter.configure(limits)
        # events that come one by one: else all are sent before a client can hang up
        server.state.stream_chaos = StreamChaos(chunk_delay_ms=CHUNK_MS)
        asyncio.run(_play(rows, server, at_once))
        records = server.state.journal.records(wait=20.0)
    for row in rows:
        row.records = [r for r in records if r.model == row.model]
        row.verdict = judge(row.records)
    assert len(records) == sum(len(row.records) for row in rows)
    return judge(r for row in rows if not row.case.finding for r in row.records)


def main() -> int:
    """Print the table; 1 if anything is not as it must be."""
    begun = time.monotonic()
    rows = rows_of()
    verdict = play(rows)
    print("| fault | format | reply | steps | run | requests ours/theirs | findings |")
    print("|---|---|---|---|---|---|---|")
    for row in rows:
        print(row.line())
    wrong = [f"{row.name}: {said}" for row in rows for said in row.complaints()]
    theirs = sum(len(row.records) for row in rows)
    ours = sum(len(row.asked) for row in rows)
    print()
    print(f"{len(CASES)} faults, {len(rows)} runs, {time.monotonic() - begun:.0f} s")
    print(f"requests: {ours} model.requested events here, {theirs} in the referee's journal")
    print("steps:", dict(Counter(step for row in rows for step in row.steps)))
    print(f"wrong: {len(wrong)}", *wrong, sep="\n  ")
    print("the referee, without the rows it cannot judge (an empty account):")
    print(verdict.render())
    return 1 if wrong or verdict.findings else 0


if __name__ == "__main__":
    sys.exit(main())
