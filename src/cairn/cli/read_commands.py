"""Commands that only look: `runs`, `trace` and `inbox`."""

from __future__ import annotations

import os
from typing import Annotated, Any

import msgspec
import typer

from cairn.cli import options
from cairn.cli.drivers import aside, find_undriven, takeover, undriven
from cairn.cli.hints import Hints, hints_for
from cairn.cli.manifest import print_manifest
from cairn.cli.outcome import pending_object, print_json, print_pending
from cairn.cli.paint import console, styled
from cairn.cli.place import locate, with_store
from cairn.cli.plain import day, json_line, money, visible, visible_line
from cairn.cli.say import print_line, write
from cairn.cli.teller import LineTeller
from cairn.core import codec
from cairn.core import events as ev
from cairn.core.lifecycle import Status
from cairn.core.requests import Request
from cairn.core.views import timeline
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.engine.given import check_seq, check_session
from cairn.engine.load import manifest_of
from cairn.errors import ConfigError, UnknownRun
from cairn.ports import RunFilter, RunInfo

STORE_JOURNAL = "store"
INBOX = 1000


def runs(
    *,
    status: Annotated[
        list[str] | None, typer.Option("--status", help="Only these; may be given several times.")
    ] = None,
    agent: Annotated[str, typer.Option("--agent", help="Only of this agent.")] = "",
    session: Annotated[str, typer.Option("--session", help="Only of this session.")] = "",
    limit: options.Limit = 20,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List runs, the newest first."""
    wanted = tuple(s for given in status or () for s in given.split(","))
    known = {s.value for s in Status}
    if unknown := sorted(set(wanted) - known):
        raise ConfigError(
            "--status", f"{unknown[0]!r} is no status", f"Use one of {', '.join(sorted(known))}"
        )
    if session:
        check_session(session, "--session")
    where = RunFilter(status=wanted, agent=agent, session=session, limit=limit + 1)
    place = locate(store, app)

    async def look(client: Client) -> tuple[list[RunInfo], Hints]:
        return await client.runs(where), hints_for(place, client.store)

    found, hints = with_store(place, look, words=False)
    if json:
        for info in found[:limit]:
            print_json(msgspec.structs.asdict(info))
    elif found:
        now = SystemClock().now_us()
        _print_runs(found[:limit], now)
        if len(found) > limit:
            print_line(f"there are more: --limit {limit * 5}")
        _print_takeover([info for info in found[:limit] if undriven(info, now)], hints)
    else:
        print_line("no runs")


def _print_runs(found: list[RunInfo], now: int) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("run", "agent", "status", "steps", "tokens", "cost", "last event", "session"):
        numeric = name in {"steps", "tokens", "cost"}
        table.add_column(name, justify="right" if numeric else "left", overflow="fold")
    for info in found:
        status = styled(info.status)
        status.append(", erased" if info.erased else aside(info, now))
        table.add_row(
            info.run,
            visible(info.agent),
            status,
            str(info.steps),
            f"{info.tokens:,}",
            money(info.micro_usd),
            day(info.updated_at),
            visible_line(info.session, 40),
        )
    console(table=True).print(table)


def _print_takeover(left: list[RunInfo], hints: Hints) -> None:
    if hint := takeover(left, hints):
        print_line(hint)


def trace(
    run: options.RunId,
    *,
    json: options.Json = False,
    step: Annotated[
        int | None, typer.Option("--step", min=1, help="Only this step, whole.")
    ] = None,
    at: Annotated[
        int | None, typer.Option("--at", metavar="SEQ", help="As it stood after this event.")
    ] = None,
    context: Annotated[
        int | None,
        typer.Option("--context", metavar="STEP", min=1, help="What this step's request held."),
    ] = None,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Show all that happened in a run.

    Steps, model attempts, tool calls with verdict, approvals and attempts, times, tokens, costs,
    faults and what was done about them, changes of state, and the end. With --at the run as it
    stood after that event: its status, what it waited for, its plan and what it had used. With
    --context what the model request of a step held: each block and each part of the conversation
    with its source, size and hash, what was left out and why, and how much of the request before
    stands unchanged at its beginning.
    """
    if context is not None:
        for option, given in (("--at", at), ("--step", step)):
            if given is not None:
                fix = f"Leave {option} out: --context {context} is the request of that step"
                raise ConfigError(option, "it cannot be used together with --context", fix)
        held = with_store(
            locate(store, app), lambda c: manifest_of(c.store, run, context), words=False
        )
        print_manifest(held, json=json)
        return
    entries = with_store(locate(store, app), lambda client: _upto(client, run, at), words=False)
    if step is not None and not any(e.step == step for e in entries):
        raise UnknownRun(f"run {run} has no step {step}")
    if json:
        for entry in entries:
            if step is None or entry.step == step:
                write(json_line(event_object(run, entry)))
    elif run == STORE_JOURNAL:
        teller = LineTeller()
        for entry in entries:
            print_line(teller.tell(entry))
    else:
        from cairn.cli.tree import run_tree

        whole = (
            "COLUMNS" not in os.environ
        )  # who says how wide it is to be has it so in a pipe, too
        tree = run_tree(timeline(entries, run), step, past=at is not None)
        console(table=whole).print(tree)


async def _upto(client: Client, run: str, at: int | None) -> list[ev.Entry]:
    """The run's journal, to its head or to event `at`."""
    if at is None:
        return await client.store.read(run)
    head = (await client.store.info(run)).head
    return await client.store.read(run, upto=check_seq(run, at, head))


def event_object(run: str, entry: ev.Entry) -> dict[str, Any]:
    """An event with its header, as one JSON object."""
    event = entry.event
    return {
        "run": run,
        "seq": entry.seq,
        "at": entry.at,
        "step": entry.step,
        "actor": entry.actor,
        "type": event.TYPE,
        "name": event.NAME,
        "v": event.V,
        "data": msgspec.Raw(codec.encode(event)),
    }


def inbox(*, json: options.Json = False, store: options.Store = "", app: options.App = "") -> None:
    """Show what waits for people, over all runs, and how to decide it.

    Of a request for approval it says for whom the agent asks, which rule asks and why, who may
    decide it and until when, and which files a yes is bound to.

    Runs that could go on and that nobody drives are named at the end.
    """
    place = locate(store, app)

    async def look(client: Client) -> tuple[list[Request], list[RunInfo], Hints]:
        waiting, left = await client.pending(INBOX), await find_undriven(client.store)
        return waiting, left, hints_for(place, client.store)

    found, left, hints = with_store(place, look, words=False)
    for item in found:
        if json:
            print_json(pending_object(item))
        else:
            print_pending(item, hints)
    if not found and not json:
        print_line("nothing waits")
    if not json:
        _print_takeover(left, hints)
