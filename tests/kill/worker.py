"""A process of the kill tests: it drives one run on a real file, and dies where it is told to.

`zygote.py` forks it, or it is started by itself with a job as JSON on its command line. A job:

    store, effects     the store's path; the file every effect and model call writes a line to
    script             which of SCRIPTS the model follows
    verb               run (default), sync, drive, work, cancel, approve, settle, edit or fork
    of                 the run that the verb is about, `r` by default; `fork` makes it
    die                where to SIGKILL itself: {"tool": name}, {"model": turn}, {"probe": 1},
                       {"check": 1}, {"append": n, "side": "before" | "after"} or the same
                       with "submit" or "create", counted over all processes that share a
                       `counter` file
    hold               a tool waits in the middle until this file exists
    expiry             seconds after which a silent owner counts as frozen
    result             where what came of it is written, as JSON
"""

import asyncio
import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

from cairn import (
    NOT_HAPPENED,
    Agent,
    Answer,
    Context,
    Policy,
    Runtime,
    Scripted,
    call,
    happened,
    tool,
)
from cairn.store import open_store
from cairn.store.sqlite.connection import Settings
from cairn.store.sqlite.store import SqliteStore

SCRIPTS: dict[str, list[Any]] = {
    "read": [call("fast"), call("look"), "done"],
    "keyed": [call("fast"), call("pay"), "done"],
    "probe": [call("fast"), call("send"), "done"],
    "once": [call("fast"), call("post"), "done"],
    "once, sync": [call("fast"), call("post_sync"), "done"],
    "parallel read": [[call("fast"), call("look")], "done"],
    "parallel once": [[call("fast"), call("post")], "done"],
    "refund": [call("refund"), "done"],
    "beside": [[call("post"), call("refund")], "done"],
    "child": [call("spawn"), "done"],
    "answer": ["done"],
    "give": [call("give", cents=9000), "done"],
    "mixed": [
        [call("look"), call("pay"), call("fast"), call("post")],
        [call("refund"), call("send")],
        "done",
    ],
}
POLICY = Policy(effects={"write": "allow"}, tools={"refund": "ask", "give": "ask"})
STEP_S = 0.005


