"""Commands that change a run's course: `edit` what comes next, `fork` from an earlier point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli import exits, options
from cairn.cli.approval_form import unchecked
from cairn.cli.changed import tell
from cairn.cli.decide_commands import say_who_goes_on
from cairn.cli.drive import Shown, drive_to_report, leave_to_others
from cairn.cli.place import Place, locate, open_app, runtime_of, with_app, with_store
from cairn.cli.plain import arguments_line, visible_line
from cairn.cli.say import complain, print_line
from cairn.core.forks import Effect, effects_after
from cairn.engine.client import Client
from cairn.engine.given import Edits, check_seq, commands_of
from cairn.errors import ConfigError, Refused
from cairn.ports import RunInfo

if TYPE_CHECKING:
    from cairn.runtime import Runtime

SHOWN = 20
Arguments = Annotated[
    list[str] | None,
    typer.Option("--arguments", metavar="JSON", help="Its new arguments, whole."),
]
Calls = Annotated[
    list[str] | None,
    typer.Option("--call", metavar="CALL", help="A call that has not started: c3."),
]
Plan = Annotated[
    str | None,
    typer.Option(
        "--plan",
        metavar="FILE|TEXT",
        help="The new plan: a line for each item, marked [ ], [>], [x] or [-]; - reads it from "
        "standard input.",
    ),
]
Words = Annotated[str, typer.Option("-m", "--message", help="Said to the agent at its next turn.")]


def edit(  # noqa: PLR0913 - one parameter for each option of the command
    run: options.RunId,
    *,
    call: Calls = None,
    arguments: Arguments = None,
    plan: Plan = None,
    message: Words = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Change what a live run does next: a call, its plan, a message.

    Only a call that has not started can be changed; --call and --arguments may be given several
    times. The new arguments are checked and authorised anew: an approval given before is void.
    The model reads that a person changed the call.
    """
    edits = _edits(call, arguments, plan, message)
    if not edits:
        raise ConfigError("edit", "nothing is changed", "Pass --call, --plan or --message")
    actor, place = options.who(by), locate(store, app, by)

    async def change(runtime: Runtime) -> int:
        return await _edit(runtime, place, run, edits, actor, json=json)

    if place.has_app and edits.get("arguments"):  # who knows the tools can say what fits
        raise typer.Exit(with_app(place, change))

    async def alone(client: Client) -> int:
        return await change(runtime_of(client))

    raise typer.Exit(with_store(place, alone))


async def _edit(
    runtime: Runtime,
    place: Place,
    run: str,
    edits: Edits,
    actor: str,
    *,
    json: bool,
) -> int:
    for call, given in edits.get("arguments", {}).items():
        edited = await runtime.edit_async(run, call=call, arguments=given, by=actor)
        said = f"edited {run}/{call}: the arguments are {visible_line(str(given), 200)}"
        tell(json, "edited", f"{run}/{call}", said, run=run)
        if edited.note:
            complain(unchecked(edited.note, place))
    if (plan := edits.get("plan")) is not None:
        await runtime.edit_async(run, plan=plan, by=actor)
        tell(json, "edited", run, f"edited {run}: the plan", run=run)
    if message := edits.get("message"):
        await runtime.edit_async(run, message=message, by=actor)
        tell(json, "edited", run, f"edited {run}: a message waits for its next turn", run=run)
    if not json:
        await say_who_goes_on(runtime.client, place, run)
    return exits.DONE


def fork(  # noqa: PLR0913 - one parameter for each option of the command
    run: options.RunId,
    *,
    at: Annotated[int, typer.Option("--at", metavar="SEQ", help="The last event that is shared.")],
    id: Annotated[
        str, typer.Option("--id", help="Id of the new run; a fresh one by default.")
    ] = "",
    call: Calls = None,
    arguments: Arguments = None,
    plan: Plan = None,
    message: Words = "",
    yes: Annotated[
        bool, typer.Option("--yes", help="Even if the run has written something after that event.")
    ] = False,
    drive: Annotated[
        bool, typer.Option("--drive/--no-drive", help="Go on with the new run at once.")
    ] = True,
    json: options.Json = False,
    quiet: options.Quiet = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Go on from an event of a run as a new run, with edits.

    What the old run did after that event stays done in the world, and the new run may do it again:
    such effects are listed, and without --yes nothing is forked then. Exit code as for run. Without
    an application that knows its agent the new run is made, but not driven: the exit code is 5.
    """
    edits = _edits(call, arguments, plan, message)
    place, actor = locate(store, app, by), options.who(by)
    shown = Shown(place=place, json=json, quiet=quiet, by=actor, left=not drive)

    async def prepare(client: Client) -> str:
        info = await client.store.info(run)
        check_seq(run, at, info.head)
        done = effects_after(await client.store.read(run), at)
        if done and not json:
            _show_what_stays(info, at, done)
        if done and not yes:
            count = "1 effect" if len(done) == 1 else f"{len(done)} effects"
            raise Refused(
                f"nothing was forked: run {run} had {count} after event {at}, and a fork may do "
                "the same again. To fork all the same: --yes"
            )
        return await client.fork(run, at, edits=commands_of(edits), new=id, actor=actor)

    if drive and place.has_app:
        runtime = open_app(place)
        raise typer.Exit(
            drive_to_report(runtime, lambda: prepare(runtime.client), runtime.watch_async, shown)
        )

    async def hand_over(client: Client) -> int:
        return await leave_to_others(client.store, await prepare(client), shown)

    raise typer.Exit(with_store(place, hand_over, words=bool(edits or id)))


# ---------------------------------------------------------------- what they share


def _edits(
    calls: list[str] | None, arguments: list[str] | None, plan: str | None, message: str
) -> Edits:
    """The edits that the options name, checked as far as that needs no run."""
    calls, arguments = calls or [], arguments or []
    if len(calls) != len(arguments):
        raise ConfigError(
            "--call", "a call and its arguments belong together", "Pass --call c3 --arguments JSON"
        )
    edits: Edits = {}
    if calls:
        named = [call.rpartition("/")[2] for call in calls]
        edits["arguments"] = dict(zip(named, arguments, strict=True))
    if plan is not None:
        edits["plan"] = _text_of(plan)
    if message:
        edits["message"] = message
    commands_of(edits)
    return edits


def _text_of(plan: str) -> str:
    if plan == "-":
        return sys.stdin.read()
    try:
        file = Path(plan)
        return file.read_text(encoding="utf-8") if file.is_file() else plan
    except (OSError, ValueError):  # a text that cannot be a file's name
        return plan


def _show_what_stays(info: RunInfo, at: int, done: list[Effect]) -> None:
    """What a fork should know of the world: what its parent did after the point."""
    more = "" if info.status in exits.ENDED else f"; it is {info.status} and may do more"
    print_line(f"what run {info.run} did after event {at} stays done{more}:")
    for effect in done[:SHOWN]:
        what = f"{visible_line(effect.tool, 60)}({arguments_line(effect.arguments, 160)})"
        print_line(f"  event {effect.seq}: {what} {effect.fate}")
    if len(done) > SHOWN:
        print_line(f"  and {len(done) - SHOWN} more")
