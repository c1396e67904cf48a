"""Web addresses, read strictly: what two programs could read differently is refused."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import quote, urljoin

from cairn.core.messages import Record
from cairn.errors import ErrorClass, ToolError
from cairn.tools.text import preview

MAX_URL_CHARS = 4_000
PORTS = {"http": 80, "https": 443}
_PARTS = re.compile(r"(https?)://([^/?#]*)([^?#]*)(\?[^#]*)?(#.*)?", re.IGNORECASE | re.DOTALL)
_SCHEME = re.compile(r"\s*([A-Za-z][A-Za-z0-9+.-]*):")
_LABEL = re.compile(r"[a-z0-9_]([a-z0-9_-]{0,61}[a-z0-9_])?")
_NUMBER = re.compile(r"[0-9]+|0[xX][0-9a-fA-F]*")
_PLAIN_IPV4 = re.compile(r"(0|[1-9][0-9]{0,2})(\.(0|[1-9][0-9]{0,2})){3}")
_IPV6 = re.compile(r"\[([0-9A-Fa-f:.]+)\]")
_FORBIDDEN = re.compile(r"[\x00-\x20\x7f\\]")
SAFE = "!$%&'()*+,/:;=?@[]_.~-"


class Url(Record):
    """A web address, taken apart.

    Args:
        scheme: `http` or `https`.
        host: In small ASCII letters, without a last dot; an IPv6 address without brackets.
        port: The number.
        target: Path and query, as they are sent.
        literal: The address, if the host is one.
    """

    scheme: str
    host: str
    port: int
    target: str
    literal: IPv4Address | IPv6Address | None = None

    @property
    def authority(self) -> str:
        """Host and port as the `Host` header has them."""
        host = f"[{self.host}]" if isinstance(self.literal, IPv6Address) else self.host
        return host if self.port == PORTS[self.scheme] else f"{host}:{self.port}"

    @property
    def origin(self) -> tuple[str, str, int]:
        """To whom it is sent."""
        return self.scheme, self.host, self.port

    def __str__(self) -> str:
        return f"{self.scheme}://{self.authority}{self.target}"


def refused(rule: str, why: str) -> ToolError:
    """The error for what a rule forbids; the message names it."""
    return ToolError(
        f"refused by rule http.{rule}: {why}", error_class=ErrorClass.PERMISSION_DENIED
    )


def parse(text: str, ports: Iterable[int] = ()) -> Url:
    """Read an address.

    Args:
        text: As it was written.
        ports: Allowed beside 80 for http and 443 for https.

    Raises:
        ToolError: it is refused; the message names the rule.
    """
    if len(text) > MAX_URL_CHARS:
        raise refused("url", f"it is longer than {MAX_URL_CHARS} characters")
    if bad := _FORBIDDEN.search(text):
        raise refused("url", f"it holds the character {bad[0]!r}, which must be percent-encoded")
    parts = _PARTS.fullmatch(text)
    if parts is None:
        named = _SCHEME.match(text)
        if named and named[1].lower() not in PORTS:
            raise refused("scheme", f"{preview(named[1])} is neither http nor https")
        raise refused("url", "write it in full, as https://host/path")
    scheme = parts[1].lower()
    host, port = _authority(parts[2], scheme, ports)
    name, literal = _host(host)
    target = quote((parts[3] or "/") + (parts[4] or ""), safe=SAFE)
    return Url(scheme=scheme, host=name, port=port, target=target, literal=literal)


def follow(at: Url, location: str, ports: Iterable[int] = ()) -> Url:
    """Where a redirect leads.

    Raises:
        ToolError: it is refused; the message names the rule.
    """
    if _FORBIDDEN.search(location) or len(location) > MAX_URL_CHARS:
        raise refused("redirect", "the place it redirects to is no address")
    try:
        joined = urljoin(str(at), location)
    except ValueError:
        raise refused("redirect", "the place it redirects to is no address") from None
    to = parse(joined, ports)
    if at.scheme == "https" and to.scheme == "http":
        raise refused("redirect", f"{at.host} redirects from https to http")
    return to


def _authority(text: str, scheme: str, ports: Iterable[int]) -> tuple[str, int]:
    if "@" in text:
        raise refused("userinfo", "a name or password before the host is not sent")
    head, colon, tail = text.rpartition(":")
    host, digits = (head, tail) if colon and not tail.endswith("]") else (text, "")
    if not digits:
        if colon and not tail:
            raise refused("port", "a port is missing after the colon")
        return host, PORTS[scheme]
    if not re.fullmatch(r"[1-9][0-9]{0,4}", digits) or int(digits) > 65_535:
        raise refused("port", f"{preview(digits)} is no port")
    port = int(digits)
    if port != PORTS[scheme] and port not in set(ports):
        raise refused("port", f"port {port} is not allowed")
    return host, port


def _host(text: str) -> tuple[str, IPv4Address | IPv6Address | None]:
    if not text:
        raise refused("host", "there is no host")
    if text.startswith("["):
        return _ipv6(text)
    name = _ascii(text)[:-1].lower() if text.endswith(".") else _ascii(text).lower()
    labels = name.split(".")
    if len(name) > 253 or not all(_LABEL.fullmatch(label) for label in labels):
        raise refused("host", f"{preview(text)} is no host name")
    # What ends in a number is an address to some programs: decimal, octal, hexadecimal, short.
    if not _NUMBER.fullmatch(labels[-1]):
        return name, None
    if not _PLAIN_IPV4.fullmatch(name):
        raise refused("host", f"{preview(text)} is no address in plain form")
    try:
        return name, IPv4Address(name)
    except ValueError:
        raise refused("host", f"{preview(text)} is no address") from None


def _ipv6(text: str) -> tuple[str, IPv6Address]:
    inside = _IPV6.fullmatch(text)
    try:
        if inside is None:
            raise ValueError(text)
        address = IPv6Address(inside[1])
    except ValueError:
        raise refused("host", f"{preview(text)} is no address in plain form") from None
    return str(address), address


def _ascii(text: str) -> str:
    if text.isascii():
        return text
    for letter in text:
        # Digits and dots of other alphabets become plain ones on the way to the resolver.
        if not letter.isascii() and any(
            each.isascii() for each in unicodedata.normalize("NFKC", letter)
        ):
            raise refused("host", f"it holds {letter!r}, which can be read as another character")
        if unicodedata.category(letter) in {"Cf", "Nd", "No", "Nl", "Zs", "Co", "Cn", "Cs"}:
            raise refused("host", f"it holds the character {letter!r}")
    try:
        return text.encode("idna").decode("ascii")
    except UnicodeError:
        raise refused("host", f"{preview(text)} is no host name") from None
