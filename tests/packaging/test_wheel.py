"""The wheel is what users get: built once, installed without src, and tried."""

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
MAX_DISTRIBUTIONS = 16
MAX_BYTES = 30_000_000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]


def run(*argv: str | Path, cwd: Path) -> str:
    done = subprocess.run(argv, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{argv}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    pip = (sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation")
    run(*pip, "--wheel-dir", folder, ROOT, cwd=folder)
    (built,) = folder.glob("cairn_runtime-*.whl")
    return built


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel and what it asks for, at the locked versions, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    pins = re.findall(r"^[\w.-]+==\S+", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    (folder / "pins.txt").write_text("\n".join(pins))
    run(sys.executable, "-m", "venv", "--without-pip", folder / "env", cwd=folder)
    pip = (sys.executable, "-m", "pip", "--python", folder / "env/bin/python", "install", "-q")
    run(*pip, "--no-compile", "--constraint", folder / "pins.txt", wheel, cwd=folder)
    return folder / "env"


def test_the_wheel_holds_every_file_of_the_package(wheel: Path) -> None:
    package = ROOT / "src" / "cairn"
    wanted = {
        p.relative_to(package.parent).as_posix()
        for p in package.rglob("*")
        if p.is_file() and "__pycache__" not in p.parts
    }
    held = {name for name in zipfile.ZipFile(wheel).namelist() if name.startswith("cairn/")}
    assert "cairn/py.typed" in held
    assert held == wanted


def test_a_core_install_stays_small(environment: Path) -> None:
    (packages,) = environment.glob("lib/python3*/site-packages")
    distributions = list(packages.glob("*.dist-info"))
    assert len(distributions) <= MAX_DISTRIBUTIONS
    files = [p for p in packages.rglob("*") if p.is_file() and p.suffix != ".pyc"]
    assert sum(p.stat().st_size for p in files) <= MAX_BYTES


def test_the_installed_package_imports_every_public_name(environment: Path, tmp_path: Path) -> None:
    code = "import cairn; print(cairn.__file__); print([getattr(cairn, n) for n in cairn.__all__])"
    where = run(environment / "bin/python", "-W", "error", "-c", code, cwd=tmp_path)
    assert where.startswith(str(environment))


def test_the_installed_command_explains_itself(environment: Path, tmp_path: Path) -> None:
    assert "Usage" in run(environment / "bin/cairn", "--help", cwd=tmp_path)
