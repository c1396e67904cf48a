"""What users hand to the verbs, checked: bad input is named with its field and the fix.

Nothing is written before these checks have passed, so a typo never leaves a run behind.
"""

from __future__ import annotations

import mimetypes
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypedDict

import msgspec

from cairn.core.commands import Command, EditCall, Queue, SetPlan
from cairn.core.edits import MARKS
from cairn.core.events import TaskKind
from cairn.core.evolve_context import KINDS
from cairn.core.lifecycle import Status
from cairn.core.limits import Limits
from cairn.core.messages import Blob, Part, PlanItem, Principal, Text, Uri, clean, parse_object
from cairn.core.policy import Policy
from cairn.core.unseen import as_seen
from cairn.errors import ConfigError, UnknownRun, safe_repr, words_of
from cairn.ports import ReplyCall

RUN_ID_CHARS = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")
RUN_ID_LENGTH = 64
RESERVED = "store"
APPROVALS = ("ask", "none")
MEDIA_TYPE = re.compile(r"[\w.+-]{1,64}/[\w.+-]{1,64}", re.ASCII)
FILES_BYTES = 20 << 20
"""How much one input may carry in files: about what providers take in one request."""


Piece = str | Path | Part
Given = Piece | list[Piece] | tuple[Piece, ...]


class RunOptions(TypedDict, total=False):
    """The options of `run`, which `start` and `stream` take as well."""

    id: str
    principal: Principal | str
    session: str
    limits: Limits | Mapping[str, int] | None
    kind: TaskKind | None
    approvals: Literal["ask", "none"]
    policy: Policy | None
    mode: Literal["", "queue", "interrupt"]
    project: str


def check_run_id(run: object) -> str:
    """The id itself, if it is one.

    Raises:
        ConfigError: it is empty, too long, reserved, or has other characters.
    """
    fits = isinstance(run, str) and 0 < len(run) <= RUN_ID_LENGTH and RUN_ID_CHARS.issuperset(run)
    if not isinstance(run, str) or not fits or run == RESERVED:
        raise ConfigError(
            "id",
            f"{safe_repr(run)} is no run id",
            "Use 1 to 64 of letters, digits, '.', '_' and '-'; 'store' is reserved",
        )
    return run


def check_text(field: str, text: object) -> str:
    """The text itself, if every store can hold it as it is; names are never altered.

    Raises:
        ConfigError: it is no text, or has NUL or half of a character in it.
    """
    if not isinstance(text, str):
        raise ConfigError(field, f"{safe_repr(text)} is no text", "Give a string")
    if clean(text) != text:
        raise ConfigError(
            field, f"{safe_repr(text)} cannot be stored", "Use text without NUL or surrogates"
        )
    return text


def check_words(kind: object, approvals: object) -> tuple[TaskKind, Literal["ask", "none"]]:
    """A run's kind and what becomes of its approvals, if they are among the known words.

    Raises:
        ConfigError: one of them is not.
    """
    for field, given, words in (("kind", kind, KINDS), ("approvals", approvals, APPROVALS)):
        if given not in words:
            raise ConfigError(
                field, f"{safe_repr(given)} is unknown", f"Use one of {', '.join(words)}"
            )
    return kind, approvals  # type: ignore[return-value]  # both are among the literals now


def check_mode(mode: object, known: tuple[str, ...], field: str = "mode") -> str:
    """The mode itself, if it is one of these.

    Raises:
        ConfigError: it is not.
    """
    if mode not in known:
        fix = f"Use one of {', '.join(filter(None, known))}"
        if "" in known:
            fix += ", or leave it out; a message that steers a run is sent with rt.send or rt.post"
        raise ConfigError(field, f"{safe_repr(mode)} is unknown", fix)
    return str(mode)


