"""`chat`: a conversation that outlives the process, with approvals and questions in line."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Annotated, Literal

import msgspec
import typer

from cairn.cli import exits, options
from cairn.cli.choosing import GIVE_UP, LATER, NO, YES, ask, choose
from cairn.cli.drive import Shown, drive_shown
from cairn.cli.hints import hints_for
from cairn.cli.outcome import detail, print_outcome
from cairn.cli.paint import console
from cairn.cli.place import locate, open_app
from cairn.cli.plain import WANTED, visible
from cairn.cli.say import complain, print_line
from cairn.cli.shown import facts
from cairn.core import commands as cmd
from cairn.core import events as ev
from cairn.core.messages import Principal
from cairn.core.requests import Request
from cairn.engine.client import new_id, same_person
from cairn.engine.given import parts_of, principal_of
from cairn.engine.handed import check_active
from cairn.engine.load import load
from cairn.errors import CairnError, Refused, UnknownRun
from cairn.ports import Observed

if TYPE_CHECKING:
    from cairn.engine.result import Run
    from cairn.runtime import Runtime

WORTH_A_LINE = (
    "tool.started",
    "tool.failed",
    "tool.rejected",
    "tool.unknown",
    "model.failed",
    "model.rejected",
    "limit.",
    "run.failed",
    "run.stopped",
)
HELP = "Say something, or: /help, /quit (or Ctrl-D). Ctrl-C pauses the agent at work."
VERDICTS: dict[str, Literal["happened", "not_happened", "given_up"]] = {
    "yes": "happened",
    "no": "not_happened",
    "give up": "given_up",
}
TO_ALLOW = {"yes": YES, "no": NO, "later": LATER}
WHAT_HAPPENED = {"yes": YES, "no": NO, "give up": GIVE_UP, "later": LATER}
LEAVING = ("/quit", "/exit")
MOVES = 100
"""How often a run may come back with new questions before the talk goes on."""


def chat(  # noqa: PLR0913 - one parameter for each option of the command
    agent: Annotated[str, typer.Argument(metavar="AGENT", help="Name of the agent.")],
    *,
    session: Annotated[
        str, typer.Option("--session", help="The conversation to go on with; new by default.")
    ] = "",
    principal: options.ForWhom = "local",
    role: options.RolesOfPrincipal = None,
    tenant: options.Tenant = "",
    project: options.Project = "",
    by: options.By = "",
    store: options.Store = "",
    app: options.App = "",
) -> None:
    """Talk with an agent; what waits for a person is asked in line.

    The session is kept: the same --session goes on later, even after the process was killed.
    The exit code is that of the last run.
    """
    who = principal_of(Principal(id=principal, roles=tuple(role or ()), tenant=tenant))
    place = locate(store, app, by)
    runtime = open_app(place)
    name = session or f"chat-{new_id()[:8]}"
    with asyncio.Runner() as runner:
        talk = _Talk(
            runtime,
            runner,
            agent,
            name,
            who,
            project,
            Shown(place=place, by=options.who(by), only=WORTH_A_LINE),
        )
        try:
            runtime.agent(agent)
            host = runtime.host
            runner.run(host.memory_rules.check_said(who, project, host.asks))
            code = talk.go()
        finally:
            runner.run(runtime.close_async())
    raise typer.Exit(code)


class _Talk:
    """The conversation at the prompt. The loop runs only while the agent is at work."""

    def __init__(
        self,
        runtime: Runtime,
        runner: asyncio.Runner,
        agent: str,
        session: str,
        principal: Principal,
        project: str,
        shown: Shown,
    ) -> None:
        self._runtime = runtime
        self._runner = runner
        self._agent = agent
        self._session = session
        self._principal = principal
        self._project = project
        self._shown = shown
        self._hints = hints_for(shown.place, runtime.store)

    def go(self) -> int:
        """Talk until the end of input; gives the exit code."""
        print_line(f"session {self._session} with {self._agent}. {HELP}")
        code = exits.DONE
        open_run = self._runner.run(self._open_run())
        if open_run:
            print_line(f"run {open_run} of this session is not over")
            code = self._settle(self._runner.run(self._drive(open_run)))
        while (text := ask("you> ")) is not None:
            match text.strip():
                case "":
                    continue
                case said if said in LEAVING:
                    break
                case "/help":
                    print_line(HELP)
                case said:
                    code = self._exchange(said)
        again = f"cairn chat {self._agent} --session {shlex.quote(self._session)}"
        who = self._principal
        given = [("--principal", who.id if who.id != "local" else "")]
        given += [*(("--role", role) for role in who.roles), ("--tenant", who.tenant)]
        again += "".join(f" {name} {shlex.quote(value)}" for name, value in given if value)
        print_line(f"to go on later: {again}{self._hints.drive}")
        return code

    def _exchange(self, text: str) -> int:
        try:
            return self._settle(self._runner.run(self._send(text)))
        except CairnError as error:  # one message that could not be sent does not end the talk
            complain(str(error))
            return exits.of_error(error)

    # ------------------------------------------------------------ runs

    async def _open_run(self) -> str:
        """The session's run that is not over, if there is one."""
        store = self._runtime.store
        going_on = await store.session_open(self._session)
        head = going_on[0] if going_on else await store.session_head(self._session)
        if head is None:
            return ""
        state = await load(store, head.run)
        if not same_person(state.principal, self._principal):
            raise UnknownRun(f"there is no session {self._session!r}")
        if going_on:
            check_active(self._session, state, self._project)
        return head.run if going_on else ""

    async def _send(self, text: str) -> Run:
        """Put the message into the run that is not over, or start one with it."""
        run = await self._open_run()
        if run:
            parts = parts_of(text)
            message = cmd.Queue(parts=parts, roles=self._principal.roles)
            await self._runtime.client.submit(run, message, self._principal.id)
            return await self._drive(run)
        run = new_id()

        def source() -> AsyncIterator[Observed]:
            return self._runtime.stream_async(
                self._agent,
                text,
                id=run,
                session=self._session,
                principal=self._principal,
                project=self._project,
            )

        return await drive_shown(self._runtime, run, source, self._shown)

    def _settle(self, result: Run) -> int:
        """Ask what a run waits for and go on, until it is over or left waiting; its exit code."""
        for _ in range(MOVES):
            if result.status != "waiting" or not self._decide(result):
                break
            result = self._runner.run(self._drive(result.id))
        if result.status == "completed":
            console().print(f"{visible(self._agent)}> {visible(result.text)}", soft_wrap=True)
        else:
            print_outcome(result, self._hints)
        return exits.of_run(result.status)

    async def _drive(self, run: str) -> Run:
        runtime = self._runtime
        info = await runtime.store.info(run)
        if info.status in exits.ENDED:
            return await runtime.get_async(run)
        if info.status == "paused":
            await runtime.client.submit(run, cmd.Resume(), self._shown.by)
        return await drive_shown(runtime, run, lambda: runtime.watch_async(run), self._shown)

    # ------------------------------------------------------------ people

    def _decide(self, run: Run) -> bool:
        """Ask about everything that waits; whether anything was decided."""
        decided = False
        for item in run.pending:
            try:
                decided |= self._ask_about(item)
            except Refused as error:  # too early, or somebody else was faster
                complain(str(error))
        return decided

    def _ask_about(self, item: Request) -> bool:
        """Ask about one thing, outside the loop, so that Ctrl-C at the prompt means later."""
        match item.kind:
            case "approval":
                return self._ask_to_allow(item)
            case "input":
                return self._ask_for_answer(item)
            case "in_doubt" | "takeover":
                return self._ask_what_happened(item)

    def _ask_to_allow(self, item: Request) -> bool:
        client, by = self._runtime.client, self._shown.by
        print_line(f"{item.id}: {detail(item, self._hints)}")
        for fact in facts(item):
            print_line(f"    {fact}")
        word, reason = choose("allow it? [y]es, [n]o REASON, [l]ater: ", TO_ALLOW, "no")
        if word == "yes":
            yes = self._runtime.approve_async(item.id, by=by, digest=item.digest)
            if note := self._runner.run(yes).note:
                print_line(note)
        elif word == "no":
            self._runner.run(client.deny(item.id, reason, by))
        return word != "later"

    def _ask_for_answer(self, item: Request) -> bool:
        print_line(f"{self._agent} asks: {detail(item, self._hints)}")
        while (text := ask("answer> ")) is not None and text.strip() == "/help":
            print_line("what you write is the answer; an empty line leaves the question open")
        if not text or not text.strip() or text.strip() in LEAVING:  # as at the other prompt
            print_line("nothing is answered; the question stays open")
            return False
        self._runner.run(self._runtime.client.answer(item.id, text, self._shown.by))
        return True

    def _ask_what_happened(self, item: Request) -> bool:
        print_line(f"{item.id}: {WANTED[item.kind]} {detail(item, self._hints)}")
        word, _ = choose("did it happen? [y]es, [n]o, [g]ive up, [l]ater: ", WHAT_HAPPENED)
        told = ask("what came of it, or nothing> ") if word == "yes" else ""
        if word == "later" or told is None:
            return False
        told = told.strip()
        raw = msgspec.Raw(msgspec.json.encode(told)) if told else ev.EMPTY
        client, by = self._runtime.client, self._shown.by
        self._runner.run(client.resolve(item.id, VERDICTS[word], raw, told, by))
        return True
