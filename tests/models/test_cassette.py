"""Cassettes: recorded once, replayed for ever, by content and without a memory of their own."""

import asyncio
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.models.tapedeck import (
    Flaky,
    ask,
    asking,
    exchanges,
    lines,
    record,
    run_child,
    said,
)

from cairn import (
    Agent,
    Blob,
    ConfigError,
    ErrorClass,
    ModelError,
    Price,
    Runtime,
    Scripted,
    Text,
    Usage,
)
from cairn.core.limits import FREE
from cairn.core.messages import CallPart, Message, Reasoning, ResultPart, Uri, user
from cairn.models.cassette import Cassette
from cairn.ports import ModelReply, ModelRequest, ReplyCall, ToolSchema

GOLDEN = Path(__file__).with_name("tapes") / "golden.jsonl"
SEARCH = ToolSchema(name="search", description="Look it up", parameters={"type": "object"})


class Untouchable:
    """A model that must not even be looked at."""

    def __getattribute__(self, name: str) -> Any:
        if name == "__class__":
            return Untouchable
        raise AssertionError(f"a replay touched {name}")


@pytest.fixture(autouse=True)
def _no_mode_from_outside(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CAIRN_CASSETTE", raising=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "tape.jsonl"


# ---------------------------------------------------------------- what a tape gives back


def test_a_replay_gives_the_whole_reply_again_and_never_touches_the_model(path: Path) -> None:
    whole = ModelReply(
        parts=(Reasoning(content="hm", opaque="b64=="), Text("Grüße 你好 \u2028 ✓", opaque="sig")),
        calls=(ReplyCall(name="search", arguments='{ "q" :"x" }', id="call_9", opaque="o"),),
        finish="tool_calls",
        usage=Usage(input_tokens=11, cached_tokens=3, output_tokens=5, reasoning_tokens=2),
        request_id="req_1",
        first_token_us=1234,
        model="flaky-2026",
    )
    request = asking(tools=(SEARCH,), tool_choice="search")
    record(path, Flaky(whole), request)
    tape = Cassette(path, Untouchable())  # type: ignore[arg-type]  # - that is the point
    assert ask(tape, request) == whole
    assert (tape.name, tape.window, tape.max_output) == ("flaky:one", 9_000, 700)
    assert not tape.takes_tools


def test_a_reply_without_usage_is_not_replayed_as_one_that_used_nothing(path: Path) -> None:
    record(path, Flaky(ModelReply(usage=None), "b"), asking("a"), asking("b"))
    assert ask(Cassette(path), asking("a")).usage is None
    assert ask(Cassette(path), asking("b")).usage == Usage()


def test_a_replay_costs_nothing_unless_told_and_a_recording_what_the_model_costs(
    path: Path,
) -> None:
    own = Price(input=5)
    with Cassette(path, Flaky("x"), mode="record") as tape:
        assert tape.price == Flaky.price
        assert tape.timeout_s == 7.0
        ask(tape, asking())
    assert Cassette(path).price == FREE
    assert Cassette(path).timeout_s == 120.0
    assert Cassette(path, price=own).price == own


def test_order_does_not_count_and_neither_does_what_no_model_sees(path: Path) -> None:
    record(path, Flaky("one", "two"), asking("1", run="a"), asking("2", run="a", turn=1, step=2))
    tape = Cassette(path)
    elsewhere = {"run": "z", "step": 9, "max_output": 300, "timeout_s": 1.0}
    assert said(tape, asking("2", **elsewhere), asking("1", turn=4, **elsewhere)) == ["two", "one"]


@pytest.mark.parametrize(
    "change",
    [
        {"system": "Be long."},
        {"messages": [user("hello"), user("again")]},
        {"tools": (SEARCH,)},
        {"tool_choice": "none"},
        {"output_mode": "schema"},
        {"output_schema": {"type": "object"}},
    ],
    ids=lambda change: next(iter(change)),
)
def test_whatever_the_model_would_see_must_be_the_same(path: Path, change: Any) -> None:
    record(path, Flaky("x"), asking())
    with pytest.raises(ModelError) as caught:
        ask(Cassette(path), asking(**change))
    assert caught.value.error_class is ErrorClass.INVALID_REQUEST
    added = [line for line in str(caught.value).splitlines() if line.startswith("+")]
    assert len(added) >= 2, "the difference is shown"


def test_a_recorded_failure_fails_again_and_the_retry_after_it_succeeds_again(path: Path) -> None:
    told = ModelError(
        ErrorClass.OVERLOADED, "busy", retry_after_s=1.5, status=529, request_id="req_7"
    )
    first, second = asking(turn=0, attempt=1), asking(turn=1, attempt=2)
    record(path, Flaky(told, "done"), first, second)
    for _ in range(2):  # no memory: the same questions get the same answers
        tape = Cassette(path)
        with pytest.raises(ModelError, match="busy") as caught:
            ask(tape, first)
        again = caught.value
        assert (again.error_class, again.retry_after_s) == (told.error_class, 0.01)
        assert (again.status, again.request_id) == (529, "req_7")
        assert said(tape, second) == ["done"]


def test_a_replayed_failure_says_that_it_is_from_the_tape(path: Path) -> None:
    fault = ModelError(ErrorClass.NETWORK, "connection refused")
    record(path, Flaky(fault), asking())
    with pytest.raises(ModelError) as caught:
        ask(Cassette(path), asking())
    assert str(caught.value) == "connection refused (this failure is from the tape)"


def test_what_a_model_is_told_of_its_reply_is_replayed_word_for_word(path: Path) -> None:
    record(path, Flaky(ModelError(ErrorClass.MALFORMED_OUTPUT, "no JSON")), asking())
    with pytest.raises(ModelError, match=r"^no JSON$"):
        ask(Cassette(path), asking())


def test_a_recorded_wait_is_not_waited_for_again_but_a_long_one_still_sends_to_a_fallback(
    path: Path,
) -> None:
    busy = [ModelError(ErrorClass.RATE_LIMITED, "later", retry_after_s=s) for s in (300, 300, 40)]
    waited, left, short = asking("waited"), asking("left"), asking("short")
    again = asking("waited", turn=1, attempt=2)
    record(path, Flaky(busy[0], "done", *busy[1:]), waited, again, left, short)
    waits = []
    for request in (waited, left, short):
        with pytest.raises(ModelError, match="later") as caught:
            ask(Cassette(path), request)
        waits.append(caught.value.retry_after_s)
    assert waits == [0.01, 300, 0.01]


def test_a_run_that_lost_an_attempt_to_a_crash_is_answered_by_its_turn(path: Path) -> None:
    busy = ModelError(ErrorClass.OVERLOADED, "busy")
    record(path, Flaky(busy, "done"), asking(turn=0, attempt=1), asking(turn=1, attempt=2))
    with pytest.raises(ModelError, match="busy"):
        ask(Cassette(path), asking(turn=0, attempt=2))
    assert said(Cassette(path), asking(turn=1, attempt=3)) == ["done"]


def test_a_failure_answers_no_attempt_but_its_own(path: Path) -> None:
    record(path, Flaky(ModelError(ErrorClass.OVERLOADED, "busy")), asking())
    with pytest.raises(ModelError, match=r"attempt 2.*failed exchanges: 1 \(attempt 1\)") as caught:
        ask(Cassette(path), asking(turn=1, attempt=2))
    assert caught.value.error_class is ErrorClass.INVALID_REQUEST


def test_a_time_out_of_the_model_is_recorded_as_one(path: Path) -> None:
    (came,) = record(path, Flaky(TimeoutError("slow")), asking())
    assert isinstance(came, TimeoutError)
    with pytest.raises(ModelError, match="slow") as caught:
        ask(Cassette(path), asking())
    assert caught.value.error_class is ErrorClass.TIMEOUT


def test_a_cancelled_request_leaves_nothing_on_the_tape(path: Path) -> None:
    async def cut(request: ModelRequest) -> str:
        await asyncio.sleep(60)
        return "never"

    async def go() -> None:
        with Cassette(path, Scripted(cut), mode="record") as tape:
            task = asyncio.ensure_future(tape.request(asking()))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    asyncio.run(go())
    assert path.read_bytes() == b""


def test_several_answers_to_one_question_are_told_apart_by_turn_and_then_by_run(path: Path) -> None:
    requests = [asking(run=run, turn=turn) for turn in (0, 3) for run in ("a", "b")]
    record(path, Flaky("a0", "b0", "a3", "b3"), *requests)
    assert said(Cassette(path), *reversed(requests)) == ["b3", "a3", "b0", "a0"]
    assert said(Cassette(path), asking(run="c", turn=3)) == ["b3"], "the newest, for a stranger"


def test_text_is_shown_in_words_and_what_a_failed_attempt_had_shown_is_shown_again(
    path: Path,
) -> None:
    cut = ModelError(ErrorClass.STREAM_INTERRUPTED, "cut")
    requests = [asking(attempt=1, turn=0), asking(attempt=2, turn=1)]
    with Cassette(path, Flaky(cut, " two  words\n", shown="half an an"), mode="record") as tape:
        with pytest.raises(ModelError):
            ask(tape, requests[0], [].append)
        ask(tape, requests[1])
    tape = Cassette(path)
    heard: list[str] = []
    with pytest.raises(ModelError):
        ask(tape, requests[0], heard.append)
    assert heard == ["half ", "an ", "an"]
    heard.clear()
    ask(tape, requests[1], heard.append)
    assert heard == [" ", "two  ", "words\n"]


def test_text_that_is_no_unicode_comes_back_as_it_was(path: Path) -> None:
    reply = ModelReply(
        parts=(Text("half \ud83d"),), calls=(ReplyCall(name="x", arguments="\ud800"),)
    )
    record(path, Flaky(reply), asking("\udcff"))
    assert ask(Cassette(path), asking("\udcff")) == reply


def test_what_was_not_asked_for_can_be_listed(path: Path) -> None:
    record(path, Flaky("1", "2"), asking("first"), asking("second"))
    tape = Cassette(path)
    ask(tape, asking("first"))
    assert tape.unused() == ["exchange 2 (line 6): user: second"]
    ask(tape, asking("second"))
    assert not tape.unused()


# ---------------------------------------------------------------- the file


def test_a_tape_is_private_and_says_each_thing_once(path: Path) -> None:
    long = "All work and no play. " * 100
    told = [user(long)]
    requests = []
    for turn in range(20):
        requests.append(ModelRequest(system=long, messages=[*told], tools=(SEARCH,), turn=turn))
        told += [Message(role="assistant", parts=(Text(f"yes {turn}"),)), user(f"more {turn}")]
    record(path, Flaky(*(f"yes {n}" for n in range(20))), *requests)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert path.read_text(encoding="utf-8").count("All work") == 200
    assert path.stat().st_size < 20 * 600 + 2 * len(long)
    assert lines(path)[0]["model"] == "flaky:one"
    assert said(Cassette(path), *requests) == [f"yes {n}" for n in range(20)]


def test_files_in_a_request_are_on_the_tape_by_hash_and_size_only(path: Path) -> None:
    picture = Message(role="user", parts=(Blob(mime_type="image/png", content=b"\x89PNG" * 50),))
    other = Message(role="user", parts=(Blob(mime_type="image/png", content=b"\x89PNX" * 50),))
    record(path, Flaky("a cat"), asking(messages=[picture]))
    (kept,) = lines(path)[2]["message"]["parts"]
    assert kept["bytes"] == 200
    assert "content" not in kept
    assert said(Cassette(path), asking(messages=[picture])) == ["a cat"]
    with pytest.raises(ModelError, match="sha256"):
        ask(Cassette(path), asking(messages=[other]))


def test_files_in_a_reply_come_back(path: Path) -> None:
    reply = ModelReply(parts=(Blob(mime_type="image/png", content=bytes(range(256))),))
    record(path, Flaky(reply), asking())
    assert ask(Cassette(path), asking()) == reply


def test_what_only_the_runtime_needs_of_a_call_does_not_count(path: Path) -> None:
    def history(alias: str, after: tuple[str, ...]) -> ModelRequest:
        part = CallPart(id="c2", name="search", alias=alias, after=after, opaque="o" * 500)
        return asking(messages=[user("x"), Message(role="assistant", parts=(part,))])

    record(path, Flaky("x"), history("call_1", ("c1",)))
    assert said(Cassette(path), history("", ())) == ["x"]
    assert "ooo" not in path.read_text(encoding="utf-8")


def test_a_huge_request_is_recorded_and_found(path: Path) -> None:
    huge = "lorem ipsum " * 250_000
    record(path, Flaky("ok"), asking(huge))
    assert said(Cassette(path), asking(huge)) == ["ok"]
    with pytest.raises(ModelError) as caught:
        ask(Cassette(path), asking(huge + "!"))
    assert len(str(caught.value)) < 3_200


def test_a_person_may_correct_an_answer_or_a_question_on_the_tape(path: Path) -> None:
    record(path, Flaky("a typpo"), asking("Who?"))
    text = path.read_text(encoding="utf-8").replace("typpo", "typo").replace("Who?", "Who then?")
    path.write_text(text.rstrip("\n"), encoding="utf-8")
    assert said(Cassette(path), asking("Who then?")) == ["a typo"]
    with Cassette(path, Flaky("nobody"), mode="extend") as tape:
        assert said(tape, asking("Who?"), asking("Who then?")) == ["nobody", "a typo"]
    assert said(Cassette(path), asking("Who?"), asking("Who then?")) == ["nobody", "a typo"]


def test_the_golden_tape_is_replayed_for_ever() -> None:
    """Recorded by Cairn 0.1.0; it may be added to, but nothing that it answers may be lost."""
    tape = Cassette(GOLDEN)
    assert (tape.name, tape.window, tape.max_output) == ("openai:gpt-5-mini", 400_000, 128_000)
    told = [user("Refund order 7, see the picture")]
    told[0] = Message(
        role="user",
        parts=(
            *told[0].parts,
            Blob(mime_type="image/png", content=b"\x89PNG\r\n", name="order.png"),
            Uri(uri="cairn:order/7", mime_type="text/html"),
        ),
    )
    first = ModelRequest(system="You run a shop.", messages=told, tools=(SEARCH,))
    reply = ask(tape, first)
    assert reply.calls == (
        ReplyCall(name="search", arguments='{"q": "order 7"}', id="call_1", opaque="sig"),
    )
    assert reply.parts == (Reasoning(content="Look it up first.", opaque="gAAAA"),)
    assert reply.usage == Usage(input_tokens=120, cached_tokens=64, output_tokens=9)
    made = CallPart(id="c1", name="search", arguments='{"q": "order 7"}', opaque="sig")
    answered = ResultPart(id="c1", result="4 euros — paid", ok=False)
    told = [
        *told,
        Message(role="assistant", parts=(*reply.parts, made)),
        Message(role="tool", parts=(answered,)),
    ]
    schema = {"type": "object", "properties": {"done": {"type": "boolean"}}}
    later = {"system": first.system, "messages": told, "tools": first.tools}
    typed: dict[str, Any] = {"output_mode": "schema", "output_schema": schema}
    with pytest.raises(ModelError) as caught:
        ask(tape, ModelRequest(**later, **typed, tool_choice="required", turn=1))
    assert caught.value.error_class is ErrorClass.RATE_LIMITED
    assert (caught.value.retry_after_s, caught.value.status) == (0.01, 429)
    reply = ask(tape, ModelRequest(**later, **typed, tool_choice="required", turn=2, attempt=2))
    assert reply.parts == (Text('{"done": true}'),)
    assert reply.usage is None
    assert not tape.unused()


# ---------------------------------------------------------------- an unexpected request


def test_the_message_names_the_tape_the_nearest_exchange_the_difference_and_the_way_out(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(path.parent)
    record(Path("tape.jsonl"), Flaky("a", "b"), asking("Refund order 7"), asking("Something else"))
    with pytest.raises(ModelError) as caught:
        ask(Cassette("tape.jsonl"), asking("Refund order 8\nat once"))
    assert str(caught.value) == (
        "the cassette tape.jsonl has no answer to this request. "
        "Nearest is exchange 1 of 2, line 4:\n"
        "--- on the tape, exchange 1\n"
        "+++ asked now\n"
        " output: text\n"
        "-user: Refund order 7\n"
        "+user: Refund order 8\n"
        "+user: at once\n"
        "Record what is new with CAIRN_CASSETTE=extend, or all anew with CAIRN_CASSETTE=record."
    )


def test_a_change_in_the_middle_of_a_long_line_is_seen(path: Path) -> None:
    record(path, Flaky("a"), asking("x" * 5_000 + "old" + "x" * 5_000))
    with pytest.raises(ModelError, match=r"(?s)-.*old.*[+].*new"):
        ask(Cassette(path), asking("x" * 5_000 + "new" + "x" * 5_000))


def test_an_empty_tape_says_so_when_it_is_asked(path: Path) -> None:
    with Cassette(path, Flaky(), mode="extend"):
        pass
    with pytest.raises(ModelError, match="no exchange on it"):
        ask(Cassette(path), asking())


def test_a_run_whose_request_is_not_on_the_tape_fails_and_says_why(path: Path) -> None:
    record(path, Flaky("x"), asking("something"))
    with Runtime(":memory:", [Agent("shop", Cassette(path))]) as rt:
        run = rt.run("shop", "else")
    assert run.status == "failed"
    assert "has no answer to this request" in run.text


# ---------------------------------------------------------------- modes


def test_record_writes_the_tape_anew_with_the_first_exchange_and_not_before(path: Path) -> None:
    record(path, Flaky("old"), asking())
    child = run_child(
        "with Cassette(path, Scripted(['new', 'newer']), mode='record'): pass\n"
        "print(said(Cassette(path)))\n"
        "with Cassette(path, Scripted(['new', 'newer'], name='flaky:one'), mode='record') as t:\n"
        "    print(said(t))\n"
        "print(said(Cassette(path)))\n",
        path,
    )
    assert child.stdout.split() == ["old", "new", "new"], child.stderr
    assert len(exchanges(path)) == 1


def test_a_tape_is_begun_anew_once_in_a_process_and_shared_in_it(path: Path) -> None:
    first = Cassette(path, Flaky("a"), mode="record")
    second = Cassette(path, Flaky("b"), mode="record")
    assert said(first, asking("a")) == ["a"]
    assert said(second, asking("b")) == ["b"]
    first.eject()
    second.eject()
    record(path, Flaky("c"), asking("c"))
    assert said(Cassette(path), *map(asking, "abc")) == ["a", "b", "c"]


def test_extend_plays_what_is_there_and_records_the_rest(path: Path) -> None:
    record(path, Flaky("a"), asking("a"))
    inner = Flaky("b")
    with Cassette(path, inner, mode="extend") as tape:
        assert said(tape, asking("a"), asking("b"), asking("b")) == ["a", "b", "b"]
        assert not tape.unused()
    assert inner.asked == 1
    assert said(Cassette(path), asking("b"), asking("a")) == ["b", "a"]


def test_an_empty_file_of_another_mode_becomes_a_private_tape(path: Path) -> None:
    path.write_bytes(b"\n")
    path.chmod(0o644)
    record(path, Flaky("x"), asking())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert lines(path)[0]["cassette"] == 1


PASSING = ("network", "timeout", "unavailable", "overloaded", "rate_limited", "auth")


@pytest.mark.parametrize("kind", [*PASSING, "stream_interrupted", "quota_exhausted"])
def test_extend_asks_again_where_only_a_failure_that_passes_was_recorded(
    path: Path, kind: str
) -> None:
    record(path, Flaky(ModelError(ErrorClass(kind), "not now")), asking())
    inner = Flaky("done")
    with Cassette(path, inner, mode="extend") as tape:
        assert said(tape, asking(), asking()) == ["done", "done"]
    assert inner.asked == 1
    assert said(Cassette(path), asking()) == ["done"]


def test_extend_plays_a_failure_that_a_reply_came_after_or_that_lies_in_the_request(
    path: Path,
) -> None:
    busy, bad = (
        ModelError(error_class, error_class.value)
        for error_class in (ErrorClass.OVERLOADED, ErrorClass.INVALID_REQUEST)
    )
    again = asking(turn=1, attempt=2)
    record(path, Flaky(busy, "done", bad), asking(), again, asking("odd"))
    with Cassette(path, Flaky(), mode="extend") as tape:
        for request in (asking(), asking("odd")):
            with pytest.raises(ModelError, match="from the tape"):
                ask(tape, request)
        assert said(tape, again) == ["done"]


def test_record_keeps_the_old_tape_until_a_reply_came_and_says_so(path: Path) -> None:
    record(path, Flaky("old"), asking())
    old = path.read_bytes()
    code = (
        "from cairn import ErrorClass, ModelError\n"
        "def down(request): raise ModelError(ErrorClass.NETWORK, 'nobody there')\n"
        "t = Cassette(path, Scripted(down, name='flaky:one'), mode='record')\n"
        "try: said(t)\n"
        "except ModelError as error: print(error)\n"
    )
    for ending in ("t.eject()\n", ""):
        child = run_child(code + ending, path)
        assert child.stdout.strip() == "nobody there", child.stderr
        assert child.stderr.count("nothing but failures came") == 1
        assert "still is the old tape" in child.stderr
        assert path.read_bytes() == old
    assert list(path.parent.iterdir()) == [path]


def test_the_first_reply_puts_the_new_tape_with_its_failures_in_the_place_of_the_old_one(
    path: Path,
) -> None:
    record(path, Flaky("old"), asking())
    code = (
        "from cairn import ErrorClass, ModelError\n"
        "old = open(path, 'rb').read()\n"
        "script = [ModelError(ErrorClass.NETWORK, 'nobody there'), 'new', 'newer']\n"
        "model = Scripted(script, name='flaky:one')\n"
        "with Cassette(path, model, mode='record') as t:\n"
        "    try: said(t)\n"
        "    except ModelError: assert open(path, 'rb').read() == old\n"
        "    print(said(t, turn=1, attempt=2), said(t, 'more', turn=2))\n"
    )
    child = run_child(code, path)
    assert child.stdout.split() == ["new", "newer"], child.stderr
    assert child.stderr == ""
    assert [line["exchange"] for line in exchanges(path)] == [1, 2, 3]
    assert "old" not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert said(Cassette(path), asking(turn=1, attempt=2), asking("more")) == ["new", "newer"]


def test_the_environment_decides_for_all(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CAIRN_CASSETTE", "extend")
    with Cassette(path, Flaky("a")) as tape:
        assert tape.mode == "extend"
        ask(tape, asking())
    monkeypatch.setenv("CAIRN_CASSETTE", "replay")
    assert said(Cassette(path, mode="record"), asking()) == ["a"]
    monkeypatch.setenv("CAIRN_CASSETTE", "rewind")
    with pytest.raises(ConfigError, match=r"CAIRN_CASSETTE: 'rewind' is no mode.*replay, record"):
        Cassette(path)


def test_a_string_is_looked_up_only_to_record(path: Path) -> None:
    record(path, Flaky("a"), asking())
    assert said(Cassette(path, "flaky:one"), asking()) == ["a"]
    with pytest.raises(ConfigError, match="there is no provider 'flaky'"):
        Cassette(path, "flaky:one", mode="extend")


def test_an_ejected_cassette_records_no_more(path: Path) -> None:
    tape = Cassette(path, Flaky("a", "b"), mode="record")
    ask(tape, asking("a"))
    tape.eject()
    tape.eject()
    with pytest.raises(ConfigError, match="was ejected"):
        ask(tape, asking("b"))
    assert len(exchanges(path)) == 1


class Connected(Flaky):
    """Has something to close, and something that may keep it from being asked."""

    closed = 0
    key = "there"

    async def close(self) -> None:
        self.closed += 1

    def check(self) -> None:
        if not self.key:
            raise ConfigError(self.name, "there is no key", "Set one")


def test_a_runtime_that_ends_closes_the_model_behind_and_the_recording_goes_on(path: Path) -> None:
    inner = Connected("a", "b")
    with Cassette(path, inner, mode="record") as tape:
        for n in (1, 2):
            with Runtime(":memory:", [Agent("a", tape)]) as rt:
                assert rt.run("a", f"go {n}").ok
            assert inner.closed == n
    tape = Cassette(path, Connected())
    with Runtime(":memory:", [Agent("a", tape)]) as rt:
        assert rt.run("a", "go 2").text == "b"


def test_a_recording_without_a_key_leaves_the_tape_alone(path: Path) -> None:
    record(path, Flaky("a"), asking("a"))
    kept = path.read_bytes()
    inner = Connected("b")
    inner.key = ""
    with pytest.raises(ConfigError, match="there is no key"):
        Cassette(path, inner, mode="record")
    with Cassette(path, inner, mode="extend") as tape:
        assert said(tape, asking("a")) == ["a"]
        with pytest.raises(ModelError, match="there is no key") as caught:
            ask(tape, asking("b"))
    assert caught.value.error_class is ErrorClass.AUTH
    assert (path.read_bytes(), inner.asked) == (kept, 0)
    Cassette(path, inner).check()


# ---------------------------------------------------------------- wrong files


def _says(words: str, make: Callable[[], Any]) -> None:
    with pytest.raises(ConfigError, match=words) as caught:
        make()
    assert caught.value.fix


def test_a_missing_empty_foreign_or_newer_file_is_refused_with_a_way_out(path: Path) -> None:
    _says(r"does not exist\. Record it once", lambda: Cassette(path))
    path.write_bytes(b"")
    _says(r"is empty\. Record it once", lambda: Cassette(path))
    for text in ("hello\n", "hello", "[1]\n", '{"a": 1}\n', "\x00\xff\n", '{"cassette": 1}\n'):
        path.write_bytes(text.encode("latin-1"))
        _says("is no cassette", lambda: Cassette(path))
        if not text.startswith('{"cassette"'):
            for mode in ("record", "extend"):
                _says("is no cassette", lambda m=mode: Cassette(path, Flaky(), mode=m))
        assert path.read_bytes() == text.encode("latin-1"), "it was left alone"
    path.write_text('{"cassette": 2, "model": "x"}\n')
    for mode in ("replay", "extend"):
        _says("has version 2.*Update Cairn", lambda m=mode: Cassette(path, Flaky(), mode=m))
    _says("cannot be read", lambda: Cassette(path.parent))
    _says("cannot be written", lambda: Cassette(path.parent, Flaky(), mode="record"))
    _says("cannot be written", lambda: Cassette(path / "below", Flaky(), mode="record"))
    _says("no model to record", lambda: Cassette(path, mode="record"))


@pytest.mark.parametrize(
    "line",
    [
        b"nonsense",
        b'{"exchange": 2, "messages": ["m-absent"], "reply": {}}',
        b'{"exchange": 2, "after": 9, "reply": {}}',
        b'{"exchange": 2, "messages": []}',
        b'{"exchange": 2, "messages": [], "error": {"class": "of another time"}}',
        b'{"define": "m-1"}',
        b"\xff",
    ],
)
def test_a_line_that_cannot_be_read_is_named(path: Path, line: bytes) -> None:
    record(path, Flaky("a"), asking())
    path.write_bytes(path.read_bytes() + line + b"\n")
    _says("line 5 of .* cannot be read", lambda: Cassette(path))


def test_a_tape_of_another_model_is_refused(path: Path) -> None:
    record(path, Flaky("a"), asking())
    _says("holds answers of flaky:one, not of other:x", lambda: Cassette(path, "other:x"))
    other = Scripted(["x"], name="other:x")
    _says("holds answers of flaky:one", lambda: Cassette(path, other, mode="extend"))
    assert said(Cassette(path), asking()) == ["a"]


def test_a_torn_last_line_is_set_aside_by_extend_and_refused_by_replay(path: Path) -> None:
    """B51: the next line begins on a line of its own."""
    record(path, Flaky("a", "b"), asking("a"), asking("b"))
    whole = path.read_bytes()
    for cut in (whole[:-20], whole[:30]):
        path.write_bytes(cut)
        _says("is torn.*CAIRN_CASSETTE=extend", lambda: Cassette(path))
        with pytest.warns(UserWarning, match=r"was torn; it now lies in .*\.torn"):
            tape = Cassette(path, Flaky("c"), mode="extend")
        with tape:
            assert said(tape, asking("c")) == ["c"]
        aside = Path(f"{path}.torn")
        assert cut.endswith(aside.read_bytes())
        assert stat.S_IMODE(aside.stat().st_mode) == 0o600
        assert said(Cassette(path), asking("c")) == ["c"]


def test_a_block_of_zero_bytes_is_named_and_an_empty_file_is_a_new_tape(path: Path) -> None:
    """B51: what cannot be read is never passed over, and nothing is written behind it."""
    record(path, Flaky("a", "b"), asking("a"), asking("b"))
    lines = path.read_bytes().splitlines(keepends=True)
    damaged = b"".join((*lines[:2], b"\0" * len(lines[2]), *lines[2:]))
    path.write_bytes(damaged)
    for mode in ("replay", "extend"):
        _says(
            "line 3 of .* cannot be read", lambda mode=mode: Cassette(path, Flaky("c"), mode=mode)
        )
    assert path.read_bytes() == damaged
    path.write_bytes(b"")
    with Cassette(path, Flaky("c"), mode="extend") as tape:
        assert said(tape, asking("c")) == ["c"]
    assert said(Cassette(path), asking("c")) == ["c"]


def test_a_full_disk_ends_the_recording_and_keeps_whole_lines(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = os.write

    def half(fd: int, data: Any) -> int:
        if len(data) > 10:
            return real(fd, data[: len(data) // 2])
        raise OSError(28, "No space left on device")

    with Cassette(path, Flaky("a", "b"), mode="record") as tape:
        ask(tape, asking("a"))
        whole = path.read_bytes()
        with monkeypatch.context() as full:
            full.setattr(os, "write", half)
            with pytest.raises(ConfigError, match="No space left"):
                ask(tape, asking("b"))
    assert path.read_bytes() == whole
