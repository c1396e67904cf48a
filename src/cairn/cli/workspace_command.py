"""`cairn workspace`: what lies in the workspace of a run, and what the run has changed there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from cairn.cli import options
from cairn.cli.outcome import print_json
from cairn.cli.place import locate, open_app
from cairn.cli.plain import count, visible, visible_line
from cairn.cli.say import complain, print_line
from cairn.cli.verbs import Verbs

if TYPE_CHECKING:
    from cairn.workspace import Workspace

T = TypeVar("T")
MODE = 0o7777
PATH_CHARS = 400

workspace = Verbs(
    rich_markup_mode=None,
    no_args_is_help=True,
    help="Look at the workspace of a run: the application says where it is.",
)


@workspace.command("list")
def list_(
    run: options.RunId,
    *,
    limit: options.Limit = 1_000,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List what lies in the workspace of a run; links are listed, and not followed."""
    found = _looked(run, store, app, lambda place: place.list(limit=limit))
    for each in found.found:
        path = "/".join(each.parts)
        if json:
            print_json({"path": visible(path), "kind": each.kind, "size": each.size})
        else:
            size = f"{each.size:>12,}" if each.kind == "file" else f"{each.kind:>12}"
            print_line(f"{size}  {visible_line(path, PATH_CHARS)}")
    if not found.found and not json:
        print_line("nothing lies there")
    if found.cut:
        complain("there is more: pass a larger --limit")


@workspace.command()
def diff(
    run: options.RunId,
    *,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Show what is not as it was when the workspace was first used, file by file.

    A workspace that several runs share says what all of them have changed.
    """
    found = _looked(run, store, app, lambda place: place.changes())
    for change in found:
        if json:
            fields = {name: getattr(change, name) for name in change.__struct_fields__}
            print_json(fields)
            continue
        note = f" ({change.note})" if change.note else ""
        mode = f", mode {change.mode & MODE:o}" if change.mode is not None else ""
        sizes = f"{change.old_size:,} to {count(change.size, 'byte')}{mode}"
        print_line(f"{change.what} {visible_line(change.path, PATH_CHARS)}, {sizes}{note}")
        for line in change.diff.splitlines():
            print_line(f"    {visible(line)}")
    if not found and not json:
        print_line("nothing has changed")


def _looked(run: str, store: str, app: str, look: Callable[[Workspace], T]) -> T:
    """What there is to see in a run's workspace, which is there: looking makes none.

    Raises:
        UnknownRun, ConfigError: there is no such run, or its application has no workspace.
        NoWorkspace: the run never used it.
    """
    runtime = open_app(locate(store, app))

    async def found() -> T:
        try:
            place = await runtime.workspace_async(run)
            place.check_there()
            return look(place)
        finally:
            await runtime.close_async()

    return asyncio.run(found())
