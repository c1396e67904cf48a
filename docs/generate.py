"""Renders the pages and sections of the docs that follow from the code.

    python docs/generate.py            write them
    python docs/generate.py --check    write nothing; exit 1 and name what is stale

A whole page is written as a file. A section of a handwritten page stands between
`<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
import tempfile
import textwrap
import tomllib
import types
import typing
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec

import cairn
from cairn import Agent, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core import ladder, lifecycle
from cairn.core.limits import Limits
from cairn.core.messages import CallPart, Record, Text
from cairn.core.policy import DEFAULTS
from cairn.errors import CairnError, ErrorClass

DOCS = Path(__file__).resolve().parent
ROOT = DOCS.parent
SRC = ROOT / "src" / "cairn"
NOTE = "<!-- Written by docs/generate.py from the code; `make docs` writes it again. -->"
SECTION = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)


# ---------------------------------------------------------------- small tools


def table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    """A Markdown table."""
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join("| " + " | ".join(cell(c) for c in row) + " |" for row in lines)


def cell(text: str) -> str:
    return " ".join(text.replace("|", "\\|").split())


def first_paragraph(thing: Any) -> str:
    """The first paragraph of a docstring, on one line."""
    doc = inspect.cleandoc(getattr(thing, "__doc__", "") or "")
    return " ".join(doc.split("\n\n")[0].split())


@functools.cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def attribute_docs(cls: type) -> dict[str, str]:
    """The text that stands as a string below a field in its class."""
    found: dict[str, str] = {}
    path = Path(str(inspect.getsourcefile(cls)))
    for node in ast.walk(parsed(path)):
        if not (isinstance(node, ast.ClassDef) and node.name == cls.__name__):
            continue
        for field, text in zip(node.body, node.body[1:], strict=False):
            if not (isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name)):
                continue
            if isinstance(text, ast.Expr) and isinstance(text.value, ast.Constant):
                found[field.target.id] = " ".join(str(text.value.value).split())
    return found


def argument_docs(thing: Any) -> dict[str, str]:
    """What the `Args:` section of a docstring says of each name."""
    doc = inspect.cleandoc(thing.__doc__ or "")
    found: dict[str, str] = {}
    part = re.search(r"^Args:\n((?:[ ]{4}.*\n?|\n)*)", doc, re.MULTILINE)
    items = re.findall(r"^(\w[\w, ]*): (.*(?:\n {4,}.*)*)", textwrap.dedent(part[1]) if part else "", re.MULTILINE)
    for names, text in items:
        for name in names.split(","):
            found[name.strip()] = " ".join(text.split())
    return found


def spelled(kind: Any) -> str:
    """A type as one writes it."""
    if typing.get_origin(kind) is typing.Literal:
        return " or ".join(f"`{value}`" for value in typing.get_args(kind))
    if isinstance(kind, types.GenericAlias):
        inner = ", ".join("…" if a is Ellipsis else spelled(a) for a in typing.get_args(kind))
        return f"{kind.__origin__.__name__} of {inner.removesuffix(', …')}"
    if isinstance(kind, types.UnionType):
        return " or ".join("nothing" if k is type(None) else spelled(k) for k in kind.__args__)
    return getattr(kind, "__name__", str(kind).removeprefix("typing."))


# ---------------------------------------------------------------- reference


def reference() -> str:
    """All public names."""
    parts = [
        "# Reference",
        NOTE,
        "Everything that `from cairn import …` gives. Each name is loaded on first use.",
    ]
    homes: dict[str, list[str]] = {}
    for name in cairn.__all__:
        if not name.startswith("_"):
            homes.setdefault(cairn._NAMES[name], []).append(name)  # noqa: SLF001 - the one list
    for home, names in homes.items():
        parts.append(f"## `{home}`")
        parts.append(first_paragraph(importlib.import_module(home)))
        parts += [public_name(name, getattr(cairn, name)) for name in names]
    return "\n\n".join(parts) + "\n"


def public_name(name: str, thing: Any) -> str:
    if name == "ErrorClass":
        kinds = ", ".join(f"`{each.value}`" for each in ErrorClass)
        return f"### `{name}`\n\n{first_paragraph(thing)}\n\n{kinds}"
    if inspect.isclass(thing) and issubclass(thing, msgspec.Struct):
        return f"### `{name}`\n\n{first_paragraph(thing)}\n\n{fields_table(thing)}".rstrip()
    if inspect.isclass(thing):
        return class_entry(name, thing)
    if inspect.isfunction(thing):
        return f"### `{name}`\n\n```text\n{signature(name, thing)}\n```\n\n{first_paragraph(thing)}"
    return f"### `{name}`\n\n{first_paragraph(type(thing))}"


def fields_table(cls: type[msgspec.Struct]) -> str:
    about = {**argument_docs(cls), **attribute_docs(cls)}
    annotations = {n: a for base in reversed(cls.__mro__) for n, a in vars(base).get("__annotations__", {}).items()}
    rows = []
    for field in msgspec.structs.fields(cls):
        rows.append(
            (
                f"`{field.name}`",
                f"`{annotations[field.name]}`",
                default_of(field),
                about.get(field.name, ""),
            )
        )
    return table(("field", "type", "default", ""), rows) if rows else ""


def default_of(field: msgspec.structs.FieldInfo) -> str:
    if field.default_factory is not msgspec.NODEFAULT:
        return f"`{field.default_factory()!r}`"
    if field.default is msgspec.NODEFAULT:
        return "required"
    if isinstance(field.default, msgspec.Raw):
        return f"`{bytes(field.default).decode()}`"
    if isinstance(field.default, Record):
        return f"`{type(field.default).__name__}()`"
    return f"`{field.default!r}`"


def class_entry(name: str, cls: type) -> str:
    parts = [f"### `{name}`"]
    own_init = "__init__" in vars(cls)
    if own_init and not name.endswith("Context") and name != "Tool":
        parts.append(f"```text\n{signature(name, cls.__init__)}\n```")
    base = cls.__mro__[1].__name__
    kind = f" A `{base}`." if issubclass(cls, CairnError) and cls is not CairnError else ""
    parts.append(first_paragraph(cls) + kind)
    if about := argument_docs(cls):
        parts.append(table(("argument", ""), [(f"`{k}`", v) for k, v in about.items()]))
    rows = list(members(cls))
    if rows and not issubclass(cls, CairnError):
        parts.append(table(("member", ""), rows))
    return "\n\n".join(parts)


def members(cls: type) -> Iterator[tuple[str, str]]:
    """The public methods of a class; an `_async` twin is only named."""
    for name, member in vars(cls).items():
        if name.startswith("_") or name.endswith("_async") and hasattr(cls, name[:-6]):
            continue
        if isinstance(member, property):
            yield f"`{name}`", first_paragraph(member.fget)
        elif inspect.isfunction(member):
            twin = vars(cls).get(f"{name}_async")
            of = member if twin is None or name in {"run_sync"} else twin
            also = f" Twin: `{name}_async`." if twin is not None else ""
            yield f"`{signature(name, of, one_line=True)}`", first_paragraph(of) + also


def signature(name: str, function: Any, *, one_line: bool = False) -> str:
    """A call as one would write it, with types."""
    given = inspect.signature(function)
    shown, starred = [], False
    for each in given.parameters.values():
        if each.name == "self":
            continue
        if each.kind is each.KEYWORD_ONLY and not starred:
            shown.append("*")
            starred = True
        starred = starred or each.kind is each.VAR_POSITIONAL
        shown.append(parameter(each))
    result = "" if given.return_annotation in (given.empty, "None", None) else f" -> {plain(given.return_annotation)}"
    flat = f"{name}({', '.join(shown)}){result}"
    if one_line or len(flat) <= 96:
        return flat
    return f"{name}(\n" + "".join(f"    {each},\n" for each in shown) + f"){result}"


def parameter(each: inspect.Parameter) -> str:
    stars = {each.VAR_POSITIONAL: "*", each.VAR_KEYWORD: "**"}.get(each.kind, "")
    kind = "" if each.annotation is each.empty else f": {plain(each.annotation)}"
    if each.default is each.empty:
        return f"{stars}{each.name}{kind}"
    value = each.default
    is_record = isinstance(value, Record)
    if is_record or type(value).__module__.startswith("cairn"):
        text = f"{type(value).__name__}()" if is_record else "…"
    else:
        text = "…" if type(value) is object else repr(value)
    return f"{stars}{each.name}{kind} = {text}" if kind else f"{stars}{each.name}={text}"


def plain(annotation: Any) -> str:
    return annotation if isinstance(annotation, str) else spelled(annotation)


# ---------------------------------------------------------------- events, states, database


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
    calls = [
        (f"`{status.value}`", ", ".join(f"`{s.value}`" for s in lifecycle.CallStatus if s in then) or "nothing: it has ended")
        for status, then in lifecycle.CALL_MOVES.items()
    ]
    first = "An event with no `yes` begins a journal and is never appended to one."
    return "\n\n".join(
        [
            "# State machine",
            NOTE,
            inspect.cleandoc(lifecycle.__doc__ or ""),
            "## The life of a run",
            "\n".join(diagram),
            "Staying is always allowed. Any other change raises `IllegalTransition`, and since a "
            "state is a value, nothing has changed then.",
            "## Which event is legal when",
            first,
            table(("event", *names.values()), rows),
            "## The life of a tool call",
            table(("a call that is", "may become"), calls),
        ]
    ) + "\n"


def database() -> str:
    """The tables of the SQLite store, as its migrations make them."""
    files = sorted((SRC / "store" / "sqlite" / "sql").glob("[0-9]*.sql"))
    parts = [
        "# Database",
        NOTE,
        "A store is one SQLite file. It is brought to the newest version when it is opened, in "
        "one transaction; a file of a newer version is refused and not touched. The version is "
        "`user_version`, and `application_id` says that the file is a Cairn store.",
        f"There are {len(files)} migrations." if len(files) > 1 else "There is one migration.",
    ]
    for number, file in enumerate(files, 1):
        parts.append(f"## Version {number}: `{file.name}`")
        parts.append(f"```sql\n{file.read_text(encoding='utf-8').rstrip()}\n```")
    return "\n\n".join(parts) + "\n"


# ---------------------------------------------------------------- the command line


def cli() -> str:
    """Every command, as its own help has it."""
    from typer.main import get_command

    from cairn.cli import app

    root = get_command(app)
    parts = ["# Command line", NOTE, inspect.cleandoc(root.help or ""), options_of(root)]
    commands = sorted(getattr(root, "commands", {}).items())
    parts += [command_entry(f"cairn {name}", each) for name, each in commands if not each.hidden]
    return "\n\n".join(part for part in parts if part) + "\n"


def command_entry(name: str, command: Any) -> str:
    words = [p.make_metavar(_context(command)) for p in command.params if p.param_type_name == "argument"]
    head = f"## `{name}`\n\n```text\n{' '.join([name, *words])} [OPTIONS]\n```"
    parts = [head, inspect.cleandoc((command.help or "").replace("\f", "")), options_of(command)]
    inner = sorted(getattr(command, "commands", {}).items())
    parts += [command_entry(f"{name} {sub}", each) for sub, each in inner]
    return "\n\n".join(part for part in parts if part)


def _context(command: Any) -> Any:
    return command.context_class(command, info_name=command.name)


def options_of(command: Any) -> str:
    rows = []
    for each in command.params:
        if getattr(each, "hidden", False):
            continue
        help_text = getattr(each, "help", None) or ""
        default = each.default if not callable(each.default) else None
        if each.param_type_name == "argument":
            rows.append((f"`{each.make_metavar(_context(command))}`", help_text))
            continue
        shown = f" Default: `{default}`." if default not in (None, False, "", (), []) else ""
        rows.append((", ".join(f"`{o}`" for o in (*each.opts, *each.secondary_opts)), help_text + shown))
    return table(("", ""), rows) if rows else ""


# ---------------------------------------------------------------- sections


def rooms() -> str:
    """The layers of the house, from top to bottom, and what each module is for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    parts = []
    for layer in layers:
        for name in layer.replace("(", "").replace(")", "").split(" | "):
            files = module_files(name.strip())
            if files:
                rows = [(f"`{module_name(f)}`", purpose(f)) for f in files]
                parts.append(f"**{name.strip()}**\n\n" + table(("module", "what it is for"), rows))
    return "\n\n".join(parts)


