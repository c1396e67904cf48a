"""`cairn memory`: what is remembered, whose it is, and what people decide about it."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Literal

import msgspec
import typer

from cairn.cli import exits, options
from cairn.cli.changed import tell
from cairn.cli.memory_place import check_shared, ranked, with_runtime
from cairn.cli.memory_review import check_reviewable, review_all
from cairn.cli.place import Place, locate, with_store
from cairn.cli.plain import count, day, json_line, visible_line
from cairn.cli.say import complain, print_line, write
from cairn.cli.verbs import Verbs
from cairn.core.messages import Principal
from cairn.engine.client import Client
from cairn.engine.clock import SystemClock
from cairn.engine.given import principal_of
from cairn.errors import ConfigError
from cairn.governance.secrets import Secrets, of_environment
from cairn.memory.desk import DAY_US, MAX_DAYS
from cairn.memory.facts import (
    TRUSTS,
    Fact,
    FactFilter,
    Gone,
    NewFact,
    Scope,
    Trust,
    checked,
    checked_tags,
    export_line,
    fact_number,
    typed,
    user_scope,
)
from cairn.memory.listing import as_of, facts_as_of, state_of
from cairn.memory.port import Memory
from cairn.memory.rules import DEFAULT_RULES

if TYPE_CHECKING:
    from cairn.runtime import Runtime

memory = Verbs(
    no_args_is_help=True,
    help="Facts that outlive a run, and what people decide about them.",
)
WIDTH = 200
Work = Callable[[Memory, Client], Coroutine[Any, Any, int]]

Whose = Annotated[str, typer.Option("--principal", metavar="WHO", help="For whom it is kept.")]
Tenant = Annotated[str, typer.Option("--tenant", help="Of which tenant they are.")]
Project = Annotated[
    str, typer.Option("--project", metavar="NAME", help="Of this project, not of a principal.")
]
AgentName = Annotated[
    str, typer.Option("--agent", metavar="NAME", help="Of this agent, not of a principal.")
]
FactId = Annotated[str, typer.Argument(metavar="FACT", help="Id of the fact, as m7.")]
FactIds = Annotated[list[str], typer.Argument(metavar="FACT...", help="Ids of facts, as m7.")]
Why = Annotated[str, typer.Option("-m", "--message", help="Why; kept.")]


def _with_memory(store: str, app: str, work: Work) -> int:
    """Only looks."""
    return _writing(locate(store, app), work, words=False)


def _writing(
    place: Place,
    work: Work,
    *,
    words: bool,
    first: Callable[[Runtime | None], None] | None = None,
    makes: bool = False,
) -> int:
    async def whole(client: Client) -> int:
        found = DEFAULT_RULES.on(client.store)
        if found is None:
            raise ConfigError("--store", "this store keeps no facts", "Name a store's file")
        return await work(found, client)

    return with_store(place, whole, words=words, first=first, makes=makes)


def _now() -> int:
    return SystemClock().now_us()


def _scope(principal: str, tenant: str, project: str, agent: str) -> Scope | None:
    """The scope that the options name; None when they name none."""
    if project and agent:
        raise ConfigError("--project", "a fact is of a project or of an agent", "Give one of them")
    if project:
        return Scope(kind="project", name=project, tenant=tenant)
    if agent:
        return Scope(kind="agent", name=agent, tenant=tenant)
    return user_scope(Principal(id=principal, tenant=tenant)) if principal else None


# ---------------------------------------------------------------- looking


@memory.command("list")
def list_facts(  # noqa: PLR0913 - one parameter for each option of the command
    *,
    principal: Whose = "",
    tenant: Tenant = "",
    project: Project = "",
    agent: AgentName = "",
    state: Annotated[
        str, typer.Option("--state", help="Only live, expired, waiting or superseded ones.")
    ] = "",
    limit: options.Limit = 1000,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List facts, the oldest first."""
    shared = _scope("", tenant, project, agent)
    where = FactFilter(
        scope=shared,
        principal=principal,
        tenant=tenant if principal or tenant else None,
        state=state_of(state, "--state"),
        limit=limit,
    )

    async def look(found: Memory, _: Client) -> int:
        _print_all(await facts_as_of(found, where, _now()), json=json)
        return exits.DONE

    raise typer.Exit(_with_memory(store, app, look))


