"""Finding application and store: what is named wins, what is broken says what to mend."""

from pathlib import Path

import pytest
from tests.cli.conftest import Cairn

from cairn.errors import ConfigError
from cairn.settings import Settings, find_settings

FAULTS = {
    "syntax": ("def broken(:\n", "'syntax' cannot be loaded: syntax.py line 1: SyntaxError"),
    "raises": (
        "import cairn\n\nraise RuntimeError('no password')\n",
        "'raises' cannot be loaded: raises.py line 3: RuntimeError: no password. Mend that first",
    ),
    "imports": (
        "import not_there_at_all\n",
        "imports.py line 1: ModuleNotFoundError: No module named 'not_there_at_all'",
    ),
    "leaves": ("import sys\nsys.exit(3)\n", "Put what runs things under: if __name__ =="),
    "number": ("rt = 7\n", "'number:rt' is no Runtime but a value of type int"),
    "nothing": (
        "import cairn\nmine = cairn.Runtime(':memory:')\n",
        "module 'nothing' has no 'rt'. The runtimes in it are: mine",
    ),
    "factory": ("def rt():\n    return 1 / 0\n", "factory.py line 2: ZeroDivisionError"),
    "async_made": (
        "import cairn\n\nasync def rt():\n    return cairn.Runtime(':memory:')\n",
        "'async_made:rt' is asynchronous. Give a Runtime or a plain function that returns one",
    ),
    "mute": (
        "class Mute(Exception):\n    def __str__(self):\n        raise SystemExit(3)\nraise Mute\n",
        "'mute' cannot be loaded: mute.py line 4: Mute. Mend that first",
    ),
    "wrong": (
        "import cairn\nrt = cairn.Agent('no name!', cairn.Scripted(['x']))\n",
        "wrong.py line 2: Agent.name: 'no name!' is no name",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_broken_application_says_in_one_line_what_failed_and_where(
    cairn: Cairn, desk: Path, name: str
) -> None:
    source, expected = FAULTS[name]
    (desk / f"{name}.py").write_text(source)
    said = cairn("run", "quick", "go", "--app", f"{name}:rt")
    assert said.code == 2
    assert said.err.startswith("cairn: --app: ")
    assert expected in said.err
    assert len(said.err.splitlines()) == 1


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("not_here:rt", "there is no module 'not_here' here"),
        ("desk", "does not say what to take. Write it as module:name"),
        (":rt", "Write it as module:name"),
        ("desk:", "Write it as module:name"),
    ],
)
def test_an_application_that_is_not_there_says_how_to_name_one(
    cairn: Cairn, name: str, expected: str
) -> None:
    said = cairn("run", "quick", "go", "--app", name)
    assert said.code == 2
    assert expected in said.err


