"""`http_fetch` reaches the open internet and nothing else, however an address is written.

Every refusal names its rule; behind the refused forms stands a real server that must hear nothing.
"""

import http.server
import threading
from collections.abc import Iterator
from ipaddress import ip_address
from typing import Any

import pytest

from cairn.errors import ConfigError, ErrorClass, ToolError
from cairn.toolkit.addresses import is_public
from cairn.toolkit.http import http_fetch, http_tool
from cairn.toolkit.urls import parse
from cairn.tools.context import Context

HEARD: list[str] = []


class Quiet(http.server.BaseHTTPRequestHandler):
    """Answers everything, and notes it."""

    def do_GET(self) -> None:
        HEARD.append(self.path)
        self.send_response(200)
        self.end_headers()

    def log_message(self, *arguments: Any) -> None:
        return


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    """A server of the host, on all its addresses."""
    server = http.server.ThreadingHTTPServer(("", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server.server_address[1]
    server.shutdown()
    thread.join()
    server.server_close()


def refusal(url: str, **options: Any) -> str:
    with pytest.raises(ToolError) as caught:
        http_tool(**options)(url, Context(timeout_s=5))
    assert caught.value.error_class is ErrorClass.PERMISSION_DENIED, caught.value
    assert str(caught.value).startswith("refused by rule http.")
    return str(caught.value).split()[3].rstrip(":").removeprefix("http.")


LOCAL_FORMS = {
    "127.0.0.1": "address",
    "127.1": "host",
    "127.0.1": "host",
    "2130706433": "host",
    "0x7f000001": "host",
    "0x7f.0.0.1": "host",
    "0x7f.1": "host",
    "017700000001": "host",
    "0177.0.0.1": "host",
    "0177.0x0.0.1": "host",
    "127.0.0.01": "host",
    "127.000.000.001": "host",
    "0": "host",
    "0.0.0.0": "address",
    "00.00.00.00": "host",
    "127.0.0.1.": "address",
    "127.0.0.1..": "host",
    "127.0.0.256": "host",
    "127.0.0.1.0": "host",
    "1.2.3.4.0x": "host",
    "0x": "host",
    "127。0。0。1": "host",
    "127．0．0．1": "host",
    "１２７.０.０.１": "host",
    "①②⑦.⓪.⓪.①": "host",
    "١٢٧.٠.٠.١": "host",
    "ⓛⓞⓒⓐⓛⓗⓞⓢⓣ": "host",
    "ｌｏｃａｌｈｏｓｔ": "host",
    "local\u00adhost": "host",
    "local\u200bhost": "host",
    "localhost%00.example.com": "host",
    "127%2e0%2e0%2e1": "host",
    "%31%32%37.0.0.1": "host",
    "[::1]": "address",
    "[::]": "address",
    "[0:0:0:0:0:0:0:1]": "address",
    "[::ffff:127.0.0.1]": "address",
    "[::ffff:7f00:1]": "address",
    "[::127.0.0.1]": "address",
    "[::ffff:0:127.0.0.1]": "address",
    "[64:ff9b::127.0.0.1]": "address",
    "[64:ff9b:1::7f00:1]": "address",
    "[2002:7f00:1::]": "address",
    "[2001:0:7f00:1::80ff:fffe]": "address",
    "[2001:db8::1]": "address",
    "[fe80::1]": "address",
    "[fe80::1%25lo]": "host",
    "[fe80::1%lo]": "host",
    "[::1%25lo]": "host",
    "[fc00::1]": "address",
    "[fd00:ec2::254]": "address",
    "[fec0::1]": "address",
    "[ff02::1]": "address",
    "[2606:4700::5efe:127.0.0.1]": "address",
    "[::1": "host",
    "::1": "host",
    "[::1]]": "host",
    "[127.0.0.1]": "host",
    "[v1.fe80]": "host",
    "10.0.0.1": "address",
    "172.16.0.1": "address",
    "172.31.255.255": "address",
    "192.168.1.1": "address",
    "100.64.0.1": "address",
    "100.100.100.200": "address",
    "169.254.169.254": "address",
    "168.63.129.16": "address",
    "192.0.0.192": "address",
    "192.0.2.1": "address",
    "198.18.0.1": "address",
    "198.51.100.7": "address",
    "203.0.113.9": "address",
    "192.88.99.1": "address",
    "224.0.0.1": "address",
    "240.0.0.1": "address",
    "255.255.255.255": "address",
    "": "host",
    ".": "host",
    ".example.com": "host",
    "a..b": "host",
    "-a.example.com": "host",
    "a" * 64 + ".example.com": "host",
    "a." * 130 + "com": "host",
    "exa mple.com": "url",
    "example.com\\@127.0.0.1": "url",
    "127.0.0.1\\.example.com": "url",
    "example.com\t": "url",
    "127.0\n.0.1": "url",
    "example.com\r\nHost: inside": "url",
    "example.com\x00": "url",
    "user@127.0.0.1": "userinfo",
    "user:word@example.com": "userinfo",
    "example.com@127.0.0.1": "userinfo",
    "@127.0.0.1": "userinfo",
    "xn--": "host",
    "a*b.example.com": "host",
    "例子.127.0.0.1%2f": "host",
}


@pytest.mark.parametrize(("host", "rule"), LOCAL_FORMS.items())
def test_no_form_of_an_address_leads_inside(port: int, host: str, rule: str) -> None:
    """B63: a loopback address, however it is written."""
    HEARD.clear()

    def resolve(name: str, at: int) -> list[str]:
        return ["127.0.0.1"]

    assert refusal(f"http://{host}:{port}/x", allow_ports=[port], resolver=resolve) == rule
    assert HEARD == []


URLS = {
    "": "url",
    "example.com": "url",
    "//example.com/": "url",
    "/etc/passwd": "url",
    "http:example.com": "url",
    "http:/example.com": "url",
    "http:///example.com": "host",
    "file:///etc/passwd": "scheme",
    "FILE:///etc/passwd": "scheme",
    "ftp://example.com/": "scheme",
    "gopher://127.0.0.1:70/_x": "scheme",
    "dict://127.0.0.1:11211/stat": "scheme",
    "ldap://127.0.0.1/": "scheme",
    "jar:http://example.com!/": "scheme",
    "data:text/plain,x": "scheme",
    "javascript:alert(1)": "scheme",
    "unix:///run/docker.sock": "scheme",
    "ws://example.com/": "scheme",
    "http+unix://x/": "scheme",
    " https://example.com/": "url",
    "https://example.com/ x": "url",
    "https://example.com/\r\nX-Injected: 1": "url",
    "https://example.com/\u0000": "url",
    "https://example.com:22/": "port",
    "https://example.com:80/": "port",
    "http://example.com:443/": "port",
    "http://example.com:6379/": "port",
    "http://example.com:0/": "port",
    "http://example.com:/": "port",
    "http://example.com:65616/": "port",
    "http://example.com:080/": "port",
    "http://example.com:８０/": "port",
    "http://example.com:80:80/": "host",
    "http://example.com:+80/": "port",
    "https://example.com/" + "x" * 4_000: "url",
    "http://user@example.com/": "userinfo",
    "http://:@example.com/": "userinfo",
    "http://example.com:80@127.0.0.1/": "userinfo",
}


@pytest.mark.parametrize(("url", "rule"), URLS.items(), ids=range(len(URLS)))
def test_what_is_no_plain_web_address_is_refused(url: str, rule: str) -> None:
    def resolve(host: str, port: int) -> list[str]:
        raise AssertionError("nothing is resolved for a refused address")

    assert refusal(url, resolver=resolve) == rule


@pytest.mark.parametrize(
    "found",
    [
        ["127.0.0.1"],
        ["93.184.216.34", "10.0.0.1"],
        ["10.0.0.1", "93.184.216.34"],
        ["2606:4700::1111", "::1"],
        ["::ffff:169.254.169.254"],
        ["fe80::1%eth0"],
        ["93.184.216.34", "64:ff9b::a00:1"],
        ["not an address"],
        ["0x7f.1"],
    ],
)
def test_one_closed_address_among_those_of_a_host_refuses_the_host(found: list[str]) -> None:
    asked = []

    def resolve(host: str, port: int) -> list[str]:
        asked.append((host, port))
        return found

    assert refusal("http://rebind.example.com/", resolver=resolve) == "address"
    assert asked == [("rebind.example.com", 80)]


@pytest.mark.parametrize(
    "text",
    [
        "93.184.216.34",
        "8.8.8.8",
        "100.63.255.255",
        "100.128.0.0",
        "172.15.0.1",
        "172.32.0.1",
        "192.167.255.255",
        "169.253.0.1",
        "223.255.255.255",
        "2606:4700:4700::1111",
        "2a00:1450:4001::200e",
        "64:ff9b::808:808",
        "::ffff:8.8.8.8",
        "2002:808:808::",
    ],
)
def test_public_addresses_are_public(text: str) -> None:
    assert is_public(ip_address(text))


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("https://example.com", "example.com", "/"),
        ("HTTPS://EXAMPLE.com.", "example.com", "/"),
        ("https://example.com:443/a?b=c&d#e", "example.com", "/a?b=c&d"),
        ("http://sub.domain.example.co.uk/a%20b", "sub.domain.example.co.uk", "/a%20b"),
        ("https://bücher.example/ü?q=ü", "xn--bcher-kva.example", "/%C3%BC?q=%C3%BC"),
        ("https://例え.jp/", "xn--r8jz45g.jp", "/"),
        ("https://пример.example/", "xn--e1afmkfd.example", "/"),
        ("https://a_b.example.com/", "a_b.example.com", "/"),
        ("https://1and1.example.com/", "1and1.example.com", "/"),
        ("https://0x7f.example.com/", "0x7f.example.com", "/"),
        ("https://127.0.0.1.example.com/", "127.0.0.1.example.com", "/"),
        ("https://localhost.example.com/@x:y", "localhost.example.com", "/@x:y"),
        ("https://example.com?x=http://10.0.0.1/", "example.com", "/?x=http://10.0.0.1/"),
        ("https://example.com/a//b/../c", "example.com", "/a//b/../c"),
        ("https://8.8.8.8/", "8.8.8.8", "/"),
        ("https://[2606:4700:4700:0::1111]/", "2606:4700:4700::1111", "/"),
        ("https://example.com/%0d%0aX:1", "example.com", "/%0d%0aX:1"),
        ("https://xn--bcher-kva.example/", "xn--bcher-kva.example", "/"),
    ],
)
def test_plain_addresses_are_read_as_they_are_meant(url: str, host: str, target: str) -> None:
    read = parse(url)
    assert (read.host, read.target) == (host, target)


