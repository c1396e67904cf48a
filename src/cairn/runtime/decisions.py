"""The verbs by which people decide, stop a run, or let it go on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from cairn.core import commands as cmd
from cairn.core.limits import Limits
from cairn.core.messages import clean
from cairn.engine.backs import capped
from cairn.engine.result import Run
from cairn.engine.worker import POLL_S, drive
from cairn.errors import ConfigError
from cairn.runtime.ground import ENDED, Ground
from cairn.runtime.twins import twin
from cairn.tools.results import to_json

NOTHING = object()


class Decisions(Ground):
    """Deciding about runs."""

    async def approve_async(
        self, request: str, message: str = "", *, by: str = "", digest: str = ""
    ) -> Run:
        """Let the call of a request (`run/1`) run, once, exactly as shown.

        Records the decision. A run that was handed over by `start` goes on by itself; any other
        goes on when it is run or resumed again, or where a worker drives it.

        Args:
            by: Who decides; kept as the event's actor.
            digest: The request's digest as it was shown; another one is refused.

        Raises:
            Refused: it has expired or was decided otherwise. UnknownRun: there is none.
        """
        return await self._after(await self.client.approve(request, message, by, digest))

    async def deny_async(self, request: str, message: str = "", *, by: str = "") -> Run:
        """Refuse the call of a request; the model reads the message as typed."""
        return await self._after(await self.client.deny(request, message, by))

    async def answer_async(self, request: str, text: str, *, by: str = "") -> Run:
        """Answer a question of the agent."""
        return await self._after(await self.client.answer(request, text, by))

    async def resolve_async(
        self,
        call: str,
        *,
        happened: bool | None = None,
        result: Any = NOTHING,
        give_up: bool = False,
        evidence: str = "",
        by: str = "",
    ) -> Run:
        """Say what came of a call (`run/c4`) whose effect is unknown.

        Args:
            happened: True: it took effect, `result` is what the model reads. False: it did not,
                and it is run again under the policy.
            give_up: Nobody can tell: the run fails, the call stays listed.
            evidence: How this is known; kept.

        Raises:
            Refused: there is nothing unknown, or the call may still be at work.
            ConfigError: neither or both of `happened` and `give_up` are given.
        """
        if give_up == (happened is not None):
            raise ConfigError(
                "resolve", "say exactly one thing", "Pass happened=True, =False, or give_up=True"
            )
        verdict: Literal["happened", "not_happened", "given_up"] = "given_up"
        if happened is not None:
            verdict = "happened" if happened else "not_happened"
        raw = capped(to_json(None if result is NOTHING else result))
        state = await self.client.resolve(call, verdict, raw, evidence, by)
        return await self._after(state)

    async def pause_async(self, run: str, reason: str = "", *, by: str = "") -> Run:
        """Start nothing new in a run; what is in flight is waited for."""
        await self.client.submit(run, cmd.Pause(reason=clean(reason)), by)
        return await self.get_async(run)

    async def resume_async(self, run: str, *, by: str = "") -> Run:
        """End a pause if there is one, and drive the run until it settles."""
        info = await self.store.info(run)
        if info.status not in ENDED:
            await self.client.submit(run, cmd.Resume(), by)
        return await self.drive_async(run)

    async def cancel_async(self, run: str, reason: str = "", *, by: str = "") -> Run:
        """End a run and wait until it has ended; needs no agent. Ended runs stay as they are."""
        await self.client.submit(run, cmd.Cancel(reason=clean(reason)), by)
        while (info := await self.store.info(run)).status not in ENDED:
            await drive(self.store, run, self.host)  # a paused run counts as settled before its end
            if not self.host.draining:
                await self.store.changed(run, info.head, POLL_S)
        return await self.get_async(run)

    async def retry_async(
        self, run: str, *, id: str = "", limits: Limits | Mapping[str, int] | None = None
    ) -> Run:
        """Go on from just before the end of a failed, stopped or cancelled run, as a new run.

        What it has spent starts at zero; no started effect is cut off. `limits` replace the old
        bounds, a mapping only those it names.
        """
        new = await self.client.retry(run, id, limits)
        return await self.drive_async(new)

    approve = twin(approve_async)
    deny = twin(deny_async)
    answer = twin(answer_async)
    resolve = twin(resolve_async)
    pause = twin(pause_async)
    resume = twin(resume_async)
    cancel = twin(cancel_async)
    retry = twin(retry_async)
