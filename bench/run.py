"""`make bench`: measures what Cairn costs, and prints every figure beside its target.

Figures are CPU time or ratios to a loop written by hand, taken in turns in the same minutes, so
that a shared machine does not decide. Each section runs in a process of its own. Takes a minute
of CPU and under four minutes of a busy machine; `--only memory,durable` takes less, `--json`
writes rows for a program.

`bench/store_contention.py` goes deeper into several processes on one file; it runs by itself.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from measure import Row  # noqa: E402 - found beside this file
from outside import imports, syncs  # noqa: E402 - as above

INSIDE = ("memory", "durable", "growth", "size", "crowd", "resume")
OUTSIDE = {"syncs": syncs, "import": imports}
ORDER = ("memory", "durable", "syncs", "growth", "size", "crowd", "resume", "import")
SECTION_S = 180


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true", help="write rows as JSON")
    parser.add_argument("--only", default="", help=f"sections by name: {', '.join(ORDER)}")
    asked = parser.parse_args()
    names = [n for n in asked.only.split(",") if n] or list(ORDER)
    if unknown := sorted(set(names) - set(ORDER)):
        parser.error(f"there is no section {unknown[0]!r}; they are {', '.join(ORDER)}")
    begun = time.monotonic()
    rows: list[Row] = []
    broken: list[str] = []
    for name in names:
        if not asked.json:
            sys.stderr.write(f"\r{name:<12}")
            sys.stderr.flush()
        try:
            rows += OUTSIDE[name]() if name in OUTSIDE else section(name)
        except (subprocess.SubprocessError, ValueError, OSError) as error:
            broken.append(f"{name}: {said(error)}")
    if not asked.json:
        sys.stderr.write("\r" + " " * 12 + "\r")
    if asked.json:
        found = {"machine": machine(), "rows": [row.as_dict() for row in rows], "broken": broken}
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        show(rows, broken, time.monotonic() - begun)
    return 1 if broken else 0


def section(name: str) -> list[Row]:
    """The rows of a section, measured in a process of its own."""
    command = [sys.executable, str(HERE / "sections.py"), name]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=SECTION_S)
    fields = ("group", "what", "value", "unit", "bound", "least", "note")
    return [Row(**{field: row[field] for field in fields}) for row in json.loads(done.stdout)]


def said(error: Exception) -> str:
    """The last line of what a section complained of."""
    text = str(getattr(error, "stderr", "") or error).strip()
    return text.splitlines()[-1][:200] if text else type(error).__name__


def machine() -> dict[str, str]:
    """What the figures were taken on."""
    import apsw

    from cairn import __version__

    return {
        "cairn": __version__,
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "system": f"{platform.system()} {platform.machine()}, {os.cpu_count()} cores",
        "load": f"{os.getloadavg()[0]:.1f}",
    }


def show(rows: list[Row], broken: list[str], seconds: float) -> None:
    """The table."""
    print(" · ".join(f"{name} {value}" for name, value in machine().items()))
    width = max((len(row.what) for row in rows), default=0)
    group = ""
    for row in rows:
        if row.group != group:
            group = row.group
            print(f"\n{group}")
        print(f"  {row.what:<{width}}  {figure(row.value):>9} {row.unit:<5}  {target(row)}")
        if row.note:
            print(f"      {row.note}")
    for line in broken:
        print(f"\nnot measured: {line}")
    aimed = [row for row in rows if row.met is not None]
    print(f"\n{sum(bool(r.met) for r in aimed)} of {len(aimed)} targets met, in {seconds:.0f} s")
    if (HERE / "store_contention.py").exists():
        print("More on several processes on one file: python bench/store_contention.py")


def figure(value: float) -> str:
    """Three figures that mean something."""
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"


def target(row: Row) -> str:
    """The target, and by how much it is met or missed."""
    if row.bound is None:
        return "(no target)"
    sign = "at least" if row.least else "at most"
    bound = f"{sign} {row.bound:,.10g}"
    if row.met:
        return f"{bound:<16} met"
    return f"{bound:<16} NOT MET, by {row.share:.2g}x"


if __name__ == "__main__":
    sys.exit(main())
