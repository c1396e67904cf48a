"""Commands for keeping a store: `export`, `verify`, `prune` and `backup`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from cairn.cli import exits, options
from cairn.cli.place import locate, with_store
from cairn.cli.plain import count, json_line
from cairn.cli.say import complain, print_line, write
from cairn.core.codec import Row
from cairn.core.events import EVENTS
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError, CorruptJournal, UnknownRun
from cairn.ports import RunFilter, Store

STORE_JOURNAL = "store"
ALL = 1_000_000_000


def export(
    run: options.RunId,
    *,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE", help="Default: standard output.")
    ] = "",
    force: Annotated[bool, typer.Option("--force", help="Replace FILE if it exists.")] = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Write a run's events as JSON lines.

    They hold what is needed to verify the chain elsewhere. `data` is the exact text that was
    hashed, `salt` and `hash` are hex: hash is SHA-256 of the previous hash, the header (run, seq,
    at, step, actor, type, v; one a line) and SHA-256(salt + data). The first previous hash is 32
    zero bytes. Erased data is null, and its digest stands in place of the salt. A fork's lines
    begin with those of the run it continues.
    """
    lines = with_store(locate(store, app), lambda client: _export(client.store, run))
    if not out:
        for item in lines:
            write(json_line(item))
        return
    try:
        if not force and Path(out).is_file():  # what is no file, as /dev/stdout, is written to
            raise ConfigError("--out", f"{out} exists", "Name another file, or pass --force")
        with Path(out).open("w", encoding="utf-8") as file:
            file.writelines(map(json_line, lines))
    except OSError as error:
        problem = f"{out} cannot be written: {error.strerror}"
        raise ConfigError("--out", problem, "Name another file") from error
    print_line(f"wrote {count(len(lines), 'event')} of {run} to {out}")


async def _export(store: Store, run: str) -> list[dict[str, Any]]:
    """The rows of the run, behind those it shares with the run it was forked from."""
    lines = [row_object(run, row) for row in await store.rows(run)]
    info = await store.info(run) if run != STORE_JOURNAL else None
    while info is not None and info.parent:
        parent, upto = info.parent, info.parent_at
        shared = [row for row in await store.rows(parent) if row.seq <= upto]
        lines = [*(row_object(parent, row) for row in shared), *lines]
        info = await store.info(parent)
    return lines


def row_object(run: str, row: Row) -> dict[str, Any]:
    """A row as it is stored, bytes as text or hex."""
    return {
        "run": run,
        "seq": row.seq,
        "at": row.at,
        "step": row.step,
        "actor": row.actor,
        "type": row.type,
        "name": EVENTS[row.type].NAME if row.type in EVENTS else "",
        "v": row.v,
        "data": row.data.decode() if row.data is not None else None,
        "salt": row.salt.hex(),
        "hash": row.hash.hex(),
    }


def verify(
    run: Annotated[
        str, typer.Argument(metavar="RUN", help="Id of the run; all runs by default.")
    ] = "",
    *,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Check the hash chain of one run or of all.

    Exits with 1 if anything was changed or removed.
    """

    async def check(client: Client) -> int:
        names = [run] if run else await _all_journals(client.store)
        broken = events = 0
        for name in names:
            try:
                events += await client.store.verify(name)
            except CorruptJournal as error:
                complain(str(error))
                broken += 1
        if broken:
            complain(f"{broken} of {len(names)} journals are not as they were written")
            return exits.REFUSED
        print_line(f"intact: {count(len(names), 'journal')}, {count(events, 'event')}")
        return exits.DONE

    raise typer.Exit(with_store(locate(store, app), check))


async def _all_journals(store: Store) -> list[str]:
    names = [info.run for info in await store.runs(RunFilter(limit=ALL))]
    try:
        if await store.rows(STORE_JOURNAL):
            names.append(STORE_JOURNAL)
    except UnknownRun:
        return names
    return names


def prune(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="As 30d, 12h or 45m.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which runs would go.")
    ] = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Remove old runs that are over.

    Whole runs go that nobody wrote to for so long; the last hash of each is kept. Runs with a
    fork, with an unknown call, or in the middle of a session stay.
    """
    age_us = options.seconds_of(older_than, "--older-than") * 1_000_000
    before = SystemClock().now_us() - age_us
    gone = with_store(locate(store, app), lambda client: client.store.prune(before, dry_run))
    for name in gone:
        print_line(name)
    print_line(f"{'to be removed' if dry_run else 'removed'}: {count(len(gone), 'run')}")


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; must not exist.")],
    *,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Copy the whole store into one file, while it may be in use."""
    if Path(file).exists():
        raise ConfigError("FILE", f"{file} exists", "Choose a new name for the copy")
    with_store(locate(store, app), lambda client: client.store.backup(file))
    print_line(f"copied to {file}")
