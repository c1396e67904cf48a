"""Which agent a message from outside goes to, and into which session: rules, never a model.

All fields that a route names must fit. Among those that fit the most specific one decides: a route
that names the principal goes before one that does not, then one that names the key, then one with
a pattern for it, then one that names the channel. Two routes that are equally specific and could
both fit one message are refused when the runtime is made.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal
from urllib.parse import quote

from cairn.agent import MODES
from cairn.core.erasing import SHARED
from cairn.core.messages import Principal, Record
from cairn.core.names import listed, nearest
from cairn.core.routed import check_person
from cairn.engine.given import Given, check_mode, check_text, principal_of
from cairn.engine.result import Run
from cairn.errors import ConfigError, NoRoute, safe_repr
from cairn.memory.rules import check_project
from cairn.runtime.checked import checked
from cairn.runtime.sessions import Mode, Posted, Sessions
from cairn.runtime.twins import twin

Scope = Literal["principal", "channel", "key", "thread"]
SCOPES = ("principal", "channel", "key", "thread")
PATTERN_CHARS = 256
KEY_CHARS = 1_024
SHOWN = 5
"""Routes that a refusal names, where none of them comes near."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Route:
    """Where messages go that come from here.

    Args:
        agent: Who takes them.
        channel: Name of the way they come, as `mail` or `slack`; empty for any.
        principal: Id of who sends them; empty for any.
        tenant: Of the principal; empty for any.
        key: What they belong to in their channel, as a ticket or a thread; empty for any.
        pattern: In place of `key`, a pattern for the whole of it: `*` stands for any characters,
            `?` for one.
        session: What has a conversation of its own: each `principal`, each `channel`, each `key`
            in whatever channel, or each `thread` (a key in a channel). The principal is always
            part of it as well, unless `shared` is set.
        shared: Whether everybody who writes there has one conversation together. Its runs work
            for a principal `shared:<session>` without roles, in the tenant of the senders.
        mode: What becomes of messages while a run of the session is active; by default what the
            agent says.
        project: The project that its conversations are about, as for `run`. They are other ones
            than those of a route without it.

    Raises:
        ConfigError: a value is not usable.
    """

    agent: str
    channel: str = ""
    principal: str = ""
    tenant: str = ""
    key: str = ""
    pattern: str = ""
    session: Scope = "principal"
    shared: bool = False
    mode: Mode | None = None
    project: str = ""

    def __post_init__(self) -> None:
        for name in ("agent", "channel", "principal", "tenant", "key", "pattern"):
            check_text(f"Route.{name}", getattr(self, name))
        if not self.agent:
            raise ConfigError("Route.agent", "it is empty", "Name the agent")
        if self.session not in SCOPES:
            fix = f"Use one of {', '.join(SCOPES)}"
            raise ConfigError("Route.session", f"{safe_repr(self.session)} is unknown", fix)
        _check_shared(self.shared)
        if self.key and self.pattern:
            fix = "Give the key, or a pattern for it"
            raise ConfigError("Route.pattern", "a key is given as well", fix)
        if len(self.pattern) > PATTERN_CHARS:
            problem = f"it has more than {PATTERN_CHARS} characters"
            raise ConfigError("Route.pattern", problem, "Give a shorter one")
        if self.shared and self.session == "principal":
            fix = 'Say session="channel", "key" or "thread"'
            raise ConfigError("Route.shared", "each principal has a session of its own", fix)
        if self.shared and self.principal:
            fix = "Leave the principal out"
            raise ConfigError("Route.shared", "it takes messages of one principal only", fix)
        if self.mode is not None:
            check_mode(self.mode, MODES, "Route.mode")
        check_project("Route.project", self.project)

    @property
    def specificity(self) -> tuple[bool, bool, bool, bool, bool]:
        """What it names: principal, tenant, key, pattern, channel; the greater goes first."""
        named = (self.principal, self.tenant, self.key, self.pattern, self.channel)
        return tuple(map(bool, named))  # type: ignore[return-value]  # five in, five out

    def fits(self, channel: str, principal: Principal, key: str) -> bool:
        """Whether it takes a message from there."""
        return (
            self.channel in {"", channel}
            and self.principal in {"", principal.id}
            and self.tenant in {"", principal.tenant}
            and self.key in {"", key}
            and (not self.pattern or glob_fits(self.pattern, key))
        )

    def overlaps(self, other: Route) -> bool:
        """Whether there could be a message that both take."""
        for name in ("channel", "principal", "tenant", "key"):
            one, two = getattr(self, name), getattr(other, name)
            if one and two and one != two:
                return False
        if self.pattern and other.pattern:
            return globs_meet(self.pattern, other.pattern)
        return True

    def __str__(self) -> str:
        named = ("channel", "principal", "tenant", "key", "pattern")
        said = [f"{name} {getattr(self, name)!r}" for name in named if getattr(self, name)]
        return f"{', '.join(said) or 'everything'} to {self.agent}"


