"""Where secrets come from, and that the registry itself gives none away."""

import copy
import json
import logging
import os
import pickle
from pathlib import Path

import pytest

from cairn.core.messages import Principal
from cairn.core.rules import Problem
from cairn.core.secrets import HANDLE
from cairn.errors import ConfigError
from cairn.governance.secrets import Secrets, of_environment

VALUE = "tR7q9Zx9vK2m"
OTHER = "Wn4LmP8sYc1e"
ANN, BOB = Principal(id="ann"), Principal(id="bob", roles=("clerk",))
ANY = (("", "stripe"),)


def test_a_registry_shows_names_and_never_values() -> None:
    secrets = Secrets({"stripe": VALUE})
    seal = secrets.of(ANN)
    for shown in (repr(secrets), repr(seal), str(secrets), repr(secrets._finder)):
        assert VALUE not in shown
    assert "stripe" in repr(secrets)
    for written in (secrets, seal):
        with pytest.raises(TypeError):
            pickle.dumps(written)
    with pytest.raises(TypeError):
        copy.deepcopy(secrets)


@pytest.mark.parametrize("value", ["", "12345", "  abc   ", 7, None, b"abcdefgh", ()])
def test_a_value_that_cannot_be_a_secret_is_refused_and_not_quoted(value: object) -> None:
    with pytest.raises(ConfigError) as raised:
        Secrets({"stripe": value})  # type: ignore[dict-item]  # the point of the test
    assert "12345" not in str(raised.value)
    assert "stripe" in str(raised.value)


@pytest.mark.parametrize("name", ["", "a b", "1st", "x" * 65, "a]]"])
def test_a_name_that_would_break_a_handle_is_refused(name: str) -> None:
    with pytest.raises(ConfigError):
        Secrets({name: VALUE})


def test_secrets_come_from_the_environment_under_their_names_or_others() -> None:
    environ = {"STRIPE_KEY": VALUE, "DB": OTHER}
    secrets = Secrets.from_env("STRIPE_KEY", db="DB", environ=environ)
    assert secrets.names == ("STRIPE_KEY", "db")
    with pytest.raises(ConfigError, match="GONE is not set"):
        Secrets.from_env("GONE", environ=environ)


def test_commands_find_the_names_of_secrets_in_one_variable() -> None:
    secrets = of_environment({"CAIRN_SECRETS": "A, B", "A": VALUE, "B": OTHER})
    assert secrets.names == ("A", "B")
    assert of_environment({}).names == ()


@pytest.mark.parametrize(
    "text", [json.dumps({"stripe": VALUE}), f"# mine\nexport stripe='{VALUE}'\n"]
)
def test_secrets_come_from_a_file_that_only_its_owner_can_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "secrets"
    path.write_text(text)
    path.chmod(0o600)
    assert Secrets.from_file(path).of().value_of("stripe") == VALUE
    path.chmod(0o640)
    with pytest.raises(ConfigError, match="mode 0640"):
        Secrets.from_file(path)


def test_a_file_that_is_none_is_refused_without_a_word_of_it(tmp_path: Path) -> None:
    path = tmp_path / "secrets"
    path.write_text(f"{{{VALUE}")
    path.chmod(0o600)
    link = tmp_path / "link"
    link.symlink_to(path)
    os.mkfifo(tmp_path / "pipe", 0o600)
    for wrong in (path, link, tmp_path / "gone", tmp_path):
        with pytest.raises(ConfigError) as raised:
            Secrets.from_file(wrong)
        assert VALUE not in str(raised.value)


def test_only_runs_of_a_principal_can_use_what_belongs_to_it() -> None:
    own = {"ann": {"stripe": VALUE}, "bob": {"stripe": OTHER}}
    secrets = Secrets(lambda principal: own[principal.id])
    anns, bobs = secrets.of(ANN), secrets.of(BOB)
    handle = anns.text(VALUE)
    restored = anns.restored(json.dumps({"key": handle}), ANY)
    assert json.loads(restored) == {"key": VALUE}  # type: ignore[arg-type]  # it is no problem
    assert VALUE not in bobs.text(VALUE)
    assert not HANDLE.search(bobs.text(handle))
    assert bobs.text(bobs.text(VALUE)) == bobs.text(VALUE) == bobs.text(handle)
    theirs = bobs.restored(json.dumps({"key": handle}), ANY)
    assert isinstance(theirs, str)
    assert VALUE not in theirs
    assert OTHER not in theirs


