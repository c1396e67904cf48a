"""The model that plays a tape, and the one that records it. They are one."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, Self, get_args

from cairn.core.limits import FREE, Price
from cairn.core.messages import Text
from cairn.errors import ConfigError, ErrorClass, ModelError, safe_repr, said_by
from cairn.models import find_model
from cairn.models.cassette.asked import Asked, Reader
from cairn.models.cassette.mismatch import headline, unexpected
from cairn.models.cassette.recording import Recording, recording
from cairn.models.cassette.redaction import Redactor
from cairn.models.cassette.tape import RECORD_ANEW, VERSION, Exchange, Header, load
from cairn.ports import Model, ModelReply, ModelRequest, OnDelta
from cairn.version import __version__

Mode = Literal["replay", "record", "extend"]
MODE_VARIABLE = "CAIRN_CASSETTE"
DEFAULT_TIMEOUT_S = 120.0

_WORDS = re.compile(r"\S+\s*|\s+")


class Cassette:
    """A `Model` that records another model once, and answers from that tape for ever.

    A request is found by what the model would see of it: instructions, messages, tools, tool
    choice and the form of the answer. Nothing else counts, and no state is kept between
    requests, so a run that was killed and goes on in another process gets the same answers.
    A request that is not on the tape fails with `invalid_request` and a diff.

    Args:
        path: The tape; relative paths start at the working directory.
        model: Who is recorded: a model object, or a string such as `"openai:gpt-5-mini"`. It is
            never touched in a replay, which needs neither its package nor its key.
        mode: `replay` (the default) only plays; `record` makes every request and writes the tape
            anew, from the first reply on; `extend` plays what is on the tape and records the
            rest, and what is on it only as a failure that passes. The environment variable
            `CAIRN_CASSETTE` overrides it for all cassettes.
        redact: Texts and compiled regular expressions to be replaced on the tape and in
            matching, beside the values of secrets in the environment and what looks like a key.
        price: What its tokens cost. By default nothing in a replay, and otherwise what the
            recorded model costs.

    Raises:
        ConfigError: the tape is missing, torn, newer, in use by another process, holds another
            model's answers, or is no cassette; or there is no model to record.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        model: Model | str | None = None,
        *,
        mode: Mode = "replay",
        redact: Sequence[str | re.Pattern[str]] = (),
        price: Price | None = None,
    ) -> None:
        given: object = path
        if not isinstance(given, str | os.PathLike):
            problem = f"{safe_repr(given)} is no path"
            raise ConfigError("Cassette.path", problem, "Give the path of the tape")
        self.path = Path(path)
        self.mode = _mode(mode)
        self._redactor = Redactor(os.environ, redact)
        self._reader = Reader(self._redactor)
        self._price = price
        self._used: set[int] = set()
        self._inner: Model | None = None
        self._recording: Recording | None = None
        if self.mode == "replay":
            self._tape, self._header = load(self.path, self._redactor)
            self._check_model(model)
            return
        if model is None:
            raise ConfigError(
                "model", f"there is no model to record on {self.path}", "Give Cassette(path, model)"
            )
        self._inner = find_model(model)
        if self.mode == "record":
            self.check()  # before an old tape is given up for one that holds only refusals
        self._header = _header(model, self._inner, self._redactor)
        self._recording = recording(self.path, self._redactor, anew=self.mode == "record")
        try:
            self._recording.begin(self._header)
        except BaseException:  # whatever it was, the tape must not stay locked
            self.eject()
            raise
        self._tape = self._recording.tape

    def __repr__(self) -> str:
        return f"Cassette({str(self.path)!r}, mode={self.mode!r})"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.eject()

    def eject(self) -> None:
        """End the recording, so that another process may record this tape.

        Leaving a `with` block does so, too, and so does the end of the process.
        """
        ended, self._recording = self._recording, None
        if ended is not None:
            ended.close()

    def check(self) -> None:
        """Look whether it could be asked: in a replay it can.

        Raises:
            ConfigError: it records, and the recorded model cannot be asked here.
        """
        look = getattr(self._inner, "check", None)
        if look is not None:
            look()

    async def close(self) -> None:
        """Give back what the recorded model holds open in this loop; the recording goes on."""
        close = getattr(self._inner, "close", None)
        if close is not None:
            closed = close()
            if inspect.isawaitable(closed):
                await closed

    # ---------------------------------------------------------------- what a model says of itself

    @property
    def name(self) -> str:
        """The name of the recorded model, so that traces look the same."""
        return self._header.model

    @property
    def price(self) -> Price | None:
        """Nothing in a replay; otherwise the recorded model's."""
        if self._price is not None:
            return self._price
        return FREE if self._inner is None else self._inner.price

    @property
    def window(self) -> int:
        """As the recorded model has it."""
        return self._header.window

    @property
    def max_output(self) -> int:
        """As the recorded model has it."""
        return self._header.max_output

    @property
    def takes_tools(self) -> bool:
        """As the recorded model has it."""
        return self._header.takes_tools

    @property
    def timeout_s(self) -> float:
        """As the recorded model has it while it is recorded, and the default in a replay."""
        found: float = getattr(self._inner, "timeout_s", DEFAULT_TIMEOUT_S)
        return found

    @property
    def lane(self) -> Any:
        """The recorded model's, while it is recorded; a replay waits for nobody."""
        return getattr(self._inner, "lane", None)

    # ---------------------------------------------------------------- requests

    async def request(self, request: ModelRequest, on_delta: OnDelta | None = None) -> ModelReply:
        """The recorded answer to this request, or a new one that is recorded.

        Raises:
            ModelError: the recorded or new failure; `invalid_request` when it is not on the tape.
            ConfigError: the exchange cannot be written.
        """
        asked = self._reader.asked(request)
        if self.mode != "record":
            run = self._redactor.text(request.run)
            found = self._tape.find(asked, request, run)
            if found is not None and not self._is_to_be_asked_again(found):
                self._used.add(found.number)
                return _play(found, on_delta, waited=self._tape.is_asked_again(found))
        if self.mode == "replay":
            message = unexpected(self._tape, asked, request)
            raise ModelError(ErrorClass.INVALID_REQUEST, message)
        return await self._record(asked, request, on_delta)

    def _is_to_be_asked_again(self, found: Exchange) -> bool:
        """An extended tape shall not hold on to a failure that nothing came after."""
        return self.mode == "extend" and found.passes and not self._tape.is_overcome(found)

    def unused(self) -> list[str]:
        """The exchanges that nobody has asked this object for, one line each; for tests."""
        return [headline(one) for one in self._tape.exchanges if one.number not in self._used]

    async def _record(
        self, asked: Asked, request: ModelRequest, on_delta: OnDelta | None
    ) -> ModelReply:
        if self._inner is None or self._recording is None:
            raise ConfigError("cassette", f"{self.path} was ejected", "Make a new Cassette")
        try:
            self.check()
        except ConfigError as error:  # nobody was asked, so nothing is recorded
            raise ModelError(ErrorClass.AUTH, str(error)) from error
        shown: list[str] = []

        def heard(text: str) -> None:
            shown.append(text)
            if on_delta is not None:
                on_delta(text)

        outcome: ModelReply | ModelError
        try:
            listener = None if on_delta is None else heard
            outcome = reply = await self._inner.request(request, listener)
        except ModelError as error:
            self._keep(asked, request, error, shown)
            raise
        except TimeoutError as error:
            said = ModelError(ErrorClass.TIMEOUT, said_by(error) or "timed out")
            self._keep(asked, request, said, shown)
            raise
        self._keep(asked, request, outcome, shown)
        return reply

    def _keep(
        self,
        asked: Asked,
        request: ModelRequest,
        outcome: ModelReply | ModelError,
        shown: list[str],
    ) -> None:
        if self._recording is None:
            raise ConfigError("cassette", f"{self.path} was ejected", "Make a new Cassette")
        kept = self._recording.add(asked, request, outcome, "".join(shown))
        self._used.add(kept.number)

    def _check_model(self, model: Model | str | None) -> None:
        taped = {self._header.model, self._header.asked}
        if isinstance(model, str) and self._redactor.text(model) not in taped:
            raise ConfigError(
                "cassette",
                f"{self.path} holds answers of {self._header.model}, not of {model}",
                RECORD_ANEW,
            )


def _mode(mode: str) -> str:
    field, value = "mode", mode
    if found := os.environ.get(MODE_VARIABLE, ""):
        field, value = MODE_VARIABLE, found
    if value not in get_args(Mode):
        raise ConfigError(
            field,
            f"{safe_repr(value)} is no mode of a cassette",
            f"Use {', '.join(get_args(Mode))}",
        )
    return value


def _header(model: Model | str, inner: Model, redactor: Redactor) -> Header:
    return Header(
        cassette=VERSION,
        cairn=__version__,
        model=redactor.text(inner.name),
        asked=redactor.text(model) if isinstance(model, str) and model != inner.name else "",
        window=inner.window,
        max_output=inner.max_output,
        takes_tools=getattr(inner, "takes_tools", True),
    )


def _play(exchange: Exchange, on_delta: OnDelta | None, *, waited: bool) -> ModelReply:
    reply = exchange.reply
    if on_delta is not None:
        texts = [exchange.shown]
        if reply is not None:
            texts = [part.content for part in reply.parts if isinstance(part, Text)]
        for text in texts:
            for word in _WORDS.findall(text):
                on_delta(word)
    if reply is None:
        raise exchange.failure(waited=waited)
    return reply
