"""A tool that a policy or a hook denies does nothing, whatever way its call takes.

The rule that denied it is recorded.
"""

import inspect
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest
import typer.main
from tests.governance import cli_paths, engine_paths
from tests.governance.desk import HOOK_SAYS, PATHS, Desk, walk

from cairn import Runtime as RealRuntime
from cairn.cli.entry import app
from cairn.core import events as ev
from cairn.engine.client import Client as RealClient
from cairn.servers.agent_calls import AgentCalls

CANNOT = {
    "Runtime.agent": "it looks an agent up",
    "Runtime.artifact_async": "it reads",
    "Runtime.at_async": "it folds a journal",
    "Runtime.budgets_async": "it reads, and sets budgets",
    "Runtime.cancel_async": "nothing is started in a run that is to end",
    "Runtime.close_async": "it waits for what is in flight and starts nothing",
    "Runtime.get_async": "it reads",
    "Runtime.grants_async": "it reads",
    "Runtime.pending_async": "it reads",
    "Runtime.revoke_grant_async": "it takes a permission away, and drives nothing",
    "Runtime.runs_async": "it reads",
    "Runtime.show_grant_async": "it reads",
    "Runtime.trace_async": "it reads",
    "Runtime.context_async": "it reads",
    "Runtime.workspace_async": "it reads",
    "Runtime.facts_async": "it reads",
    "Runtime.recall_async": "it reads",
    "Runtime.index_facts_async": "it fills the index of facts, and drives nothing",
    "Runtime.holdings_async": "it reads",
    "Runtime.session_async": "it reads",
    "Runtime.sessions_async": "it reads",
    "Runtime.export_facts_async": "it reads",
    "Runtime.export_principal_async": "it reads",
    "Runtime.accept_fact_async": "it decides about a fact, and drives nothing",
    "Runtime.reject_fact_async": "it decides about a fact, and drives nothing",
    "Runtime.forget_fact_async": "it removes a fact",
    "Runtime.remember_async": "it keeps a fact, and drives nothing",
    "Runtime.check_erasable_async": "it reads",
    "Runtime.shared_sessions_async": "it reads",
    "Runtime.erase_async": "it removes what is kept of a person",
    "Runtime.erase_facts_async": "it removes facts",
    "Runtime.title_session_async": "it names a session",
    "Client.check_names": "it checks names",
    "cli context show": "it reads",
    "cli workspace list": "it reads",
    "cli workspace diff": "it reads",
    "cli context undo": "it changes what is sent, and drives nothing",
    "cli erase": "it removes what is kept of a person",
    "cli memory add": "it keeps a fact, and drives nothing",
    "cli memory erase": "it removes facts",
    "cli memory export": "it reads",
    "cli memory forget": "it removes a fact",
    "cli memory index": "it fills the index of facts, and drives nothing",
    "cli memory list": "it reads",
    "cli memory review": "it decides about a fact, and drives nothing",
    "cli memory search": "it reads",
    "cli memory show": "it reads",
    "cli sessions export": "it reads",
    "cli sessions list": "it reads",
    "cli sessions show": "it reads",
    "cli sessions prune": "it removes what is over",
    "cli sessions title": "it names a session",
    "cli sessions fork": "it begins a session, and drives nothing",
    "cli sessions rewind": "it says where a session stands, and drives nothing",
    "Client.follow": "it reads",
    "Client.pending": "it reads",
    "Client.runs": "it reads",
    "AgentCalls.cancel": "nothing is started in a run that is to end",
    "AgentCalls.close": "it waits for what is in flight and starts nothing",
    "AgentCalls.look": "it reads",
    "cli audit": "it reads",
    "cli backup": "it copies the store",
    "cli budgets": "it reads",
    "cli cancel": "nothing is started in a run that is to end",
    "cli deny": "it records a decision and drives nothing",
    "cli doctor": "it looks at the machine",
    "cli export": "it reads",
    "cli grants list": "it reads",
    "cli grants revoke": "it takes a permission away, and drives nothing",
    "cli inbox": "it reads",
    "cli mcp tools": "it lists what servers offer and calls none of it",
    "cli models": "it lists models",
    "cli pause": "it records a pause and drives nothing",
    "cli policy check": "it reads a file",
    "cli policy explain": "it asks the policy and starts nothing",
    "cli policy test": "it judges recorded calls and starts nothing",
    "cli prune": "it removes what is over",
    "cli runs": "it reads",
    "cli skills check": "it reads folders",
    "cli skills list": "it reads",
    "cli trace": "it reads",
    "cli verify": "it reads",
}
"""What cannot bring a tool to run, and why."""