def test_a_command_that_needs_an_application_says_how_to_name_it(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_APP")
    for words in (("run", "quick", "go"), ("chat", "quick"), ("work",)):
        said = cairn(*words)
        assert said.code == 2
        assert "Pass --app module:name, set CAIRN_APP, or write [tool.cairn] app" in said.err


def test_a_function_may_make_the_runtime(cairn: Cairn, desk: Path) -> None:
    (desk / "made.py").write_text(
        "import desk\n\nclass App:\n    def make():\n        return desk.rt\n"
    )
    assert cairn("run", "quick", "go", "--app", "made:App.make").code == 0


def test_the_applications_store_is_used_unless_another_is_named(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CAIRN_STORE")
    cairn("run", "quick", "go", "--id", "a")
    assert cairn("trace", "a", "--store", "desk.db").code == 0
    assert cairn("trace", "a").code == 0, "what runs it and what looks at it find one store"
    monkeypatch.setenv("CAIRN_STORE", "elsewhere.db")
    cairn("run", "quick", "go", "--id", "c")
    assert cairn("trace", "c").code == 0, "also where the surroundings name another"
    assert cairn("trace", "c", "--store", "elsewhere.db").code == 0
    assert cairn("trace", "c", "--store", "desk.db").code == 2
    assert cairn("trace", "a").code == 2
    assert cairn("trace", "a", "--app", "desk:rt").code == 0, "a named application brings its own"
    cairn("run", "quick", "go", "--id", "b", "--store", "third.db")
    assert cairn("trace", "b", "--store", "third.db").code == 0
    assert cairn("trace", "b", "--store", "desk.db").code == 2


def test_the_project_file_names_store_and_application_from_any_folder_below(
    cairn: Cairn, desk: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (desk / "pyproject.toml").write_text('[tool.cairn]\nstore = "desk.db"\napp = "desk:rt"\n')
    monkeypatch.delenv("CAIRN_APP")
    monkeypatch.delenv("CAIRN_STORE")
    below = desk / "deep" / "down"
    below.mkdir(parents=True)
    cairn("run", "quick", "go", "--id", "a")
    monkeypatch.chdir(below)
    assert cairn("trace", "a").code == 0
    assert "[tool.cairn] in pyproject.toml" in cairn("doctor").out


def test_an_application_that_cannot_be_loaded_is_said_so_and_a_named_store_needs_none(
    cairn: Cairn, monkeypatch: pytest.MonkeyPatch
) -> None:
    cairn("run", "quick", "go", "--id", "a")
    monkeypatch.setenv("CAIRN_APP", "nowhere:rt")
    monkeypatch.delenv("CAIRN_STORE")
    said = cairn("runs")
    assert said.code == 2
    assert "CAIRN_APP: there is no module 'nowhere'" in said.err
    assert cairn("trace", "a", "--store", "desk.db").code == 0
    assert cairn("trace", "a", CAIRN_STORE="desk.db").code == 0


# ---------------------------------------------------------------- settings


def test_settings_take_the_environment_over_the_project_file(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text('[tool.cairn]\nstore = "a.db"\napp = "m:x"\n')
    found = find_settings(tmp_path, {"CAIRN_STORE": "b.db"})
    assert (found.store, found.store_from) == ("b.db", "CAIRN_STORE")
    assert (found.app, found.app_from) == ("m:x", "[tool.cairn] in pyproject.toml")
    found = find_settings(tmp_path, {"CAIRN_APP": "n:y"})
    assert (found.store, found.app) == (str(tmp_path / "a.db"), "n:y")


def test_without_any_word_the_store_is_cairn_db_here(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text("[tool.other]\nx = 1\n")
    assert find_settings(tmp_path, {}) == Settings()
    assert not Settings().store_is_named


@pytest.mark.parametrize("store", [":memory:", "sqlite:/srv/x.db"])
def test_an_address_in_the_project_file_is_no_path(tmp_path: Path, store: str) -> None:
    (tmp_path / "pyproject.toml").write_text(f'[tool.cairn]\nstore = "{store}"\n')
    assert find_settings(tmp_path, {}).store == store


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("not toml at all", "it cannot be read"),
        ("[tool.cairn]\nstore = 7\n", "tool.cairn.store: in .* it is no text. Write store = "),
        ("[tool.cairn]\napp = ['a:b']\n", "tool.cairn.app: in .* it is no text"),
        ("[tool]\ncairn = 'x.db'\n", "tool.cairn: in .* it is no table"),
        (
            "[tool.cairn]\nstoer = 'x.db'\n",
            "tool.cairn.stoer: .*toml has a key that is not known. Did you mean store\\? The keys",
        ),
        ("[tool.cairn]\ncolour = 'red'\n", "is not known. The keys are app and store"),
        ("[tool.cairn.limits]\nsteps = 5\n", "tool.cairn.limits: .* The keys are app and store"),
    ],
)
def test_a_project_file_that_cannot_be_used_says_so(
    tmp_path: Path, text: str, expected: str
) -> None:
    (tmp_path / "pyproject.toml").write_text(text)
    with pytest.raises(ConfigError, match=expected):
        find_settings(tmp_path, {})


def test_a_misspelt_key_of_the_project_file_is_usage_and_not_ignored(
    cairn: Cairn, desk: Path
) -> None:
    (desk / "pyproject.toml").write_text('[tool.cairn]\nstoer = "x.db"\n')
    said = cairn("runs")
    assert said.code == 2
    assert said.err.startswith("cairn: tool.cairn.stoer: ")
    assert len(said.err.splitlines()) == 1


def test_other_tables_of_the_project_file_are_no_business_of_ours(tmp_path: Path) -> None:
    for text in ("tool = 3\n", "[tool.cairns]\nx = 1\n", "cairn = 1\n"):
        (tmp_path / "pyproject.toml").write_text(text)
        assert find_settings(tmp_path, {}) == Settings()
