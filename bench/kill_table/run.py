"""The kill table: in what order side effects happen before a SIGKILL and after the resume.

    make -C bench/kill_table env         the peers, in an environment of their own
    python bench/kill_table/run.py       the table; `--json FILE` keeps the figures

Every row is measured now, on this machine: a scripted model, a process that kills itself inside
the tool `slow` after its effect, a second process that goes on with the library's own means, and
a synced file of what happened. `m` is a model call. Cairn runs in the environment this script is
started with. A peer that is not installed has a row that says so. Exit code 1: a row of Cairn's is
not as it must be, or a case did not end.
"""

import argparse
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import cairn

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".venv" / "bin" / "python"
CASE_S = 120
PERSON = "(waits for a person)"


@dataclass(frozen=True)
class Case:
    """A peer in one setting.

    Args:
        name: As the table calls it.
        program: The script, in this folder.
        setting: What the script is given.
        after: What must come after the resume, in each shape; empty for a peer's.
    """

    name: str
    program: str
    setting: str
    after: str = ""


CASES = (
    Case("Cairn, `slow` is a read", "with_cairn.py", "read", "slow m"),
    Case("Cairn, `slow` is a write that runs once", "with_cairn.py", "once", f"{PERSON} m"),
    Case("Cairn, `slow` has a probe", "with_cairn.py", "probe", "probe m"),
    Case("Cairn, `slow` is keyed", "with_cairn.py", "keyed", "slow m"),
    Case("LangGraph, `sync`", "with_langgraph.py", "sync"),
    Case("LangGraph, `async` (its default)", "with_langgraph.py", "async"),
    Case("LangGraph, `exit`", "with_langgraph.py", "exit"),
    Case("Pydantic AI + DBOS, tools marked as steps", "with_pydantic_ai.py", "dbos-steps"),
    Case("Pydantic AI + DBOS, plain tools", "with_pydantic_ai.py", "dbos"),
    Case("Pydantic AI alone, started again", "with_pydantic_ai.py", "alone"),
)
SHAPES = {
    "serial": "turn 1 calls `fast`, turn 2 calls `slow` and dies in it",
    "together": "one turn calls both, `fast` has returned, `slow` dies",
}
LIBRARIES = {
    "with_langgraph.py": ("langgraph", "langgraph-checkpoint-sqlite", "langchain"),
    "with_pydantic_ai.py": ("pydantic-ai-slim", "dbos"),
}
VERSIONS = """
import importlib.metadata, json, sys
try:
    print(json.dumps({name: importlib.metadata.version(name) for name in sys.argv[1:]}))
except importlib.metadata.PackageNotFoundError:
    print("{}")
"""


@dataclass
class Row:
    """What was measured of a case in one shape."""

    name: str
    shape: str
    before: str
    after: str
    reading: str
    wrong: str = ""


def measure(case: Case, shape: str) -> Row:
    """Let it die and go on."""
    python = sys.executable if case.after else str(PEERS)
    with tempfile.TemporaryDirectory(prefix="cairn-table-") as folder:
        effects = Path(folder) / "effects"
        effects.touch()
        died = live(python, case, shape, folder, "1")
        before = effects.read_text().splitlines()
        went_on = live(python, case, shape, folder, "2")
        after = effects.read_text().splitlines()[len(before) :]
        told = Path(folder) / "told"
        said = told.read_text() if told.exists() else "it did not say how it ended"
        keys = Path(folder) / "keys"
        different = len(set(keys.read_text().split())) if keys.exists() else 1
    row = Row(case.name, shape, " ".join(before), " ".join(after) or "nothing", "")
    row.reading = read(case, before, after, said)
    if died.returncode != -signal.SIGKILL:
        row.wrong = f"the first process ended with {died.returncode}: {died.stderr[-300:]}"
    elif went_on.returncode:
        row.wrong = f"the second process ended with {went_on.returncode}: {went_on.stderr[-300:]}"
    elif case.after and (row.after != case.after or said != "completed" or different != 1):
        row.wrong = f"it should be {case.after!r}; it said {said!r}, with {different} keys"
    return row


def live(
    python: str, case: Case, shape: str, folder: str, life: str
) -> subprocess.CompletedProcess[str]:
    """One process of a case."""
    quiet = {"LANGSMITH_TRACING": "false", "DBOS__CLOUD": "false", "PYTHONWARNINGS": "ignore"}
    return subprocess.run(
        [python, str(HERE / case.program), case.setting, shape, folder, life],
        env={**os.environ, **quiet},
        capture_output=True,
        text=True,
        timeout=CASE_S,
        check=False,
    )


def read(case: Case, before: list[str], after: list[str], said: str) -> str:
    """What the two columns mean."""
    if not after:
        return f"run lost ({said.partition(':')[0]})"
    parts = []
    if PERSON in after:
        parts.append("nothing repeated; a person says what happened")
    if case.setting == "keyed":
        parts.append("killed tool called again under the same key")
    elif "slow" in after:
        parts.append("killed tool runs again")
    if "fast" in after:
        parts.append("**finished tool runs again**")
    if after.count("m") > 1 or before.count("m") + after.count("m") > _turns(before):
        parts.append("paid model turns repeated")
    if "probe" in after:
        parts.append("nothing repeated; its probe finds the effect")
    return "; ".join(parts) or said


def _turns(before: list[str]) -> int:
    return before.count("m") + 1


def installed(program: str) -> dict[str, str]:
    """The versions a case would run with; empty when something is missing."""
    if program == "with_cairn.py":
        return {"cairn": cairn.__version__}
    if not PEERS.exists():
        return {}
    command = [str(PEERS), "-c", VERSIONS, *LIBRARIES[program]]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main() -> int:
    """The command."""
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    options.add_argument("--json", type=Path, help="where the figures go")
    given = options.parse_args()
    versions = {program: installed(program) for program in {c.program for c in CASES}}
    rows: list[Row] = []
    for shape, what in SHAPES.items():
        print(f"\n{shape}: {what}\n")
        print("| runtime | before | after | reading |")
        print("|---|---|---|---|")
        for case in CASES:
            if not versions[case.program]:
                print(f"| {case.name} | not installed | | `make -C bench/kill_table env` |")
                continue
            row = measure(case, shape)
            rows.append(row)
            reading = row.wrong.replace("\n", " ") or row.reading
            print(f"| {row.name} | {row.before} | {row.after} | {reading} |", flush=True)
    shown = [f"{name} {number}" for found in versions.values() for name, number in found.items()]
    print(f"\n{', '.join(sorted(shown))}; Python {platform.python_version()}, {sys.platform}")
    if given.json is not None:
        kept = {"versions": sorted(shown), "rows": [asdict(row) for row in rows]}
        given.json.write_text(json.dumps(kept, indent=1) + "\n")
    return 1 if any(row.wrong for row in rows) else 0


if __name__ == "__main__":
    sys.exit(main())