def marked(name: str) -> Any:
    return pytest.param(name, marks=[pytest.mark.slow] if PATHS[name].slow else [])


@pytest.mark.parametrize("name", [marked(name) for name in sorted(PATHS)])
def test_a_denied_tool_does_nothing_on_any_way_to_it(name: str, tmp_path: Path) -> None:
    desk, way = Desk(tmp_path), PATHS[name]
    done, events = walk(desk, way)
    assert done == []
    asked = [event for event in events if isinstance(event, ev.ApprovalRequested)]
    assert [each for each in asked if way.says in each.rule] == []  # what is denied asks nobody
    said = [f"{getattr(event, 'rule', '')} {getattr(event, 'message', '')}" for event in events]
    assert any(way.says in each for each in (*said, desk.told)), events


NO_HOOK = {
    "a_policy_of_the_run": "a run brings no hooks",
    "a_replay": "nothing is started, so nothing is asked",
    "a_run_of_the_query_kind": "the kind of the task denies it before any hook",
    "cli_replay": "nothing is started, so nothing is asked",
}
"""Ways on which no hook can stand in a policy's place, and why."""


@pytest.mark.parametrize("name", [marked(name) for name in sorted(set(PATHS) - set(NO_HOOK))])
def test_no_way_to_a_tool_leads_round_the_hooks(name: str, tmp_path: Path) -> None:
    """A hook that is there by the time a call would start has been asked, and its no holds."""
    desk, way = Desk(tmp_path, hooked=True), PATHS[name]
    done, events = walk(desk, way)
    assert done == []
    said = [f"{getattr(event, 'rule', '')} {getattr(event, 'message', '')}" for event in events]
    assert any(HOOK_SAYS in each for each in said), events


def test_the_ways_without_hooks_are_ways() -> None:
    assert set(NO_HOOK) <= set(PATHS)
    assert all(NO_HOOK.values())


# ---------------------------------------------------------------- is the list whole


def verbs(kind: type) -> Iterator[str]:
    """The public verbs of a class; a sync form belongs to its async twin."""
    for name, _ in inspect.getmembers(kind, callable):
        if name.startswith("_"):
            continue
        if not hasattr(kind, f"{name}_async"):
            yield f"{kind.__name__}.{name}"


def commands(group: Any, before: str = "cli") -> Iterator[str]:
    """The commands of the command line, those of groups included."""
    for name, command in group.commands.items():
        inner = f"{before} {name}"
        if hasattr(command, "commands"):
            yield from commands(command, inner)
        else:
            yield inner


def everything() -> set[str]:
    found = {name for kind in (RealRuntime, RealClient, AgentCalls) for name in verbs(kind)}
    return found | set(commands(typer.main.get_command(app)))


def missing(found: set[str]) -> set[str]:
    """What neither has a way here nor a reason why it needs none."""
    return found - {name for way in PATHS.values() for name in way.covers} - set(CANNOT)


def test_every_verb_and_command_is_a_way_to_a_call_or_cannot_run_tools() -> None:
    assert missing(everything()) == set(), "give each a way in tests/governance, or a reason"


def test_the_lists_name_nothing_twice_and_nothing_that_is_gone() -> None:
    covered = {name for way in PATHS.values() for name in way.covers}
    assert (covered | set(CANNOT)) - everything() == set()
    assert covered & set(CANNOT) == set()
    assert all(CANNOT.values())
    modules = {way.walk.__module__ for way in PATHS.values()}
    assert modules == {engine_paths.__name__, cli_paths.__name__}


def test_a_new_verb_or_command_has_to_join() -> None:
    class Client(RealClient):
        async def improvise(self) -> None:
            """A verb that nobody has thought of here."""

        async def improvise_more(self) -> AsyncIterator[int]:
            """Another one, that yields."""
            yield 1

    verbs_now = set(verbs(Client))
    assert missing(verbs_now) == {"Client.improvise", "Client.improvise_more"}
    grown, group = typer.Typer(), typer.Typer()
    for each in (grown, group):
        each.command("improvise")(lambda: None)
        each.command("run")(lambda: None)
    grown.add_typer(group, name="group")
    found = set(commands(typer.main.get_command(grown)))
    assert missing(found) == {"cli improvise", "cli group improvise", "cli group run"}


def test_a_sync_verb_without_an_async_form_is_noticed() -> None:
    class Runtime(RealRuntime):
        def improvise(self) -> None:
            """It would be no coroutine, and still a verb."""

    assert missing(set(verbs(Runtime))) == {"Runtime.improvise"}