def module_files(name: str) -> list[Path]:
    folder = SRC / name
    if folder.is_dir():
        return sorted(folder.rglob("*.py"), key=lambda p: (p.parent, p.name != "__init__.py", p.name))
    return [p for p in [SRC / f"{name}.py"] if p.exists()]


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def purpose(path: Path) -> str:
    doc = ast.get_docstring(parsed(path)) or ""
    return re.split(r"(?<=[.:])\s*\n\n|\n\n", doc)[0]


def limits() -> str:
    """Every bound with its default."""
    about = argument_docs(Limits)
    rows = [
        (f"`{f.name}`", f"{f.default:,}", about.get(f.name, ""))
        for f in msgspec.structs.fields(Limits)
    ]
    return table(("limit", "default", "what it bounds"), rows)


def ladders() -> str:
    """The table of error classes and what is done about each."""
    rows = []
    for error_class, rungs in ladder.TABLE.items():
        side = "model" if error_class in ladder.MODEL_CLASSES else "tool, task or runtime"
        rows.append((f"`{error_class.value}`", side, ", then ".join(rung(r) for r in rungs)))
    return table(("class", "of", "what is done"), rows)


def rung(each: ladder.Rung) -> str:
    if each.disposition == "end":
        return "end"
    if each.times >= ladder.ALWAYS:
        return each.disposition
    wait = f" from {each.backoff_us / 1e6:g} s" if each.disposition == "retry" else ""
    return f"{each.disposition} (at most {each.times}{wait})"


