"""Pydantic AI's rows: alone, and with DBOS as its durable engine on SQLite."""

import asyncio
import sqlite3
import sys
from typing import Any

if sqlite3.sqlite_version_info < (3, 42):  # what DBOS needs
    import pysqlite3

    sys.modules["sqlite3"], sys.modules["sqlite3.dbapi2"] = pysqlite3, pysqlite3.dbapi2

import stage
from dbos import DBOS, SetWorkflowID
from pydantic_ai import Agent
from pydantic_ai.durable_exec.dbos import DBOSDurability
from pydantic_ai.messages import ModelResponse, TextPart, ToolCallPart
from pydantic_ai.models.function import FunctionModel


def reply(messages: Any, _: Any) -> ModelResponse:
    """Answers by how many of its replies the conversation holds."""
    stage.effect("m")
    turn = sum(isinstance(message, ModelResponse) for message in messages)
    calls = [ToolCallPart(name, {}, f"{turn}-{name}") for name in stage.TURNS[turn]]
    return ModelResponse(calls or [TextPart("done")])


async def fast() -> str:
    return await asyncio.to_thread(stage.fast)


async def slow() -> str:
    return await asyncio.to_thread(stage.slow)


async def alone() -> None:
    agent = Agent(FunctionModel(reply), name="a", tools=[fast, slow])
    stage.told((await agent.run("task")).output)


def durable() -> None:
    DBOS(
        config={
            "name": "table",
            "system_database_url": f"sqlite:///{stage.FOLDER}/dbos.sqlite",
            "application_version": "1",
            "run_admin_server": False,
            "log_level": "ERROR",
        }
    )
    marked = stage.SETTING == "dbos-steps"
    tools = [DBOS.step()(fast), DBOS.step()(slow)] if marked else [fast, slow]
    agent = Agent(FunctionModel(reply), name="a", tools=tools, capabilities=[DBOSDurability()])

    @DBOS.workflow()
    async def work() -> str:
        return (await agent.run("task")).output

    async def live() -> None:
        DBOS.launch()
        if stage.LIFE == 1:
            with SetWorkflowID("r"):
                await work()
        handle = await DBOS.retrieve_workflow_async("r")
        stage.told(await handle.get_result())

    asyncio.run(live())
    DBOS.destroy()


if stage.SETTING == "alone":
    asyncio.run(alone())
else:
    durable()
