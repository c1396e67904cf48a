"""Whoever has a name anew has nothing of what the one before left in the workspace of that name."""

import asyncio
import json
import os
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from cairn import Agent, Policy, Principal, Runtime, Scripted, call
from cairn.core.messages import Message
from cairn.toolkit import FILE_TOOLS
from cairn.workspace import NoWorkspace, PathRefused, Workspace, WorkspaceFailed, Workspaces
from cairn.workspace.belonging import Owner, owner_of, set_aside

ANN = Owner(mark="ann", begun=0)
BOB = Owner(mark="bob", begun=0)
ALL = 2**62
ALLOW = Policy(effects={"write": "allow"})
WAYS = [("run", {"id": "order-7"}), ("session", {"session": "support"})]


def words(messages: tuple[Message, ...], role: str) -> str:
    parts = [p for m in messages if m.role == role for p in m.parts]
    return " ".join(str(getattr(p, "content", getattr(p, "result", ""))) for p in parts)


def model(request):
    asked = [m for m in request.messages if m.role == "user"][-1:]
    if request.turn == 0 and words(asked, "user") == "write":
        return call("write_file", path="diary.txt", content="a secret", overwrite=True)
    if request.turn == 0:
        return call("read_file", path="diary.txt")
    return words(request.messages[-1:], "tool")


def runtime(folder: Path, per: str = "run") -> Runtime:
    desk = Agent("desk", Scripted(model), tools=[*FILE_TOOLS])
    path, work = folder / "cairn.db", folder / "work"
    return Runtime(path, [desk], workspace=work, workspace_per=per, policy=ALLOW)


def pruned(rt: Runtime) -> list[str]:
    return asyncio.run(rt.store.prune(ALL))


def marks(base: Path) -> dict[str, str | None]:
    found = sorted((base / ".cairn").glob("*.json"))
    return {path.stem: json.loads(path.read_bytes()).get("owner") for path in found}


def aside(base: Path) -> list[str]:
    return sorted(p.read_text() for p in (base / ".cairn" / "aside").glob("*.files/*"))


def as_an_earlier_version(base: Path, place: str, made: int | None = None) -> None:
    """Take the mark out, as if the folder had been made before there were any."""
    path = base / ".cairn" / f"{place}.json"
    manifest = json.loads(path.read_bytes())
    del manifest["owner"]
    path.write_text(json.dumps(manifest))
    if made is not None:
        os.utime(path, (made, made))


# ---------------------------------------------------------------- names that are free again


@pytest.mark.parametrize(("per", "name"), WAYS)
def test_a_name_that_was_pruned_gives_nobody_the_files_of_who_had_it(tmp_path, per, name):
    with runtime(tmp_path, per) as rt:
        rt.run("desk", "write", principal="ann", **name)
        if per == "session":
            assert "a secret" in rt.run("desk", "read", principal="ann", **name).text
        pruned(rt)
        run = rt.run("desk", "read", principal="eve", **name)
        assert "workspace.missing" in run.text
        assert "a secret" not in run.text
    assert aside(tmp_path / "work") == ["a secret"]


@pytest.mark.parametrize(("per", "name"), WAYS)
def test_a_process_that_still_has_the_folder_open_gives_a_fresh_one_as_well(tmp_path, per, name):
    with runtime(tmp_path, per) as rt:
        run = rt.run("desk", "write", principal="ann", **name)
        before = rt.workspace(run.id)
        assert before.read("diary.txt") == b"a secret"
        pruned(rt)
        run = rt.run("desk", "write", principal="eve", **name)
        assert rt.workspace(run.id) is not before
        assert before.read("diary.txt") == b"a secret", "it holds the folder, not its name"


def test_the_same_person_who_takes_a_name_anew_begins_with_an_empty_folder(tmp_path):
    with runtime(tmp_path) as rt:
        rt.run("desk", "write", principal="ann", id="r")
        pruned(rt)
        assert "workspace.missing" in rt.run("desk", "read", principal="ann", id="r").text


