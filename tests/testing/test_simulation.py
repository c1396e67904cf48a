"""The simulator: many worlds in which nothing may break, and proof that it would show."""

import gc
import os
import subprocess
import sys
from collections import Counter

import msgspec
import pytest
from tests.testing.mutants import VARIANTS, broken, caught

from cairn.core import events as ev
from cairn.testing.invariants import NAMES
from cairn.testing.simulation import Simulation, simulate
from cairn.testing.simulation.__main__ import main
from cairn.testing.simulation.campaign import campaign, simulate_some
from cairn.testing.simulation.chance import Chance
from cairn.testing.simulation.shrink import as_test, shrink

SEEDS = 200
BUDGET_S = float(os.environ.get("CAIRN_SIMULATION_SECONDS", "100"))
SEEN = (
    "fact kept by a run",
    "fact kept by a person",
    "fact waits",
    "fact accepted",
    "fact rejected",
    "fact replaced",
    "fact lives again",
    "fact forgotten",
    "fact erased",
    "recall with facts",
    "search_history done in a thread",
    "load_skill done in a thread",
    "tools found",
    "session put back",
    "session forked",
    "run after a move",
    "run erased",
    "run pruned",
    "fact of a summary asked to be kept",
)
"""What must have come of memory and sessions."""
FAST = (
    "request_before_its_intent",
    "effect_before_its_intent",
    "stale_head_accepted",
    "commit_error_swallowed",
    "verdict_skipped",
    "retry_at_ignored",
    "message_given_twice",
    "order_of_writes_not_kept",
    "tainted_run_trusted",
    "facts_of_a_summary_kept_twice",
    "calls_of_two_runs_share_a_key",
    "erased_run_keeps_its_words",
)


@pytest.mark.parametrize("first", range(0, SEEDS, 25))
def test_whatever_goes_wrong_in_a_world_every_invariant_holds(first):
    figures = simulate_some(range(first, first + 25), "memory")
    assert figures.failures == ()
    assert figures.seeds == 25
    assert figures.runs >= 25


@pytest.mark.parametrize("first", range(0, 50, 25))
def test_whatever_is_condensed_fed_or_classified_every_invariant_holds(first):
    figures = simulate_some(range(first, first + 25), "memory", "context")
    assert figures.failures == ()
    asides = {kind for kind in figures.faults if kind.startswith("aside: ")}
    assert len(asides) >= 6


def test_worlds_short_of_room_condense_feed_classify_and_take_back():
    seen = Counter()
    for seed in range(40):
        outcome = simulate(seed, theme="context")
        for entries in outcome.trace.values():
            seen.update(type(entry.event) for entry in entries)
    for kind in (ev.ContextCompacted, ev.ContextRestored, ev.TurnFed, ev.TaskClassified):
        assert seen[kind] >= 3, kind


@pytest.mark.parametrize("first", range(0, 50, 25))
def test_whatever_is_remembered_rewound_or_erased_every_invariant_holds(first):
    figures = simulate_some(range(first, first + 25), "memory", "memory")
    assert figures.failures == ()
    assert len(figures.seen) >= 14


def test_worlds_of_memory_remember_search_move_sessions_and_erase():
    figures = simulate_some(range(300, 360), "memory", "memory")
    assert figures.failures == ()
    for what in SEEN:
        assert figures.seen[what] >= 2, what
    threads = {kind for kind in figures.faults if kind.startswith("thread: ")}
    assert len(threads) >= 4
    assert "seen:" in str(figures)


@pytest.mark.parametrize("store", ["memory", "sqlite"])
def test_a_world_of_memory_is_the_same_story_to_the_byte_threads_and_all(store):
    for seed in (11, 12):
        one, other = (simulate(seed, theme="memory", store=store) for _ in range(2))
        assert one.journals() == other.journals()
        assert one.stats.seen == other.stats.seen
        assert one.incidents == simulate(seed, theme="memory").incidents


def test_a_world_short_of_room_is_the_same_story_to_the_byte():
    one, other = simulate(5, theme="context"), simulate(5, theme="context")
    assert one.journals() == other.journals()


def test_a_message_whose_reader_was_pruned_is_not_taken_for_forgotten():
    """Seed 820880: the run that read it is removed; the one it was sent to stays for a fork."""
    kept = ("14#0=people: prune", "19#0=people: fork a session", "7#0=people: session message")
    keep = frozenset(f"disturbance {each}" for each in kept)
    outcome = Simulation(seed=820880, theme="memory", keep=keep, turns=2).run()
    assert outcome.violations == ()
    assert outcome.stats.seen["run pruned"] >= 1


def test_a_forked_conversation_that_is_pruned_begins_anew():
    """Seed 840063: it had no run of its own, and what it was forked from stays."""
    outcome = Simulation(seed=840063, theme="memory").run()
    assert outcome.violations == ()


def test_a_real_file_keeps_every_promise_that_memory_keeps():
    figures = simulate_some(range(4), "sqlite")
    assert figures.failures == ()
    assert figures.files == 4


@pytest.mark.parametrize("seed", [3, 57, 190])
def test_the_same_seed_is_the_same_story_to_the_byte(seed):
    one, other = simulate(seed), simulate(seed)
    assert one.journals() == other.journals()
    assert one.incidents == other.incidents


