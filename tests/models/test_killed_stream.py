"""SIGKILL in the middle of a streamed reply; another process goes on, on the same file."""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest
from tests.models.wire.bodies import CHAT, MESSAGES, RESPONSES, SSE, Said, call, text
from tests.models.wire.server import Answer, Loopback

from cairn import Runtime
from cairn.core import events as ev

pytestmark = [pytest.mark.kill, pytest.mark.timeout(180)]
ROOT = Path(__file__).resolve().parents[2]
PATIENCE_S = 80.0
POST = Said(parts=(call('{"q": "tea"}', "post"),))
WORDS = "This much was said before the end came, and no more of it was heard."


async def work(folder, form, server):
    """A process of its own that drives the run."""
    job = {
        "store": str(folder / "store.db"),
        "traces": str(folder / "traces"),
        "url": server.url + ("/v1" if form in {CHAT, RESPONSES} else ""),
        "provider": form.provider,
        "model": form.model,
    }
    return await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "tests.models.streaming_worker",
        json.dumps(job),
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
    )


async def killed_in(folder, form, hanging, answers):
    """Kill a process while request `hanging` streams, and let another one finish the run.

    What the server saw, what happened outside, and the journal.
    """
    async with Loopback(*answers) as server:
        process = await work(folder, form, server)
        async with asyncio.timeout(PATIENCE_S):
            # a look now and then: the other process tells nobody how far it is
            while len(server.seen) <= hanging or not _shown(folder, answers[hanging]):
                assert process.returncode is None
                await asyncio.sleep(0.01)
            await server.seen[hanging].sent.wait()
            process.send_signal(signal.SIGKILL)
            assert await process.wait() == -signal.SIGKILL
            await server.seen[hanging].gone.wait()
            second = await work(folder, form, server)
            assert await second.wait() == 0
    async with Runtime(folder / "store.db") as rt:
        assert await rt.store.verify("r") > 0
        entries = await rt.trace_async("r")
        run = await rt.get_async("r")
    return server.seen, (folder / "traces").read_text().splitlines(), entries, run


def _shown(folder, answer):
    """Whether the first words have come out of the process, if there are any to come."""
    traces = folder / "traces"
    words = any(b"This much" in event for event in answer.events)
    return not words or (traces.exists() and "delta" in traces.read_text())


def events(entries, kind):
    return [entry.event for entry in entries if isinstance(entry.event, kind)]


def check_books(seen, entries, run, reserved):
    """Each request at the server is one of ours, and the lost one was charged as reserved."""
    asked = events(entries, ev.ModelRequested)
    assert len(seen) == len(asked)
    [lost] = events(entries, ev.ModelFailed)
    assert (lost.error_class.value, lost.disposition, lost.lost) == (
        "stream_interrupted",
        "retry",
        True,
    )
    assert lost.usage.input_tokens == reserved.input_tokens > 0
    assert lost.usage.output_tokens == reserved.output_tokens > 0
    assert lost.usage.micro_usd == reserved.micro_usd > 0
    spent = [e.usage for e in events(entries, ev.ModelCompleted | ev.ModelFailed)]
    assert run.usage.tokens == sum(each.tokens for each in spent)
    assert run.usage.micro_usd == sum(each.micro_usd for each in spent)


@pytest.mark.parametrize("form", [CHAT, MESSAGES], ids=repr)
def test_a_process_killed_in_the_middle_of_an_answer_is_followed_by_one_that_asks_again(
    form, tmp_path
):
    """The tool of the turn before has run once; the half answer was shown and is void."""

    async def main():
        half = Answer(events=form.events(text(WORDS))[:-3], kind=SSE, end="hang")
        answers = [form.answer(POST, stream=True), half, form.answer(text("Done."), stream=True)]
        seen, lines, entries, run = await killed_in(tmp_path, form, 1, answers)
        assert [line for line in lines if line.startswith("post")] == ["post tea"]
        assert [line for line in lines if line.startswith("delta This much")]
        assert lines[-1] == "end completed Done."
        assert [e.attempt for e in events(entries, ev.ModelRequested)] == [1, 1, 2]
        assert len(events(entries, ev.ToolStarted)) == len(events(entries, ev.ToolCompleted)) == 1
        check_books(seen, entries, run, events(entries, ev.ModelRequested)[1].reserved)
        assert seen[1].raw == seen[2].raw

    asyncio.run(main())


def test_a_process_killed_in_the_middle_of_a_call_has_not_run_any_of_it(tmp_path):
    """Half of the arguments had come; the second process asks again, and the tool runs once."""

    async def main():
        whole = RESPONSES.events(POST)
        cut = next(n for n, each in enumerate(whole) if b"arguments.done" in each)
        half = Answer(events=whole[: cut - 1], kind=SSE, end="hang")
        answers = [
            half,
            RESPONSES.answer(POST, stream=True),
            RESPONSES.answer(text("Done."), stream=True),
        ]
        seen, lines, entries, run = await killed_in(tmp_path, RESPONSES, 0, answers)
        assert [line for line in lines if line.startswith("post")] == ["post tea"]
        assert lines[-1] == "end completed Done."
        assert [e.attempt for e in events(entries, ev.ModelRequested)] == [1, 2, 1]
        check_books(seen, entries, run, events(entries, ev.ModelRequested)[0].reserved)

    asyncio.run(main())
