"""The recall benchmark: what full text alone finds does not get worse."""

import importlib.util
from pathlib import Path

import pytest

PATH = Path(__file__).resolve().parents[2] / "bench" / "memory_recall.py"
SPEC = importlib.util.spec_from_file_location("memory_recall", PATH)
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)

FLOORS = {
    "all": (0.93, 0.93),
    "English": (0.91, 0.91),
    "Chinese": (0.91, 0.91),
    "mixed": (0.88, 1.0),
    "Japanese": (0.88, 0.99),
    "Korean": (0.85, 0.99),
}
"""Of recall@1 and recall@5; what was measured, less about one question in twenty."""


LATER_FLOORS = {
    "later": {
        "all": (0.87, 0.94),
        "English": (0.85, 0.92),
        "Chinese": (0.83, 0.94),
        "mixed": (0.99, 0.99),
        "Japanese": (0.99, 0.99),
        "Korean": (0.99, 0.99),
    },
    "held": {
        "all": (0.87, 0.91),
        "English": (0.83, 0.83),
        "Chinese": (0.8, 0.99),
        "mixed": (0.99, 0.99),
        "Japanese": (0.99, 0.99),
        "Korean": (0.99, 0.99),
    },
}
"""Of the sets that were written before what they measure."""


@pytest.mark.parametrize("name", ["first", *LATER_FLOORS])
def test_recall_stays_above_its_floor_in_every_language(name):
    found, floors = bench.figures(bench.measure(name)), LATER_FLOORS.get(name, FLOORS)
    assert found.keys() == floors.keys()
    for language, (at_1, at_5) in floors.items():
        assert found[language].at_1 >= at_1, (language, found[language])
        assert found[language].at_5 >= at_5, (language, found[language])


def test_the_set_is_large_enough_and_each_question_names_a_fact():
    assert len(bench.FACTS) >= 60
    assert len(bench.CASES) >= 60
    assert len(set(bench.FACTS.values())) == len(bench.FACTS)
    for questions in bench.SETS.values():
        assert {case.fact for case in questions.cases} <= questions.facts.keys()
        assert len(set(questions.facts.values())) == len(questions.facts)
        assert len({case.query for case in questions.cases}) == len(questions.cases) >= 30


def test_the_figures_are_printed(capsys):
    assert bench.main(["--misses"]) == 0
    said = capsys.readouterr().out
    assert "recall@5" in said
    assert "Chinese" in said