def check_session(session: object, field: str = "session") -> str:
    """The id of a session; an empty one would stand for the runs of everybody.

    Raises:
        ConfigError: it is empty or blank, nothing in it is seen, or it cannot be stored.
    """
    name = check_text(field, session)
    if says_nothing(name):
        raise ConfigError(field, _why_nothing(name), "Name the conversation, as 'ann-1'")
    return name


def says_nothing(text: str) -> bool:
    """Whether whoever reads a text sees nothing: blanks, and signs that are not seen."""
    return not as_seen(text).strip()


def _why_nothing(text: str) -> str:
    return "nothing in it is seen" if text.strip() else "it is empty"


def check_said(field: str, text: object) -> str:
    """What a person says, made storable.

    Raises:
        ConfigError: it is no text, or nothing in it is seen.
    """
    if not isinstance(text, str):
        raise ConfigError(field, f"{safe_repr(text)} is no text", "Give a string")
    said = clean(text)
    if says_nothing(said):
        raise ConfigError(field, _why_nothing(said), "Say something")
    return said


def principal_of(given: object) -> Principal:
    """A principal, given as one or by its id.

    Raises:
        ConfigError: it is neither, its id is empty, or a name in it cannot be stored. What nobody
            is named for could be neither handed over nor erased.
    """
    who = _named(given)
    if not who.id.strip():
        raise ConfigError("principal", "its id is empty", "Say for whom, by an id as 'ann'")
    return who


def _named(given: object, field: str = "principal") -> Principal:
    """A principal, or nobody in particular.

    Raises:
        ConfigError: it is none, or a name in it cannot be stored.
    """
    who = Principal(id=given) if isinstance(given, str) else given
    if not isinstance(who, Principal):
        raise ConfigError(field, f"{safe_repr(given)} is none", "Give its id, or a cairn.Principal")
    if not isinstance(who.roles, tuple):
        raise ConfigError(
            "principal.roles", f"{safe_repr(who.roles)} is no tuple", 'Write ("clerk",)'
        )
    for name in (who.id, who.tenant, *who.roles):
        check_text(field, name)
    if who.tenant and not who.tenant.strip():
        fix = "Name the tenant, or leave it out"
        raise ConfigError("principal.tenant", f"{safe_repr(who.tenant)} is blank", fix)
    return who


def person_of(by: object, roles: object, field: str = "by") -> Principal:
    """Who decides: a principal or the id of one, with more roles; no id for nobody in particular.

    An id is made storable; the names in a principal, and roles, are never altered.

    Raises:
        ConfigError: it is neither, or a name in it cannot be stored.
    """
    who = _named(clean(by) if isinstance(by, str) else by, field)
    if isinstance(roles, str) or not isinstance(roles, Sequence):
        raise ConfigError("roles", f"{safe_repr(roles)} are none", 'Give names, as ("lead",)')
    for name in roles:
        check_text("roles", name)
    both = tuple(dict.fromkeys((*who.roles, *roles)))
    return msgspec.structs.replace(who, roles=both)


def turn_of(calls: object) -> tuple[tuple[str, str], ...]:
    """The calls of a person's turn: each a tool's name and its arguments, or a `cairn.call`.

    Raises:
        ConfigError: one of them is none.
    """
    fix = 'Write [("refund", {"order": "7"})] or [cairn.call("refund", order="7")]'
    if isinstance(calls, str) or not isinstance(calls, Sequence):
        raise ConfigError("calls", f"{safe_repr(calls)} are none", fix)
    found: list[tuple[str, str]] = []
    for each in calls:
        if isinstance(each, ReplyCall):
            found.append((check_text("calls", each.name), arguments_of(each.arguments)))
            continue
        if not isinstance(each, Sequence) or isinstance(each, str) or len(each) != 2:
            raise ConfigError("calls", f"{safe_repr(each)} is no call", fix)
        found.append((check_text("calls", each[0]), arguments_of(each[1])))
    return tuple(found)


