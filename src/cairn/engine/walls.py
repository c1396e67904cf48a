"""The walls that calls run commands behind: tried before a call starts, and told with its start."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cairn.core import events as ev
from cairn.errors import ConfigError, ToolError, ToolsUnready

if TYPE_CHECKING:
    from cairn.agent import Agent
    from cairn.sandbox import Minimum, Rung, Sandbox
    from cairn.tools.tool import Tool

REMEMBERED = 10_000
"""Of how many tools of runs it is known that their rung is recorded."""
Starts = Sequence[tuple[int, ev.ToolStarted]]


class Walls:
    """The sandboxes of one process's tools, under what the deployment asks of them.

    Attributes:
        minimum: What it asks; None for nothing.
    """

    def __init__(self, minimum: Minimum | None = None) -> None:
        self.minimum = minimum
        self._told: dict[tuple[str, str, str], None] = {}

    def check(self, agents: Iterable[Agent]) -> None:
        """Refuse tools that insist on less than the deployment asks for.

        Raises:
            ConfigError: one does.
        """
        for agent in agents:
            for tool in agent.tools.values():
                insists = tool.sandbox.require if tool.sandbox is not None else None
                if self.minimum is None or insists is None or self.minimum.takes(insists):
                    continue
                raise ConfigError(
                    f"tool {tool.name}.sandbox",
                    f"it insists on {insists}, and Runtime(sandbox=...) asks for at least "
                    f"{self.minimum.rung}",
                    "Give the tool a stronger sandbox, or leave it out of this deployment",
                )

    async def ready(self, agent: Agent) -> None:
        """See that this machine reaches what the deployment asks, for an agent that needs it.

        Raises:
            ToolsUnready: it does not.
        """
        if self.minimum is None:
            return
        for tool in agent.tools.values():
            sandbox = self._sandbox(tool)
            if sandbox is None:
                continue
            try:
                if not sandbox.is_tried:
                    await asyncio.to_thread(_reached, sandbox)
                _ = sandbox.rung
            except ToolError as error:
                raise ToolsUnready(f"agent {agent.name}, tool {tool.name}: {error}") from error

    def untried(self, starts: Starts, tools: Mapping[str, Tool[..., Any]]) -> list[Sandbox]:
        """The sandboxes of these calls whose rung nobody knows yet: it takes commands to find out.

        Args:
            starts: The calls that are about to start, each with the tool's name filled in.
            tools: The agent's, by name.
        """
        found = (self._sandbox(tools[event.tool]) for _, event in starts)
        return [each for each in found if each is not None and not each.is_tried]

    @staticmethod
    async def try_out(sandboxes: Iterable[Sandbox]) -> None:
        """Find their rungs out, in a thread."""
        for sandbox in sandboxes:
            await asyncio.to_thread(_reached, sandbox)

    def facts(
        self, run: str, starts: Starts, tools: Mapping[str, Tool[..., Any]]
    ) -> list[tuple[int, ev.SandboxChosen]]:
        """Which rungs are taken, for the write that starts these calls; once a tool and run.

        A tool that no rung can be reached for is not told of: its call fails and says why.
        """
        found: dict[tuple[str, str, str], tuple[int, ev.SandboxChosen]] = {}
        for step, event in starts:
            sandbox = self._sandbox(tools[event.tool])
            rung = _reached(sandbox) if sandbox is not None else None
            if rung is not None and (run, event.tool, rung) not in self._told:
                chosen = ev.SandboxChosen(rung=rung, tool=event.tool)
                found.setdefault((run, event.tool, rung), (step, chosen))
        return list(found.values())

    def told(self, run: str, facts: Iterable[tuple[int, ev.SandboxChosen]]) -> None:
        """They are in the journal."""
        for _, fact in facts:
            self._told[run, fact.tool, fact.rung] = None
        while len(self._told) > REMEMBERED:
            del self._told[next(iter(self._told))]

    def _sandbox(self, tool: Tool[..., Any]) -> Sandbox | None:
        return None if tool.sandbox is None else tool.sandbox.under(self.minimum)


def _reached(sandbox: Sandbox) -> Rung | None:
    try:
        return sandbox.rung
    except ToolError:
        return None
