"""What hostile code tries from behind the walls, and what the host notices of it: nothing.

The attempts stand in attempts.py. Each is one test per rung; they run together, in one process
tree per rung, because starting it is what costs time.
"""

import contextlib
import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.sandbox import Limits, Rung, Sandbox
from cairn.tools.context import Context

SOURCE = Path(__file__).with_name("attempts.py")
SECRET = "the secret of the host"
VARIABLE = "CAIRN_TEST_SECRET"
NAMES = re.findall(r"^@attempt\ndef (\w+)", SOURCE.read_text(), re.MULTILINE)


class Host:
    """What lies outside: files, sockets, a process; and whether anything happened to them."""

    def __init__(self, folder: Path) -> None:
        self.outside = folder / "outside"
        self.outside.mkdir()
        for path in (folder, self.outside):
            path.chmod(0o777)  # so that it is not the usual rights that hold
        self.files = {name: self.outside / name for name in ("secret", "key", "writable")}
        for path in self.files.values():
            path.write_text(SECRET)
            path.chmod(0o666)
        self.key_mode = self.files["key"].chmod(0o600)
        self.sockets = {
            "tcp": self._listen(socket.AF_INET, ("127.0.0.1", 0)),
            "tcp6": self._listen(socket.AF_INET6, ("::1", 0)),
            "udp": self._listen(socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_DGRAM),
            "abstract": self._listen(socket.AF_UNIX, f"\0cairn-{os.getpid()}"),
            "named": self._listen(socket.AF_UNIX, str(self.outside / "socket")),
        }
        (self.outside / "socket").chmod(0o777)
        self.victim = subprocess.Popen(["sleep", "600"], env={VARIABLE: SECRET})
        self.before = self._state()

    def _listen(self, family: int, address: Any, kind: int = socket.SOCK_STREAM) -> socket.socket:
        each = socket.socket(family, kind)
        each.bind(address)
        each.setblocking(False)
        if kind == socket.SOCK_STREAM:
            each.listen()
        return each

    def facts(self) -> dict[str, Any]:
        return {
            **{name: each.getsockname()[1] for name, each in self.sockets.items() if "p" in name},
            "abstract": f"cairn-{os.getpid()}",
            "named": str(self.outside / "socket"),
            **{name: str(path) for name, path in self.files.items()},
            "outside": str(self.outside),
            "home": str(Path.home()),
            "victim": self.victim.pid,
            "variable": VARIABLE,
        }

    def _state(self) -> dict[str, Any]:
        found: dict[str, Any] = {"names": sorted(each.name for each in self.outside.iterdir())}
        for name, path in self.files.items():
            about = path.stat()
            kept = (about.st_mode, about.st_uid, about.st_nlink, about.st_mtime_ns)
            found[name] = (path.read_text(), *kept, os.listxattr(path))
        found["alive"] = self.victim.poll()
        found["nice"] = os.getpriority(os.PRIO_PROCESS, self.victim.pid)
        found["processors"] = os.sched_getaffinity(self.victim.pid)
        return found

    def what_happened(self) -> list[str]:
        now = self._state()
        found = [f"{key}: {now[key]}" for key in now if now[key] != self.before[key]]
        for name, each in self.sockets.items():
            with contextlib.suppress(BlockingIOError):
                found.append(f"{name}: {each.recv(9) if name == 'udp' else each.accept()}")
        return found

    def close(self) -> None:
        self.victim.kill()
        self.victim.wait()
        for each in self.sockets.values():
            each.close()


@pytest.fixture(scope="session")
def host() -> Iterator[Host]:
    os.environ[VARIABLE] = SECRET
    with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
        there = Host(Path(folder))
        yield there
        there.close()
    del os.environ[VARIABLE]


SURVEYS: dict[Rung, dict[str, dict[str, Any]]] = {}


@pytest.fixture
def told(host: Host, rung: Rung) -> dict[str, dict[str, Any]]:
    """What came of each attempt on this rung; they are made once."""
    if rung not in SURVEYS:
        SURVEYS[rung] = survey(host, rung)
    return SURVEYS[rung]


def survey(host: Host, rung: Rung) -> dict[str, dict[str, Any]]:
    workspace = host.outside.parent / f"workspace-{rung}"
    workspace.mkdir()
    shutil.copy(SOURCE, workspace / "attempts.py")
    (workspace / "facts.json").write_text(json.dumps(host.facts()))
    sandbox = Sandbox(rung, limits=Limits(output_bytes=1_000_000, wall_s=25))
    argv = [sandbox.python(workspace), "-I", "-S", "attempts.py", "facts.json"]
    launch = sandbox.prepare(argv, workspace=workspace)
    done = Context().run(launch.argv, input=launch.input, env=launch.env, cwd=launch.cwd)
    assert launch.read(done.returncode, done.stderr).exit_code == 0, done.stderr
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {line["name"]: line for line in lines}


@pytest.mark.parametrize("name", NAMES)
def test_the_walls_hold(told: dict[str, dict[str, Any]], name: str) -> None:
    assert told[name]["held"], told[name]["how"]


def test_the_walls_hold_against_the_kernels_calls_and_files(
    told: dict[str, dict[str, Any]],
) -> None:
    others = {name: line["how"] for name, line in told.items() if name not in NAMES}
    assert len(others) > 30
    assert {name: how for name, how in others.items() if not told[name]["held"]} == {}


def test_the_host_has_noticed_nothing(told: dict[str, dict[str, Any]], host: Host) -> None:
    assert len(told) >= len(NAMES)
    assert host.what_happened() == []


def test_nothing_that_was_printed_holds_the_secret(told: dict[str, dict[str, Any]]) -> None:
    assert SECRET not in json.dumps(told)


def test_the_same_attempts_succeed_without_walls(host: Host, tmp_path: Path) -> None:
    """Else the tests above would show nothing. Only what harms nobody is tried."""
    (tmp_path / "facts.json").write_text(json.dumps(host.facts()))
    done = subprocess.run(
        [sys.executable, "-c", HARMLESS, str(SOURCE.parent), "facts.json"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
        timeout=20,
    )
    told = json.loads(done.stdout)
    assert {name for name, line in told.items() if line["held"]} == set()
    for name in ("tcp", "abstract", "named"):
        host.sockets[name].accept()[0].close()


HARMLESS = """
import json, sys
sys.path.insert(0, sys.argv[1])
import attempts
attempts.FACTS.update(json.load(open(sys.argv[2])))
names = ['tcp_to_the_host', 'an_abstract_socket_of_the_host', 'a_named_socket_of_the_host']
names += ['reading_a_file_of_the_host', 'listing_a_folder_of_the_host']
names += ['seeing_a_variable_of_the_runtime', 'reading_through_a_link_in_the_workspace']
names += ['gaining_rights_from_a_program', 'the_call_memfd_create', 'a_netlink_socket']
names += ['making_a_file_setuid', 'comparing_with_another_process']
print(json.dumps({n: attempts.outcome(attempts.ATTEMPTS[n]) for n in names}))
"""
