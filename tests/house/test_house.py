"""The house rules, as tests: sizes, names, purity of the core, tidy prose, an honest lock.

An exception is a line in ALLOWED, keyed by rule, and that table may only shrink.
"""

import ast
import functools
import importlib
import re
import statistics
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
CORE = SRC / "cairn" / "core"

ALLOWED: dict[str, frozenset[str]] = {}  # rule → places let off; no entry may be added

MAX_LINES_SRC = 500
MAX_LINES_TESTS = 800
MAX_LINES_FUNCTION = 70
MAX_LINES_MEDIAN = 160
MAX_LINES_README = 150

VAGUE_NAMES = {"utils", "util", "common", "helpers", "base", "manager"}
IMPURE_MODULES = {"time", "uuid", "random", "secrets", "logging"}
IMPURE_CALLS = {"open", "print", "input", "datetime.now", "datetime.utcnow", "datetime.today"}
IMPURE_CALLS |= {"date.today", "os.urandom"}
FRAGMENT = re.compile(r"\d+\.(added|changed|fixed|removed)\.md")
# One letter of each stands in brackets, so that these patterns do not find themselves.
UNFINISHED = re.compile(r"\b(TOD[O]|FIXM[E]|XX[X])\b")
MACHINE_PATH = re.compile(r"(?<![\w.})/-])/(?:(?:roo[t]|wor[k])\b|(?:tm[p]|hom[e])/)")
INDEX_ADDRESS = re.compile(r"pypi[.]org|files[.]pythonhosted|--(extra-)?index-url[ =]|/simple[/]")
SILENCED = re.compile(
    r"#\s*(?:noqa|type:\s*ignore)(?P<code>[:\[][\w, \-\]]*?)?(?P<reason>\s+- .+)?$"
)

SKIPPED_FOLDERS = {".venv", "build", "dist", "htmlcov", "node_modules", "__pycache__"}
PLACES_OF_PROSE = ("src", "tests", "docs", "examples", "bench", "changes", ".ci")
TEXT_SUFFIXES = {".py", ".md", ".toml", ".sql", ".txt", ".lock", ".html", ".css", ".js", ".sh"}
TEXT_SUFFIXES |= {".json", ".jsonl", ".yaml", ".yml", ".cfg", ".ini", ""}


def python_files(folder: Path) -> list[Path]:
    return sorted(p for p in folder.rglob("*.py") if not SKIPPED_FOLDERS & set(p.parts))


@functools.cache
def lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()


@functools.cache
def tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), filename=str(path))


@pytest.fixture(scope="module", autouse=True)
def _nothing_is_kept() -> Iterator[None]:
    """The trees of all files are large, and later tests look for garbage among what is alive."""
    yield
    lines.cache_clear()
    tree.cache_clear()


def text_files(*, everywhere: bool = False) -> Iterator[Path]:
    """Yield the text files people write, or all that the repository may track."""
    for path in sorted(ROOT.iterdir()):
        if path.is_file():
            if not path.name.startswith(".coverage"):
                yield path
        elif path.name in PLACES_OF_PROSE or (everywhere and not path.name.startswith(".")):
            for inner in sorted(path.rglob("*")):
                hidden = SKIPPED_FOLDERS & set(inner.relative_to(ROOT).parts)
                if inner.is_file() and not hidden and inner.suffix in TEXT_SUFFIXES:
                    yield inner


def matches(pattern: re.Pattern[str], paths: Iterator[Path]) -> list[str]:
    return [
        f"{place(path, number)} {line.strip()[:80]}"
        for path in paths
        if path.suffix in TEXT_SUFFIXES
        for number, line in enumerate(lines(path), 1)
        if pattern.search(line)
    ]


def place(path: Path, number: int | None = None) -> str:
    name = path.relative_to(ROOT).as_posix()
    return name if number is None else f"{name}:{number}"


