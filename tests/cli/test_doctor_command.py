"""`doctor`: it looks at everything, makes nothing, and exits 1 exactly when something is wrong."""

import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.chat_server import NOWHERE, ChatServer, forget_providers
from tests.cli.chat_server import Said as Answer
from tests.cli.conftest import Cairn, Said

from cairn.cli.round_trip import ADVICE
from cairn.models.classify import TABLE


def line(said: Said, what: str) -> str:
    return next(x for x in said.out.splitlines() if f"· {what} ·" in x)


def test_a_sound_machine_store_and_application_are_all_ok(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    said = cairn("doctor")
    assert said.code == 0, said
    assert "problem" not in said.out
    for what in ("python", "sqlite", "filesystem", "disk", "store", "file mode", "file", "app"):
        assert line(said, what).startswith("ok"), what
    assert "0600" in line(said, "file mode")
    assert "journal mode wal" in line(said, "file")
    assert "1 waiting; 0 driven now" in line(said, "runs")
    assert "1 wait for people: cairn inbox" in line(said, "inbox")
    assert "refund (write)" in line(said, "agent shop")


def test_a_store_that_is_not_there_yet_is_no_problem_and_is_not_made(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("doctor")
    assert said.code == 0
    assert line(said, "store").startswith("note")
    assert [p.name for p in desk.iterdir()] == ["desk.py"]


def test_a_store_that_was_named_must_be_there(cairn: Cairn) -> None:
    assert cairn("doctor", "--store", "nowhere.db").code == 1


def test_a_file_that_others_can_read_is_a_problem(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    (desk / "desk.db").chmod(0o644)
    said = cairn("doctor")
    assert said.code == 1
    assert "chmod 600 desk.db" in line(said, "file mode")


def test_a_file_that_is_no_store_is_a_problem(cairn: Cairn, desk: Path) -> None:
    (desk / "other.db").write_text("not a database, only some text of sufficient length" * 9)
    (desk / "other.db").chmod(0o600)
    said = cairn("doctor", "--store", "other.db")
    assert said.code == 1
    assert "is not a store" in said.out


def test_a_store_of_a_newer_cairn_is_a_problem_for_every_command(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    with (desk / "desk.db").open("r+b") as file:
        file.seek(60)
        file.write(struct.pack(">i", 99))
    said = cairn("doctor")
    assert said.code == 1
    assert "this Cairn knows" in said.out
    assert cairn("runs").code == 1


def test_it_looks_at_the_store_that_the_application_names(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not at ./cairn.db, which nobody uses then; no more does any other command."""
    monkeypatch.delenv("CAIRN_STORE")
    cairn("run", "shop", "go", "--id", "a")
    (desk / "desk.db").chmod(0o644)
    for words in (("doctor",), ("doctor", "--app", "desk:rt")):
        said = cairn(*words)
        assert said.code == 1
        assert "chmod 600 desk.db" in line(said, "file mode")
        assert line(said, "store") == "ok      · store · desk.db, from desk:rt"
        assert line(said, "inbox").endswith("1 wait for people: cairn inbox --store desk.db")
        assert "cairn.db does not exist" not in said.out
    assert not (desk / "cairn.db").exists()


@pytest.mark.parametrize("named", ["", "named.db"])
def test_it_says_where_commands_look_that_are_not_told_of_the_application(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch, named: str
) -> None:
    monkeypatch.setenv("CAIRN_STORE", named)
    (desk / "second.py").write_text("import desk\nfrom cairn import Runtime\n"
                                    "rt = Runtime('second.db', agents=desk.agents)\n")  # fmt: skip
    store, note = lines(cairn("doctor", "--app", "second:rt"), "store")
    assert store == "ok      · store · second.db, from second:rt"
    there = "named.db (CAIRN_STORE)" if named else "the store of desk:rt (CAIRN_APP)"
    assert f"commands without --app look at {there}, unless" in note


def test_an_application_without_a_file_is_said_to_have_none(cairn: Cairn, desk: Path) -> None:
    (desk / "brief.py").write_text("import desk\nfrom cairn import Runtime\n"
                                   "rt = Runtime(':memory:', agents=desk.agents)\n")  # fmt: skip
    said = cairn("doctor", "--app", "brief:rt")
    assert line(said, "store") == "note    · store · no file but InMemoryStore, from brief:rt"


def test_the_store_of_an_application_that_cannot_be_loaded_is_not_guessed(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_STORE")
    said = cairn("doctor", "--app", "nowhere:rt")
    assert said.code == 1
    assert lines(said, "store") == []
    assert "there is no module 'nowhere'" in line(said, "app")


def test_a_store_with_less_durability_is_looked_at_as_it_is(cairn: Cairn, desk: Path) -> None:
    (desk / "quickly.py").write_text(
        "import cairn\nagent = cairn.Agent('a', cairn.Scripted(['x']))\n"
        "rt = cairn.Runtime('quick.db', agents=[agent], durability='process')\n"
    )
    said = cairn("doctor", "--app", "quickly:rt")
    assert said.code == 0, said
    assert "none unfinished" in line(said, "runs")


def test_runs_that_nobody_drives_are_named(cairn: Cairn) -> None:
    cairn("run", "shop", "go", "--id", "a")
    cairn("approve", "a/1")
    said = cairn("doctor")
    assert said.code == 0
    assert "1 could go on and nobody drives them: a" in said.out


def test_a_broken_application_or_agent_is_a_problem(cairn: Cairn, desk: Path) -> None:
    (desk / "bad.py").write_text("raise RuntimeError('no database password')\n")
    said = cairn("doctor", "--app", "bad:rt")
    assert said.code == 1
    assert "no database password" in line(said, "app")
    (desk / "odd.py").write_text(
        "import cairn\nrt = cairn.Runtime('odd.db', agents=[cairn.Agent('a', 'nobody:m')])\n"
    )
    said = cairn("doctor", "--app", "odd:rt")
    assert said.code == 1
    assert "there is no provider 'nobody'" in said.out
    (desk / "empty.py").write_text("import cairn\nrt = cairn.Runtime('odd.db')\n")
    assert cairn("doctor", "--app", "empty:rt").code == 1


def test_a_damaged_file_is_a_problem_and_no_traceback(cairn: Cairn, desk: Path) -> None:
    cairn("run", "quick", "go")
    content = (desk / "desk.db").read_bytes()
    (desk / "desk.db").write_bytes(content[:100] + b"\xff" * (len(content) - 100))
    said = cairn("doctor", "--store", "desk.db")
    assert said.code == 1
    assert "problem · store · desk.db is damaged" in " ".join(said.out.split())


# ---------------------------------------------------------------- models


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    """A server behind `compatible:`, which is the only provider that is set up."""
    forget_providers(monkeypatch)
    with ChatServer(models=("toy-1", "toy-2")).running() as running:
        monkeypatch.setenv("CAIRN_COMPATIBLE_BASE_URL", running.url)
        yield running


def write_app(desk: Path, agents: str) -> None:
    (desk / "remote.py").write_text(
        f"import cairn\nrt = cairn.Runtime('remote.db', agents=[{agents}])\n"
    )


def lines(said: Said, what: str) -> list[str]:
    return [x for x in said.out.splitlines() if f"· {what} ·" in x]


def test_a_script_is_said_to_need_nothing(cairn: Cairn) -> None:
    said = cairn("doctor", "--round-trip")
    assert said.code == 0
    assert line(said, "model scripted") == (
        "ok      · model scripted · a script: it needs no key and no network"
    )
    assert "none was asked anything" not in cairn("doctor").out


def test_without_being_told_to_it_asks_no_model_and_says_so(
    cairn: Cairn, desk: Path, server: ChatServer
) -> None:
    write_app(desk, "cairn.Agent('a', 'compatible:toy-1')")
    said = cairn("doctor", "--app", "remote:rt")
    assert said.code == 0, said
    assert "ready to be asked, http://127.0.0.1:" in line(said, "model compatible:toy-1")
    assert "--round-trip asks each for a word" in line(said, "models")
    assert server.paths == []


def test_a_round_trip_shows_times_tokens_cost_and_request_id(
    cairn: Cairn, desk: Path, server: ChatServer
) -> None:
    write_app(desk, "cairn.Agent('a', 'compatible:toy-1')")
    said = cairn("doctor", "--app", "remote:rt", "--round-trip")
    assert said.code == 0, said
    _, told = lines(said, "model compatible:toy-1")
    for part in ("round trip in", "first token after", " in, 3 out", "$0", "request id req-7"):
        assert part in told, part
    (asked,) = server.asked
    assert asked["messages"][-1]["content"] == "Answer with the word ok."
    assert asked["max_tokens"] == 64


def test_each_model_of_the_agents_is_asked_once(
    cairn: Cairn, desk: Path, server: ChatServer
) -> None:
    both = "cairn.Agent('a', 'compatible:toy-1', fallback_models=['compatible:toy-2'])"
    write_app(desk, f"{both}, cairn.Agent('b', 'compatible:toy-1')")
    cairn("doctor", "--app", "remote:rt", "--round-trip")
    assert sorted(body["model"] for body in server.asked) == ["toy-1", "toy-2"]


def test_a_named_model_is_asked_without_an_application(
    cairn: Cairn, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("doctor", "--model", "compatible:toy-1")
    assert said.code == 0, said
    assert "round trip in" in said.out
    assert len(server.asked) == 1


def test_a_reply_that_was_cut_is_a_reply(cairn: Cairn, server: ChatServer) -> None:
    server.answer = lambda _: Answer("well", finish="length")
    said = cairn("doctor", "--model", "compatible:toy-1")
    assert said.code == 0, said
    assert "cut after 64 tokens" in said.out


def test_a_missing_key_is_a_problem_and_nothing_is_asked(cairn: Cairn, server: ChatServer) -> None:
    said = cairn("doctor", "--model", "openai:gpt-5-mini")
    assert said.code == 1
    assert "OPENAI_API_KEY is not set" in line(said, "model openai:gpt-5-mini")
    assert server.paths == []


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (
            Answer("bad key", status=401),
            ("auth:", "(HTTP 401)", "without a key", "export CAIRN_COMPATIBLE_API_KEY=…"),
        ),
        (
            Answer("no such model", status=404, code="model_not_found"),
            ("model_not_found:", "did you mean toy-1"),
        ),
        (
            Answer("slow down", status=429, headers={"Retry-After": "7"}),
            ("rate_limited:", "try again in 7 s, as it asks"),
        ),
        (
            Answer("you exceeded your current quota", status=429, code="insufficient_quota"),
            ("quota_exhausted:", "page of billing"),
        ),
        (Answer("come back", status=503), ("try again later", "fallback_models")),
        (Answer("odd field", status=400), ("invalid_request:", "speaks the format 'chat'")),
    ],
    ids=["auth", "not found", "rate", "quota", "unavailable", "invalid"],
)
def test_a_failed_round_trip_says_its_class_and_what_to_do(
    cairn: Cairn, server: ChatServer, answer: Answer, told: tuple[str, ...]
) -> None:
    server.answer = lambda _: answer
    said = cairn("doctor", "--model", "compatible:toy-11")
    assert said.code == 1
    (found,) = [x for x in lines(said, "model compatible:toy-11") if x.startswith("problem")]
    for part in told:
        assert part in found, found
    assert len(server.asked) == 1


def test_a_server_that_is_not_there_is_named(cairn: Cairn, server: ChatServer) -> None:
    said = cairn("doctor", "--model", "ollama:toy-1")
    assert said.code == 1
    told = line(said, "model ollama:toy-1")
    assert told.startswith("problem")
    assert f"nobody answers at {NOWHERE}. Start it, or look at OLLAMA_BASE_URL" in told
    assert "ready to be asked" not in said.out


def test_a_server_that_lacks_the_model_is_not_called_ready_to_be_asked_for_it(
    cairn: Cairn, server: ChatServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OLLAMA_BASE_URL", server.url)
    said = cairn("doctor", "--model", "ollama:toy-7")
    first, *_ = lines(said, "model ollama:toy-7")
    assert first.startswith("note")
    assert "lists no model 'toy-7'. Did you mean toy-" in first
    assert len(server.asked) == 1, "lists may be short of a name: the server has the last word"


def test_a_key_that_the_provider_repeats_is_not_shown(cairn: Cairn, server: ChatServer) -> None:
    key = "sk-test-4711-abcdefgh"
    server.answer = lambda _: Answer(f"wrong key: {key}, sk-te****efgh", status=401)
    said = cairn("doctor", "--model", "compatible:toy-1", CAIRN_COMPATIBLE_API_KEY=key)
    assert "wrong key" in said.out
    for part in ("4711", "sk-te", "efgh"):
        assert part not in said.out


def own_app(desk: Path, url: str, name: str = "compatible:toy-11", more: str = "") -> None:
    write_app(desk, f"cairn.Agent('a', cairn.RemoteModel('{name}', base_url='{url}'{more}))")


@pytest.mark.parametrize("name", ["compatible:toy-11", "openai-chat:toy-11"])
def test_a_mistyped_model_of_an_application_is_looked_for_where_it_would_be_asked(
    cairn: Cairn, desk: Path, server: ChatServer, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """At its own address and with its own key: neither goes anywhere else."""
    monkeypatch.setenv("CAIRN_COMPATIBLE_API_KEY", "of-the-environment")
    gone = Answer("gone", status=404, code="model_not_found")
    with ChatServer(lambda _: gone, models=("toy-1", "tea"), key="mine").running() as other:
        own_app(desk, other.url, name, ", api_key='mine'")
        said = cairn("doctor", "--app", "remote:rt", "--round-trip")
        assert said.code == 1
        assert "did you mean toy-1?" in lines(said, f"model {name}")[-1]
        assert "/v1/models" in other.paths
        other.models = None
        said = cairn("doctor", "--app", "remote:rt", "--round-trip")
        assert f"{other.url} lists no models: look there" in lines(said, f"model {name}")[-1]
    assert server.paths == []


def test_a_refused_key_is_looked_for_where_it_was_given(
    cairn: Cairn, desk: Path, server: ChatServer
) -> None:
    server.answer = lambda _: Answer("no", status=401)
    own_app(desk, server.url, more=", api_key='mine-1234'")
    app = ("--app", "remote:rt", "--round-trip")
    said = cairn("doctor", *app, CAIRN_COMPATIBLE_API_KEY="another-1234")
    told = lines(said, "model compatible:toy-11")[-1]
    assert "the key in api_key= is refused" in told
    assert "give a good one" in told
    assert "CAIRN_COMPATIBLE_API_KEY" not in said.out
    own_app(desk, server.url)
    said = cairn("doctor", *app, CAIRN_COMPATIBLE_API_KEY="another-1234")
    told = lines(said, "model compatible:toy-11")[-1]
    assert "the key in CAIRN_COMPATIBLE_API_KEY is refused" in told


def test_a_page_is_no_reason_to_try_again_later(
    cairn: Cairn, desk: Path, server: ChatServer
) -> None:
    server.answer = lambda _: Answer("<html>sign in</html>", kind="text/html")
    own_app(desk, server.url, "compatible:toy-1")
    said = cairn("doctor", "--app", "remote:rt", "--round-trip")
    told = lines(said, "model compatible:toy-1")[-1]
    assert "answered with text/html" in told
    assert f"what stands at {server.url} is no server of models" in told
    assert "look at base_url=" in told
    assert "try again" not in told


def test_a_round_trip_without_anything_to_ask_is_a_usage_error(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    said = cairn("doctor", "--round-trip")
    assert (said.code, said.out) == (2, "")
    assert "there is no model to ask" in said.err


def test_a_model_of_ones_own_that_breaks_is_a_problem_and_no_traceback(
    cairn: Cairn, desk: Path
) -> None:
    (desk / "own.py").write_text(
        "import cairn\n\n\nclass Own:\n"
        "    name, price, window, max_output = 'own', cairn.Price(), 8000, 100\n\n"
        "    async def request(self, request, on_delta=None):\n"
        "        raise KeyError('oops')\n\n\n"
        "rt = cairn.Runtime('own.db', agents=[cairn.Agent('a', Own())])\n"
    )
    said = cairn("doctor", "--app", "own:rt", "--round-trip")
    assert said.code == 1
    assert "the model's own code failed: KeyError: 'oops'" in said.out


@pytest.mark.parametrize("key", ["", "sk-test"])
def test_a_mistyped_model_is_told_which_one_was_probably_meant(
    cairn: Cairn, server: ChatServer, monkeypatch: pytest.MonkeyPatch, key: str
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", key)
    monkeypatch.setenv("OPENAI_BASE_URL", server.url)
    said = cairn("doctor", "--model", "openai-chat:gpt-5-mni")
    assert said.code == (0 if key else 1), said
    first = line(said, "model openai-chat:gpt-5-mni")
    assert first.startswith("note" if key else "problem")
    assert "Did you mean openai-chat:gpt-5-mini or " in first
    right = cairn("doctor", "--model", "openai-chat:gpt-5-mini")
    assert "Did you mean" not in right.out


def test_a_mistyped_provider_is_told_which_one_was_probably_meant(cairn: Cairn) -> None:
    said = cairn("doctor", "--model", "antropic:claude-haiku-4-5")
    assert said.code == 2
    assert "there is no provider 'antropic'. Did you mean anthropic?" in said.err


@pytest.mark.parametrize("name", ["nobody:m", "toy-1"])
def test_a_named_model_that_no_provider_has_is_a_usage_error(cairn: Cairn, name: str) -> None:
    assert cairn("doctor", "--model", name).code == 2


def test_every_class_of_fault_that_a_provider_can_have_has_advice() -> None:
    assert {row.error_class for row in TABLE} <= ADVICE.keys()
