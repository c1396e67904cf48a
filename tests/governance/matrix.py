"""The matrix of hostile calls and benign look-alikes, each through a whole runtime.

    python -m tests.governance.matrix

A scripted model asks for every call; gate, workspace, sandbox and web guard are the real ones.
Nothing may happen outside of the workspace, the model must read which rule refused a call, and
what only looks hostile must pass. The exit code is 1 when anything of that is not so.
"""

import asyncio
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field
from tests.governance import path_cases, schema_cases, shell_cases, web_cases
from tests.governance.cases import FRONT, SECRET, Case, Place
from typing_extensions import TypedDict

from cairn import Agent, Policy, Runtime, Scripted, tool
from cairn.core.limits import Limits
from cairn.core.messages import ResultPart
from cairn.core.policy import Command, Host, Inside, Not, Predicate, Range, Rule
from cairn.ports import ModelRequest, ReplyCall
from cairn.toolkit import FILE_TOOLS, http_tool, python_tool, shell_tool
from cairn.workspace import Workspace

WIDE = Limits(
    steps=1_000,
    calls=10_000,
    calls_per_reply=10_000,
    tokens=10**12,
    errors_in_row=10_000,
    no_progress=10_000,
)
SORT_WRITES = ("-o", "--output", "-T", "--temporary-directory")
SORT_RUNS = ("--compress-program", "--files0-from")


@dataclass
class Row:
    """What came of one kind.

    Attributes:
        tried: Hostile calls.
        refused: Those whose refusal, as the model read it, names its rule.
        held: Those that ran behind walls and reached nothing.
        outside: What happened outside.
        passed, wanted: Benign calls that passed, of how many.
    """

    tried: int = 0
    refused: int = 0
    held: int = 0
    outside: int = 0
    passed: int = 0
    wanted: int = 0


@dataclass
class Report:
    """The figures of one play, and everything that was not as promised."""

    rows: dict[str, Row] = field(default_factory=dict)
    findings: list[str] = field(default_factory=list)
    cpu_s: float = 0.0

    @property
    def total(self) -> Row:
        figures = zip(*(vars(row).values() for row in self.rows.values()), strict=True)
        return Row(*map(sum, figures))

    def table(self) -> str:
        head = ("kind", "tried", "refused", "held by walls", "effects outside", "benign passed")
        lines = [head, *(_cells(kind, row) for kind, row in self.rows.items())]
        lines.append(_cells("total", self.total))
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        texts = [
            "  ".join(
                cell.rjust(width) if at else cell.ljust(width)
                for at, (cell, width) in enumerate(zip(line, widths, strict=True))
            )
            for line in lines
        ]
        return "\n".join([*texts, *(f"WRONG: {each}" for each in self.findings)])


def _cells(kind: str, row: Row) -> tuple[str, ...]:
    passed = f"{row.passed} of {row.wanted}"
    return kind, str(row.tried), str(row.refused), str(row.held), str(row.outside), passed


class Item(TypedDict, total=False):
    sku: Annotated[str, Field(max_length=20)]
    count: int


Tree = Annotated[list[Any], Field(max_length=100)]


def shop(done: list[str]) -> dict[str, list[Any]]:
    """The tools of the shop's clerk, and one that only another agent has."""

    @tool(effect="write")
    async def refund(
        order: Annotated[str, Field(pattern=r"^[A-Z]-[0-9]+$", max_length=20)],
        cents: Annotated[int, Field(ge=0, le=1_000_000)],
        note: Annotated[str, Field(max_length=500)] = "",
        items: Annotated[list[Item], Field(max_length=20)] | None = None,
        rate: float = 1.0,
        way: Literal["to", "from"] = "to",
        tree: Tree | None = None,
    ) -> str:
        """Pay back."""
        done.append(f"refund {cents}")
        return "refunded"

    def making(name: str, effect: Any) -> Any:
        @tool(name=name, effect=effect)
        async def made() -> str:
            done.append(name)
            return "done"

        return made

    @tool(effect="write")
    async def words(argv: list[str]) -> str:
        """Count words."""
        done.append(f"words {argv}")
        return f"{len(argv)}"

    refused = [making("close_shop", "write"), making("forbidden", "read")]
    return {
        "clerk": [refund, making("look", "read"), making("drop_table", "dangerous"), *refused],
        "warden": [making("wipe", "write")],
        "words": [words],
    }


