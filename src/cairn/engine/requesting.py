"""Asking a model: what the request holds, leave to make it, its intent, and off it goes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from cairn.block import Briefing, ContextBlock, text_of
from cairn.core import events as ev
from cairn.core import messages as said
from cairn.core.actions import AskModel
from cairn.core.context import faults
from cairn.core.decide import decide
from cairn.core.events.model import NO_TOOLS
from cairn.core.evolve_context import with_blocks
from cairn.core.messages import clean
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.core.view import WHOLE, View, sent
from cairn.crew import Crew
from cairn.engine.attend import attend, stand_in_line
from cairn.engine.flights import Flights
from cairn.engine.host import Host
from cairn.engine.journal import OpenJournal
from cairn.engine.offering import narrowed_tools
from cairn.engine.perform import ModelCall, model_for, offered
from cairn.errors import ConfigError, ErrorClass, Fenced, StoreError, words_of
from cairn.governance.secrets import Sealed
from cairn.ports import Lane, Model, Permit, Store


class Requester:
    """Makes the model requests of one drive of a run."""

    def __init__(
        self,
        store: Store,
        host: Host,
        journal: OpenJournal,
        flights: Flights,
        sealed: Sealed,
        take_in: Callable[[], None],
        rules: Callable[[], Rules],
    ) -> None:
        self._store = store
        self._host = host
        self._journal = journal
        self._flights = flights
        self._sealed = sealed
        self._take_in = take_in
        self._rules = rules
        self._checked = 0
        self._seen = WHOLE

    async def ask(self, action: AskModel, crew: Crew) -> None:
        """Make a request; nothing is done when there is news on the way."""
        journal = self._journal
        model = self._model(action, crew)
        if not await self._is_ready(model):
            return
        blocks: tuple[ev.Block, ...] = ()
        turn = action.purpose == "turn"
        if turn:
            made = await self._blocks(action, crew)
            if made is None:
                return
            blocks = made
            decided = self._decided_again(action, crew, blocks)
            if decided is None:
                return
            action, before = decided, model
            model = self._model(action, crew)
            if model is not before and not await self._is_ready(model):
                return
            if wrong := self._faults(journal.state, action.view):
                failed = ev.RunFailed(error_class=ErrorClass.INTERNAL, message="; ".join(wrong))
                journal.decide([(0, failed)])
                return
        lane: Lane | None = getattr(model, "lane", None)
        if lane is None:
            await self._request(action, crew, blocks, None)
            return
        permit = await self._permit(lane, action.reserved.tokens)
        if permit is None:
            return
        launched = False
        try:
            launched = await self._request(action, crew, blocks, permit)
        finally:
            if not launched:
                permit.close(ErrorClass.CANCELLED)

    def _model(self, action: AskModel, crew: Crew) -> Model:
        """The model that the request is to be made to."""
        state = self._journal.state
        if action.fallback:
            state = msgspec.structs.replace(state, model=action.fallback)
        return model_for(state, crew, action.purpose)[0]

    def _decided_again(
        self, action: AskModel, crew: Crew, blocks: tuple[ev.Block, ...]
    ) -> AskModel | None:
        """The request as it is with its computed blocks; None when another step comes first.

        What they take is known only now. Where the request must be made smaller for them, that
        is a decision on facts: the blocks are journaled, and all is decided anew.
        """
        if not any(block.computed for block in crew.agent.blocks):
            return action
        journal = self._journal
        again = decide(with_blocks(journal.state, blocks), self._rules(), journal.tick())
        if isinstance(again, AskModel) and again.purpose == "turn":
            return again
        journal.decide([(0, ev.ContextUpdated(blocks=blocks))])
        return None

    def _faults(self, state: RunState, view: View | None) -> list[str]:
        """What is wrong with the messages: the new ones, or all when the view has changed."""
        if view is None and self._seen == state.view:
            return faults(state.messages[self._checked :])
        return faults(sent(state.messages, view or state.view, state.summary))

    async def _is_ready(self, model: Model) -> bool:
        """Have a model load what its first request needs; False when news came meanwhile."""
        loading = self._host.loading(model)
        if loading is None:
            return True
        # loading may take seconds: what is known goes first (law 3), and no deadline runs yet
        journal = self._journal
        state = journal.state
        await journal.flush()
        if journal.state is not state:
            loading.close()
            return False
        what = f"loading what {model.name} needs"
        found = await attend(loading, what, self._store, journal, self._flights)
        journal.tick()
        return found is not None

    async def _permit(self, lane: Lane, tokens: int) -> Permit | None:
        """Leave to make a request; None when there is news, and it must be decided anew."""
        permit = lane.try_enter(tokens)
        if permit is not None:
            return permit
        # the wait may be long: what is known goes first (law 3)
        journal, host = self._journal, self._host
        state = journal.state
        await journal.flush()
        if journal.state is not state:
            return None
        permit = await stand_in_line(
            lane, tokens, self._store, journal, self._flights, lambda: host.draining
        )
        journal.tick()
        if permit is None:
            self._take_in()
        return permit

    async def _request(
        self,
        action: AskModel,
        crew: Crew,
        blocks: tuple[ev.Block, ...],
        permit: Permit | None,
    ) -> bool:
        """Write the intent, then make the request; False when news made the decision stale."""
        journal = self._journal
        state = journal.state
        what: dict[str, Any] = {"purpose": action.purpose, "cut": action.cut}
        turn = action.purpose == "turn"
        found = offered(state, crew, action.view or state.view) if turn else ()
        offer = await narrowed_tools(action, crew, found, self._store, journal, self._flights)
        if offer is None:
            return False
        if turn:
            what = {
                "blocks": blocks,
                "messages": len(state.messages),
                "tools": (offer.hash or NO_TOOLS) if offer.hash != state.tools else "",
                "tool_choice": action.tool_choice,
                "output_mode": action.output_mode,
                "view": action.view,
                "withheld": offer.withheld,
                "fallback": action.fallback,
            }
        event = ev.ModelRequested(
            model=action.model, reserved=action.reserved, attempt=action.attempt, **what
        )
        journal.decide([(action.step, event)])
        if not await journal.flush():
            return False
        if turn:
            self._checked = len(state.messages)
            self._seen = journal.state.view
        request = ModelCall(journal.state, crew, self._host, self._sealed, offer.schemas, permit)
        self._flights.launch("model", request.make(), request.timeout_s, request.stopped)
        return True

    # ---------------------------------------------------------------- blocks

    async def _blocks(self, action: AskModel, crew: Crew) -> tuple[ev.Block, ...] | None:
        """The blocks that change with this request; None when news came while they were made."""
        journal, blocks = self._journal, crew.agent.blocks
        if any(block.computed for block in blocks):
            # the request cannot be built without awaiting: what is known goes first (law 3)
            state = journal.state
            await journal.flush()
            if journal.state is not state:
                return None
        found: list[ev.Block] = []
        for block in blocks:
            made = await self._block(block, action)
            if made is None:
                return None
            found.append(made)
        known = journal.state.blocks
        changed = [b for b in found if known.get(b.name, ev.Block(name=b.name)) != b]
        names = {block.name for block in blocks}
        gone = [ev.Block(name=name) for name in known if name not in names]
        return (*changed, *gone)

    async def _block(self, block: ContextBlock, action: AskModel) -> ev.Block | None:
        if isinstance(block.text, str):
            return self._held(block, block.text)
        what = f"the context block {block.name}"
        if block.name == "instructions":
            what = f"the instructions of agent {self._journal.state.agent}"
        work = text_of(block.text, self._briefing(action), what, threads=self._host.threads)
        try:
            found = await attend(work, what, self._store, self._journal, self._flights)
        except (StoreError, Fenced):
            raise
        except Exception as error:  # whatever it is, a block that is not needed is left out
            self._journal.tick()
            why = f"failed: {words_of(error)}"
            if not block.needed:
                self._tell(block, what, why, action.step)
            return self._without(block, what, why)
        self._journal.tick()
        if found is None:
            return None
        text: object = found[0]
        if text is None:
            return self._without(block, what, "it returned None")
        if not isinstance(text, str):
            self._no_text(block, text)
            return None
        return self._held(block, text)

    def _no_text(self, block: ContextBlock, given: object) -> None:
        """What is no text at all is a fault in the code: it ends the run, needed or not."""
        own = block.name == "instructions"
        agent = f"Agent({self._journal.state.agent!r})"
        where = f"{agent}.instructions" if own else f"ContextBlock({block.name!r}).text"
        problem = f"its function returned {type(given).__name__}, which is no text"
        fix = "Return a text" if own else "Return a text, or None to leave the block out"
        error_class = ErrorClass.INTERNAL if own else ErrorClass.DEPENDENCY_FAILED
        message = str(ConfigError(where, problem, fix))
        self._journal.decide([(0, ev.RunFailed(error_class=error_class, message=message))])

    def _held(self, block: ContextBlock, text: str) -> ev.Block | None:
        """The block with its text; one that is too long and needed ends the run."""
        made = block.fitted(self._sealed.text(clean(text)))
        if made.text or not text or not block.needed:
            return made
        return self._without(block, f"the context block {block.name}", made.why)

    def _without(self, block: ContextBlock, what: str, why: str) -> ev.Block | None:
        """The block left out; one that is needed ends the run."""
        said = self._sealed.text(clean(why))[:500]
        if not block.needed:
            return block.missing(said[:200])
        own = block.name == "instructions"  # of the agent itself: it does not depend on them
        error_class = ErrorClass.INTERNAL if own else ErrorClass.DEPENDENCY_FAILED
        message = f"{what}: {said}" if own else f"{what} is needed: {said}"
        self._journal.decide([(0, ev.RunFailed(error_class=error_class, message=message))])
        return None

    def _tell(self, block: ContextBlock, what: str, why: str, step: int) -> None:
        """Have the journal, and what is made of it, say once that the run goes on without it."""
        where = f"block:{block.name}"
        if where in self._journal.state.degraded:
            return
        message = self._sealed.text(clean(f"{what}: {why}"))[:500]
        event = ev.ErrorRaised(
            error_class=ErrorClass.DEPENDENCY_FAILED, message=message, where=where
        )
        self._journal.record([(step, event)])

    def _briefing(self, action: AskModel) -> Briefing:
        state = self._journal.state
        asked = said.text_of(state.messages[state.asked[-1]].parts) if len(state.asked) else ""
        return Briefing(
            run=state.run,
            agent=state.agent,
            principal=state.principal,
            session=state.created.session if state.created else "",
            step=action.step,
            input=asked,
            memory=self._host.desk(self._store, state),
        )
