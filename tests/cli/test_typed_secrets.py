"""No command writes a secret that somebody typed, where an application knows that it is one."""

import inspect
import shutil
import sys
from pathlib import Path

import pytest
import typer
from tests.cli.conftest import APP, Cairn, Said, forget
from typer.testing import CliRunner

from cairn.cli.entry import app

SECRET = "Zq7-live.8fJx2LmPw04t"
HANDLE = "[[secret:vault:"
PLAN = f"[ ] look up {SECRET}"
CALL = f'{{"order": "{SECRET}", "cents": 1}}'

WRITTEN: dict[str, tuple[str, ...]] = {
    "run task": ("run", "quick", SECRET, "--id", "late"),
    "approve message": ("approve", "shop/1", "-m", SECRET),
    "approve arguments": ("approve", "shop/1", "--arguments", CALL),
    "deny message": ("deny", "shop/1", "-m", f"no, {SECRET}"),
    "answer text": ("answer", "asker/1", SECRET),
    "resolve result": ("resolve", "unsure/c1", "--happened", "--result", SECRET),
    "resolve evidence": ("resolve", "unsure/c1", "--happened", "--evidence", SECRET),
    "pause message": ("pause", "shop", "-m", SECRET),
    "cancel message": ("cancel", "shop", "-m", SECRET),
    "edit message": ("edit", "shop", "-m", SECRET),
    "edit plan": ("edit", "shop", "--plan", PLAN),
    "edit arguments": ("edit", "shop", "--call", "c1", "--arguments", CALL),
    "takeover message": ("takeover", "shop", "-m", SECRET),
    "takeover result": ("takeover", "shop", "-m", "x", "--did", "c1", "--result", SECRET),
    "takeover evidence": (
        *("takeover", "shop", "-m", "x", "--did", "c1", "--result", "y"),
        *("--evidence", SECRET),
    ),
    "takeover answer": (
        *("takeover", "shop", "-m", "x", "--did", "c1", "--result", "y"),
        *("--answer", SECRET),
    ),
    "takeover arguments": (
        *("takeover", "shop", "-m", "x", "--did", "c1", "--result", "y"),
        *("--call", "refund", "--arguments", CALL),
    ),
    "fork message": ("fork", "shop", "--at", "1", "--no-drive", "-m", SECRET),
    "fork plan": ("fork", "shop", "--at", "1", "--no-drive", "--plan", PLAN),
    "fork arguments": (
        *("fork", "shop", "--at", "4", "--no-drive"),
        *("--call", "c1", "--arguments", CALL),
    ),
    "grants add message": ("grants", "add", "refund", "--yes", "-m", SECRET),
    "grants add arguments": ("grants", "add", "refund", "--yes", "--arguments", CALL),
    "grants revoke message": ("grants", "revoke", "1", "-m", SECRET),
    "memory add text": ("memory", "add", f"the key is {SECRET}"),
    "memory add tags": ("memory", "add", "a fact", "--tag", SECRET),
    "memory review message": ("memory", "review", "m1", "--accept", "-m", SECRET),
    "memory forget message": ("memory", "forget", "m1", "-m", SECRET),
    "memory erase message": ("memory", "erase", "--principal", "local", "--yes", "-m", SECRET),
    "erase message": ("erase", "--principal", "local", "--force", "--yes", "-m", SECRET),
    "sessions post text": ("sessions", "post", "talk", SECRET),
}
"""What is kept, and may hold a secret: a handle stands where it stood."""
REFUSED: dict[str, tuple[str, ...]] = {
    "approve role": ("approve", "shop/1", "--role", SECRET),
    "deny role": ("deny", "shop/1", "--role", SECRET),
    "grants add role": ("grants", "add", "refund", "--yes", "--role", SECRET),
    "grants add principal": ("grants", "add", "refund", "--yes", "--principal", SECRET),
    "run id": ("run", "quick", "go", "--id", SECRET),
    "run session": ("run", "quick", "go", "--session", SECRET),
    "run principal": ("run", "quick", "go", "--principal", SECRET),
    "run tenant": ("run", "quick", "go", "--tenant", SECRET),
    "run role": ("run", "quick", "go", "--role", SECRET),
    "run project": ("run", "quick", "go", "--project", SECRET),
    "chat session": ("chat", "quick", "--session", SECRET),
    "chat principal": ("chat", "quick", "--principal", SECRET),
    "retry id": ("retry", "broken", "--id", SECRET),
    "fork id": ("fork", "shop", "--at", "1", "--no-drive", "--id", SECRET),
    "memory add principal": ("memory", "add", "x", "--principal", SECRET),
    "memory add tenant": ("memory", "add", "x", "--tenant", SECRET),
    "memory add project": ("memory", "add", "x", "--project", SECRET),
    "memory add agent": ("memory", "add", "x", "--agent", SECRET),
    "sessions post session": ("sessions", "post", SECRET, "hello", "--agent", "quick"),
    "sessions post principal": (
        *("sessions", "post", "new", "hello", "--agent", "quick"),
        *("--principal", SECRET),
    ),
    "sessions post project": (
        *("sessions", "post", "new", "hello", "--agent", "quick"),
        *("--project", SECRET),
    ),
    "sessions fork new": ("sessions", "fork", "talk", SECRET),
    "sessions title text": ("sessions", "title", "talk", SECRET),
    "takeover call": ("takeover", "shop", "-m", "x", "--call", SECRET, "--arguments", "{}"),
}
"""Names, which cannot be replaced."""
HASHED = {"sessions post id": ("sessions", "post", "talk", "hello", "--id", SECRET)}
"""Names of which only a hash is kept."""
AS: dict[str, tuple[str, ...]] = {
    "run": ("quick", "go"),
    "chat": ("quick",),
    "approve": ("shop/1",),
    "deny": ("shop/1",),
    "answer": ("asker/1", "yes"),
    "resolve": ("unsure/c1", "--happened"),
    "pause": ("shop",),
    "resume": ("shop",),
    "cancel": ("shop",),
    "edit": ("shop", "-m", "hurry"),
    "takeover": ("shop", "-m", "let me"),
    "fork": ("shop", "--at", "1", "--no-drive"),
    "erase": ("--principal", "nobody", "--yes"),
    "context undo": ("shop",),
    "grants add": ("refund", "--yes"),
    "grants revoke": ("1",),
    "memory add": ("x",),
    "memory review": ("m1", "--accept"),
    "memory forget": ("m1",),
    "memory erase": ("--principal", "local", "--yes"),
    "sessions fork": ("talk", "other"),
    "sessions rewind": ("talk", "said"),
    "sessions title": ("talk", "A title"),
}
"""Commands that say who acts."""
NOT_WRITTEN = {
    *("requests", "request", "run", "call", "digest", "session", "facts", "numbers", "at", "to"),
    *("did", "agent", "tool", "kind", "trust", "supersedes", "within", "export", "only", "mode"),
    *("store", "app", "by", "plain", "approvals", "attach"),
}
"""What only names something that is there already, in the commands above."""


