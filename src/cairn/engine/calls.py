"""Starting tool calls: slots, contexts, and outcomes that come late."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from cairn.core import events as ev
from cairn.core.actions import StartCalls
from cairn.core.commands import Late
from cairn.core.finding import Found, search
from cairn.core.intake import choose
from cairn.core.lifecycle import CallStatus
from cairn.core.rules import Problem, ToolSpec
from cairn.core.state import Call, RunState
from cairn.core.usable import Usable
from cairn.crew import Crew
from cairn.engine.attend import attend
from cairn.engine.backs import Back, ProbeBack, ToolBack, capped
from cairn.engine.consent import Consent
from cairn.engine.flights import Flights, Reason
from cairn.engine.folders import workspace_of
from cairn.engine.hooked import Hooked
from cairn.engine.host import Host
from cairn.engine.journal import PATIENCE, OpenJournal
from cairn.engine.load import load, read_stored
from cairn.engine.perform import ToolFlight, perform_probe
from cairn.engine.walls import Starts
from cairn.errors import (
    CairnError,
    ConfigError,
    DepsFailed,
    ErrorClass,
    StoreBusy,
    ToolError,
    ToolsUnready,
)
from cairn.governance.secrets import Sealed
from cairn.ports import Clock, Progress, Store
from cairn.tools.context import Context
from cairn.tools.outcome import MESSAGE_CHARS, classify
from cairn.tools.results import UnserialisableResult, stand_in, to_json
from cairn.tools.runner import Finish, start
from cairn.tools.tool import Tool
from cairn.workspace import Workspace

SLOT_WAIT_S = 1.0
"""How long to wait for a free thread before looking whether the run has news."""

LATE_S = 60.0
"""How long a late outcome waits for the call to be known as timed out, cancelled or lost."""

log = logging.getLogger("cairn")
_late_writes: set[asyncio.Task[None]] = set()
"""Late outcomes being written, kept here so that they are not collected before they are done."""


class CallRunner:
    """Carries out the calls that one drive of a run was told to start."""

    def __init__(
        self,
        store: Store,
        host: Host,
        journal: OpenJournal,
        flights: Flights,
        consent: Consent,
        sealed: Sealed,
    ) -> None:
        self._sealed = sealed
        self._consent = consent
        consent.hooked = Hooked(store, journal, flights, sealed)
        self._store = store
        self._host = host
        self._journal = journal
        self._flights = flights
        self._deps: Any = None
        self._has_deps = False
        # held for the drive, so that its calls share one handle
        self._workspace: Workspace | None = None

    async def start(self, action: StartCalls, crew: Crew) -> bool:
        """Journal the intents in one write, then start the calls (law 3).

        A sync tool needs a thread: its intent is written once a slot is held. False when no call
        could be started yet; the decision is then taken anew.
        """
        if not self._has_deps:
            await self._make_deps()
            return True
        run = self._journal.state.run
        taken: list[tuple[int, ev.ToolStarted]] = []
        held = 0
        if not await self._walls_are_known(action, crew):
            return True
        for step, event in action.starts:
            is_async = crew.agent.tools[self._tool_of(event)].body.is_async
            if is_async or self._host.slots.try_acquire():
                held += not is_async
                taken.append((step, event))
        if not taken:
            return await self._wait_for_slot()
        launched = False
        try:
            beside = self._consent.beside(taken, self._host.clock.now_us())
            walls = self._host.walls.facts(run, self._walled(taken, crew), crew.agent.tools)
            self._journal.decide([*walls, *taken], beside)
            launched = await self._journal.flush()
        finally:
            if not launched:
                for _ in range(held):
                    self._host.slots.release()
        if launched:
            self._host.walls.told(run, walls)
            calls = self._journal.state.calls
            for _, event in taken:
                self._launch(calls[event.call], crew)
        return True

    def _tool_of(self, event: ev.ToolStarted) -> str:
        return event.tool or self._journal.state.calls[event.call].tool

    def _walled(self, starts: Starts, crew: Crew) -> Starts:
        """The starts of tools that run behind walls, each with the name of its tool."""
        tools = crew.agent.tools
        return [
            (step, msgspec.structs.replace(event, tool=tool))
            for step, event in starts
            if tools[tool := self._tool_of(event)].sandbox is not None
        ]

    async def _walls_are_known(self, action: StartCalls, crew: Crew) -> bool:
        """Whether the rungs of these calls are known; else they were tried, and it is anew.

        Raises:
            ToolsUnready: trying them takes too long.
        """
        walls = self._host.walls
        untried = walls.untried(self._walled(action.starts, crew), crew.agent.tools)
        if not untried:
            return True
        await self._journal.flush()  # what is known is not kept waiting (law 3)
        work = walls.try_out(untried)
        try:
            await attend(work, "trying the sandbox", self._store, self._journal, self._flights)
        except TimeoutError as error:
            raise ToolsUnready(str(error)) from error
        return False

    async def _wait_for_slot(self) -> bool:
        if self._flights:
            return False  # one of our own may give a slot back: let it land first
        await self._journal.flush()
        try:
            async with asyncio.timeout(SLOT_WAIT_S):
                await self._host.slots.acquire()
            self._host.slots.release()
        except TimeoutError:
            pass
        await self._journal.catch_up()
        return True

    def _launch(self, call: Call, crew: Crew) -> None:
        tool = crew.agent.tools[call.tool]
        spec = tool.spec
        arguments = self._arguments(call, spec)
        timeout_s = spec.timeout_us / 1e6
        if isinstance(arguments, Problem):  # a check that changed its mind; nothing was called
            self._flights.add(call.id, NOTHING, timeout_s)
            self._flights.land(call.id, _not_called(call, arguments.message), NOTHING)
            if not tool.body.is_async:
                self._host.slots.release()
            return
        context = self._context(call, spec, timeout_s)
        flight = ToolFlight(
            call, context, self._flights, self._host.clock, partial(self._late, call, spec)
        )
        flight.start(tool, arguments, _finish(tool), self._host)

    async def probe(self, asked: str, crew: Crew) -> bool:
        """Ask a tool's probe whether a call took effect; False as for `start`."""
        if f"probe {asked}" in self._flights:
            return False
        if not self._has_deps:
            await self._make_deps()
            return True
        await self._journal.flush()
        call = self._journal.state.calls.get(asked)
        if call is None or call.status is not CallStatus.UNKNOWN:
            return True  # a person, or the tool itself, was faster
        tool = crew.agent.tools[call.tool]
        arguments = self._arguments(call, tool.spec)
        key = f"probe {call.id}"
        if tool.probe is None or isinstance(arguments, Problem):
            self._flights.add(key, NOTHING, 0)
            self._flights.land(key, _no_probe(call), NOTHING)
            return True
        if not tool.probe.is_async and not self._host.slots.try_acquire():
            return await self._wait_for_slot()
        timeout_s = tool.spec.timeout_us / 1e6
        context = self._context(call, tool.spec, timeout_s)
        slots, threads = self._host.slots, self._host.threads
        running = start(tool.probe, arguments, context, slots=slots, threads=threads)
        self._flights.launch(
            key, perform_probe(running, call), timeout_s, partial(_no_answer, call)
        )
        return True

    async def _make_deps(self) -> None:
        """Once a drive, for tools and probes alike."""
        places = self._host.workspaces
        if places is not None:
            self._workspace = await workspace_of(places, self._store, self._journal.state)
        if self._host.makes_deps:
            await self._journal.flush()  # what is known is not kept waiting (law 3)
        work = self._host.deps(self._journal.state)
        try:
            found = await attend(
                work, "the deps factory", self._store, self._journal, self._flights
            )
        except TimeoutError as error:
            raise DepsFailed(str(error)) from error
        if found is not None:
            (self._deps,) = found
            self._has_deps = True

    def _arguments(self, call: Call, spec: ToolSpec) -> dict[str, Any] | Problem:
        """What the tool is called with: handles it may take are the secrets again."""
        restored = self._sealed.restored(call.arguments, spec.secrets)
        if isinstance(restored, Problem):
            return restored
        found = spec.check(restored)
        if isinstance(found, Problem) and restored != call.arguments:  # what it says may hold it
            return Problem(message="with the secret put back its arguments do not fit")
        return found

    def _find_tools(self, query: str, limit: int) -> dict[str, str]:
        """Tools that fit a query and are not on offer yet: name to description."""
        state = self._journal.state
        crew = self._host.crew(state.agent)
        if not crew.rules.catalogue:
            raise ToolError("this agent has no more tools than a hook withholds in this turn")
        usable = Usable(state, crew.rules)
        others = ((n, w) for n, w in crew.rules.catalogue.items() if n not in state.offered)
        hidden = {name: words for name, words in others if usable(name)}
        found = choose(hidden, query, frozenset(), limit)
        said = {schema.name: schema.description for schema in crew.schemas}
        return {name: said[name] for name in found}

    def _context(self, call: Call, spec: ToolSpec, timeout_s: float) -> Context[Any]:
        state, watchers = self._journal.state, self._host.watchers
        run, store = state.run, self._store

        def on_progress(message: str, fraction: float | None) -> None:
            said = self._sealed.text(message)
            watchers.observe(run, Progress(run=run, call=call.id, message=said, fraction=fraction))

        async def artifact(wanted: str) -> tuple[str, str] | None:
            return await read_stored(self._journal.state, store, wanted)

        monotonic = self._host.clock.monotonic_us
        catalogue = self._host.crew(state.agent).rules.catalogue
        return Context(
            run_id=run,
            session=state.created.session if state.created else "",
            step=call.step,
            call_id=call.id,
            attempt=call.attempt,
            tool=call.tool,
            principal=state.principal,
            key=lambda: call.key,
            deps=self._deps,
            timeout_s=timeout_s,
            monotonic=lambda: monotonic() / 1e6,
            on_progress=on_progress,
            lock_path=lambda: store.lock_path(run, call.id),
            artifact=artifact,
            artifacts=len(state.artifacts),
            history=self._search,
            tools=self._find_tools if catalogue or state.withheld else None,
            workspace=self._workspace,
            sandbox=self._host.walls.minimum,
            memory=self._host.desk(store, state, call, self._sealed.text),
            secret=partial(self._secret, spec),
        )

    def _search(self, query: str, limit: int) -> list[Found]:
        state = self._journal.state
        return search(state.messages, query, limit, state.view)

    def _secret(self, spec: ToolSpec, name: str) -> str:
        if name not in {declared for _, declared in spec.secrets}:
            problem = f"{spec.name} does not declare the secret {name!r}"
            raise ConfigError("ctx.secret", problem, f'Write @tool(secrets=("{name}",))')
        try:
            return self._sealed.value_of(name)
        except KeyError:
            problem = f"the secret {name!r} is not registered for this principal"
            raise ConfigError("ctx.secret", problem, "Add it to Runtime(secrets=...)") from None

    def _late(self, call: Call, spec: ToolSpec, ok: bool, value: Any) -> None:
        if ok:
            result = self._sealed.value(value if isinstance(value, msgspec.Raw) else _json(value))
            short = capped(result, spec.result_bytes)
            command = Late(call=call.id, ok=True, result=short, attempt=call.attempt)
        else:
            found = classify(value, call.effect)
            if found.kind == "unsure":  # it is no news that nobody knows
                return
            said = self._sealed.text(found.message)[:MESSAGE_CHARS]
            command = Late(call=call.id, ok=False, message=said, attempt=call.attempt)
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:  # the loop is gone, and the process is about to be
            log.warning("call %s ended after its process's loop was closed", call.id)
            return
        task = loop.create_task(self._write_late(command, call.attempt))
        _late_writes.add(task)
        task.add_done_callback(_late_writes.discard)

    async def _write_late(self, command: Late, attempt: int) -> None:
        store, run = self._store, self._journal.state.run

        async def settled() -> RunState:
            seen = await load(store, run)
            while _at_work(seen, command.call, attempt):  # its owner's word must stand first
                if not await store.changed(run, seen.seq, LATE_S):
                    break
                seen = await load(store, run)
            return seen

        with suppress(CairnError):  # it stands in the log, and nobody waits for it
            await deliver(store, run, [command], self._host.clock, settled)


