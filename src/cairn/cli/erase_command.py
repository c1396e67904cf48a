"""Commands about everything that is kept of one principal: `erase`, and their `export`."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import typer

from cairn.cli import exits, options
from cairn.cli.changed import tell
from cairn.cli.place import Place, locate, open_runtime
from cairn.cli.plain import count, day, json_line, visible_line
from cairn.cli.say import complain, print_line, write
from cairn.core.erasing import Erasure, Holdings
from cairn.core.erasing import whose as hash_of
from cairn.core.events import PrincipalErased
from cairn.core.messages import Principal
from cairn.engine.given import principal_of
from cairn.errors import ConfigError

if TYPE_CHECKING:
    from cairn.runtime import Runtime

T = TypeVar("T")
LISTED = 20
"""Runs that are shown before somebody is asked."""


def erase(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    principal: Annotated[
        str, typer.Option("--principal", metavar="ID", help="Whose.", show_default=False)
    ],
    tenant: options.Tenant = "",
    export: Annotated[
        str,
        typer.Option(
            "--export", metavar="FILE", help="Write all of it there first; must not exist."
        ),
    ] = "",
    force: Annotated[
        bool, typer.Option("--force", help="Cancel their runs that are not over.")
    ] = False,
    shared: Annotated[
        bool,
        typer.Option("--shared", help="Erase shared sessions too in which they wrote, whole."),
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    message: Annotated[
        str, typer.Option("-m", "--message", help="Why; kept. It should not name them.")
    ] = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Erase everything about a principal, down to the bytes.

    All their runs whole, with forks, retries, sessions, messages and inbox entries; facts, with
    index and vectors; grants made for them; counters of budgets under their name. Ids, agents,
    status, times and sums of runs stay, and the hashes of what was said, so that `cairn verify`
    still tells erased from altered. Shows what will go, and asks. Workspaces go with --app, or
    where an application is configured. Backups are yours to remove. What stays in runs of others
    is named: what they wrote, facts that were recalled. Exits with 1 if nothing is kept of them.
    """
    options.asks_nobody(json=json, yes=yes)
    whose = principal_of(Principal(id=principal, tenant=tenant))
    actor = options.who(by)
    place = locate(store, app, by)

    async def work(runtime: Runtime) -> int:
        held = await runtime.holdings_async(whose)
        talks = await runtime.shared_sessions_async(whose)
        if not (
            held.elsewhere
            or held.recalled
            or _anything(held)
            or await _erased_before(runtime, whose)
        ):
            complain(f"nothing is kept of {_called(whose)}; ids of principals are case-sensitive")
            return exits.REFUSED
        if not json:
            _show(whose, held, talks, workspaces=_where(runtime, place))
            if shared:
                await _show_whole(runtime, held)
        await runtime.check_erasable_async(whose, force=force, shared=shared)
        if export:
            lines = await _write(runtime, whose, export, "--export")
            tell(json, "wrote", export, f"wrote {count(lines, 'line')} to {export}")
        if not yes and not typer.confirm("Erase all of it for good?", default=False):
            complain("nothing was erased")
            return exits.REFUSED
        erased = await runtime.erase_async(
            whose, force=force, shared=shared, by=actor, reason=message
        )
        return _tell(whose, erased, json=json)

    raise typer.Exit(with_runtime(place, work))


def export_principal(place: Place, whose: Principal, out: str, *, force: bool) -> None:
    """Write everything about a principal as JSON lines, to a file or to standard output."""
    if out and force and Path(out).is_file():
        Path(out).unlink()

    whose = principal_of(whose)

    async def work(runtime: Runtime) -> None:
        held = await runtime.holdings_async(whose)
        if not (held.elsewhere or _anything(held)):
            complain(f"nothing is kept of {_called(whose)}")
        if out:
            print_line(f"wrote {count(await _write(runtime, whose, out, '-o'), 'line')} to {out}")
            return
        for line in await runtime.export_principal_async(whose):
            write(json_line(msgspec.Raw(line.encode())))

    with_runtime(place, work)


def with_runtime(place: Place, work: Callable[[Runtime], Coroutine[Any, Any, T]]) -> T:
    """What `work` does with the application's runtime, or with one that knows only the store.

    Raises:
        ConfigError: as `open_runtime`.
    """
    runtime = open_runtime(place)

    async def whole() -> T:
        try:
            with runtime.host.secrets.scrubbed():
                return await work(runtime)
        finally:
            await runtime.close_async()

    return asyncio.run(whole())


