"""Runs the official MCP conformance suite against Cairn's client and server.

    python bench/conformance/run.py FOLDER

The suite is an npm package and needs Node 22; both are installed into FOLDER unless they are
there. Of its scenarios those are run that Cairn claims; docs/mcp.md says why the others are not.
Prints one line for each and exits with 1 when one fails that was not expected to.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
PACKAGES = ("node@22", "@modelcontextprotocol/conformance@0.1.16")
SERVER = (
    "server-initialize",
    "ping",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-error",
    "tools-call-with-progress",
    "resources-list",
    "server-sse-multiple-streams",
    "dns-rebinding-protection",
)
CLIENT = ("initialize", "tools_call", "elicitation-sep1034-client-defaults", "sse-retry")
WAIT_S = 20.0


def main(folder: Path) -> int:
    install(folder)
    rows = [("client", name, *client(folder, name)) for name in CLIENT]
    port = free_port()
    server = subprocess.Popen([sys.executable, str(HERE / "server.py"), str(port)])
    try:
        wait(port)
        rows += [("server", name, *served(folder, name, port)) for name in SERVER]
    finally:
        server.terminate()
        server.wait()
    for side, name, passed, failed in rows:
        print(f"{side:7} {name:40} {passed} checks passed, {failed} failed")
    bad = [row for row in rows if row[3] or not row[2]]
    print(f"{len(rows) - len(bad)} of {len(rows)} scenarios passed")
    return 1 if bad else 0


def install(folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    if not (folder / "node_modules/.bin/conformance").exists():
        subprocess.run(["npm", "init", "-y"], cwd=folder, check=True, capture_output=True)
        subprocess.run(["npm", "install", *PACKAGES], cwd=folder, check=True, capture_output=True)


def client(folder: Path, name: str) -> tuple[int, int]:
    command = f"{sys.executable} {HERE / 'client.py'}"
    return checks(folder, name, ["client", "--command", command, "--scenario", name])


def served(folder: Path, name: str, port: int) -> tuple[int, int]:
    url = f"http://127.0.0.1:{port}/mcp"
    return checks(folder, name, ["server", "--url", url, "--scenario", name])


def checks(folder: Path, name: str, argv: list[str]) -> tuple[int, int]:
    """How many checks of a scenario passed and failed."""
    bin_folder = folder / "node_modules/.bin"
    env = {**os.environ, "PATH": f"{bin_folder}{os.pathsep}{os.environ['PATH']}"}
    out = folder / "results" / argv[0] / name
    whole = [str(bin_folder / "conformance"), *argv, "--output-dir", str(out)]
    done = subprocess.run(whole, cwd=folder, env=env, capture_output=True, text=True, check=False)
    (folder / f"{argv[0]}-{name}.log").write_text(done.stdout + done.stderr)
    found = sorted(out.rglob("checks.json"), key=lambda each: each.stat().st_mtime)
    if not found:
        return 0, 1
    states = [each["status"] for each in json.loads(found[-1].read_text())]
    return states.count("SUCCESS"), states.count("FAILURE")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def wait(port: int) -> None:
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise SystemExit("the server did not start")


if __name__ == "__main__":
    if len(sys.argv) != 2:
        raise SystemExit(__doc__)
    sys.exit(main(Path(sys.argv[1]).resolve()))
