"""Commands by which people decide: `approve`, `deny`, `answer`, `resolve`, `pause`, `cancel`.

They need the store alone, and for words that are typed the application's secrets, where one is
named; whoever drives the run goes on from there.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Literal

import msgspec
import typer

from cairn.cli import exits, options
from cairn.cli.changed import tell
from cairn.cli.hints import hints_for
from cairn.cli.outcome import print_pending
from cairn.cli.place import Place, locate, open_app, runtime_of, with_store
from cairn.cli.plain import arguments_line, reasons, visible_line
from cairn.cli.say import complain, print_line
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.messages import Principal
from cairn.core.state import RunState
from cairn.engine.client import Client, Submitted
from cairn.engine.files import check_unchanged
from cairn.engine.given import check_request
from cairn.engine.load import load
from cairn.errors import CairnError, ConfigError

Requests = Annotated[
    list[str], typer.Argument(metavar="REQUEST", help="What waits, as inbox shows it: RUN/1.")
]
Verdict = Literal["happened", "not_happened", "given_up"]


def approve(  # noqa: PLR0913 - one parameter for each option of the command
    requests: Requests,
    *,
    message: options.Message = "",
    arguments: Annotated[
        str,
        typer.Option(
            "--arguments", metavar="JSON", help="Other arguments for the one request, whole."
        ),
    ] = "",
    edit: Annotated[
        bool, typer.Option("--edit", help="Change the arguments of the one request in $EDITOR.")
    ] = False,
    role: options.Roles = None,
    digest: Annotated[
        str, typer.Option("--digest", help="Of the one request, as inbox --json showed it.")
    ] = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Let calls run that wait for approval: once, as shown or changed.

    With --digest only what has that digest: if the request is about anything else, it is refused.
    Other arguments are authorised anew before the call starts, and checked at once where the
    application is known (--app, CAIRN_APP), as is whether files that a yes is bound to have
    changed. What was approved before is not approved again: it says whose yes stands.
    """
    actor, place = options.who(by), locate(store, app, by)
    if (digest or arguments or edit) and len(requests) > 1:
        given = "--digest" if digest else "--arguments" if arguments else "--edit"
        raise ConfigError(given, "it is of one request", "Approve the others by themselves")
    roles = tuple(role or ())
    if arguments or edit:
        from cairn.cli.approval_form import approve_changed

        who = Principal(id=actor, roles=roles)
        code = approve_changed(place, requests[0], who, message, digest, arguments, json=json)
        raise typer.Exit(code)

    async def yes(client: Client, request: str) -> Submitted:
        why = await _unseen(client, place, request)
        done = await client.approve(request, message, actor, digest, roles=roles)
        if why and done.entry is not None:
            complain(
                f"whether the files that {request} is bound to have changed was not looked at "
                f"here{why}: that is done right before the start, which asks anew if they have"
            )
        return done

    async def decide(client: Client) -> int:
        return await _each(client, place, requests, "approved", lambda r: yes(client, r), json)

    raise typer.Exit(with_store(place, decide, words=bool(message or roles)))


async def _unseen(client: Client, place: Place, request: str) -> str:
    """Why nobody can look here whether the files of a request have changed; empty if they have not.

    Raises:
        Refused: one has changed since the request was made.
    """
    run, n = check_request(request)
    state = await load(client.store, run)
    call = next((c for c in state.calls.values() if c.approval == n and c.files), None)
    if call is None or state.decided.get(n):
        return ""
    if not place.has_app:
        return ", where no application is named (--app module:name)"
    try:
        runtime = open_app(place)
    except ConfigError as error:
        return f" ({error})"
    try:
        if state.agent not in runtime.host.agents:
            return f", where the application has no agent {visible_line(state.agent, 60)}"
        await check_unchanged(runtime.host.workspaces, client.store, state, request, call)
    finally:
        if runtime.store is not client.store:
            await runtime.close_async()
    return ""


