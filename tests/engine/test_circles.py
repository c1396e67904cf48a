"""A run that goes round in circles is seen, however what its tools bring is shown to the model."""

import itertools

import pytest

from cairn import Agent, MemoryRules, Policy, Runtime, Scripted, Source, call, tool
from cairn.toolkit import MEMORY_TOOLS, READ_TOOLS
from cairn.workspace import Workspace

LARGE = 1_024


@tool(effect="read", taint="web")
def page(q: str) -> str:
    """A page."""
    return "same"


@tool(effect="read")
def plain(q: str) -> str:
    """Something of the house."""
    return "same"


@tool(effect="read", sources=True)
def cited(q: str) -> list[Source]:
    """What can be cited."""
    return [Source(uri="book.md", text="same")]


@tool(effect="read", taint="web", result_bytes=LARGE)
def large(q: str) -> str:
    """More than the model is sent at once."""
    return "same " * LARGE


def run(folder, reply, *tools):
    """A run whose model says the same in every turn."""
    (folder / "notes.txt").write_text("same", encoding="utf-8")
    tools = [page, plain, cited, large, *READ_TOOLS, *MEMORY_TOOLS, *tools]
    agent = Agent("a", Scripted(lambda _: reply), tools=tools)
    rules, work = MemoryRules(project="shop"), Workspace(folder)
    policy = Policy(effects={"write": "allow"})
    with Runtime(":memory:", [agent], workspace=work, memory=rules, policy=policy) as rt:
        rt.remember("The door code is 4711.", principal="wang", scope="project")
        return rt.run("a", "go", principal="ann", limits={"steps": 20})


@pytest.mark.parametrize(
    "reply",
    [
        call("plain", q="x"),
        call("page", q="x"),
        [call("page", q="x"), call("plain", q="x")],
        call("cited", q="x"),
        call("large", q="x"),
        call("list_files"),
        call("read_file", path="notes.txt"),
        call("recall", query="code"),
    ],
    ids=["plain", "tainted", "both", "cited", "large", "list_files", "read_file", "recall"],
)
def test_the_same_call_with_the_same_result_for_ever_is_no_progress(tmp_path, reply):
    ended = run(tmp_path, reply)
    assert (ended.status, ended.limit) == ("stopped", "no_progress")


def test_reads_that_change_their_words_and_bring_the_same_are_none_either(tmp_path):
    count = itertools.count()
    agent = Agent("a", Scripted(lambda _: call("page", q=f"word {next(count)}")), tools=[page])
    with Runtime(":memory:", [agent]) as rt:
        assert rt.run("a", "go").limit == "no_progress"


@pytest.mark.parametrize("size", [1, LARGE])
def test_what_changes_from_call_to_call_is_progress_wherever_in_it(tmp_path, size):
    """Of a large result the model is sent head and tail: here what is new lies between them."""
    count = itertools.count(100)

    @tool(effect="read", taint="web", result_bytes=LARGE)
    def job(q: str) -> str:
        """How far a job has come."""
        around = "same " * size
        return f"{around}{next(count)} % {around}"

    ended = run(tmp_path, call("job", q="x"), job)
    assert (ended.status, ended.limit) == ("stopped", "steps")