@pytest.mark.parametrize("per", ["run", "session"])
def test_a_run_that_goes_on_and_the_next_of_its_session_have_their_folder(tmp_path, per):
    with runtime(tmp_path, per) as rt:
        rt.run("desk", "write", principal="ann", session="s", id="a")
    with runtime(tmp_path, per) as rt:
        text = rt.run("desk", "read", principal=Principal(id="ann", roles=("x",)), session="s").text
        assert ("a secret" in text) == (per == "session")
        assert rt.workspace("a").read("diary.txt") == b"a secret"
        rt.run("desk", "write", principal="ann", session="other", id="c")
        rt.rewind("s", "a", principal="ann")
        run = rt.run("desk", "read", principal="ann", session="s")
        assert ("a secret" in run.text) == (per == "session")
    assert not (tmp_path / "work" / ".cairn" / "aside").exists()


def test_looking_at_a_name_that_is_new_shows_nothing_and_moves_nothing(tmp_path):
    with runtime(tmp_path) as rt:
        rt.run("desk", "write", principal="ann", id="r")
        pruned(rt)
        rt.enqueue("desk", "read", principal="eve", id="r")
        for look in (Workspace.check_there, Workspace.changes):
            with pytest.raises(NoWorkspace):
                look(rt.workspace("r"))
    assert (tmp_path / "work" / "r" / "diary.txt").read_text() == "a secret"


def test_whose_a_workspace_is_says_principal_tenant_and_first_run():
    one = owner_of(Principal(id="ann"), "r", 1)
    assert owner_of(Principal(id="ann", roles=("admin",)), "r", 1) == one
    others = [
        owner_of(Principal(id="bob"), "r", 1),
        owner_of(Principal(id="ann", tenant="t"), "r", 1),
        owner_of(Principal(id="ann"), "q", 1),
        owner_of(Principal(id="ann"), "r", 2),
    ]
    assert len({one.mark, *(each.mark for each in others)}) == 5
    assert "ann" not in one.mark


# ---------------------------------------------------------------- folders without a mark


def test_a_folder_that_was_filled_before_its_run_is_the_runs(tmp_path):
    spaces = Workspaces(tmp_path)
    spaces.of("r").write("given.txt", "x")
    assert marks(tmp_path) == {"r": ""}
    assert Workspaces(tmp_path).of("r", owner=ANN).read("given.txt") == b"x"
    assert marks(tmp_path) == {"r": "ann"}
    with pytest.raises(PathRefused):
        Workspaces(tmp_path).of("r", owner=BOB).read("given.txt")


def test_a_folder_that_was_made_by_other_means_belongs_to_whoever_uses_it_first(tmp_path):
    (tmp_path / "r").mkdir(parents=True)
    (tmp_path / "r" / "given.txt").write_text("x")
    assert Workspaces(tmp_path).of("r", owner=ANN).read("given.txt") == b"x"
    assert marks(tmp_path) == {"r": "ann"}


@pytest.mark.parametrize(("per", "name"), WAYS)
def test_a_folder_of_an_earlier_version_is_bound_to_the_run_that_has_used_it(tmp_path, per, name):
    place = {"run": "order-7", "session": "s-support"}[per]
    with runtime(tmp_path, per) as rt:
        run = rt.run("desk", "write", principal="ann", **name)
    as_an_earlier_version(tmp_path / "work", place)
    with runtime(tmp_path, per) as rt:
        assert rt.workspace(run.id).read("diary.txt") == b"a secret"
        assert marks(tmp_path / "work")[place]
        assert [change.path for change in rt.workspace(run.id).changes()] == ["diary.txt"]


@pytest.mark.parametrize(("per", "name"), WAYS)
def test_a_folder_of_an_earlier_version_is_not_given_to_whoever_began_after_it(tmp_path, per, name):
    place = {"run": "order-7", "session": "s-support"}[per]
    with runtime(tmp_path, per) as rt:
        rt.run("desk", "write", principal="ann", **name)
        pruned(rt)
        as_an_earlier_version(tmp_path / "work", place, made=1_000_000_000)
    with runtime(tmp_path, per) as rt:
        assert "workspace.missing" in rt.run("desk", "read", principal="eve", **name).text
    assert aside(tmp_path / "work") == ["a secret"]


