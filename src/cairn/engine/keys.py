"""What the calls of a reply touch, asked of the deployment's own functions beside the event loop.

A function that is given as `conflict_key` is part of what the reply means, so it is asked while
the request is still in flight: nothing is committed for it. It only decides what may overlap, so
one that gives no answer in time costs overlap and nothing else.
"""

from __future__ import annotations

import asyncio
import logging

import msgspec

from cairn.core.messages import clean
from cairn.core.outcomes import Reply, needs_keys, told_key
from cairn.core.rules import Rules
from cairn.core.state import RunState
from cairn.errors import words_of
from cairn.governance.secrets import Sealed
from cairn.tools.blocking import called
from cairn.tools.on_loop import told_lately
from cairn.tools.runner import Threads
from cairn.tools.theirs import is_theirs

KEYS_S = 5.0
"""How long the functions may take for one reply, all together."""

log = logging.getLogger("cairn")
replace = msgspec.structs.replace


def asked(state: RunState, rules: Rules, reply: Reply) -> tuple[int, ...]:
    """Places of the calls whose keys matter and are told by functions of the deployment's own."""
    calls = reply.calls
    if not needs_keys(rules, calls) or len(calls) > state.limits.calls_per_reply:
        return ()
    specs = [rules.tools.get(each.name) for each in calls]
    return tuple(
        place
        for place, spec in enumerate(specs)
        if spec is not None and spec.conflict_key is not None and is_theirs(spec.conflict_key)
    )


def without_keys(reply: Reply, places: tuple[int, ...]) -> Reply:
    """The reply as it is where nobody tells these keys: each call waits for those before it."""
    calls = list(reply.calls)
    for place in places:
        calls[place] = replace(calls[place], key=None)
    return replace(reply, calls=tuple(calls))


async def with_keys(
    reply: Reply, places: tuple[int, ...], rules: Rules, sealed: Sealed, threads: Threads
) -> Reply:
    """The reply with the keys of these calls, as far as they are told in time.

    Args:
        reply: What came.
        places: From `asked`.
        rules: Of the agent.
        sealed: Takes out what must not be kept: a key is that of the call as it is recorded.
        threads: What the functions run in.
    """
    loop = asyncio.get_running_loop()
    ends = loop.time() + KEYS_S
    seen = sealed.value(reply).calls
    calls = list(without_keys(reply, places).calls)
    for place in places:
        spec, left = rules.tools[calls[place].name], ends - loop.time()
        if left <= 0:
            break
        name = f"conflict_key of the tool {spec.name}"
        text = clean(seen[place].arguments)
        try:
            key = await called(
                name,
                told_key,
                spec,
                text,
                seconds=left,
                threads=threads,
                of=spec.conflict_key,
            )
        except Exception as error:  # a key that cannot be told only costs overlap
            if not told_lately(name, type(error).__name__):
                why = words_of(error)
                log.warning("%s told nothing, so its calls keep their order: %s", name, why)
            continue
        calls[place] = replace(calls[place], key=key)
    return replace(reply, calls=tuple(calls))
