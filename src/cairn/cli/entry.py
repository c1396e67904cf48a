"""The command `cairn`: all commands by name, and every error of the house as one line."""

from __future__ import annotations

from typing import Annotated, Any

import typer
from typer.core import TyperGroup

import cairn
from cairn.cli import (
    audit_command,
    budgets_command,
    chat_command,
    context_command,
    decide_commands,
    doctor_command,
    edit_commands,
    erase_command,
    exits,
    grants_command,
    keep_commands,
    mcp_command,
    memory_command,
    models_command,
    policy_command,
    read_commands,
    replay_command,
    run_commands,
    sessions_command,
    skills_command,
    takeover_command,
    workspace_command,
)
from cairn.cli.say import complain
from cairn.cli.verbs import Verbs
from cairn.errors import CairnError


class Commands(TyperGroup):
    """Says what went wrong in one line on standard error, and exits as law 9 has it."""

    def invoke(self, ctx: Any) -> Any:
        """Run the command."""
        try:
            return super().invoke(ctx)
        except CairnError as error:
            complain(str(error))
            raise typer.Exit(exits.of_error(error)) from error
        except KeyboardInterrupt:
            complain("interrupted")
            raise typer.Exit(exits.INTERRUPTED) from None


app = Verbs(
    cls=Commands,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    no_args_is_help=True,
    help="Cairn, an agent runtime: start runs, follow them, decide what waits, look back.",
)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"cairn {cairn.__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_version, is_eager=True, help="Say which Cairn this is."
        ),
    ] = False,
) -> None:
    pass


for _command in (
    run_commands.run,
    chat_command.chat,
    read_commands.runs,
    read_commands.trace,
    read_commands.inbox,
    replay_command.replay,
    decide_commands.approve,
    decide_commands.deny,
    decide_commands.answer,
    decide_commands.resolve,
    decide_commands.pause,
    run_commands.resume,
    decide_commands.cancel,
    run_commands.retry,
    edit_commands.edit,
    takeover_command.takeover,
    edit_commands.fork,
    run_commands.work,
    budgets_command.budgets,
    audit_command.audit,
    keep_commands.export,
    keep_commands.verify,
    keep_commands.prune,
    keep_commands.backup,
    erase_command.erase,
    doctor_command.doctor,
    models_command.models,
):
    app.command()(_command)

for _group, _name in (
    (context_command.context, "context"),
    (grants_command.grants, "grants"),
    (memory_command.memory, "memory"),
    (policy_command.policy, "policy"),
    (mcp_command.app, "mcp"),
    (sessions_command.sessions, "sessions"),
    (skills_command.app, "skills"),
    (workspace_command.workspace, "workspace"),
):
    app.add_typer(_group, name=_name)