def _print_all(facts: Sequence[Fact], *, json: bool, none: str = "no facts") -> None:
    for fact in facts:
        _print(fact, json=json)
    if not facts:
        complain(none)


def _print(fact: Fact, *, json: bool) -> None:
    if json:
        write(export_line(fact) + "\n")
        return
    notes = [str(fact.scope), fact.trust, day(fact.content.created_at)[:10]]
    if fact.state == "superseded":
        notes.append(f"replaced by m{fact.successor}")
    elif fact.state == "waiting":
        notes.append("waits for a review")
    if fact.expired(_now()):
        notes.append("expired")
    print_line(f"{fact.id}  {visible_line(fact.text, WIDTH)}")
    print_line(f"    {visible_line(' · '.join(notes), WIDTH)}")


@memory.command("search")
def search(  # noqa: PLR0913 - one parameter for each option of the command
    query: Annotated[str, typer.Argument(metavar="QUERY", help="What to look for.")],
    *,
    principal: Whose = "local",
    tenant: Tenant = "",
    project: Project = "",
    agent: AgentName = "",
    limit: Annotated[int, typer.Option("--limit", min=1, max=50, help="How many at most.")] = 5,
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Find facts as a run would: in one scope, in its order, only what counts now.

    Where the application has an embedder they are ranked by their words and by their meaning, else
    by their words alone. Standard error says which, and why they are not ranked better.
    """
    scope, place = _scope(principal, tenant, project, agent), locate(store, app)

    async def look(runtime: Runtime) -> int:
        embedder = runtime.host.memory_rules.embedder
        found = await runtime.memory.recall(query, [] if scope is None else [scope], limit, _now())
        _print_all([hit.fact for hit in found.hits], json=json)
        complain(ranked(embedder, place, found.degraded))
        return exits.DONE

    raise typer.Exit(with_runtime(place, look))


@memory.command("index")
def index(
    *, json: options.JsonDone = False, store: options.Store = "", app: options.App = ""
) -> None:
    """Have the application's embedder give vectors to the facts that have none.

    Those that were kept while it was down, or before there was one. It is done by itself too, bit
    by bit, as facts are kept and recalled. Exit code 1 where some have none still.
    """

    async def fill(runtime: Runtime) -> int:
        done = await runtime.index_facts_async()
        have = "has" if done.left == 1 else "have"
        said = f"{count(done.made, 'fact')} got a vector; {done.left:,} {have} none"
        more = {"made": done.made, "left": done.left}
        tell(json, "indexed", "facts", said, changed=bool(done.made), **more)
        if done.left:
            complain(done.why)
        return exits.REFUSED if done.left else exits.DONE

    raise typer.Exit(with_runtime(locate(store, app), fill))


@memory.command("show")
def show(
    fact: FactId, *, json: options.Json = False, store: options.Store = "", app: options.App = ""
) -> None:
    """Show a fact and where it comes from, or what stays of a removed one."""
    n = fact_number(fact)

    async def look(found: Memory, _: Client) -> int:
        gone = await found.gone(n)
        if gone is not None:
            _print_gone(gone, json=json)
            return exits.DONE
        there = as_of(await found.get(n), _now())
        if json:
            _print(there, json=True)
            return exits.DONE
        print_line(f"{there.id}  {visible_line(there.text, 8_000)}")
        for name, value in msgspec.json.decode(export_line(there)).items():
            if value and name not in {"id", "text", "salt"}:
                shown = ", ".join(map(str, value)) if isinstance(value, list) else value
                shown = day(value) if name.endswith("_at") else shown
                print_line(f"    {name}: {visible_line(str(shown), WIDTH)}")
        return exits.DONE

    raise typer.Exit(_with_memory(store, app, look))


def _print_gone(gone: Gone, *, json: bool) -> None:
    if json:
        line = {"id": f"m{gone.n}", "gone": gone.why, "at": gone.at, "by": gone.by}
        write(json_line(line | {"hash": gone.hash.hex()}))
        return
    by = f" by {gone.by}" if gone.by else ""
    print_line(f"m{gone.n} was {gone.why}{by} on {day(gone.at)}")


@memory.command("export")
def export(
    *,
    principal: Whose = "local",
    tenant: Tenant = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Write all facts kept for a principal, whatever their scope, one JSON object a line."""

    async def look(found: Memory, _: Client) -> int:
        for line in await found.export(Principal(id=principal, tenant=tenant)):
            write(line + "\n")
        return exits.DONE

    raise typer.Exit(_with_memory(store, app, look))


# ---------------------------------------------------------------- deciding


@memory.command("add")
def add(  # noqa: PLR0913 - one parameter for each option of the command
    text: Annotated[
        str, typer.Argument(metavar="TEXT", help="The fact; - reads it from standard input.")
    ],
    *,
    principal: Whose = "local",
    tenant: Tenant = "",
    project: Project = "",
    agent: AgentName = "",
    within: Annotated[
        str, typer.Option("--within", metavar="TIME", help="How long it counts: 8h, 30d.")
    ] = "",
    supersedes: Annotated[
        str, typer.Option("--supersedes", metavar="FACT", help="The fact it replaces, as m7.")
    ] = "",
    tags: Annotated[
        list[str] | None, typer.Option("--tag", help="A word to find it by; several times.")
    ] = None,
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Have a fact remembered that you vouch for.

    A project or an agent whose facts the application does not share is refused. What looks like a
    key is kept nowhere, so a text that holds one is refused too. A store that is not there is made,
    and that is said.
    """
    scope = _scope(principal, tenant, project, agent)
    if scope is None:
        raise ConfigError("--principal", "it is empty", "Say for whom the fact is kept")
    given = options.spoken(text)
    seconds = options.lasting(within, "--within", MAX_DAYS)
    actor = options.who(by)

    def said(secrets: Secrets, now: int) -> NewFact:
        redact = secrets.anyones().text
        new = NewFact(
            text=typed(given, redact, "TEXT"),
            scope=scope,
            principal=principal,
            trust="owner",
            expires_at=now + seconds * (DAY_US // 86_400) if seconds else 0,
            supersedes=fact_number(supersedes) if supersedes else 0,
            tags=checked_tags(tags or (), redact, "--tag"),
        )
        return checked(new, now)

    def first(runtime: Runtime | None) -> None:
        check_shared(scope, principal)(runtime)
        secrets = runtime.host.secrets if runtime is not None else of_environment()
        said(secrets, _now())  # what cannot be kept is refused before a store is made for it

    async def keep(found: Memory, client: Client) -> int:
        whose = {"--principal": principal, "--tenant": tenant}
        client.check_names(None, **whose, **{"--project": project, "--agent": agent})
        now = _now()
        kept = await found.keep(said(client.secrets, now), "", now, actor)
        how = "waits for a review: " + kept.why if kept.state == "waiting" else "is remembered"
        told = f"m{kept.n} {'was known already' if kept.known else how}"
        more = {"state": kept.state, "why": kept.why}
        tell(json, "remembered", f"m{kept.n}", told, changed=not kept.known, **more)
        return exits.DONE

    place, makes = locate(store, app, by), not supersedes
    raise typer.Exit(_writing(place, keep, words=True, first=first, makes=makes))


@memory.command("review")
def review(  # noqa: PLR0913 - one parameter for each option of the command
    facts: Annotated[
        list[str] | None,
        typer.Argument(metavar="[FACT]...", help="Facts to decide about; none lists what waits."),
    ] = None,
    *,
    accept: Annotated[bool, typer.Option("--accept", help="Let it count from here on.")] = False,
    reject: Annotated[bool, typer.Option("--reject", help="Remove it.")] = False,
    trust: Annotated[
        str, typer.Option("--trust", help="Of what is accepted: owner, agent or untrusted.")
    ] = "owner",
    message: Why = "",
    by: options.By = "",
    json: options.Json = False,
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """List what waits for a person, or accept or reject facts.

    A fact that may come from untrusted content counts only after this, and nothing else makes it
    trusted. Accepting one that is remembered already raises its trust; one that says what is
    remembered already, in the same words, confirms that. What a rejected fact had replaced counts
    again, and what stood behind it in the same words is rejected with it; one that has expired can
    only be rejected. A fact whose place another of those named has taken is kept as history, and
    that is said.
    """
    if accept and reject:
        raise ConfigError("--reject", "--accept is given as well", "Give one of them")
    if facts and not (accept or reject):
        raise ConfigError("--accept", "say what becomes of them", "Give --accept or --reject")
    if not facts and (accept or reject):
        raise ConfigError("FACT", "no fact is named", "Name facts, as m7")
    numbers, actor = _numbers(facts or ()), options.who(by)
    verdict: Literal["accepted", "rejected"] = "accepted" if accept else "rejected"

    async def decide(found: Memory, client: Client) -> int:
        reason = client.secrets.anyones().text(message)
        level: Trust = _trust(trust)
        if not numbers:
            waiting = await found.facts(FactFilter(state="waiting", limit=1000))
            _print_all(waiting, json=json, none="no facts wait")
        await check_reviewable(found, numbers, _now(), accept=accept)
        return await review_all(
            found,
            numbers,
            verdict,
            trust=level,
            reason=reason,
            actor=actor,
            now=_now,
            json=json,
        )

    raise typer.Exit(_writing(locate(store, app, by), decide, words=bool(message)))


def _numbers(facts: Sequence[str]) -> list[int]:
    """The facts that are named, each once."""
    return list(dict.fromkeys(fact_number(each) for each in facts))


def _trust(text: str) -> Trust:
    for level in TRUSTS:
        if text == level:
            return level
    raise ConfigError("--trust", f"{text!r} is none", "Write owner, agent or untrusted")


@memory.command("forget")
def forget(
    facts: FactIds,
    *,
    message: Why = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Remove facts for good, and the older ones that they had replaced.

    All of them or, if one is not there, none.
    """
    numbers, actor = _numbers(facts), options.who(by)

    async def remove(found: Memory, client: Client) -> int:
        reason = client.secrets.anyones().text(message)
        for n in numbers:
            await found.get(n)
        removed: set[int] = set()
        for n in numbers:
            if n in removed:
                continue
            gone = await found.forget(n, _now(), actor=actor, reason=reason)
            removed.update(gone)
            ids = [f"m{each}" for each in gone]
            tell(json, "forgotten", f"m{n}", f"forgotten: {', '.join(ids)}", facts=ids)
        return exits.DONE

    raise typer.Exit(_writing(locate(store, app, by), remove, words=bool(message)))


@memory.command("erase")
def erase(
    *,
    principal: Annotated[
        str, typer.Option("--principal", metavar="WHO", help="Whose facts.", show_default=False)
    ],
    tenant: Tenant = "",
    yes: Annotated[bool, typer.Option("--yes", help="Erase without asking.")] = False,
    message: Why = "",
    json: options.JsonDone = False,
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Remove all facts of a principal, down to the bytes of the file.

    Tombstones stay: number, hash, when, by whom. What runs wrote into their own journals is not
    touched.
    """
    options.asks_nobody(json=json, yes=yes)
    whose, actor = principal_of(Principal(id=principal, tenant=tenant)), options.who(by)

    async def remove(found: Memory, client: Client) -> int:
        there = len(await found.export(whose))
        of = f"{principal} of {tenant}" if tenant else principal
        if not json:
            print_line(f"{count(there, 'fact')} of {visible_line(of)}")
        if not yes and not typer.confirm("Erase all of them for good?", default=False):
            complain("nothing was erased")
            return exits.REFUSED
        reason = client.secrets.anyones().text(message)
        erased = await found.erase(whose, _now(), actor=actor, reason=reason)
        more = {"tenant": tenant, **msgspec.structs.asdict(erased)}
        tell(json, "erased", principal, f"erased: {count(erased.facts, 'fact')}", **more)
        if not erased.log_cleared:
            complain("another process reads an older state: the log still holds them. Erase again")
            return exits.REFUSED
        return exits.DONE

    raise typer.Exit(_writing(locate(store, app, by), remove, words=bool(message)))