def _check_shared(shared: object) -> None:
    if not isinstance(shared, bool):
        raise ConfigError("Route.shared", f"{safe_repr(shared)} is neither", "Use True or False")


class Routed(Record):
    """Where a message goes.

    Args:
        agent: Who takes it.
        session: The conversation.
        principal: For whom the work is done.
        mode: What becomes of it while a run of the session is active; None for the agent's.
        route: The route that decided, in words.
        project: What the conversation is about.
    """

    agent: str
    session: str
    principal: Principal
    mode: Mode | None
    route: str
    project: str = ""


def glob_fits(pattern: str, text: str) -> bool:
    """Whether the whole text fits; takes at most as many steps as both lengths multiplied."""
    at = start = 0
    star = -1
    here = 0
    while here < len(text):
        if at < len(pattern) and pattern[at] == "*":
            star, start = at, here
            at += 1
        elif at < len(pattern) and pattern[at] in {"?", text[here]}:
            at, here = at + 1, here + 1
        elif star >= 0:
            start += 1
            at, here = star + 1, start
        else:
            return False
    return all(char == "*" for char in pattern[at:])


def globs_meet(one: str, two: str) -> bool:
    """Whether some text fits both."""
    seen: set[tuple[int, int]] = set()
    open_ends = [(0, 0)]
    while open_ends:
        at = open_ends.pop()
        if at in seen:
            continue
        seen.add(at)
        a, b = at
        left, right = one[a : a + 1], two[b : b + 1]
        if not left and not right:
            return True
        if left == "*":
            open_ends.append((a + 1, b))
        if right == "*":
            open_ends.append((a, b + 1))
        if left and right and ("*" in {left, right} or left == right or "?" in {left, right}):
            open_ends.append((a + (left != "*"), b + (right != "*")))
    return False


def check_routes(routes: object, agents: Sequence[str]) -> tuple[Route, ...]:
    """The routes, most specific first, if it is always clear which one decides.

    Raises:
        ConfigError: one is none, names an unknown agent, or two could decide alike.
    """
    if not isinstance(routes, list | tuple) or not all(isinstance(r, Route) for r in routes):
        raise ConfigError(
            "Runtime.routes", f"{safe_repr(routes)} cannot be used", "Give a list of Route"
        )
    for route in routes:
        if route.agent not in agents:
            close = nearest(route.agent, agents)
            fix = f"Did you mean {' or '.join(close)}?" if close else f"Use {listed(agents)}"
            raise ConfigError(
                "Route.agent", f"{safe_repr(route.agent)} is no agent of this runtime", fix
            )
    for n, one in enumerate(routes):
        for two in routes[n + 1 :]:
            if one.specificity == two.specificity and one.overlaps(two):
                problem = f"({one}) and ({two}) are equally specific and could take one message"
                raise ConfigError("Runtime.routes", problem, "Name more in one of them")
    return tuple(sorted(routes, key=lambda route: route.specificity, reverse=True))


