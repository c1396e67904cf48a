"""Replay recorded exchanges with real providers through the adapters, and compare.

    python bench/external/wire.py [--data FOLDER] [--show] [--json FILE]

Each recorded answer is served once on the loopback and read by the adapter of its format. What
comes out is compared with a second, plain reading of the same bytes, made here. Exit codes: 0
nothing is wrong, 1 something is, 3 the data is not there, 4 the providers extra is not installed.
"""

import argparse
import asyncio
import json
import os
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
DATA = os.environ.get("CAIRN_EXTERNAL", str(ROOT.parent / "shared" / "external"))
FILES = ("provider_wire.jsonl", "fetched/provider_wire_recent.jsonl")
NO_DATA, NO_PACKAGES = 3, 4
FORMATS = {
    "/chat/completions": "chat",
    "/responses": "responses",
    "/v1/messages": "messages",
    ":generateContent": "gemini",
    ":streamGenerateContent": "gemini",
}
USUAL = {
    "chat": "compatible",
    "responses": "openai",
    "messages": "anthropic",
    "gemini": "google",
}
REQUEST_ID = "replayed-1"
VERDICTS = ("exact", "differs", "right typed error", "wrong")


@dataclass
class Plain:
    """What a recorded answer says, read plainly."""

    text: str = ""
    calls: list[list[str]] = field(default_factory=list)
    finish: str = ""
    input_tokens: int = 0
    reasoning: bool = False
    failed: bool = False
    exact_arguments: bool = True


