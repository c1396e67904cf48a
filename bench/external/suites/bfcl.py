"""BFCL multi-turn: eight stateful APIs, judged by the package's own comparison of their objects.

Each turn of a user is a run of its own in one session, as the package itself asks a model once per
turn. All calls of a turn stand in one reply, so the runtime has to keep their order.
"""

import ast
import copy
import importlib
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import bfcl_eval
from bfcl_eval.constants.default_prompts import DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
from bfcl_eval.constants.executable_backend_config import (
    CLASS_FILE_PATH_MAPPING,
    STATELESS_CLASSES,
)
from bfcl_eval.eval_checker.multi_turn_eval.multi_turn_checker import state_checker

from suites.case import Call, Case, Failed, Offer, Turn, lines

NOT_COUNTED = ("_last_modified", "parent", "_api_description")
"""When a file was written, and what would lead round in a circle."""


class BfclWorld:
    """The objects of one case."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self.objects = self._fresh()

    def _fresh(self) -> dict[str, Any]:
        raw = self._case.raw
        objects = {}
        for name in raw["involved_classes"]:
            made = getattr(importlib.import_module(CLASS_FILE_PATH_MAPPING[name]), name)()
            if name not in STATELESS_CLASSES:
                config = copy.deepcopy(raw["initial_config"].get(name, {}))
                made._load_scenario(config, long_context=raw.get("long_context", False))  # noqa: SLF001 - their way
            objects[name] = made
        return objects

    def call(self, tool: str, arguments: dict[str, Any]) -> Any:
        return _call(self.objects, tool, arguments)

    def snapshot(self) -> str:
        return json.dumps(_plain(self.objects), sort_keys=True, default=str)

    def judge(self, answer: str, calls: list[Call]) -> list[str]:
        wanted = self._fresh()
        for call in calls:
            _call(wanted, call.tool, copy.deepcopy(call.arguments))
        problems = []
        said = state_checker(self.objects, wanted)
        if not said["valid"]:
            problems.append(f"{said['error_message']} {said['details']['differences']}")
        if _plain(self.objects) != _plain(wanted):
            problems.append("what the package does not compare differs: a private attribute")
        return problems


def _call(objects: dict[str, Any], tool: str, arguments: dict[str, Any]) -> Any:
    for made in objects.values():
        if hasattr(made, tool):
            try:
                return json.loads(json.dumps(getattr(made, tool)(**arguments), default=str))
            except Exception as error:  # the package turns whatever is raised into its answer
                raise Failed(f"Error during execution: {error}") from None
    raise Failed(f"there is no {tool}")


def _plain(value: Any) -> Any:
    """Objects as mappings: private attributes and the state of chance too, but no times."""
    if isinstance(value, dict):
        return {str(k): _plain(each) for k, each in value.items() if k not in NOT_COUNTED}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, set | frozenset):
        return sorted(str(each) for each in value)
    if isinstance(value, random.Random):
        return str(value.getstate())
    if hasattr(value, "__dict__"):
        return _plain(vars(value))
    return value


class Bfcl:
    """The given multi-turn cases."""

    name = "bfcl"

    def __init__(self, folder: Path) -> None:
        apis = json.loads((folder / "bfcl_tools.json").read_text(encoding="utf-8"))
        self.offers = {
            tool["name"]: Offer(tool["name"], tool["description"], tool["parameters"])
            for tools in apis.values()
            for tool in tools
        }
        names = {api: [tool["name"] for tool in tools] for api, tools in apis.items()}
        self.cases = [_case(raw, names) for raw in lines(folder / "bfcl_multi_turn.jsonl")]

    def world(self, case: Case) -> BfclWorld:
        return BfclWorld(case)


def _case(raw: dict[str, Any], names: dict[str, list[str]]) -> Case:
    offered = [n for api in raw["involved_classes"] for n in names[api]]
    offered = [n for n in offered if n not in raw["excluded_functions"]]
    turns = []
    for at, turn in enumerate(raw["turns"]):
        later = [late for since, late in raw["missed_functions"].items() if at < int(since)]
        missing = {name for late in later for name in late}
        calls = tuple(Call(c["tool"], c["arguments"], c["result"]) for c in turn["calls"])
        said = "\n".join(turn["user"]) or DEFAULT_USER_PROMPT_FOR_ADDITIONAL_FUNCTION_FC
        turns.append(
            Turn(
                user=said,
                replies=(calls,) if calls else (),
                answer=f"turn {at + 1} of {raw['id']}",
                offered=tuple(n for n in offered if n not in missing),
            )
        )
    return Case(id=raw["id"], turns=tuple(turns), raw=raw)


# ---------------------------------------------------------------- the package's own cases

CATEGORIES = ("base", "miss_func", "miss_param", "long_context")


class BfclPackage(Bfcl):
    """All multi-turn cases that the package brings, with the schemas of the given data."""

    name = "bfcl-package"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        apis = json.loads((folder / "bfcl_tools.json").read_text(encoding="utf-8"))
        names = {api: [tool["name"] for tool in tools] for api, tools in apis.items()}
        data = Path(bfcl_eval.__file__).parent / "data"
        self.cases = [_case(raw, names) for each in CATEGORIES for raw in self._raw(data, each)]

    def _raw(self, data: Path, category: str) -> Iterator[dict[str, Any]]:
        """The package's records in the form of the given data."""
        name = f"BFCL_v4_multi_turn_{category}.json"
        truths = {each["id"]: each for each in lines(data / "possible_answer" / name)}
        for case in lines(data / name):
            turns = zip(case["question"], truths[case["id"]]["ground_truth"], strict=True)
            yield {
                "id": case["id"],
                "involved_classes": case["involved_classes"],
                "initial_config": case["initial_config"],
                "excluded_functions": case.get("excluded_function", []),
                "missed_functions": case.get("missed_function", {}),
                "long_context": category == "long_context",
                "turns": [
                    {
                        "user": [each["content"] for each in said],
                        "calls": [self._parse(call) for call in calls],
                    }
                    for said, calls in turns
                ],
            }

    def _parse(self, text: str) -> dict[str, Any]:
        """A call written as Python, as the package has it."""
        found = ast.parse(text, mode="eval").body
        if not isinstance(found, ast.Call) or not isinstance(found.func, ast.Name):
            raise TypeError(f"this is no call: {text}")
        fields = list(self.offers[found.func.id].parameters["properties"])
        given = dict(zip(fields, map(ast.literal_eval, found.args), strict=False))
        given |= {str(each.arg): ast.literal_eval(each.value) for each in found.keywords}
        return {"tool": found.func.id, "arguments": given, "result": None}
