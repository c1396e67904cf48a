"""The recall benchmark: what full text alone finds does not get worse."""

import importlib.util
from pathlib import Path

PATH = Path(__file__).resolve().parents[2] / "bench" / "memory_recall.py"
SPEC = importlib.util.spec_from_file_location("memory_recall", PATH)
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)

FLOORS = {
    "all": (0.89, 0.91),
    "English": (0.84, 0.86),
    "Chinese": (0.91, 0.91),
    "mixed": (0.88, 1.0),
    "Japanese": (0.77, 0.99),
    "Korean": (0.85, 0.99),
}
"""Of recall@1 and recall@5; what was measured, less about one question in twenty."""


def test_recall_stays_above_its_floor_in_every_language():
    found = bench.figures(bench.measure())
    assert found.keys() == FLOORS.keys()
    for language, (at_1, at_5) in FLOORS.items():
        assert found[language].at_1 >= at_1, (language, found[language])
        assert found[language].at_5 >= at_5, (language, found[language])


def test_the_set_is_large_enough_and_each_question_names_a_fact():
    assert len(bench.FACTS) >= 60
    assert len(bench.CASES) >= 60
    assert {case.fact for case in bench.CASES} <= bench.FACTS.keys()
    assert len(set(bench.FACTS.values())) == len(bench.FACTS)


def test_the_figures_are_printed(capsys):
    assert bench.main(["--misses"]) == 0
    said = capsys.readouterr().out
    assert "recall@5" in said
    assert "Chinese" in said
