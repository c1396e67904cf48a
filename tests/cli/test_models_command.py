"""`models`: what can be used here, what is missing, and what a model costs; never a key."""

import json
import os
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.chat_server import ChatServer, forget_providers
from tests.cli.conftest import SRC, Cairn

from cairn import ErrorClass, ModelError, RemoteModel
from cairn.cli.round_trip import advice
from cairn.models import PROVIDERS, catalogue
from cairn.models.endpoints import ENDPOINTS

KEY = "sk-test-4711-abcdefgh-ijklmnop"


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_providers(monkeypatch)
    monkeypatch.setattr(catalogue, "PATIENCE_S", 5.0)  # a busy machine answers late


@pytest.fixture
def server() -> Iterator[ChatServer]:
    with ChatServer(models=("qwen3:8b", "toy-1")).running() as running:
        yield running


def rows(cairn: Cairn, *words: str) -> dict[str, dict]:
    return {each["provider"]: each for each in cairn("models", "--json", *words).objects}


# ---------------------------------------------------------------- the list


def test_every_provider_is_usable_or_says_what_to_do(cairn: Cairn) -> None:
    found = rows(cairn)
    assert list(found) == list(PROVIDERS)
    for name, each in found.items():
        assert (each["state"] == "usable") or each["todo"], name
    for name in ("openai", "anthropic", "google", "deepseek"):
        assert found[name]["state"] == "no key"
        assert found[name]["todo"] == [f"export {ENDPOINTS[name].keys[0]}=…"]
    assert found["compatible"]["state"] == "no address"
    assert "CAIRN_COMPATIBLE_BASE_URL" in found["compatible"]["todo"][0]


def test_the_short_list_names_every_provider_and_how_to_see_more(cairn: Cairn) -> None:
    said = cairn("models")
    assert said.code == 0
    words = said.out.replace(",", " ").split()
    assert set(PROVIDERS) <= set(words)
    assert "cairn models --all" in said.out
    assert "any other server: compatible, if CAIRN_COMPATIBLE_BASE_URL says where" in said.out
    whole = cairn("models", "--all").out.splitlines()
    assert [line.split()[0] for line in whole[1:]] == list(PROVIDERS)


def test_a_key_makes_a_provider_usable_and_is_never_shown_not_even_in_part(cairn: Cairn) -> None:
    env = {"OPENAI_API_KEY": KEY, "GOOGLE_API_KEY": KEY, "OLLAMA_API_KEY": KEY}
    pieces = {KEY[at : at + 5] for at in range(len(KEY) - 4)} - {"-test"}
    for words in ([], ["--all"], ["--json"], ["openai"], ["openai:gpt-5"], ["ollama:x", "--json"]):
        said = cairn("models", *words, **env)
        assert not [piece for piece in pieces if piece in said.out + said.err], words
    found = {each["provider"]: each for each in cairn("models", "--json", **env).objects}
    assert found["openai"]["state"] == found["google"]["state"] == "usable"
    assert found["google"]["key_from"] == "GOOGLE_API_KEY"


