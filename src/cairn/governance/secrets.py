"""`Secrets`: the values a deployment has registered, by name, and what may be done with them.

A value is in no `repr`, no journal, no log and no error. What the rest of the house gets is a
`Sealed` for one principal: it takes secrets out of what is written, and puts them back into the
arguments of a tool that was declared to take them.
"""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from hashlib import scrypt
from pathlib import Path
from typing import Any, NoReturn
from weakref import WeakSet

from cairn.core.messages import Principal, parse_object
from cairn.core.names import listed, nearest
from cairn.core.redaction import Redaction
from cairn.core.rules import Problem
from cairn.core.secrets import (
    DEFUSED,
    HANDLE,
    NAME,
    OPENING,
    SHORTEST,
    TAG_DIGITS,
    Finder,
    handle,
    handles_in,
    written,
)
from cairn.core.unseen import as_seen
from cairn.errors import ConfigError
from cairn.governance.scrubbing import scrub
from cairn.tools.on_loop import watched

Given = str | Sequence[str]
"""A value; or several of one name, the one in use first and then those that it has replaced."""
OfPrincipal = Callable[[Principal], Mapping[str, Given]]
NOBODY = Principal()
ENVIRONMENT = "CAIRN_SECRETS"
"""Names the environment's variables that hold secrets, with commas between."""
_LINE = re.compile(r"\s*(?:export\s+)?([A-Za-z_][\w.-]*)\s*=\s*(.*?)\s*")
_COST = 2**14
"""Of `scrypt`, about 50 ms: a tag must not be a quick way to try out short passwords."""