def parts_of(given: object) -> tuple[Part, ...]:
    """Input as message parts; text is made storable, a path becomes the file's bytes.

    Raises:
        ConfigError: a part is no text, file or address, or a file cannot be read or is too large.
    """
    items = tuple(given) if isinstance(given, list | tuple) else (given,)
    parts = tuple(map(_part_of, items))
    if all(isinstance(part, Text) and says_nothing(part.content) for part in parts):
        fix = "Pass a text, or a file (pathlib.Path)"
        raise ConfigError("input", f"{safe_repr(given)} holds nothing", fix)
    if sum(len(p.content) for p in parts if isinstance(p, Blob)) > FILES_BYTES:
        limit = f"all files together are larger than {FILES_BYTES >> 20} MiB"
        raise ConfigError("input", limit, "Pass addresses (cairn.Uri), or fewer files")
    return parts


def _part_of(item: object) -> Part:
    match item:
        case str():
            return Text(clean(item))
        case Text():
            return Text(clean(item.content))
        case Path():
            return _file(item)
        case Blob() if MEDIA_TYPE.fullmatch(item.mime_type):
            return msgspec.structs.replace(item, name=clean(item.name))
        case Uri() if item.uri.startswith(("https://", "http://")):
            return Uri(uri=clean(item.uri), mime_type=clean(item.mime_type))
    fix = (
        "Pass text, a pathlib.Path, cairn.Blob(mime_type=, content=) or cairn.Uri(uri='https://…')"
    )
    raise ConfigError("input", f"{safe_repr(item)} is neither text nor a file", fix)


def _file(path: Path) -> Blob:
    mime_type, _ = mimetypes.guess_type(path.name)
    try:
        if path.stat().st_size > FILES_BYTES:
            limit = f"{path} is larger than {FILES_BYTES >> 20} MiB"
            raise ConfigError("input", limit, "Pass a smaller file, or its address as cairn.Uri")
        content = path.read_bytes()
    except OSError as error:
        said = f"{path} cannot be read ({error.strerror or error})"
        raise ConfigError("input", said, "Name a file that can be read") from error
    return Blob(
        mime_type=mime_type or "application/octet-stream", content=content, name=clean(path.name)
    )


def check_request(request: object) -> tuple[str, int]:
    """`order-7/1` as run and number.

    Raises:
        ConfigError: it is not of that form.
    """
    run, _, number = request.rpartition("/") if isinstance(request, str) else ("", "", "")
    if not run or not number.isdecimal():
        raise ConfigError("request", f"{safe_repr(request)} names no request", "Write it as RUN/1")
    return run, int(number)


def check_call(call: object) -> tuple[str, str]:
    """`order-7/c4` as run and call.

    Raises:
        ConfigError: it is not of that form.
    """
    run, _, call_id = call.rpartition("/") if isinstance(call, str) else ("", "", "")
    if not run or call_id[:1] != "c":
        raise ConfigError("call", f"{safe_repr(call)} names no call", "Write it as RUN/c4")
    return run, call_id


def check_seq(run: str, seq: object, head: int) -> int:
    """The number itself, if it is one of the run's events.

    Raises:
        ConfigError: it is no whole number. UnknownRun: the run has no such event.
    """
    if isinstance(seq, bool) or not isinstance(seq, int):
        raise ConfigError(
            "at", f"{safe_repr(seq)} is no event's number", f"Give one of 1 to {head}"
        )
    if not 1 <= seq <= head:
        raise UnknownRun(f"run {run} has no event {safe_repr(seq)}; its events are 1 to {head}")
    return seq


def arguments_of(given: object) -> str:
    """New arguments of a call, given as a mapping or as JSON text.

    Raises:
        ConfigError: they are no JSON object.
    """
    text = given if isinstance(given, str) else ""
    if isinstance(given, Mapping):
        try:
            text = msgspec.json.encode(given).decode()
        except (TypeError, ValueError, RecursionError) as error:
            said = f"they cannot be written as JSON: {words_of(error)}"
            raise ConfigError("arguments", said, 'Pass a mapping like {"cents": 400}') from None
    text = clean(text)
    if not text.strip() or parse_object(text) is None:
        raise ConfigError(
            "arguments",
            f"{safe_repr(given)} is no JSON object",
            'Pass a mapping like {"cents": 400}',
        )
    return text