def main() -> int:
    """Everything; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--data", default=DATA, help="where the cases lie (CAIRN_EXTERNAL)")
    parser.add_argument("--show", action="store_true", help="show every exchange that is not exact")
    parser.add_argument("--json", default="", help="write the figures to this file")
    options = parser.parse_args()
    folder = Path(options.data)
    if not all((folder / name).is_file() for name in FILES):
        print(f"There is no data in {folder}: name its folder with --data or CAIRN_EXTERNAL.")
        return NO_DATA
    warnings.simplefilter("ignore")  # of the vendors, about models that are old by now
    try:
        verdicts, left_out, lines = asyncio.run(replay(folder))
    except ModuleNotFoundError as error:
        print(f"{error}: install cairn-runtime[providers].")
        return NO_PACKAGES
    if options.json:
        told = {" ".join(key): count for key, count in sorted(verdicts.items())}
        figures = {"verdicts": told, "left_out": left_out, "lines": lines}
        Path(options.json).write_text(json.dumps(figures, indent=1) + "\n", encoding="utf-8")
    report(verdicts, left_out)
    for line in lines:
        if options.show or " wrong " in line or " differs " in line:
            print(line)
    return 1 if any(key[1] == "wrong" for key in verdicts) else 0


def report(verdicts: Counter[tuple[str, str]], left_out: int) -> None:
    """The table."""
    print(f"{'format':12}" + "".join(f"{verdict:>19}" for verdict in VERDICTS))
    for form in (*USUAL, "all"):
        row = [
            sum(n for key, n in verdicts.items() if key[1] == verdict and form in (key[0], "all"))
            for verdict in VERDICTS
        ]
        print(f"{form:12}" + "".join(f"{count:>19}" for count in row))
    print(f"left out: {left_out} in formats that are not spoken, uploads and token counts\n")


def exchanges(folder: Path) -> Iterator[tuple[str, str, dict[str, Any], dict[str, Any]]]:
    """Where each is from, its provider, what was asked and what came back."""
    for name in FILES:
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            case = json.loads(line)
            for number, each in enumerate(case["interactions"]):
                where = f"{case['id']}#{number}"
                yield where, case["provider"], each["request"], each["response"]


async def replay(folder: Path) -> tuple[Counter[tuple[str, str]], int, list[str]]:
    """How often each verdict was given for each format, what was left out, and lines to show."""
    verdicts: Counter[tuple[str, str]] = Counter()
    lines: list[str] = []
    left_out = 0
    current: list[dict[str, Any]] = []
    server = await asyncio.start_server(lambda r, w: serve(r, w, current[0]), "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for where, provider, request, response in exchanges(folder):
        path = request["path"].partition("?")[0]
        form = next((f for end, f in FORMATS.items() if path.endswith(end)), "")
        if not form or provider in {"bedrock", "cohere"}:
            left_out += 1
            continue
        current[:] = [response]
        verdict, why = await one(url, form, provider, request, response)
        verdicts[form, verdict] += 1
        if verdict != "exact":
            lines.append(f"{form} {verdict} {where}: {why}")
    server.close()
    return verdicts, left_out, lines


async def serve(
    reader: asyncio.StreamReader, writer: asyncio.StreamWriter, response: dict[str, Any]
) -> None:
    """Answer one request with what was recorded."""
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
    length = head.partition("content-length: ")[2].partition("\r\n")[0]
    await reader.readexactly(int(length or 0))
    body = response["body"]
    sent = (body if isinstance(body, str) else json.dumps(body)).encode()
    headers = {"x-request-id": REQUEST_ID, "request-id": REQUEST_ID, **response["headers"]}
    lines = [f"{name}: {value}" for name, value in headers.items() if name != "content-length"]
    first = [f"HTTP/1.1 {response['status']} Recorded", f"content-length: {len(sent)}"]
    writer.write("\r\n".join([*first, "connection: close", *lines, "", ""]).encode() + sent)
    await writer.drain()
    writer.close()


async def one(
    url: str, form: str, provider: str, request: dict[str, Any], response: dict[str, Any]
) -> tuple[str, str]:
    """The verdict on one exchange, and why."""
    from cairn.core.messages import user
    from cairn.errors import ModelError
    from cairn.models.endpoints import ENDPOINTS
    from cairn.models.wire.clients import Address, Connection
    from cairn.models.wire.exchange import Exchange
    from cairn.ports import ModelRequest

    known = ENDPOINTS.get(provider)
    endpoint = known if known and known.wire == form else ENDPOINTS[USUAL[form]]
    asked = request["body"] if isinstance(request["body"], dict) else {}
    named = request["path"].partition("/models/")[2].partition(":")[0]
    model = asked.get("model") or named or "a-model"
    base_url = url if form in {"messages", "gemini"} else f"{url}/v1"
    connection = Connection(
        Address(endpoint=endpoint, model=model, base_url=base_url, key="k", stall_s=10.0)
    )
    stream = "event-stream" in response["headers"].get("content-type", "")
    exchange = Exchange(connection, endpoint, {}, stream=stream, cache=False, finish_required=True)
    plain = None if response["status"] != 200 else READERS[form](response["body"], stream)
    try:
        reply = await exchange.make(ModelRequest(system="", messages=(user("Hello."),)), None)
    except ModelError as fault:
        return on_fault(plain, response["status"], fault)
    except Exception as error:  # that nothing but ModelError comes out is what is tried here
        return "wrong", f"{type(error).__name__} escaped: {error}"[:300]
    finally:
        await connection.close()
    return on_reply(plain, reply)


def on_fault(plain: Plain | None, status: int, fault: Any) -> tuple[str, str]:
    """Whether a fault is what the answer stands for."""
    told = f"{fault.error_class} {fault}"[:200]
    if plain is None:
        right = fault.status == status and fault.request_id == REQUEST_ID
    else:
        right = plain.failed or not plain.finish
    return ("right typed error" if right else "wrong"), told


def on_reply(plain: Plain | None, reply: Any) -> tuple[str, str]:
    """Whether a reply says what the answer says."""
    from cairn.core.messages import Reasoning, text_of

    if plain is None or plain.failed:
        return "wrong", "an error was read as a reply"
    calls = [[call.name, call.arguments] for call in reply.calls]
    wanted = plain.calls
    if not plain.exact_arguments:
        calls, wanted = (
            [[name, json.loads(given)] for name, given in each] for each in (calls, wanted)
        )
    tokens = reply.usage.input_tokens + reply.usage.cached_tokens if reply.usage else 0
    tokens += reply.usage.cache_write_tokens if reply.usage else 0
    compared = {
        "text": (text_of(reply.parts), plain.text),
        "calls": (calls, wanted),
        "request id": (reply.request_id, REQUEST_ID),
        "input tokens": (tokens, plain.input_tokens),
        "reasoning": (any(isinstance(p, Reasoning) for p in reply.parts), plain.reasoning),
    }
    unlike = [f"{name}: {a!r} for {b!r}"[:300] for name, (a, b) in compared.items() if a != b]
    return ("differs", "; ".join(unlike)) if unlike else ("exact", "")


# ---------------------------------------------------------------- the second reading


def events(body: str) -> list[dict[str, Any]]:
    """The data of each event of a stream."""
    lines = (line for line in body.splitlines() if line.startswith("data:"))
    found = (line.removeprefix("data:").strip() for line in lines)
    return [json.loads(data) for data in found if data not in {"", "[DONE]"}]


def loaded(body: Any) -> Any:
    return json.loads(body) if isinstance(body, str) else body


def plain_chat(body: Any, stream: bool) -> Plain:
    """Chat completions."""
    plain = Plain()
    calls: dict[Any, list[str]] = {}
    for data in events(body) if stream else [loaded(body)]:
        plain.failed |= bool(data.get("error"))
        elsewhere = (data.get("x_groq") or {}).get("usage")
        usage = data.get("usage") or elsewhere or {}
        plain.input_tokens = usage.get("prompt_tokens", plain.input_tokens)
        for choice in (data.get("choices") or [])[:1]:
            said = choice.get("delta" if stream else "message") or {}
            plain.finish = choice.get("finish_reason") or plain.finish
            content = said.get("content") or ""
            if isinstance(content, list):
                plain.text += "".join(p["text"] for p in content if p["type"] == "text")
            else:
                plain.text += content
            plain.reasoning |= bool(said.get("reasoning_content") or said.get("reasoning"))
            for number, call in enumerate(said.get("tool_calls") or []):
                at = call.get("index", number) if stream else number
                entry = calls.setdefault(at, ["", ""])
                entry[0] += call["function"].get("name") or ""
                entry[1] += call["function"].get("arguments") or ""
    plain.calls = list(calls.values())
    return plain


def plain_responses(body: Any, stream: bool) -> Plain:
    """Responses."""
    plain = Plain()
    if stream:
        said = events(body)
        plain.failed = any(e["type"] in {"error", "response.failed"} for e in said)
        items = [e["item"] for e in said if e["type"] == "response.output_item.done"]
        last: dict[str, Any] = next((e["response"] for e in said[::-1] if "response" in e), {})
    else:
        last = loaded(body)
        items = last.get("output") or []
        plain.failed = bool(last.get("error"))
    status = last.get("status") or ""
    plain.finish = status if status in {"completed", "incomplete"} else ""
    plain.input_tokens = (last.get("usage") or {}).get("input_tokens", 0)
    for item in items:
        if item["type"] == "message":
            plain.text += "".join(c.get("text", "") for c in item["content"])
        elif item["type"] == "function_call":
            plain.calls.append([item["name"], item["arguments"]])
        elif item["type"] == "reasoning":
            kinds = ("summary", "content", "encrypted_content")
            plain.reasoning |= any(item.get(kind) for kind in kinds)
    return plain


def plain_messages(body: Any, stream: bool) -> Plain:
    """Messages."""
    plain = Plain(exact_arguments=stream)
    if stream:
        blocks: dict[int, dict[str, Any]] = {}
        for event in events(body):
            plain.failed |= event["type"] == "error"
            given = event.get("message") or event
            count_input(plain, given.get("usage") or {})
            plain.finish = (event.get("delta") or {}).get("stop_reason") or plain.finish
            if event["type"] == "content_block_start":
                blocks[event["index"]] = {**event["content_block"], "json": ""}
            elif event["type"] == "content_block_delta":
                delta, block = event["delta"], blocks[event["index"]]
                block["text"] = block.get("text", "") + delta.get("text", "")
                block["json"] += delta.get("partial_json", "")
        content = list(blocks.values())
    else:
        data = loaded(body)
        content, plain.finish = data["content"], data["stop_reason"] or ""
        count_input(plain, data["usage"])
    for block in content:
        if block["type"] == "text":
            plain.text += block["text"]
        elif block["type"] == "tool_use":
            given = block["json"] if block.get("json") else json.dumps(block["input"])
            plain.calls.append([block["name"], given])
        elif "thinking" in block["type"]:
            plain.reasoning = True
    return plain


def count_input(plain: Plain, usage: dict[str, Any]) -> None:
    """All that was read, from the cache or not; a later and larger word counts."""
    kinds = ("input_tokens", "cache_creation_input_tokens", "cache_read_input_tokens")
    plain.input_tokens = max(plain.input_tokens, sum(usage.get(kind) or 0 for kind in kinds))


def plain_gemini(body: Any, stream: bool) -> Plain:
    """Gemini."""
    plain = Plain(exact_arguments=False)
    for data in events(body) if stream else [loaded(body)]:
        plain.failed |= "error" in data
        usage = data.get("usageMetadata") or {}
        given = usage.get("promptTokenCount", 0) + usage.get("toolUsePromptTokenCount", 0)
        plain.input_tokens = given or plain.input_tokens
        for candidate in (data.get("candidates") or [])[:1]:
            plain.finish = candidate.get("finishReason") or plain.finish
            for part in (candidate.get("content") or {}).get("parts", []):
                if part.get("thought"):
                    plain.reasoning = True
                elif "functionCall" in part:
                    call = part["functionCall"]
                    plain.calls.append([call["name"], json.dumps(call.get("args") or {})])
                else:
                    plain.text += part.get("text", "")
    return plain


READERS = {
    "chat": plain_chat,
    "responses": plain_responses,
    "messages": plain_messages,
    "gemini": plain_gemini,
}

if __name__ == "__main__":
    sys.exit(main())