@pytest.mark.parametrize(
    "headers",
    [
        {"Authorization": "Bearer x"},
        {"Cookie": "a=b"},
        {"Host": "inside.example.com"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Metadata-Flavor": "Google"},
        {"Accept\r\nHost": "inside"},
        {"Accept": "a\r\nHost: inside"},
        {"Accept": "a\nb"},
        {"Accept": "ü"},
        {"Accept": "x" * 1_001},
        {"Transfer-Encoding": "chunked"},
        {"Content-Length": "5"},
        {"Connection": "keep-alive"},
        {"": "x"},
    ],
)
def test_a_model_sends_only_harmless_headers(headers: dict[str, str]) -> None:
    with pytest.raises(ToolError, match=r"refused by rule http[.]header"):
        http_tool(resolver=lambda host, port: ["93.184.216.34"])(
            "https://example.com/", Context(timeout_s=5), headers=headers
        )


def test_an_operators_lists_decide_which_hosts_are_asked() -> None:
    only = {"allow_hosts": ["example.com", "*.example.org"]}
    assert refusal("https://example.net/", **only) == "allow_hosts"
    assert refusal("https://notexample.com/", **only) == "allow_hosts"
    assert refusal("https://example.com.evil.net/", **only) == "allow_hosts"
    assert refusal("https://example.org/", **only) == "allow_hosts"
    without = {"deny_hosts": ["*.example.com", "8.8.8.8"]}
    assert refusal("https://a.example.com/", **without) == "deny_hosts"
    assert refusal("https://A.Example.COM./", **without) == "deny_hosts"
    assert refusal("https://8.8.8.8/", **without) == "deny_hosts"
    both = {"allow_hosts": ["*.example.com"], "deny_hosts": ["a.example.com"]}
    assert refusal("https://a.example.com/", **both) == "deny_hosts"


@pytest.mark.parametrize(
    "address",
    [
        "169.254.169.254",
        "169.254.170.2",
        "100.100.100.200",
        "168.63.129.16",
        "192.0.0.192",
        "fd00:ec2::254",
        "fd20:ce::254",
        "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe",
    ],
)
def test_no_setting_opens_the_addresses_where_clouds_keep_credentials(address: str) -> None:
    """B63: they are refused always, also inside a network that the operator opened."""
    opened = {"allow_addresses": ["0.0.0.0/0", "::/0"]}
    assert refusal("http://x.example/", resolver=lambda *_: [address], **opened) == "address"
    literal = f"[{address}]" if ":" in address else address
    assert refusal(f"http://{literal}/latest/meta-data/", **opened) == "address"


def test_an_operators_mistake_is_told_at_once() -> None:
    for options in (
        {"headers": {"Authorization": "x"}},
        {"allow_hosts": "example.com"},
        {"allow_hosts": ["Example.com"]},
        {"deny_hosts": ["https://example.com"]},
        {"allow_addresses": ["10.1"]},
    ):
        with pytest.raises(ConfigError):
            http_tool(**options)


def test_the_tool_is_a_read_and_its_content_is_the_webs() -> None:
    from cairn.toolkit import http

    assert (http_fetch.spec.effect, http_fetch.spec.recovery) == ("read", "repeat")
    assert http.TAINT == "web"