def policy(port: int) -> Policy:
    """Writes are denied but for what a rule allows."""

    def allow(name: str, tool: str, agent: str, **arguments: Predicate) -> Rule:
        return Rule(name=name, decide="allow", tools=(tool,), agents=(agent,), arguments=arguments)

    def unless(name: str, tool: str, agent: str, **arguments: Predicate) -> tuple[Rule, Rule]:
        """Allowed if it is so, denied if it is not, or if that cannot be told."""
        denied = {key: Not(predicate=each) for key, each in arguments.items()}
        rule = Rule(name=name, decide="deny", tools=(tool,), agents=(agent,), arguments=denied)
        return rule, allow(f"{name}, allowed", tool, agent, **arguments)

    here = Inside(roots=(".",))
    says = Command(programs=("echo", "/bin/echo", "printf"))
    listed = ("-n", "-i", "-l", "-a")
    reads = Command(programs=("cat", "ls"), only_flags=listed, words=here)
    finds = Command(programs=("grep",), only_flags=("-n", "-i"), words=here)
    counts = Command(programs=("wc",), only_flags=("-l", "--files0-from"), words=here)
    sorts = Command(programs=("sort",), no_flags=(*SORT_WRITES, *SORT_RUNS))
    tallies = Command(programs=("tally",), no_flags=("-d", "--delete"))
    docs = Inside(roots=("docs",))
    ours = Host(hosts=("*.docs.example.org",), ports=(port,))
    return Policy(
        effects={"write": "deny"},
        tools={"close_shop": "deny"},
        rules=(
            Rule(name="files", decide="allow", agents=("files",)),
            *unless("only docs", "write_file", "scribe", path=docs),
            *(
                Rule(
                    name=name,
                    decide="deny",
                    tools=("move_file",),
                    agents=("scribe",),
                    arguments={argument: Not(predicate=docs)},
                )
                for name, argument in (("only docs, from", "path"), ("only docs, to", "to"))
            ),
            allow("says", "shell", "shell", command=says),
            allow("reads", "shell", "shell", command=reads),
            allow("finds", "shell", "shell", command=finds),
            allow("counts", "shell", "shell", command=counts),
            *unless("only sorting", "sorter", "shell", command=sorts),
            Rule(
                name="never rm",
                decide="deny",
                tools=("free",),
                arguments={"command": Command(programs=("rm",))},
            ),
            allow("free", "free", "shell"),
            *unless("only counting", "words", "shell", argv=tallies),
            Rule(name="behind walls", decide="allow", agents=("walls",)),
            *unless("only our docs", "http_fetch", "docs", url=ours),
            *unless("only small refunds", "refund", "clerk", cents=Range(max=50_000)),
            Rule(name="the warden", decide="allow", agents=("warden",), tools=("wipe",)),
        ),
    )


class Asker:
    """A model that asks for all calls of a run at once, and keeps what it reads of each."""

    def __init__(self) -> None:
        self.asks: list[Case] = []
        self.read: dict[str, ResultPart] = {}
        self.model = Scripted(self._answer, window=10**9)

    def _answer(self, request: ModelRequest) -> Any:
        if request.turn == 0:
            return [ReplyCall(name=each.tool, arguments=each.arguments) for each in self.asks]
        parts = [part for message in request.messages for part in message.parts]
        self.read = {part.id: part for part in parts if isinstance(part, ResultPart)}
        return "done"