class Job:
    """What this process is to do, and how it leaves traces outside."""

    def __init__(self, given: dict[str, Any]) -> None:
        self.given = given
        self.die: dict[str, Any] = given.get("die", {})

    def effect(self, line: str) -> None:
        """One line, on the disk before anything else happens."""
        handle = os.open(self.given["effects"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, f"{line}\n".encode())
            os.fsync(handle)
        finally:
            os.close(handle)

    def maybe_die(self, kind: str, what: Any) -> None:
        if self.die.get(kind) == what:
            os.kill(os.getpid(), signal.SIGKILL)

    def count(self) -> int:
        """One more; the number of this one."""
        handle = os.open(self.given["counter"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(handle, b".")
            return os.fstat(handle).st_size
        finally:
            os.close(handle)

    async def maybe_hold(self) -> None:
        hold = self.given.get("hold")
        for _ in range(10_000):
            if not hold or os.path.exists(hold):  # noqa: ASYNC240, PTH110 - a look is short
                return
            await asyncio.sleep(STEP_S)


class DyingStore:
    """A store whose process dies before or after its n-th append or submit."""

    def __init__(self, inner: Any, job: Job) -> None:
        self._inner = inner
        self._job = job

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._inner, name)
        if name not in self._job.die or name not in {"append", "submit", "create"}:
            return method

        async def passed(*args: Any, **kwargs: Any) -> Any:
            n = self._job.count()
            self._strike(name, n, "before")
            result = await method(*args, **kwargs)
            self._strike(name, n, "after")
            return result

        return passed

    def _strike(self, name: str, n: int, side: str) -> None:
        if self._job.die["side"] == side:
            self._job.maybe_die(name, n)


def make_tools(job: Job) -> list[Any]:
    """One tool of each recovery; each leaves its line before it may die."""

    async def act(name: str, line: str = "") -> str:
        job.effect(line or name)
        job.maybe_die("tool", name)
        if name == job.given.get("hold_in", name):
            await job.maybe_hold()
        return f"{name} ok"

    def body(name: str) -> Any:
        async def work() -> str:
            return await act(name)

        return work

    async def give(cents: int) -> str:
        return await act("give", f"give {cents}")

    async def pay(ctx: Context) -> str:
        return await act("pay", f"pay {ctx.key}")

    async def find() -> object:
        job.effect("probe")
        job.maybe_die("probe", 1)
        lines = Path(job.given["effects"]).read_text().split()  # noqa: ASYNC240 - a short file
        return happened("send ok") if "send" in lines else NOT_HAPPENED

    def post_sync() -> str:
        job.effect("post_sync")
        job.maybe_die("tool", "post_sync")
        return "post_sync ok"

    def spawn(ctx: Context) -> str:
        seconds = str(job.given.get("child_s", 30))
        program = "echo begun >> $0; sleep $1; echo spawned >> $0"
        ctx.run(["sh", "-c", program, job.given["effects"], seconds])
        return "spawn ok"

    return [
        tool(name="fast", effect="write", conflict_key=str)(body("fast")),
        tool(name="look", effect="read")(body("look")),
        tool(name="post", effect="write", conflict_key=lambda _: "post")(body("post")),
        tool(name="refund", effect="write", conflict_key=lambda _: "refund")(body("refund")),
        tool(effect="write", recovery="keyed", conflict_key=lambda _: "pay")(pay),
        tool(
            name="send",
            effect="write",
            recovery="probe",
            probe=find,
            conflict_key=lambda _: "send",
        )(body("send")),
        tool(effect="write")(give),
        tool(effect="write")(post_sync),
        tool(effect="write", timeout=60)(spawn),
    ]


def make_runtime(job: Job) -> Runtime:
    """The runtime of this process."""

    def model(request: Any) -> Any:
        job.effect("m")
        job.maybe_die("model", request.turn)
        return SCRIPTS[job.given["script"]][request.turn]

    def check(answer: Answer) -> None:
        job.effect("check")
        job.maybe_die("check", 1)

    expiry = job.given.get("expiry")
    if expiry:
        settings = Settings(path=job.given["store"], beat_s=expiry / 3, expiry_s=expiry)
        store: Any = SqliteStore(settings)
    else:
        store = open_store(job.given["store"])
    checks = [check] if job.given["script"] == "answer" else []
    agent = Agent("a", Scripted(model), tools=make_tools(job), completion_checks=checks)
    return Runtime(DyingStore(store, job), agents=[agent], policy=POLICY)


async def settle(rt: Runtime, effects: str) -> None:
    """Decide what waits as the world outside is: grant requests, and settle doubts."""
    lines = Path(effects).read_text().split()  # noqa: ASYNC240 - a short file
    for pending in await rt.pending_async():
        if pending.kind == "approval":
            await rt.client.approve(pending.id)
        else:
            verdict = "happened" if pending.tool in lines else "not_happened"
            await rt.client.resolve(pending.id, verdict)


async def serve(job: Job) -> dict[str, Any]:
    """Do what the job says; how the run stands afterwards."""
    rt, name = make_runtime(job), job.given.get("of", "r")
    match job.given.get("verb", "run"):
        case "run":
            await rt.run_async("a", "task", id="r")
        case "drive":
            await rt.drive_async(name)
        case "work":
            await rt.work_async(until_idle=True)
        case "cancel":
            await rt.cancel_async("r")
        case "approve":
            await rt.client.approve("r/1")
        case "edit":
            await rt.edit_async(name, call="c1", arguments={"cents": 90}, by="ada")
        case "fork":
            edits: Any = {"arguments": {"c1": {"cents": 90}}, "message": "less"}
            await rt.fork_async("r", job.given["at"], id=name, edits=edits, drive=False)
        case "settle":
            await settle(rt, job.given["effects"])
    run = await rt.get_async(name)
    await rt.close_async()
    return {
        "status": run.status,
        "reason": run.reason,
        "text": run.text,
        "pending": [p.id for p in run.pending],
        "output_tokens": run.usage.output_tokens,
    }


def serve_sync(job: Job) -> dict[str, Any]:
    """The sync verb of a script that somebody may interrupt from the keyboard."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    rt = make_runtime(job)
    try:
        return {"status": rt.run("a", "task", id="r").status}
    except KeyboardInterrupt:
        return {"status": "interrupted"}
    finally:
        rt.close()


def main(given: dict[str, Any]) -> None:
    """Serve a job and leave its result."""
    job = Job(given)
    said = serve_sync(job) if given.get("verb") == "sync" else asyncio.run(serve(job))
    out = Path(given["result"])
    out.with_suffix(".part").write_text(json.dumps(said))
    out.with_suffix(".part").rename(out)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
