"""The command `replay`: whether the application would decide today as it did then."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Annotated, Any

import typer

from cairn.cli import exits, options
from cairn.cli.outcome import print_json
from cairn.cli.paint import console
from cairn.cli.place import locate, open_app
from cairn.cli.plain import count, visible, visible_line
from cairn.cli.say import print_line, write
from cairn.core.replay import Decision, Difference, Replay
from cairn.engine.numbers import MOST_LISTED
from cairn.errors import ConfigError
from cairn.ports import RunFilter

SHOWN = 60
"""Lines of a diff that are shown."""


Limit = Annotated[int, typer.Option("--limit", min=1, max=MOST_LISTED, help="How many with --all.")]


def replay(  # noqa: PLR0913 - one parameter for each option of the command
    run: Annotated[
        str, typer.Argument(metavar="[RUN]", help="Id of the run.", show_default=False)
    ] = "",
    *,
    agent: Annotated[
        str,
        typer.Option("--agent", help="Decide as this agent; with --all, only runs of this agent."),
    ] = "",
    everything: Annotated[
        bool, typer.Option("--all", help="The newest runs instead of one; a line for each.")
    ] = False,
    limit: Limit = 100,
    limits: Annotated[
        bool, typer.Option("--limits", help="Also hold runs to the limits their agent has now.")
    ] = False,
    prompts: Annotated[
        bool,
        typer.Option("--prompts", help="Call instructions that are a function, for each request."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Exit with 1 also when only a prompt or the like differs."),
    ] = False,
    ignore: Annotated[
        list[str] | None,
        typer.Option("--ignore", metavar="WHAT", help="Overlook it: model, the model's name."),
    ] = None,
    steps: Annotated[bool, typer.Option("--steps", help="Show every decision.")] = False,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Decide a run anew, offline, with the application as it is now.

    Replies, results, what people decided and the time come from the journal. No model and no tool
    is called, and nothing is written. Exit code 0: the run would go the same way; 1: it would not.
    """
    if bool(run) == everything:
        raise ConfigError("RUN", "one run or all of them", "Name a run, or pass --all")
    runtime = open_app(locate(store, app))
    again = partial(
        runtime.replay_async,
        limits="agent" if limits else None,
        prompts=prompts,
        ignore=tuple(ignore or ()),
    )

    async def whole() -> list[Replay]:
        try:
            if not everything:
                return [await again(run, agent=agent or None)]
            listed = await runtime.store.runs(RunFilter(agent=agent, limit=limit))
            known = runtime.host.agents
            return [await again(i.run) for i in listed if i.agent in known and not i.erased]
        finally:
            await runtime.close_async()

    found = asyncio.run(whole())
    for each in found:
        if json:
            print_json(replay_object(each, steps=steps))
        elif everything:
            _print_line(each)
        else:
            _print_whole(each, steps=steps)
    if everything and not json:
        _print_sum(found)
    if not all(each.same and not (strict and _changed(each)) for each in found):
        raise typer.Exit(exits.REFUSED)


# ---------------------------------------------------------------- one run


def replay_object(found: Replay, *, steps: bool = False) -> dict[str, Any]:
    """A replay as one JSON object; `steps` adds every decision."""
    said: dict[str, Any] = {
        "run": found.run,
        "same": found.same,
        "events": found.events,
        "decisions": len(found.steps),
        "divergence": None if found.divergence is None else _object(found.divergence),
        "changes": [_object(change) for change in found.changes],
    }
    if steps:
        said["steps"] = [
            {"seq": s.seq, "step": s.step, "recorded": s.recorded, "now": s.now}
            for s in found.steps
        ]
    return said


def _object(difference: Difference) -> dict[str, Any]:
    said = {name: getattr(difference, name) for name in difference.__struct_fields__}
    return {**said, "diff": difference.diff}


def _changed(found: Replay) -> bool:
    """Whether anything differs that was not to be overlooked."""
    return any(change.kind != "ignored" for change in found.changes)


def _print_whole(found: Replay, *, steps: bool) -> None:
    print_line(f"{_heading(found)} ({count(found.events, 'event')}, nothing was called)")
    for change in found.changes:
        also = f", in {change.times} places" if change.times > 1 else ""
        how = "ignored" if change.kind == "ignored" else "changed"
        print_line(f"  {how} from event {change.seq} on: {change.what}{also}")
        _print_diff(change)
    if found.divergence is not None:
        print_line(f"  {found.divergence.what}")
        _print_diff(found.divergence)
    if steps:
        _print_steps(found.steps)
    elif found.divergence is not None:
        at = next(i for i, s in enumerate(found.steps) if s.seq == found.divergence.seq)
        _print_steps(found.steps[max(at - 3, 0) : at + 1])


def _heading(found: Replay) -> str:
    taken = count(len(found.steps), "decision")
    if found.divergence is None:
        same = "the same way, with changes" if _changed(found) else "the same way"
        return f"{found.run}: {same}, {taken}"
    where = f"event {found.divergence.seq}"
    where += f" (step {found.divergence.step})" if found.divergence.step else ""
    return f"{found.run}: goes elsewhere at {where}"


def _print_diff(difference: Difference) -> None:
    lines = visible(difference.diff).splitlines()
    for each in lines[:SHOWN]:
        write(f"    {each}\n")
    if len(lines) > SHOWN:
        write(f"    … {count(len(lines) - SHOWN, 'line')} more: --json shows all\n")


def _print_steps(steps: tuple[Decision, ...]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("event", "step"):
        table.add_column(name, justify="right")
    table.add_column("recorded", overflow="fold", ratio=1)
    table.add_column("now", overflow="fold", ratio=1)
    for each in steps:
        now = "the same" if each.same else visible_line(each.now, 400)
        style = "" if each.same else "red" if each.now else "dim"
        cells = (str(each.seq), str(each.step or ""), visible_line(each.recorded, 400), now)
        table.add_row(*cells, style=style)
    console(table=True).print(table)


# ---------------------------------------------------------------- many runs


def _print_line(found: Replay) -> None:
    what = "" if found.divergence is None else f": {found.divergence.what}"
    changed = sorted({change.kind for change in found.changes})
    noted = f" · {', '.join(changed)}" if changed and found.same else ""
    print_line(visible_line(f"{_heading(found)}{what}{noted}", 400))


def _print_sum(found: list[Replay]) -> None:
    other = sum(not each.same for each in found)
    decisions = sum(len(each.steps) for each in found)
    same = f"{len(found) - other} go the same way"
    rest = f"{other} elsewhere" if other else "none elsewhere"
    print_line(f"{count(len(found), 'run')}, {count(decisions, 'decision')}: {same}, {rest}")
