"""`cairn chat` on a small model in its own process: a long talk, over processes that end and die.

Nothing here depends on what the model says: asserted is what it was sent, and what is kept.
"""

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from tests.models.llama import smollm2

from cairn import Runtime
from cairn.core import events as ev
from cairn.core.context import faults, messages_of
from cairn.core.evolve import evolve
from cairn.core.finding import search
from cairn.core.limits import Usage
from cairn.core.messages import Message, ResultPart, text_of
from cairn.core.state import RunState
from cairn.core.summaries import SECTIONS
from cairn.core.view import WHOLE
from cairn.engine.load import load, start_of

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

SRC = Path(__file__).resolve().parents[2] / "src"
PATIENCE_S = 90.0
OUTPUT = 96
WINDOW, ROOMY, WIDE = 1_248, 1_680, 3_072
PAUSED = 6
"""The exit code of a run that is left paused."""
APP = '''
import os
from pathlib import Path

from cairn import Agent, ContextBlock, Limits, Runtime, memory_block
from cairn.models.local import open_model
from cairn.toolkit import recall

SHORT = """You chat with a person. Two examples:

User: My boat is blue, and it lies in the old harbour of our town.
You: {"answer": "Noted."}
User: I live in Rome, in a street with many trees and few cars.
You: {"answer": "Noted."}"""
LONG = "You tell very long stories, with many names and places."

model = open_model(os.environ["MODEL_FILE"], window=int(os.environ["WINDOW"]), max_output=256)
model.max_output = int(os.environ["OUTPUT"])
ask = model.request


async def request(wanted, on_delta=None):
    """Leaves a file behind when the first words of a reply have come."""

    def heard(text):
        Path("heard").touch()
        if on_delta is not None:
            on_delta(text)

    return await ask(wanted, heard)


model.request = request
fed_by = os.environ.get("FED_BY", "")
feeds = [ContextBlock("found", tool=fed_by, arguments={"query": "$input"})] if fed_by else []
friend = Agent(
    "friend",
    model,
    instructions=LONG if "LONG" in os.environ else SHORT,
    tools=[recall],
    builtins=("search_history",),
    tool_choice="none",
    context=[
        ContextBlock("memory", memory_block(limit=3, tokens=100), place="end", tokens=150),
        *feeds,
    ],
    summary_model=model if "ITSELF" in os.environ else None,
    limits=Limits(steps=6, calls=3),
)
rt = Runtime("talk.db", agents=[friend])
'''

SAID = """\
My cat is called Miso, and she sleeps on the warm shelf above the stove.
I was born in Lyon in 1984, in the old house behind the silk market.
Please keep in mind that my order has the number AB-4711 and comes by ship.
I drink green tea every morning, and coffee only when the train is late.
The car stands in garage G-17, on the second floor, close to the lift.
My sister Vera lives in Oslo and sends me a letter every other month.
The code of the side door is K5512-B, and it changes at the end of the year.
I play the cello on Mondays with two neighbours who both work at the harbour.
My boss is called Tanaka, and he likes short mails with the figures first.
The plant at the window needs water twice a week, and never at noon.
We painted the kitchen yellow last summer, and the hall is going to be green.
My uncle builds boats of wood, and each of them takes him about three years.
The library closes at six, but the reading room stays open until eight.
Our dog Bruno is afraid of thunder and hides below the stairs at once.
I lost my umbrella in the bus to the airport, and nobody has found it yet.
The baker in our street makes a rye bread that stays fresh for a week.
On Fridays we eat soup, because the market brings the best leeks then.
My bicycle has a new chain, and the old one hangs on the garden fence.
The neighbours upstairs have a baby, and the nights are loud these days.
I am reading a long book on the history of maps and enjoy every page.
The dentist moved my appointment to the third of May at half past nine.
We saw two storks on the roof of the church when we came home yesterday.
My father kept bees, and the honey was dark and tasted of chestnut.
The lamp in the cellar flickers whenever somebody turns on the washer.
I am looking for a present for Vera that is light enough to send by mail.
The rent goes up in autumn, and so we think about a smaller flat.
My cello needs new strings before the concert in the old town hall.
It rained all week, and the path along the river is under water.
""".splitlines()


def story(years: int) -> str:
    """What is too long for what is left of the window."""
    told = (f"in year {n} it came to harbour number {n} and met a ship," for n in range(1, years))
    return f"Tell me the story of the boat that my uncle built: {' '.join(told)}"


