"""The verbs by which a person acts in the agent's place, and hands the run back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from cairn.core import commands as cmd
from cairn.core.messages import Principal
from cairn.core.rules import Problem
from cairn.core.state import RunState
from cairn.engine.backs import capped
from cairn.engine.given import person_of, turn_of
from cairn.engine.load import load
from cairn.engine.result import Run
from cairn.errors import ConfigError, ToolsUnready, safe_repr
from cairn.runtime.checked import checked
from cairn.runtime.ground import Ground, said_in
from cairn.runtime.twins import twin
from cairn.store.submission import respond
from cairn.tools.results import UnserialisableResult, to_json

NOTHING = object()


def _results(did: object) -> dict[str, msgspec.Raw]:
    """What was done by hand, by call. Raises `ConfigError`."""
    given = {} if did is None else did
    if not isinstance(given, Mapping) or not all(isinstance(call, str) for call in given):
        fix = 'Write results by call: {"c3": "sent by post"}'
        raise ConfigError("did", f"{safe_repr(did)} is no mapping of calls", fix)
    return {call: capped(_written(f"did.{call}", value)) for call, value in given.items()}


def _written(field: str, value: object) -> msgspec.Raw:
    """A value as JSON. Raises `ConfigError`."""
    try:
        return to_json(value)
    except UnserialisableResult as error:
        raise ConfigError(field, str(error), "Give text, or what can be written as JSON") from error


class Takeovers(Ground):
    """Acting in the agent's place."""

    @checked
    async def take_over_async(  # noqa: PLR0913 - every option by its name, each with a default
        self,
        run: str,
        reason: str = "",
        *,
        by: Principal | str,
        did: Mapping[str, Any] | None = None,
        evidence: str = "",
        calls: Sequence[Any] = (),
        text: str = "",
        answer: Any = NOTHING,
        hand_back: bool = False,
        message: str = "",
    ) -> Run:
        """Act in the agent's place: the model is not asked until the run is handed back.

        What is at work meanwhile is waited for. Each of the following is a fact of its own,
        recorded in this order. They are tried against the journal first: if one of them does not
        fit, nothing is written. Where a person is asked, a plan changed or an unknown effect
        settled, the verbs for that do as ever.

        Args:
            reason: Why; kept. Needed to begin, and only then.
            by: Who acts; kept as the facts' actor. Only they can act until somebody else takes
                the run over from them.
            did: What was done by hand of calls that were never started: results by call (`c3`),
                as the model reads them.
            evidence: How that is known; kept.
            calls: The next turn: pairs of a tool and its arguments, or `cairn.call(...)`. They
                pass the gate like the model's own, one after the other.
            text: What is said with them.
            answer: The final answer, in place of calls. It must pass the output type and the
                completion checks; no call may be open. The run ends with it when it goes on
                (`resume`); a run with an answer is not handed back.
            hand_back: Whether the agent goes on at once; `message` is what it is told.

        Raises:
            Refused: it is somebody else's, not possible now, or over a limit of the run.
            ConfigError: nobody is named, or the agent cannot take what is given.
            ToolsUnready: a tool may be of a server that cannot be reached.
            UnknownRun: there is no such run or call. IllegalTransition: the run is over.
        """
        who = person_of(by, ()).id
        turn = turn_of(calls)
        state = await load(self.store, run)
        if answer is not NOTHING:
            if turn or text:
                raise ConfigError("takeover", "an answer makes no calls", "Give one or the other")
            text = self._answer(state, answer)
        results = _results(did)
        reason, evidence = said_in("reason", reason), said_in("evidence", evidence)
        message, text = said_in("message", message), said_in("text", text)
        await self._check_turn(state, turn)
        acts: list[cmd.Command] = []
        if not who or state.taken != who:
            acts.append(cmd.TakeOver(by=who, reason=reason))
        for call, result in results.items():
            acts.append(cmd.DoneByHand(by=who, call=call, result=result, evidence=evidence))
        if turn or text.strip():
            acts.append(cmd.TakeTurn(by=who, text=text, calls=turn))
        if hand_back:
            acts.append(cmd.HandBack(by=who, message=message))
        tried = state
        for act in acts:  # against what is known now: what does not fit must not begin anything
            tried, _ = respond(tried, act, self.host.clock.now_us(), who)
        for act in acts:
            state = (await self.client.submit(run, act, who)).state
        return await self._after(state)

    @checked
    async def hand_back_async(
        self, run: str, message: str = "", *, by: Principal | str = ""
    ) -> Run:
        """Let the agent go on; it is told that a person acted, and the message.

        Raises:
            Refused: `by` is not who has taken the run over, or they have given the final answer,
                with which it ends.
        """
        who = person_of(by, ()).id
        back = cmd.HandBack(by=who, message=said_in("message", message))
        return await self._after((await self.client.submit(run, back, who)).state)

    def _answer(self, state: RunState, answer: Any) -> str:
        """A final answer as text, if the agent's output type takes it."""
        text = answer if isinstance(answer, str) else bytes(_written("answer", answer)).decode()
        if not text.strip():
            raise ConfigError("answer", "it is empty", "Say what the agent should have said")
        if state.agent in self.host.agents:
            output = self.host.crew(state.agent).output
            problem = output.problem(text) if output is not None else ""
            if problem:
                raise ConfigError("answer", problem, "Give what the agent's output type takes")
        return text

    async def _check_turn(self, state: RunState, turn: tuple[tuple[str, str], ...]) -> None:
        """A person who types arguments that do not fit is told so at once."""
        if state.agent not in self.host.agents:
            return
        why = await self.host.reach(state.agent, [name for name, _ in turn])
        tools = self.host.crew(state.agent).rules.tools
        for name, arguments in turn:
            spec = tools.get(name)
            if spec is None and why:
                raise ToolsUnready(
                    f"whether agent {state.agent} has a tool {safe_repr(name)}: {why}"
                )
            if spec is None:
                said = f"agent {state.agent} has no tool {safe_repr(name)}"
                raise ConfigError("calls", said, self._meant(state.agent, name))
            problem = spec.check(arguments)
            if isinstance(problem, Problem):
                raise ConfigError(f"calls.{name}", problem.message, f"See what {name} takes")

    take_over = twin(take_over_async)
    hand_back = twin(hand_back_async)
