"""One call of the matrix, and the place outside in which nothing may happen."""

import contextlib
import http.server
import json
import os
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SECRET = "cormorant-41-feathers"
VARIABLE = "CAIRN_MATRIX_CANARY"
FRONT, INSIDE = "127.0.0.3", "127.0.0.1"
"""Where the allowed site is, and where the canary listens that nobody may reach."""


@dataclass(frozen=True)
class Case:
    """A call that a model asks for.

    Attributes:
        kind: Row of the table.
        agent: Whose model asks.
        tool: The name it uses.
        arguments: The exact text of the arguments.
        says: What the refusal must name; empty for a benign call.
        holds: For a call behind walls: it may run, and nothing comes of it.
    """

    kind: str
    agent: str
    tool: str
    arguments: str
    says: str = ""
    holds: bool = False

    @property
    def hostile(self) -> bool:
        return bool(self.says) or self.holds


def written(**arguments: Any) -> str:
    return json.dumps(arguments)


class Canary(http.server.BaseHTTPRequestHandler):
    """Answers what its pages say; whoever connects is counted before a word is read."""

    def do_GET(self) -> None:
        page = self.server.pages.get(self.path.partition("?")[0])  # type: ignore[attr-defined]  # set below
        self.send_response(302 if page else 200)
        if page:
            self.send_header("Location", page)
        body = b"" if page else f"a page at {self.path}".encode()
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    do_HEAD = do_GET  # noqa: N815 - the server's library calls it so

    def log_message(self, *arguments: Any) -> None:
        return


class Listener(http.server.ThreadingHTTPServer):
    """Counts connections."""

    daemon_threads = True

    def __init__(self, address: str, port: int = 0) -> None:
        super().__init__((address, port), Canary)
        self.pages: dict[str, str] = {}
        self.met = 0

    def get_request(self) -> Any:
        self.met += 1
        return super().get_request()

    def handle_error(self, request: Any, client_address: Any) -> None:
        return


class Place:
    """A workspace, and outside of it a folder, a server and a variable that must stay as they are.

    Args:
        root: An empty folder of this machine.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self.outside = root / "outside"
        self.space = root / "desk" / "space"
        self.front = Listener(FRONT)
        self.inner = Listener(INSIDE, self.front.server_address[1])
        self.port = self.front.server_address[1]
        self.asked: list[str] = []
        self._threads = [
            threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
            for each in (self.front, self.inner)
        ]
        for thread in self._threads:
            thread.start()
        self._before = os.environ.get(VARIABLE)
        os.environ[VARIABLE] = SECRET
        self._furnish()

    def _furnish(self) -> None:
        for folder in (self.outside / "deep", self.space / "notes", self.space / "docs"):
            folder.mkdir(parents=True)
        (self.outside / "secret.txt").write_text(SECRET)
        (self.outside / "linked.txt").write_text("plain\n")
        (self.space / "notes" / "today.md").write_text("call the bank\n")
        (self.space / "notes" / "moved.md").write_text("to be moved\n")
        (self.space / "numbers.txt").write_text("3\n1\n2\n")
        (self.space / "-x").write_text("a dash\n")
        (self.space / "link_folder").symlink_to(self.outside)
        (self.space / "link_file").symlink_to(self.outside / "secret.txt")
        (self.space / "link_up").symlink_to("../..")
        (self.space / "link_inside").symlink_to("notes/today.md")
        (self.space / "link_loop").symlink_to("link_loop")
        (self.space / "link_nowhere").symlink_to(self.outside / "made.txt")
        (self.space / "link_proc").symlink_to("/proc/self/environ")
        (self.space / "hard").hardlink_to(self.outside / "linked.txt")
        os.mkfifo(self.space / "pipe")

    def outside_now(self) -> dict[str, Any]:
        """All that must be the same before and after."""
        files: dict[str, Any] = {}
        for path in sorted(self.outside.rglob("*")):
            about = path.lstat()
            body = path.read_bytes() if path.is_file() else b""
            files[str(path)] = (body, about.st_mode, about.st_size, about.st_mtime_ns)
        return {
            "files": files,
            "beside": sorted(each.name for each in self.root.iterdir()),
            "reached": self.inner.met,
            "environment": dict(os.environ),
            "folder": str(Path.cwd()),
        }

    def inside_now(self) -> dict[str, bytes]:
        """The workspace, which a refused call leaves as it is too."""
        return {
            str(path): path.read_bytes() if path.is_file() and not path.is_symlink() else b""
            for path in sorted(self.space.rglob("*"))
        }

    def resolve(self, host: str, port: int) -> list[str]:
        """The names of the matrix: those of `ANSWERS` lie where they must not."""
        from tests.governance.web_cases import ANSWERS

        self.asked.append(host)
        if host == "rebinds.example.org":  # public at the first look only
            return [FRONT] if self.asked.count(host) == 1 else [INSIDE]
        return ANSWERS.get(host, [FRONT])

    def close(self) -> None:
        for each in (self.front, self.inner):
            each.shutdown()
            each.server_close()
        for thread in self._threads:
            thread.join()
        os.environ.pop(VARIABLE, None)
        if self._before is not None:
            os.environ[VARIABLE] = self._before
        with contextlib.suppress(FileNotFoundError):
            (self.space / "pipe").unlink()
