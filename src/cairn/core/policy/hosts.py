"""Which host an address names, if that is beyond doubt.

An address that two programs could read in two ways names no host at all: the rules treat it as
something that cannot be judged.
"""

from __future__ import annotations

import re
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import urlsplit

ADDRESS_CHARS = 8_192
LABEL = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")
SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*)://([^/?#]*)(.*)", re.DOTALL)
PORT = re.compile(r"[1-9][0-9]{0,4}")
STANDARD = {"http": 80, "https": 443, "ws": 80, "wss": 443, "ftp": 21}


def host_of(address: str, ports: tuple[int, ...] = ()) -> str | None:
    """The host in lower case; None when it is not beyond doubt.

    Args:
        address: An absolute URL, or a bare host name.
        ports: Ports that may be written beside the standard one of the scheme.
    """
    if not address or len(address) > ADDRESS_CHARS or not address.isascii():
        return None
    if not address.isprintable() or " " in address or "\\" in address:
        return None
    found = SCHEME.fullmatch(address)
    if found is None:
        return name_of(address)
    scheme, authority = found[1].lower(), found[2]
    if scheme not in STANDARD or "@" in authority or "%" in authority:
        return None
    host, port = _split_port(authority)
    if port and (not PORT.fullmatch(port) or int(port) not in {STANDARD[scheme], *ports}):
        return None
    if port == "" and authority.endswith(":"):
        return None
    try:
        second = urlsplit(address)
        agreed = (second.hostname or "", second.username) == (host.strip("[]").lower(), None)
    except ValueError:
        return None
    return name_of(host) if agreed else None


def _split_port(authority: str) -> tuple[str, str]:
    if authority.startswith("["):
        host, bracket, rest = authority.partition("]")
        return host + bracket, rest.removeprefix(":") if rest.startswith(":") else rest
    host, _, port = authority.partition(":")
    return host, port


def name_of(host: str) -> str | None:
    """A host name or address in its one proper form; None for any other text."""
    host = host.lower()
    if host.startswith("[") or ":" in host:
        return _six(host)
    if not host or len(host) > 253 or not host.isascii():
        return None
    labels = host.split(".")
    if not all(LABEL.fullmatch(label) for label in labels):
        return None
    last = labels[-1]
    if last.isdecimal() or last.startswith("0x"):  # a number: an IPv4 address, in some form
        try:
            return str(IPv4Address(host))
        except ValueError:
            return None
    return host


def _six(host: str) -> str | None:
    inside = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    try:
        found = IPv6Address(inside)
    except ValueError:
        return None
    if found.ipv4_mapped or found.sixtofour or found.teredo or found.scope_id:
        return None  # another address in disguise
    if int(found) >> 32 in {0, 0x64FF9B << 64} and int(found) > 1:
        return None
    return str(found)


def is_pattern(pattern: str) -> bool:
    """Whether a text can stand in a rule: a host in its proper form, or `*.` and one."""
    host = pattern.removeprefix("*.")
    if host != pattern and ("." not in host or host.replace(".", "").isdecimal()):
        return False
    return name_of(host) == host


def fits_host(host: str, pattern: str) -> bool:
    """Whether a host is the one of the pattern; `*.example.org` means all below example.org."""
    if pattern.startswith("*."):
        return host.endswith(pattern[1:]) and len(host) > len(pattern) - 1
    return host == pattern
