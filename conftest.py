"""Runs the Python examples in README.md and docs/, each document from top to bottom."""

import contextlib
import tempfile
from typing import Any

from sybil import Sybil
from sybil.parsers.markdown import ClearNamespaceParser, PythonCodeBlockParser, SkipParser


def _enter_fresh_folder(namespace: dict[str, Any]) -> None:
    """Give each document an empty folder of its own, so that no example leaves files behind."""
    stack = contextlib.ExitStack()
    folder = stack.enter_context(tempfile.TemporaryDirectory())
    stack.enter_context(contextlib.chdir(folder))
    namespace["_folder"] = stack


def _leave_fresh_folder(namespace: dict[str, Any]) -> None:
    namespace["_folder"].close()


pytest_collect_file = Sybil(
    parsers=[PythonCodeBlockParser(), SkipParser(), ClearNamespaceParser()],
    patterns=["README*.md", "docs/*.md", "docs/**/*.md"],
    setup=_enter_fresh_folder,
    teardown=_leave_fresh_folder,
).pytest()
