"""`python`: a program of the model, run by an interpreter behind the walls of the sandbox."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

from pydantic import Field

from cairn.errors import ConfigError, safe_repr
from cairn.sandbox import Limits
from cairn.toolkit.commands import Effect, Walls, run_confined, settle_of, walls_of, workspace_of
from cairn.tools.context import Context
from cairn.tools.tool import Tool, make_tool

TAINT = "files"
"""Where the content of a result comes from."""
MAX_CODE_CHARS = 200_000
START = (
    "import sys;sys.path[1:1]=sys.argv[1:];sys.argv=['-'];"
    "c=sys.stdin.buffer.read();sys.stdin=open('/dev/null');"
    "exec(compile(c,'<code>','exec'),{'__name__':'__main__'})"
)
"""The code comes in on standard input: an argument has a bound, and others could see it."""


def python_tool(
    *,
    sandbox: Walls = None,
    name: str = "python",
    effect: Effect = "dangerous",
    timeout: float = 60.0,
    limits: Limits | None = None,
    packages: Sequence[str | os.PathLike[str]] = (),
) -> Tool[..., Any]:
    """A tool that runs a Python program in the workspace.

    It runs on this interpreter's own standard library, isolated: no environment, no user
    packages, none of the packages installed here.

    Args:
        sandbox: A `Sandbox` with the operator's choices, or `"unsandboxed"`. Default: the
            strongest rung.
        name: As the model calls it.
        effect: May it run unasked. `dangerous` by default: every call waits for a person.
        timeout: Deadline of one call, in seconds. Default 60.
        limits: What a program may take, when no `Sandbox` is given.
        packages: Folders of packages that programs may import, such as a `site-packages`.

    Raises:
        ToolDefinitionError: the name or the effect cannot be.
        ConfigError: `sandbox` names no rung, or a folder of packages does not exist.
    """
    walls = walls_of(sandbox, limits)
    given: object = packages
    if not isinstance(given, list | tuple) or not all(
        isinstance(each, str | os.PathLike) for each in given
    ):
        fix = 'Give a list of folders, as ["lib/site-packages"]'
        raise ConfigError("packages", f"{safe_repr(given)} are no folders", fix)
    folders = [os.path.realpath(each) for each in packages]
    for folder in folders:
        if not Path(folder).is_dir():
            raise ConfigError("packages", f"there is no folder {folder}", "Name one that exists")

    def python(
        code: Annotated[str, Field(min_length=1, max_length=MAX_CODE_CHARS)], ctx: Context[Any]
    ) -> dict[str, Any]:
        """Run a Python program in the workspace folder and get what it printed.

        Only the standard library is there. There is no network and no terminal, and nothing is
        kept from one program to the next but files.

        Args:
            code: The whole program; print what you want to know.
        """
        interpreter = walls.under(ctx.sandbox).python(workspace_of(ctx))
        argv = [interpreter, "-I", "-S", "-B", "-X", "utf8", "-c", START, *folders]
        return run_confined(ctx, walls, argv, stdin=code.encode(), readable=folders)

    return make_tool(
        python,
        {
            "name": name,
            "effect": effect,
            "timeout": timeout,
            "settle": settle_of(effect),
            "taint": TAINT,
        },
        sandbox=walls,
    )


python = python_tool()
"""Python as it is by default: every program waits for a person, then runs behind walls."""
