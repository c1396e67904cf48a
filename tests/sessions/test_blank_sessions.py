"""A session without a name is nobody's: no verb makes one, and none reads or removes it."""

import inspect
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from typer.main import get_group
from typer.testing import CliRunner

from cairn import Agent, ConfigError, Principal, Runtime, Scripted
from cairn.cli.entry import app
from cairn.core import events as ev
from cairn.engine.clock import SystemClock
from cairn.engine.given import RunOptions
from cairn.engine.sessions import titled
from cairn.ports import RunFilter
from cairn.runtime.sessions import Posted

BLANKS = st.text(
    st.characters(categories=["Zs", "Zl", "Zp"], include_characters="\t\n\r\f\v"), max_size=4
)
"""Every name that consists of blanks alone, and the empty one."""
NAMES = {"session", "new"}
GOOD: dict[str, Any] = {
    "agent": "a",
    "input": "hello",
    "session": "s",
    "new": "other",
    "to": "first",
    "title": "A title",
    "text": "hello",
}


def runtime(store: Any) -> Runtime:
    """An agent that answers with all it was told."""

    def heard(request: Any) -> str:
        return " | ".join(p.content for m in request.messages for p in m.parts if m.role == "user")

    return Runtime(store, [Agent("a", Scripted(heard))])