STORY, LONG_STORY = story(9), story(15)


class Talk:
    """A folder with the application and one conversation in it, `s`, of ann's."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        (folder / "friend.py").write_text(APP)
        self.env = {
            **os.environ,
            "PYTHONPATH": f"{SRC}{os.pathsep}{folder}",
            "CAIRN_APP": "friend:rt",
            "CAIRN_STORE": "talk.db",
            "COLUMNS": "160",
            "MODEL_FILE": str(smollm2()),
            "WINDOW": str(WINDOW),
            "OUTPUT": str(OUTPUT),
        }

    def cairn(self, *words: str) -> str:
        """What a command printed; it must end well."""
        done = subprocess.run(
            [sys.executable, "-m", "cairn", *words],
            cwd=self.folder,
            env=self.env,
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def begin(self, **env: str) -> subprocess.Popen[str]:
        """`cairn chat` in a process of its own, with its standard input open."""
        (self.folder / "heard").unlink(missing_ok=True)
        words = ("chat", "friend", "--session", "s", "--principal", "ann")
        return subprocess.Popen(
            [sys.executable, "-m", "cairn", *words],
            cwd=self.folder,
            env={**self.env, **env},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, *lines: str, code: int = 0, **env: str) -> str:
        """Say these things in a process of its own, which then ends; what it printed."""
        return end(self.begin(**env), *lines, code=code)

    def stop_in_a_reply(self, number: signal.Signals, *lines: str, code: int) -> str:
        """Say these things, and send a signal as soon as words of a reply have come."""
        process = self.begin(LONG="yes")
        try:
            process.stdin.write("".join(f"{line}\n" for line in lines))
            process.stdin.flush()
            ends = time.monotonic() + PATIENCE_S
            while not (self.folder / "heard").exists():
                assert time.monotonic() < ends, "no reply has begun"
                assert process.poll() is None, process.communicate()
                time.sleep(0.01)
            process.send_signal(number)
        except BaseException:
            process.kill()
            process.communicate()
            raise
        return end(process, code=code)

    def look(self) -> "Seen":
        """What the store holds of the conversation."""
        return asyncio.run(seen_in(self.folder / "talk.db"))

    def held(self, run: str, step: int) -> dict[str, dict[str, Any]]:
        """The manifest of a step, as the command line tells it: name to line."""
        told = json.loads(self.cairn("trace", run, "--context", str(step), "--json"))
        return {line["name"]: {"sent": True, **line} for line in told["lines"]}

    def exported(self) -> list[str]:
        """What ann said, in order, as the transcript of an export has it."""
        self.cairn("sessions", "export", "s", "out", "--force")
        text = (self.folder / "out" / "transcript.md").read_text()
        return re.findall(r"^\*\*ann\*\*\n\n> ```\n> (.*)\n> ```$", text, re.MULTILINE)


def end(process: subprocess.Popen[str], *lines: str, code: int) -> str:
    """Say these things, close its input, and wait for its end; what it printed."""
    try:
        out, err = process.communicate("".join(f"{x}\n" for x in lines), timeout=PATIENCE_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise
    assert process.returncode == code, out + err
    return out


class Asked(NamedTuple):
    """A request of a turn: what the model was sent, and how large it was."""

    run: str
    step: int
    text: str
    estimated: int
    measured: int
    """Tokens read and written, as llama.cpp counted them; 0 where no reply came."""


class Seen:
    """The runs of the conversation, their journals, their requests, and the last state."""

    def __init__(
        self,
        runs: list[str],
        entries: dict[str, list[ev.Entry]],
        requests: list[Asked],
        state: RunState,
    ) -> None:
        self.runs, self.entries, self.requests, self.state = runs, entries, requests, state

    def events(self, kind: type[Any], run: str = "") -> list[Any]:
        runs = [run] if run else self.runs
        return [e.event for r in runs for e in self.entries[r] if isinstance(e.event, kind)]

    def names(self, run: str) -> list[str]:
        return [entry.event.NAME for entry in self.entries[run]]

    @property
    def said(self) -> list[str]:
        """What ann said, as the last run's transcript has it."""
        return [text_of(self.state.messages[n].parts) for n in self.state.asked]