async def deliver(
    store: Store,
    run: str,
    outcomes: Sequence[Late],
    clock: Clock,
    seen: Callable[[], Awaitable[RunState]] | None = None,
) -> None:
    """Write late outcomes; while the store is busy they are tried again, as those in time are.

    The patience is one for all of them: the end of a process must not wait for each.

    Args:
        store, run: Where they belong.
        outcomes: In the order they are written in.
        clock: Says when it is.
        seen: Gives the state an outcome is put on; the run's present one by default.

    Raises:
        CairnError: one could not be written; it and those behind it are named in the log.
    """
    read = seen if seen is not None else partial(load, store, run)
    left = list(outcomes)
    busy = 0
    while left:
        try:
            await store.submit(run, await read(), left[0], clock.now_us())
        except CairnError as error:
            busy += isinstance(error, StoreBusy)
            if isinstance(error, StoreBusy) and busy < PATIENCE:
                continue
            for late in left:
                log.warning("the late outcome of %s/%s is lost: %s", run, late.call, error)
            raise
        del left[0]


def _at_work(state: RunState, call_id: str, attempt: int) -> bool:
    call = state.calls.get(call_id)
    return call is not None and call.status is CallStatus.STARTED and call.attempt == attempt


def _finish(tool: Tool[..., Any]) -> Finish:
    """What makes a returned value storable, where it was returned."""
    if tool.spec.sources:
        return _as_it_is
    if tool.spec.effect == "read":
        return to_json
    return _json


def _as_it_is(value: Any) -> Any:
    return value


def _json(value: Any) -> msgspec.Raw:
    """The value as JSON; for an effect that has happened, at least words that say so."""
    try:
        return to_json(value)
    except UnserialisableResult as error:
        return stand_in(error)


def _not_called(call: Call, message: str) -> ToolBack:
    return ToolBack(
        call=call.id,
        attempt=call.attempt,
        kind="failed",
        error_class=ErrorClass.INVALID_ARGUMENTS,
        message=message,
        not_done=True,
    )


def _no_probe(call: Call) -> ProbeBack:
    return ProbeBack(call=call.id, verdict="unknown", message="the tool has no probe any more")


def _no_answer(call: Call, reason: Reason) -> ProbeBack:
    said = "the probe gave no answer in time"
    return ProbeBack(call=call.id, verdict="unknown", message=said, cut=reason == "cancelled")


class _Nothing:
    """A flight that has landed already."""

    def cancel(self, reason: Reason) -> None:
        """There is nothing to stop."""

    def overdue(self) -> Back:
        """Never asked for: it lands where it is added."""
        raise AssertionError("it has landed")


NOTHING = _Nothing()