def _nearness(route: Route, channel: str, who: Principal, key: str) -> int:
    """How much of what a route names a message has: exactly, or as if it were misspelt."""
    pairs = (
        (route.channel, channel),
        (route.principal, who.id),
        (route.tenant, who.tenant),
        (route.key, key),
    )
    found = 4 if route.pattern and glob_fits(route.pattern, key) else 0
    for wanted, given in pairs:
        if wanted and wanted == given:
            found += 4
        elif wanted and given and nearest(given, [wanted]):
            found += 3
        elif wanted:
            found -= 1
    return found


class Routing(Sessions):
    """Messages from outside."""

    routes: tuple[Route, ...]

    def route(self, *, channel: str = "", principal: Principal | str = "", key: str = "") -> Routed:
        """Where a message from there goes; nothing is sent.

        Raises:
            NoRoute: no route takes it.
            ConfigError: a name cannot be stored, the key is too long, or the principal is called
                like that of a shared conversation.
        """
        if principal == "":
            raise ConfigError("principal", "it is empty", "Say who sends the message")
        who = check_person(principal_of(principal))
        check_text("channel", channel)
        check_text("key", key)
        if len(key) > KEY_CHARS:
            fix = "Give a shorter one, as a hash of it"
            raise ConfigError("key", f"it has more than {KEY_CHARS} characters", fix)
        for route in self.routes:
            if route.fits(channel, who, key):
                session = session_of(route, channel, who, key)
                for_whom = who
                if route.shared:
                    for_whom = Principal(id=f"{SHARED}{session}", tenant=who.tenant)
                return Routed(
                    agent=route.agent,
                    session=session,
                    principal=for_whom,
                    mode=route.mode,
                    route=str(route),
                    project=route.project,
                )
        raise NoRoute(channel, who.id, key, self._nearest(channel, who, key))

    def _nearest(self, channel: str, who: Principal, key: str) -> str:
        if not self.routes:
            return "; this runtime has no routes"
        best = max(self.routes, key=lambda route: _nearness(route, channel, who, key))
        if _nearness(best, channel, who, key) <= 0:
            shown = "; ".join(f"({route})" for route in self.routes[:SHOWN])
            return f"; none comes near. The routes are {shown}"
        return f"; the nearest is ({best})"

    @checked
    async def receive_async(
        self,
        *,
        text: Given,
        principal: Principal | str,
        channel: str = "",
        key: str = "",
        mode: Mode | None = None,
        id: str = "",
    ) -> Run:
        """Take a message from outside, by the routes, and carry its run to a result or a wait.

        Args:
            text: The message.
            principal: Who sends it, as the caller has made sure of.
            channel, key: Where it comes from.
            mode, id: As for `send`.

        Raises:
            NoRoute: no route takes it.
            RunConflict, SessionBusy, UnknownAgent, ConfigError, StoreError: as `send`.
        """
        posted = await self.accept_async(
            text=text, principal=principal, channel=channel, key=key, mode=mode, id=id
        )
        return await self.follow_async(posted)

    @checked
    async def accept_async(
        self,
        *,
        text: Given,
        principal: Principal | str,
        channel: str = "",
        key: str = "",
        mode: Mode | None = None,
        id: str = "",
    ) -> Posted:
        """As `receive`, but return as soon as the message is kept; a worker does the rest."""
        sender = principal_of(principal)
        to = self.route(channel=channel, principal=sender, key=key)
        how = mode or to.mode
        return await self._post(
            *(to.session, text, to.agent, to.principal, sender.id, how, id),
            project=to.project,
        )

    receive = twin(receive_async)
    accept = twin(accept_async)


def session_of(route: Route, channel: str, who: Principal, key: str) -> str:
    """The id of the conversation: agent, scope, tenant and what the scope names, in that order.

    Each part is written so that it holds no `/`; two different places never give the same id.
    """
    parts = [route.agent, route.session, who.tenant, "" if route.shared else who.id]
    if route.session in {"channel", "thread"}:
        parts.append(channel)
    if route.session in {"key", "thread"}:
        parts.append(key)
    said = [quote(part, safe="") for part in parts]
    if route.project:
        said.append(f"project={quote(route.project, safe='')}")  # no quoted part has a `=` in it
    return "/".join(said)
