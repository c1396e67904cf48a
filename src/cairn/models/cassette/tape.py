"""The tape: JSON lines, one for each exchange, with what repeats defined once.

    {"cassette": 1, "cairn": "0.1.0", "model": "openai:gpt-5-mini", "window": 400000, …}
    {"define": "m-8c0f…", "message": {"role": "user", "parts": [{"type": "text", …}]}}
    {"exchange": 1, "run": "order-7", "turn": 0, "attempt": 1, "messages": ["m-8c0f…"],
     "reply": {…}}
    {"exchange": 2, …, "after": 1, "messages": ["m-51aa…", "m-9e02…"], "error": {…}}

`after` stands for all messages of an earlier exchange. Nothing but the content counts when a tape
is read: a name that a line is defined by is only a name.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from cairn.errors import ConfigError, ErrorClass, ModelError
from cairn.models.cassette.asked import Asked, digest, redacted_message, redacted_tool
from cairn.models.cassette.redaction import Redactor
from cairn.ports import ModelReply, ModelRequest

VERSION = 1
RECORD_IT = "Record it once with CAIRN_CASSETTE=record, with the provider's key at hand"
RECORD_ANEW = "Record it anew with CAIRN_CASSETTE=record"
FROM_TAPE = "(this failure is from the tape)"
LONG_WAIT_S = 60.0
"""A run that is asked to wait longer goes on with another model, if it has one."""
REPLAYED_WAIT_S = 0.01
TOLD = frozenset(
    {ErrorClass.EMPTY_OUTPUT, ErrorClass.MALFORMED_OUTPUT, ErrorClass.TRUNCATED_OUTPUT}
)
"""Failures whose message goes to the model, so it must be the recorded one word for word."""
PASSING = frozenset(
    {
        ErrorClass.AUTH,
        ErrorClass.NETWORK,
        ErrorClass.OVERLOADED,
        ErrorClass.QUOTA_EXHAUSTED,
        ErrorClass.RATE_LIMITED,
        ErrorClass.STREAM_INTERRUPTED,
        ErrorClass.TIMEOUT,
        ErrorClass.UNAVAILABLE,
    }
)
"""What the same request may not meet another time."""


class Header(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The first line: whose answers these are, and what that model can hold.

    `asked` is the string the model was asked for by, where that is not its name.
    """

    cassette: int
    cairn: str = ""
    model: str
    asked: str = ""
    window: int
    max_output: int
    takes_tools: bool = True


@dataclass(frozen=True, kw_only=True)
class Exchange:
    """A request and what came: a reply, or an error and the text that was shown before it."""

    number: int
    line: int
    asked: Asked
    run: str = ""
    turn: int = 0
    attempt: int = 1
    reply: ModelReply | None = None
    error: dict[str, Any] | None = None
    shown: str = ""

    @property
    def passes(self) -> bool:
        """Whether it is a failure of that hour or that key, and not of the request."""
        return self.error is not None and ErrorClass(self.error["class"]) in PASSING

    def failure(self, *, waited: bool = False) -> ModelError:
        """The recorded error, made anew for each who asks.

        Args:
            waited: Whether the wait that the provider asked for lies behind the recording: then
                it is not waited for again. A long one that nobody waited for is kept, for it
                is why the run went on with another model.
        """
        told = self.error or {}
        error_class, message = ErrorClass(told["class"]), told.get("message", "")
        if error_class not in TOLD:
            message = f"{message} {FROM_TAPE}".lstrip()
        wait = told.get("retry_after_s")
        if wait is not None and (waited or wait <= LONG_WAIT_S):
            wait = min(wait, REPLAYED_WAIT_S)
        return ModelError(
            error_class,
            message,
            retry_after_s=wait,
            status=told.get("status"),
            request_id=told.get("request_id", ""),
        )


