"""Run third-party oracle suites through the runtime, and let the third party judge.

    python bench/external/run.py [--suites bfcl,agentdojo,tau2,calls] [--modes clean,kill,...]
        [--every N] [--cases N] [--data FOLDER] [--json FILE]

Exit codes: 0 everything is as it must be, 1 something is not, 2 a mistake in the command,
3 the data is not there, 4 the environment is not (`make -C bench/external env`).
"""

import argparse
import gc
import importlib
import json
import os
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = os.environ.get("CAIRN_EXTERNAL", str(ROOT.parent / "shared" / "external"))
SUITES = {
    "bfcl": "suites.bfcl:Bfcl",
    "bfcl-package": "suites.bfcl:BfclPackage",
    "agentdojo": "suites.dojo:Dojo",
    "tau2": "suites.tau2:Tau2",
}
MODES = ("double", "careless", "clean", "kill", "timeout")
NO_DATA, NO_PACKAGES = 3, 4
SHOWN = 20


def main() -> int:
    """Everything that was asked for; the exit code."""
    options = parse()
    folder = Path(options.data)
    if not (folder / "bfcl_multi_turn.jsonl").is_file():
        print(f"There is no data in {folder}: name its folder with --data or CAIRN_EXTERNAL.")
        return NO_DATA
    try:
        figures = measure(options, folder)
    except ModuleNotFoundError as error:
        print(f"{error}: make the environment with `make -C bench/external env`,")
        print("and use its python: bench/external/.venv/bin/python")
        return NO_PACKAGES
    if options.json:
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    print(f"\n{figures['problems']} problems, {figures['seconds']:.0f} s")
    return 1 if figures["problems"] else 0


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=DATA, help="where the cases lie (CAIRN_EXTERNAL)")
    parser.add_argument("--suites", default=",".join(("calls", *SUITES)))
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--every", type=int, default=1, help="only each n-th position")
    parser.add_argument("--cases", type=int, default=0, help="only the first n cases of a suite")
    parser.add_argument("--lanes", type=int, default=os.cpu_count() or 1, help="trials at once")
    parser.add_argument("--real-waits", action="store_true", help="do not skip the long waits")
    parser.add_argument("--json", default="", help="write the figures to this file")
    options = parser.parse_args()
    for given, known in ((options.suites, ("calls", *SUITES)), (options.modes, MODES)):
        if wrong := set(given.split(",")) - set(known):
            parser.error(f"{min(wrong)} is none of {', '.join(known)}")
    return options


def measure(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The figures of all suites and modes that were asked for."""
    began = time.monotonic()
    rows: list[dict[str, Any]] = []
    problems = 0
    names = options.suites.split(",")
    if "calls" in names:
        from single import single_calls

        row, wrong = single_calls(folder)
        rows.append(row)
        problems += report(row, wrong)
    for name, home in SUITES.items():
        if name in names:
            module, _, made = home.partition(":")
            suite = getattr(importlib.import_module(module), made)(folder)
            for row, wrong in of_suite(suite, options):
                rows.append(row)
                problems += report(row, wrong)
    return {"rows": rows, "problems": problems, "seconds": time.monotonic() - began}


def of_suite(suite: Any, options: argparse.Namespace) -> Any:
    """A row for each mode, and what was wrong in it."""
    import plan
    import trial
    from lanes import in_lanes
    from worker import make_tools, warm

    began = time.monotonic()
    writers, wrong = plan.writers(suite)
    if options.cases:
        suite.cases = suite.cases[: options.cases]
    calls = sum(len(case.calls) for case in suite.cases)
    written = sum(len(plan.writes(case, writers)) for case in suite.cases)
    row = {"suite": suite.name, "mode": "truth", "cases": len(suite.cases), "calls": calls}
    yield {**row, "writes": written, "seconds": time.monotonic() - began}, wrong
    with tempfile.TemporaryDirectory(prefix="cairn-external-") as folder:
        bench = trial.Bench(
            suites={suite.name: suite},
            writers={suite.name: writers},
            tools={suite.name: make_tools(suite, writers)},
            folder=Path(folder),
            hurried=not options.real_waits,
        )
        warm(bench.folder)
        gc.freeze()  # what is shared stays shared after a fork
        modes = options.modes.split(",")
        if suite.name == "bfcl-package":  # the given cases stand for it in the other modes
            modes = [mode for mode in modes if mode == "clean"]
        for mode in modes:
            began = time.monotonic()
            todo = list(plan.trials(suite, writers, mode))
            todo = todo if mode == "clean" else todo[:: options.every]
            work = partial(trial.double if mode == "double" else trial.play, bench)
            lanes = options.lanes * (8 if mode == "timeout" else 1)  # most of it is waiting
            done = []
            for each in in_lanes(todo, lanes, work):
                done.append(each)
                if sys.stderr.isatty():
                    told = f"\r{suite.name} {mode}: {len(done)} of {len(todo)}\r"
                    print(told, end="", file=sys.stderr)
            yield summary(suite, mode, done, time.monotonic() - began)


def summary(suite: Any, mode: str, done: list[Any], seconds: float) -> Any:
    """The row of one mode, and its problems in words."""
    row: dict[str, Any] = {"suite": suite.name, "mode": mode, "trials": len(done)}
    if mode == "double":
        noticed = [each["trial"]["case"] for each in done if not each["state_reached"]]
        row |= {"noticed": len(noticed), "cases that notice": len(set(noticed))}
        return {**row, "seconds": seconds}, []
    if mode == "careless":
        seen = [each for each in done if each["duplicates"]]
        unseen = [each["trial"] for each in done if not each["duplicates"]]
        noticed = [each["trial"]["case"] for each in seen if not each["state_reached"]]
        row |= {"duplicates seen": len(seen), "noticed by the third party": len(noticed)}
        row |= {"cases that notice": len(set(noticed)), "seconds": seconds}
        return row, [f"the duplicate was not seen: {each}" for each in unseen]
    failed = {each["trial"]["case"] for each in done if each["problems"]}
    cases = {each["trial"]["case"] for each in done}
    row |= {
        "cases": len(cases),
        "cases right throughout": len(cases - failed),
        "end states reached": sum(each["state_reached"] for each in done),
        "duplicates": sum(each["duplicates"] for each in done),
        "calls": sum(each["calls"] for each in done),
        "calls rejected": sum(each["rejected"] for each in done),
    }
    if mode == "kill":
        row["kills"] = sum(each["killed"] for each in done)
    if mode == "timeout":
        row["time-outs"] = sum(each["timeouts"] for each in done)
    if mode != "clean":
        row["asked a person"] = sum(each["asked"] for each in done)
    wrong = []
    for each in done:
        of = each["trial"]
        where = f"{suite.cases[of['case']].id} {of['recovery']} {of['place']} {of['at']}"
        wrong += [f"{where}: {problem}" for problem in each["problems"]]
    return {**row, "seconds": seconds}, wrong


def report(row: dict[str, Any], wrong: list[str]) -> int:
    """Print it; how many problems there are."""
    told = {key: round(each, 1) if isinstance(each, float) else each for key, each in row.items()}
    print(
        f"{told.pop('suite')} {told.pop('mode')}:", ", ".join(f"{k} {v}" for k, v in told.items())
    )
    for line in wrong[:SHOWN]:
        print(f"  {line[:600]}")
    if len(wrong) > SHOWN:
        print(f"  and {len(wrong) - SHOWN} more")
    sys.stdout.flush()
    return len(wrong)


if __name__ == "__main__":
    sys.exit(main())
