"""The command `audit`: who decided what in all runs of a store, by which rule."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from cairn.cli import options
from cairn.cli.inspecting import inspector
from cairn.cli.place import locate
from cairn.cli.plain import count, day, json_line, visible
from cairn.cli.say import complain, print_line, write
from cairn.core.messages import Record
from cairn.core.moments import in_utc
from cairn.core.names import listed, nearest
from cairn.core.views.audit import DECISIONS, AuditLine
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError

FIELDS = AuditLine.__struct_fields__
_COMPUTED = "[=+\\-@\uff0b\uff0d\uff1d\uff20]"
FORMULA = re.compile(rf"\s*{_COMPUTED}")
"""How a cell begins that a spreadsheet would compute; the marks count in their wide form too."""
SPLIT = re.compile(rf"(;\s*)({_COMPUTED})")
"""The same behind a mark that some spreadsheets take for the end of a cell."""


class Wanted(Record):
    """Which decisions to tell of; empty fields match all."""

    since: int = 0
    agent: str = ""
    principal: str = ""
    who: str = ""
    tool: str = ""
    decision: str = ""

    def among(self, lines: Iterable[AuditLine]) -> Iterator[AuditLine]:
        """Those of the lines; says afterwards which name that was asked for stands in none."""
        asked = ("agent", "principal", "who", "tool")
        missing = {field for field in asked if getattr(self, field)}
        for line in lines:
            named = {field: {getattr(line, field)} for field in missing}
            named.setdefault("tool", set()).add(line.instead_of)
            missing -= {field for field in missing if getattr(self, field) in named[field]}
            if self.matches(line):
                yield line
        for field in sorted(missing):
            complain(f"no record names {field} {getattr(self, field)!r}")

    def matches(self, line: AuditLine) -> bool:
        """Whether a line is one of them."""
        return (
            line.at >= self.since
            and self.agent in {"", line.agent}
            and self.principal in {"", line.principal}
            and self.who in {"", line.who}
            and self.tool in {"", line.tool, line.instead_of}
            and self.decision in {"", line.decision, line.decision.split(" ")[0]}
        )


def audit(  # noqa: PLR0913 - one option for each thing to ask by
    *,
    since: Annotated[
        str, typer.Option("--since", metavar="WHEN", help="An age as 7d, or a date as 2026-03-01.")
    ] = "",
    run: Annotated[
        list[str] | None, typer.Option("--run", help="Only of this run; may be repeated.")
    ] = None,
    agent: Annotated[str, typer.Option("--agent", help="Only of this agent's runs.")] = "",
    principal: Annotated[str, typer.Option("--principal", help="Only of this one's runs.")] = "",
    who: Annotated[str, typer.Option("--who", help="Only what this person decided.")] = "",
    tool: Annotated[str, typer.Option("--tool", help="Only about this tool.")] = "",
    decision: Annotated[
        str, typer.Option("--decision", help="Only these, as denied or 'budget stop'.")
    ] = "",
    json: options.Json = False,
    as_csv: Annotated[bool, typer.Option("--csv", help="As a table for spreadsheets.")] = False,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE", help="Default: standard output.")
    ] = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Tell who decided what, and by which rule.

    One line for each decision of every run. The newest run comes first, each in its own order;
    grants, budgets and removals come last.
    With --json each line has the seq and hash of its record: `cairn verify --heads FILE` compares
    them with a store later. In --csv, text that a spreadsheet would compute begins with a quote.
    """
    if json and as_csv:
        raise ConfigError("--csv", "it cannot be JSON as well", "Pass --json or --csv")
    _check_decision(decision)
    wanted = Wanted(
        since=_moment(since),
        agent=agent,
        principal=principal,
        who=who,
        tool=tool,
        decision=decision,
    )
    shape = _as_json if json else _as_csv if as_csv else _as_text
    with inspector(locate(store, app)) as look:
        found = wanted.among(look.audit(run or (), wanted.since))
        if not out:
            for text in shape(found):
                write(text)
        else:
            _to_file(out, shape(found))


def _check_decision(decision: str) -> None:
    known = {*DECISIONS, *(each.split(" ")[0] for each in DECISIONS)}
    if decision and decision not in known:
        close = nearest(decision, sorted(known))
        meant = f"Did you mean {' or '.join(map(repr, close))}? " if close else ""
        fix = f"{meant}They are {listed(DECISIONS, len(DECISIONS))}"
        raise ConfigError("--decision", f"{decision!r} is no decision", fix)


def _to_file(out: str, lines: Iterator[str]) -> None:
    if Path(out).is_file():
        raise ConfigError("--out", f"{out} exists", "Name another file")
    written = 0
    try:
        with Path(out).open("w", encoding="utf-8", newline="") as file:
            for text in lines:
                file.write(text)
                written += 1
    except OSError as error:
        problem = f"{out} cannot be written: {error.strerror}"
        raise ConfigError("--out", problem, "Name another file") from error
    print_line(f"wrote {count(written, 'line')} to {out}")


def _moment(text: str) -> int:
    """A point in time, microseconds since 1970: `7d` ago, or a date or time of UTC."""
    if not text:
        return 0
    if re.fullmatch(r"\d{1,6}[smhdw]", text.strip()):
        return SystemClock().now_us() - options.seconds_of(text, "--since") * 1_000_000
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        fix = "Write an age as 7d or 12h, or a date as 2026-03-01 (UTC)"
        raise ConfigError("--since", f"{text!r} is no time", fix) from error
    if found.tzinfo is None:
        found = found.replace(tzinfo=UTC)
    return int(found.timestamp() * 1_000_000)


# ---------------------------------------------------------------- shapes


Shape = Callable[[Iterator[AuditLine]], Iterator[str]]


def _as_json(found: Iterator[AuditLine]) -> Iterator[str]:
    for line in found:
        yield json_line({field: getattr(line, field) for field in FIELDS})


def _as_csv(found: Iterator[AuditLine]) -> Iterator[str]:
    yield _row([*FIELDS])
    for line in found:
        values = msgspec.structs.asdict(line)
        values["at"] = _iso(line.at)
        yield _row([value if isinstance(value, int) else cell(value) for value in values.values()])


def _iso(us: int) -> str:
    fraction = f".{us % 1_000_000:06d}" if us % 1_000_000 else ""
    return in_utc(us, f"%Y-%m-%dT%H:%M:%S{fraction}+00:00")


def cell(text: str) -> str:
    """Text that a spreadsheet shows and does not compute, on one line."""
    safe = SPLIT.sub(r"\1'\2", " ".join(visible(text).split()))
    return f"'{safe}" if FORMULA.match(safe) else safe


def _row(values: list[Any]) -> str:
    text = io.StringIO()
    csv.writer(text).writerow(values)
    return text.getvalue()


def _as_text(found: Iterator[AuditLine]) -> Iterator[str]:
    for line in found:
        place = f"{line.run}/{line.call}" if line.call else line.run
        pieces = [
            day(line.at),
            place,
            f"{line.tool} in place of {line.instead_of}" if line.instead_of else line.tool,
            f"{line.decision} by {line.who}" if line.who else line.decision,
            f"({line.rule})" if line.rule else "",
            line.detail,
            f"#{line.seq}",
        ]
        yield " ".join(" ".join(visible(each).split()) for each in pieces if each) + "\n"
