"""Where the store and the application of a project are, as its environment and folder say."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from cairn.core.messages import Record
from cairn.core.names import nearest
from cairn.errors import ConfigError

DEFAULT_STORE = "cairn.db"
KEYS = ("app", "store")
KNOWN = f"The keys are {' and '.join(KEYS)}"


class Settings(Record):
    """What is known before any code of the application runs.

    Args:
        store: Path or address of the store; relative paths are meant from where they stand.
        store_from: Who says so, in words.
        app: `module:attribute` of the application, empty for none.
        app_from: Who says so, in words.
        folder: The folder of the `pyproject.toml` that was found, empty for none.
    """

    store: str = DEFAULT_STORE
    store_from: str = "the default"
    app: str = ""
    app_from: str = ""
    folder: str = ""

    @property
    def store_is_named(self) -> bool:
        """Whether anybody said where the store is."""
        return self.store_from != "the default"


def find_settings(folder: Path, environ: Mapping[str, str]) -> Settings:
    """What environment and `[tool.cairn]` of the folder or its nearest parents say.

    Raises:
        ConfigError: `pyproject.toml` cannot be read, or `[tool.cairn]` in it has an unknown key or
            a value that is no text.
    """
    home, table = _project(folder)
    store, app = table.get("store", ""), table.get("app", "")
    found: dict[str, str] = {"folder": str(home) if home is not None else ""}
    source = "[tool.cairn] in pyproject.toml"
    if environ.get("CAIRN_STORE"):
        found |= {"store": environ["CAIRN_STORE"], "store_from": "CAIRN_STORE"}
    elif store and home is not None:
        found |= {"store": _placed(store, home), "store_from": source}
    if environ.get("CAIRN_APP"):
        found |= {"app": environ["CAIRN_APP"], "app_from": "CAIRN_APP"}
    elif app:
        found |= {"app": app, "app_from": source}
    return Settings(**found)


def _project(folder: Path) -> tuple[Path | None, dict[str, str]]:
    """The nearest `pyproject.toml` with a `[tool.cairn]` table, and that table."""
    for home in (folder, *folder.parents):
        file = home / "pyproject.toml"
        if not file.is_file():
            continue
        try:
            content: dict[str, Any] = tomllib.loads(file.read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(str(file), f"it cannot be read ({error})", "Mend the file") from error
        tools = content.get("tool")
        if isinstance(tools, dict) and "cairn" in tools:
            return home, _checked(tools["cairn"], file)
    return None, {}


def _checked(table: object, file: Path) -> dict[str, str]:
    """The table itself. Raises `ConfigError` for what nobody would read or could use."""
    if not isinstance(table, dict):
        raise ConfigError("tool.cairn", f"in {file} it is no table", "Write [tool.cairn] above it")
    for key, value in table.items():
        if key not in KEYS:
            close = nearest(key, KEYS)
            meant = f"Did you mean {' or '.join(close)}? " if close else ""
            raise ConfigError(
                f"tool.cairn.{key}", f"{file} has a key that is not known", f"{meant}{KNOWN}"
            )
        if not isinstance(value, str):
            raise ConfigError(
                f"tool.cairn.{key}", f"in {file} it is no text", f'Write {key} = "…", in quotes'
            )
    return table


def _placed(store: str, home: Path) -> str:
    """A relative path as seen from the file it stands in; addresses stay as they are."""
    if store == ":memory:" or (store.partition(":")[0].isalpha() and ":" in store):
        return store
    return str(home / store)
