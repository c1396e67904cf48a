"""`cairn context`: what a request held, and taking a compaction back."""

from __future__ import annotations

from typing import Annotated

import typer

from cairn.cli import exits, options
from cairn.cli.changed import tell
from cairn.cli.decide_commands import say_who_goes_on
from cairn.cli.manifest import print_manifest
from cairn.cli.place import locate, runtime_of, with_store
from cairn.cli.verbs import Verbs
from cairn.engine.client import Client
from cairn.engine.load import manifest_of

context = Verbs(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="What a model is sent: show it, or undo a compaction.",
)


@context.command()
def show(
    run: options.RunId,
    step: Annotated[int, typer.Argument(min=1, help="Number of the step.")],
    *,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Show what the model request of a step held, as `cairn trace RUN --context STEP` does."""
    held = with_store(locate(store, app), lambda c: manifest_of(c.store, run, step), words=False)
    print_manifest(held, json=json)


@context.command()
def undo(
    run: options.RunId,
    *,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Take the last compaction of a live run back, so that what it stood for is sent again.

    What does not fit into the model's window is condensed anew before the next request.
    """
    actor, place = options.who(by), locate(store, app, by)

    async def change(client: Client) -> int:
        await runtime_of(client).restore_context_async(run, by=actor)
        tell(json, "taken back", run, f"{run}: the last compaction is taken back")
        if not json:
            await say_who_goes_on(client, place, run)
        return exits.DONE

    raise typer.Exit(with_store(place, change, words=False))