class Tape:
    """What is on a tape, found by content."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.header: Header | None = None
        self.exchanges: list[Exchange] = []
        self.newest = 0
        self.definitions: dict[str, Any] = {}
        self._by_digest: dict[str, list[Exchange]] = {}
        self._by_number: dict[int, Asked] = {}
        self._read: dict[str, Any] = {}

    def add(self, exchange: Exchange) -> None:
        """Take an exchange up."""
        self.exchanges.append(exchange)
        self.newest = max(self.newest, exchange.number)
        self._by_number[exchange.number] = exchange.asked
        self._by_digest.setdefault(exchange.asked.digest, []).append(exchange)

    def same(self, asked: Asked) -> list[Exchange]:
        """The exchanges with this very request."""
        return self._by_digest.get(asked.digest, [])

    def find(self, asked: Asked, request: ModelRequest, run: str) -> Exchange | None:
        """The answer to this request, by nothing but the tape and the request.

        A run counts its turns in its journal, so one that was killed and goes on elsewhere is
        answered as before. Where the turn is another one, the attempt decides; a failure answers
        no other attempt than its own. Among equals a run of the same name comes first, then the
        newest.
        """
        same = self.same(asked)
        found = [one for one in same if one.turn == request.turn]
        found = found or [one for one in same if one.attempt == request.attempt]
        found = found or [one for one in same if one.reply is not None]

        def fitness(one: Exchange) -> tuple[bool, int, int, bool, int]:
            late = max(one.attempt - request.attempt, 0)
            gap = abs(one.attempt - request.attempt)
            away = abs(one.turn - request.turn)
            return late == 0, -gap, -away, one.run == run, one.number

        return max(found, key=fitness, default=None)

    def is_overcome(self, failed: Exchange) -> bool:
        """Whether the same request got a reply after this failure."""
        same = self.same(failed.asked)
        return any(one.reply is not None and one.number > failed.number for one in same)

    def is_asked_again(self, failed: Exchange) -> bool:
        """Whether the same run made this request again after this failure."""
        same = self.same(failed.asked)
        return any(one.run == failed.run and one.number > failed.number for one in same)

    # ---------------------------------------------------------------- reading

    def read(self, data: bytes, redactor: Redactor) -> bytes:
        """Take up all lines; returns a torn last line, which is not taken up.

        Raises:
            ConfigError: this is no cassette, a newer one, or a line cannot be read.
        """
        lines = data.split(b"\n")
        torn = lines.pop()
        if torn.strip() and _whole(torn):
            lines, torn = [*lines, torn], b""
        for number, line in enumerate(lines, 1):
            if line.strip():
                self._take(number, line, redactor)
        return torn

    def _take(self, number: int, line: bytes, redactor: Redactor) -> None:
        try:
            value = json.loads(line)
            if not isinstance(value, dict):
                raise TypeError("it is no object")
            if self.header is None:
                self.header = self._header(value)
            elif "define" in value:
                name = value.pop("define")
                (self.definitions[name],) = value.values()
                self._read.pop(name, None)
            else:
                self._exchange(number, value, redactor)
        except (ValueError, TypeError, KeyError, RecursionError, msgspec.MsgspecError) as error:
            if self.header is None:
                raise self.no_cassette() from error
            raise ConfigError(
                "cassette",
                f"line {number} of {self.name} cannot be read ({type(error).__name__}: {error})",
                RECORD_ANEW,
            ) from error

    def no_cassette(self) -> ConfigError:
        """What is said of a file with something else in it."""
        return ConfigError(
            "cassette", f"{self.name} is no cassette", "Name another file; this one is left alone"
        )

    def _header(self, value: dict[str, Any]) -> Header:
        version = value["cassette"]
        if isinstance(version, int) and version > VERSION:
            raise ConfigError(
                "cassette",
                f"{self.name} has version {version}, and this Cairn reads up to {VERSION}",
                "Update Cairn, or record the tape anew",
            )
        return msgspec.convert(value, Header)

    def _exchange(self, line: int, value: dict[str, Any], redactor: Redactor) -> None:
        before = self._by_number[value["after"]] if "after" in value else Asked()
        read = [self._message(name, redactor) for name in value.get("messages", ())]
        schema = value.get("output_schema")
        asked = Asked(
            system=redactor.text(self.definitions[value["system"]]) if "system" in value else "",
            messages=[*before.messages, *(message for message, _ in read)],
            digests=[*before.digests, *(known for _, known in read)],
            tools=self._tools(value["tools"], redactor) if "tools" in value else (),
            tool_choice=value.get("tool_choice", "auto"),
            output_mode=value.get("output_mode", "text"),
            output_schema=redactor.tree(self.definitions[schema]) if schema else None,
        )
        reply, error = value.get("reply"), value.get("error")
        exchange = Exchange(
            number=value["exchange"],
            line=line,
            asked=asked,
            run=redactor.text(value.get("run", "")),
            turn=value.get("turn", 0),
            attempt=value.get("attempt", 1),
            reply=None if error else msgspec.convert(reply, ModelReply),
            error=error,
            shown=value.get("shown", ""),
        )
        if error:
            exchange.failure()
        self.add(exchange)

    def _message(self, name: str, redactor: Redactor) -> tuple[Any, str]:
        found: tuple[Any, str] | None = self._read.get(name)
        if found is None:
            message = redacted_message(self.definitions[name], redactor)
            found = self._read[name] = (message, digest(message))
        return found

    def _tools(self, name: str, redactor: Redactor) -> list[Any]:
        found: list[Any] | None = self._read.get(name)
        if found is None:
            tools = [self.definitions[tool] for tool in self.definitions[name]]
            found = self._read[name] = [redacted_tool(tool, redactor) for tool in tools]
        return found


def _whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def load(path: Path, redactor: Redactor) -> tuple[Tape, Header]:
    """The tape at this path, to be played.

    Raises:
        ConfigError: it is missing, empty, torn, newer, or no cassette.
    """
    tape = Tape(str(path))
    try:
        data = path.read_bytes()
    except FileNotFoundError as error:
        raise ConfigError("cassette", f"{path} does not exist", RECORD_IT) from error
    except OSError as error:
        raise ConfigError(
            "cassette", f"{path} cannot be read ({error.strerror})", "Name a file you may read"
        ) from error
    if not data.strip():
        raise ConfigError("cassette", f"{path} is empty", RECORD_IT)
    torn = tape.read(data, redactor)
    if torn and tape.header is None and not torn.startswith(b'{"cassette"'):
        raise tape.no_cassette()
    if torn or tape.header is None:
        raise ConfigError(
            "cassette",
            f"the last line of {path} is torn: its recording was killed, or still goes on",
            "Open it once with CAIRN_CASSETTE=extend, which sets the torn line aside",
        )
    return tape, tape.header
