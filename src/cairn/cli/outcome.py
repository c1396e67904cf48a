"""How a run stands, said at the end of a command: its text, what waits for people, what next."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING, Any

import msgspec

from cairn.cli.hints import Hints
from cairn.cli.paint import console, line, styled
from cairn.cli.plain import (
    WANTED,
    count,
    json_line,
    money,
    reasons,
    span,
    visible,
    visible_line,
)
from cairn.cli.say import write
from cairn.cli.shown import facts
from cairn.core.lifecycle import ENDED
from cairn.core.messages import parse_object
from cairn.core.requests import Request
from cairn.core.terms import ApprovalTerms
from cairn.core.visible import as_read
from cairn.engine.clock import SystemClock

if TYPE_CHECKING:
    from cairn.engine.result import Run

SHOWN_DETAIL = 2_000
"""Characters of a call that are shown to whoever decides it; what is left out is said."""


def print_outcome(run: Run, hints: Hints) -> None:
    """The run's text, a line of figures, and whatever people have to do."""
    out = console()
    out.print(visible(run.text) if run.text else "(no text)", soft_wrap=True)
    out.print(
        line(
            f"run {run.id}",
            styled(run.status),
            reasons(run.reason.split(", ")) if run.status == "waiting" else "",
            f"limit {run.limit}" if run.limit else "",
            run.error_class,
            count(run.steps, "step"),
            count(run.calls, "call"),
            f"{run.usage.tokens:,} tokens",
            money(run.usage.micro_usd),
        ),
        soft_wrap=True,
    )
    for citation in run.citations:
        out.print(line(f"[{citation.mark}] {citation.source.uri}", citation.source.span))
    for made in run.artifacts:
        out.print(line(f"artifact {made.id}", made.name, made.media_type, f"{made.size:,} bytes"))
    for item in run.pending:
        print_pending(item, hints)
    hint = next_step(run, hints)
    if hint:
        out.print(hint, soft_wrap=True)


def print_pending(item: Request, hints: Hints) -> None:
    """One thing that waits for people, what there is to know of it, and how to decide it."""
    out = console()
    what = WANTED.get(item.kind, item.kind)
    out.print(line(item.id, styled_kind(item), what, _until(item)), soft_wrap=True)
    if shown := detail(item, hints):
        out.print(f"    {shown}", soft_wrap=True)
    for fact in facts(item):
        out.print(f"    {fact}", soft_wrap=True)
    if _is_over(item):
        run = item.id.rpartition("/")[0]
        out.print("    it has expired: nobody can decide it any more", soft_wrap=True)
        out.print(f"    cairn resume {run}{hints.resume}", soft_wrap=True)
        return
    for command in commands(item):
        out.print(f"    {command}{hints.decide}", soft_wrap=True)


def styled_kind(item: Request) -> Any:
    """The tool, or what is asked, in the colour of waiting."""
    other = "takeover" if item.kind == "takeover" else "question"
    return line(item.tool or other, style="yellow")


def detail(item: Request, hints: Hints) -> str:
    """What is asked or would be done."""
    if item.kind == "input":
        asked = item.question or (parse_object(item.detail) or {}).get("question", "")
        return visible_line(str(asked), SHOWN_DETAIL)
    if not item.tool:
        held = f"{item.detail} acts in the agent's place" if item.kind == "takeover" else ""
        return visible_line(held, SHOWN_DETAIL)
    whole = as_read(item.detail)
    left_out = len(whole) - SHOWN_DETAIL
    more = (
        f" [{left_out:,} more characters: cairn inbox --json{hints.decide}]" if left_out > 0 else ""
    )
    shown = " ".join(visible(whole[:SHOWN_DETAIL]).split())
    return f"{visible_line(item.tool, 60)}({shown}{more})"


def commands(item: Request) -> list[str]:
    """How to decide it from a shell, where the store is found by itself."""
    match item.kind:
        case "approval":
            who = _as_whom(item.terms)
            return [f"cairn approve {item.id}{who}", f"cairn deny {item.id}{who} -m REASON"]
        case "input":
            return [f"cairn answer {item.id} TEXT"]
        case "takeover" if not item.call:
            return [f"cairn takeover {item.id.removesuffix('/takeover')} --hand-back"]
        case "takeover":
            return [f"cairn resolve {item.id} --happened --result TEXT"]
        case "in_doubt":
            return [
                f"cairn resolve {item.id} --happened --result TEXT",
                f"cairn resolve {item.id} --not-happened",
                f"cairn resolve {item.id} --give-up",
            ]


def _as_whom(terms: ApprovalTerms | None) -> str:
    """The options by which a person says that the terms let them decide."""
    if terms is None:
        return ""
    roles = (each[0] if len(each) == 1 else "ROLE" for each in terms.needed)
    said = "".join(f" --role {shlex.quote(role)}" for role in roles)
    return f"{said} --as NAME" if terms.other_person else said


def next_step(run: Run, hints: Hints) -> str:
    """What to do to go on with a run, once all is decided that it may be waiting for."""
    resume = f"cairn resume {run.id}{hints.resume}"
    if run.status == "paused":
        return f"To go on: {resume}"
    if run.status in {"running", "queued"}:
        return f"To go on: {resume}, or a worker"
    if run.pending and run.status == "waiting":
        return f"After that: {resume}, or the same command again, or a worker"
    if run.status in {"failed", "stopped"}:
        when = "After that, to go on" if run.pending else "To go on"
        return f"{when} as a new run: cairn retry {run.id}{hints.drive}"
    return ""


def print_json(value: Any) -> None:
    """One JSON object on one line."""
    write(json_line(value))


def run_object(run: Run) -> dict[str, Any]:
    """A run as JSON people's programs read: every field, defaults too."""
    found: dict[str, Any] = {name: getattr(run, name) for name in run.__struct_fields__}
    found["output"] = _plain_output(run.output)
    found["pending"] = [pending_object(item) for item in run.pending]
    found["usage"] = msgspec.structs.asdict(run.usage)
    found["ended"] = run.status in {status.value for status in ENDED}
    return found


def pending_object(item: Request) -> dict[str, Any]:
    """A thing that waits, every field, and the run it belongs to."""
    found = {"run": item.id.rpartition("/")[0], **msgspec.structs.asdict(item)}
    found["principal"] = msgspec.structs.asdict(item.principal)
    found["terms"] = None if item.terms is None else msgspec.structs.asdict(item.terms)
    found["files"] = [msgspec.structs.asdict(file) for file in item.files]
    return found


def _plain_output(output: Any) -> Any:
    dump = getattr(output, "model_dump", None)
    return dump(mode="json") if callable(dump) else output


def _is_over(item: Request) -> bool:
    """Whether it was asked too long ago, and nothing has gone on since."""
    return 0 < item.expires_at <= SystemClock().now_us()


def _until(item: Request) -> str:
    if not item.expires_at:
        return ""
    rest = item.expires_at - SystemClock().now_us()
    return f"expires in {span(rest)}" if rest > 0 else "expired"
