"""The verbs of a conversation: say something in it, look at it, fork, rewind and name it."""

from __future__ import annotations

from typing import Literal

import msgspec

from cairn.agent import MODES
from cairn.core import commands as cmd
from cairn.core.messages import Part, Principal, Record
from cairn.core.names import listed
from cairn.core.routed import check_begun, check_person
from cairn.engine import following
from cairn.engine import sessions as talk
from cairn.engine.client import Task, new_id, same_person
from cairn.engine.given import (
    Given,
    check_mode,
    check_session,
    check_text,
    parts_of,
    principal_of,
)
from cairn.engine.handed import check_active, has_roles
from cairn.engine.load import load
from cairn.engine.result import Run
from cairn.engine.sessions import Conversation, message_id
from cairn.engine.turns import take_over
from cairn.errors import ConfigError, IllegalTransition, SessionBusy, UnknownRun, safe_repr
from cairn.ports import RunInfo, SessionInfo
from cairn.runtime.checked import checked
from cairn.runtime.ground import ENDED
from cairn.runtime.tasks import LOCAL, Tasks
from cairn.runtime.twins import twin

replace = msgspec.structs.replace
Mode = Literal["steer", "queue", "interrupt"]
TRIES = 16
"""How often a message looks for the end of a conversation that others keep moving."""


class Posted(Record):
    """Where a message is kept, from the moment on that it is acknowledged.

    Args:
        session: Whose it is.
        run: The run that reads it.
        seq: Its event there: 1 when the run is its own, else that of `input.queued`.
        how: `started` a run at once, or waits behind the active one (`queued`, `interrupting`),
            or is read by the active run at its next turn (`steered`).
    """

    session: str
    run: str
    seq: int
    how: Literal["started", "queued", "interrupting", "steered"]


def _none_yet(session: str, agents: list[str]) -> str:
    """That there is no such session, and how it is begun."""
    named = f"; agents here: {listed(agents)}" if agents else ""
    return (
        f"there is no session {session!r}; to begin it, name an agent: agent=... in Python, "
        f"--agent NAME in the command{named}"
    )


def _check_posted(posted: object) -> None:
    if not isinstance(posted, Posted):
        fix = "Give what rt.post or rt.accept has returned; rt.get(run) shows a run by its id"
        raise ConfigError("posted", f"{safe_repr(posted)} is no place of a message", fix)
    check_session(posted.session, "posted.session")


