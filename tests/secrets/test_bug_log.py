"""Keys that reached a sink by one of its ways elsewhere, and must not here."""

import asyncio
import logging
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.engine.kit import FREE_HAND, TurnedClock, results
from tests.secrets.test_lookalikes import _chance

from cairn import Agent, Runtime, Scripted, ToolError, call, tool
from cairn.governance.secrets import Secrets

KEY = _chance("an address", 40)
ADDRESSES = [
    "https://api.example.org/v1/pay?api_key={}&to=ann",
    "https://app:{}@api.example.org/v1/pay",
    "https://api.example.org/v1/pay?to=ann#access_token={}",
    "https://api.example.org/v1/pay, with X-Api-Key: {}",
]


@pytest.mark.parametrize("known", [True, False], ids=["registered", "by its look"])
@pytest.mark.parametrize("address", ADDRESSES)
def test_a_key_in_the_address_of_a_fault_and_in_an_argument_reaches_no_sink(
    address: str,
    known: bool,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """B64: one gate before every sink: journal, trace, export, log, what is shown as it happens."""
    said = address.format(KEY)

    @tool(effect="write")
    def pay(to: str) -> str:
        """Pay."""
        raise ToolError(f"502 from {said}")

    @tool(effect="read")
    def look(where: str) -> str:
        """Look."""
        raise ValueError(where)

    out: list[Any] = []
    requests: list[Any] = []

    def model(request: Any) -> Any:
        requests.append(request)
        return [call("pay", to="ann"), call("look", where=said), f"It failed at {said}."][
            min(request.turn, 2)
        ]

    async def main() -> None:
        secrets = Secrets({"pay": KEY}) if known else Secrets()
        async with Runtime(
            tmp_path / "c.db",
            [Agent("a", Scripted(model), tools=[pay, look])],
            policy=FREE_HAND,
            secrets=secrets,
            clock=TurnedClock(),
        ) as rt:
            out.extend([what async for what in rt.stream_async("a", f"Pay by {said}", id="r")])
            out.append(await rt.get_async("r"))
            out.append(await rt.trace_async("r"))
            out.extend(str(row.data) for row in await rt.store.rows("r"))

    caplog.set_level(logging.DEBUG)
    asyncio.run(main())
    out += [[r.messages, r.system] for r in requests]
    assert "502 from https://" in results(requests[-1])["c1"], "the rest of it is told"
    for what in out:
        assert KEY not in repr(what)
        assert KEY.encode() not in msgspec.json.encode(what, enc_hook=repr)
    for file in filter(Path.is_file, tmp_path.rglob("*")):
        assert KEY.encode() not in file.read_bytes(), file.name
    assert KEY not in caplog.text
