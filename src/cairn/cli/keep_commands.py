"""Commands for keeping a store: `export`, `verify`, `prune` and `backup`."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from cairn.cli import erase_command, exits, options
from cairn.cli.changed import tell
from cairn.cli.inspecting import inspector
from cairn.cli.leftovers import Leftovers
from cairn.cli.place import Place, locate, with_store
from cairn.cli.plain import count, json_line
from cairn.cli.say import complain, print_line, write
from cairn.core.codec import row_object
from cairn.core.messages import Principal
from cairn.core.verification import Exported, Finding, Mark
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import ConfigError
from cairn.ports import Pruned, Store

if TYPE_CHECKING:
    from cairn.store.sqlite.inspection import Inspection

STORE_JOURNAL = "store"
COUNTER = "counter"
EXPORT = "export"
WITH_HASH = frozenset({"", "event", "written", "note"})
"""What lines of an export are that carry a hash; others tell of a run, a session or a fact."""
REBUILD = "cairn budgets --rebuild"


def export(
    run: Annotated[str, typer.Argument(metavar="RUN", help="Id of the run.")] = "",
    *,
    heads: Annotated[
        bool, typer.Option("--heads", help="Write the last hash of every journal instead.")
    ] = False,
    out: Annotated[
        str, typer.Option("-o", "--out", metavar="FILE", help="Default: standard output.")
    ] = "",
    principal: Annotated[
        str, typer.Option("--principal", metavar="ID", help="Write everything about them instead.")
    ] = "",
    tenant: options.Tenant = "",
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

    With --heads: a line for each journal with its last seq and hash. Keep them where nobody who
    can change the store can: only `cairn verify --heads FILE` finds a journal whose end was cut
    off, or one that is gone.

    With --principal: all their runs with their events, sessions, facts, and what the store's
    journal says of them; `kind` says what each line is.
    """
    if sum(map(bool, (run, heads, principal))) != 1:
        raise ConfigError("RUN", "name a run, or pass --heads or --principal", "Pass one of them")
    place = locate(store, app)
    if principal:
        whose = Principal(id=principal, tenant=tenant)
        erase_command.export_principal(place, whose, out, force=force)
        return
    if heads:
        with inspector(place) as look:
            lines: list[dict[str, Any]] = [msgspec.structs.asdict(mark) for mark in look.heads()]
    else:
        lines = with_store(place, lambda client: _export(client.store, run), words=False)
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
    what = count(len(lines), "head") if heads else f"{count(len(lines), 'event')} of {run}"
    print_line(f"wrote {what} to {out}")


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


