"""Addresses that lead inside, in every spelling; and public ones that only look so."""

from typing import Any

from tests.governance.cases import FRONT, INSIDE, Case, Place, written

KIND = "web"

ANSWERS: dict[str, list[str]] = {
    "local.example.org": [INSIDE],
    "localhost": [INSIDE],
    "six.example.org": ["::1"],
    "private.example.org": ["10.0.0.1"],
    "private2.example.org": ["192.168.1.1"],
    "private3.example.org": ["172.16.0.1"],
    "cloud.example.org": ["169.254.169.254"],
    "carrier.example.org": ["100.64.0.1"],
    "unique.example.org": ["fd00::1"],
    "link.example.org": ["fe80::1"],
    "mixed.example.org": [FRONT, INSIDE],
    "mixed2.example.org": [INSIDE, FRONT],
    "mapped.example.org": ["::ffff:127.0.0.1"],
    "compat.example.org": ["::127.0.0.1"],
    "nat.example.org": ["64:ff9b::7f00:1"],
    "six-to-four.example.org": ["2002:7f00:1::"],
    "teredo.example.org": ["2001:0:7f00:1::80ff:fefe"],
    "all.example.org": ["0.0.0.0"],
    "many.example.org": ["224.0.0.1"],
    "broad.example.org": ["255.255.255.255"],
    "none.example.org": ["not an address"],
    "short.example.org": ["127.1"],
    "metadata.google.internal": ["169.254.169.254"],
}


def got(url: str, **more: Any) -> str:
    return written(url=url, **more)


HOSTS = [
    ("127.0.0.1", "address"),
    ("127.0.0.2", "address"),
    ("0.0.0.0", "address"),
    ("10.1.2.3", "address"),
    ("192.168.0.1", "address"),
    ("172.31.255.255", "address"),
    ("169.254.169.254", "address"),
    ("100.100.100.200", "address"),
    ("224.0.0.1", "address"),
    ("255.255.255.255", "address"),
    ("2130706433", "host"),
    ("0x7f000001", "host"),
    ("0x7f.0.0.1", "host"),
    ("0x7f.1", "host"),
    ("017700000001", "host"),
    ("0177.0.0.1", "host"),
    ("127.1", "host"),
    ("127.0.1", "host"),
    ("127.0.0.01", "host"),
    ("127.0.0.1.", "address"),
    ("127.0.0.1..", "host"),
    ("127.0.0.256", "host"),
    ("127.0.0.1.2", "host"),
    ("4294967297", "host"),
    ("\uff11\uff12\uff17.0.0.1", "host"),
    ("127\u30020\u30020\u30021", "host"),
    ("\u2460\u2461\u2466.0.0.1", "host"),
    ("loc\u00adalhost", "host"),
    ("\u2113ocalhost", "host"),
    ("[::1]", "address"),
    ("[::]", "address"),
    ("[0:0:0:0:0:0:0:1]", "address"),
    ("[::ffff:127.0.0.1]", "address"),
    ("[::ffff:7f00:1]", "address"),
    ("[::127.0.0.1]", "address"),
    ("[64:ff9b::7f00:1]", "address"),
    ("[2002:7f00:1::]", "address"),
    ("[fe80::1%25eth0]", "host"),
    ("[fe80::1%eth0]", "host"),
    ("[fd00::1]", "address"),
    ("[::1", "host"),
    ("::1", "host"),
    ("localhost", "address"),
    ("LOCALHOST", "address"),
    ("localhost.", "address"),
    ("", "host"),
    ("a b.example.org", "url"),
    ("-a.example.org", "host"),
    ("a..example.org", "host"),
    ("%6c%6fcalhost", "host"),
    ("127.0.0.1%2f.example.org", "host"),
]
"""How a host may be written, and the rule that refuses it."""


