"""`shell`: a command of the model, run by `sh` behind the walls of the sandbox."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from cairn.sandbox import Limits, Sandbox
from cairn.tools.context import Context
from cairn.tools.tool import Tool, make_tool

TAINT = "files"
"""Where the content of a result comes from."""
MAX_COMMAND_CHARS = 50_000
GRACE_S = 3.0
"""Of the call's time, what is kept for ending the command and telling what it wrote."""
ENDINGS = {
    "time": "it took longer than its time limit and was killed",
    "memory": "it used more memory than it may and was killed",
    "processes": "it started more processes than it may and was killed",
    "disk": "it wrote more to disk than it may and was killed",
    "stopped": "it was stopped from outside",
}
Effect = Literal["read", "write", "dangerous"]
Walls = Sandbox | Literal["unsandboxed"] | None


def shell_tool(
    *,
    sandbox: Walls = None,
    name: str = "shell",
    effect: Effect = "dangerous",
    timeout: float = 60.0,
    limits: Limits | None = None,
) -> Tool[..., Any]:
    """A tool that runs a command with `sh` in the workspace.

    The command runs behind the strongest walls that the machine offers and is refused when there
    are none. It has no network, no environment and no files but the workspace and the system's
    programs. A command that ends by a limit is a result that says so, not an unknown effect.

    Args:
        sandbox: A `Sandbox` with the operator's choices, or `"unsandboxed"`. Default: the
            strongest rung.
        name: As the model calls it.
        effect: May it run unasked. `dangerous` by default: every call waits for a person.
        timeout: Deadline of one call, in seconds. Default 60.
        limits: What a command may take, when no `Sandbox` is given.

    Raises:
        ToolDefinitionError: the name or the effect cannot be.
        ConfigError: `sandbox` names no rung.
    """
    walls = walls_of(sandbox, limits)

    def shell(
        command: Annotated[str, Field(min_length=1, max_length=MAX_COMMAND_CHARS)],
        ctx: Context[Any],
    ) -> dict[str, Any]:
        """Run a shell command in the workspace folder and get what it printed.

        There is no network and no terminal. What it leaves running is killed when it ends.

        Args:
            command: Read by sh; it may have several lines.
        """
        return run_confined(ctx, walls, ["/bin/sh", "-c", command])

    return make_tool(
        shell,
        {
            "name": name,
            "effect": effect,
            "timeout": timeout,
            "settle": settle_of(effect),
            "taint": TAINT,
        },
        sandbox=walls,
    )


def walls_of(sandbox: Walls, limits: Limits | None) -> Sandbox:
    """The sandbox an operator means."""
    if isinstance(sandbox, Sandbox):
        return sandbox
    return Sandbox(require=sandbox, limits=limits)


def settle_of(effect: Effect) -> float:
    """Seconds in which a killed command may still finish what it is at, by the kernel's grace."""
    return 0.0 if effect == "read" else 1.0


def run_confined(
    ctx: Context[Any],
    walls: Sandbox,
    argv: Sequence[str],
    *,
    stdin: bytes | None = None,
    readable: Sequence[str] = (),
) -> dict[str, Any]:
    """Run one command behind the walls, within the call's time, and tell what came of it.

    Raises:
        ToolError: the machine offers no walls.
        NotDone: the walls could not be set up.
        Unsure: nobody knows how it ended.
        TimeoutError: it was unsandboxed and took too long.
    """
    walls = walls.under(ctx.sandbox)
    launch = walls.prepare(
        argv,
        workspace=workspace_of(ctx),
        stdin=stdin,
        wall_s=_seconds(ctx),
        readable=readable,
    )
    done = ctx.run(
        launch.argv,
        input=launch.input,
        env=launch.env,
        cwd=launch.cwd,
        timeout=None if launch.mark else walls.limits.wall_s,
        max_output=walls.limits.output_bytes,
    )
    ended = launch.read(done.returncode, done.stderr)
    result: dict[str, Any] = {
        "exit_code": ended.exit_code,
        "stdout": done.stdout,
        "stderr": ended.stderr,
    }
    if ended.why != "itself":
        result["ended"] = ENDINGS[ended.why]
    return result


def workspace_of(ctx: Context[Any]) -> Path | None:
    """The folder of the call's workspace; None when it has none."""
    return None if ctx.workspace is None else Path(ctx.workspace.root)


def _seconds(ctx: Context[Any]) -> float | None:
    left = ctx.remaining()
    return None if left is None else max(left - GRACE_S, left / 2, 0.1)


shell = shell_tool()
"""The shell as it is by default: every command waits for a person, then runs behind walls."""
