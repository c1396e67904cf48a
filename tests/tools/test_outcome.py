"""What an exception says about the effect: when in doubt, a write is in doubt."""

import asyncio
import http.client
import subprocess
import urllib.error
from typing import Any

import pytest

from cairn.errors import ErrorClass, NotDone, ToolError, Unsure, safe_repr, words_of
from cairn.tools.outcome import DESCRIBED_CHARS, classify, describe


def named(name: str, *parents: type[Exception]) -> Exception:
    """An exception as a library that is not installed would raise it."""
    return type(name, parents or (Exception,), {})("gone")


UNSURE: list[BaseException] = [
    TimeoutError("slow"),
    ConnectionError("reset"),
    ConnectionResetError(),
    BrokenPipeError(),
    Unsure("perhaps"),
    asyncio.CancelledError(),
    http.client.RemoteDisconnected("closed"),
    http.client.IncompleteRead(b""),
    subprocess.TimeoutExpired("git", 5),
    named("ReadTimeout"),
    named("PoolTimeout", type("TimeoutException", (Exception,), {})),
    named("ConnectTimeout", OSError),
    named("ServerTimeoutError"),
    named("ServerDisconnectedError"),
    named("RemoteProtocolError"),
    ExceptionGroup("several", [ValueError(), TimeoutError()]),
]


@pytest.mark.parametrize("error", UNSURE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("effect", ["write", "dangerous"])
def test_a_lost_answer_leaves_a_write_unsure(error: BaseException, effect: Any) -> None:
    assert classify(error, effect).kind == "unsure"


@pytest.mark.parametrize("error", UNSURE, ids=lambda error: type(error).__name__)
def test_a_lost_answer_of_a_read_is_a_known_failure(error: BaseException) -> None:
    assert classify(error, "read").kind == "failed"


def test_a_read_says_whether_it_was_slow_or_cut_off() -> None:
    assert classify(TimeoutError(), "read").error_class is ErrorClass.TOOL_TIMEOUT
    assert classify(named("ReadTimeout"), "read").error_class is ErrorClass.TOOL_TIMEOUT
    assert classify(ConnectionError(), "read").error_class is ErrorClass.TOOL_UNAVAILABLE
    assert classify(ValueError(), "read").error_class is ErrorClass.TOOL_ERROR


@pytest.mark.parametrize(
    "error",
    [
        ValueError("bad"),
        FileNotFoundError("x"),
        PermissionError("x"),
        SystemExit(1),
        KeyboardInterrupt(),
        StopIteration(),
        urllib.error.HTTPError("u", 404, "not found", http.client.HTTPMessage(), None),
        named("HTTPStatusError"),
        named("TimeoutsConfigured"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_any_other_error_is_a_known_failure(error: BaseException) -> None:
    outcome = classify(error, "write")
    assert (outcome.kind, outcome.error_class) == ("failed", ErrorClass.TOOL_ERROR)


def test_the_author_knows_better() -> None:
    def raised(signal: Exception) -> Exception:
        try:
            try:
                raise TimeoutError("slow")
            except TimeoutError as error:
                raise signal from error
        except Exception as error:
            return error

    done = classify(raised(NotDone("nothing was sent")), "write")
    assert (done.kind, done.message) == ("not_done", "nothing was sent")
    assert done.error_class is ErrorClass.TOOL_TIMEOUT
    known = classify(raised(ToolError("refused", error_class=ErrorClass.AUTH)), "write")
    assert (known.kind, known.error_class) == ("failed", ErrorClass.AUTH)


def test_a_lost_answer_that_a_library_wraps_is_still_lost() -> None:
    def raised(*, hidden: bool) -> Exception:
        try:
            try:
                raise TimeoutError("slow")
            except TimeoutError:
                if hidden:
                    raise RuntimeError("the shop is down") from None
                raise RuntimeError("the shop is down")  # noqa: B904 - as careless code does it
        except RuntimeError as error:
            return error

    assert classify(raised(hidden=False), "write").kind == "unsure"
    assert classify(raised(hidden=True), "write").kind == "failed"


def test_a_message_is_bounded_clean_and_never_crashes() -> None:
    class Mute(Exception):
        def __str__(self) -> str:
            raise ZeroDivisionError

    assert describe(Mute()) == "Mute"
    assert describe(ValueError("a\0b\ud800")) == "ValueError: a␀b\ufffd"
    assert describe(ToolError("no such order")) == "no such order"
    assert len(describe(ValueError("x" * 100_000))) == DESCRIBED_CHARS


ENDS = [SystemExit(3), KeyboardInterrupt(), asyncio.CancelledError(), GeneratorExit()]


@pytest.mark.parametrize("error", ENDS, ids=lambda error: type(error).__name__)
def test_an_exception_whose_own_text_would_end_the_process_is_named_by_its_type(
    error: BaseException,
) -> None:
    class Ends(Exception):
        def __str__(self) -> str:
            raise error

        __repr__ = __str__

    class Says(ToolError):
        __str__ = Ends.__str__

    assert describe(Ends()) == words_of(Ends()) == "Ends"
    assert (describe(Says("x")), safe_repr(Ends())) == ("Says", "<Ends that cannot be shown>")
    assert classify(Ends(), "write").message == "Ends"


def test_an_exception_that_cannot_be_looked_at_at_all_leaves_its_effect_unknown() -> None:
    class Shut(ToolError):
        def __init__(self) -> None:
            Exception.__init__(self)

    assert classify(Shut(), "write").kind == "unsure"
    assert classify(Shut(), "read").kind == "failed"
