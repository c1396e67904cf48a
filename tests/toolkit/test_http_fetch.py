"""`http_fetch` against real servers: what it brings back, and what it never follows or forwards.

`site.example` and `other.example` are at an address of this machine that the tests call public;
`inside.example` is at one they do not.
"""

import contextlib
import gzip
import http.server
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from cairn.errors import ErrorClass, ToolError
from cairn.toolkit.http import http_tool
from cairn.tools.context import Context

CERTIFICATE = Path(__file__).with_name("site.example.pem")
NAMES = {"site.example": "127.0.0.1", "other.example": "127.0.0.1", "inside.example": "127.0.0.2"}
BOMB = gzip.compress(b"\0" * 50_000_000, 9)


class Site(http.server.BaseHTTPRequestHandler):
    """Serves what its pages say, and notes whom it was asked as."""

    protocol_version = "HTTP/1.1"
    pages: dict[str, Callable[["Site"], None]]
    heard: list[dict[str, str]]

    def do_GET(self) -> None:
        self.heard.append({"path": self.path, "at": self.server.name, **self.headers})
        self.close_connection = True
        page = self.pages.get(self.path.partition("?")[0])
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            if page is None:
                self.answer(b"nothing here", status=404)
            else:
                page(self)

    do_HEAD = do_GET  # noqa: N815 - the server's library calls it so

    def answer(self, body: bytes, *, status: int = 200, length: int = -1, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content_Type": "text/plain", **headers}.items():
            if value:
                self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body) if length < 0 else length))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        return


class Web:
    """Two servers, and a tool that reaches them."""

    def __init__(self) -> None:
        self.pages: dict[str, Callable[[Site], None]] = {}
        self.heard: list[dict[str, str]] = []
        self.resolved: list[str] = []
        self.servers = [self._serve("outside", "127.0.0.1", 0)]
        self.port = self.servers[0].server_address[1]
        self.servers.append(self._serve("inside", "127.0.0.2", self.port))
        secure = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        secure.load_cert_chain(CERTIFICATE)
        self.servers.append(self._serve("secure", "127.0.0.1", 0, secure))
        self.tls_port = self.servers[2].server_address[1]
        self.threads = [
            threading.Thread(target=each.serve_forever, kwargs={"poll_interval": 0.01})
            for each in self.servers
        ]
        for thread in self.threads:
            thread.start()

    def _serve(self, name: str, address: str, port: int, tls: Any = None) -> Any:
        handler = type("Handler", (Site,), {"pages": self.pages, "heard": self.heard})
        server = http.server.ThreadingHTTPServer((address, port), handler)
        server.name = name
        server.handle_error = lambda *arguments: None
        if tls is not None:
            server.socket = tls.wrap_socket(
                server.socket, server_side=True, do_handshake_on_connect=False
            )
        return server

    def resolve(self, host: str, port: int) -> list[str]:
        self.resolved.append(host)
        if host not in NAMES:
            raise socket.gaierror(-2, "Name or service not known")
        return [NAMES[host]]

    def fetch(self, path: str, *, method: str = "GET", headers: Any = None, **options: Any) -> Any:
        """Ask for a path of site.example, or for a whole address."""
        given = {
            "allow_ports": [self.port, self.tls_port],
            "allow_addresses": ["127.0.0.1"],
            "resolver": self.resolve,
            "timeout": 5.0,
            **options,
        }
        url = path if "://" in path else f"http://site.example:{self.port}{path}"
        return http_tool(**given)(url, Context(timeout_s=8), method=method, headers=headers)

    def close(self) -> None:
        for server in self.servers:
            server.shutdown()
        for thread in self.threads:
            thread.join()
        for server in self.servers:
            server.server_close()


@pytest.fixture(scope="module")
def server() -> Iterator[Web]:
    there = Web()
    yield there
    there.close()


@pytest.fixture
def web(server: Web) -> Web:
    server.pages.clear()
    server.heard.clear()
    server.resolved.clear()
    return server


def page(body: bytes, **how: Any) -> Callable[[Site], None]:
    return lambda site: site.answer(body, **how)


def to(location: str, status: int = 302) -> Callable[[Site], None]:
    return lambda site: site.answer(b"", status=status, Location=location)


# ---------------------------------------------------------------- what it brings back


def test_a_page_comes_back_as_text_with_its_status(web: Web) -> None:
    web.pages["/a"] = page("grüße".encode(), Content_Type="text/html; charset=utf-8", ETag='"1"')
    told = web.fetch("/a?b=c")
    assert told == {
        "url": f"http://site.example:{web.port}/a?b=c",
        "status": 200,
        "headers": {"content-type": '"text/html; charset=utf-8"', "etag": '"\\"1\\""'},
        "text": "grüße",
    }
    assert web.fetch("/missing")["status"] == 404
    assert web.fetch("/missing")["text"] == "nothing here"


