"""A key that the provider repeats is nowhere afterwards: in no file, no log and no output."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.chat_server import ChatServer, forget_providers
from tests.cli.chat_server import Said as Answer
from tests.cli.conftest import Cairn

KEY = "Zq7-canary.8fJx2LmPw04tVb"
PIECES = ("Zq7", "canary", "8fJ", "2LmP", "4tVb")
WORDS = f"Incorrect API key provided: {KEY} ({KEY[:12]}***{KEY[-4:]}), see /v1?key={KEY}"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ChatServer]:
    forget_providers(monkeypatch)
    refusal = Answer(WORDS, status=401, headers={"x-request-id": f"req-{KEY}"})
    with ChatServer(lambda _: refusal).running() as running:
        yield running


@pytest.mark.parametrize(
    ("provider", "given"),
    [("compatible", True), ("openai", True), ("openai-chat", False)],
    ids=["compatible api_key=", "openai api_key=", "openai environment"],
)
def test_a_repeated_key_is_nowhere_afterwards(
    cairn: Cairn,
    desk: Path,
    server: ChatServer,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    provider: str,
    given: bool,
) -> None:
    caplog.set_level(logging.INFO)
    caplog.set_level(logging.DEBUG, "cairn")
    variable = "CAIRN_COMPATIBLE_API_KEY" if provider == "compatible" else "OPENAI_API_KEY"
    if not given:
        monkeypatch.setenv(variable, KEY)
    option = "api_key=pathlib.Path('key.txt').read_text(), " if given else ""
    (desk / "key.txt").write_text(KEY)
    (desk / "remote.py").write_text(
        "import pathlib\nimport cairn\n"
        f"model = cairn.RemoteModel('{provider}:toy-1', {option}base_url='{server.url}')\n"
        "rt = cairn.Runtime('remote.db', agents=[cairn.Agent('a', model)])\n"
    )
    app = ("--app", "remote:rt")
    told = [cairn("run", "a", "hi", "--id", "r", *app)]
    told += [cairn(name, "r", "--store", "remote.db") for name in ("trace", "export", "verify")]
    told.append(cairn("trace", "r", "--json", "--store", "remote.db"))
    told.append(cairn("doctor", "--round-trip", *app))
    assert server.asked, "it was asked"
    assert "Incorrect API key provided" in told[1].out
    files = [each for each in desk.rglob("*") if each.is_file() and each.name != "key.txt"]
    assert any(each.name == "remote.db" for each in files)
    for piece in PIECES:
        assert piece not in caplog.text
        for said in told:
            assert piece not in said.out + said.err
        for file in files:
            assert piece.encode() not in file.read_bytes(), file