class Secrets:
    """The secrets of a deployment.

    Args:
        values: Names and values; or a function from a `Principal` to those of this principal,
            which only runs of that principal can use. It is asked once for each principal, must
            answer at once, and is asked anew after `refresh`. Of a value that has been replaced
            the older ones may stand behind it: they are still found, but no longer used.

    Raises:
        ConfigError: a name is none, or a value has fewer than 6 characters that are seen.
    """

    def __init__(self, values: Mapping[str, Given] | OfPrincipal | None = None) -> None:
        self._lock = threading.Lock()
        self._shared: dict[str, tuple[str, ...]] = {}
        self._ask: list[OfPrincipal] = []
        self._own: dict[Principal, dict[str, tuple[str, ...]]] = {}
        self._known: list[tuple[str, str]] = []
        self._finder = Finder()
        if callable(values):
            self._ask.append(watched("the function of a principal in Secrets", values))
        else:
            self._shared = _checked(values or {})
        self._learn(self._shared)

    @classmethod
    def from_env(
        cls, *names: str, environ: Mapping[str, str] | None = None, **renamed: str
    ) -> Secrets:
        """Secrets from environment variables, each under its own name or as `name="VARIABLE"`.

        Raises:
            ConfigError: a variable is not set, or cannot be a secret.
        """
        environ = os.environ if environ is None else environ
        wanted = {**{name: name for name in names}, **renamed}
        for name, variable in wanted.items():
            if not environ.get(variable):
                fix = f"Set it, or leave {name} out"
                raise ConfigError(f"Secrets.{name}", f"{variable} is not set", fix)
        return cls({name: environ[variable] for name, variable in wanted.items()})

    @classmethod
    def from_file(cls, path: str | Path) -> Secrets:
        """Secrets from a file: a JSON object, or lines of `NAME=value` (`#` begins a comment).

        Raises:
            ConfigError: others than its owner could read it, it cannot be read, or it holds
                something else. What is in it is never quoted.
        """
        path = Path(path)
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | getattr(os, "O_NOFOLLOW", 0))
            with os.fdopen(descriptor, encoding="utf-8") as file:
                _check_file(path, os.fstat(file.fileno()))
                text = file.read()
        except (OSError, UnicodeDecodeError) as error:
            fix = "Give a plain file that can be read"
            raise ConfigError("Secrets", f"{path}: {type(error).__name__}", fix) from None
        return cls(_parsed(path, text))

    def __or__(self, other: Secrets) -> Secrets:
        """Both together; of a name that both have, the other's value is used."""
        both = Secrets()
        both._shared = {**self._shared, **other._shared}
        both._ask = [*self._ask, *other._ask]
        both._learn(self._shared)
        both._learn(other._shared)
        return both

    def __repr__(self) -> str:
        names = ", ".join(sorted(self._shared)) or "none"
        return f"<Secrets: {names}{' and those of principals' if self._ask else ''}>"

    def __reduce__(self) -> NoReturn:
        raise TypeError("secrets are not written anywhere, so they cannot be pickled")

    @property
    def names(self) -> tuple[str, ...]:
        """The names that every run may use."""
        return tuple(sorted(self._shared))

    def check_tool(self, tool: str, names: Sequence[str]) -> None:
        """Refuse a tool that declares a secret which nobody can have, where some are registered.

        With a function for principals only it knows the names; they are looked for at the call.

        Raises:
            ConfigError: names the tool, and what may have been meant.
        """
        if self._ask or not self._shared:
            return
        for name in names:
            if name not in self._shared:
                close = nearest(name, self._shared)
                meant = f"Did you mean {' or '.join(map(repr, close))}?" if close else ""
                fix = meant or f"Register it, or name one of {listed(self.names)}"
                problem = f"it declares the secret {name!r}, which is not registered"
                raise ConfigError(f"tool {tool!r}.secrets", problem, fix)

    def rotate(self, name: str, value: str) -> None:
        """Use another value from here on; the old one is still found wherever it stands.

        Raises:
            ConfigError: the name is none, or the value is too short.
        """
        new = _checked({name: value})[name]
        with self._lock:
            old = tuple(each for each in self._shared.get(name, ()) if each not in new)
            self._shared = {**self._shared, name: (*new, *old)}
        self._learn({name: new})

    def refresh(self) -> None:
        """Ask anew for what belongs to principals; what was known stays known."""
        with self._lock:
            self._own = {}

    def of(self, principal: Principal = NOBODY) -> Sealed:
        """What the runs of a principal go by.

        Raises:
            ConfigError: the function for principals failed, or gave what cannot be a secret.
        """
        return Sealed(self, principal)

    def anyones(self) -> Redaction:
        """What is written for no principal: all that is known is taken out."""
        return Redaction(_Everybody(self))

    @contextmanager
    def scrubbed(self) -> Iterator[None]:
        """Errors that come out of the block say no secret, whoever wrote what they say."""
        try:
            yield
            return
        except BaseException as error:  # whatever it is, it goes on, only without secrets
            hidden = self.scrub(error)
            if hidden is error:
                raise
        behind = hidden.__context__
        try:
            raise hidden
        finally:  # raising it would put what it stands for behind it
            hidden.__context__ = behind

    def scrub(self, error: BaseException) -> BaseException:
        """Take secrets out of what an error says, of its notes, and of those behind and in it.

        It is changed in place. Of what cannot be changed, as the words of a group, another error
        takes the place: a group of the same members, or one that is caught by the same `except`.

        Returns:
            The error to raise or to keep; the same one, if it could be changed.
        """
        return scrub(error, self.anyones())

    def guard_logs(self) -> None:
        """From here on no record of the logger `cairn` holds what is known here."""
        _guarded.add(self)
        log = logging.getLogger("cairn")
        if _FILTER not in log.filters:
            log.addFilter(_FILTER)

    # ---------------------------------------------------------------- inside

    def _own_of(self, principal: Principal) -> Mapping[str, tuple[str, ...]]:
        if not self._ask:
            return self._shared
        with self._lock:
            found = self._own.get(principal)
        if found is None:
            found = {}
            for ask in self._ask:
                try:
                    found |= _checked(ask(principal))
                except ConfigError:
                    raise
                except Exception as error:  # the deployment's own fault; it may quote a value
                    problem = f"those of {principal.id!r} failed: {type(error).__name__}"
                    fix = "Look at the function that was given for them"
                    raise ConfigError("Secrets", problem, fix) from None
            with self._lock:
                self._own[principal] = found
            self._learn(found)
        return {**self._shared, **found}

    def _learn(self, values: Mapping[str, tuple[str, ...]]) -> None:
        with self._lock:
            new = [(n, v) for n, several in values.items() for v in several]
            known = list(dict.fromkeys([*self._known, *new]))
            if known != self._known or not self._finder.values:
                finder = Finder(value for _, value in known)
                self._known, self._finder = known, finder


