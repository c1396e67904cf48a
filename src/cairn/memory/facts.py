"""What is remembered: facts, where they belong, how far they are trusted, and their bounds."""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import Literal

import msgspec

from cairn.core.keylike import MARKER
from cairn.core.limits import estimate_tokens
from cairn.core.messages import Principal, Record, clean
from cairn.core.unseen import as_seen
from cairn.core.visible import in_json
from cairn.errors import ConfigError, UnknownRun, safe_repr

Kind = Literal["user", "project", "agent"]
Trust = Literal["owner", "agent", "untrusted"]
State = Literal["live", "waiting", "superseded", "expired"]
KINDS: tuple[Kind, ...] = ("user", "project", "agent")
TRUSTS: tuple[Trust, ...] = ("untrusted", "agent", "owner")
"""From the least to the most."""

MAX_CHARS = 4_000
"""Characters of a fact: a longer text is a document, and belongs into a file."""
MAX_TAGS = 10
MAX_TAG_CHARS = 50
MAX_NAME_CHARS = 200
MAX_FACTS = 20_000
"""Facts of one scope, those included that wait for a review."""
MAX_WAITING = 1_000
"""Facts of one principal that wait for a review."""
MAX_HITS = 50
LABEL = re.compile(r"[a-z0-9][A-Za-z0-9._:/-]{0,99}")


class Scope(Record):
    """Who shares a fact.

    Args:
        kind: `user` for one principal, `project` or `agent` for all who work on or with it.
        name: The principal's id, the project's or the agent's name.
        tenant: Within which tenant; scopes of two tenants never meet.
    """

    kind: Kind
    name: str
    tenant: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.tenant}" if self.tenant else "")


def user_scope(principal: Principal) -> Scope:
    """The scope of one principal alone."""
    return Scope(kind="user", name=principal.id, tenant=principal.tenant)


class NewFact(Record):
    """A fact as it is handed over to be kept.

    Args:
        text: What is to be remembered; at most 4,000 characters.
        scope: Who shares it.
        principal: For whom the run works that keeps it, or who adds it; of the scope's tenant.
        trust: How far it may be trusted: `owner` when a person said so, `agent` for what a run
            concluded from trusted content, `untrusted` for all else.
        taint: Labels of the untrusted content that it may come from.
        run, call, uri: Where it comes from.
        expires_at: Microseconds since 1970 from which on it counts no more; 0 for never.
        supersedes: Number of the fact of the same scope that it replaces; 0 for none.
        tags: Words to sort it by; they are searched like its text.
        waits: Whether a person is to look at it before it counts.
    """

    text: str
    scope: Scope
    principal: str
    trust: Trust = "untrusted"
    taint: tuple[str, ...] = ()
    run: str = ""
    call: str = ""
    uri: str = ""
    expires_at: int = 0
    supersedes: int = 0
    tags: tuple[str, ...] = ()
    waits: bool = False


class Content(NewFact):
    """What of a fact never changes, and what its hash is made of."""

    n: int = 0
    key: str = ""
    created_at: int = 0


class Fact(Record):
    """A fact as it stands.

    Args:
        content: What never changes.
        state: `live`, `waiting` for a review, or `superseded`. A list says `expired` of a live
            one whose time is up; where it is kept it stays `live` until it is removed.
        trust: As it is now; only a review raises it.
        successor: Number of the fact that replaced it, 0 for none.
        salt, hash: What its tombstone keeps is H(salt ‖ content); the salt goes with the content.
    """

    content: Content
    state: State
    trust: Trust
    successor: int = 0
    salt: bytes = b""
    hash: bytes = b""

    @property
    def n(self) -> int:
        """Its number."""
        return self.content.n

    @property
    def id(self) -> str:
        """As people and models name it: `m7`."""
        return f"m{self.content.n}"

    @property
    def text(self) -> str:
        """What is remembered."""
        return self.content.text

    @property
    def scope(self) -> Scope:
        """Who shares it."""
        return self.content.scope

    def expired(self, now: int) -> bool:
        """Whether its time is up."""
        return 0 < self.content.expires_at <= now

    def of(self, principal: Principal) -> bool:
        """Whether it was kept for this principal."""
        content = self.content
        return (content.principal, content.scope.tenant) == (principal.id, principal.tenant)

    def trust_for(self, principal: Principal) -> Trust:
        """How far a run of this principal may trust it.

        What another principal's run concluded is untrusted until a person has accepted it.
        """
        if self.trust == "agent" and not self.of(principal):
            return "untrusted"
        return self.trust


