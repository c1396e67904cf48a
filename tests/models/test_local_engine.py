"""A real, small model in this process: the shapes hold, whatever it says."""

import asyncio
import json
import re
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path
from typing import Any

import pytest

from cairn import Agent, ErrorClass, Limits, ModelError, Runtime, tool
from cairn.core.messages import text_of, user
from cairn.models.local import engine as engines
from cairn.models.local import open_model
from cairn.ports import ModelReply, ModelRequest, ToolSchema

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

ROOT = Path(__file__).resolve().parents[2]
MOODS = ("sunny", "cloudy", "rainy")
TOOLS = (
    ToolSchema(
        name="add",
        description="Add two whole numbers.",
        parameters={
            "type": "object",
            "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
            "required": ["a", "b"],
        },
    ),
    ToolSchema(
        name="weather",
        description="Tell the weather of a day.",
        parameters={
            "type": "object",
            "properties": {
                "day": {"type": "string", "enum": ["monday", "tuesday"]},
                "mood": {"$ref": "#/$defs/Mood"},
            },
            "required": ["day", "mood"],
            "$defs": {"Mood": {"enum": list(MOODS)}},
        },
    ),
)


@pytest.fixture
def small(smollm2_file: Path) -> Any:
    return open_model(str(smollm2_file), window=2_048, max_output=256)


def asked(text: str, **more: Any) -> ModelRequest:
    return ModelRequest(system="", messages=(user(text),), **{"timeout_s": 60.0, **more})


def ask(model: Any, request: ModelRequest, on_delta: Any = None) -> ModelReply:
    return asyncio.run(model.request(request, on_delta))


def failed(model: Any, request: ModelRequest) -> ErrorClass:
    with pytest.raises(ModelError) as caught:
        ask(model, request)
    return caught.value.error_class


def fits(name: str, arguments: dict[str, Any]) -> bool:
    if name == "add":
        return set(arguments) == {"a", "b"} and all(type(v) is int for v in arguments.values())
    return (
        name == "weather"
        and set(arguments) == {"day", "mood"}
        and arguments["day"] in ("monday", "tuesday")
        and arguments["mood"] in MOODS
    )


QUESTIONS = ("What is 2 plus 3?", "Tell me a story.", "{", "你好")


@pytest.mark.parametrize("choice", ["auto", "none", "weather"])
def test_every_step_is_an_action_of_the_schema_whatever_is_asked(small, choice):
    for question in QUESTIONS:
        request = asked(
            question, tools=TOOLS, output_mode="action", tool_choice=choice, max_output=96
        )
        reply = ask(small, request)  # a reply that is no action would raise
        if reply.finish == "length":
            assert text_of(reply.parts).lstrip().startswith("{")
            continue
        assert all(fits(c.name, json.loads(c.arguments)) for c in reply.calls)
        assert bool(reply.calls) != bool(text_of(reply.parts).strip() or choice == "none")
        assert choice != "weather" or [c.name for c in reply.calls] == ["weather"]


def test_a_typed_answer_is_forced_into_its_schema(small):
    schema = {"type": "object", "properties": {"mood": {"enum": list(MOODS)}}, "required": ["mood"]}
    reply = ask(small, asked("How is it?", output_mode="schema", output_schema=schema))
    assert json.loads(text_of(reply.parts))["mood"] in MOODS
    assert reply.finish == "stop"


def test_a_pattern_is_kept_to_and_no_space_is_wasted(small):
    ticket = {"type": "string", "pattern": "^T-\\d{2,4}$"}
    schema = {"type": "object", "properties": {"id": ticket}, "required": ["id"]}
    reply = ask(small, asked("Which ticket?", output_mode="schema", output_schema=schema))
    assert re.fullmatch(r'\{"id": "T-\d{2,4}"\}', text_of(reply.parts))


@pytest.mark.parametrize("schema", [{"type": "wat"}, {"$ref": "#/$defs/none"}])
def test_a_schema_that_no_grammar_can_be_made_of_is_a_fault_and_no_answer(small, schema):
    request = asked("Hello.", output_mode="schema", output_schema=schema, max_output=64)
    assert failed(small, request) is ErrorClass.INVALID_REQUEST


def test_a_reply_says_why_it_ended_and_what_it_used(small):
    reply = ask(small, asked("Tell me a long story about the sea.", max_output=12))
    assert (reply.finish, reply.usage.output_tokens) == ("length", 12)
    assert reply.usage.input_tokens + reply.usage.cached_tokens > 12
    assert reply.first_token_us > 0
    assert reply.request_id
    assert reply.model == small.name


