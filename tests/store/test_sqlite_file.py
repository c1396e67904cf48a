"""A store file is private, shared within a process, and refused where it would not be safe."""

import asyncio
import os
import stat
from pathlib import Path

import apsw
import pytest

from cairn.errors import ConfigError, SchemaTooNew, StoreClosed, UnsupportedStore
from cairn.store import open_store
from cairn.store.sqlite import filesystem
from cairn.store.sqlite.connection import check_library
from cairn.testing.store_story import Story, create, drive

MOUNTINFO = r"""
22 27 0:21 / /proc rw,relatime - proc proc rw
27 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
31 27 0:40 / /mnt/team rw,relatime - nfs4 server:/team rw
32 31 0:41 / /mnt/team/local rw,relatime - xfs /dev/vdb rw
33 27 0:42 / /mnt/with\040space rw,relatime - fuse.sshfs host: rw
34 27 0:43 / /mnt/c rw,relatime - 9p C:\134 rw
"""

MOUNT = """
/dev/disk3s1s1 on / (apfs, sealed, local, read-only, journaled)
/dev/disk3s5 on /System/Volumes/Data (apfs, local, journaled, nobrowse)
//ann@nas/home on /Volumes/home (smbfs, nodev, nosuid, mounted by ann)
"""


def closing(store):
    asyncio.run(store.close())


def permissions(path):
    return stat.S_IMODE(path.stat().st_mode)


def test_everything_a_store_writes_is_for_its_owner_only(tmp_path):
    path = tmp_path / "cairn.db"
    mask = os.umask(0)
    try:

        async def use():
            store = open_store(path)
            story = Story("r")
            await create(store, story)
            await drive(store, story)
            lock = store.lock_path("r", "c1")
            folders = [tmp_path / "cairn.db.owners", tmp_path / "cairn.db.owners" / "calls"]
            files = [path, tmp_path / "cairn.db-wal", tmp_path / "cairn.db-shm"]
            files += folders[0].glob("*.lock")
            assert len(files) == 4
            assert {permissions(file) for file in files} == {0o600}
            assert {permissions(folder) for folder in folders} == {0o700}
            assert Path(lock).parent == folders[1]
            await store.append("r", 1, [], None, release=True)
            await store.close()

        asyncio.run(use())
    finally:
        os.umask(mask)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["cairn.db", "cairn.db.owners"]
    assert list((tmp_path / "cairn.db.owners").glob("*.lock")) == []


def test_all_who_open_a_file_share_one_object_and_each_closes_it_once(tmp_path):
    path = tmp_path / "cairn.db"
    (tmp_path / "alias.db").symlink_to(path)
    first = open_store(path)
    second = open_store(f"sqlite:{path}")
    third = open_store(f"sqlite:///{tmp_path}/alias.db")
    assert first is second is third

    async def use():
        await first.close()
        await second.close()
        await create(third, Story("r"))
        await third.close()
        with pytest.raises(StoreClosed):
            await third.info("r")

    asyncio.run(use())
    again = open_store(path)
    assert again is not first
    assert asyncio.run(again.info("r")).head == 1
    closing(again)


def test_a_file_is_open_with_one_durability_at_a_time(tmp_path):
    path = tmp_path / "cairn.db"
    store = open_store(path, durability="process")
    with pytest.raises(ConfigError, match="open in this process with 'process'"):
        open_store(path)
    closing(store)
    store = open_store(path, durability="full")
    assert store._connection.pragma("synchronous") == 2
    assert store._connection.pragma("journal_mode") == "wal"
    closing(store)
    with pytest.raises(ConfigError, match="'most' is not known"):
        open_store(path, durability="most")


def test_a_missing_folder_is_named_and_so_is_what_to_do(tmp_path):
    with pytest.raises(ConfigError) as caught:
        open_store(tmp_path / "missing" / "cairn.db")
    assert caught.value.field == "store"
    assert f"mkdir -p {tmp_path / 'missing'}" in caught.value.fix
    with pytest.raises(ConfigError, match="is a folder"):
        open_store(tmp_path)
    with pytest.raises(ConfigError, match="no store of kind 'redis'"):
        open_store("redis://localhost")