PLAN_LINE = re.compile(r"\s*(?:[-*]\s+)?(?:\[(?P<mark>[ >x-])\]\s+)?(?P<text>.*\S)\s*")


def plan_of(given: object) -> tuple[PlanItem, ...]:
    """A plan, given as a list of texts and items, or as text with a line for each item.

    A line may begin with a mark: `[ ]` open, `[>]` doing, `[x]` done, `[-]` dropped.

    Raises:
        ConfigError: it is none.
    """
    if isinstance(given, str):
        return tuple(map(_plan_line, filter(str.strip, given.splitlines())))
    fix = 'Pass a list like ["look it up", {"text": "answer", "status": "doing"}]'
    if not isinstance(given, list | tuple):
        raise ConfigError("plan", f"{safe_repr(given)} is no plan", fix)
    items: list[PlanItem] = []
    for item in given:
        if isinstance(item, str):
            items.append(PlanItem(text=clean(item)))
            continue
        try:
            found = msgspec.convert(item, PlanItem, from_attributes=True)
        except msgspec.ValidationError as error:
            raise ConfigError("plan", f"{safe_repr(item)} is no item ({error})", fix) from None
        items.append(msgspec.structs.replace(found, text=clean(found.text)))
    return tuple(items)


def _plan_line(line: str) -> PlanItem:
    found = PLAN_LINE.fullmatch(line)
    assert found is not None  # noqa: S101 - blank lines were left out
    status = STATUS_OF[found["mark"] or " "]
    return PlanItem(text=clean(found["text"]), status=status)  # type: ignore[arg-type]  # a key of MARKS


STATUS_OF = {mark: status for status, mark in MARKS.items()}


class Edits(TypedDict, total=False):
    """What is changed of a run that goes on; each is an event of its own, in this order.

    `arguments` are by call (`c3`), each a mapping or JSON text.
    """

    arguments: Mapping[str, Mapping[str, Any] | str]
    plan: Sequence[str | Mapping[str, Any] | PlanItem] | str | None
    message: Given


def commands_of(edits: object) -> tuple[Command, ...]:
    """Edits as commands.

    Raises:
        ConfigError: they are none, or one of them is not usable.
    """
    if not isinstance(edits, Mapping) or (set(edits) - set(Edits.__annotations__)):
        raise ConfigError(
            "edits", f"{safe_repr(edits)} cannot be made", 'Use "arguments", "plan" and "message"'
        )
    changed = edits.get("arguments") or {}
    if not isinstance(changed, Mapping):
        raise ConfigError("edits.arguments", f"{safe_repr(changed)} is none", 'Write {"c3": {...}}')
    commands: list[Command] = [
        EditCall(call=check_text("edits.arguments", call), arguments=arguments_of(given))
        for call, given in changed.items()
    ]
    if edits.get("plan") is not None:
        commands.append(SetPlan(items=plan_of(edits["plan"])))
    if edits.get("message"):
        commands.append(Queue(parts=parts_of(edits["message"])))
    return tuple(commands)


def check_statuses(status: str | Sequence[str]) -> tuple[str, ...]:
    """Names of statuses, given as one or several.

    Raises:
        ConfigError: one of them is none.
    """
    given: object = (status,) if isinstance(status, str) else status
    if not isinstance(given, Iterable):
        raise ConfigError(
            "status", f"{safe_repr(given)} is none", 'Write "paused" or a list of them'
        )
    wanted = tuple(given)
    known = [each.value for each in Status]
    for name in wanted:
        if name not in known:
            raise ConfigError(
                "status", f"{safe_repr(name)} is no status", f"Use {', '.join(known)}"
            )
    return wanted
