"""Writing a tape: one process at a time, whole lines, in one write for each exchange."""

from __future__ import annotations

import atexit
import base64
import fcntl
import json
import os
import threading
import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from cairn.core.messages import Blob, Part, Record
from cairn.errors import ConfigError, ModelError, said_by
from cairn.models.cassette.asked import Asked, digest, written
from cairn.models.cassette.redaction import Redactor
from cairn.models.cassette.tape import Exchange, Header, Tape
from cairn.ports import ModelReply, ModelRequest, ReplyCall

PRIVATE_FILE = 0o600
_FLAGS = os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
LABEL = 16
"""Characters of a hash that name a definition."""

_open: dict[str, Recording] = {}
_begun: set[str] = set()
_guard = threading.Lock()


class Recording:
    """A tape that this process writes; all cassettes of one path in the process share it."""

    def __init__(self, path: Path, redactor: Redactor, *, anew: bool) -> None:
        self.tape = Tape(str(path))
        self.users = 0
        self.redactor = redactor
        self._path = path
        self._pid = os.getpid()
        self._lock = threading.RLock()
        self._last: dict[str, Exchange] = {}
        self._fd = _opened(path)
        self._is_blank = anew
        """Whether the first line of a tape that begins anew is still to come."""
        self._keeps_old = False
        """Whether an old tape is kept until a first reply has come."""
        self._held: list[bytes] = []
        """What waits for that reply."""
        try:
            self._read()
        except BaseException:  # whatever it was, the tape must not stay locked
            os.close(self._fd)
            raise

    def _read(self) -> None:
        data = _content(self._fd)
        if self._is_blank:
            first = data.lstrip()
            if first and not first.startswith(b'{"cassette"'):
                raise self.tape.no_cassette()
            self._keeps_old = bool(first)
            return
        torn = self.tape.read(data, self.redactor)
        if torn.strip():
            if self.tape.header is None and not torn.startswith(b'{"cassette"'):
                raise self.tape.no_cassette()
            self._set_aside(torn, len(data) - len(torn))
        elif data and not data.endswith(b"\n"):
            self._write(b"\n")
        for exchange in self.tape.exchanges:
            self._last[exchange.run] = exchange

    def _set_aside(self, torn: bytes, size: int) -> None:
        aside = f"{self._path}.torn"
        fd = os.open(aside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, PRIVATE_FILE)
        with os.fdopen(fd, "wb") as file:
            file.write(torn)
        os.ftruncate(self._fd, size)
        warnings.warn(
            f"the last line of {self._path} was torn; it now lies in {aside}", stacklevel=5
        )

    def begin(self, header: Header) -> None:
        """Say whose answers these are.

        Raises:
            ConfigError: the tape holds another model's answers.
        """
        with self._lock:
            known = self.tape.header
            if known is None:
                self.tape.header = header
                if not self._is_blank:
                    self._write(_line(msgspec.to_builtins(header)))
            elif known.model != header.model:
                raise ConfigError(
                    "cassette",
                    f"{self._path} holds answers of {known.model}, not of {header.model}",
                    "Give each model a tape of its own, or record this one anew",
                )

    def add(
        self,
        asked: Asked,
        request: ModelRequest,
        outcome: ModelReply | ModelError,
        shown: str = "",
    ) -> Exchange:
        """Write an exchange down; it is on the tape when this returns.

        A recording that begins anew writes nothing before the first reply, and then all.
        """
        with self._lock:
            tape, lines = self.tape, list[bytes]()
            if self._is_blank:  # the first line goes with the first exchange
                assert tape.header is not None  # noqa: S101 - the cassette has said it
                lines.append(_line(msgspec.to_builtins(tape.header)))
            defined: dict[str, Any] = {}
            number = tape.newest + 1
            run = self.redactor.text(request.run)
            said: dict[str, Any] = {"exchange": number, "run": run, "turn": request.turn}
            said["attempt"] = request.attempt
            said |= self._references(asked, run, defined)
            if isinstance(outcome, ModelError):
                reply, error = None, _error(outcome, self.redactor)
                said["error"] = error
                if shown:
                    said["shown"] = shown = self.redactor.text(shown)
            else:
                told = _reply(outcome, self.redactor)
                reply, error, shown = msgspec.convert(told, ModelReply), None, ""
                said["reply"] = told
            kinds = {"s": "system", "m": "message", "t": "tool", "k": "tools", "o": "schema"}
            lines += [_line({"define": k, kinds[k[0]]: v}) for k, v in defined.items()]
            self._put(b"".join([*lines, _line(said)]), is_reply=error is None)
            exchange = Exchange(
                number=number,
                line=0,
                asked=asked,
                run=run,
                turn=request.turn,
                attempt=request.attempt,
                reply=reply,
                error=error,
                shown=shown,
            )
            tape.definitions |= defined
            tape.add(exchange)
            self._last[run] = exchange
            return exchange

    def _references(self, asked: Asked, run: str, defined: dict[str, Any]) -> dict[str, Any]:
        def name(kind: str, value: Any) -> str:
            known, size = self.tape.definitions, LABEL
            label = f"{kind}-{digest(value)[:size]}"
            while label in known and known[label] != value:  # a person has changed that line
                size += 1
                label = f"{kind}-{digest(value)[:size]}"
            if label not in known:
                defined[label] = value
            return label

        said: dict[str, Any] = {}
        if asked.system:
            said["system"] = name("s", asked.system)
        if asked.tools:
            said["tools"] = name("k", [name("t", tool) for tool in asked.tools])
        if asked.tool_choice != "auto":
            said["tool_choice"] = asked.tool_choice
        if asked.output_mode != "text":
            said["output_mode"] = asked.output_mode
        if asked.output_schema is not None:
            said["output_schema"] = name("o", asked.output_schema)
        rest: Sequence[Any] = asked.messages
        last = self._last.get(run)
        if last is not None and last.asked.messages:
            shared = len(last.asked.messages)
            if asked.digests[:shared] == last.asked.digests:
                said["after"], rest = last.number, rest[shared:]
        said["messages"] = [name("m", message) for message in rest]
        return said

    def _check_process(self) -> None:
        if os.getpid() != self._pid:
            raise ConfigError(
                "cassette",
                f"{self._path} was opened for recording before this process was forked",
                "Make the cassette in the process that uses it",
            )

    def _write(self, data: bytes) -> None:
        try:
            if self._keeps_old:
                self._replace(data)
            else:
                if self._is_blank:
                    os.ftruncate(self._fd, 0)
                    os.fchmod(self._fd, PRIVATE_FILE)
                _append(self._fd, data)
            _begun.add(str(self._path.resolve()))
        except OSError as error:
            raise ConfigError(
                "cassette",
                f"{self._path} cannot be written ({error.strerror})",
                "Make room for it and record again",
            ) from error

    def _put(self, data: bytes, *, is_reply: bool) -> None:
        """Write it, or hold it until there is a reply to give the old tape up for."""
        self._check_process()
        if self._keeps_old and not is_reply:
            self._held.append(data)
        else:
            self._write(b"".join([*self._held, data]))
            self._held.clear()
        self._is_blank = False

    def _replace(self, data: bytes) -> None:
        """Put a new file in the old one's place: whoever looks finds the one or the other."""
        place = self._path.resolve()
        aside = place.with_name(f"{place.name}.new")
        fd = os.open(aside, _FLAGS | os.O_TRUNC, PRIVATE_FILE)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.fchmod(fd, PRIVATE_FILE)
            _append(fd, data)
            aside.replace(place)
        except BaseException:  # whatever it was, the old tape stays and nothing lies beside it
            os.close(fd)
            aside.unlink(missing_ok=True)
            raise
        os.close(self._fd)
        self._fd, self._keeps_old = fd, False

    def close(self) -> None:
        """Give the tape back, once nobody uses it any more.

        Where an old tape was to be replaced and nothing but failures came, a warning says that
        the old one is still there.
        """
        with _guard:
            self.users -= 1
            if self.users:
                return
            _open.pop(str(self._path.resolve()), None)
            os.close(self._fd)
            self._fd = -1  # so that a late write cannot reach another file
        self.say_what_was_held()

    def say_what_was_held(self) -> None:
        """Warn that the old tape is still there, if it is for want of a reply."""
        if self._held and os.getpid() == self._pid:
            said = f"nothing but failures came, so {self._path} still is the old tape"
            warnings.warn(said, stacklevel=4)


