"""The pages that tell of events, states, the database and the command line."""

from __future__ import annotations

import inspect
import sys
from typing import Any

from rendering.spelling import NOTE, SRC, fields_table, first_paragraph, table

from cairn.cli.exits import OF_STATUS
from cairn.core import events as ev
from cairn.core import lifecycle

STAYING = """\
Staying is always allowed. Any other change raises `IllegalTransition`, and since a state is a
value, nothing has changed then."""
ONE_FILE = """\
A store is one SQLite file. It is brought to the newest version when it is opened, in one
transaction; a file of a newer version is refused and not touched. The version is `user_version`,
and `application_id` says that the file is a Cairn store."""

ABOUT_CLI = """\
Commands that read or decide need the store and nothing else. Commands that drive a run need the
application that knows its agent: `--app shop:rt` names the `Runtime` called `rt` in `shop.py`.

All commands find the store in one way, the first of these that is named: `--store`; the own
store of the application of `--app`; `CAIRN_STORE`; `[tool.cairn] store` in `pyproject.toml`; the
own store of the application of `CAIRN_APP`, then of `[tool.cairn] app`; `./cairn.db`. Who wants no
code of an application loaded to look at its runs names the store. An application that is driven
works on the store that was found, whatever it was made with.

**An option that is given and empty is refused** (`--session ""`, `--principal " "`), with
exit code 2, in all commands: it never means what is meant without it. Only `--plan ""` (a plan
without items) and `--result ""` (a result that says nothing) are values. Variables of the
environment that are empty count as not set. A text that is `-` is read from standard input."""
JSON_DONE = """\
## What a change says with `--json`

Commands that look write what they find. A command that changes something writes one object a line
for each thing that it did, all with these fields:

| field | what it says |
| --- | --- |
| `did` | what was done: `approved`, `forked`, `removed`, `erased`, … |
| `id` | to what: a request, a call, a run, a session, a fact, a grant, a principal or a file |
| `changed` | false where it was so before, where it stays, and in a dry run |
| `said` | the line that is written without `--json` |

Beside them stands what there is to know more: `run` of a decision, `facts` of what was forgotten,
`why` a run stays, the figures of what was erased. What is refused is said on standard error, as
ever. Where somebody would be asked (`erase`, `memory erase`, `grants add`), `--json` needs `--yes`.
Commands that drive a run write its events and its result instead."""
EXIT_CODES = """\
A command that drove a run exits with a code that says how the run stands. Every other command
exits with 0 when it did what was asked. In both cases 1 means that it was refused or failed, and 2
that it cannot be asked for like this."""


def events() -> str:
    """Every fact a journal may hold."""
    parts = ["# Events", NOTE, inspect.cleandoc(ev.__doc__ or "")]
    parts.append(
        "Beside its own fields every event stands in an entry: "
        + ", ".join(f"`{f}`" for f in ev.Entry.__struct_fields__ if f != "event")
        + ". Fields at their default are not written."
    )
    for number in sorted(ev.EVENTS):
        cls = ev.EVENTS[number]
        parts.append(f"## `{cls.NAME}`")
        parts.append(f"Number {number}, version {cls.V}. {first_paragraph(cls)}")
        rest = inspect.cleandoc(cls.__doc__ or "").split("\n\n")[1:]
        parts += [" ".join(each.split()) for each in rest]
        if fields := fields_table(cls):
            parts.append(fields)
    return "\n\n".join(parts) + "\n"


def state_machine() -> str:
    """The tables of `lifecycle`, as a diagram and as tables."""
    moves = sorted((a.value, b.value) for a, b in lifecycle.MOVES)
    to_end = {b for a, b in moves if b in {s.value for s in lifecycle.ENDED}}
    drawn = [f"    {a} --> {b}" for a, b in moves]
    diagram = ["```mermaid", "stateDiagram-v2", "    [*] --> queued", *drawn]
    diagram += [f"    {end} --> [*]" for end in sorted(to_end)] + ["```"]
    names = {s: s.value for s in lifecycle.Status}
    rows = []
    for kind in sorted(lifecycle.LEGAL, key=lambda k: k.TYPE):
        allowed = lifecycle.LEGAL[kind]
        rows.append((f"`{kind.NAME}`", *("yes" if s in allowed else "" for s in names)))
    calls = []
    for status in lifecycle.CallStatus:
        then = [f"`{s.value}`" for s in lifecycle.CallStatus if s in lifecycle.CALL_MOVES[status]]
        calls.append((f"`{status.value}`", ", ".join(then) or "nothing: it has ended"))
    first = "An event with no `yes` begins a journal and is never appended to one."
    return (
        "\n\n".join(
            [
                "# State machine",
                NOTE,
                inspect.cleandoc(lifecycle.__doc__ or ""),
                "## The life of a run",
                "\n".join(diagram),
                STAYING,
                "## Which event is legal when",
                first,
                table(("event", *names.values()), rows),
                "## The life of a tool call",
                table(("a call that is", "may become"), calls),
            ]
        )
        + "\n"
    )


def database() -> str:
    """The tables of the SQLite store, as its migrations make them."""
    files = sorted((SRC / "store" / "sqlite" / "sql").glob("[0-9]*.sql"))
    parts = [
        "# Database",
        NOTE,
        ONE_FILE,
        f"There are {len(files)} migrations." if len(files) > 1 else "There is one migration.",
    ]
    for number, file in enumerate(files, 1):
        parts.append(f"## Version {number}: `{file.name}`")
        parts.append(f"```sql\n{file.read_text(encoding='utf-8').rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- the command line


def cli() -> str:
    """The help of every command, as it prints it."""
    from typer.main import get_command

    from cairn.cli.entry import app

    tree = get_command(app)  # made once: it takes longer than all the help
    codes = [(f"`{status}`", str(code)) for status, code in OF_STATUS.items()]
    parts = ["# Command line", NOTE, ABOUT_CLI, f"```text\n{help_of(tree)}\n```"]
    parts += ["## Exit codes", EXIT_CODES, table(("how the run stands", "exit code"), codes)]
    parts.append(JSON_DONE)
    for words in commands_of(app):
        parts.append(f"## `cairn {' '.join(words)}`\n\n```text\n{help_of(tree, *words)}\n```")
    return "\n\n".join(parts) + "\n"


def commands_of(app: Any) -> list[tuple[str, ...]]:
    """The words of every command, in the order of the help; a group stands before its own."""
    found = [(each.name or each.callback.__name__,) for each in app.registered_commands]
    for group in app.registered_groups:
        found.append((group.name,))
        found += [(group.name, *words) for words in commands_of(group.typer_instance)]
    return found


def help_of(tree: Any, *command: str) -> str:
    """What `cairn COMMAND --help` prints on a terminal 80 columns wide."""
    from typer.testing import CliRunner

    wide = {"COLUMNS": "80", "TERMINAL_WIDTH": "80"}
    with CliRunner().isolation(env=wide) as (out, *_):
        tree.main([*command, "--help"], prog_name="cairn", standalone_mode=False)
        sys.stdout.flush()
        said = out.getvalue().decode()
    return "\n".join(line.rstrip() for line in said.splitlines()).strip()
