"""`cairn takeover`: a person acts in the agent's place, and hands the run back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cairn.cli import exits, options
from cairn.cli.changed import tell
from cairn.cli.decide_commands import say_who_goes_on
from cairn.cli.place import locate, runtime_of, with_app, with_store
from cairn.engine.client import Client
from cairn.engine.load import load
from cairn.errors import ConfigError, Refused

if TYPE_CHECKING:
    from cairn.runtime import Runtime


Did = Annotated[
    list[str] | None,
    typer.Option("--did", metavar="CALL", help="A call that you have done by hand: c3."),
]
Results = Annotated[
    list[str] | None,
    typer.Option("--result", metavar="TEXT", help="What that brought, as the model reads it."),
]
Calls = Annotated[
    list[str] | None,
    typer.Option("--call", metavar="TOOL", help="Your next call; it passes the policy."),
]


def takeover(  # noqa: PLR0913 - one parameter for each option of the command
    run: options.RunId,
    *,
    message: Annotated[
        str,
        typer.Option("-m", "--message", help="Why; with --hand-back also what the agent is told."),
    ] = "",
    did: Did = None,
    result: Results = None,
    evidence: Annotated[str, typer.Option("--evidence", help="How this is known; kept.")] = "",
    call: Calls = None,
    arguments: Annotated[
        list[str] | None,
        typer.Option("--arguments", metavar="JSON", help="The arguments of that call."),
    ] = None,
    answer: Annotated[
        str | None, typer.Option("--answer", metavar="TEXT", help="The final answer.")
    ] = None,
    hand_back: Annotated[
        bool, typer.Option("--hand-back", help="Let the agent go on after that.")
    ] = False,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Act in the agent's place, until you hand the run back.

    If one of the things that you want done does not fit, nothing is done and nothing begins.
    --did and --result, --call and --arguments belong together and may be given several times.
    """
    calls, results = call or [], result or []
    if len(did or []) != len(results):
        raise ConfigError("--did", "a call and its result belong together", "Pass both")
    if len(calls) != len(arguments or []):
        raise ConfigError("--call", "a call and its arguments belong together", "Pass both")
    who, place = options.who(by), locate(store, app, by)
    done = [name.rpartition("/")[2] for name in did or []]
    acts: dict[str, Any] = {
        "did": dict(zip(done, results, strict=True)),
        "evidence": evidence,
        "calls": list(zip(calls, arguments or [], strict=True)),
        **({"answer": answer} if answer is not None else {}),
        **({"hand_back": True, "message": message} if hand_back else {}),
    }
    only_back = hand_back and not (done or calls or answer is not None)

    async def act(runtime: Runtime) -> int:
        before = (await load(runtime.store, run)).taken
        if only_back and not before:
            raise Refused(f"nobody has taken run {run} over: it is the agent's")
        if only_back:
            await runtime.hand_back_async(run, message, by=who)
        else:
            await runtime.take_over_async(run, message, by=who, **acts)
        was = f"; {before} had it until now" if before not in {"", who} else ""
        said = f"run {run} is {'the agent' if hand_back else who}'s{was}"
        tell(json, "handed back" if hand_back else "taken over", run, said)
        if not json:
            await say_who_goes_on(runtime.client, place, run)
        return exits.DONE

    if place.has_app and (calls or answer is not None):  # who knows the agent can say what fits
        raise typer.Exit(with_app(place, act))

    async def alone(client: Client) -> int:
        return await act(runtime_of(client))

    raise typer.Exit(with_store(place, alone, words=bool(message or evidence or not only_back)))
