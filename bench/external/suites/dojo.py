"""AgentDojo: user tasks in a shared office and a bank, judged by each task's utility function."""

import json
from pathlib import Path
from typing import Any

from suites.case import Call, Case, Failed, Offer, Turn, lines
from suites.standins import enter, stand_in

# Its pipelines import the SDK of every vendor; one constant of one of them is all that is needed.
enter("agentdojo.agent_pipeline")
enter("agentdojo.agent_pipeline.llms")
stand_in("agentdojo.agent_pipeline.llms.google_llm", EMPTY_FUNCTION_NAME="<empty-function-name>")

from agentdojo.agent_pipeline.tool_execution import tool_result_to_str  # noqa: E402 - see above
from agentdojo.functions_runtime import FunctionCall, FunctionsRuntime  # noqa: E402 - see above
from agentdojo.task_suite.load_suites import get_suite, get_suites  # noqa: E402 - see above
from agentdojo.types import text_content_block_from_string  # noqa: E402 - see above

VERSION = "v1.2.2"
__all__ = ["SILENT", "VERSION", "Dojo", "DojoWorld", "get_suites", "text_content_block_from_string"]
SILENT = "Done."
"""The answer where the truth has none: to the runtime an empty reply is a fault."""


class DojoWorld:
    """The environment of one task."""

    def __init__(self, suite: Any, environment: Any, task: str) -> None:
        self._suite = suite
        self._task = suite.get_user_task_by_id(task)
        self.environment = self._task.init_environment(environment.model_copy(deep=True))
        self._before = self.environment.model_copy(deep=True)
        self._functions = FunctionsRuntime(suite.tools)
        self.done: list[FunctionCall] = []

    def call(self, tool: str, arguments: dict[str, Any]) -> str:
        self.done.append(FunctionCall(function=tool, args=arguments))
        try:
            found, _ = self._functions.run_function(
                self.environment, tool, arguments, raise_on_error=True
            )
        except Exception as error:  # the package turns whatever is raised into its answer
            raise Failed(f"{type(error).__name__}: {error}") from None
        return tool_result_to_str(found)

    def snapshot(self) -> str:
        return self.environment.model_dump_json()

    def judge(self, answer: str, calls: list[Call]) -> list[str]:
        reached = self._suite._check_task_result(  # noqa: SLF001 - what `run_task_with_pipeline` asks
            self._task,
            [text_content_block_from_string(answer)],
            self._before,
            self.environment,
            self.done,
        )
        return [] if reached else ["the task's utility function says no"]


class Dojo:
    """The given user tasks."""

    name = "agentdojo"

    def __init__(self, folder: Path) -> None:
        tools = json.loads((folder / "agentdojo_tools.json").read_text(encoding="utf-8"))
        self.offers = {
            f"{suite}/{tool['name']}": Offer(tool["name"], tool["description"], tool["parameters"])
            for suite, offered in tools.items()
            for tool in offered
        }
        self._suites = {name: get_suite(VERSION, name) for name in tools}
        self._environments = {
            name: suite.load_and_inject_default_environment({})
            for name, suite in self._suites.items()
        }
        self.cases = [self._case(raw) for raw in lines(folder / "agentdojo_user_tasks.jsonl")]

    def world(self, case: Case) -> DojoWorld:
        suite, task = case.raw["suite"], case.raw["id"].partition("/")[2]
        return DojoWorld(self._suites[suite], self._environments[suite], task)

    def _case(self, raw: dict[str, Any]) -> Case:
        calls = [
            Call(
                c["tool"],
                c["arguments"],
                c["result"],
                error=c["error"] or "",
                whole=len(c["result"]) if c["result_truncated"] else 0,
            )
            for c in raw["calls"]
        ]
        turn = Turn(
            user=raw["prompt"],
            replies=tuple((call,) for call in calls),
            answer=raw["final_answer"] or SILENT,
            offered=tuple(name for name in self.offers if name.startswith(raw["suite"] + "/")),
        )
        return Case(id=raw["id"].replace("/", "."), turns=(turn,), raw=raw)