def test_without_reuse_the_same_request_gets_the_same_reply_whatever_came_before(smollm2_file):
    model = open_model(str(smollm2_file), window=2_048, max_output=256, reuse=False)
    request = asked("Name three colours.", max_output=24)
    first = ask(model, request)
    ask(model, asked("Name three animals.", max_output=8))
    again = ask(model, request)
    assert text_of(first.parts) == text_of(again.parts)
    assert again.usage.cached_tokens == 0


def test_text_is_shown_as_it_arrives_and_adds_up(small):
    pieces: list[str] = []
    reply = ask(small, asked("Count to five.", max_output=24), pieces.append)
    assert len(pieces) > 1
    assert "".join(pieces) == text_of(reply.parts)


def test_only_the_answer_of_an_action_is_shown(small):
    pieces: list[str] = []
    request = asked("Hello?", tools=TOOLS, output_mode="action", tool_choice="none", max_output=64)
    reply = ask(small, request, pieces.append)
    if reply.finish == "stop":
        assert "".join(pieces) == text_of(reply.parts)
    pieces.clear()
    ask(small, asked("2 + 3?", tools=TOOLS, output_mode="action", tool_choice="add"), pieces.append)
    assert pieces == []


def test_a_prompt_past_the_window_is_an_overflow(small):
    assert failed(small, asked("word " * 4_000)) is ErrorClass.CONTEXT_OVERFLOW


def test_a_file_without_a_form_of_conversation_gets_a_plain_one(tmp_path, smollm2_file):
    path = tmp_path / "base.gguf"
    head = smollm2_file.read_bytes()
    path.write_bytes(head.replace(b"tokenizer.chat_template", b"tokenizer.chat_tempIate", 1))
    model = open_model(str(path), window=512, max_output=256)
    reply = ask(model, asked("Hello.", max_output=32))
    assert "user:" not in text_of(reply.parts)
    assert reply.finish in {"stop", "length"}
    request = asked("2 + 3?", tools=TOOLS[:1], output_mode="action", tool_choice="add")
    assert [c.name for c in ask(model, request).calls] == ["add"]


# ---------------------------------------------------------------- one engine for all


def test_a_file_is_loaded_once_and_shared_by_all_that_ask(small, smollm2_file):
    other = open_model(str(smollm2_file), window=2_048, max_output=256)
    shared = engines.engine(small._setup)
    ask(small, asked("Hi.", max_output=2))
    loaded = shared._server
    ask(other, asked("Hi.", max_output=2))
    assert other is not small
    assert engines.engine(other._setup) is shared
    assert shared._server is loaded


def test_first_requests_at_the_same_time_load_the_file_once(smollm2_file):
    model = open_model(str(smollm2_file), window=512, slots=2, max_output=256)

    async def main() -> list[ModelReply]:
        requests = (model.request(asked(f"Say {n}.", max_output=4)) for n in range(4))
        return await asyncio.gather(*requests)

    assert [reply.usage.output_tokens > 0 for reply in asyncio.run(main())] == [True] * 4
    named = [t for t in threading.enumerate() if t.name.startswith("cairn-local")]
    assert len(named) <= sum(setup.slots for setup in engines._engines)


def test_ctrl_c_is_still_the_processs_own_after_loading(small):
    ask(small, asked("Hi.", max_output=2))
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


def test_a_deadline_ends_the_request_and_gives_the_slot_back(small):
    late = asked("word " * 1_500, max_output=256, timeout_s=0.05)
    assert failed(small, late) is ErrorClass.TIMEOUT
    assert ask(small, asked("Hi.", max_output=2)).finish


def test_a_cancelled_request_shows_no_more_and_gives_the_slot_back(small):
    pieces: list[str] = []

    async def main() -> tuple[int, int]:
        begun = asyncio.Event()

        def on_delta(text: str) -> None:
            pieces.append(text)
            begun.set()

        request = asked("Tell me a long story about the sea.", max_output=256)
        task = asyncio.create_task(small.request(request, on_delta))
        await begun.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        shown = len(pieces)
        reply = await small.request(asked("Hi.", max_output=2))  # the only slot
        assert reply.usage.output_tokens <= 2
        return shown, len(pieces)

    shown, later = asyncio.run(main())
    assert 0 < shown == later < 200


def test_a_request_cancelled_while_it_waits_for_a_slot_is_never_made(small):
    async def main() -> None:
        first = asyncio.create_task(small.request(asked("Count to ten.", max_output=32)))
        await asyncio.sleep(0)
        second = asyncio.create_task(small.request(asked("Never.", max_output=256)))
        await asyncio.sleep(0)
        second.cancel()
        with pytest.raises(asyncio.CancelledError):
            await second
        assert (await first).usage.output_tokens <= 32

    asyncio.run(main())
    assert engines.engine(small._setup)._pool._work_queue.qsize() <= 1


