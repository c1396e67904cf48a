"""What the tests of erasing share: a principal who left words in every place there is."""

import asyncio

import apsw

from cairn import Agent, Context, Policy, Principal, Runtime, Scripted, ToolError, call, tool
from cairn.store import inspect_store
from cairn.toolkit import MEMORY_TOOLS
from cairn.tools.builtin import ask_user

ANN = Principal(id="ann", tenant="acme")
BOB = Principal(id="bob", tenant="acme")
ALLOW = Policy(tools={"remember": "allow", "write_down": "allow", "broken": "allow"})
MARK = "zqplanted"


class Garden:
    """Words that are planted, each unlike any other, so that they can be looked for."""

    def __init__(self, owner):
        self.owner = owner
        self.words = {}

    def plant(self, place):
        """A word for this place."""
        return self.words.setdefault(place, f"{MARK}{self.owner}{place}")


@tool(effect="read")
def look_up(query: str) -> str:
    """Look something up."""
    return query.replace("argument", "result")


@tool(effect="read")
def look_up_much(query: str) -> str:
    """Look up a lot."""
    return f"{query} " * 500


@tool(effect="read")
def look_up_all(query: str) -> str:
    """Look up more than a model can read."""
    return f"{query} " * 20_000


@tool(effect="read")
def broken(query: str) -> str:
    """Look something up in vain."""
    raise ToolError(f"nothing of {query}")


@tool(effect="write")
def pay(order: str) -> str:
    """Pay."""
    return f"paid {order}"


@tool(effect="write")
def write_down(ctx: Context[None], name: str, text: str) -> str:
    """Write to a file of the workspace."""
    (ctx.workspace.root / name).write_text(text)
    return "written"


TOOLS = [look_up, look_up_much, look_up_all, broken, pay, write_down, ask_user, *MEMORY_TOOLS]


def script(garden):
    plant = garden.plant
    return [
        call("look_up", query=plant("argument")),
        call("look_up_much", query=plant("blob")),
        call("look_up_all", query=plant("artifact")),
        call("broken", query=plant("error")),
        call("remember", text=f"Likes {plant('remembered')}."),
        call("write_down", name=f"{plant('filename')}.txt", text=plant("file")),
        call("ask_user", question=plant("question")),
        call("pay", order=plant("order")),
        call("pay", order=plant("denied")),
        plant("answer"),
    ]


def runtime(path, folder, garden):
    said = script(garden)

    def model(request):
        if request.run == f"{garden.owner}-1":
            return said[request.turn]
        if request.run == f"{garden.owner}-2":
            return call("ask_user", question="which?")
        return garden.plant("reply")

    agent = Agent("shop", Scripted(model), tools=TOOLS)
    return Runtime(path, [agent], policy=ALLOW, workspace=folder, workspace_per="session")


def live(rt, who, garden):
    """Have a principal leave words in every place; the ids of their runs."""
    plant, name = garden.plant, who.id
    session = plant("session")
    rt.remember(f"Lives in {plant('fact')}.", principal=who, tags=(plant("tag"),))
    rt.grant("pay", arguments={"order": plant("granted")}, principal=who, reason=plant("why"))
    first = rt.run("shop", plant("input"), id=f"{name}-1", session=session, principal=who)
    assert first.status == "waiting", first.text
    rt.post(session, plant("queued"), principal=who, mode="queue", id="the sender's")
    rt.post(session, plant("steered"), principal=who, mode="steer")
    rt.answer(first.pending[0].id, plant("answered"))
    asked = rt.get(f"{name}-1").pending[0].id if rt.get(f"{name}-1").pending else ""
    if not asked:
        asked = rt.drive(f"{name}-1").pending[0].id
    rt.approve(asked, plant("approved"))
    denied = rt.drive(f"{name}-1").pending[0].id
    rt.deny(denied, plant("refused"))
    assert rt.drive(f"{name}-1").status == "completed"
    rt.title_session(session, plant("title"), principal=who)
    (queued,) = [i.run for i in rt.runs(session=session) if i.run != f"{name}-1"]
    assert rt.drive(queued).status == "completed"
    rt.fork(f"{name}-1", 3, id=f"{name}-fork")
    rt.run("shop", "go", id=f"{name}-2", principal=who)
    rt.cancel(f"{name}-2", plant("cancelled"))
    rt.fork_session(session, plant("forkedsession"), principal=who)
    return [f"{name}-1", queued, f"{name}-fork", f"{name}-2"]


def everywhere(folder):
    """All bytes of all files below a folder, and the names of all that is there."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    names = "\n".join(str(path.relative_to(folder)) for path in folder.rglob("*"))
    return names.encode() + b"".join(path.read_bytes() for path in files)


def found(folder, words):
    """Which of these words are in any file below a folder, or in a name; case does not matter."""
    there = everywhere(folder).lower()
    return {place for place, word in words.items() if word.lower().encode() in there}


def wrong(path):
    """What verifying a store finds."""
    with inspect_store(path) as look:
        findings = [f for run in look.journals() for f in look.inspect(run).findings]
        return [str(f) for f in [*findings, *look.strays(), *look.counters(2**51)]]


def rows(path, query, *values):
    """What a query finds in the file."""
    connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
    try:
        return connection.execute(query, values).fetchall()
    finally:
        connection.close()


def later(work):
    """The result of a coroutine."""
    return asyncio.run(work)