class _Everybody:
    """What a redaction for no principal knows: all values, and no handle that holds."""

    def __init__(self, secrets: Secrets) -> None:
        self._secrets = secrets

    @property
    def finder(self) -> Finder:
        return self._secrets._finder  # noqa: SLF001 - the registry's other half

    def handle(self, value: int, form: str) -> str:
        name, text = self._secrets._known[value]  # noqa: SLF001 - as above
        return handle(name, _tag(name, text), form)

    def judges(self) -> bool:
        return False

    def holds(self, name: str, tag: str) -> bool:
        return False


class _One(_Everybody):
    """The same for one principal, whose handles hold."""

    def __init__(self, secrets: Secrets, principal: Principal) -> None:
        super().__init__(secrets)
        self._principal = principal

    @property
    def _own(self) -> Mapping[str, tuple[str, ...]]:
        return self._secrets._own_of(self._principal)  # noqa: SLF001 - as above

    def handle(self, value: int, form: str) -> str:
        _, text = self._secrets._known[value]  # noqa: SLF001 - as above
        for name, values in self._own.items():  # another one's may have the same value
            if text in values:
                return handle(name, _tag(name, text), form)
        return super().handle(value, form).replace(OPENING, DEFUSED)  # nothing that holds here

    def judges(self) -> bool:
        return bool(self.finder.values)

    def holds(self, name: str, tag: str) -> bool:
        return any(_tag(name, value) == tag for value in self._own.get(name, ()))


class Sealed(Redaction):
    """Secrets as the runs of one principal may use them.

    It takes them out of texts, records and commands, and puts them back where a tool may take
    them.
    """

    __slots__ = ("_principal", "_secrets")

    def __init__(self, secrets: Secrets, principal: Principal) -> None:
        secrets._own_of(principal)  # noqa: SLF001 - asked for now, as it may fail
        super().__init__(_One(secrets, principal))
        self._secrets = secrets
        self._principal = principal

    def __repr__(self) -> str:
        return f"<Sealed for {self._principal.id}>"

    def value_of(self, name: str) -> str:
        """The value in use now.

        Raises:
            KeyError: this principal has no secret of that name here.
        """
        return self._secrets._own_of(self._principal)[name][0]  # noqa: SLF001 - its other half

    def restored(self, arguments: str, declared: tuple[tuple[str, str], ...]) -> str | Problem:
        """Arguments (JSON text) with the values that their tool may take, or why that cannot be.

        Args:
            arguments: As they stand in the journal.
            declared: Argument and name of a secret it may hold; an empty argument is any.
        """
        if OPENING not in arguments and "\\u" not in arguments:
            return arguments  # only an escape could hide a handle
        value = parse_object(arguments) or {}
        names = {name for _, name in handles_in(value)}
        if not names:
            return arguments
        own = self._secrets._own_of(self._principal)  # noqa: SLF001 - its other half
        missing = sorted(names - own.keys())
        if missing:
            said = f"the secret {missing[0]!r} is not registered in this process for this principal"
            return Problem(message=said)
        made = {
            argument: _put_back(inner, argument, own, frozenset(declared))
            for argument, inner in value.items()
        }
        return json.dumps(made, ensure_ascii=False)


def _put_back(
    value: Any,
    argument: str,
    own: Mapping[str, tuple[str, ...]],
    declared: frozenset[tuple[str, str]],
) -> Any:
    if isinstance(value, str):
        return HANDLE.sub(lambda found: _value_for(found, argument, own, declared), value)
    if isinstance(value, dict):
        return {name: _put_back(inner, argument, own, declared) for name, inner in value.items()}
    if isinstance(value, list):
        return [_put_back(inner, argument, own, declared) for inner in value]
    return value


def _value_for(
    found: re.Match[str],
    argument: str,
    own: Mapping[str, tuple[str, ...]],
    declared: frozenset[tuple[str, str]],
) -> str:
    """The value in use now, in the form it had; the handle itself if it does not hold here."""
    name, form, tag = found["name"], found["form"] or "", found["tag"]
    values = own.get(name, ())
    if not any(_tag(name, value) == tag for value in values):
        return found[0]
    if ("", name) not in declared and (argument, name) not in declared:
        return found[0]
    again = written(values[0], form)
    return found[0] if again is None else again


