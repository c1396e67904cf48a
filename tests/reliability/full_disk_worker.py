"""A process whose disk fills up in the middle of a run; told by `test_disks_and_clocks`.

Arguments: how the disk fills up (`mount` or `limit`), a folder for it, and a ledger elsewhere.
"""

import asyncio
import resource
import subprocess
import sys
from pathlib import Path

from cairn import Agent, Policy, Runtime, Scripted, call, tool
from cairn.core.events import ModelCompleted, ToolCompleted, ToolStarted
from cairn.errors import StoreError

TURNS = 14
SMALL = 900_000
WORDS = "the disk is small and this is long " * 2_500


def fill(how, folder):
    if how == "mount":
        options = ["-t", "tmpfs", "-o", f"size={SMALL}", "small"]
        subprocess.run(["mount", *options, folder], check=True)
    else:  # no file may grow beyond this: the write fails as on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (SMALL, resource.RLIM_INFINITY))


def empty(how, folder):
    if how == "mount":
        subprocess.run(["mount", "-o", "remount,size=64m", folder], check=True)
    else:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)


async def main(how, folder, ledger):
    @tool(effect="write")
    async def post(n: int) -> str:
        with ledger.open("a") as file:
            file.write(f"{n}\n")
        return f"{n} is posted"

    def runtime():
        script = [[f"{n} {WORDS}", call("post", n=n)] for n in range(TURNS)]
        agent = Agent("clerk", Scripted([*script, "done"], window=10_000_000), tools=[post])
        policy = Policy(effects={"write": "allow"})
        return Runtime(Path(folder) / "cairn.db", agents=[agent], policy=policy)

    fill(how, folder)
    rt = runtime()
    seen = []
    rt.host.watchers.watch("r", lambda run, what: seen.append(what))
    try:
        await rt.run_async("clerk", "post them all", id="r")
        print("it never filled up")
    except StoreError as error:
        print(type(error).__name__, "Open the store again" in str(error))
    await rt.close_async()
    empty(how, folder)
    rt = runtime()
    kept = await rt.store.read("r")
    print("kept", all(entry in kept for entry in seen if hasattr(entry, "seq")), len(seen) > 4)
    run = await rt.run_async("clerk", "post them all", id="r")
    for pending in run.pending:  # the outcome could not be written: only a person knows
        done = pending.detail.split(":")[1].strip(" }") in ledger.read_text().split()
        await rt.resolve_async(pending.id, happened=done)
    run = await rt.run_async("clerk", "post them all", id="r")
    entries = await rt.store.read("r")
    started = sum(isinstance(entry.event, ToolStarted) for entry in entries)
    turns = sum(isinstance(entry.event, ModelCompleted) for entry in entries)
    completed = sum(isinstance(entry.event, ToolCompleted) for entry in entries)
    print(run.status, started, turns, completed >= TURNS - 1)
    print("whole", await rt.store.verify("r") == len(entries))
    await rt.close_async()


asyncio.run(main(sys.argv[1], sys.argv[2], Path(sys.argv[3])))