def assert_none(rule: str, found: list[str]) -> None:
    """Fail with every place that breaks the rule, and with every allowance nobody needs."""
    allowed = ALLOWED.get(rule, frozenset())
    broken = [item for item in found if item.split(" ")[0] not in allowed]
    unneeded = allowed - {item.split(" ")[0] for item in found}
    assert not broken, "\n" + "\n".join(broken)
    assert not unneeded, f"remove from ALLOWED: {sorted(unneeded)}"


def functions(path: Path) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    for node in ast.walk(tree(path)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node


def dotted(node: ast.expr) -> str:
    """Return `a.b.c` for names and attributes, and an empty string for anything else."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=value, attr=attr):
            return f"{dotted(value)}.{attr}".lstrip(".")
        case _:
            return ""


# --- sizes and names


def test_no_file_outgrows_a_reader() -> None:
    found = [
        f"{place(path)} has {len(lines(path))} lines, at most {limit} are allowed"
        for folder, limit in ((SRC, MAX_LINES_SRC), (ROOT / "tests", MAX_LINES_TESTS))
        for path in python_files(folder)
        if len(lines(path)) > limit
    ]
    assert_none("file size", found)


def test_the_median_file_stays_small() -> None:
    assert statistics.median(len(lines(p)) for p in python_files(SRC)) <= MAX_LINES_MEDIAN


def test_no_function_outgrows_a_screen() -> None:
    found = [
        f"{place(path, node.lineno)} {node.name} has {size} lines"
        for folder in (SRC, ROOT / "tests")
        for path in python_files(folder)
        for node in functions(path)
        if (size := (node.end_lineno or node.lineno) - node.lineno + 1) > MAX_LINES_FUNCTION
    ]
    assert_none("function size", found)


def test_every_module_is_named_after_what_it_holds() -> None:
    found = [
        place(path)
        for path in python_files(SRC)
        if VAGUE_NAMES & {part.strip("_") for part in path.relative_to(SRC).with_suffix("").parts}
    ]
    assert_none("vague name", found)


# --- the core is pure


def test_the_core_never_waits() -> None:
    waits = (ast.AsyncFunctionDef, ast.Await, ast.AsyncFor, ast.AsyncWith)
    found = [
        place(path, node.lineno)
        for path in python_files(CORE)
        for node in ast.walk(tree(path))
        if isinstance(node, waits)
    ]
    assert_none("async core", found)


def test_the_core_imports_no_clock_no_chance_and_no_log() -> None:
    found = []
    for path in python_files(CORE):
        for node in ast.walk(tree(path)):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and not node.level:
                names = [node.module or ""]
            found += [
                f"{place(path, node.lineno)} imports {name}"
                for name in names
                if name.split(".")[0] in IMPURE_MODULES
            ]
    assert_none("impure import", found)


def test_the_core_opens_nothing_prints_nothing_and_asks_no_clock() -> None:
    found = [
        f"{place(path, node.lineno)} calls {name}"
        for path in python_files(CORE)
        for node in ast.walk(tree(path))
        if isinstance(node, ast.Call)
        for name in [dotted(node.func)]
        if name in IMPURE_CALLS or ".".join(name.split(".")[-2:]) in IMPURE_CALLS
    ]
    assert_none("impure call", found)


# --- what is public is explained


def test_every_public_module_says_what_it_is_for() -> None:
    found = [
        place(path)
        for path in python_files(SRC)
        if path.name == "__init__.py" or not path.name.startswith("_")
        if not ast.get_docstring(tree(path))
    ]
    assert_none("module docstring", found)


def test_every_exported_name_is_documented() -> None:
    cairn = importlib.import_module("cairn")
    found = []
    for name in cairn.__all__:
        thing = getattr(cairn, name)
        module = importlib.import_module(getattr(thing, "__module__", None) or "builtins")
        if not callable(thing) or not module.__name__.startswith("cairn"):
            continue
        defined = getattr(thing, "__name__", name)
        nodes = [
            node
            for node in ast.walk(tree(Path(str(module.__file__))))
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            if node.name == defined
        ]
        if nodes and not any(ast.get_docstring(node) for node in nodes):
            found.append(f"{name} in {module.__name__}")
    assert_none("public docstring", found)


# --- nothing is left half said


def test_nothing_is_left_for_later_in_a_comment() -> None:
    assert_none("unfinished", matches(UNFINISHED, text_files()))


def test_every_broad_except_says_why() -> None:
    found = []
    for path in python_files(SRC):
        for node in ast.walk(tree(path)):
            if not isinstance(node, ast.ExceptHandler):
                continue
            kinds = node.type.elts if isinstance(node.type, ast.Tuple) else [node.type]
            broad = any(
                kind is None or dotted(kind) in {"Exception", "BaseException"} for kind in kinds
            )
            comment = lines(path)[node.lineno - 1].partition("#")[2]
            reason = re.sub(r"(noqa|type: ignore|pragma)\S*\s*[A-Z]*\d*", "", comment).strip(" -#:")
            if broad and len(reason.split()) < 2:
                found.append(place(path, node.lineno))
    assert_none("broad except", found)


def test_every_silenced_check_has_a_code_and_a_reason() -> None:
    found = []
    for path in [*python_files(SRC), *python_files(ROOT / "tests")]:
        for number, line in enumerate(lines(path), 1):
            silenced = SILENCED.search(line)
            if silenced and not (silenced["code"] and silenced["reason"]):
                found.append(f"{place(path, number)} write `# noqa: CODE - reason`")
    assert_none("silenced check", found)


def test_nothing_names_a_place_on_one_machine() -> None:
    assert_none("machine path", matches(MACHINE_PATH, text_files()))


def test_the_readme_fits_a_short_read() -> None:
    found = [
        f"{place(path)} has {len(lines(path))} lines"
        for path in [ROOT / "README.md", *ROOT.glob("README.*.md"), *ROOT.glob("README_*.md")]
        if len(lines(path)) >= MAX_LINES_README
    ]
    assert_none("readme size", found)


def test_every_change_note_is_named_by_issue_and_kind_and_says_something() -> None:
    found = []
    for path in sorted((ROOT / "changes").iterdir()):
        if path.name == "README.md":
            continue
        text = path.read_text(encoding="utf-8").strip()
        whole = text.endswith(".") and not text.startswith(("#", "-", "*")) and "\n\n" not in text
        if not FRAGMENT.fullmatch(path.name) or not whole:
            found.append(f"{place(path)} see changes/README.md")
    assert_none("change note", found)


# --- the lock


@functools.cache
def lock_blocks(name: str = "requirements.lock") -> dict[str, tuple[str, str]]:
    """Read a lock as name → (version, everything said about it)."""
    text = "\n".join(lines(ROOT / name)).replace("\\\n", " ")
    blocks = {}
    for line in text.splitlines():
        if pinned := re.match(r"([A-Za-z0-9._-]+)==(\S+)", line):
            blocks[canonicalize_name(pinned[1])] = (pinned[2], line)
        else:
            assert not line.strip() or line.lstrip().startswith("#"), f"not a pin: {line}"
    return blocks


@pytest.mark.parametrize("lock", ["requirements.lock", "requirements-local.lock"])
def test_the_lock_pins_every_dependency_with_a_hash(lock: str) -> None:
    assert lock_blocks(lock)
    found = [name for name, (_, line) in lock_blocks(lock).items() if "--hash=sha256:" not in line]
    assert_none("unhashed pin", found)


def test_the_lock_is_not_stale() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    wanted = [*project["build-system"]["requires"], *project["project"]["dependencies"]]
    wanted += project["project"].get("optional-dependencies", {}).get("dev", [])
    found = []
    for requirement in map(Requirement, wanted):
        version, _ = lock_blocks().get(canonicalize_name(requirement.name), ("", ""))
        if not version or not requirement.specifier.contains(version, prereleases=True):
            found.append(f"{requirement} is locked at {version or 'nothing'}: run `make lock`")
    assert_none("stale lock", found)


def test_no_package_index_is_named_anywhere() -> None:
    assert_none("index address", matches(INDEX_ADDRESS, text_files(everywhere=True)))