def whole(found: Any) -> None:
    """What a verb gives, to its end: only then has one that streams begun."""
    if isinstance(found, Iterator):
        list(found)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Runs of three people, one of them in no session."""
    file = tmp_path_factory.mktemp("filled") / "cairn.db"
    with runtime(file) as rt:
        rt.run("a", "hello", id="first", session="s")
        rt.send("bob-1", "the secret of bob", agent="a", principal="bob")
        rt.run("a", "the secret of carl", principal="carl")
    return file


def naming() -> Iterator[tuple[str, str]]:
    """Each verb of a runtime with each of its parameters that names a session."""
    for verb in sorted(name for name in dir(Runtime) if not name.startswith("_")):
        method = getattr(Runtime, verb)
        if not callable(method) or f"{verb}_async" in dir(Runtime):
            continue  # the sync form of a verb
        for name, parameter in inspect.signature(method).parameters.items():
            if name in NAMES:
                yield verb, name
            if parameter.kind is inspect.Parameter.VAR_KEYWORD and name == "options":
                yield from ((verb, each) for each in get_type_hints(RunOptions) if each in NAMES)


VERBS = list(naming())
MEANS_NONE = {"run_async", "start_async", "enqueue_async", "stream_async", "runs_async"}
"""Verbs to which an empty session is none at all: a run in no session, or the runs of all."""


def test_the_verbs_that_name_a_session_are_known() -> None:
    assert {verb for verb, _ in VERBS} == MEANS_NONE | {
        *("send_async", "post_async", "session_async", "fork_session_async"),
        *("rewind_async", "title_session_async"),
    }


@pytest.mark.parametrize(("verb", "name"), VERBS, ids=[f"{v}-{n}" for v, n in VERBS])
@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(blank=BLANKS)
def test_no_verb_takes_a_blank_for_a_session(
    verb: str, name: str, blank: str, filled: Path
) -> None:
    if not blank and verb in MEANS_NONE:
        return
    of = inspect.signature(getattr(Runtime, verb)).parameters.items()
    needed = {n: GOOD[n] for n, p in of if p.default is p.empty and n in GOOD}
    with runtime(":memory:") as rt:
        rt.run("a", "hello", id="first", session="s")
        before = [info.run for info in rt.runs()]
        say = getattr(rt, verb.removesuffix("_async"))
        with pytest.raises(ConfigError, match=f"{name}: it is empty"):
            whole(say(**needed | {name: blank}))
        assert [info.run for info in rt.runs()] == before
        assert [info.session for info in rt.sessions()] == ["s"]


def test_a_place_without_a_session_is_followed_nowhere() -> None:
    with runtime(":memory:") as rt:
        run = rt.run("a", "hello").id
        with pytest.raises(ConfigError, match=r"posted\.session"):
            rt.follow(Posted(session="", run=run, seq=1, how="started"))


def test_a_session_without_a_name_in_an_older_store_shows_nobody_elses_words() -> None:
    """Before this was refused a fork could make one; its title is not the words of another."""
    with runtime(":memory:") as rt:
        rt.run("a", "hello", id="first", session="s", principal="ann")
        rt.run("a", "the secret of bob", principal="bob")

        async def look() -> list[str]:
            clock = SystemClock()
            head = (await rt.store.info("store")).head
            fact = ev.SessionForked(session="", run="first", of="s")
            await rt.store.keep(head, [ev.Entry(seq=head + 1, at=clock.now_us(), event=fact)])
            infos = await rt.store.sessions("", 10)
            return [title for _, title in await titled(rt.store, infos)]

        titles = rt.portal.call(look(), "look")
        assert "hello" in titles
        assert not any("secret" in title for title in titles)
        with pytest.raises(ConfigError, match="session: it is empty"):
            rt.session("", principal=Principal(id="ann"))


# ---------------------------------------------------------------- the command line


def commands(group: Any, *before: str) -> Iterator[tuple[str, ...]]:
    """The commands that take a session, by an argument or an option."""
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from commands(command, *before, name)
        elif any(p.name in NAMES for p in command.params):
            yield (*before, name)


WORDS: dict[str, tuple[str, ...]] = {
    "run": ("a", "hello", "--session", "?"),
    "chat": ("a", "--session", "?"),
    "runs": ("--session", "?"),
    "sessions show": ("?",),
    "sessions post": ("?", "hello", "--agent", "a"),
    "sessions fork": ("s", "?"),
    "sessions rewind": ("?", "first"),
    "sessions title": ("?", "A title"),
    "sessions export": ("?", "out"),
    "sessions prune": ("?",),
}


def test_the_commands_that_name_a_session_are_known() -> None:
    assert {" ".join(words) for words in commands(get_group(app))} == set(WORDS)


@pytest.mark.parametrize("blank", ["", " ", "\t\n", "\u3000"], ids=repr)
@pytest.mark.parametrize("command", WORDS)
def test_no_command_takes_a_blank_for_a_session(
    command: str, blank: str, filled: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    shutil.copy(filled, tmp_path / "cairn.db")
    (tmp_path / "blank_desk.py").write_text(
        "from cairn import Agent, Runtime, Scripted\n"
        "rt = Runtime('cairn.db', [Agent('a', Scripted(lambda r: 'done'))])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    words = [blank if word == "?" else word for word in WORDS[command]]
    given = [*command.split(), *words, "--store", "cairn.db", "--app", "blank_desk:rt"]
    said = CliRunner().invoke(app, given)
    assert said.exit_code == 2, said.output
    assert "is empty" in said.stderr
    assert "secret" not in said.output
    assert not (tmp_path / "out").exists()
    with runtime(tmp_path / "cairn.db") as rt:
        assert len(rt.runs()) == 3
        assert [info.session for info in rt.sessions()] == ["bob-1", "s"]


def test_a_blank_is_refused_on_both_sides_of_a_fork(filled: Path, tmp_path: Path) -> None:
    shutil.copy(filled, tmp_path / "cairn.db")
    for words in (("", "other"), ("s", ""), (" ", " ")):
        given = ["sessions", "fork", *words, "--store", str(tmp_path / "cairn.db")]
        assert CliRunner().invoke(app, given).exit_code == 2


def test_a_filter_without_a_session_still_means_all_runs(filled: Path, tmp_path: Path) -> None:
    """What `runs` asks for is left as it was: only verbs about one session need its name."""
    shutil.copy(filled, tmp_path / "cairn.db")
    with runtime(tmp_path / "cairn.db") as rt:
        assert len(rt.portal.call(rt.store.runs(RunFilter()), "runs")) == 3


@pytest.mark.parametrize("unseen", ["\u200b", " \u200b\n", "\ufeff", "\u00ad\u2060"])
def test_a_name_or_a_message_in_which_nothing_is_seen_is_refused_as_an_empty_one(
    unseen: str,
) -> None:
    with runtime(":memory:") as rt:
        for refused in (
            lambda: rt.send(unseen, "hello", agent="a"),
            lambda: rt.post(unseen, "hello", agent="a"),
            lambda: rt.run("a", "hello", session=unseen),
        ):
            with pytest.raises(ConfigError, match="session: nothing in it is seen"):
                refused()
        for silent in (
            lambda: rt.send("s", unseen, agent="a"),
            lambda: rt.post("s", [unseen, ""], agent="a"),
            lambda: rt.run("a", unseen),
        ):
            with pytest.raises(ConfigError, match=r"input: .* holds nothing"):
                silent()
        assert rt.runs() == []
        rt.send("\u200bs", "\u200b!", agent="a")
        with pytest.raises(ConfigError, match="new: nothing in it is seen"):
            rt.fork_session("\u200bs", unseen)
