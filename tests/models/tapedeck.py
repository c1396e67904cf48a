"""What the tests of cassettes share: a model of their own, and ways to record and to ask."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from cairn import ModelError, Price, Text
from cairn.core.messages import user
from cairn.models.cassette import Cassette
from cairn.ports import ModelReply, ModelRequest

ROOT = Path(__file__).resolve().parents[2]


class Flaky:
    """A model of our own: says what its list says, whoever asks, and counts its requests."""

    name = "flaky:one"
    price = Price(input=1_000_000, output=2_000_000)
    window = 9_000
    max_output = 700
    takes_tools = False
    timeout_s = 7.0
    lane = None

    def __init__(self, *answers: Any, shown: str = "") -> None:
        self.answers = list(answers)
        self.shown = shown
        self.asked = 0

    async def request(self, request: ModelRequest, on_delta: Any = None) -> ModelReply:
        self.asked += 1
        if on_delta is not None and self.shown:
            on_delta(self.shown)
        await asyncio.sleep(0)
        answer = self.answers.pop(0)
        if isinstance(answer, BaseException):
            raise answer
        return answer if isinstance(answer, ModelReply) else ModelReply(parts=(Text(answer),))


def asking(text: str = "hello", **more: Any) -> ModelRequest:
    return ModelRequest(**{"system": "Be short.", "messages": [user(text)], **more})


def ask(model: Cassette, request: ModelRequest, heard: Callable[[str], None] | None = None) -> Any:
    return asyncio.run(model.request(request, heard))


def said(model: Cassette, *requests: ModelRequest) -> list[str]:
    return [ask(model, request).parts[0].content for request in requests]


def record(path: Path, inner: Any, *requests: ModelRequest, **more: Any) -> list[Any]:
    """What came of each request: a reply, or the error that was raised."""
    came = []
    with Cassette(path, inner, mode="record", **more) as tape:
        for request in requests:
            try:
                came.append(ask(tape, request))
            except (ModelError, TimeoutError) as error:
                came.append(error)
    return came


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def exchanges(path: Path) -> list[dict[str, Any]]:
    return [line for line in lines(path) if "exchange" in line]


CHILD = """
import asyncio, os, sys
from cairn import Scripted
from cairn.core.messages import user
from cairn.models.cassette import Cassette
from cairn.ports import ModelRequest

path = sys.argv[1]

def said(model, text="hello", **more):
    request = ModelRequest(system="Be short.", messages=[user(text)], **more)
    return asyncio.run(model.request(request)).parts[0].content

"""


def run_child(code: str, path: Path, **env: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", CHILD + code, str(path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), **env},
    )
