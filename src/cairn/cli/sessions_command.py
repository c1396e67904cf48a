"""`cairn sessions`: conversations listed, shown, moved, named, written out and removed."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from cairn.cli import options
from cairn.cli.changed import tell
from cairn.cli.keep_commands import how_many, tell_folders, tell_forks
from cairn.cli.leftovers import Leftovers
from cairn.cli.paint import console
from cairn.cli.place import locate, open_app, with_store
from cairn.cli.plain import count, day, json_line, visible_line
from cairn.cli.say import print_line, write
from cairn.cli.verbs import Verbs
from cairn.core import events as ev
from cairn.core.codec import row_object
from cairn.core.messages import Principal
from cairn.engine import sessions as talk
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.engine.given import check_session, principal_of
from cairn.engine.sessions import Conversation
from cairn.engine.transcript import transcript_of
from cairn.errors import ConfigError
from cairn.ports import Pruned, RunFilter, RunInfo, Store
from cairn.store.kept import why_kept

if TYPE_CHECKING:
    from cairn.runtime import Runtime
    from cairn.runtime.sessions import Posted

Mode = Literal["steer", "queue", "interrupt"]

sessions = Verbs(
    no_args_is_help=True,
    help="Conversations: list, show, post, fork, rewind, title.",
)
TITLE = 60
EVENTS = "events.jsonl"
TRANSCRIPT = "transcript.md"
SessionId = Annotated[str, typer.Argument(metavar="SESSION", help="Id of the session.")]


@sessions.command("list")
def list_sessions(
    *,
    principal: Annotated[
        str | None, typer.Option("--principal", metavar="ID", help="Only those of this one.")
    ] = None,
    limit: options.Limit = 20,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List conversations, the one with the newest run first."""
    whose = principal_of(principal).id if principal is not None else ""

    async def look(client: Client) -> list[tuple[Any, str]]:
        return await talk.titled(client.store, await client.store.sessions(whose, limit + 1))

    found = with_store(locate(store, app), look, words=False)
    if json:
        for info, title in found[:limit]:
            write(json_line({**msgspec.structs.asdict(info), "title": title}))
        return
    if not found:
        print_line(f"no sessions of {visible_line(whose)}" if whose else "no sessions")
        return
    from rich.table import Table

    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("session", "title", "agent", "principal", "status", "runs", "last event"):
        table.add_column(name, justify="right" if name == "runs" else "left", overflow="fold")
    for info, title in found[:limit]:
        waiting = f" (+{info.open - 1} waiting)" if info.open > 1 else ""
        table.add_row(
            visible_line(info.session, 80),
            visible_line(title, TITLE),
            visible_line(info.agent, 40),
            visible_line(info.principal, 40),
            info.status + waiting,
            str(info.runs),
            day(info.updated_at),
        )
    console(table=True).print(table)
    if len(found) > limit:
        print_line(f"there are more: --limit {limit * 5}")


