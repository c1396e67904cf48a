"""BFCL's single-turn cases: an accepted call passes our check of arguments, and arrives as it was.

Where no call is to be made, none is. There is nothing to simulate: the tools only note what came.
"""

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from schemas import fits, make_tool
from suites.case import Offer, lines

from cairn import Agent, Context, Runtime, Scripted, call


def accepted(values: list[Any], schema: dict[str, Any]) -> Any:
    """The first accepted value; an accepted object lists values for each of its fields."""
    value = next(each for each in values if each != "" or len(values) == 1)
    return _inner(value, schema)


def _inner(value: Any, schema: dict[str, Any]) -> Any:
    fields = schema.get("properties", {})
    if schema.get("type") == "object" and isinstance(value, dict):
        return {k: accepted(v, fields.get(k, {})) for k, v in value.items() if "" not in v}
    if schema.get("type") == "array" and isinstance(value, list):
        return [_inner(each, schema.get("items", {})) for each in value]
    return value


def single_calls(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The row of figures, and what was wrong."""
    began = time.monotonic()
    row = {"suite": "calls", "mode": "single", "cases": 0, "calls": 0}
    row |= {"no call wanted": 0, "rejected as they break their own schema": 0}
    wrong: list[str] = []
    for raw in lines(folder / "bfcl_calls.jsonl"):
        problems, calls, broken = asyncio.run(_case(raw))
        row["cases"] += 1
        row["calls"] += calls
        row["rejected as they break their own schema"] += broken
        row["no call wanted"] += not raw["accepted_calls"]
        wrong += [f"{raw['id']}: {problem}" for problem in problems]
    return {**row, "seconds": time.monotonic() - began}, wrong


async def _case(raw: dict[str, Any]) -> tuple[list[str], int, int]:
    """What was wrong, how many calls arrived, and how many were not to."""
    came: list[tuple[str, dict[str, Any]]] = []

    async def note(ctx: Context, name: str, arguments: dict[str, Any]) -> str:
        came.append((name, arguments))
        return "noted"

    schemas = {tool["name"]: tool["parameters"] for tool in raw["tools"]}
    wanted = []
    for each in raw["accepted_calls"] or []:
        ((name, values),) = each.items()
        fields = schemas[name].get("properties", {})
        required = schemas[name].get("required", [])
        given = {
            key: accepted(value, fields.get(key, {}))
            for key, value in values.items()
            if "" not in value or key in required
        }
        wanted.append((name.replace(".", "_"), given))
    tools = [
        make_tool(Offer(tool["name"], tool["description"], tool["parameters"]), note, effect="read")
        for tool in raw["tools"]
    ]
    script: list[Any] = [[call(name, **given) for name, given in wanted]] if wanted else []
    agent = Agent("caller", Scripted([*script, "done"]), tools=tools)
    said = "\n".join(each["content"] for turn in raw["messages"] for each in turn)
    async with Runtime(":memory:", agents=[agent]) as rt:
        run = await rt.run_async("caller", said, id="run")
        rejected = [
            entry.event.message
            for entry in await rt.trace_async("run")
            if entry.event.NAME == "tool.rejected"
        ]
    parameters = {name.replace(".", "_"): each for name, each in schemas.items()}
    broken = [each for each in wanted if not fits(each[1], parameters[each[0]])]
    problems = [] if len(rejected) == len(broken) else [*rejected]
    if (run.status, run.text) != ("completed", "done"):
        problems.append(f"the run is {run.status} {run.reason}")
    wanted = [each for each in wanted if each not in broken]
    if sorted(map(_text, came)) != sorted(map(_text, wanted)):
        problems.append(f"{came} arrived, not {wanted}")
    return problems, len(came), len(broken)


def _text(came: tuple[str, dict[str, Any]]) -> str:
    return json.dumps(came, sort_keys=True)
