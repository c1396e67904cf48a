"""The command line's modules: none of them imports one that imports it, not even late."""

import ast
from graphlib import TopologicalSorter

from tests.cli.conftest import SRC

ROOM = "cairn.cli."


def test_no_two_modules_of_the_command_line_import_each_other() -> None:
    files = {path.stem: path for path in (SRC / "cairn" / "cli").glob("*.py")}
    imports: dict[str, set[str]] = {}
    for name, path in files.items():
        found: set[str] = set()
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module:
                whole = [node.module, *(f"{node.module}.{each.name}" for each in node.names)]
                found |= {each.removeprefix(ROOM) for each in whole if each.startswith(ROOM)}
        imports[name] = found & files.keys()
    assert imports["screen"], "imports are found"
    TopologicalSorter(imports).prepare()  # raises CycleError, which names the circle
