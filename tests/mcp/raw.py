"""A server of raw lines, told by its argument how to misbehave. It knows nothing of any SDK."""

import json
import os
import signal
import sys
import time
from pathlib import Path

HOW = json.loads(sys.argv[1])
LOG = Path(HOW["log"]) if "log" in HOW else None
RAW = sys.stdout.buffer
SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
STARTS = Path(HOW["starts"]) if "starts" in HOW else None
CALLS = []


def note(line):
    if LOG is not None:
        with LOG.open("a") as file:
            file.write(line + "\n")


def send(message):
    RAW.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
    RAW.flush()


def answer(request, result):
    send({"id": request["id"], "result": result})


def refuse(request, code, said):
    send({"id": request["id"], "error": {"code": code, "message": said}})


def text(request, said, **more):
    answer(request, {"content": [{"type": "text", "text": said}], **more})


def tools():
    listed = HOW.get("tools") or [{"name": "do", "description": "Do it.", "inputSchema": SCHEMA}]
    if "then" in HOW and STARTS is not None and STARTS.exists() and len(STARTS.read_text()) > 1:
        return HOW["then"]
    return listed


def call(request):  # noqa: C901, PLR0912, PLR0915 - one case for each misbehaviour
    name, how = request["params"]["name"], HOW.get("call", "answer")
    note(f"call {name} {json.dumps(request['params'].get('arguments'))}")
    match how:
        case "reply":
            answer(request, HOW["result"])
        case "error":
            refuse(request, HOW["code"], "no luck")
        case "exit":
            sys.stderr.write("Traceback: it broke\n")
            sys.stderr.flush()
            os._exit(3)
        case "exit_once" if len(STARTS.read_text()) <= 1:
            os._exit(3)
        case "hang":
            return
        case _ if how in {"answer", "exit_once"}:
            text(request, "done")
        case "suicide":
            os.kill(os.getpid(), signal.SIGKILL)
        case "wrong_id":
            send({"id": 9_999, "result": {"content": []}})
            send({"id": str(request["id"]) + "x", "result": {"content": []}})
        case "twice":
            text(request, "first")
            text(request, "second")
        case "huge":
            RAW.write(b'{"jsonrpc": "2.0", "x": "' + b"x" * (5 * 1024 * 1024))
            RAW.flush()
            time.sleep(5)
        case "not_utf8":
            RAW.write(b"\xff\xfe{}\n")
            RAW.flush()
            text(request, "after")
        case "chatter":
            for number in range(HOW["lines"]):
                RAW.write(b"loading %d%%\n" % number)
            RAW.flush()
            text(request, "after the noise")
        case "drip":
            for byte in json.dumps({"jsonrpc": "2.0", "id": request["id"]}).encode():
                RAW.write(bytes([byte]))
                RAW.flush()
                time.sleep(0.05)
        case "malformed":
            answer(request, {"content": "no list"})
        case "ask":
            send({"id": "q1", "method": "elicitation/create", "params": HOW["question"]})
            reply = json.loads(sys.stdin.readline())
            text(request, f"heard {json.dumps(reply['result'], sort_keys=True)}")
        case "sample":
            params = {"messages": [], "maxTokens": 5}
            send({"id": "q1", "method": "sampling/createMessage", "params": params})
            text(request, json.dumps(json.loads(sys.stdin.readline())["error"]["code"]))
        case "roots":
            send({"id": "q1", "method": "roots/list"})
            text(request, json.dumps(json.loads(sys.stdin.readline())["result"]))
        case "change":
            HOW["tools"] = HOW["then_listed"]
            send({"method": "notifications/tools/list_changed"})
            text(request, "changed")
        case "progress":
            token = request["params"]["_meta"]["progressToken"]
            for number in range(1_000):
                params = {"progressToken": token, "progress": number, "total": 999, "message": "on"}
                send({"method": "notifications/progress", "params": params})
            text(request, "at last")
        case _:
            more(request, how)


def more(request, how):
    CALLS.append(how)
    match how:
        case "second_exits" if len(CALLS) > 1:
            os._exit(3)
        case "long":
            text(request, "x" * (HOW["letters"] - 10) + "the end...")
        case "env":
            text(request, json.dumps(sorted(os.environ)))


def main():  # noqa: C901, PLR0912 - one case for each request
    if STARTS is not None:
        with STARTS.open("a") as file:
            file.write("x")
    if HOW.get("stubborn"):
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if "pids" in HOW:
        Path(HOW["pids"]).write_text(str(os.getpid()))
    if "stderr" in HOW:
        sys.stderr.write(HOW["stderr"] + "\n")
        sys.stderr.flush()
    if "banner" in HOW:
        RAW.write(HOW["banner"].encode() + b"\n")
        RAW.flush()
    if HOW.get("die_at_start"):
        sys.exit(4)
    for line in sys.stdin:
        request = json.loads(line)
        match request.get("method"):
            case "initialize":
                if HOW.get("mute"):
                    continue
                given = request["params"]["protocolVersion"]
                has = {"tools": {"listChanged": True}, **HOW.get("has", {})}
                answer(
                    request,
                    {
                        "protocolVersion": given,
                        "capabilities": has,
                        "serverInfo": {"name": "raw", "version": "1"},
                    },
                )
            case "tools/list":
                if HOW.get("endless"):
                    answer(request, {"tools": tools(), "nextCursor": "again"})
                else:
                    answer(request, {"tools": tools()})
            case "tools/call":
                call(request)
            case "notifications/cancelled":
                note("cancelled")
            case "resources/list" | "resources/read" | "prompts/list" | "prompts/get" as method:
                if method in HOW:
                    answer(request, HOW[method])
                else:
                    refuse(request, -32602, "no such")
    while HOW.get("stubborn"):
        time.sleep(0.05)


main()