def test_what_others_own_is_taken_out_of_everybodys_runs() -> None:
    secrets = Secrets(lambda principal: {"mine": VALUE} if principal.id == "ann" else {})
    secrets.of(ANN)
    assert VALUE not in secrets.of(BOB).text(f"a {VALUE}")


def test_a_value_that_two_own_is_named_by_who_runs() -> None:
    own = {"ann": {"a": VALUE}, "bob": {"b": VALUE}}
    secrets = Secrets(lambda principal: own[principal.id])
    secrets.of(ANN)
    assert secrets.of(BOB).text(VALUE).startswith("[[secret:b:")


def test_a_function_that_fails_says_nothing_of_what_it_knew() -> None:
    def broken(_: Principal) -> dict[str, str]:
        raise RuntimeError(f"could not decrypt {VALUE}")

    with pytest.raises(ConfigError) as raised:
        Secrets(broken).of(ANN)
    assert VALUE not in str(raised.value)
    assert raised.value.__cause__ is None


def test_a_rotated_value_is_used_at_once_and_the_old_one_is_still_found() -> None:
    secrets = Secrets({"stripe": VALUE})
    seal = secrets.of()
    old = seal.text(VALUE)
    secrets.rotate("stripe", OTHER)
    assert VALUE not in seal.text(VALUE)
    assert OTHER not in seal.text(OTHER)
    fresh = secrets.of()
    assert fresh.value_of("stripe") == seal.value_of("stripe") == OTHER
    assert HANDLE.search(seal.text(OTHER))
    assert json.loads(str(fresh.restored(json.dumps({"key": old}), ANY))) == {"key": OTHER}


def test_after_a_restart_old_values_are_given_behind_the_new_one() -> None:
    old = Secrets({"stripe": VALUE}).of().text(VALUE)
    again = Secrets({"stripe": (OTHER, VALUE)}).of()
    assert again.text(old) == old
    assert json.loads(str(again.restored(json.dumps({"key": old}), ANY))) == {"key": OTHER}


def test_a_handle_is_put_back_only_where_it_is_declared_to_stand() -> None:
    seal = Secrets({"stripe": VALUE}).of()
    handle = seal.text(VALUE)
    asked = json.dumps({"key": f"Bearer {handle}", "memo": [handle]})
    restored = seal.restored(asked, (("key", "stripe"),))
    assert json.loads(str(restored)) == {"key": f"Bearer {VALUE}", "memo": [handle]}


def test_a_process_that_does_not_know_the_secret_says_so() -> None:
    handle = Secrets({"stripe": VALUE}).of().text(VALUE)
    problem = Secrets().of().restored(json.dumps({"key": handle}), ANY)
    assert isinstance(problem, Problem)
    assert "not registered" in problem.message


def test_a_value_that_is_no_text_can_be_a_secret_all_the_same() -> None:
    value = "odd \ud800 value"
    assert VALUE not in Secrets({"a": value, "b": VALUE}).of().text(f"{VALUE} and {value}")


def test_two_registries_can_be_put_together() -> None:
    both = Secrets({"a": VALUE}) | Secrets({"b": OTHER}) | Secrets(lambda p: {p.id: "Zq8Rt5Yu2Io9"})
    assert both.of(ANN).value_of("ann") == "Zq8Rt5Yu2Io9"
    assert both.names == ("a", "b")


def test_log_records_hold_no_secret_in_text_arguments_or_traceback(
    caplog: pytest.LogCaptureFixture,
) -> None:
    secrets = Secrets({"stripe": VALUE})
    secrets.guard_logs()
    log = logging.getLogger("cairn")
    try:
        raise ValueError(f"bad {VALUE}")
    except ValueError:
        log.exception("failed for %s", VALUE)
    log.warning("plain %d", 7)
    log.warning("odd %d", VALUE)
    assert VALUE not in caplog.text
    assert "[[secret:stripe:" in caplog.text
    assert "ValueError" in caplog.text
    assert "plain 7" in caplog.text
    assert all(VALUE not in repr(record.__dict__) for record in caplog.records)


def test_errors_and_those_behind_them_are_scrubbed() -> None:
    secrets = Secrets({"stripe": VALUE})
    behind = KeyError(VALUE)
    with pytest.raises(ConfigError) as raised, secrets.scrubbed():
        raise ConfigError("x", f"{VALUE} is wrong", f"not {VALUE}") from behind
    error = raised.value
    assert VALUE not in f"{error} {error.args} {error.__dict__} {error.__cause__!r}"
