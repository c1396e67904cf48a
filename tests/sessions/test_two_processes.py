"""Two processes that speak into one session at the same time."""

import asyncio
import json
import subprocess
import sys

from tests.engine.kit import runtime

from cairn.engine.load import load

SPEAKER = """
import asyncio, json, sys
from cairn import Agent, Runtime, Scripted, SessionBusy

def answer(request):
    said = [p.content for m in request.messages if m.role == "user" for p in m.parts]
    return f"read {said[-1]}"

async def main(path, name):
    told = []
    async with Runtime(path, [Agent("a", Scripted(answer))]) as rt:
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        for n in range(12):
            try:
                if n % 2:
                    await rt.run_async("a", f"{name}{n}", session="s")
                else:
                    await rt.send_async("s", f"{name}{n}", agent="a", mode="queue")
                told.append(f"{name}{n}")
            except SessionBusy:
                pass
    print(json.dumps(told), flush=True)

asyncio.run(main(*sys.argv[1:]))
"""


def test_two_processes_that_write_to_one_session_at_once_lose_and_mix_no_turn(tmp_path):
    """B50: both turns whole and in order, or the second is told that the session is busy."""
    path = tmp_path / "s.db"
    started = [
        subprocess.Popen(
            [sys.executable, "-c", SPEAKER, str(path), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for name in ("x", "y")
    ]
    try:
        for process in started:
            assert process.stdout.readline() == "ready\n"
        for process in started:
            process.stdin.write("go\n")
            process.stdin.flush()
        told = {name for process in started for name in json.loads(process.stdout.readline())}
        assert [process.wait(30) for process in started] == [0, 0]
    finally:
        for process in started:
            process.kill()
            process.communicate()

    async def main():
        async with runtime(["never"], store=path) as rt:
            seen = await rt.session_async("s")
            last = await load(rt.store, seen.chain[-1].run)
            said = [p.content for m in last.messages if m.role == "user" for p in m.parts]
            answers = [p.content for m in last.messages if m.role == "assistant" for p in m.parts]
            assert answers == [f"read {text}" for text in said]
            assert set(said) == told
            assert len(said) == len(told) >= 12
            for name in "xy":
                own = [int(text[1:]) for text in said if text[0] == name]
                assert own == sorted(own)

    asyncio.run(main())