def test_a_mark_that_cannot_be_read_opens_nothing(tmp_path):
    Workspaces(tmp_path).of("r", owner=ANN).write("a.txt", "x")
    (tmp_path / ".cairn" / "r.json").write_text("{")
    with pytest.raises(WorkspaceFailed, match="whose this workspace is is not known"):
        Workspaces(tmp_path).of("r", owner=ANN).read("a.txt")
    assert (tmp_path / "r" / "a.txt").read_text() == "x"


# ---------------------------------------------------------------- setting aside


def test_notes_of_calls_are_set_aside_with_the_folder(tmp_path):
    old = Workspaces(tmp_path).of("r", owner=ANN)
    old.write("a.txt", "x")
    (tmp_path / ".cairn" / "r.calls" / "c1.json").write_text("{}")
    Workspaces(tmp_path).of("r", owner=BOB).list()
    assert list((tmp_path / ".cairn" / "r.calls").iterdir()) == []
    names = [p.name.split(".", 2)[2] for p in sorted((tmp_path / ".cairn" / "aside").iterdir())]
    assert names == ["calls", "files", "json"]


@pytest.mark.parametrize("moves", [1, 2])
def test_a_kill_while_it_is_set_aside_leaves_it_known_as_foreign(tmp_path, monkeypatch, moves):
    Workspaces(tmp_path).of("r", owner=ANN).write("a.txt", "x")
    real, done = os.rename, []

    def dies(*args, **options):
        if len(done) == moves:
            raise OSError(5, "gone")
        done.append(args)
        return real(*args, **options)

    state, base = os.open(tmp_path / ".cairn", os.O_RDONLY), os.open(tmp_path, os.O_RDONLY)
    try:
        monkeypatch.setattr(os, "rename", dies)
        with pytest.raises(OSError, match="gone"):
            set_aside(base, state, "r")
    finally:
        monkeypatch.undo()
        os.close(state)
        os.close(base)
    assert marks(tmp_path) == {"r": "ann"}
    assert Workspaces(tmp_path).of("r", owner=BOB).list().found == ()
    assert marks(tmp_path) == {"r": "bob"}
    assert aside(tmp_path) == ["x"]


def test_a_link_in_place_of_the_folder_is_set_aside_itself_and_not_followed(tmp_path):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "kept.txt").write_text("kept")
    base = tmp_path / "work"
    Workspaces(base).of("r", owner=ANN).write("a.txt", "x")
    (base / "r" / "a.txt").unlink()
    (base / "r").rmdir()
    (base / "r").symlink_to(outside)
    spaces = Workspaces(base)
    assert spaces.of("r", owner=BOB).list().found == ()
    spaces.clear_aside(ALL)
    assert (outside / "kept.txt").read_text() == "kept"
    assert list((base / ".cairn" / "aside").iterdir()) == []


def test_a_link_in_place_of_the_marks_is_refused(tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "work").mkdir()
    (tmp_path / "work" / ".cairn").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(WorkspaceFailed):
        Workspaces(tmp_path / "work").of("r", owner=ANN).list()