def test_a_missing_package_is_named_with_the_line_that_installs_it(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    for package in ("pydantic_ai", "xllamacpp"):
        monkeypatch.setitem(sys.modules, package, None)  # as the import system says "not here"
    found = rows(cairn)
    assert {each["state"] for each in found.values()} == {"no package"}
    assert found["openai"]["todo"] == [
        "pip install 'cairn-runtime[providers]'",
        "export OPENAI_API_KEY=…",
    ]
    assert found["local"]["todo"][0] == "pip install 'cairn-runtime[local]'"
    one = cairn("models", "openai:gpt-5")
    assert one.code == 1
    assert "pip install 'cairn-runtime[providers]'" in one.out


def test_an_address_says_who_gave_it_and_hides_name_and_password(cairn: Cairn) -> None:
    said = cairn("models", "openai", OPENAI_BASE_URL="https://me:s3cret@proxy.example/v1?k=s3cret")
    assert "https://proxy.example/v1 (OPENAI_BASE_URL)" in said.out
    assert "s3cret" not in said.out
    assert "https://api.anthropic.com (default)" in cairn("models").out


def test_a_value_that_is_no_address_is_not_repeated(cairn: Cairn) -> None:
    for words in (["openai"], ["openai:gpt-5"]):
        said = cairn("models", *words, OPENAI_BASE_URL=KEY)
        assert KEY not in said.out
        assert "set OPENAI_BASE_URL to an address" in said.out


def test_the_list_loads_no_library_of_a_vendor() -> None:
    code = (
        "import sys; from cairn.cli.entry import app\n"
        "app(['models', '--all'], standalone_mode=False)\n"
        "vendors = 'pydantic_ai', 'genai_prices', 'openai', 'anthropic', 'httpx2', 'xllamacpp'\n"
        "sys.exit(', '.join(v for v in vendors if v in sys.modules) or 0)"
    )
    argv = [sys.executable, "-c", code]
    env = {**os.environ, "PYTHONPATH": str(SRC)}
    done = subprocess.run(argv, capture_output=True, text=True, env=env, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "openai" in done.stdout


# ---------------------------------------------------------------- servers of one's own


def test_a_server_of_ones_own_is_asked_for_what_it_has(cairn: Cairn, server: ChatServer) -> None:
    found = rows(cairn, "ollama") | rows(cairn, "vllm")
    assert {each["state"] for each in found.values()} == {"no answer"}
    said = cairn("models", OLLAMA_BASE_URL=server.url)
    line = next(line for line in said.out.splitlines() if line.startswith("ollama"))
    assert "usable" in line
    assert "qwen3:8b, toy-1" in line
    assert "(OLLAMA_BASE_URL)" in line
    assert server.paths == ["/v1/models"]
    assert server.asked == []


def test_a_server_that_refuses_the_key_is_not_usable(cairn: Cairn, server: ChatServer) -> None:
    server.key = KEY
    env = {"VLLM_BASE_URL": server.url}
    (each,) = cairn("models", "vllm", "--json", **env).objects
    assert each["state"] == "key refused"
    assert each["todo"] == ["export VLLM_API_KEY=…"]
    (each,) = cairn("models", "vllm", "--json", **env, VLLM_API_KEY=KEY).objects
    assert (each["state"], each["models"]) == ("usable", ["qwen3:8b", "toy-1"])


def test_a_server_without_a_list_is_usable_where_it_was_named(
    cairn: Cairn, server: ChatServer
) -> None:
    server.models = None
    (each,) = cairn("models", "compatible", "--json", CAIRN_COMPATIBLE_BASE_URL=server.url).objects
    assert each["state"] == "usable"
    known = cairn("models", "compatible:anything", CAIRN_COMPATIBLE_BASE_URL=server.url)
    assert known.code == 0


def test_a_server_that_takes_connections_and_says_nothing_has_no_answer(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(catalogue, "PATIENCE_S", 0.05)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}/v1"
        (each,) = cairn("models", "ollama", "--json", OLLAMA_BASE_URL=url).objects
    assert each["state"] == "no answer"


def test_a_key_does_not_follow_a_redirect(cairn: Cairn, server: ChatServer) -> None:
    away = f"HTTP/1.1 302 Found\r\nLocation: {server.url}/models\r\nContent-Length: 0\r\n\r\n"
    with socket.create_server(("127.0.0.1", 0)) as door:

        def send_away() -> None:
            client, _ = door.accept()
            with client:
                client.recv(65_536)
                client.sendall(away.encode())

        thread = threading.Thread(target=send_away)
        thread.start()
        url = f"http://127.0.0.1:{door.getsockname()[1]}/v1"
        said = cairn("models", "ollama", OLLAMA_BASE_URL=url, OLLAMA_API_KEY=KEY)
        thread.join()
    assert said.code == 0
    assert server.paths == []


def test_names_of_models_command_no_terminal(cairn: Cairn, server: ChatServer) -> None:
    server.models = ("\x1b[31mred\n[bold]loud",)
    said = cairn("models", "ollama", OLLAMA_BASE_URL=server.url)
    assert "\x1b" not in said.out
    assert "[bold]loud" in said.out


@pytest.mark.parametrize("data", ["[1, 2]", '{"data": 7}', "null", "<html>", '{"models": null}'])
def test_a_list_in_an_unknown_form_is_no_list(data: str) -> None:
    from cairn.models.catalogue import asked

    head = f"HTTP/1.1 200 OK\r\nContent-Length: {len(data)}\r\n\r\n{data}"
    with socket.create_server(("127.0.0.1", 0)) as door:

        def answer() -> None:
            client, _ = door.accept()
            with client:
                client.recv(65_536)
                client.sendall(head.encode())

        thread = threading.Thread(target=answer)
        thread.start()
        url = f"http://127.0.0.1:{door.getsockname()[1]}/v1"
        listed = asked(ENDPOINTS["ollama"], url, "k", 5.0)
        thread.join()
    assert listed.models == ()


# ---------------------------------------------------------------- one model


def test_servers_of_ones_own_are_never_listed_among_those_that_need_a_key(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pydantic_ai", None)  # as in a plain install
    _, _, said = " ".join(cairn("models").out.split()).partition("with a key also:")
    keyed, *own = re.split("servers of your own, if they run:|any other server:", said)
    assert "deepseek" in keyed
    assert "compatible" in own[-1]
    assert "compatible" not in keyed


@pytest.mark.parametrize("env", [{}, {"OPENAI_API_KEY": KEY}])
def test_a_misspelt_model_is_guessed_from_the_price_data_without_a_key(
    cairn: Cairn, env: dict[str, str]
) -> None:
    said = " ".join(cairn("models", "openai:gpt5-mini", **env).out.split())
    assert "Did you mean openai:gpt-5-mini" in said
    assert "Did you mean" not in cairn("models", "openai:gpt-5-mini", **env).out


def test_a_model_that_a_provider_does_not_know_is_guessed_without_asking_it() -> None:
    fault = ModelError(ErrorClass.MODEL_NOT_FOUND, "no such model")
    said = advice(fault, RemoteModel("openai:gpt5-mini"))
    assert said.startswith("Did you mean openai:gpt-5-mini")


def test_a_key_that_can_be_none_is_no_key_and_says_which_variable_to_set_anew(
    cairn: Cairn,
) -> None:
    (each,) = cairn("models", "openai", "--json", OPENAI_API_KEY="sk-a b").objects
    assert (each["state"], each["todo"]) == (
        "no key",
        ["set OPENAI_API_KEY anew: what it holds can be no key"],
    )
    (each,) = cairn("models", "openai", "--json", OPENAI_API_KEY="  ").objects
    assert (each["todo"], each.get("key_from", "")) == (["export OPENAI_API_KEY=…"], "")


def test_a_model_says_its_price_with_tiers_and_where_that_is_from(cairn: Cairn) -> None:
    said = cairn("models", "google:gemini-2.5-pro", GEMINI_API_KEY=KEY)
    assert said.code == 0, said
    assert "input $1.25" in said.out
    assert "output $10, per million tokens" in said.out
    assert "in requests with over 200,000 tokens of input" in said.out
    assert "from genai-prices" in said.out
    assert "cairn doctor --model google:gemini-2.5-pro" in said.out


def test_a_model_that_cannot_be_asked_says_what_to_do_and_exits_with_1(cairn: Cairn) -> None:
    said = cairn("models", "openai:gpt-5")
    assert said.code == 1
    assert "OPENAI_API_KEY is not set" in said.out


def test_an_unknown_price_says_why_and_at_what_it_is_counted(cairn: Cairn) -> None:
    said = cairn("models", "openai:nobody-knows-it", OPENAI_API_KEY=KEY)
    assert "unknown: genai-prices" in said.out
    assert "knows no model 'nobody-knows-it' of openai" in said.out
    assert "(worst-case), unless RemoteModel(…, price=…)" in said.out
    (known,) = cairn("models", "openai:nobody-knows-it", "--json", OPENAI_API_KEY=KEY).objects
    assert "price" not in known or known["price"] is None
    assert known["counted_at"]["version"] == "worst-case"
    assert known["window_known"] is False


def test_a_server_of_ones_own_is_free_and_says_if_it_lacks_the_model(
    cairn: Cairn, server: ChatServer
) -> None:
    env = {"OLLAMA_BASE_URL": server.url}
    there = cairn("models", "ollama:toy-1", **env)
    assert there.code == 0, there
    assert "free" in there.out
    close = cairn("models", "ollama:qwen3:8c", **env)
    assert close.code == 1
    assert "Did you mean qwen3:8b?" in close.out
    far = cairn("models", "ollama:zzz", **env)
    assert "It has qwen3:8b, toy-1" in far.out
    gone = cairn("models", "ollama:toy-1")
    assert gone.code == 1
    assert "nobody answers at" in gone.out


@pytest.mark.slow  # needs llama.cpp, which only the slow tests have
def test_a_model_file_says_its_window_and_a_missing_one_what_to_give(
    cairn: Cairn, desk: Path
) -> None:
    (desk / "empty.gguf").write_bytes(b"GGUF" + bytes(20))
    said = cairn("models", "local:empty.gguf")
    assert said.code == 0, said
    assert "one JSON action" in said.out
    assert cairn("models", "local:nothing.gguf").code == 2


@pytest.mark.parametrize("name", ["nobody:m", "openai:", "opnai", ":x"])
def test_a_name_of_no_provider_is_a_usage_error(cairn: Cairn, name: str) -> None:
    said = cairn("models", name)
    assert said.code == 2
    assert "provider" in said.err


@pytest.mark.parametrize(("name", "meant"), [("opnai", "openai"), ("gemini", "google")])
def test_a_misspelt_provider_alone_is_guessed(cairn: Cairn, name: str, meant: str) -> None:
    assert f"names no provider. Did you mean {meant}?" in cairn("models", name).err


def test_one_model_as_json_holds_every_fact(cairn: Cairn) -> None:
    said = cairn("models", "openai:gpt-4o", "--json", OPENAI_API_KEY=KEY)
    known = json.loads(said.out)
    assert known["usable"] is True
    assert known["price"]["input"] == 2_500_000
    assert known["window"] == 128_000
