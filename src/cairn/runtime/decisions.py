"""The verbs by which people decide, stop a run, or let it go on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from cairn.core import commands as cmd
from cairn.core.gate import bound_paths
from cairn.core.guard import canonical
from cairn.core.lifecycle import CallStatus
from cairn.core.limits import Limits
from cairn.core.messages import PlanItem, Principal, clean
from cairn.core.rules import Problem
from cairn.core.state import Call, RunState
from cairn.core.terms import BoundFile
from cairn.engine.backs import capped
from cairn.engine.client import Submitted
from cairn.engine.files import Unbindable, bind, check_unchanged
from cairn.engine.given import (
    Edits,
    Given,
    arguments_of,
    check_request,
    check_seq,
    commands_of,
    person_of,
)
from cairn.engine.load import fold_entries, load
from cairn.engine.result import Run
from cairn.engine.worker import POLL_S, drive
from cairn.errors import ConfigError, Refused
from cairn.runtime.checked import checked
from cairn.runtime.ground import ENDED, Ground, said_in
from cairn.runtime.twins import twin
from cairn.tools.results import to_json

NOTHING = object()
UNCHECKED = (
    "the new arguments were not checked here, where nobody knows the agent: "
    "that is done when the run goes on, and arguments that do not fit are rejected then"
)


NOT_REACHED = (
    "the new arguments of {} were not checked here ({}): "
    "that is done when the run goes on, and arguments that do not fit are rejected then"
)


class Decisions(Ground):
    """Deciding about runs."""

    @checked
    async def approve_async(
        self,
        request: str,
        message: str = "",
        *,
        by: Principal | str = "",
        roles: tuple[str, ...] = (),
        digest: str = "",
        arguments: Mapping[str, Any] | str | None = None,
    ) -> Run:
        """Let the call of a request (`run/1`) run, once, exactly as shown, or as `arguments` say.

        Records the decision. A run that was handed over by `start` goes on by itself; any other
        goes on when it is run or resumed again, or where a worker drives it.

        Other arguments are one decision with the yes: bound to what they say, checked and
        authorised anew before the call starts. The model reads that a person changed the call.

        What was approved like this before is not approved again: nothing is written, and the
        result's `note` says whose yes stands, and since when.

        Args:
            by: Who decides, as a principal or its id; kept as the event's actor.
            roles: The roles of who decides, beside those of the principal.
            digest: The request's digest as it was shown; another one is refused.
            arguments: To run in place of what was shown: a mapping or JSON text.

        Raises:
            Refused: it has expired, was decided otherwise, this person may not decide it, or a
                file it is bound to has changed since it was asked; says what is missing.
            UnknownRun: there is no such request.
            ConfigError: the tool does not take these arguments.
        """
        who, message = person_of(by, roles), said_in("message", message)
        run, n = check_request(request)
        text = "" if arguments is None else arguments_of(arguments)
        files: tuple[BoundFile, ...] = ()
        state = await load(self.store, run)
        call = next((c for c in state.calls.values() if c.approval == n), None)
        known = state.agent in self.host.agents
        note = "" if known else UNCHECKED
        if call is not None and known and call.status is CallStatus.ASKING:
            if not text or canonical(text) == canonical(call.arguments):
                await check_unchanged(self.host.workspaces, self.store, state, request, call)
            else:
                note, files = await self._fitting(state, call, text)
        done = await self.client.approve(
            request, message, who.id, digest, roles=who.roles, arguments=text, files=files
        )
        if text and note and done.entry is not None:
            done = msgspec.structs.replace(done, note=note)
        return await self._decided(request, done)

    async def _decided(self, request: str, done: Submitted) -> Run:
        """The run after a decision, and what there is to say of it."""
        run = await self._after(done.state)
        note = f"{request} {done.note}" if done.note and done.entry is None else done.note
        return msgspec.structs.replace(run, note=note)

    async def _fitting(
        self, state: RunState, call: Call, text: str
    ) -> tuple[str, tuple[BoundFile, ...]]:
        """Why other arguments of a call were not checked, and the files that they name.

        The files come with what is in them now. A person who types arguments that do not fit is
        told so at once.
        """
        note = await self._check(state, (cmd.EditCall(call=call.id, arguments=text),))
        spec = self.host.crew(state.agent).rules.tools.get(call.tool)
        values = spec.check(text) if spec is not None else None
        if spec is None or spec.binds is None or not isinstance(values, dict):
            return note, ()
        paths = bound_paths(spec, values)
        try:
            given = () if isinstance(paths, str) else paths
            return note, await bind(self.host.workspaces, self.store, state, given)
        except Unbindable as error:
            raise Refused(f"nobody can approve that: {error}") from error

    @checked
    async def deny_async(
        self,
        request: str,
        message: str = "",
        *,
        by: Principal | str = "",
        roles: tuple[str, ...] = (),
    ) -> Run:
        """Refuse the call of a request; the model reads the message as typed.

        Who may approve it may deny it; `by` and `roles` are as for `approve`.
        """
        who, message = person_of(by, roles), said_in("message", message)
        done = await self.client.deny(request, message, who.id, roles=who.roles)
        return await self._decided(request, done)

    @checked
    async def answer_async(self, request: str, text: str, *, by: str = "") -> Run:
        """Answer a question of the agent.

        Raises:
            ConfigError: `text` is no text, or `request` names none.
        """
        said = said_in("text", text)
        return await self._after((await self.client.answer(request, said, by)).state)

    @checked
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
        done = await self.client.resolve(call, verdict, raw, evidence, by)
        return await self._after(done.state)

    @checked
    async def pause_async(self, run: str, reason: str = "", *, by: str = "") -> Run:
        """Start nothing new in a run; what is in flight is waited for."""
        await self.client.submit(run, cmd.Pause(reason=clean(reason)), by)
        return await self.get_async(run)

    @checked
    async def resume_async(self, run: str, *, by: str = "") -> Run:
        """End a pause if there is one, and drive the run until it settles."""
        info = await self.store.info(run)
        if info.status not in ENDED:
            await self.client.submit(run, cmd.Resume(), by)
        return await self.drive_async(run)

    @checked
    async def cancel_async(self, run: str, reason: str = "", *, by: str = "") -> Run:
        """End a run and wait until it has ended; needs no agent. Ended runs stay as they are."""
        await self.client.submit(run, cmd.Cancel(reason=clean(reason)), by)
        while (info := await self.store.info(run)).status not in ENDED:
            await drive(self.store, run, self.host)  # a paused run counts as settled before its end
            if not self.host.draining:
                await self.store.changed(run, info.head, POLL_S)
        return await self.get_async(run)

    @checked
    async def edit_async(
        self,
        run: str,
        *,
        call: str = "",
        arguments: Mapping[str, Any] | str | None = None,
        plan: Sequence[str | Mapping[str, Any] | PlanItem] | str | None = None,
        message: Given = "",
        by: str = "",
    ) -> Run:
        """Change what a live run does next. What it has done stands, and so does what was said.

        New arguments pass the same gate as the model's: they are checked and authorised anew
        before the call starts, and an approval given before is void. The model reads with the
        result that a person changed the call and what ran. Each of arguments, plan and message
        is a fact of its own, recorded in this order; if one is refused, those before it stand.

        Args:
            call: A call that has not started (`c3`), to be given `arguments`: a mapping or JSON
                text. The tool stays the same.
            plan: Replaces the agent's plan: a list of texts or items, or text of one line for
                each; the model is told of it.
            message: Said to the agent at its next turn.
            by: Who edits; kept as the events' actor.

        Raises:
            Refused: the call has started or ended, or the run is ending.
            UnknownRun: there is no such run or call. IllegalTransition: the run is over.
            ConfigError: there is nothing to change, or the tool does not take these arguments.

        Where nobody knows the agent, or the server of the tool cannot be reached, the result's
        `note` says that new arguments were not checked here.
        """
        if bool(call) != (arguments is not None):
            raise ConfigError("edit", "a call and its arguments belong together", "Pass both")
        commands = commands_of(
            {
                "arguments": {call: arguments} if arguments is not None else {},
                "plan": plan,
                "message": message,
            }
        )
        if not commands:
            raise ConfigError("edit", "nothing is changed", "Pass call=, plan= or message=")
        state = await load(self.store, run)
        note = await self._check(state, commands)
        for command in commands:
            state = (await self.client.submit(run, command, by)).state
        return msgspec.structs.replace(await self._after(state), note=note)

    @checked
    async def restore_context_async(self, run: str, *, by: str = "") -> Run:
        """Take the last compaction of a live run back: what it stood for is sent again.

        What is too large for the model's window is condensed anew before the next request.

        Raises:
            Refused: nothing was condensed, or the reply of the model has not come yet.
            UnknownRun: there is no such run. IllegalTransition: the run is over.
        """
        return await self._after((await self.client.submit(run, cmd.Restore(), by)).state)

    async def _check(self, state: RunState, commands: Sequence[cmd.Command]) -> str:
        """A person who types arguments that do not fit is told so at once, not the model.

        Returns:
            Why some were not checked; empty when all were.
        """
        edits = [c for c in commands if isinstance(c, cmd.EditCall) and c.call in state.calls]
        if state.agent not in self.host.agents:
            return UNCHECKED if edits else ""
        names = {edit.call: state.calls[edit.call].tool for edit in edits}
        why = await self.host.reach(state.agent, names.values())
        tools = self.host.crew(state.agent).rules.tools
        note = ""
        for edit in edits:
            name = names[edit.call]
            spec = tools.get(name)
            if spec is None:
                note = NOT_REACHED.format(edit.call, why or f"there is no tool {name!r}")
                continue
            problem = spec.check(edit.arguments)
            if isinstance(problem, Problem):
                fix = f"See what {name} takes"
                raise ConfigError(f"arguments of {edit.call}", problem.message, fix)
        return note

    @checked
    async def fork_async(
        self,
        run: str,
        at: int,
        *,
        edits: Edits | None = None,
        id: str = "",
        limits: Limits | Mapping[str, int] | None = None,
        by: str = "",
        drive: bool = True,
    ) -> Run:
        """Go on from event `at` of a run as a new run, with what `edits` change; drive it.

        The new run shares the journal up to `at` and does the rest anew. What the old run did
        after `at` STAYS DONE in the world, and is done again if the new run comes to it. What
        was done before `at` is done, and cannot be edited: history is never rewritten. What the
        new run has spent starts at zero.

        Args:
            at: Number of an event at which nothing was in flight, unknown, or approved and not
                done yet.
            edits: `arguments` of calls that had not started (by call), `plan` and `message`;
                each becomes an event of the new run.
            id: Its run id; a fresh one by default. The same fork under the same id is one run.
            limits: Replace the old bounds, a mapping only those it names.
            by: Who forks; kept as the events' actor.
            drive: False: make it only, for a worker or `drive`.

        Raises:
            Refused: it cannot be forked there (names the nearest events), or an edit is too late.
            UnknownRun: there is no such run, event or call. RunConflict: the id is taken.
        """
        commands = commands_of(edits or {})
        note = ""
        if any(isinstance(command, cmd.EditCall) for command in commands):
            seen = (await self.store.info(run)).head
            entries = await self.store.read(run, upto=check_seq(run, at, seen))
            note = await self._check(await fold_entries(self.store, run, entries), commands)
        new = await self.client.fork(run, at, edits=commands, new=id, limits=limits, actor=by)
        found = await self.drive_async(new) if drive else await self.get_async(new)
        return msgspec.structs.replace(found, note=note or found.note)

    @checked
    async def retry_async(
        self, run: str, *, id: str = "", limits: Limits | Mapping[str, int] | None = None
    ) -> Run:
        """Go on from just before the end of a failed, stopped or cancelled run, as a new run.

        What it has spent starts at zero; no started effect is cut off.

        Args:
            id: Its run id. Without one it is the same run whenever and by whoever the run is
                retried; one of its own makes another retry, which knows nothing of the first.
            limits: Replace the old bounds, a mapping only those it names.

        Raises:
            IllegalTransition: the run is not over, it completed, its session has gone on, or its
                retry ended badly: then that one is to be retried.
            RunConflict: the id is taken, or the retry was made with other limits.
            UnknownRun: there is no such run.
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
    edit = twin(edit_async)
    restore_context = twin(restore_context_async)
    fork = twin(fork_async)
    retry = twin(retry_async)
