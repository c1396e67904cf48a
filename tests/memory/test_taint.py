"""What a recall taints the run with, however it ends: the worst, until it is known."""

from tests.core.play import Play, rules_of, tool

from cairn.core import events as ev
from cairn.core.commands import Late
from cairn.core.policy import Policy
from cairn.memory.desk import MAY_COME
from cairn.toolkit import recall
from cairn.tools.results import to_json

ALLOW = Policy(effects={"write": "allow"})
RECALL = tool("recall", taint=MAY_COME)
SLOW = tool("recall", "write", recovery="once", taint=MAY_COME)


def started(spec=RECALL):
    play = Play(rules_of(spec, policy=ALLOW))
    play.calls(("recall", {"query": "x"}))
    play.start()
    return play


def test_the_tool_declares_the_worst_that_may_come():
    assert recall.spec.taint == ("memory", "memory:unchecked")


def test_what_is_known_to_be_recalled_takes_the_place_of_the_worst():
    play = started()
    play.add(ev.MemoryRecalled(call="c1", facts=(1,), taint=("memory",)), 1)
    play.returns("c1", "m1: tea")
    assert play.state.taint == {"memory"}
    assert "from memory: material" in play.state.messages[-1].parts[0].result


def test_labels_of_untrusted_facts_taint_the_run_and_stand_on_the_fence():
    play = started()
    play.add(ev.MemoryRecalled(call="c1", taint=("memory", "memory:untrusted", "web")), 1)
    play.returns("c1", "m1: tea")
    assert play.state.taint == {"memory", "memory:untrusted", "web"}
    assert "from memory, memory:untrusted, web: " in play.state.messages[-1].parts[0].result


def test_a_recall_that_comes_late_without_its_facts_counts_as_untrusted():
    play = started(SLOW)
    play.add(ev.ToolUnknown(call="c1", reason="timeout"), 1)
    play.submit(Late(call="c1", ok=True, result=to_json("m1: tea"), attempt=1))
    assert play.state.taint == {"memory", "memory:unchecked"}