async def seen_in(path: Path) -> Seen:
    async with Runtime(path) as rt:
        chain = (await rt.session_async("s", principal="ann")).chain
        runs = [each.run for each in chain]
        entries, requests = {}, []
        for run in runs:
            assert await rt.store.verify(run) > 0
            entries[run] = await rt.store.read(run)
            requests += await requests_in(rt, run, entries[run])
        return Seen(runs, entries, requests, await load(rt.store, runs[-1]))


async def requests_in(rt: Runtime, run: str, entries: list[ev.Entry]) -> list[Asked]:
    """The requests of a run's turns; each was a list of messages that a provider takes."""
    found = []
    state = await start_of(rt.store, run, entries)
    for entry, after in zip(entries, [*entries[1:], None], strict=True):
        state = evolve(state, entry)
        if not isinstance(entry.event, ev.ModelRequested) or entry.event.purpose != "turn":
            continue
        sent = messages_of(state)
        assert faults(sent) == []
        held = await rt.context_async(run, entry.step)
        reply = after.event if after is not None else None
        usage = reply.usage if isinstance(reply, ev.ModelCompleted) else Usage()
        text = "\n".join(map(spelled, sent))
        found.append(Asked(run, entry.step, text, held.tokens, usage.tokens))
    return found


def spelled(message: Message) -> str:
    results = [part.result for part in message.parts if isinstance(part, ResultPart)]
    return "\n".join([text_of(message.parts), *results])


def check_whole(talk: Talk, wanted: list[str], window: int = WINDOW) -> Seen:
    """All that was said so far is there once and in order, wherever one looks, and all fitted."""
    seen = talk.look()
    assert seen.said == wanted
    assert talk.exported() == wanted
    shown = talk.cairn("sessions", "show", "s").splitlines()
    assert [line.split()[0] for line in shown if line.startswith("    ")] == seen.runs
    assert len(seen.runs) == len(wanted)
    for each in seen.requests:
        assert each.estimated <= window - OUTPUT
        assert each.measured <= window
    faulty = {event.error_class.value for event in seen.events(ev.ModelFailed)}
    assert faulty <= {"stream_interrupted", "truncated_output"}, "no request was too large"
    return seen


def test_a_long_talk_goes_on_over_restarts_and_forgets_nothing(tmp_path):
    talk = Talk(tmp_path)
    talk.say(*SAID[:7])
    check_whole(talk, SAID[:7])
    said = check_a_fact_of_an_earlier_process_is_told(talk)
    run = check_a_killed_reply_is_asked_for_again(talk, said)
    check_a_compaction_is_taken_back(talk, said, run)

    # and on it goes in the small window, condensed again and again
    talk.say(*SAID[14:])
    said += SAID[14:]
    seen = check_whole(talk, said, WIDE)
    small = [each for each in seen.requests if each.run in seen.runs[-len(SAID[14:]) :]]
    assert len(small) == len(SAID[14:])
    assert max(each.measured for each in small) <= WINDOW
    assert max(each.estimated for each in small) <= WINDOW - OUTPUT
    assert len(seen.events(ev.ContextCompacted)) >= 3
    check_summary(seen, seen.runs[-1], "K5512-B")
    assert all(SAID[8] not in each.text for each in small[-5:])

    # what is not sent any more is found again
    said.append("What does my boss Tanaka like to have first?")
    talk.say(said[-1], FED_BY="search_history")
    seen = check_whole(talk, said, WIDE)
    assert SAID[8] in seen.requests[-1].text
    assert SAID[8] not in seen.state.summary
    assert search(seen.state.messages, "side door code", 1)[0].text == SAID[6]
    assert {seen.names(run)[-1] for run in seen.runs} == {"run.completed"}


def check_a_fact_of_an_earlier_process_is_told(talk: Talk) -> list[str]:
    """What a person has remembered between two processes is in the context of the next one."""
    talk.cairn("memory", "add", "Ann's brother Ole paints lighthouses.", "--principal", "ann")
    talk.cairn("memory", "add", "Bob's brother Ulf paints fences.", "--principal", "bob")
    said = [*SAID[:13], "What does my brother Ole paint?"]
    talk.say(*said[7:])
    seen = check_whole(talk, said)
    assert not seen.events(ev.ContextCompacted)
    last = seen.requests[-1]
    assert "Ole paints lighthouses" in last.text
    assert all("lighthouses" not in each.text for each in seen.requests[:7])
    assert all("fences" not in each.text for each in seen.requests)
    memory = talk.held(last.run, last.step)["memory"]
    assert (memory["sent"], memory["place"], memory["source"]) == (True, "end", "computed")
    return said


