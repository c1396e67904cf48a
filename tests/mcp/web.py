"""A server over HTTP, told how to misbehave. It knows nothing of any SDK."""

import json
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

TOOL = {"name": "do", "inputSchema": {"type": "object"}}


class Server:
    """How it behaves, and what it has seen."""

    def __init__(self, how):
        self.how = how
        self.seen = []
        self.sessions = 0
        self.headers = []
        self.released = threading.Event()


class Handler(BaseHTTPRequestHandler):
    """Answers as `how` says."""

    protocol_version = "HTTP/1.1"

    def log_message(self, *args):
        return

    def do_GET(self):
        self.reply(self.server.told.how.get("get", 405), b"")

    def do_DELETE(self):
        self.reply(200, b"")

    def do_POST(self):
        request = json.loads(self.rfile.read(int(self.headers["content-length"])))
        method = request.get("method")
        self.server.told.headers.append(dict(self.headers))
        self.server.told.seen.append(method)
        if method == "initialize":
            self.server.told.sessions += 1
            given = request["params"]["protocolVersion"]
            info = {"name": "web", "version": "1"}
            result = {"protocolVersion": given, "capabilities": {"tools": {}}}
            self.answer(request, {**result, "serverInfo": info}, f"s{self.server.told.sessions}")
        elif method == "tools/list":
            self.answer(request, {"tools": [TOOL]})
        elif method == "tools/call":
            self.call(request)
        else:
            self.reply(202, b"")

    def call(self, request):
        how = self.server.told.how
        match how.get("call"):
            case "expired" if self.headers.get("mcp-session-id") == "s1":
                self.reply(404, b"gone")
            case "wait":
                self.server.told.released.wait(10)
                self.reply(404, b"gone")
            case "status":
                self.reply(how["status"], b"no", **how.get("headers", {}))
            case "cut":
                self.send_response(200)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", "1000")
                self.end_headers()
                self.wfile.write(b'{"jsonrpc"')
                self.close_connection = True
            case "drop":
                self.close_connection = True
                self.connection.close()
            case "big":
                self.reply(200, b'{"x": "' + b"x" * how["bytes"] + b'"}')
            case "html":
                self.reply(200, b"<html>", **{"content-type": "text/html"})
            case "stream_end":
                self.reply(200, b": hello\n\n", **{"content-type": "text/event-stream"})
            case _:
                self.answer(request, {"content": [{"type": "text", "text": "done"}]})

    def answer(self, request, result, session=""):
        body = json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result})
        more = {"mcp-session-id": session} if session else {}
        self.reply(200, body.encode(), **more)

    def reply(self, status, body, **headers):
        headers.setdefault("content-type", "application/json")
        self.send_response(status)
        for key, value in headers.items():
            self.send_header(key, value)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


@contextmanager
def serving(**how):
    """A server at work, and its address."""
    server = Server(how)
    web = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    web.told = server
    web.daemon_threads = True
    thread = threading.Thread(target=web.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    try:
        yield server, f"http://127.0.0.1:{web.server_port}/mcp"
    finally:
        server.released.set()
        web.shutdown()
        web.server_close()
        thread.join()
