"""The command `budgets`: how the budgets of a store stand, and counting anew."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from cairn.cli import exits, options
from cairn.cli.outcome import print_json
from cairn.cli.place import locate, with_store
from cairn.cli.say import complain, print_line
from cairn.core.budgets import MEASURES, Standing, agents_in, shown
from cairn.core.moments import in_utc
from cairn.core.spending import amount
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.ports import RunFilter


def budgets(
    *,
    rebuild: Annotated[
        bool, typer.Option("--rebuild", help="First count anew from the journals.")
    ] = False,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List budgets and what is used of them now.

    One line for each budget and whom it counts, with what is used, reserved and allowed. Times
    are UTC. A budget of an agent that has no run in the store is said: the name may be misspelt.
    After --rebuild it exits with 1 if a counter was not right; it is right then.
    """
    now = SystemClock().now_us()

    async def look(client: Client) -> tuple[list[str], list[Standing], list[str]]:
        wrong = await client.store.recount(now) if rebuild else []
        found = await client.store.budgets(now)
        idle = []
        for budget, agent in dict.fromkeys(agents_in(standing.cap for standing in found)):
            if not await client.runs(RunFilter(agent=agent, limit=1)):
                idle.append(
                    f"budget {budget} counts agent {agent!r}, of which there is no run here"
                )
        return wrong, found, idle

    wrong, found, idle = with_store(locate(store, app), look, words=False)
    for text in (*wrong, *idle):
        complain(text)
    for standing in found:
        if json:
            print_json(standing_object(standing))
        else:
            print_line(_told(standing))
    if not found and not json:
        print_line("no budgets stand in this store")
    if wrong:
        raise typer.Exit(exits.REFUSED)


def standing_object(standing: Standing) -> dict[str, Any]:
    """How a budget stands, as one JSON object; caps that bound nothing are null."""
    cap, spend = standing.cap, standing.spend
    return {
        "budget": cap.name,
        "per": cap.per,
        "window": cap.window,
        "only": {only.scope: only.names for only in cap.only},
        "key": shown(standing.key),
        "start": standing.start,
        "resets_at": standing.resets_at,
        "used": {measure: getattr(spend, measure) for measure in MEASURES},
        "reserved": {"tokens": spend.held_tokens, "micro_usd": spend.held_micro_usd},
        "cap": {measure: cap.bound(measure) for measure in MEASURES},
    }


def _told(standing: Standing) -> str:
    cap, spend = standing.cap, standing.spend
    nobody = {"store": "all runs", "tenant": "no tenant"}.get(cap.per, f"no {cap.per} yet")
    whose = shown(standing.key) or nobody
    parts = []
    for measure in MEASURES:
        bound = cap.bound(measure)
        if bound is None:
            continue
        held = spend.total(measure) - getattr(spend, measure)
        reserved = f" and {amount(measure, held)} reserved" if held else ""
        parts.append(
            f"{amount(measure, getattr(spend, measure))}{reserved} of {amount(measure, bound)}"
        )
    return f"{cap.name}  {whose}: {', '.join(parts)}; resets {_utc(standing.resets_at)}"


def _utc(us: int) -> str:
    return in_utc(us, "%Y-%m-%d %H:%M UTC")