async def _write(runtime: Runtime, whose: Principal, file: str, option: str) -> int:
    """Write the export to a new file that only its owner reads; how many lines."""
    lines = await runtime.export_principal_async(whose)
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
        with os.fdopen(handle, "w", encoding="utf-8") as out:
            out.writelines(line + "\n" for line in lines)
            out.flush()
            os.fsync(out.fileno())  # what it holds is about to be gone elsewhere
    except FileExistsError:
        fix = "Name another file, or pass --force" if option == "-o" else "Name another file"
        raise ConfigError(option, f"{file} exists", fix) from None
    except OSError as error:
        problem = f"{file} cannot be written: {error.strerror}"
        raise ConfigError(option, problem, "Name another file") from error
    return len(lines)


def _called(whose: Principal) -> str:
    return visible_line(f"{whose.id} of {whose.tenant}" if whose.tenant else whose.id)


def _anything(held: Holdings) -> bool:
    """Whether there is anything that an erasing would take."""
    return bool(held.runs or held.sessions or held.facts or held.grants or held.notes)


async def _erased_before(runtime: Runtime, whose: Principal) -> bool:
    """Whether they were erased once: to do it again writes the file anew."""
    records = [e.event for e in await runtime.trace_async("store")]
    return any(
        e.whose == hash_of(whose, bytes.fromhex(e.salt))
        for e in records
        if isinstance(e, PrincipalErased)
    )


def _where(runtime: Runtime, place: Place) -> str:
    """Why workspaces stay; empty if they go, or there are none."""
    if runtime.host.workspaces is not None or place.has_app:
        return ""
    return "workspaces, if there are any, stay: no application says where they are"


def _show(whose: Principal, held: Holdings, talks: list[str], *, workspaces: str) -> None:
    """What will be erased."""
    parts = (
        count(len(held.runs), "run"),
        count(sum(info.head - info.parent_at for info in held.runs), "event"),
        count(len(held.sessions), "session"),
        count(held.facts, "fact"),
        count(len(held.grants), "grant"),
    )
    print_line(f"{_called(whose)}: {', '.join(parts)}")
    for info in held.runs[:LISTED]:
        print_line(
            f"  {info.run}  {visible_line(info.agent)}  {info.status}  {day(info.updated_at)}"
        )
    if len(held.runs) > LISTED:
        print_line(f"  and {count(len(held.runs) - LISTED, 'run')} more")
    if held.sessions:
        print_line(f"  sessions: {visible_line(', '.join(held.sessions))}")
    if held.live:
        print_line(f"  not over: {visible_line(', '.join(held.live))}")
    for talk in talks[:LISTED]:
        print_line(f"  shared session: {visible_line(talk)}")
    for info in held.recalled[:LISTED]:
        of = f"{info.run} of {info.principal}"
        print_line(f"  stays: facts of theirs that were recalled in run {of}")
    if len(held.recalled) > LISTED:
        print_line(f"  stays: and in {count(len(held.recalled) - LISTED, 'run')} more")
    if held.runs and workspaces:
        print_line(f"  {workspaces}")


async def _show_whole(runtime: Runtime, held: Holdings) -> None:
    """What goes beside what is theirs, when shared sessions are erased."""
    sessions = {info.session for info in held.shared}
    runs = [(await runtime.store.session(session)).runs for session in sessions]
    if runs:
        whole = count(sum(runs), "run")
        print_line(f"  shared sessions go whole, with what others wrote in them: {whole}")


def _tell(whose: Principal, erased: Erasure, *, json: bool) -> int:
    parts = (
        count(len(erased.runs), "run"),
        count(erased.events, "event"),
        count(erased.sessions, "session"),
        count(erased.facts, "fact"),
        count(erased.grants, "grant"),
    )
    more = {"tenant": whose.tenant, **msgspec.structs.asdict(erased)}
    tell(json, "erased", whose.id, f"erased: {', '.join(parts)}", **more)
    for left in erased.stays[:LISTED]:
        complain(f"stays: {left}")
    if len(erased.stays) > LISTED:
        complain(f"and {count(len(erased.stays) - LISTED, 'such run')} more")
    if erased.budgets:
        complain(
            f"budgets that stand name them, and were left: {', '.join(erased.budgets)}. "
            "Set others and erase again"
        )
    if not erased.cleared:
        complain("another process works in the store: copies may be left in it. Erase again")
    return exits.REFUSED if erased.budgets or not erased.cleared else exits.DONE
