"""Commands that drive runs: `run`, `resume`, `retry` and `work`."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Collection
from functools import partial
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from cairn.cli import exits, options
from cairn.cli.drive import Shown, drive_to_report, leave_to_others, start_to_report
from cairn.cli.drivers import NAMED, find_undriven
from cairn.cli.hints import hints_for
from cairn.cli.interrupts import Signals, leave_at_once
from cairn.cli.place import locate, open_app, with_store
from cairn.cli.plain import day, visible_line
from cairn.cli.say import complain, print_line
from cairn.cli.teller import LineTeller
from cairn.core import commands as cmd
from cairn.core.events import TERMINAL, Entry
from cairn.core.limits import Limits
from cairn.core.messages import Principal
from cairn.engine.client import Client, new_id
from cairn.engine.load import load
from cairn.engine.numbers import MOST_LISTED, micro_usd
from cairn.errors import ModelUnready
from cairn.ports import Observed, RunInfo

if TYPE_CHECKING:
    from cairn.runtime import Runtime

Kind = Literal["query", "generate", "operate"]
WORK_RUNS = 256


def run(  # noqa: PLR0913 - one parameter for each option of the command
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent.")],
    task: Annotated[
        str, typer.Argument(metavar="INPUT", help="The task; - reads it from standard input.")
    ],
    *,
    id: Annotated[
        str, typer.Option("--id", help="Run id. The same task under the same id is one run.")
    ] = "",
    session: Annotated[str, typer.Option("--session", help="The conversation to continue.")] = "",
    principal: options.ForWhom = "local",
    role: options.RolesOfPrincipal = None,
    tenant: options.Tenant = "",
    project: options.Project = "",
    kind: Annotated[
        Kind | None, typer.Option("--kind", help="query offers read tools only.")
    ] = None,
    approvals: Annotated[
        Literal["ask", "none"],
        typer.Option("--approvals", help="none refuses at once what would need a person."),
    ] = "ask",
    max_steps: options.MaxSteps = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_usd: options.MaxUsd = None,
    max_seconds: options.MaxSeconds = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Start a run, or go on with it.

    The same command starts, resumes and recovers, and at last shows the stored result. Limits
    given here can only be stricter than the agent's own. Ctrl-C pauses the run, a second one
    cancels it. Exit code: 0 completed, 1 failed, 2 usage, 3 stopped, 4 cancelled, 5 waiting, 6
    paused.
    """
    place = locate(store, app, by)
    runtime = open_app(place)
    bounds = _Bounds(max_steps, max_calls, max_tokens, max_usd, max_seconds)
    run_id = id or new_id()
    given = sys.stdin.read() if task == "-" else task

    def source() -> AsyncIterator[Observed]:
        return runtime.stream_async(
            agent,
            given,
            id=run_id,
            principal=Principal(id=principal, roles=tuple(role or ()), tenant=tenant),
            session=session,
            limits=bounds.within(runtime.agent(agent).limits),
            kind=kind,
            approvals=approvals,
            project=project,
        )

    shown = Shown(place=place, json=json, quiet=quiet, by=options.who(by))
    try:
        code = start_to_report(runtime, run_id, source, shown)
    except ModelUnready:
        hints = hints_for(place, runtime.store)
        complain(
            f"run {run_id} is kept and nothing of it is done. Put this right, then: "
            f"cairn resume {run_id}{hints.drive}"
        )
        raise
    raise typer.Exit(code)