def check_a_killed_reply_is_asked_for_again(talk: Talk, said: list[str]) -> str:
    """What does not fit is condensed; then the process dies, and the next one goes on; the run."""
    talk.stop_in_a_reply(signal.SIGKILL, LONG_STORY, code=-signal.SIGKILL)
    said.append(LONG_STORY)
    seen = check_whole(talk, said)
    run = seen.runs[-1]
    assert seen.names(run) == ["run.created", "context.compacted", "model.requested"]
    held = talk.held(run, 1)
    assert not held["earlier messages"]["sent"]
    assert held["summary"]["sent"]
    assert all(SAID[8] not in each.text for each in seen.requests if each.run == run)
    check_summary(seen, run, "K5512-B")

    talk.stop_in_a_reply(signal.SIGINT, code=PAUSED)  # the next one goes on; Ctrl-C pauses it
    seen = check_whole(talk, said)
    assert seen.state.paused
    assert seen.events(ev.ModelFailed, run)[0].lost
    return run


def check_a_compaction_is_taken_back(talk: Talk, said: list[str], run: str) -> None:
    """What was condensed is sent again, where there is room for it."""
    before = talk.look().state
    talk.cairn("context", "undo", run)
    seen = talk.look()
    assert (seen.state.view, seen.state.summary) == (WHOLE, "")
    assert seen.state.messages == before.messages
    said.append(SAID[13])
    talk.say(SAID[13], WINDOW=str(WIDE))
    seen = check_whole(talk, said, WIDE)
    last = seen.requests[-2]
    assert last.run == run
    assert all(each in last.text for each in said[:15])
    assert "earlier messages" not in talk.held(run, last.step)


def check_summary(seen: Seen, run: str, mark: str) -> None:
    """A rule wrote the summary, in its form; it names what was said first, and it is sent."""
    text = seen.state.summary
    heads = [line[3:] for line in text.splitlines() if line.startswith("## ")]
    assert heads == list(SECTIONS)
    assert {event.by for event in seen.events(ev.ContextCompacted)} == {"rule"}
    assert SAID[0] in text
    assert mark in text
    assert text in next(each.text for each in seen.requests if each.run == run)


def test_a_model_that_cannot_summarise_is_asked_twice_and_then_a_rule_does_it(tmp_path):
    talk = Talk(tmp_path)
    talk.env |= {"FED_BY": "recall", "ITSELF": "yes", "WINDOW": str(ROOMY)}
    talk.say(SAID[0])
    talk.cairn("memory", "add", "Ann's cat Miso is afraid of hats.", "--principal", "ann")
    talk.say(*SAID[1:4], "What is my cat Miso afraid of?")
    said = [*SAID[:4], "What is my cat Miso afraid of?"]
    seen = check_whole(talk, said, ROOMY)
    last = seen.requests[-1]
    fact = "Ann's cat Miso is afraid of hats."
    assert last.text.count(fact) == 2, "the tool's result has it, and so has the block"
    assert all(fact not in each.text for each in seen.requests[:-1])
    assert talk.held(last.run, last.step)["memory"]["sent"]
    assert seen.state.taint == {"memory"}

    # the process dies while the model summarises; the next one asks once more, then helps itself
    talk.stop_in_a_reply(signal.SIGKILL, STORY, code=-signal.SIGKILL)
    said.append(STORY)
    seen = check_whole(talk, said, ROOMY)
    run = seen.runs[-1]
    assert seen.events(ev.ModelRequested, run)[-1].purpose == "summary"
    assert seen.names(run)[-1] == "model.requested"
    assert (seen.state.view, seen.state.summary) == (WHOLE, "")
    talk.say(SAID[5])
    said.append(SAID[5])
    seen = check_whole(talk, said, ROOMY)
    asked = [event.purpose for event in seen.events(ev.ModelRequested, run)]
    assert asked == ["summary", "summary", "turn"]
    assert seen.events(ev.ModelFailed, run)[0].lost
    check_summary(seen, run, "AB-4711")
    assert "[data " in seen.state.summary, "it had what was recalled before it"
    assert seen.state.taint == {"memory"}
    assert SAID[2] in [found.text for found in search(seen.state.messages, "order AB-4711", 3)]
    assert {seen.names(each)[-1] for each in seen.runs} == {"run.completed"}