@atexit.register
def _at_exit() -> None:
    for each in list(_open.values()):
        each.say_what_was_held()


def recording(path: Path, redactor: Redactor, *, anew: bool) -> Recording:
    """The recording of this path, shared within the process; one more user of it.

    A tape is begun anew once in a process, however many cassettes are made of it.

    Raises:
        ConfigError: another process records it, or it cannot be written or read.
    """
    place = str(path.resolve())
    with _guard:
        found = _open.get(place)
        if found is None:
            found = Recording(path, redactor, anew=anew and place not in _begun)
            _open[place] = found
        elif found.redactor.extra != redactor.extra:
            raise ConfigError(
                "redact", f"{path} is recorded with another one", "Use one `redact` for one tape"
            )
        found.users += 1
        return found


def _opened(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        while True:
            fd = os.open(path, _FLAGS, PRIVATE_FILE)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                os.close(fd)
                raise ConfigError(
                    "cassette",
                    f"{path} is being recorded by another process",
                    "Wait for its end, or give each process a tape of its own",
                ) from error
            if _is_at(path, fd):
                return fd
            os.close(fd)  # another recording has just put its own tape in the place of this one
    except OSError as error:
        raise ConfigError(
            "cassette",
            f"{path} cannot be written ({error.strerror})",
            "Name a file in a folder you may write to",
        ) from error


def _is_at(path: Path, fd: int) -> bool:
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _append(fd: int, data: bytes) -> None:
    """Write all of it or nothing."""
    size = os.fstat(fd).st_size
    try:
        left = memoryview(data)
        while left:
            left = left[os.write(fd, left) :]
    except OSError:
        os.ftruncate(fd, size)
        raise


def _content(fd: int) -> bytes:
    with os.fdopen(os.dup(fd), "rb") as file:
        file.seek(0)
        return file.read()


def _line(value: Any) -> bytes:
    try:
        return written(value).encode() + b"\n"
    except UnicodeEncodeError:  # a lone surrogate can only be written escaped
        return json.dumps(value).encode() + b"\n"


def _error(error: ModelError, redactor: Redactor) -> dict[str, Any]:
    told = {
        "class": error.error_class.value,
        "message": redactor.text(said_by(error)),
        "retry_after_s": error.retry_after_s,
        "status": error.status,
        "request_id": redactor.text(error.request_id) or None,
    }
    return {name: value for name, value in told.items() if value is not None}


def _reply(reply: ModelReply, redactor: Redactor) -> dict[str, Any]:
    told = _redacted(reply, redactor)
    if reply.parts:
        told["parts"] = [_part(part, redactor) for part in reply.parts]
    if reply.calls:
        told["calls"] = [_call(call, redactor) for call in reply.calls]
    if reply.usage is not None and "usage" in told:
        told["usage"] = msgspec.to_builtins(reply.usage)
    return told


def _part(part: Part, redactor: Redactor) -> dict[str, Any]:
    hidden = _redacted(part, redactor)
    if isinstance(part, Blob):
        hidden["content"] = base64.b64encode(redactor.data(part.content)).decode()
    return hidden


def _call(call: ReplyCall, redactor: Redactor) -> dict[str, Any]:
    hidden = _redacted(call, redactor)
    if "arguments" in hidden:
        hidden["arguments"] = redactor.arguments(call.arguments)
    return hidden


def _redacted(record: Record, redactor: Redactor) -> dict[str, Any]:
    """A record's values redacted; its own names are no secrets, whatever a secret looks like."""
    plain: dict[str, Any] = msgspec.to_builtins(record)
    return {name: v if name == "type" else redactor.tree(v) for name, v in plain.items()}