def error_tree() -> str:
    """The exceptions, as `cairn.errors` draws them."""
    doc = ast.get_docstring(parsed(SRC / "errors.py")) or ""
    return "```text\n" + textwrap.dedent(doc.split("\n\n", 1)[1].rsplit("\n\n", 1)[0]) + "\n```"


def policy_defaults() -> str:
    """What holds for an effect where the deployment says nothing."""
    return table(("effect", "by default"), [(f"`{k}`", v) for k, v in DEFAULTS.items()])


def tool_options() -> str:
    """The options of `@tool`, as its docstring lists them."""
    doc = inspect.cleandoc(cairn.tool.__doc__ or "")
    items = re.findall(r"^ +\* (\w+): (.*(?:\n {10,}.*)*)", doc, re.MULTILINE)
    return table(("option", ""), [(f"`{name}`", " ".join(text.split())) for name, text in items])


def results() -> str:
    """What becomes of a tool's return value."""
    doc = ast.get_docstring(parsed(SRC / "tools" / "results.py")) or ""
    rows: list[list[str]] = []
    for line in doc.splitlines():
        columns = line.removeprefix("    ")
        if not line.startswith("    ") or columns.startswith("="):
            continue
        left, right = columns[:48].strip(), columns[48:].strip()
        if left and not (rows and rows[-1][0].endswith(",") ):
            rows.append([left, right])
        else:
            rows[-1][0] = f"{rows[-1][0]} {left}".strip()
            rows[-1][1] = f"{rows[-1][1]} {right}".strip()
    head, *body = rows
    return table((head[0], head[1]), [(a, f"`{b}`" if b.startswith("{") else b) for a, b in body])


