"""What all verbs stand on: the store, the agents, and the runs this object drives."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

from cairn.agent import Agent
from cairn.core.messages import clean
from cairn.core.state import RunState
from cairn.engine.client import Client, settled
from cairn.engine.ends import asked_for
from cairn.engine.given import check_seq, check_text
from cairn.engine.host import Host
from cairn.engine.load import fold_entries
from cairn.engine.notify import Notifier
from cairn.engine.portal import Portal
from cairn.engine.result import Run, result_of, run_of
from cairn.engine.worker import drive
from cairn.errors import CairnError, ConfigError, safe_repr, words_of
from cairn.governance.tool_names import meant
from cairn.ports import Store
from cairn.runtime.checked import checked
from cairn.runtime.twins import twin

log = logging.getLogger("cairn")
ENDED = frozenset({"completed", "failed", "stopped", "cancelled"})


def said_in(field: str, text: object) -> str:
    """What was said in a field, made storable.

    Raises:
        ConfigError: it is no text.
    """
    if not isinstance(text, str):
        raise ConfigError(field, f"{safe_repr(text)} is no text", "Give a string")
    return clean(text)


class Ground:
    """The parts of a runtime, and the one way it drives a run."""

    store: Store
    host: Host
    client: Client
    portal: Portal
    _notifier: Notifier | None
    _driven: dict[str, asyncio.Task[Any]]
    _background: set[str]
    _again: set[str]

    def agent(self, name: str) -> Agent:
        """The agent of this name. Raises `UnknownAgent`."""
        check_text("name", name)
        return self.host.crew(name).agent

    @checked
    async def get_async(self, run: str) -> Run:
        """How a run stands. Raises `UnknownRun`."""
        info = await self.store.info(run)
        crew = self.host.crew(info.agent) if info.agent in self.host.agents else None
        return await result_of(self.store, run, crew)

    @checked
    async def at_async(self, run: str, seq: int) -> Run:
        """How a run stood after its event `seq`, folded from its journal up to there.

        Raises:
            UnknownRun: there is no such run, or it has no such event; says which it has.
        """
        info = await self.store.info(run)
        entries = await self.store.read(run, upto=check_seq(run, seq, info.head))
        state = await fold_entries(self.store, run, entries)
        crew = self.host.crew(info.agent) if info.agent in self.host.agents else None
        return await run_of(self.store, state, crew, entries)

    @checked
    async def drive_async(self, run: str) -> Run:
        """Drive a run until there is a result or it waits for people; then say how it stands."""
        background = self._driven.get(run)
        if background is not None and background.get_loop() is asyncio.get_running_loop():
            await asyncio.wait({background})
        state = await drive(self.store, run, self.host, self._notifier)
        if state is None or state.agent not in self.host.agents:
            return await self.get_async(run)
        return await run_of(self.store, state, self.host.crew(state.agent))

    def _spawn(self, run: str) -> None:
        self._background.add(run)
        if run in self._driven:
            self._again.add(run)
            return
        task = asyncio.get_running_loop().create_task(self._drive_on(run), name=f"cairn run {run}")
        self._driven[run] = task
        task.add_done_callback(lambda done: self._let_go(run, done))

    def _let_go(self, run: str, task: asyncio.Task[Any] | None) -> None:
        if self._driven.get(run) is task:
            del self._driven[run]

    async def _drive_on(self, run: str) -> None:
        """Drive it, and once more if a decision came when it had already had its last look."""
        task = asyncio.current_task()
        try:
            while True:
                self._again.discard(run)
                await drive(self.store, run, self.host, self._notifier)
                while run in self._again and not self.host.draining:
                    self._again.discard(run)
                    if not settled(await self.store.info(run)):
                        break
                else:
                    return
        except BaseException as error:  # nobody waits for this task: what it came to is told here
            if asked_for(error, task):
                raise
            trace = None if isinstance(error, CairnError) else error
            said = "run %s is no longer driven in the background: %s"
            log.warning(said, run, words_of(error), exc_info=trace)
        finally:
            self._let_go(run, task)  # at once: who spawns now starts anew

    def _meant(self, agent: str, tool: str) -> str:
        """What to write instead of a tool that the agent does not have."""
        return meant(
            tool, sorted(self.host.crew(agent).rules.tools), self.host.agents[agent].servers
        )

    async def _after(self, state: RunState) -> Run:
        """A decision was taken: a run that was handed over by `start` goes on by itself."""
        if state.run in self._background and state.agent in self.host.agents:
            self._spawn(state.run)
        return await self.get_async(state.run)

    drive = twin(drive_async)
    get = twin(get_async)
    at = twin(at_async)