def commands(group: typer.Typer, *before: str) -> dict[str, inspect.Signature]:
    found = {}
    for each in group.registered_commands:
        assert each.callback is not None
        name = (each.name or each.callback.__name__).replace("_", "-")
        found[" ".join((*before, name))] = inspect.signature(each.callback, eval_str=True)
    for inner in group.registered_groups:
        assert inner.typer_instance is not None
        found |= commands(inner.typer_instance, *before, str(inner.name))
    return found


def test_the_tables_name_every_command_with_an_actor_and_every_word_it_takes() -> None:
    found = commands(app)
    assert {name for name, takes in found.items() if "by" in takes.parameters} == set(AS)
    for name in {*AS, "retry", "sessions post"}:
        for parameter, about in found[name].parameters.items():
            if "str" not in str(about.annotation) or parameter in NOT_WRITTEN:
                continue
            key = f"{name} {parameter}"
            twin = key.replace("chat ", "run ").replace("sessions post ", "run ")
            erased = key.startswith(("erase ", "memory erase "))  # names what goes
            assert {key, twin} & {*WRITTEN, *REFUSED, *HASHED} or erased, key


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with runs of every kind, filled once and copied for each test."""
    folder = tmp_path_factory.mktemp("filled")
    (folder / "desk.py").write_text(APP.read_text(encoding="utf-8"), encoding="utf-8")
    fill = [("run", agent, "go", "--id", agent) for agent in ("shop", "asker", "unsure", "broken")]
    fill += [("approve", "unsure/1"), ("resume", "unsure"), ("grants", "add", "refund", "--yes")]
    fill += [("run", "quick", "go", "--id", "said", "--session", "talk"), ("memory", "add", "sky")]
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setattr(sys, "path", list(sys.path))
        patch.setenv("CAIRN_APP", "desk:rt")
        patch.setenv("CAIRN_STORE", "desk.db")
        for words in fill:
            forget(folder)
            assert CliRunner().invoke(app, list(words)).exit_code in {0, 1, 5}
        CliRunner().invoke(app, ["backup", "whole.db"])
        forget(folder)
    return folder / "whole.db"


@pytest.fixture
def told(desk: Path, filled: Path) -> Path:
    """The application knows a secret, and its store is full."""
    code = APP.read_text(encoding="utf-8")
    known = code.replace("agents=agents)", f"agents=agents, secrets={{'vault': '{SECRET}'}})")
    assert known != code
    (desk / "desk.py").write_text(known, encoding="utf-8")
    shutil.copy(filled, desk / "desk.db")
    return desk


def kept(folder: Path) -> str:
    """All bytes of all database files."""
    files = sorted(file for file in folder.rglob("*.db*") if file.is_file())
    assert files
    return "".join(file.read_bytes().decode("latin-1") for file in files)


def check_kept(said: Said, folder: Path) -> None:
    assert said.code in {0, 5}, said
    found = kept(folder)
    assert SECRET not in found
    assert HANDLE in found, said


def check_refused(said: Said, folder: Path) -> None:
    assert said.code == 2, said
    assert "a secret" in said.err or HANDLE in said.err
    assert SECRET not in kept(folder)


@pytest.mark.parametrize("case", sorted(WRITTEN))
def test_words_are_kept_without_the_secrets_of_a_configured_application(
    cairn: Cairn, told: Path, case: str
) -> None:
    check_kept(cairn(*WRITTEN[case]), told)


@pytest.mark.parametrize("case", sorted(WRITTEN))
def test_words_are_kept_without_the_secrets_of_an_application_of_the_project_on_its_own_store(
    cairn: Cairn, told: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    for name in ("CAIRN_STORE", "CAIRN_APP"):
        monkeypatch.delenv(name)
    (told / "pyproject.toml").write_text('[tool.cairn]\napp = "desk:rt"\n')
    check_kept(cairn(*WRITTEN[case]), told)


@pytest.mark.parametrize("case", ["deny message", "grants revoke message", "pause message"])
def test_words_are_kept_without_the_secrets_of_an_application_that_is_named_with_the_store(
    cairn: Cairn, told: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    words = (*WRITTEN[case], "--app", "desk:rt", "--store", "desk.db")
    check_kept(cairn(*words), told)


@pytest.mark.parametrize("case", ["deny message", "erase message", "memory add text"])
def test_the_environment_names_secrets_beside_those_of_the_application(
    cairn: Cairn, desk: Path, filled: Path, case: str
) -> None:
    shutil.copy(filled, desk / "desk.db")
    check_kept(cairn(*WRITTEN[case], CAIRN_SECRETS="vault", vault=SECRET), desk)


@pytest.mark.parametrize("case", sorted(REFUSED))
def test_names_with_a_secret_in_them_are_refused(cairn: Cairn, told: Path, case: str) -> None:
    check_refused(cairn(*REFUSED[case], input="hello\n"), told)


@pytest.mark.parametrize("case", sorted(HASHED))
def test_an_id_is_kept_as_its_hash(cairn: Cairn, told: Path, case: str) -> None:
    assert cairn(*HASHED[case]).code == 0
    assert SECRET not in kept(told)


@pytest.mark.parametrize("command", sorted(AS))
def test_nobody_acts_under_a_name_with_a_secret_in_it(
    cairn: Cairn, told: Path, command: str
) -> None:
    said = cairn(*command.split(), *AS[command], "--as", SECRET, input="hello\n")
    check_refused(said, told)
    assert "--as: it holds a secret" in said.err


@pytest.mark.parametrize("command", ["approve", "grants revoke", "memory forget"])
def test_without_an_application_nobody_acts_under_a_name_that_looks_like_a_key(
    cairn: Cairn, told: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    key = "ghp_" + "q7Xv2Lm9Rt4Bw8Zk1Ny6Pc3Hd5Jf0Gs7Ta2U"
    said = cairn(*command.split(), *AS[command], "--as", key)
    assert said.code == 2
    assert "--as: it holds a secret" in said.err
    assert key not in kept(told)


BROKEN = "raise RuntimeError('no password')\n"


@pytest.mark.parametrize("case", ["deny message", "pause message", "memory add text"])
def test_words_are_not_written_where_the_application_cannot_say_what_is_secret(
    cairn: Cairn, told: Path, case: str
) -> None:
    (told / "desk.py").write_text(BROKEN)
    said = cairn(*WRITTEN[case], "--store", "desk.db")
    assert said.code == 2
    assert "cannot be loaded" in said.err
    assert "only the application knows which secrets must not be written" in said.err
    assert SECRET not in kept(told)


def test_a_store_alone_takes_words_where_no_application_is_named(
    cairn: Cairn, told: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    (told / "desk.py").unlink()
    words = ("deny", "shop/1", "-m", SECRET, "--store", "desk.db")
    check_kept(cairn(*words, CAIRN_SECRETS="vault", vault=SECRET), told)


@pytest.mark.parametrize(
    "words", [("runs",), ("trace", "shop"), ("inbox",), ("verify",), ("audit",), ("approve", "x/1")]
)
def test_while_the_application_is_broken_a_named_store_can_be_looked_at_and_it_says_so(
    cairn: Cairn, told: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...]
) -> None:
    monkeypatch.delenv("CAIRN_STORE")
    (told / "desk.py").write_text(BROKEN)
    said = cairn(*words)
    assert said.code == 2
    assert "Mend that first. Or name the store: with --store PATH this needs no" in said.err
    if words[0] != "approve":
        assert cairn(*words, "--store", "desk.db").code == 0