def builtins() -> str:
    """The runtime's own tools."""
    from cairn.tools.builtin import BUILTIN

    rows = [(f"`{t.name}`", t.spec.effect, t.schema.description.split("\n\n")[0]) for t in BUILTIN]
    return table(("tool", "effect", "what a model is told"), rows)


def sample_trace() -> str:
    """A run of the shop example, made now, without what differs from run to run."""

    @tool(effect="write")
    def refund(order: str, cents: int) -> str:
        """Pay money back to the customer."""
        return f"refunded {cents} cents for order {order}"

    model = Scripted([call("refund", order="7", cents=400), "Order 7: 4 euros were paid back."])
    with tempfile.TemporaryDirectory() as folder:
        with Runtime(Path(folder) / "cairn.db", [Agent("shop", model, tools=[refund])]) as rt:
            rt.run("shop", "Refund order 7, 4 euros", id="order-7")
            rt.approve("order-7/1", by="lead")
            rt.run("shop", "Refund order 7, 4 euros", id="order-7")
            entries = rt.trace("order-7")
    lines = [f"{e.seq:>3}  {e.step or '':>4}  {e.event.NAME:<19} {told(e)}".rstrip() for e in entries]
    return "\n".join(["```text", "seq  step  event               what it says", *lines, "```"])