def resume(
    run: options.RunId,
    *,
    json: options.Json = False,
    quiet: options.Quiet = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """End a pause and go on with the run.

    Exit code as for run. Without an application that knows its agent the pause ends, but nothing
    is driven: standard error says who has to go on, and unless the run is over the exit code is 5.
    """
    place = locate(store, app, by)
    shown = Shown(place=place, json=json, quiet=quiet, by=options.who(by))
    raise typer.Exit(_go_on(lambda client: _unpause(client, run, shown.by), shown))


def retry(  # noqa: PLR0913 - one parameter for each option of the command
    run: options.RunId,
    *,
    id: Annotated[
        str, typer.Option("--id", help="Id of the new run; by default all retries are one run.")
    ] = "",
    max_steps: options.MaxSteps = None,
    max_calls: options.MaxCalls = None,
    max_tokens: options.MaxTokens = None,
    max_usd: options.MaxUsd = None,
    max_seconds: options.MaxSeconds = None,
    json: options.Json = False,
    quiet: options.Quiet = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Go on from just before a run's bad end, as a new run.

    The old run must have failed, been stopped or been cancelled. No effect is repeated; what it
    spends is counted anew, under the old limits unless new ones are given. Exit code as for run.
    Without an application that knows its agent the new run is made, but not driven: standard error
    says who has to go on, and the exit code is 5.
    """
    place = locate(store, app)
    bounds = _Bounds(max_steps, max_calls, max_tokens, max_usd, max_seconds)
    shown = Shown(place=place, json=json, quiet=quiet, by=options.who(""))
    raise typer.Exit(_go_on(lambda client: _fork(client, run, id, bounds), shown))


def work(
    *,
    until_idle: Annotated[
        bool, typer.Option("--until-idle", help="End when nothing is left that could be driven.")
    ] = False,
    concurrency: Annotated[
        int,
        typer.Option("--concurrency", min=1, max=MOST_LISTED, help="Runs driven at the same time."),
    ] = WORK_RUNS,
    quiet: options.Quiet = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Drive all runs whose agents the application knows.

    It goes on until it is ended. The first Ctrl-C or SIGTERM starts nothing new and waits for
    what is in flight, the second one ends at once: other workers then find the runs free.
    """
    runtime = open_app(locate(store, app))
    asyncio.run(_work(runtime, until_idle=until_idle, concurrency=concurrency, quiet=quiet))


# ---------------------------------------------------------------- what they share


class _Bounds(msgspec.Struct, frozen=True):
    """Limits given on the command line; None leaves one as it is."""

    steps: int | None
    calls: int | None
    tokens: int | None
    usd: float | None
    running_s: int | None

    def over(self, limits: Limits) -> Limits:
        """These instead of what `limits` says."""
        given = {
            "steps": self.steps,
            "calls": self.calls,
            "tokens": self.tokens,
            "running_s": self.running_s,
            "micro_usd": None if self.usd is None else micro_usd("--max-usd", self.usd),
        }
        changed = {name: value for name, value in given.items() if value is not None}
        return msgspec.structs.replace(limits, **changed)

    def within(self, limits: Limits) -> Limits:
        """These where they are stricter than `limits`."""
        return limits.narrowed(self.over(limits))


async def _unpause(client: Client, run: str, actor: str) -> str:
    info = await client.store.info(run)
    if info.status not in exits.ENDED:
        await client.submit(run, cmd.Resume(), actor)
    return run


async def _fork(client: Client, run: str, new: str, bounds: _Bounds) -> str:
    """A new run from just before the old one's end; its limits change only if some are given."""
    old = (await load(client.store, run)).limits
    limits = bounds.over(old)
    return await client.retry(run, new, limits if limits != old else None)


def _go_on(prepare: Callable[[Client], Awaitable[str]], shown: Shown) -> int:
    """Prepare a run with the store alone, then drive it if there is an application to do so."""
    place = shown.place
    if place.has_app:
        runtime = open_app(place)
        return drive_to_report(runtime, lambda: prepare(runtime.client), runtime.watch_async, shown)

    async def hand_over(client: Client) -> int:
        return await leave_to_others(client.store, await prepare(client), shown)

    return with_store(place, hand_over)


async def _work(runtime: Runtime, *, until_idle: bool, concurrency: int, quiet: bool) -> None:
    host = runtime.host

    def stop(number: signal.Signals) -> None:
        if host.draining:
            leave_at_once(number)
        host.draining = True
        print_line("-- ending: nothing new is started, what is in flight is waited for")

    tellers: dict[str, LineTeller] = {}

    def observe(run: str, what: Observed) -> None:
        if isinstance(what, Entry):
            told = tellers.setdefault(run, LineTeller()).tell(what, since_begin=False)
            print_line(f"{day(what.at)} {run} {told}")
            if isinstance(what.event, TERMINAL):
                del tellers[run]

    if not quiet:
        host.watchers.watch("*", observe)
    both = (signal.SIGINT, signal.SIGTERM)
    try:
        with Signals({number: partial(stop, number) for number in both}):
            await runtime.work_async(until_idle=until_idle, concurrency=concurrency)
            if until_idle and not quiet:
                _print_left(await find_undriven(runtime.store), host.agents)
    finally:
        await runtime.close_async()


def _print_left(undriven: list[RunInfo], agents: Collection[str]) -> None:
    """Name the runs that wait for an application with another agent."""
    left = [info for info in undriven if info.agent not in agents]
    if not left:
        return
    named = ", ".join(f"{info.run} ({visible_line(info.agent, 60)})" for info in left[:NAMED])
    more = " …" if len(left) > NAMED else ""
    waits = "run waits" if len(left) == 1 else "runs wait"
    print_line(f"-- {len(left)} {waits} for an agent that is not here: {named}{more}")