def verify(
    runs: Annotated[
        list[str] | None, typer.Argument(metavar="RUN", help="Ids of runs; all by default.")
    ] = None,
    *,
    heads: Annotated[
        str,
        typer.Option(
            "--heads", metavar="FILE", help="Compare with hashes that an export wrote earlier."
        ),
    ] = "",
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Check that journals are as they were written.

    Names the first record of each that is not. Looks at the hash chain of each journal, the
    store's own too, and at the rows that follow from it: the run table, the inbox, the counters
    of budgets (`cairn budgets --rebuild` counts them anew). The file is only read; a copy will
    do. An end that was cut off shows only with --heads, which also finds what was altered in the
    file of an export. Exits with 1 if anything is wrong.
    """
    marks = list(_marks(heads)) if heads else []
    place = locate(store, app)
    with inspector(place) as look:
        found = [look.inspect(name) for name in runs or look.journals()]
        marks = [mark for mark in marks if not runs or mark.run in runs]
        beside = look.missed(marks)
        beside += [] if runs else [*look.strays(), *look.counters(SystemClock().now_us())]
    if json:
        for each in found:
            write(json_line({"ok": not each.findings, **_inspection_object(each)}))
        for finding in beside:
            write(json_line({"ok": False, "run": finding.run, "findings": [_object(finding)]}))
    else:
        _tell(found, beside, len(marks), place)
    wrong = beside or any(each.findings for each in found)
    raise typer.Exit(exits.REFUSED if wrong else exits.DONE)


def _tell(found: list[Inspection], beside: list[Finding], marks: int, place: Place) -> None:
    """What was found journal by journal, and what was found beside them."""
    for each in found:
        for finding in each.findings:
            shared = finding.run != each.run
            complain(f"{each.run}: in what it shares, {finding}" if shared else str(finding))
    for finding in beside:
        complain(str(finding))
    if any(finding.kind == COUNTER for finding in beside):
        at = f" --store {shlex.quote(place.store)}" if place.store else ""
        at = at or (f" --app {shlex.quote(place.app)}" if place.app else "")
        complain(f"to count budgets anew from the journals: {REBUILD}{at}")
    broken = {each.run for each in found if each.findings}
    broken |= {finding.run for finding in beside if finding.kind not in {COUNTER, EXPORT}}
    total = len({each.run for each in found} | broken)
    if broken:
        complain(f"{len(broken)} of {total} journals are not as they were written")
    if any(finding.kind == EXPORT for finding in beside):
        complain("what was exported is no evidence: it is not what was written out")
    if broken or beside:
        return
    events = sum(each.events for each in found)
    kept = f", {marks:,} exported {'hash' if marks == 1 else 'hashes'}" if marks else ""
    print_line(f"intact: {count(len(found), 'journal')}, {count(events, 'event')}{kept}")
    for each in found:
        if each.erased:
            print_line(f"{each.run}: {_gone(each)}, as the store's journal says")


def _gone(each: Inspection) -> str:
    """What has become of events that hold no data any more."""
    if each.run != STORE_JOURNAL:
        return "erased"
    erased = each.erased - each.removed
    parts = [f"{count(each.removed, 'fact')} removed with their sessions"] if each.removed else []
    parts += [f"{count(erased, 'fact')} erased"] if erased else []
    return " and ".join(parts)


def _inspection_object(each: Inspection) -> dict[str, Any]:
    findings = [_object(finding) for finding in each.findings]
    gone = {"erased": each.erased, "removed": each.removed}
    return {"run": each.run, "events": each.events, **gone, "findings": findings}


def _object(finding: Finding) -> dict[str, Any]:
    fix = {"fix": REBUILD} if finding.kind == COUNTER else {}
    return {"seq": finding.seq, "kind": finding.kind, "text": finding.text, **fix}


class _Kind(msgspec.Struct):
    kind: str = ""


def _marks(file: str) -> Iterator[Mark]:
    """The hashes in an export: of heads, of a run's events, of an audit, or of a principal.

    Lines of a principal's that are no events carry none; it says how many there are.

    Raises:
        ConfigError: it cannot be read, a line of it should carry one and does not, or none does.
    """
    read = kept = without = 0
    try:
        with Path(file).open("rb") as lines:
            for line in lines:
                read += 1
                if not line.strip():
                    continue
                if msgspec.json.decode(line, type=_Kind).kind not in WITH_HASH:
                    without += 1
                else:
                    mark = msgspec.json.decode(line, type=Exported)
                    whole = not isinstance(mark.data, msgspec.UnsetType)
                    yield mark if whole else Mark(run=mark.run, seq=mark.seq, hash=mark.hash)
                    kept += 1
    except OSError as error:
        raise ConfigError("--heads", f"{file}: {error.strerror}", "Name an export") from error
    except msgspec.MsgspecError as error:
        problem = f"line {read} of {file} is no exported hash: {error}"
        raise ConfigError("--heads", problem, "Name a file of `cairn export --heads`") from error
    if not kept:
        problem = f"no line of {file} carries a hash" if without else f"{file} is empty"
        raise ConfigError("--heads", problem, "Name a file of `cairn export --heads`")
    if without:
        carry = "carries" if without == 1 else "carry"
        complain(f"{count(without, 'line')} of {file} {carry} no hash to compare")


def prune(
    *,
    older_than: Annotated[
        str, typer.Option("--older-than", metavar="AGE", help="As 30d, 12h or 45m.")
    ],
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say which runs would go.")
    ] = False,
    json: options.JsonDone = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Remove old runs that are over.

    Whole runs go that nobody wrote to for so long; the last hash of each is kept. Runs with a
    fork, with an unknown call, or in the middle of a session stay. Conversations that were forked
    and in which nothing was said for so long go as well, and so do the workspaces of what went,
    where an application says where they are.
    """
    age_us = options.seconds_of(older_than, "--older-than") * 1_000_000
    now = SystemClock().now_us()
    before = now - age_us
    place = locate(store, app)
    left = Leftovers(place)

    async def remove(client: Client) -> tuple[Pruned, list[str]]:
        gone = await client.store.prune(before, dry_run, now=now)
        return gone, [] if dry_run else await left.clear(client, gone, before)

    gone, folders = with_store(place, remove, words=False, first=left.first)
    tell_removed(gone, dry_run=dry_run, json=json)
    tell_folders(folders, json=json)


def tell_removed(gone: Pruned, *, dry_run: bool, json: bool) -> None:
    """Name the runs and the forks that were removed, or that would be."""
    what = "to be removed" if dry_run else "removed"
    for name in gone:
        tell(json, what, name, name, changed=not dry_run)
    tell_forks(gone, dry_run=dry_run, json=json)
    if not json:
        print_line(f"{what}: {how_many(gone)}")


def tell_forks(gone: Pruned, *, dry_run: bool, json: bool) -> None:
    """Name the forked conversations without a run that were removed, or that would be."""
    what = "to be removed" if dry_run else "removed"
    for name in gone.forks:
        said = f"{name}: a fork in which nothing was said"
        tell(json, what, name, said, changed=not dry_run, fork=True)


def tell_folders(folders: list[str], *, json: bool) -> None:
    """Name the workspaces that were removed with their runs."""
    for name in folders:
        tell(json, "removed", name, f"removed the workspace {name}", workspace=True)


def how_many(gone: Pruned) -> str:
    """How many runs went, and how many forks if any did."""
    forks = f", {count(len(gone.forks), 'fork')}" if gone.forks else ""
    return count(len(gone), "run") + forks


def backup(
    file: Annotated[str, typer.Argument(metavar="FILE", help="Where to; must not exist.")],
    *,
    json: options.JsonDone = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Copy the whole store into one file, while it may be in use."""
    if Path(file).exists():
        raise ConfigError("FILE", f"{file} exists", "Choose a new name for the copy")
    with_store(locate(store, app), lambda client: client.store.backup(file), words=False)
    tell(json, "copied", file, f"copied to {file}")