# ---------------------------------------------------------------- through the runtime


@tool(effect="read")
def add(a: int, b: int) -> int:
    """Add two whole numbers."""
    return a + b


def test_two_runs_at_once_both_come_to_an_end(small):
    agent = Agent("a", small, tools=[add], builtins=(), limits=Limits(steps=3))

    async def main() -> list[Any]:
        async with Runtime(store=":memory:", agents=[agent]) as rt:
            tasks = ("What is 2 plus 3?", "What is 40 plus 2?")
            return await asyncio.gather(*(rt.run_async("a", task) for task in tasks))

    runs = asyncio.run(main())
    assert all(run.status in {"completed", "stopped", "failed"} for run in runs)
    assert all(run.usage.output_tokens > 0 for run in runs)
    assert all(run.usage.micro_usd == 0 for run in runs)


@pytest.mark.timeout(400)
def test_the_tasks_of_the_example_all_run_and_no_promise_breaks():
    done = subprocess.run(
        [sys.executable, "examples/local_tasks.py"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=380,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"^\d of 9 succeeded", done.stdout, re.MULTILINE)
    assert "9 of 9 stayed inside every bound; no ticket was closed unasked." in done.stdout
    assert "every hash chain verified" in done.stdout
    assert done.stderr == ""


# ---------------------------------------------------------------- other processes


def script(text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_a_file_that_llama_cpp_cannot_load_fails_the_request_by_class(tmp_path, smollm2_file):
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(smollm2_file.read_bytes()[:3_000_000])
    done = script(
        """
        import asyncio, sys
        from cairn import ModelError
        from cairn.core.messages import user
        from cairn.models.local import model
        from cairn.ports import ModelRequest
        try:
            asyncio.run(model(sys.argv[1]).request(ModelRequest(system="", messages=(user("x"),))))
        except ModelError as error:
            print(error.error_class.value, error)
        """,
        str(broken),
    )
    assert done.stdout.startswith("model_not_found llama.cpp cannot load broken.gguf"), done
    assert done.returncode == 0


def test_a_forked_child_is_told_and_both_processes_end(smollm2_file):
    done = script(
        """
        import asyncio, os, sys
        from cairn import ModelError
        from cairn.core.messages import user
        from cairn.models.local import open_model
        from cairn.ports import ModelRequest
        def ask():
            model = open_model(sys.argv[1], window=512)
            request = ModelRequest(system="", messages=(user("x"),), max_output=2)
            return asyncio.run(model.request(request))
        ask()
        pid = os.fork()
        if pid == 0:
            try:
                ask()
            except ModelError as error:
                sys.exit(7 if "forked" in str(error) else 8)
            sys.exit(9)
        print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), ask().finish != "")
        """,
        str(smollm2_file),
    )
    assert (done.stdout.strip(), done.returncode) == ("7 True", 0), done


RUN = """
    import json, os, signal, sys
    from dataclasses import dataclass
    from typing import Literal
    from cairn import Agent, Runtime
    from cairn.models.local import generation, open_model

    @dataclass
    class Weather:
        mood: Literal["sunny", "cloudy", "rainy"]

    class Dying(generation.Generation):
        def take(self, chunk):
            if len(self._text) == 3:
                os.kill(os.getpid(), signal.SIGKILL)
            return super().take(chunk)

    if sys.argv[3] == "die":
        generation.Generation = Dying
    model = open_model(sys.argv[1], window=512)
    agent = Agent("a", model, output_type=Weather, builtins=())
    with Runtime(store=sys.argv[2], agents=[agent]) as rt:
        run = rt.run("a", "How is the weather?", id="r")
        names = [entry.event.NAME for entry in rt.trace("r")]
    print(json.dumps([run.status, run.text, names, run.usage.output_tokens]))
"""


@pytest.mark.kill
def test_a_process_killed_in_the_middle_of_a_generation_leaves_a_run_that_goes_on(
    tmp_path, smollm2_file
):
    given = (str(smollm2_file), str(tmp_path / "store.db"))
    assert script(RUN, *given, "die").returncode == -signal.SIGKILL
    done = script(RUN, *given, "live")
    assert done.returncode == 0, done.stderr
    status, text, names, tokens = json.loads(done.stdout)
    assert (status, json.loads(text)["mood"] in MOODS) == ("completed", True)
    assert names.count("model.requested") == 2
    assert names.index("model.failed") < names.index("model.completed")
    assert tokens > 0
