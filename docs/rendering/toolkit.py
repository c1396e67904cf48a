"""The tools that come with Cairn, each with what its declaration says of it."""

from __future__ import annotations

import json
from typing import Any

from rendering.spelling import documented, table

from cairn import toolkit
from cairn.core.rules import ToolSpec
from cairn.sandbox import Limits
from cairn.toolkit import commands, exchange, files, http, patch, pledge, programs, search, urls
from cairn.tools.tool import Tool

FIRST = (*toolkit.FILE_TOOLS, toolkit.shell, toolkit.python, toolkit.http_fetch)
PUBLIC = (getattr(toolkit, name) for name in toolkit.__all__)
ORDER = tuple(dict.fromkeys((*FIRST, *(each for each in PUBLIC if isinstance(each, Tool)))))
RECOVERY = {
    "repeat": "is run again",
    "probe": "its probe looks whether it happened",
    "once": "waits for a person",
    "keyed": "is run again with the same key",
}
BOUNDS = (
    ("list_files", "entries of one listing", files.MAX_LISTED),
    ("read_file", "lines of one page", files.MAX_LINES),
    ("read_file", "characters of one page", files.PAGE_CHARS),
    ("read_file", "characters shown of one line", files.LINE_CHARS),
    ("search_files", "lines found", search.MAX_MATCHES),
    ("search_files", "bytes of a file that is searched", search.FILE_BYTES),
    ("search_files", "bytes looked through together", search.TOTAL_BYTES),
    ("search_files", "files looked through", search.MOST_FILES),
    ("search_files", "seconds of a regular expression", search.REGEX_S),
    ("search_files", "characters shown of one line", search.WIDTH),
    ("apply_patch", "characters of a diff", patch.DIFF_CHARS),
    ("shell", "characters of a command", commands.MAX_COMMAND_CHARS),
    ("python", "characters of a program", programs.MAX_CODE_CHARS),
    ("shell, python", "bytes kept of each output", Limits().output_bytes),
    ("http_fetch", "redirects", http.MAX_REDIRECTS),
    ("http_fetch", "bytes of a body", 1_000_000),
    ("http_fetch", "seconds to connect", exchange.CONNECT_S),
    ("http_fetch", "addresses of a host that are tried", exchange.MAX_ADDRESSES),
    ("http_fetch", "characters of an address", urls.MAX_URL_CHARS),
    ("http_fetch", "headers that a model sends", http.MAX_HEADERS),
    ("all for files", "seconds of a call", pledge.TIMEOUT_S),
)
WORDS = {"minimum": "from", "maximum": "to", "minLength": "from", "maxLength": "to"}


def overview() -> str:
    """All of them: what they may do, and what is done when nobody knows whether they did."""
    rows = [
        (
            f"[`{tool.name}`](#{tool.name})",
            tool.spec.effect,
            f"`{tool.spec.recovery}`: {RECOVERY[tool.spec.recovery]}",
            f"{tool.spec.timeout_us / 1e6:g} s",
            f"{tool.spec.result_bytes:,} bytes",
            ", ".join(tool.spec.taint) or "none",
            overlaps(tool.spec),
        )
        for tool in ORDER
    ]
    head = ("tool", "effect", "when its outcome is unknown", "deadline", "result", "taint")
    return table((*head, "two calls overlap"), rows)


def overlaps(spec: ToolSpec) -> str:
    if spec.effect == "read":
        return "always"
    return "on different files" if spec.conflict_key is not None else "never"


def each() -> str:
    """What a model is told of each, and its parameters."""
    parts = []
    for tool in ORDER:
        parts += [f"### {tool.name}", tool.schema.description, parameters(tool)]
    return "\n\n".join(parts)


def parameters(tool: Tool[..., Any]) -> str:
    schema = tool.schema.parameters
    rows = []
    for name, of in schema["properties"].items():
        wanted = "required" if name in schema.get("required", ()) else f"`{said(of['default'])}`"
        rows.append((f"`{name}`", kind(of), wanted, bounds(of), of.get("description", "")))
    return table(("parameter", "type", "default", "bounds", ""), rows)


def said(value: Any) -> str:
    return json.dumps(value)


def kind(of: dict[str, Any]) -> str:
    if "enum" in of:
        return " or ".join(f"`{said(value)}`" for value in of["enum"])
    if "anyOf" in of:
        return " or ".join(kind(one) for one in of["anyOf"])
    if of["type"] == "array":
        return f"list of {kind(of['items'])}"
    if of["type"] == "object":
        return f"object of {kind(of['additionalProperties'])}"
    return str(of["type"])


def bounds(of: dict[str, Any]) -> str:
    if "pattern" in of:
        return f"`{of['pattern']}`"
    for one in of.get("anyOf", (of,)):
        if most := one.get("maxProperties") or one.get("maxItems"):
            return f"to {most:,} entries"
    found = [f"{word} {of[key]:,}" for key, word in WORDS.items() if key in of]
    unit = " characters" if "maxLength" in of or "minLength" in of else ""
    return f"{' '.join(found)}{unit}" if found else ""


def fixed() -> str:
    """Bounds that no option changes, or that an operator may lower."""
    rows = [
        (f"`{name}`" if " " not in name else name, what, f"{most:,.0f}")
        for name, what, most in BOUNDS
    ]
    return table(("tool", "bound", "at most"), rows)


def makers() -> str:
    """The functions that make a tool with an operator's own choices."""
    parts = []
    for name in ("shell_tool", "python_tool", "http_tool"):
        about = documented(getattr(toolkit, name), "Args")
        rows = [(f"`{option}`", text) for option, text in about.items()]
        parts += [f"### {name}", table(("option", ""), rows)]
    return "\n\n".join(parts)