def test_a_story_does_not_depend_on_how_strings_are_hashed():
    told = []
    for hashing in ("1", "2"):
        program = (
            "from hashlib import sha256; from cairn.testing.simulation import simulate;"
            "print([sha256(simulate(s).journals()).hexdigest() for s in range(6)])"
        )
        done = subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hashing},
            capture_output=True,
            text=True,
            check=True,
        )
        told.append(done.stdout)
    assert told[0] == told[1]
    assert "[" in told[0]


def test_a_file_holds_the_same_story_as_memory():
    seeds = range(20, 24)
    in_memory = [simulate(seed).incidents for seed in seeds]
    in_files = [simulate(seed, store="sqlite").incidents for seed in seeds]
    assert in_memory == in_files


def test_a_world_without_incidents_is_a_quiet_one():
    outcome = Simulation(seed=11, keep=frozenset()).run()
    assert outcome.ok
    assert outcome.incidents == ()
    assert set(outcome.stats.ends) <= {"completed", "stopped"}


def test_what_is_drawn_at_one_place_never_shifts_another():
    alone, crowded = Chance(5), Chance(5)
    for _ in range(100):
        crowded.draw("elsewhere")
    assert [alone.draw("here") for _ in range(20)] == [crowded.draw("here") for _ in range(20)]


def test_an_incident_left_out_leaves_the_others_as_they_were():
    kinds = {"a": 0.2, "b": 0.2}
    every = Chance(8)
    for _ in range(60):
        every.incident("place", kinds)
    assert len(every.incidents) > 5
    dropped = every.incidents[2]
    others = [name for name in every.incidents if name != dropped]
    some = Chance(8, frozenset(others))
    for _ in range(60):
        some.incident("place", kinds)
    assert some.incidents == others


def run_broken(name):
    def run(simulation):
        with broken(name):
            return simulation.run()

    return run


def test_a_planted_fault_is_told_in_the_shortest_story_there_is():
    outcome = caught("commit_error_swallowed", 100)
    simulation = Simulation(seed=outcome.seed)
    short = shrink(simulation, outcome, run_broken("commit_error_swallowed"), tries=150)
    assert len(outcome.incidents) > 5
    assert len(short.simulation.keep) <= 2
    assert "store: busy" in {name.partition("=")[2] for name in short.simulation.keep}
    assert len(short.outcome.trace) <= 2
    text = as_test(short)
    assert f"def test_seed_{outcome.seed}():" in text
    assert "store: busy" in text
    space = {"Simulation": Simulation}
    exec(text, space)
    space[f"test_seed_{outcome.seed}"]()  # the code as it is keeps the promise
    with broken("commit_error_swallowed"), pytest.raises(AssertionError):
        space[f"test_seed_{outcome.seed}"]()


@pytest.mark.parametrize("name", FAST)
def test_a_broken_variant_of_the_code_is_caught_at_once(name):
    outcome = caught(name, 40)
    assert outcome is not None, f"nobody noticed that {VARIANTS[name].__doc__}"
    assert {v.name for v in outcome.violations} <= set(NAMES)


def test_the_command_prints_its_figures_and_says_what_is_fine(capsys):
    assert main(["--seeds", "3", "--from", "4"]) == 0
    said = capsys.readouterr().out
    assert said.startswith("3 worlds (0 in SQLite files)")
    assert "0 seeds with violations" in said


def test_the_command_fails_and_tells_a_seed_that_breaks_something(capsys):
    seed = caught("effect_before_its_intent", 20).seed
    with broken("effect_before_its_intent"):
        assert main(["--seeds", "1", "--from", str(seed), "--shrink"]) == 1
    said = capsys.readouterr().out
    assert f"seed {seed} (memory):" in said
    assert f"def test_seed_{seed}():" in said
    assert "[intent]" in said


def test_a_campaign_counts_every_seed_once_however_many_share_it():
    (*_, alone) = campaign(30, 0, "memory", 1)
    (*_, shared) = campaign(30, 0, "memory", 2)
    fields = ("seeds", "runs", "events", "faults", "ends", "failures")
    assert [getattr(alone, f) for f in fields] == [getattr(shared, f) for f in fields]
    assert alone.seeds == 30


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_campaign_of_a_minute_and_a_half_finds_nothing(capsys):
    first = 1_000_000
    figures = None
    for figures in campaign(0, first, "both", 2, BUDGET_S):  # noqa: B007 - the last is told
        pass
    with capsys.disabled():
        print(f"\n{figures}")
    assert figures.failures == ()
    assert figures.runs > 100
    assert len(figures.faults) > 60


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("name", sorted(set(VARIANTS) - set(FAST)))
def test_every_broken_variant_of_the_code_is_caught(name):
    outcome = caught(name)
    gc.collect()
    assert outcome is not None, f"nobody noticed that {VARIANTS[name].__doc__}"
    assert {v.name for v in outcome.violations} <= set(NAMES)


def test_a_simulation_is_a_value():
    simulation = Simulation(seed=1)
    assert msgspec.structs.replace(simulation, turns=2) == Simulation(seed=1, turns=2)