def told(entry: ev.Entry) -> str:
    """The telling fields of an event, without times and hashes."""
    by = f"by {entry.actor}" if entry.actor else ""
    match entry.event:
        case ev.RunCreated() as event:
            return f"agent {event.agent}: {text_in(event.input)}"
        case ev.ModelRequested() as event:
            return f"{event.messages} messages to {event.model}"
        case ev.ModelCompleted() as event:
            return text_in(event.parts)
        case ev.ApprovalRequested() as event:
            return f"request {event.n} for {event.call} ({event.rule})"
        case ev.ApprovalGranted() as event:
            return f"request {event.n} {by}"
        case ev.ToolStarted() as event:
            return f"{event.call}, {event.effect}, {event.recovery}, allowed by: {event.rule}"
        case ev.ToolCompleted() as event:
            return f"{event.call}: {bytes(event.result).decode()}"
        case ev.RunCompleted() as event:
            return f"the answer is event {event.answer}"
        case event:
            return by or type(event).__name__


def text_in(parts: Any) -> str:
    said = []
    for part in parts:
        if isinstance(part, Text):
            said.append(f'"{part.content}"')
        elif isinstance(part, CallPart):
            said.append(f"{part.id} = {part.name}({part.arguments})")
    return " ".join(said)


# ---------------------------------------------------------------- all of it

PAGES: dict[str, Callable[[], str]] = {
    "reference.md": reference,
    "events.md": events,
    "state-machine.md": state_machine,
    "database.md": database,
    "cli.md": cli,
}
SECTIONS: dict[str, Callable[[], str]] = {
    "rooms": rooms,
    "limits": limits,
    "ladder": ladders,
    "errors": error_tree,
    "policy": policy_defaults,
    "tool-options": tool_options,
    "results": results,
    "builtins": builtins,
    "trace": sample_trace,
}


def rendered() -> dict[Path, str]:
    """Every file that holds something generated, as it should be."""
    found = {DOCS / name: page() for name, page in PAGES.items()}
    made: dict[str, str] = {}

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in made:
            made[name] = SECTIONS[name]()
        return f"{match[1]}\n{made[name]}\n\n{match[3]}"

    for path in [*ROOT.glob("README*.md"), *sorted(DOCS.rglob("*.md"))]:
        if path in found:
            continue
        text = path.read_text(encoding="utf-8")
        if SECTION.search(text):
            found[path] = SECTION.sub(fill, text)
    return found


def main(argv: list[str]) -> int:
    """Write what changed, or with `--check` say what is stale."""
    stale = []
    for path, text in rendered().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if "--check" not in argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in argv:
        print("stale, run `make docs`:", *stale, sep="\n  ", file=sys.stderr)
        return 1
    if stale:
        print("written:", *stale, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