def test_head_tells_what_there_is_without_the_content(web: Web) -> None:
    web.pages["/a"] = page(b"content")
    told = web.fetch("/a", method="HEAD")
    assert told["status"] == 200
    assert "text" not in told


def test_nothing_is_sent_but_what_was_asked_for(web: Web) -> None:
    web.pages["/a"] = page(b"x")
    web.fetch("/a", headers={"accept-language": "de"})
    (heard,) = web.heard
    assert heard == {
        "path": "/a",
        "at": "outside",
        "Host": f"site.example:{web.port}",
        "User-Agent": "cairn/1",
        "Accept-Encoding": "gzip",
        "Accept-Language": "de",
        "Connection": "close",
    }


@pytest.mark.parametrize(
    ("body", "kind", "text"),
    [
        ("grün".encode("latin-1"), "text/plain; charset=ISO-8859-1", "grün"),
        ("grün".encode("cp1252"), 'text/html; charset="windows-1252"', "grün"),
        ("日本".encode("shift_jis"), "text/plain; charset=Shift_JIS", "日本"),
        ("grün".encode("utf-16"), "text/plain", "grün"),
        (b"\xef\xbb\xbfgr\xc3\xbcn", "text/plain; charset=latin-1", "grün"),
        ('<meta charset="gb18030">中'.encode("gb18030"), "text/html", '<meta charset="gb18030">中'),
        (b"gr\xfcn", "text/plain", "gr\ufffdn"),
        (b"x", "text/plain; charset=no-such-coding", "x"),
        (b"x", "text/plain; charset=zip", "x"),
        (b"eA==", "text/plain; charset=base64", "eA=="),
        (b"x", "text/plain; charset=undefined", "x"),
        (b"xn--bcher-kva", "text/plain; charset=punycode", "xn--bcher-kva"),
        (b"\\u0041", "text/plain; charset=unicode_escape", "\\u0041"),
        (b"x", "text/plain; charset=idna\x01", "x"),
        (b'{"a":1}', "application/json", '{"a":1}'),
        (b"<a/>", "application/atom+xml", "<a/>"),
        (b"a: 1", "application/yaml", "a: 1"),
        (b"text", "", "text"),
        (b"", "text/plain", ""),
    ],
)
def test_text_is_read_in_its_own_coding(web: Web, body: bytes, kind: str, text: str) -> None:
    web.pages["/a"] = page(body, Content_Type=kind)
    assert web.fetch("/a")["text"] == text


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (b"\x89PNG\r\n", "image/png"),
        (b"PK\x03\x04", "application/zip"),
        (b"x", "application/octet-stream"),
        (b"ab\0cd", ""),
    ],
)
def test_what_is_no_text_is_named_and_not_shown(web: Web, body: bytes, kind: str) -> None:
    web.pages["/a"] = page(body, Content_Type=kind)
    told = web.fetch("/a")
    assert "text" not in told
    assert "no text" in told["note"]


def test_a_compressed_page_is_unpacked(web: Web) -> None:
    web.pages["/gzip"] = page(gzip.compress(b"hello" * 9), Content_Encoding="gzip")
    web.pages["/deflate"] = page(zlib.compress(b"hello" * 9), Content_Encoding="deflate")
    assert web.fetch("/gzip")["text"] == "hello" * 9
    assert web.fetch("/deflate")["text"] == "hello" * 9


def test_a_chunked_page_is_put_together(web: Web) -> None:
    def chunked(site: Site) -> None:
        site.send_response(200)
        site.send_header("Transfer-Encoding", "chunked")
        site.end_headers()
        site.wfile.write(b"5\r\nhello\r\n1\r\n!\r\n0\r\n\r\n")

    web.pages["/a"] = chunked
    assert web.fetch("/a")["text"] == "hello!"


# ---------------------------------------------------------------- bounds


def test_a_large_page_is_cut_and_no_more_of_it_is_read(web: Web) -> None:
    web.pages["/a"] = page(b"x" * 3_000_000)
    told = web.fetch("/a", max_bytes=100_000)
    assert len(told["text"]) == 100_000
    assert "more" in told["note"]


def test_an_endless_page_is_cut(web: Web) -> None:
    def endless(site: Site) -> None:
        site.send_response(200)
        site.end_headers()
        while True:
            site.wfile.write(b"x" * 65_536)

    web.pages["/a"] = endless
    assert len(web.fetch("/a", max_bytes=200_000)["text"]) == 200_000