def test_two_who_open_a_foreign_folder_at_once_get_one_fresh_folder(tmp_path):
    Workspaces(tmp_path).of("r", owner=ANN).write("a.txt", "x")
    gate, failures = threading.Barrier(8), []

    def use(n: int) -> None:
        gate.wait()
        try:
            Workspaces(tmp_path).of("r", owner=BOB).write(f"{n}.txt", "y")
        except Exception as error:  # whatever it is, the test fails with it
            failures.append(error)

    threads = [threading.Thread(target=use, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    assert len(Workspaces(tmp_path).of("r", owner=BOB).list().found) == 8
    assert aside(tmp_path) == ["x"]


# ---------------------------------------------------------------- pruning

APP = """
from cairn import Agent, Policy, Runtime, Scripted, call
from cairn.toolkit import FILE_TOOLS

def model(request):
    return call("write_file", path="diary.txt", content="x") if request.turn == 0 else "done"

desk = Agent("desk", Scripted(model), tools=[*FILE_TOOLS])
rt = Runtime("cairn.db", [desk], workspace="work", workspace_per="{per}",
             policy=Policy(effects={{"write": "allow"}}))
"""


def cairn(folder: Path, *args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "cairn", *args]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done


def shop(folder: Path, per: str) -> None:
    (folder / "shop.py").write_text(textwrap.dedent(APP.format(per=per)))
    cairn(folder, "run", "desk", "hello", "--id", "r", "--session", "s", "--app", "shop:rt")
    cairn(folder, "run", "desk", "hello", "--id", "q", "--app", "shop:rt")


@pytest.mark.parametrize(("per", "place"), [("run", "r"), ("session", "s-s")])
def test_pruning_with_the_application_removes_the_folders(tmp_path, per, place):
    shop(tmp_path, per)
    base = tmp_path / "work"
    assert (base / place / "diary.txt").exists()
    Workspaces(base).of("other").write("kept.txt", "x")
    dry = cairn(tmp_path, "prune", "--older-than", "0s", "--app", "shop:rt", "--dry-run")
    assert "workspace" not in dry.stdout + dry.stderr
    done = cairn(tmp_path, "prune", "--older-than", "0s", "--app", "shop:rt")
    assert f"removed the workspace {place}\n" in done.stdout
    assert "removed the workspace q\n" in done.stdout
    assert sorted(p.name for p in base.iterdir()) == [".cairn", "other"]
    assert sorted(p.name for p in (base / ".cairn").iterdir()) == ["other.calls", "other.json"]


def test_pruning_one_session_with_the_application_removes_its_folder_only(tmp_path):
    shop(tmp_path, "session")
    base = tmp_path / "work"
    done = cairn(tmp_path, "sessions", "prune", "s", "--app", "shop:rt", "--json")
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    assert [line["id"] for line in lines if line.get("workspace")] == ["s-s"]
    assert sorted(p.name for p in base.iterdir()) == [".cairn", "q"]


@pytest.mark.parametrize("more", [(), ("--store", "cairn.db")])
def test_pruning_without_the_application_says_that_folders_stay(tmp_path, more):
    shop(tmp_path, "run")
    if more:
        (tmp_path / "pyproject.toml").write_text('[tool.cairn]\napp = "shop:rt"\n')
    done = cairn(tmp_path, "prune", "--older-than", "0s", *more)
    assert "workspaces, if there are any, stay" in done.stderr
    assert (tmp_path / "work" / "r" / "diary.txt").exists()


def test_pruning_by_age_clears_what_was_set_aside(tmp_path):
    shop(tmp_path, "run")
    base = tmp_path / "work"
    Workspaces(base).of("old", owner=ANN).write("a.txt", "x")
    Workspaces(base).of("old", owner=BOB).write("a.txt", "y")
    cairn(tmp_path, "prune", "--older-than", "1h", "--app", "shop:rt")
    assert aside(base) == ["x"]
    cairn(tmp_path, "prune", "--older-than", "0s", "--app", "shop:rt")
    assert aside(base) == []
    assert (base / "old" / "a.txt").read_text() == "y"


def test_a_name_that_was_taken_meanwhile_keeps_its_folder(tmp_path):
    from cairn.cli.leftovers import Leftovers
    from cairn.cli.place import locate
    from cairn.ports import Pruned

    with runtime(tmp_path) as rt:
        rt.run("desk", "write", principal="ann", id="r")
        left = Leftovers(locate("", ""))
        left.first(rt)
        gone = Pruned(["r", "never"], (), ["nobody"])
        assert asyncio.run(left.clear(rt.client, gone)) == []
        assert rt.workspace("r").read("diary.txt") == b"a secret"
