"""Errors that leave the driving say no secret: not in words, notes, attributes, nor behind them."""

import traceback
from dataclasses import dataclass
from typing import Any

import pytest
from pydantic import BaseModel, ValidationError

from cairn import Agent, Runtime, Scripted, Secrets, call, tool
from cairn.core.secrets import HANDLE
from cairn.errors import ConfigError

VALUE = "Zq7-live.8fJx2LmPw04t"
RAW = VALUE.encode()
SECRETS = Secrets({"stripe": VALUE})


@dataclass
class Held:
    """An object that shows what it holds."""

    key: str


class Own(Exception):
    """An error with attributes, some of them in slots."""

    __slots__ = ("slot",)

    def __init__(self, said: str, **attributes: Any) -> None:
        super().__init__(said)
        self.slot = attributes.pop("slot", None)
        self.__dict__.update(attributes)


class Fixed(Exception):
    """An error whose words cannot be changed."""

    def __init__(self, number: int) -> None:
        super().__init__(number)

    def __str__(self) -> str:
        return f"fixed: {VALUE}"


def noted(error: BaseException, *notes: str) -> BaseException:
    for note in notes:
        error.add_note(note)
    return error


def behind(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def invalid() -> BaseException:
    class Model(BaseModel):
        n: int

    try:
        Model.model_validate({"n": VALUE})
    except ValidationError as error:
        return error
    raise AssertionError("it is no number")


def errors() -> dict[str, BaseException]:
    """One of each, new each time: they are changed."""
    return {
        "words": ValueError(f"bad {VALUE}"),
        "bytes": ValueError(b"bad " + RAW, bytearray(RAW)),
        "bytes that are no text": ValueError(b"\xff\xfe" + RAW + b"\x80"),
        "a list": ValueError(["a", VALUE, [VALUE]]),
        "a tuple": ValueError((VALUE, (1, RAW))),
        "names and values": ValueError({VALUE: 1, "b": {"c": [VALUE]}}),
        "a set": ValueError({VALUE}, frozenset({RAW})),
        "deep": ValueError([[[[[[[[[[[[VALUE]]]]]]]]]]]]),
        "an object": ValueError(Held(VALUE)),
        "an object in a list": ValueError([Held(VALUE)]),
        "encoded": ValueError(RAW.hex(), f"x {VALUE.encode().hex().encode().hex()}"),
        "another error": ValueError(KeyError(VALUE)),
        "errors in a list": ValueError([KeyError(VALUE)]),
        "notes": noted(ValueError("bad"), f"see {VALUE}", "plain"),
        "a file": FileNotFoundError(2, f"no {VALUE}", f"/x/{VALUE}"),
        "two files": OSError(18, "cross-device", f"/a/{VALUE}", None, f"/b/{VALUE}"),
        "a file in bytes": OSError(2, "none", b"/x/" + RAW),
        "what cannot be decoded": UnicodeDecodeError("utf-8", RAW + b"\xff", 21, 22, f"no {VALUE}"),
        "what cannot be encoded": UnicodeEncodeError("ascii", VALUE + "é", 21, 22, "no"),
        "a line of code": SyntaxError("bad", ("f.py", 1, 1, f"key = '{VALUE}'")),
        "a module": ImportError("none", name=VALUE, path=f"/x/{VALUE}"),
        "an exit": SystemExit(f"bad {VALUE}"),
        "an interrupt": KeyboardInterrupt(VALUE),
        "attributes": Own("bad", slot=VALUE, text=VALUE, raw=RAW, many=[VALUE], held=Held(VALUE)),
        "an error as attribute": Own("bad", inner=KeyError(VALUE), slot=noted(KeyError(1), VALUE)),
        "a cause": behind(ValueError("bad"), noted(KeyError(VALUE), VALUE)),
        "fixed words": Fixed(3),
        "fixed words behind": behind(ValueError("bad"), behind(Fixed(3), KeyError(VALUE))),
        "fixed words given": ValueError(Fixed(3)),
        "a library's own": invalid(),
        "a library's own behind": behind(ConfigError("a", "b", "c"), invalid()),
        "a group": ExceptionGroup(f"of {VALUE}", [KeyError(VALUE), noted(ValueError("x"), VALUE)]),
        "a group in a group": ExceptionGroup(
            "outer", [ExceptionGroup(f"of {VALUE}", [KeyError(1)]), ValueError("x")]
        ),
        "fixed words in a group": ExceptionGroup(
            "of", [Fixed(3), behind(ValueError("x"), Fixed(3))]
        ),
        "a group that ends all": BaseExceptionGroup(f"of {VALUE}", [KeyboardInterrupt(VALUE)]),
        "a group behind": behind(
            ValueError("bad"), ExceptionGroup(f"of {VALUE}", [KeyError(VALUE)])
        ),
    }


ERRORS = tuple(errors())


def all_of(error: BaseException | None, seen: set[int]) -> list[str]:
    """Everything that can be read from an error and what it leads to."""
    if error is None or id(error) in seen:
        return []
    seen.add(id(error))
    told = [str(error), repr(error), "".join(traceback.format_exception(error))]
    names = {*dir(error), *vars(error)} - {"__traceback__", "__doc__", "__dict__", "__class__"}
    for name in names:
        value = getattr(error, name, None)
        if isinstance(value, BaseException):
            told += all_of(value, seen)
        elif not callable(value):
            told.append(repr(value))
    for each in (*error.args, *getattr(error, "exceptions", ())):
        told += all_of(each, seen) if isinstance(each, BaseException) else [repr(each)]
    return told + all_of(error.__cause__, seen) + all_of(error.__context__, seen)


@pytest.mark.parametrize("what", ERRORS)
def test_nothing_is_left_of_a_secret_in_an_error(what: str) -> None:
    error = errors()[what]
    assert any(VALUE in t or RAW.hex() in t for t in all_of(error, set())), "it was there"
    with pytest.raises(BaseException) as raised, SECRETS.scrubbed():  # noqa: PT011 - of all kinds
        raise error
    told = "\n".join(all_of(raised.value, set()))
    assert VALUE[4:] not in told
    assert RAW.hex()[8:] not in told
    assert HANDLE.search(told)
    if not isinstance(error, ValidationError):
        assert isinstance(raised.value, type(error))


def test_an_error_stays_the_same_object_where_it_can_be_changed() -> None:
    error = FileNotFoundError(2, "none", f"/x/{VALUE}")
    assert SECRETS.scrub(error) is error
    assert (error.errno, error.strerror) == (2, "none")
    assert error.filename.startswith("/x/[[secret:stripe:")


def test_what_holds_no_secret_is_not_touched() -> None:
    held, inner = Held("plain"), [1, {"a": (2, b"x")}]
    error = Own("bad", held=held, inner=inner, slot=3)
    error.args = (held, inner, 4711, None, True)
    assert SECRETS.scrub(error) is error
    assert error.args[0] is error.held is held
    assert error.args[1] is error.inner is inner
    assert error.args[2:] == (4711, None, True)
    group = ExceptionGroup("of", [ValueError("x")])
    assert SECRETS.scrub(group) is group


def test_what_stands_in_the_place_of_an_error_is_caught_as_it_was() -> None:
    with pytest.raises(Fixed, match=r"fixed: \[\[secret:stripe:") as raised, SECRETS.scrubbed():
        raise Fixed(3)
    assert raised.value.__context__ is None
    assert raised.tb is not None
    with pytest.raises(ExceptionGroup) as group, SECRETS.scrubbed():
        raise errors()["fixed words in a group"]
    assert group.group_contains(Fixed)


def test_the_way_behind_an_error_is_kept() -> None:
    first, second = KeyError(VALUE), ValueError("second")
    second.__context__, second.__suppress_context__ = first, False
    with pytest.raises(ConfigError) as raised, SECRETS.scrubbed():
        raise ConfigError("a", "b", "c") from second
    assert raised.value.__cause__ is second
    assert second.__context__ is first
    assert not second.__suppress_context__


def test_errors_that_lead_to_each_other_are_scrubbed_once() -> None:
    one, other = KeyError(VALUE), ValueError(VALUE)
    one.__context__, other.__cause__ = other, one
    assert SECRETS.scrub(one) is one
    assert VALUE not in f"{one!r} {other!r}"


@pytest.mark.parametrize("what", ["notes", "a file", "names and values", "a group", "fixed words"])
def test_an_error_that_leaves_the_driving_says_nothing_of_it(what: str) -> None:
    def deps() -> None:
        raise errors()[what]

    @tool(effect="read")
    def look() -> str:
        return "x"

    agents = [Agent("a", Scripted([call("look")]), tools=[look])]
    with (
        Runtime(":memory:", agents, deps=deps, secrets=SECRETS) as rt,
        pytest.raises(Exception, match="deps factory failed") as raised,
    ):
        rt.run("a", "go")
    assert VALUE[4:] not in "\n".join(all_of(raised.value, set()))