class Kept(Record):
    """What became of a fact that was handed over.

    Args:
        n: Its number.
        state: `live`, `waiting`, or `gone` when the call that kept it is repeated after the fact
            was forgotten.
        known: Whether it was there before: by its key, or as a fact of the same words.
        why: Why it waits; empty if it does not.
        replaced: Numbers of the facts whose place it has taken: the one that it was to replace, and
            one of the same words.
    """

    n: int
    state: State | Literal["gone"]
    known: bool = False
    why: str = ""
    replaced: tuple[int, ...] = ()

    @property
    def id(self) -> str:
        """As people and models name it, and as `supersedes` and `forget_fact` take it: `m7`."""
        return f"m{self.n}"


class Gone(Record):
    """What stays of a fact that was removed.

    Args:
        n, hash: Its number and its hash; without the salt the hash says nothing of the text.
        at, by: When, and by whom.
        why: `forgotten`, `rejected` in a review, `expired` (it, or what had replaced it), or
            `erased` with its principal.
        key: Of the call that kept it, so that a repeat of that call does not bring it back.
    """

    n: int
    hash: bytes
    at: int
    by: str
    why: Why
    key: str = ""


Why = Literal["forgotten", "rejected", "expired", "erased"]


class Hit(Record):
    """A fact that fits a question, and how well: higher is better, within one answer only."""

    fact: Fact
    score: float


class Recall(Record, gc=True):
    """What is known of a question, the best first.

    Args:
        hits: The facts.
        degraded: Why they may not be the best there are; empty when all went as it should.
    """

    hits: tuple[Hit, ...] = ()
    degraded: str = ""


class Indexed(Record):
    """What came of giving vectors to facts.

    Args:
        made: How many facts got one now.
        left: How many have none still.
        why: Why they have none; empty when all have one.
    """

    made: int = 0
    left: int = 0
    why: str = ""


class Erased(Record):
    """What was removed of a principal.

    Args:
        facts: How many facts.
        log_cleared: Whether nothing of them is left in the store's write-ahead log either; False
            while another process reads an older state. Erase again then.
    """

    facts: int
    log_cleared: bool = True


class FactFilter(Record):
    """Which facts to list; empty fields match all. The oldest first.

    Args:
        scope: Only of this scope.
        principal, tenant: Only kept for this principal.
        state: Only in this state.
        after: Only with a higher number.
        limit: At most so many.
    """

    scope: Scope | None = None
    principal: str = ""
    tenant: str | None = None
    state: str = ""
    after: int = 0
    limit: int = 100


# ---------------------------------------------------------------- compared


def says_the_same(one: NewFact, other: NewFact) -> bool:
    """Whether two facts are one: the same words and tags, of one scope and one principal."""
    return (one.text, one.scope, one.principal, set(one.tags)) == (
        *(other.text, other.scope, other.principal),
        set(other.tags),
    )


def outlasts(one: int, other: int) -> bool:
    """Whether what ends at one time counts longer than what ends at the other; 0 is never."""
    return bool(other) and (not one or one > other)


def most_trusted(*trusts: Trust) -> Trust:
    """The most trust of several."""
    return max(trusts, key=TRUSTS.index)


# ---------------------------------------------------------------- checked


def fact_number(id: object, field: str = "fact") -> int:
    """The number that an id names; `field` is how messages call it.

    Raises:
        ConfigError: it is no text. UnknownRun: it is no fact's id.
    """
    if not isinstance(id, str):
        raise ConfigError(field, f"{safe_repr(id)} is no fact's id", 'Write it as "m7"')
    text = id.strip()
    if re.fullmatch(r"m[0-9]{1,15}", text) is None:
        raise UnknownRun(f"there is no fact {text[:40]!r}: facts are named m1, m2, …")
    return int(text[1:])


def typed(text: object, redact: Callable[[str], str], field: str) -> str:
    """What a person has typed, as it may be kept: registered secrets are their handles in it.

    Raises:
        ConfigError: it is no text, or holds what looks like a key.
    """
    if not isinstance(text, str):
        raise ConfigError(field, f"{safe_repr(text)} is no text", "Give a string")
    kept = redact(clean(text))
    lost = MARKER.search(kept)
    if lost is not None:
        problem = f"it holds what looks like a key, {lost[0]}. Such a value is kept nowhere"
        raise ConfigError(field, problem, "Leave it out, or have it registered as a secret")
    return kept


def checked_tags(tags: object, redact: Callable[[str], str], field: str) -> tuple[str, ...]:
    """The tags that a person has typed.

    Raises:
        ConfigError: they are no list of texts, or one holds what looks like a key.
    """
    if not isinstance(tags, list | tuple):
        raise ConfigError(field, f"{safe_repr(tags)} is no list", 'Give several, as ("bday",)')
    return tuple(typed(tag, redact, field) for tag in tags)