def test_a_file_that_may_not_be_written_is_refused_in_plain_words(tmp_path, monkeypatch):
    path = tmp_path / "cairn.db"
    closing(open_store(path))
    for closed in (path, tmp_path):
        monkeypatch.setattr(os, "access", lambda place, mode, closed=closed: Path(place) != closed)
        with pytest.raises(ConfigError, match="cannot be written by this user"):
            open_store(path)


def test_a_file_from_the_future_is_refused_and_not_touched(tmp_path):
    path = tmp_path / "cairn.db"
    closing(open_store(path))
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    connection.close()
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="version 999"):
        open_store(path)
    assert path.read_bytes() == before
    assert [p.name for p in tmp_path.iterdir() if p.suffix != ".owners"] == ["cairn.db"]


def test_a_file_from_the_future_is_refused_even_if_only_its_log_says_so(tmp_path):
    path = tmp_path / "cairn.db"
    closing(open_store(path))
    connection = apsw.Connection(str(path))
    connection.pragma("user_version", 999)
    before = path.read_bytes()
    with pytest.raises(SchemaTooNew, match="version 999"):
        open_store(path)
    assert path.read_bytes() == before
    connection.close()


def test_another_programs_file_is_refused_and_not_touched(tmp_path):
    database, text = tmp_path / "other.db", tmp_path / "notes.txt"
    connection = apsw.Connection(str(database))
    connection.execute("CREATE TABLE shopping (item)")
    connection.close()
    text.write_text("not a database at all\n" * 100)
    for path in (database, text):
        before = path.read_bytes()
        with pytest.raises(UnsupportedStore, match="choose another path"):
            open_store(path)
        assert path.read_bytes() == before


def test_an_empty_file_becomes_a_store(tmp_path):
    path = tmp_path / "cairn.db"
    path.touch()
    closing(open_store(path))
    store = open_store(path)
    assert asyncio.run(store.read("store")) == []
    closing(store)


def test_libraries_that_can_corrupt_a_file_are_refused():
    check_library()
    check_library("3.51.3")
    for version in ("3.40.1", "3.51.2", "3.7.0"):
        with pytest.raises(UnsupportedStore, match="Upgrade the package apsw"):
            check_library(version)


def test_windows_is_refused_in_plain_words():
    with pytest.raises(UnsupportedStore, match="Use Linux, macOS"):
        filesystem.check_platform("win32")


@pytest.mark.parametrize(
    ("folder", "network"),
    [
        ("/srv", False),
        ("/mnt/team", True),
        ("/mnt/team/deep/down", True),
        ("/mnt/team/local", False),
        ("/mnt/teamwork", False),
        ("/mnt/with space/x", True),
        ("/mnt/c", True),
    ],
)
def test_network_filesystems_are_found_in_the_mount_table_of_linux(folder, network):
    kind = filesystem.kind_in_mountinfo(MOUNTINFO, folder)
    assert filesystem.is_network(kind) is network


@pytest.mark.parametrize(
    ("folder", "network"),
    [("/Users/ann", False), ("/Volumes/home/x", True), ("/System/Volumes/Data", False)],
)
def test_network_filesystems_are_found_in_the_mount_table_of_macos(folder, network):
    kind = filesystem.kind_in_mount(MOUNT, folder)
    assert filesystem.is_network(kind) is network


def test_a_network_filesystem_is_refused_with_its_name(tmp_path, monkeypatch):
    monkeypatch.setattr(filesystem, "filesystem_of", lambda folder: "nfs4")
    with pytest.raises(UnsupportedStore, match=r"network filesystem \(nfs4\)"):
        open_store(tmp_path / "cairn.db")
    assert list(tmp_path.iterdir()) == []
