"""The matrix of hostile calls: nothing outside, refusals by name, and nothing honest refused."""

import asyncio
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.governance import matrix
from tests.governance.cases import INSIDE, VARIABLE, Case, Place

KINDS = ("paths", "shell", "walls", "web", "schema")


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> matrix.Report:
    return asyncio.run(matrix.play(tmp_path_factory.mktemp("matrix")))


@pytest.mark.timeout(120)  # fifty of the calls start a sandbox
def test_no_hostile_call_has_an_effect_outside_and_each_refusal_names_its_rule(
    report: matrix.Report,
) -> None:
    assert report.findings == []
    total = report.total
    assert total.tried == total.refused + total.held >= 550
    assert total.refused >= 550
    assert total.outside == 0


@pytest.mark.timeout(120)
def test_what_only_looks_hostile_passes(report: matrix.Report) -> None:
    assert report.findings == []
    assert report.total.passed == report.total.wanted >= 120


@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_hostile_call_has_look_alikes_that_pass(
    report: matrix.Report, kind: str
) -> None:
    row = report.rows[kind]
    assert row.tried >= (10 if kind == "walls" else 120)
    assert row.passed >= (2 if kind == "walls" else 30)
    assert set(report.rows) == set(KINDS)


@pytest.mark.timeout(120)
def test_the_table_shows_the_figures_and_everything_that_is_wrong(report: matrix.Report) -> None:
    last = report.table().splitlines()[-1].split()
    assert last[:5] == ["total", str(report.total.tried), str(report.total.refused), "10", "0"]
    wrong = matrix.Report(rows=report.rows, findings=["a canary is gone"])
    assert wrong.table().splitlines()[-1] == "WRONG: a canary is gone"


# ---------------------------------------------------------------- would it be noticed


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    there = Place(tmp_path)
    yield there
    there.close()


def touch(place: Place) -> None:
    (place.outside / "made").touch()


def overwrite(place: Place) -> None:
    (place.outside / "linked.txt").write_text("plane\n")


def remove(place: Place) -> None:
    (place.outside / "deep").rmdir()


def put_beside(place: Place) -> None:
    (place.root / "beside").touch()


def change_mode(place: Place) -> None:
    (place.outside / "secret.txt").chmod(0o777)


def connect(place: Place) -> None:
    met = place.inner.met
    with socket.create_connection((INSIDE, place.port)) as line:
        line.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
        line.recv(1)
    assert place.inner.met == met + 1


def set_variable(place: Place) -> None:
    os.environ[VARIABLE] = "changed"


@pytest.mark.parametrize(
    "happens",
    [touch, overwrite, remove, put_beside, change_mode, connect, set_variable],
    ids=lambda each: each.__name__,
)
def test_an_effect_outside_would_be_noticed(place: Place, happens: Callable[[Place], None]) -> None:
    before = place.outside_now()
    assert place.outside_now() == before
    happens(place)
    assert place.outside_now() != before


def test_a_call_that_gets_through_or_a_refusal_without_its_rule_is_a_finding(
    tmp_path: Path,
) -> None:
    async def main() -> matrix.Report:
        made = matrix.Matrix(tmp_path)
        try:
            write = '{"path": "a", "content": "x"}'
            hostile = [
                Case("paths", "files", "write_file", write, "workspace.absolute"),
                Case("paths", "files", "read_file", '{"path": "/a"}', "workspace.parent"),
                Case("paths", "files", "read_file", '{"path": "/a"}', "workspace.absolute"),
            ]
            report = matrix.Report()
            await made._hostile(report, "files", hostile)
            await made._benign(report, "files", [hostile[1]])
            return report
        finally:
            await made.close()

    report = asyncio.run(main())
    (row,) = report.rows.values()
    assert (row.tried, row.refused, row.outside) == (3, 1, 1)
    assert (row.passed, row.wanted) == (0, 1)
    said = "\n".join(report.findings)
    assert "'workspace.absolute' is not named: 'a: wrote 1 byte" in said
    assert "'workspace.parent' is not named" in said
    assert "files: workspace changed" in said
    assert "was refused" in said


def test_a_reply_that_holds_a_call_without_a_name_runs_nothing(tmp_path: Path) -> None:
    async def main() -> list[str]:
        made = matrix.Matrix(tmp_path)
        try:
            wipe = Case("schema", "warden", "wipe", "{}")
            nameless = Case("schema", "warden", "", "{}")
            assert await made._ask("warden", [wipe, nameless, wipe]) == [None, None, None]
            return list(made.done)
        finally:
            await made.close()

    assert asyncio.run(main()) == []


def test_the_exit_code_is_one_when_a_promise_is_broken(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def played(root: Path) -> matrix.Report:
        return matrix.Report(rows={"paths": matrix.Row(tried=1)}, findings=findings)

    monkeypatch.setattr(matrix, "play", played)
    findings: list[str] = []
    assert matrix.main() == 0
    findings.append("something")
    assert matrix.main() == 1
    assert "WRONG: something" in capsys.readouterr().out
