"""Whoever is killed, no server outlives us, and no effect is made twice."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from tests.mcp.kit import RAW, alive, do, go, gone, of, raw, runtime

from cairn.core import events as ev

ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import asyncio, sys
from tests.mcp.kit import *
from cairn import Runtime
async def main():
    server = raw(how=json.loads(sys.argv[2]))
    async with Runtime(sys.argv[1], [agent_of(server, do, "fine")], policy=OPEN) as rt:
        await rt.run_async("a", "task", id="r")
asyncio.run(main())
"""


def until(path, said, seconds=20.0):
    ends = time.monotonic() + seconds
    while time.monotonic() < ends:
        if path.exists() and said in path.read_text():
            return
        time.sleep(0.01)
    raise AssertionError(f"{path} never said {said}")


@pytest.mark.kill
@pytest.mark.parametrize("stubborn", [False, True])
def test_killed_by_force_we_leave_no_server_behind_and_the_call_unknown(tmp_path, stubborn):
    log, pids, store = tmp_path / "log", tmp_path / "pid", tmp_path / "cairn.db"
    how = {"call": "hang", "log": str(log), "pids": str(pids), "stubborn": stubborn}
    argv = [sys.executable, "-c", CHILD, str(store), json.dumps(how)]
    ours = subprocess.Popen(argv, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)})
    until(log, "call do")
    ours.kill()
    ours.wait()
    assert gone(int(pids.read_text()))

    async def main():
        async with runtime(raw(), do, "fine", store=str(store)) as rt:
            run = await rt.run_async("a", "task", id="r")
            assert run.reason == "in_doubt"
            events = [e.event for e in await rt.trace_async("r")]
            assert len(of(events, ev.ToolStarted)) == 1
            assert of(events, ev.ToolUnknown)[0].reason == "lost"

    go(main())
    assert log.read_text().count("call do") == 1


@pytest.mark.kill
def test_the_servers_own_children_end_with_it(tmp_path):
    script = tmp_path / "parent.py"
    child = tmp_path / "child"
    script.write_text(
        "import subprocess, sys\n"
        "p = subprocess.Popen(['sleep', '600'])\n"
        f"open({str(child)!r}, 'w').write(str(p.pid))\n"
        f"sys.argv = ['raw', '{{}}']\nexec(open({RAW!r}).read())\n"
    )
    from cairn.mcp import McpServer

    async def main():
        server = McpServer("s", command=[sys.executable, str(script)])
        async with runtime(server, "fine") as rt:
            await rt.run_async("a", "task", id="r")
            assert alive(int(child.read_text()))

    go(main())
    assert gone(int(child.read_text()))


@pytest.mark.kill
def test_a_guard_killed_by_force_takes_its_server_along(tmp_path):
    pids = tmp_path / "pid"
    server = raw(how={"pids": str(pids), "stubborn": True})

    async def main():
        await server.ready()
        os.kill(server._connection._wire._guard.pid, signal.SIGKILL)
        await server.close()

    go(main())
    assert gone(int(pids.read_text()))