class Sessions(Tasks):
    """Conversations."""

    @checked
    async def send_async(
        self,
        session: str,
        text: Given,
        *,
        agent: str = "",
        principal: Principal | str = LOCAL,
        mode: Mode | None = None,
        id: str = "",
        project: str = "",
    ) -> Run:
        """Say something in a session, and carry the run that reads it to a result or a wait.

        While a run of the session is active, the mode decides. `steer`: that run reads it at its
        next turn. `queue`: it starts a run of its own when that one, and those queued before it,
        are over. `interrupt`: as `queue`, and the active run ends as cancelled as soon as nothing
        of it is in flight. Otherwise a new run starts. What an active run ends without having
        read starts the next run. A message that is to steer waits as with `queue` where the active
        run is of another agent than the named one, or has a role that the principal does not have.

        Args:
            session: Its id.
            text: The message.
            agent: Who begins, or goes on; by default the agent of the run before. A run at work is
                steered only if it is of this agent.
            principal: For whom; a session belongs to one. Its roles are those of this message.
            mode: By default what the agent's `on_message` says, `steer` if that is not known here.
            id: The sender's own id of the message: the same one twice is one message.
            project: The project that the conversation is about, as for `run`.

        Raises:
            UnknownRun: the session is new and no agent was named, or it is another principal's.
            RunConflict: the id is that of another message.
            SessionBusy: others keep moving the session.
            ConfigError: a value is not usable, or the session is new and called as only routing
                calls one.
            UnknownAgent, StoreError.
        """
        posted = await self.post_async(
            session, text, agent=agent, principal=principal, mode=mode, id=id, project=project
        )
        return await self.follow_async(posted)

    @checked
    async def post_async(
        self,
        session: str,
        text: Given,
        *,
        agent: str = "",
        principal: Principal | str = LOCAL,
        mode: Mode | None = None,
        id: str = "",
        project: str = "",
    ) -> Posted:
        """As `send`, but return as soon as the message is kept, and leave the rest to a worker."""
        who = check_person(principal_of(principal))
        await self._check_begun(check_session(session))
        return await self._post(session, text, agent, who, who.id, mode, id, project=project)

    async def _post(
        self,
        session: str,
        text: Given,
        agent: str,
        who: Principal,
        sender: str,
        mode: Mode | None,
        id: str,
        *,
        project: str = "",
    ) -> Posted:
        """Keep a message; the sender is who said it, the principal for whom the work is done."""
        check_session(session)
        check_text("id", id)
        if mode is not None:
            check_mode(mode, MODES)
        parts = parts_of(text)
        own = id if sender == who.id else f"{sender}\0{id}"  # each sender has ids of their own
        key = message_id(session, own) if id else ""
        for _ in range(TRIES):
            line = await self.store.session_open(session)
            last = line[0] if line else await self.store.session_head(session)
            if last is None and not agent:
                raise UnknownRun(_none_yet(session, [*self.host.agents]))
            if last is not None:
                await self._check_owner(session, last, who)
            if key and (where := await self.client.posted(key, parts, who, id)) is not None:
                return await self._as_posted(session, where.run, where.seq, mode)
            name = agent or (last.agent if last is not None else "")
            how = mode or self._mode_of(name)
            if line and how == "steer" and await self._takes(line[0], agent, who):
                if project:
                    await self._check_project(session, line[0].run, who, project)
                posted = await self._steer(session, line[0], parts, who, sender, key)
            else:
                how = "queue" if line and how == "steer" else how
                task = await self._task_of(
                    name,
                    list(parts),
                    {"principal": who, "session": session, "project": project},
                )
                task = replace(task, actor=sender if sender != who.id else "")
                posted = await self._begin(task, key or new_id(), how)
            if posted is not None:
                return posted
        raise SessionBusy(session, "")

    def _mode_of(self, agent: str) -> Mode:
        return self.host.agents[agent].on_message if agent in self.host.agents else "steer"

    async def _check_owner(self, session: str, last: RunInfo, who: Principal) -> None:
        state = await load(self.store, last.run)
        if not same_person(state.principal, who):
            raise UnknownRun(f"there is no session {session!r}")

    async def _takes(self, run: RunInfo, agent: str, who: Principal) -> bool:
        """Whether a run can be told a message; else that waits behind it, for a run of its own.

        It has had its turn, it is of the agent that was named, and none of its roles is one that
        the sender does not have: a message is worked on with no more than that.
        """
        state = await load(self.store, run.run)
        created = state.created
        if created is None or created.behind:
            return False
        return agent in {"", created.agent, state.agent} and has_roles(who, state.principal)

    async def _check_project(self, session: str, run: str, who: Principal, project: str) -> None:
        """Refuse to tell an active run something that is about another project.

        Raises:
            ConfigError: it is, or no such project may be said.
        """
        await self.host.memory_rules.check_said(who, project, self.host.asks)
        check_active(session, await load(self.store, run), project)

    async def _steer(
        self,
        session: str,
        run: RunInfo,
        parts: tuple[Part, ...],
        who: Principal,
        sender: str,
        key: str,
    ) -> Posted | None:
        """Have the active run read it; None when it has just ended, or somebody was faster."""
        try:
            message = cmd.Queue(parts=parts, id=key, roles=who.roles)
            done = await self.client.submit(run.run, message, sender)
        except IllegalTransition:
            return None
        if done.entry is None:
            return None
        return Posted(session=session, run=run.run, seq=done.entry.seq, how="steered")

    async def _begin(self, task: Task, run: str, how: Mode) -> Posted | None:
        """Start a run with it, now or later; None when the session has an active one to steer."""
        try:
            into = await self.client.start(replace(task, mode="" if how == "steer" else how), run)
        except SessionBusy:
            return None
        if into != run:
            return None  # the same message was queued by another hand
        return await self._as_posted(task.session, run, 1, how)

    async def _as_posted(self, session: str, run: str, seq: int, mode: Mode | None) -> Posted:
        """Where a message is; one that is sent again to interrupt does what is left of that."""
        if seq > 1:
            return Posted(session=session, run=run, seq=seq, how="steered")
        info = await self.store.info(run)
        if not info.behind:
            return Posted(session=session, run=run, seq=1, how="started")
        if mode == "interrupt":
            await self.client.interrupt(run)
        how: Literal["interrupting", "queued"] = "interrupting" if mode == "interrupt" else "queued"
        return Posted(session=session, run=run, seq=1, how=how)

    @checked
    async def follow_async(self, posted: Posted) -> Run:
        """Carry the run that reads a message to a result or a wait; then say how it stands.

        A message that a run ended without having read is followed into the run that reads it.

        Raises:
            ConfigError: it is not what `post` or `accept` has returned.
        """
        _check_posted(posted)
        session, at, seq = posted.session, posted.run, posted.seq
        tries = TRIES
        while True:
            run = await self._carried(at)
            if run.status not in ENDED or await following.was_read(self.store, at, seq):
                return run
            ahead = await following.first_in_line(self.store, session, at)
            reader = await following.reader_after(self.store, session, at, seq)
            if reader is not None:  # looked for last, so that who begins meanwhile is found
                session, at, seq = reader
            elif ahead:  # its turn comes next, unless it is cancelled before
                run = await self._carried(ahead)
                if run.status not in ENDED:
                    return run
            elif seq == 1 or not tries or not await self._handed_on(at):
                return run
            else:
                tries -= 1

    async def _handed_on(self, run: str) -> bool:
        """Start the run that takes over what this one left unread; whether it is known here how."""
        known = (await self.store.info(run)).agent in self.host.agents
        if known:
            await take_over(self.store, run, self.host)
        return known

    async def _carried(self, run: str) -> Run:
        """Drive it, if its agent is known here; else only look."""
        if (await self.store.info(run)).agent not in self.host.agents:
            return await self.get_async(run)
        return await self.drive_async(run)

    # ---------------------------------------------------------------- looking

    @checked
    async def sessions_async(
        self, *, principal: Principal | str | None = None, limit: int = 100
    ) -> list[SessionInfo]:
        """Conversations, the one with the newest run first, each with a title.

        Args:
            principal: Only those of this one, by its id, and by its tenant if a principal is
                given. None: those of all.
            limit: How many at most, 1 to 1,000,000.

        Raises:
            ConfigError: a value is not usable.
        """
        whose = principal_of(principal) if principal is not None else None
        tenant = principal.tenant if isinstance(principal, Principal) else None
        infos = await self.store.sessions(whose.id if whose is not None else "", limit, tenant)
        return [
            SessionInfo(**{f: getattr(info, f) for f in info.__struct_fields__} | {"title": title})
            for info, title in await talk.titled(self.store, infos)
        ]

    @checked
    async def session_async(
        self, session: str, *, principal: Principal | str = LOCAL
    ) -> Conversation:
        """A session with its runs: those it consists of, superseded and waiting ones.

        Raises:
            UnknownRun: there is no such session, or it is another principal's.
        """
        await talk.check_owner(self.store, session, check_person(principal_of(principal)))
        return await talk.conversation(self.store, session)

    # ---------------------------------------------------------------- moving

    @checked
    async def fork_session_async(
        self,
        session: str,
        new: str,
        *,
        at: str = "",
        principal: Principal | str = LOCAL,
    ) -> str:
        """Begin a new session that goes on from a run of another one; the run's id.

        The new one reads the conversation up to that run's end. Nothing is copied, and what the
        old one does from there on is not the new one's.

        Args:
            session, new: The old and the new id.
            at: The run, which must be over; by default the one the session stands at.

        Raises:
            UnknownRun: there is no such session or run, or it is another principal's.
            IllegalTransition: the run is not over.
            ConfigError: there is a session of the new id, or it is empty or blank, or called as
                only routing calls one.
        """
        check_begun(check_session(new, "new"), "new")
        who = check_person(principal_of(principal))
        await talk.check_owner(self.store, session, who)
        return await talk.fork(self.store, self.host.clock, session, new, at, who.id)

    @checked
    async def rewind_async(
        self, session: str, to: str, *, principal: Principal | str = LOCAL
    ) -> bool:
        """Let a session go on from an earlier run; False when it stands there already.

        The later runs stay in the store, and are listed as superseded: to rewind to one of them
        takes the rewind back. What they did to the world stays done.

        Raises:
            UnknownRun: there is no such session or run, or it is another principal's.
            SessionBusy: a run of the session is not over.
            IllegalTransition: the run is not over.
        """
        who = check_person(principal_of(principal))
        await talk.check_owner(self.store, session, who)
        return await talk.rewind(self.store, self.host.clock, session, to, who.id)

    @checked
    async def title_session_async(
        self, session: str, title: str, *, principal: Principal | str = LOCAL
    ) -> bool:
        """Give a session a title; an empty one takes it back. False when it has it already.

        Without one a session is called by its first words. A title is kept in the store's own
        journal, apart from the runs.

        Raises:
            UnknownRun: there is no such session, or it is another principal's.
            ConfigError: the title is too wide, or holds a secret.
        """
        who = check_person(principal_of(principal))
        await talk.check_owner(self.store, session, who)
        self.client.check_names(who, title=title)
        return await talk.set_title(self.store, self.host.clock, session, title, who.id)

    send = twin(send_async)
    post = twin(post_async)
    follow = twin(follow_async)
    sessions = twin(sessions_async)
    session = twin(session_async)
    fork_session = twin(fork_session_async)
    rewind = twin(rewind_async)
    title_session = twin(title_session_async)
