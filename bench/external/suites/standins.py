"""Import a package's simulator without what its other rooms ask for.

The packages are installed without their dependencies, so a package file that would import every
vendor's SDK is not run: its folder is entered all the same, and the modules below are the real
ones. Where a simulator wants a name of a package that is not there, a stand-in holds that name.
"""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType
from typing import Any


def enter(name: str) -> None:
    """Make the package importable without running its `__init__`."""
    top, *below = name.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None or not spec.submodule_search_locations:
        raise ModuleNotFoundError(f"{top} is not installed; run `make -C bench/external env`")
    module = ModuleType(name)
    module.__path__ = [str(Path(spec.submodule_search_locations[0]).joinpath(*below))]
    sys.modules[name] = module


def stand_in(name: str, **names: Any) -> None:
    """A module that holds just these names."""
    module = ModuleType(name)
    module.__dict__.update(names)
    module.__path__ = []
    sys.modules[name] = module
