"""Renders the pages and sections of the docs that follow from the code.

    python docs/generate.py            write them
    python docs/generate.py --check    write nothing; exit 1 and name what is stale

A whole page is written as a file. A section of a handwritten page stands between
`<!-- generated: NAME -->` and `<!-- end -->`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

from rendering import pages, sections, toolkit
from rendering.figures import figures
from rendering.reference import reference
from rendering.spelling import DOCS, ROOT

SECTION = re.compile(r"(<!-- generated: (?P<name>[\w-]+) -->\n).*?(<!-- end -->)", re.DOTALL)
PAGES: dict[str, Callable[[], str]] = {
    "reference.md": reference,
    "events.md": pages.events,
    "state-machine.md": pages.state_machine,
    "database.md": pages.database,
    "cli.md": pages.cli,
}
SECTIONS: dict[str, Callable[[], str]] = {
    "rooms": sections.rooms,
    "limits": sections.limits,
    "ladder": sections.ladders,
    "errors": sections.error_tree,
    "policy": sections.policy_defaults,
    "tool-options": sections.tool_options,
    "results": sections.results,
    "builtins": sections.builtins,
    "toolkit": toolkit.overview,
    "toolkit-parameters": toolkit.each,
    "toolkit-bounds": toolkit.fixed,
    "toolkit-makers": toolkit.makers,
    "trace": sections.sample_trace,
    "figures": figures,
}


def rendered() -> dict[Path, str]:
    """Every file that holds something generated, as it should be."""
    found = {DOCS / name: page() for name, page in PAGES.items()}
    made: dict[str, str] = {}

    def fill(match: re.Match[str]) -> str:
        name = match["name"]
        if name not in made:
            made[name] = SECTIONS[name]()
        return f"{match[1]}\n{made[name]}\n\n{match[3]}"

    for path in [*ROOT.glob("README*.md"), *sorted(DOCS.rglob("*.md"))]:
        if path in found:
            continue
        text = path.read_text(encoding="utf-8")
        if SECTION.search(text):
            found[path] = SECTION.sub(fill, text)
    return found


def main(argv: list[str]) -> int:
    """Write what changed, or with `--check` say what is stale."""
    stale = []
    for path, text in rendered().items():
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        stale.append(path.relative_to(ROOT).as_posix())
        if "--check" not in argv:
            path.write_text(text, encoding="utf-8")
    if stale and "--check" in argv:
        print("stale, run `make docs`:", *stale, sep="\n  ", file=sys.stderr)
        return 1
    if stale:
        print("written:", *stale, sep="\n  ")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