def _urls(place: Place) -> list[tuple[str, str]]:
    port = place.port
    return [
        (f"http://site.example.org@127.0.0.1:{port}/x", "userinfo"),
        (f"http://site.example.org:x@127.0.0.1:{port}/x", "userinfo"),
        (f"http://127.0.0.1:{port}@site.example.org:{port}/x", "userinfo"),
        (f"http://site.example.org:{port}\\@127.0.0.1:{port}/x", "url"),
        (f"http://127.0.0.1:{port}\\.example.org/x", "url"),
        (f"http://127.0.0.1:{port}#@site.example.org/", "address"),
        (f"http://127.0.0.1:{port}?@site.example.org/", "address"),
        ("http://site.example.org:22/x", "port"),
        ("http://site.example.org:0/x", "port"),
        ("http://site.example.org:99999/x", "port"),
        (f"http://site.example.org:0{port}/x", "port"),
        (f"http://site.example.org:+{port}/x", "port"),
        ("http://site.example.org:/x", "port"),
        ("http://site.example.org:80:80/x", "host"),
        ("https://site.example.org:80/x", "port"),
        ("file:///etc/passwd", "scheme"),
        (f"file://{place.outside}/secret.txt", "scheme"),
        ("ftp://site.example.org/x", "scheme"),
        (f"gopher://127.0.0.1:{port}/_x", "scheme"),
        (f"dict://127.0.0.1:{port}/x", "scheme"),
        ("data:text/plain,x", "scheme"),
        ("javascript:alert(1)", "scheme"),
        ("jar:http://site.example.org!/", "scheme"),
        ("unix:///run/x.sock", "scheme"),
        ("//127.0.0.1/x", "url"),
        ("/x", "url"),
        ("127.0.0.1/x", "url"),
        (f"http:127.0.0.1:{port}/x", "url"),
        (f"http:/127.0.0.1:{port}/x", "url"),
        (f"http:///127.0.0.1:{port}/x", "host"),
        (f" http://127.0.0.1:{port}/x", "url"),
        (f"http://site.example.org:{port}/x\r\nHost: inside", "url"),
        (f"http://site.example.org:{port}/x\nX: y", "url"),
        (f"http://site.example.org\r\n.example.org:{port}/x", "url"),
        (f"http://site.example.org:{port}/x\x00y", "url"),
        (f"ht\ttp://127.0.0.1:{port}/x", "url"),
        (f"http://site.example.org:{port}/" + "x" * 5_000, "url"),
    ]


def hostile(place: Place) -> list[Case]:
    port = place.port
    urls = [(f"http://{host}:{port}/x", rule) for host, rule in HOSTS]
    urls += [(f"http://{name}:{port}/x", "address") for name in ANSWERS if name != "localhost"]
    urls += _urls(place)
    urls += [(f"http://site.example.org:{port}{path}", rule) for path, (_, rule) in leads(port)]
    found = [Case(KIND, "web", "http_fetch", got(url), f"http.{rule}") for url, rule in urls]
    headers: list[dict[str, str]] = [
        {"Host": "inside"},
        {"Authorization": "Bearer x"},
        {"Cookie": "a=b"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"Metadata-Flavor": "Google"},
        {"Accept": "a\r\nHost: inside"},
        {"Accept\r\nHost": "inside"},
        {"Accept": "a" * 2_000},
        {"Transfer-Encoding": "chunked"},
    ]
    site = f"http://site.example.org:{port}/x"
    found += [Case(KIND, "web", "http_fetch", got(site, headers=h), "http.header") for h in headers]
    found.append(Case(KIND, "web", "http_fetch", got(site, method="POST"), "- method:"))
    found.append(Case(KIND, "web", "http_fetch", got(site, method="get"), "- method:"))
    found.append(Case(KIND, "web", "http_fetch", got("http://a/" + "x" * 9_000), "- url:"))
    return found + _only_docs(place)