def deny(
    requests: Requests,
    *,
    message: options.Message = "",
    role: options.Roles = None,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Refuse calls that wait for approval; the model reads why."""
    actor, place = options.who(by), locate(store, app, by)

    async def decide(client: Client) -> int:
        return await _each(
            client,
            place,
            requests,
            "denied",
            lambda r: client.deny(r, message, actor, roles=tuple(role or ())),
            json,
        )

    raise typer.Exit(with_store(place, decide, words=bool(message or role)))


def answer(
    request: Annotated[str, typer.Argument(metavar="REQUEST", help="The question: RUN/1.")],
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The answer; - reads it from standard input.")
    ],
    *,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Answer a question of an agent."""
    actor, place = options.who(by), locate(store, app, by)
    given = options.spoken(text)

    async def decide(client: Client) -> int:
        return await _each(
            client, place, [request], "answered", lambda r: client.answer(r, given, actor), json
        )

    raise typer.Exit(with_store(place, decide))


def resolve(  # noqa: PLR0913 - one parameter for each option of the command
    call: Annotated[str, typer.Argument(metavar="CALL", help="The call: RUN/c4.")],
    *,
    happened: Annotated[
        bool, typer.Option("--happened", help="It took effect; --result is what the model reads.")
    ] = False,
    not_happened: Annotated[
        bool, typer.Option("--not-happened", help="It did not; it is run again under the policy.")
    ] = False,
    give_up: Annotated[
        bool, typer.Option("--give-up", help="It stays unknown: the run fails, the call is listed.")
    ] = False,
    result: Annotated[
        str | None, typer.Option("--result", help="What it brought, as the model shall read it.")
    ] = None,
    evidence: Annotated[str, typer.Option("--evidence", help="How this is known; kept.")] = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Say what came of a call whose effect is unknown."""
    verdict = _verdict(happened=happened, not_happened=not_happened, give_up=give_up)
    if result is not None and verdict != "happened":
        raise ConfigError("--result", "there is no result of what did not happen", "Leave it out")
    raw = ev.EMPTY if result is None else msgspec.Raw(msgspec.json.encode(result))
    actor, place = options.who(by), locate(store, app, by)

    async def decide(client: Client) -> int:
        return await _each(
            client,
            place,
            [call],
            f"resolved ({verdict.replace('_', ' ')})",
            lambda c: client.resolve(c, verdict, raw, evidence, actor),
            json,
        )

    raise typer.Exit(with_store(place, decide, words=bool(raw or evidence)))


def _verdict(*, happened: bool, not_happened: bool, give_up: bool) -> Verdict:
    """The one thing that was said. Raises `ConfigError` for none or several."""
    if happened + not_happened + give_up != 1:
        raise ConfigError(
            "resolve", "say exactly one thing", "Pass --happened, --not-happened or --give-up"
        )
    if happened:
        return "happened"
    return "not_happened" if not_happened else "given_up"


def pause(
    run: options.RunId,
    *,
    message: options.Message = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Start nothing new in a run until it is resumed.

    What is in flight is waited for by whoever drives it.
    """
    actor, place = options.who(by), locate(store, app, by)

    async def decide(client: Client) -> int:
        done = await client.submit(run, cmd.Pause(reason=message), actor)
        hints = hints_for(place, client.store)
        new = done.entry is not None
        said = f"paused {run}" if new else f"{run} was paused before"
        line = f"{said}: cairn resume {run}{hints.resume} goes on"
        tell(json, "paused", run, line, changed=new)
        return exits.DONE

    raise typer.Exit(with_store(place, decide, words=bool(message)))


def cancel(
    run: options.RunId,
    *,
    message: options.Message = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """End a run and wait until it has ended.

    What is in flight is stopped; runs that are over stay as they are, which exits with 1.
    """
    actor, place = options.who(by), locate(store, app, by)

    async def decide(client: Client) -> int:
        result = await runtime_of(client).cancel_async(run, message, by=actor)
        if result.status != "cancelled":
            complain(f"run {run} is {result.status}; it was over before")
            return exits.REFUSED
        tell(json, "cancelled", run, f"cancelled {run}")
        for item in () if json else result.pending:
            print_pending(item, hints_for(place, client.store))
        return exits.DONE

    raise typer.Exit(with_store(place, decide, words=bool(message)))


# ---------------------------------------------------------------- what they share


async def _each(
    client: Client,
    place: Place,
    requests: list[str],
    done: str,
    decide: Callable[[str], Awaitable[Submitted]],
    json: bool,
) -> int:
    """Decide one after the other; what cannot be is said, and the rest is decided all the same."""
    worst = exits.DONE
    touched: dict[str, None] = {}
    for request in requests:
        try:
            submitted = await decide(request)
        except CairnError as error:
            complain(str(error))
            worst = max(worst, exits.of_error(error))
        else:
            about = _about(submitted.state, request)
            new = submitted.entry is not None
            said = f"{done} {request}" if new else f"{request} {submitted.note}"
            run = request.rpartition("/")[0]
            tell(json, done, request, f"{said}{about}", changed=new, run=run)
            touched[run] = None
    for run in () if json else touched:
        await say_who_goes_on(client, place, run)
    return worst


def _about(state: RunState, request: str) -> str:
    """The call a decision was about, as far as it is still open."""
    name = request.rpartition("/")[2]
    for call in state.calls.values():
        if name in {call.id, str(call.approval)}:
            return f": {visible_line(call.tool, 60)}({arguments_line(call.arguments, 200)})"
    return ""


async def say_who_goes_on(client: Client, place: Place, run: str) -> None:
    """Who has to go on with a run that nobody drives now."""
    info = await client.store.info(run)
    if info.leased or info.status in exits.ENDED:
        return
    hints = hints_for(place, client.store)
    if info.status == "waiting" and set(info.waits) - {"retry_at"}:
        inbox = f"cairn inbox{hints.decide}"
        print_line(f"run {run} still waits ({reasons(info.waits)}): see {inbox}")
    elif info.status == "paused":
        print_line(f"run {run} is paused: cairn resume {run}{hints.resume}")
    else:
        resume = f"cairn resume {run}{hints.drive}"
        print_line(f"run {run} can go on: {resume}, or the command that began it")