class Matrix:
    """One runtime with an agent for each kind of temptation, and the place around it."""

    def __init__(self, root: Path) -> None:
        self.place = Place(root)
        web_cases.furnish(self.place)
        self.done: list[str] = []
        tools = shop(self.done)
        fetch = http_tool(
            allow_addresses=[FRONT],
            allow_ports=[self.place.port],
            resolver=self.place.resolve,
            timeout=5.0,
        )
        walls = [
            shell_tool(name="confined", effect="write"),
            python_tool(name="program", effect="write"),
        ]
        words = [shell_tool(name=name, effect="write") for name in ("shell", "sorter", "free")]
        hands: dict[str, Any] = {
            "files": FILE_TOOLS,
            "scribe": FILE_TOOLS,
            "shell": [*words, *tools["words"]],
            "walls": walls,
            "web": [fetch],
            "docs": [fetch],
            "clerk": tools["clerk"],
            "warden": tools["warden"],
        }
        own = {"clerk": Policy(tools={"forbidden": "deny"})}
        self.askers = {name: Asker() for name in hands}
        agents = [
            Agent(
                name,
                self.askers[name].model,
                tools=list(given),
                builtins=(),
                limits=WIDE,
                repairs=10_000,
                policy=own.get(name),
            )
            for name, given in hands.items()
        ]
        self.runtime = Runtime(
            ":memory:",
            agents,
            policy=policy(self.place.port),
            workspace=Workspace(self.place.space),
        )

    async def play(self) -> Report:
        """Ask for everything hostile, look around, and then for what only looks so."""
        parts = (path_cases, shell_cases, web_cases, schema_cases)
        cases = [case for part in parts for case in part.hostile(self.place)]
        report = Report()
        began = time.process_time()
        for agent in self.askers:
            refusals = [each for each in cases if each.agent == agent and each.hostile]
            await self._hostile(report, agent, refusals)
        cases = [case for part in parts for case in part.benign(self.place)]
        for agent in self.askers:
            await self._benign(report, agent, [each for each in cases if each.agent == agent])
        report.cpu_s = time.process_time() - began
        return report

    async def _ask(self, agent: str, cases: list[Case]) -> list[ResultPart | None]:
        asker = self.askers[agent]
        asker.asks, asker.read = cases, {}
        run = await self.runtime.run_async(agent, "Do as you are asked", approvals="none")
        if run.status != "completed":
            raise AssertionError(f"the run of {agent} is {run.status}: {run.text or run.reason}")
        return [asker.read.get(f"c{n}") for n in range(1, len(cases) + 1)]

    async def _hostile(self, report: Report, agent: str, cases: list[Case]) -> None:
        if not cases:
            return
        outside, inside = self.place.outside_now(), self.place.inside_now()
        done = list(self.done)
        read = await self._ask(agent, cases)
        happened = _changes(outside, self.place.outside_now())
        if any(not case.holds for case in cases):
            happened += _changes({"workspace": inside}, {"workspace": self.place.inside_now()})
        happened += self.done[len(done) :]
        for case, part in zip(cases, read, strict=True):
            row = report.rows.setdefault(case.kind, Row())
            row.tried += 1
            said = part.result if part is not None else ""
            if SECRET in said:
                happened.append(f"{_about(case)} was told what stands outside")
            if case.holds:
                row.held += part is not None and SECRET not in said
            elif part is None or part.ok or case.says not in said:
                report.findings.append(
                    f"{_about(case)}: {case.says!r} is not named: {said[:300]!r}"
                )
            else:
                row.refused += 1
        report.rows[cases[0].kind].outside += len(happened)
        report.findings += [f"{agent}: {each}" for each in happened]

    async def _benign(self, report: Report, agent: str, cases: list[Case]) -> None:
        if not cases:
            return
        reached, outside = self.place.inner.met, self.place.outside_now()
        for case, part in zip(cases, await self._ask(agent, cases), strict=True):
            row = report.rows.setdefault(case.kind, Row())
            row.wanted += 1
            if part is not None and part.ok and _ended_well(case, part.result):
                row.passed += 1
            else:
                said = part.result if part is not None else "it was not asked"
                report.findings.append(f"{_about(case)} was refused: {said[:300]!r}")
        for each in _changes(outside, self.place.outside_now()):
            report.findings.append(f"{agent}, benign: {each}")
        assert reached == self.place.inner.met

    async def close(self) -> None:
        await self.runtime.close_async()
        self.place.close()


def _ended_well(case: Case, said: str) -> bool:
    """A command that passed the gate has run, and said that it ended well."""
    return case.kind not in {"shell", "walls"} or '"exit_code":0' in said or case.tool == "words"


def _about(case: Case) -> str:
    return f"{case.kind}: {case.tool[:60]!r} {case.arguments[:160]!a}"


def _changes(before: dict[str, Any], after: dict[str, Any]) -> list[str]:
    return [f"{name} changed" for name in before if before[name] != after[name]]


async def play(root: Path) -> Report:
    """Play the whole matrix in an empty folder."""
    matrix = Matrix(root)
    try:
        return await matrix.play()
    finally:
        await matrix.close()


def main() -> int:
    """Print the table; 1 when a promise is broken."""
    with tempfile.TemporaryDirectory(prefix="cairn-matrix-") as folder:
        report = asyncio.run(play(Path(folder)))
    print(report.table())
    return 1 if report.findings else 0


if __name__ == "__main__":
    sys.exit(main())
