"""Our rows beside the peers': the order of side effects before a SIGKILL and after the resume.

`m` is a model call. The peers' rows were measured with their own libraries in the same way: a
scripted model, a process that kills itself inside a tool, effects counted from a synced file.
Run `python -m tests.kill.table` to print the table; `test_kill_in_tool.py` measures our side.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Row:
    """A case, what happens here, and the best that a peer does in it."""

    name: str
    script: str
    dies_in: str
    before: str
    after: str
    peer: str
    peer_after: str
    asks: bool = False
    """Whether a person is asked what came of the killed call before anything goes on."""
    reading: str = ""


ROWS = (
    Row(
        name="serial, the killed tool is a read",
        script="read",
        dies_in="look",
        before="m fast m look",
        after="look m",
        peer="ADK resumable, serial; Pydantic AI + DBOS, tools marked as steps",
        peer_after="slow m",
        reading="minimal: only the read is made again",
    ),
    Row(
        name="serial, the killed tool is a write that runs once",
        script="once",
        dies_in="post",
        before="m fast m post",
        after="m",
        peer="ADK resumable, serial",
        peer_after="slow m",
        asks=True,
        reading="not doubled: the model is not asked before a person has said what happened",
    ),
    Row(
        name="serial, the same as a sync function",
        script="once, sync",
        dies_in="post_sync",
        before="m fast m post_sync",
        after="m",
        peer="ADK resumable, serial",
        peer_after="slow m",
        asks=True,
    ),
    Row(
        name="serial, the killed tool is keyed",
        script="keyed",
        dies_in="pay",
        before="m fast m pay",
        after="pay m",
        peer="ADK resumable, serial",
        peer_after="slow m",
        reading="repeated with the same key: the other side does it once",
    ),
    Row(
        name="serial, the killed tool has a probe",
        script="probe",
        dies_in="send",
        before="m fast m send",
        after="probe m",
        peer="ADK resumable, serial",
        peer_after="slow m",
        reading="not doubled: the probe finds the effect",
    ),
    Row(
        name="parallel, the sibling had finished, the killed tool is a read",
        script="parallel read",
        dies_in="look",
        before="m fast look",
        after="look m",
        peer="LangGraph, sync or async",
        peer_after="slow m",
        reading="minimal: the finished sibling is kept",
    ),
    Row(
        name="parallel, the sibling had finished, the killed tool runs once",
        script="parallel once",
        dies_in="post",
        before="m fast post",
        after="m",
        peer="LangGraph, sync or async",
        peer_after="slow m",
        asks=True,
        reading="not doubled, and the finished sibling is kept",
    ),
)


APPROVED = "approved, killed inside, loaded twice"
OTHERS = (
    (APPROVED, "m refund", "(a person says what happened) m", "OpenAI Agents", "refund refund"),
    ("killed in a model call", "m fast m", "m post m", "every peer", "m slow m"),
)
"""Cases that have tests of their own in `test_kill_in_tool.py`."""


def render() -> str:
    """The table as Markdown."""
    lines = ["| case | before | after | best peer | its after |", "|---|---|---|---|---|"]
    for row in ROWS:
        after = f"(a person says what happened) {row.after}" if row.asks else row.after
        cells = (row.name, row.before, after, row.peer, row.peer_after)
        lines.append(f"| {' | '.join(cells)} |")
    lines += [f"| {' | '.join(cells)} |" for cells in OTHERS]
    return "\n".join(lines)


if __name__ == "__main__":
    print(render())
