"""LangGraph's rows: its agent with the SQLite checkpointer, in each of its durability modes."""

import sqlite3
from typing import Any

import stage
from langchain.agents import create_agent
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage, ToolMessage
from langchain_core.outputs import ChatGeneration, ChatResult
from langgraph.checkpoint.sqlite import SqliteSaver


class Scripted(BaseChatModel):
    """Answers by how many of its replies the conversation holds."""

    @property
    def _llm_type(self) -> str:
        return "scripted"

    def bind_tools(self, tools: Any, **_: Any) -> "Scripted":
        """The script knows the tools."""
        return self

    def _generate(self, messages: Any, *_: Any, **__: Any) -> ChatResult:
        stage.effect("m")
        turn = sum(isinstance(message, AIMessage) for message in messages)
        calls = [{"name": name, "args": {}, "id": f"{turn}-{name}"} for name in stage.TURNS[turn]]
        reply = AIMessage("" if calls else "done", tool_calls=calls)
        return ChatResult(generations=[ChatGeneration(message=reply)])


def main() -> None:
    connection = sqlite3.connect(stage.FOLDER / "checkpoints.db", check_same_thread=False)
    agent = create_agent(
        Scripted(), tools=[stage.fast, stage.slow], checkpointer=SqliteSaver(connection)
    )
    given = {"messages": [("user", "task")]} if stage.LIFE == 1 else None
    config = {"configurable": {"thread_id": "r"}}
    try:
        state = agent.invoke(given, config, durability=stage.SETTING)
    except Exception as error:  # what the second life says is what the table shows
        stage.told(f"{type(error).__name__}: {error}")
        return
    last = state["messages"][-1]
    answers = sum(isinstance(message, ToolMessage) for message in state["messages"])
    stage.told(f"{last.content}, {answers} results" if last.content else "not finished")


main()