@sessions.command()
def show(
    session: SessionId,
    *,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Show a conversation: the runs it consists of, those that wait, and superseded ones."""
    seen = with_store(
        locate(store, app), lambda c: talk.conversation(c.store, session), words=False
    )
    if json:
        write(json_line(_object(seen)))
        return
    print_line(f"session {visible_line(session, 200)}: {visible_line(seen.title, 200)}")
    print_line(f"of {visible_line(seen.info.principal, 80)}, with {seen.info.agent}")
    for name, runs in (
        ("runs", seen.chain),
        ("waiting", seen.waiting),
        ("superseded", seen.superseded),
    ):
        if runs:
            print_line(f"{name}:")
        for run in runs:
            print_line(f"    {_line(run, session)}")


def _line(run: RunInfo, session: str) -> str:
    elsewhere = f", of session {visible_line(run.session, 80)}" if run.session != session else ""
    behind = f", behind {run.behind}" if run.behind else ""
    return f"{run.run}  {run.status}{behind}{elsewhere}  {day(run.updated_at)}"


def _object(seen: Conversation) -> dict[str, Any]:
    def runs(found: tuple[RunInfo, ...]) -> list[dict[str, Any]]:
        return [msgspec.structs.asdict(run) for run in found]

    return {
        **msgspec.structs.asdict(seen.info),
        "title": seen.title,
        "chain": runs(seen.chain),
        "waiting": runs(seen.waiting),
        "superseded": runs(seen.superseded),
    }


@sessions.command()
def post(  # noqa: PLR0913 - one parameter for each option of the command
    session: SessionId,
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="What is said; - reads it from standard input.")
    ],
    *,
    agent: Annotated[
        str, typer.Option("--agent", help="Who begins, or goes on; that of the last run.")
    ] = "",
    mode: Annotated[
        Mode | None, typer.Option("--mode", help="If a run is at work; what its agent says.")
    ] = None,
    id: Annotated[
        str, typer.Option("--id", help="Your own id of it; the same one twice is one message.")
    ] = "",
    principal: options.ForWhom = "local",
    role: options.RolesOfPrincipal = None,
    tenant: options.Tenant = "",
    project: options.Project = "",
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Say something in a conversation, and leave the rest to a worker.

    It is kept when the command ends. steer has the run at work read it, queue has it wait for a
    run of its own, interrupt ends the run at work first.
    """
    who = Principal(id=principal, roles=tuple(role or ()), tenant=tenant)
    given = options.spoken(text)

    async def say(runtime: Runtime) -> Posted:
        try:
            return await runtime.post_async(
                session, given, agent=agent, principal=who, mode=mode, id=id, project=project
            )
        finally:
            await runtime.close_async()

    posted = asyncio.run(say(open_app(locate(store, app))))
    if json:
        write(json_line(msgspec.structs.asdict(posted)))
    else:
        print_line(f"{posted.how}: {posted.run}, event {posted.seq}")


@sessions.command()
def fork(
    session: SessionId,
    new: Annotated[str, typer.Argument(metavar="NEW", help="Id of the new session.")],
    *,
    at: Annotated[
        str,
        typer.Option("--at", metavar="RUN", help="The run it goes on from; the last by default."),
    ] = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Begin a new conversation that goes on from a run of another one.

    Nothing is copied. It belongs to the same principal.
    """
    who = options.who(by)

    async def begin(client: Client) -> str:
        client.check_names(None, NEW=new)
        return await talk.fork(client.store, SystemClock(), session, new, at, who)

    run = with_store(locate(store, app, by), begin)
    tell(json, "forked", new, f"session {visible_line(new, 200)} goes on from {run}", run=run)


@sessions.command()
def rewind(
    session: SessionId,
    to: Annotated[str, typer.Argument(metavar="RUN", help="The run it goes on from.")],
    *,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Let a conversation go on from an earlier run.

    The later runs stay, listed as superseded; a rewind to one of them takes the rewind back. What
    they did to the world stays done.
    """
    who = options.who(by)
    done = with_store(
        locate(store, app, by),
        lambda c: talk.rewind(c.store, SystemClock(), session, to, who),
        words=False,
    )
    said = "goes on from" if done else "stands there already:"
    line = f"session {visible_line(session, 200)} {said} {to}"
    tell(json, "rewound", session, line, changed=done, run=to)


@sessions.command()
def title(
    session: SessionId,
    text: Annotated[str, typer.Argument(metavar="TITLE", help="Empty to take it back.")],
    *,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Give a conversation a title; without one it is called by its first words.

    It is kept in the store's own journal, and goes with the last run of the conversation.
    """
    who = options.who(by)

    async def name(client: Client) -> bool:
        client.check_names(None, title=text)
        return await talk.set_title(client.store, SystemClock(), session, text, who)

    done = with_store(locate(store, app, by), name)
    said = f"{'has' if done else 'had'} this title"
    if not text.strip():
        said = "is called by its first words" if done else "had no title"
    line = f"session {visible_line(session, 200)} {said}"
    tell(json, "titled", session, line, changed=done, title=" ".join(text.split()))


@sessions.command()
def export(
    session: SessionId,
    folder: Annotated[
        str, typer.Argument(metavar="FOLDER", help="Where to; made if it is not there.")
    ],
    *,
    force: Annotated[bool, typer.Option("--force", help="Replace files that exist.")] = False,
    json: options.JsonDone = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Write a whole conversation into a folder: its events, and a transcript to read.

    `events.jsonl` holds the events of all its runs, superseded and waiting ones too, as
    `cairn export` writes them. Kept elsewhere, `cairn verify --heads FOLDER/events.jsonl` finds
    what was changed, cut off or removed since. `transcript.md` holds what was said.
    """
    if not folder.strip():
        raise ConfigError("FOLDER", "it is empty", "Name a folder, or . for this one")
    place = Path(folder)
    wanted = (place / EVENTS, place / TRANSCRIPT)
    there = [str(file) for file in wanted if file.exists()]
    if there and not force:
        fix = "Name another folder, or pass --force"
        raise ConfigError("FOLDER", f"{', '.join(there)} exists", fix)
    lines, text = with_store(
        locate(store, app), lambda client: _exported(client, session), words=False
    )
    try:
        place.mkdir(parents=True, exist_ok=True)
        _write(wanted[0], "".join(map(json_line, lines)))
        _write(wanted[1], text)
    except OSError as error:
        problem = f"{folder} cannot be written: {error.strerror}"
        raise ConfigError("FOLDER", problem, "Name another folder") from error
    runs = len({line["run"] for line in lines})
    said = f"wrote {count(len(lines), 'event')} of {count(runs, 'run')} to {wanted[0]}"
    tell(json, "wrote", str(wanted[0]), said, session=session)
    tell(json, "wrote", str(wanted[1]), f"wrote what was said to {wanted[1]}", session=session)


def _write(file: Path, text: str) -> None:
    """Write words of people, for the eyes of whoever asked for them."""
    handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as out:
        os.fchmod(handle, 0o600)  # the file may have been there
        out.write(text)


async def _exported(client: Client, session: str) -> tuple[list[dict[str, Any]], str]:
    seen = await talk.conversation(client.store, session)
    runs = (*seen.chain, *seen.superseded, *seen.waiting)
    lines = []
    for run in runs:
        lines += [row_object(run.run, row) for row in await client.store.rows(run.run)]
    return lines, await transcript_of(client.store, seen)


@sessions.command()
def prune(
    session: SessionId,
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="As 30d, 12h or 45m.")
    ] = "",
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which runs would go.")
    ] = False,
    json: options.JsonDone = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Remove a conversation whose runs are over; the last hash of each run is kept.

    Runs with a fork, with an unknown call, with messages nobody has read, or that another session
    goes on from stay, and all that is before them. The workspaces of what went go as well, where
    an application says where they are.
    """
    age_us = options.seconds_of(older_than, "--older-than") * 1_000_000 if older_than else 0
    now = SystemClock().now_us()
    before = now - age_us + (0 if older_than else 1)

    place = locate(store, app)
    left_over = Leftovers(place)

    async def remove(client: Client) -> tuple[Pruned, dict[str, str], list[str]]:
        await client.store.session(check_session(session))
        gone = await client.store.prune(before, dry_run, session, now)
        kept = await _kept(client.store, session, set(gone), before)
        return gone, kept, [] if dry_run else await left_over.clear(client, gone)

    gone, kept, folders = with_store(place, remove, words=False, first=left_over.first)
    what = "to be removed" if dry_run else "removed"
    for name in gone:
        tell(json, what, name, name, changed=not dry_run, session=session)
    tell_forks(gone, dry_run=dry_run, json=json)
    tell_folders(folders, json=json)
    for name, why in kept.items() if json else ():
        tell(json, "kept", name, f"{name} stays: {why}", changed=False, session=session, why=why)
    if json:
        return
    left = f"; {count(len(kept), 'run')} left" if kept else ""
    print_line(f"{what}: {how_many(gone)}{left}")
    for name, why in kept.items():
        print_line(f"    {name} stays: {why}")


async def _kept(store: Store, session: str, gone: set[str], before: int) -> dict[str, str]:
    """The runs of a session that stay, newest first, each with the reason."""
    lines = [each for each in await store.runs(RunFilter(limit=talk.ALL)) if each.run not in gone]
    facts = [entry.event for entry in await store.read(talk.STORE)]
    begun = {fact.run: fact.session for fact in facts if isinstance(fact, ev.SessionForked)}
    after: dict[str, str] = {}
    for line in (each for each in lines if each.session == session):
        where = RunFilter(session=session, previous=line.run, limit=talk.ALL)
        found = [each.run for each in await store.runs(where) if each.run not in gone]
        if found:
            after[line.run] = found[0]
    return why_kept(lines, session, before, begun, after)