def test_a_decompression_bomb_is_cut(web: Web) -> None:
    web.pages["/a"] = page(BOMB, Content_Encoding="gzip")
    assert len(BOMB) < 60_000
    told = web.fetch("/a", max_bytes=100_000)
    assert len(told["text"]) == 100_000
    assert "more" in told["note"]


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, gzip", "compress", "x" * 5_000])
def test_an_unknown_coding_is_an_error(web: Web, coding: str) -> None:
    web.pages["/a"] = page(BOMB, Content_Encoding=coding)
    with pytest.raises(ToolError, match="content coding"):
        web.fetch("/a")


def test_a_page_that_ends_too_early_is_an_error(web: Web) -> None:
    web.pages["/short"] = page(b"half", length=8)
    web.pages["/broken"] = page(gzip.compress(b"x" * 9_999)[:-9], Content_Encoding="gzip")
    web.pages["/no-gzip"] = page(b"plain", Content_Encoding="gzip")
    for path in ("/short", "/broken", "/no-gzip"):
        with pytest.raises(ToolError, match="could not be read") as caught:
            web.fetch(path)
        assert caught.value.error_class is ErrorClass.TOOL_UNAVAILABLE


def test_a_server_that_trickles_is_cut_when_the_time_is_up(web: Web) -> None:
    def trickle(site: Site) -> None:
        site.send_response(200)
        site.end_headers()
        for _ in range(1_000):
            site.wfile.write(b"x")
            time.sleep(0.01)

    def silent(site: Site) -> None:
        time.sleep(1)

    web.pages["/trickle"], web.pages["/silent"] = trickle, silent
    for path in ("/trickle", "/silent"):
        with pytest.raises(ToolError, match="in time") as caught:
            web.fetch(path, timeout=0.3)
        assert caught.value.error_class is ErrorClass.TOOL_TIMEOUT


@pytest.mark.parametrize(
    "answer",
    [
        b"this is no http\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: " + b"y" * 70_000 + b"\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n" + b"X: y\r\n" * 200 + b"\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"",
    ],
)
def test_what_is_no_http_is_an_error(answer: bytes) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def serve() -> None:
            each = listening.accept()[0]
            with each, contextlib.suppress(ConnectionError):
                each.recv(4_096)
                each.sendall(answer)

        thread = threading.Thread(target=serve)
        thread.start()
        port = listening.getsockname()[1]
        fetch = http_tool(allow_ports=[port], allow_addresses=["127.0.0.1"], timeout=5.0)
        with pytest.raises(ToolError, match="could not be read"):
            fetch(f"http://127.0.0.1:{port}/", Context())
        thread.join()


def test_a_host_that_is_not_known_or_does_not_listen_is_an_error(web: Web) -> None:
    with pytest.raises(ToolError, match="could not be resolved"):
        web.fetch("http://unknown.example/")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(ToolError, match="could not be read"):
        web.fetch(f"http://site.example:{port}/", allow_ports=[port])


# ---------------------------------------------------------------- redirects


def test_redirects_are_followed_and_told(web: Web) -> None:
    web.pages["/a"] = to("b?x=1")
    web.pages["/b"] = to("/c/d", 301)
    web.pages["/c/d"] = to("../e", 308)
    web.pages["/e"] = to(f"//other.example:{web.port}/f", 307)
    web.pages["/f"] = page(b"there")
    told = web.fetch("/a")
    assert (told["text"], told["url"]) == ("there", f"http://other.example:{web.port}/f")
    assert len(told["redirected_from"]) == 4
    assert web.resolved == ["site.example"] * 4 + ["other.example"]


