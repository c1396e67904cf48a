"""`cairn grants`: standing grants, shown before they are made, listed, and revoked."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cairn.cli import exits, options
from cairn.cli.changed import tell
from cairn.cli.outcome import print_json
from cairn.cli.place import locate, with_app, with_store
from cairn.cli.plain import visible_line
from cairn.cli.say import complain, print_line
from cairn.cli.verbs import Verbs
from cairn.core.grants import Grant, described
from cairn.core.views.words import span
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.engine.granting import grants_of, revoke_grant, uses_of
from cairn.runtime.grants import GrantOptions

if TYPE_CHECKING:
    from cairn.runtime import Runtime

grants = Verbs(
    no_args_is_help=True,
    help="Standing grants: calls that need no approval of their own.",
)
WIDTH = 200


@grants.command("list")
def list_grants(
    *,
    everything: Annotated[bool, typer.Option("--all", help="Also those that have ended.")] = False,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List the grants that stand, oldest first."""
    place = locate(store, app)

    async def look(client: Client) -> int:
        now = SystemClock().now_us()
        known = (await grants_of(client.store)).known.values()
        shown = [grant for grant in known if everything or grant.stands(now) == "live"]
        counts, runs = Counter[int](), 0
        if any(not grant.scope.uses for grant in shown):  # those that are not counted as used
            counts, runs = await uses_of(client.store)
        for grant in shown:
            used = len(grant.users) if grant.scope.uses else counts[grant.n]
            if json:
                print_json({"stands": grant.stands(now), "used": used, **_fields(grant)})
            else:
                of = f" of {grant.scope.uses}" if grant.scope.uses else f" in the last {runs} runs"
                _print(grant, now, f"used {used}{of}")
        return exits.DONE

    raise typer.Exit(with_store(place, look, words=False))


def _print(grant: Grant, now: int, used: str) -> None:
    scope = grant.scope
    until = f", for {span(scope.until - now)} more" if scope.until > now else ""
    by = f" by {grant.made_by}" if grant.made_by else ""
    print_line(f"grant {grant.n}: {grant.stands(now)}{until}, {used}, made{by}")
    for line in described(scope):
        print_line(f"    {visible_line(line, WIDTH)}")
    if scope.reason:
        print_line(f"    why: {visible_line(scope.reason, WIDTH)}")


def _fields(grant: Grant) -> dict[str, Any]:
    import msgspec

    fields: dict[str, Any] = msgspec.structs.asdict(grant)
    fields["scope"] = msgspec.structs.asdict(grant.scope)
    return fields


@grants.command("add")
def add(  # noqa: PLR0913 - one parameter for each option of the command
    tool: Annotated[str, typer.Argument(metavar="TOOL", help="Name of the tool.")],
    *,
    arguments: Annotated[
        str,
        typer.Option("--arguments", metavar="JSON", help="Those that must be equal, type and all."),
    ] = "",
    exact: Annotated[
        bool, typer.Option("--exact", help="No other argument may stand beside them.")
    ] = False,
    agent: Annotated[str, typer.Option("--agent", help="Only for runs of this agent.")] = "",
    principal: Annotated[
        str, typer.Option("--principal", help="Only for runs for this principal.")
    ] = "",
    within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="How long it holds: 8h, 30d.")
    ] = "",
    uses: Annotated[
        int, typer.Option("--uses", min=0, help="How many calls it answers; 0 for any number.")
    ] = 0,
    message: Annotated[str, typer.Option("-m", "--message", help="Why; kept.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Make it without asking.")] = False,
    role: options.Roles = None,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Answer requests for approval of a tool from now on; it is shown first, and asked about.

    Needs the application, which knows what the tool does: nothing dangerous can be granted.
    """
    options.asks_nobody(json=json, yes=yes)
    scope: GrantOptions = {
        "arguments": arguments or None,
        "exact": exact,
        "agent": agent,
        "principal": principal,
        "hours": options.lasting(within, "--within") / 3600,
        "uses": uses,
        "reason": message,
        "by": options.who(by),
        "roles": tuple(role or ()),
    }
    place = locate(store, app, by)

    async def make(runtime: Runtime) -> int:
        return await _add(runtime, tool, scope, yes=yes, json=json)

    raise typer.Exit(with_app(place, make))


async def _add(runtime: Runtime, tool: str, scope: GrantOptions, *, yes: bool, json: bool) -> int:
    shown = await runtime.show_grant_async(tool, **scope)
    for line in () if json else str(shown).splitlines():
        print_line(visible_line(line, WIDTH))
    if not yes and not typer.confirm("Grant this?", default=False):
        complain("nothing was granted")
        return exits.REFUSED
    number = await runtime.grant_async(tool, **scope)
    tell(json, "granted", str(number), f"granted: grant {number}", tool=tool)
    return exits.DONE


@grants.command("revoke")
def revoke(
    numbers: Annotated[list[int], typer.Argument(metavar="N", help="Numbers of the grants.")],
    *,
    message: Annotated[str, typer.Option("-m", "--message", help="Why; kept.")] = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Let grants answer nothing any more, in no process."""
    actor, place = options.who(by), locate(store, app, by)

    async def end(client: Client) -> int:
        reason = client.secrets.anyones().text(message)
        for n in numbers:
            ended = await revoke_grant(client.store, SystemClock(), n, reason, actor)
            said = f"grant {n} {'is revoked' if ended else 'had ended before'}"
            tell(json, "revoked", str(n), said, changed=ended)
        return exits.DONE

    raise typer.Exit(with_store(place, end, words=bool(message)))