def leads(port: int) -> list[tuple[str, tuple[str, str]]]:
    """Pages of the site that redirect: path, where to, and the rule that refuses it."""
    return [
        ("/r1", (f"http://127.0.0.1:{port}/x", "address")),
        ("/r2", (f"//127.0.0.1:{port}/x", "address")),
        ("/r3", (f"http://2130706433:{port}/x", "host")),
        ("/r4", (f"http://local.example.org:{port}/x", "address")),
        ("/r5", ("file:///etc/passwd", "scheme")),
        ("/r6", (f"http://u@127.0.0.1:{port}/x", "userinfo")),
        ("/r7", ("http://site.example.org:22/x", "port")),
        ("/r8", ("/r8", "redirect")),
        ("/r9", (f"http://[::ffff:127.0.0.1]:{port}/x", "address")),
        ("/r10", (f"http://site.example.org:{port}/r1", "address")),
        ("/r11", (f"http://rebinds.example.org:{port}/r12", "address")),
        ("/r13", (f"http://127.0.0.1:{port}\\@site.example.org/", "redirect")),
    ]


def furnish(place: Place) -> None:
    """Let the site redirect; `/r12` leads once more to a name that has another address by then."""
    place.front.pages.update({path: to for path, (to, _) in leads(place.port)})
    place.front.pages["/r12"] = f"http://rebinds.example.org:{place.port}/x"
    place.front.pages["/moved"] = "/here"
    place.front.pages["/away"] = f"http://localhost.example.org:{place.port}/there"


def _only_docs(place: Place) -> list[Case]:
    """A policy that lets one domain be read, told from the text of the address."""
    port = place.port
    hosts = [
        f"example.org:{port}",
        f"site.example.org:{port}",
        f"evildocs.example.org:{port}",
        f"docs.example.org.evil.test:{port}",
        f"docs.example.org@evil.test:{port}",
        f"evil.test:{port}#.docs.example.org",
        f"evil.test:{port}?.docs.example.org",
        f"evil.test:{port}/.docs.example.org",
        f"evil.test\\.docs.example.org:{port}",
        f"a.docs.example.org:{port}@evil.test",
        f"a.docs.example.org.:{port}",
        "a.docs.example.org:81",
        f"a.d\u043ecs.example.org:{port}",
        f"a.docs.example\u3002org:{port}",
        f"127.0.0.1:{port}",
        f"docs.example.org:{port}",
    ]
    says = "deployment: only our docs"
    return [Case(KIND, "docs", "http_fetch", got(f"http://{h}/x"), says) for h in hosts]


def benign(place: Place) -> list[Case]:
    port = place.port
    hosts = [
        "site.example.org",
        "localhost.example.org",
        "notlocalhost.example.org",
        "localhost-tips.example.org",
        "127-0-0-1.example.org",
        "10.example.org",
        "a127.0.0.b1",
        "0x7f.example.org",
        "metadata.example.org",
        "SITE.Example.ORG",
        "site.example.org.",
        "b\u00fccher.example.org",
        "xn--bcher-kva.example.org",
        "_dns.example.org",
        FRONT,
    ]
    paths = [
        "/a?u=http://127.0.0.1/",
        "/a@b",
        "/..%2f..%2fetc/passwd",
        "/a/../b",
        "/%00",
        "/a#fragment",
        "?q=1",
        "",
        "/gr\u00fc\u00dfe",
        "/moved",
        "/away",
        "/file:///etc/passwd",
    ]
    urls = [f"http://{host}:{port}/page" for host in hosts]
    urls += [f"http://site.example.org:{port}{path}" for path in paths]
    urls.append(f"HTTP://site.example.org:{port}/page")
    site = urls[0]
    found = [Case(KIND, "web", "http_fetch", got(url)) for url in urls]
    found += [
        Case(KIND, "web", "http_fetch", got(site, method="HEAD")),
        Case(KIND, "web", "http_fetch", got(site, headers={"accept": "text/html;q=0.9, */*"})),
        Case(KIND, "web", "http_fetch", got(site, headers=None)),
        Case(KIND, "docs", "http_fetch", got(f"http://a.docs.example.org:{port}/x")),
        Case(KIND, "docs", "http_fetch", got(f"http://A.Docs.example.org:{port}/localhost")),
    ]
    return found