@pytest.mark.parametrize(
    ("location", "rule"),
    [
        ("http://inside.example:{port}/x", "address"),
        ("http://127.0.0.2:{port}/x", "address"),
        ("http://[::1]:{port}/x", "address"),
        ("http://[::ffff:127.0.0.2]:{port}/x", "address"),
        ("http://169.254.169.254/latest/meta-data/", "address"),
        ("http://2130706434:{port}/x", "host"),
        ("http://0x7f.0.0.2:{port}/x", "host"),
        ("//inside.example:{port}/x", "address"),
        ("http://site.example:{port}@inside.example:{port}/x", "userinfo"),
        ("http://inside.example\\@site.example:{port}/x", "redirect"),
        ("http://inside.example:{port}/\tx", "redirect"),
        ("http://inside.example/x", "address"),
        ("http://site.example:22/x", "port"),
        ("file:///etc/passwd", "scheme"),
        ("gopher://inside.example/x", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("http://[::1", "redirect"),
        ("/" + "x" * 5_000, "redirect"),
    ],
)
def test_no_redirect_leads_inside(web: Web, location: str, rule: str) -> None:
    """B63: what a page redirects to is checked as what was asked for is."""
    web.pages["/a"] = to(location.format(port=web.port))
    with pytest.raises(ToolError, match=rf"refused by rule http[.]{rule}"):
        web.fetch("/a")
    assert [each["at"] for each in web.heard] == ["outside"]


def test_redirects_end(web: Web) -> None:
    web.pages["/a"] = to("/a")
    with pytest.raises(ToolError, match="redirects more than 5 times"):
        web.fetch("/a")
    assert len(web.heard) == 6


def test_a_redirect_passes_the_operators_lists_again(web: Web) -> None:
    web.pages["/a"] = to(f"http://other.example:{web.port}/b")
    with pytest.raises(ToolError, match=r"http[.]allow_hosts"):
        web.fetch("/a", allow_hosts=["site.example"])
    with pytest.raises(ToolError, match=r"http[.]deny_hosts"):
        web.fetch("/a", deny_hosts=["other.example"])


def test_what_an_operator_sends_along_goes_to_the_host_that_was_asked_and_to_no_other(
    web: Web,
) -> None:
    web.pages["/a"] = to("/b")
    web.pages["/b"] = to(f"http://other.example:{web.port}/c")
    web.pages["/c"] = page(b"x")
    web.fetch(
        "/a",
        headers={"Accept": "text/plain"},
        allow_hosts=["site.example", "other.example"],
    )
    options = {"allow_hosts": ["*.example"], "allow_ports": [web.port]}
    fetch = http_tool(
        headers={"Authorization": "Bearer key"},
        allow_addresses=["127.0.0.1"],
        resolver=web.resolve,
        **options,
    )
    web.heard.clear()
    fetch(f"http://site.example:{web.port}/a", Context())
    sent = [(each["path"], each.get("Authorization", "")) for each in web.heard]
    assert sent == [("/a", "Bearer key"), ("/b", "Bearer key"), ("/c", "")]


# ---------------------------------------------------------------- names, proxies, certificates


def test_the_connection_goes_to_the_address_that_was_checked(web: Web) -> None:
    """B63: a name server may answer with a public address first, and with a closed one then."""
    web.pages["/a"] = page(b"x")
    answers = [["127.0.0.1"], ["127.0.0.2"], ["127.0.0.2"]]

    def rebinding(host: str, port: int) -> list[str]:
        return answers.pop(0)

    assert web.fetch("/a", resolver=rebinding)["text"] == "x"
    assert len(answers) == 2
    assert [each["at"] for each in web.heard] == ["outside"]
    with pytest.raises(ToolError, match=r"http[.]address"):
        web.fetch("/a", resolver=rebinding)
    assert len(web.heard) == 1


def test_a_proxy_in_the_environment_is_not_used(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.pages["/a"] = page(b"x")
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, f"http://127.0.0.2:{web.port}")
    assert web.fetch("/a")["text"] == "x"
    assert [(each["at"], each["path"]) for each in web.heard] == [("outside", "/a")]


def trusting() -> ssl.SSLContext:
    return ssl.create_default_context(cafile=str(CERTIFICATE))


def test_a_certificate_is_checked_against_the_name_that_was_asked_for(web: Web) -> None:
    web.pages["/a"] = page(b"secret page")
    url = f"https://site.example:{web.tls_port}/a"
    assert web.fetch(url, tls=trusting())["text"] == "secret page"
    with pytest.raises(ToolError, match="CERTIFICATE_VERIFY_FAILED"):
        web.fetch(url)
    for other in ("other.example", "127.0.0.1"):
        with pytest.raises(ToolError, match="CERTIFICATE_VERIFY_FAILED"):
            web.fetch(f"https://{other}:{web.tls_port}/a", tls=trusting())
    assert len(web.heard) == 1


def test_no_redirect_leads_from_https_to_http(web: Web) -> None:
    web.pages["/a"] = to(f"http://site.example:{web.port}/b")
    with pytest.raises(ToolError, match=r"http[.]redirect"):
        web.fetch(f"https://site.example:{web.tls_port}/a", tls=trusting())
    assert len(web.heard) == 1
    web.pages["/up"] = to(f"https://site.example:{web.tls_port}/b")
    web.pages["/b"] = page(b"up")
    assert web.fetch("/up", tls=trusting())["text"] == "up"