@lru_cache(maxsize=4096)
def _tag(name: str, value: str) -> str:
    salt = b"cairn handle 1\0" + name.encode()
    made = scrypt(value.encode("utf-8", "replace"), salt=salt, n=_COST, r=8, p=1, dklen=16)
    return made.hex()[:TAG_DIGITS]


# ---------------------------------------------------------------- what was given


def _checked(values: Any) -> dict[str, tuple[str, ...]]:
    """Names and values, each name with all its values, if they can be secrets."""
    if not isinstance(values, Mapping):
        problem = f"{type(values).__name__} is no mapping"
        raise ConfigError("Secrets", problem, "Give names and values")
    checked: dict[str, tuple[str, ...]] = {}
    for name, given in values.items():
        if not isinstance(name, str) or not NAME.fullmatch(name):
            fix = "Use letters, digits, _ . and -, at most 64, a letter first"
            raise ConfigError("Secrets", "a name cannot be one", fix)
        several = tuple(given) if isinstance(given, list | tuple) else (given,)
        for value in several:
            _check_value(name, value)
        if not several:
            raise ConfigError(f"Secrets.{name}", "it has no value", "Give one, or leave it out")
        checked[name] = several
    return checked


def _check_value(name: str, value: object) -> None:
    field = f"Secrets.{name}"
    if not isinstance(value, str):
        raise ConfigError(field, f"its value is of type {type(value).__name__}", "Give a str")
    if (size := len(as_seen(value).strip())) < SHORTEST:
        problem = f"its value has {size} characters"
        fix = f"Use one of at least {SHORTEST}: shorter ones would be found in plain words"
        raise ConfigError(field, problem, fix)
    if HANDLE.search(value):
        raise ConfigError(field, "its value is a handle", "Give the secret itself")
    if "\0" in value:
        raise ConfigError(field, "its value holds NUL", "Give it as text, in base64 for example")


def _check_file(path: Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise ConfigError("Secrets", f"{path} is no plain file", "Give a plain file")
    if found.st_mode & 0o077:
        mode = stat.S_IMODE(found.st_mode)
        raise ConfigError("Secrets", f"{path} has mode {mode:04o}", f"Run: chmod 600 {path}")
    if found.st_uid not in {os.getuid(), 0}:
        raise ConfigError("Secrets", f"{path} belongs to somebody else", "Use a file of your own")


def _parsed(path: Path, text: str) -> dict[str, Given]:
    fix = "Write a JSON object, or lines of NAME=value"
    if text.lstrip().startswith("{"):
        try:
            found = json.loads(text)
        except (ValueError, RecursionError):
            raise ConfigError("Secrets", f"{path} is no JSON", fix) from None
        return dict(found)
    values: dict[str, Given] = {}
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.fullmatch(line)
        if match is None:
            raise ConfigError("Secrets", f"{path}, line {number} is no NAME=value", fix)
        value = match[2]
        quoted = len(value) > 1 and value[0] == value[-1] and value[0] in "\"'"
        values[match[1]] = value[1:-1] if quoted else value
    return values


def of_environment(environ: Mapping[str, str] | None = None) -> Secrets:
    """The secrets that `CAIRN_SECRETS` names, for commands that load no application.

    Raises:
        ConfigError: one that it names is not set or cannot be a secret.
    """
    environ = os.environ if environ is None else environ
    names = [name.strip() for name in environ.get(ENVIRONMENT, "").split(",") if name.strip()]
    return Secrets.from_env(*names, environ=environ)


# ---------------------------------------------------------------- logs


class _LogFilter(logging.Filter):
    """Takes secrets out of records before any handler sees them."""

    def filter(self, record: logging.LogRecord) -> bool:
        for secrets in tuple(_guarded):
            redaction = Redaction(_Everybody(secrets))
            try:
                said = record.getMessage()
            except Exception:  # a message that does not fit its arguments
                said = f"{record.msg!r} {record.args!r}"
            record.msg, record.args = redaction.text(said), ()
            if record.exc_info and record.exc_info[0] is not None:
                record.exc_text = "".join(traceback.format_exception(*record.exc_info)).rstrip()
                record.exc_info = None
            for name in ("exc_text", "stack_info"):
                if value := getattr(record, name):
                    setattr(record, name, redaction.text(value))
        return True


_guarded: WeakSet[Secrets] = WeakSet()
_FILTER = _LogFilter()