def is_number(value: object) -> bool:
    """Whether it can be reckoned with."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def checked(new: NewFact, now: int) -> NewFact:
    """The fact as it can be kept: its text storable and within bounds.

    Raises:
        ConfigError: a part of it is not usable.
    """
    text = clean(new.text).strip()
    if not as_seen(text).strip():
        problem = "nothing in it is seen" if text else "it is empty"
        raise ConfigError("fact.text", problem, "Say what is to be remembered")
    if len(text) > MAX_CHARS:
        problem = f"it has {len(text):,} characters, and a fact has at most {MAX_CHARS:,}"
        raise ConfigError("fact.text", problem, "Keep it short, or write it to a file")
    if new.scope.kind not in KINDS or not new.scope.name:
        raise ConfigError("fact.scope", f"{new.scope} is none", f"Use {', '.join(KINDS)}")
    for field, value in (("scope", new.scope.name), ("scope", new.scope.tenant)):
        _check_name(field, value)
    _check_name("principal", new.principal)
    if new.trust not in TRUSTS:
        raise ConfigError(
            "fact.trust", f"{safe_repr(new.trust)} is none", f"Use {', '.join(TRUSTS)}"
        )
    if new.expires_at and new.expires_at <= now:
        raise ConfigError("fact.expires_at", "it lies in the past", "Name a time that is to come")
    if new.supersedes < 0 or new.expires_at < 0:
        raise ConfigError("fact", "a number in it is negative", "Give 0 or more")
    if any(LABEL.fullmatch(label) is None for label in new.taint):
        raise ConfigError(
            "fact.taint", f"{safe_repr(new.taint)} are no labels", "Give labels as web"
        )
    if new.trust != "untrusted" and new.taint:
        fix = "Keep it as untrusted; a person can accept it"
        raise ConfigError("fact.trust", f"a fact from {', '.join(new.taint)} has none", fix)
    tags = tuple(dict.fromkeys(clean(tag).strip() for tag in new.tags))
    if len(tags) > MAX_TAGS or not all(map(_is_tag, tags)):
        fix = f"Give at most {MAX_TAGS}, each of 1 to {MAX_TAG_CHARS} characters on one line"
        raise ConfigError("fact.tags", f"{safe_repr(new.tags)} cannot be tags", fix)
    return msgspec.structs.replace(
        new, text=text, tags=tags, taint=tuple(sorted(set(new.taint))), uri=clean(new.uri)
    )


def _is_tag(tag: str) -> bool:
    return 0 < len(tag) <= MAX_TAG_CHARS and tag.isprintable()


def _check_name(field: str, value: str) -> None:
    if len(value) > MAX_NAME_CHARS or clean(value) != value:
        fix = f"Use at most {MAX_NAME_CHARS} plain characters"
        raise ConfigError(f"fact.{field}", f"{safe_repr(value, 60)} cannot be a name", fix)


# ---------------------------------------------------------------- written


_decoder = msgspec.json.Decoder(Content)


def encoded(content: Content) -> bytes:
    """The content as it is stored and hashed."""
    return msgspec.json.encode(content)


def decoded(data: bytes) -> Content:
    """The content again. Raises `msgspec.MsgspecError` when it is none."""
    return _decoder.decode(data)


def sealed(salt: bytes, data: bytes) -> bytes:
    """The hash of a fact: what its tombstone and the journal `store` keep."""
    return sha256(salt + data).digest()


def export_line(fact: Fact) -> str:
    """A fact as one JSON object: all that is kept of it, but for its index and its vector.

    What nobody sees in a text, or a terminal would obey, is escaped: read again it is the same.
    """
    line = {
        "id": fact.id,
        "text": fact.text,
        "scope": fact.scope.kind,
        "name": fact.scope.name,
        "tenant": fact.scope.tenant,
        "principal": fact.content.principal,
        "trust": fact.trust,
        "kept_as": fact.content.trust,
        "state": fact.state,
        "taint": list(fact.content.taint),
        "run": fact.content.run,
        "call": fact.content.call,
        "uri": fact.content.uri,
        "created_at": fact.content.created_at,
        "expires_at": fact.content.expires_at,
        "supersedes": f"m{fact.content.supersedes}" if fact.content.supersedes else "",
        "superseded_by": f"m{fact.successor}" if fact.successor else "",
        "tags": list(fact.content.tags),
        "salt": fact.salt.hex(),
        "hash": fact.hash.hex(),
    }
    return in_json(msgspec.json.encode(line).decode())


def tokens_of(fact: Fact) -> int:
    """About how many tokens it takes to tell it."""
    return estimate_tokens(fact.text) + 24
