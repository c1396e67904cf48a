"""The sections that stand inside handwritten pages."""

from __future__ import annotations

import ast
import inspect
import re
import tempfile
import textwrap
import tomllib
from pathlib import Path
from typing import Any

import msgspec
from rendering.spelling import ROOT, SRC, documented, parsed, table

import cairn
from cairn import Agent, Runtime, Scripted, call, tool
from cairn.core import events as ev
from cairn.core import ladder
from cairn.core.limits import Limits
from cairn.core.messages import CallPart, Text
from cairn.core.policy import DEFAULTS


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
        return sorted(
            folder.rglob("*.py"), key=lambda p: (p.parent, p.name != "__init__.py", p.name)
        )
    return [p for p in [SRC / f"{name}.py"] if p.exists()]


def module_name(path: Path) -> str:
    parts = path.relative_to(SRC).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def purpose(path: Path) -> str:
    doc = ast.get_docstring(parsed(path)) or ""
    return re.split(r"(?<=[.:])\s*\n\n|\n\n", doc)[0]


def limits() -> str:
    """Every bound with its default."""
    about = documented(Limits, "Args")
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
        if left and not (rows and rows[-1][0].endswith(",")):
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
    agents = [Agent("shop", model, tools=[refund])]
    with tempfile.TemporaryDirectory() as folder:
        with Runtime(f"{folder}/cairn.db", agents) as first:
            first.run("shop", "Refund order 7, 4 euros", id="order-7")
        with Runtime(f"{folder}/cairn.db", agents) as second:
            second.approve("order-7/1", by="lead")
            second.run("shop", "Refund order 7, 4 euros", id="order-7")
            entries = second.trace("order-7")
    lines = [
        f"{e.seq:>3}  {e.step or '':>4}  {e.event.NAME:<19} {told(e)}".rstrip() for e in entries
    ]
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
