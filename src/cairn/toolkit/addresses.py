"""Which internet addresses lie in the open internet, whatever they are wrapped in."""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Address = IPv4Address | IPv6Address
Network = IPv4Network | IPv6Network

# What the registries keep for other uses. Python's own list differs from version to version.
_CLOSED_4 = tuple(
    IPv4Network(each)
    for each in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",
        "127.0.0.0/8",
        "168.63.129.16/32",  # a cloud's own service, seen from its machines
        "169.254.0.0/16",
        "172.16.0.0/12",
        "192.0.0.0/24",
        "192.0.2.0/24",
        "192.88.99.0/24",
        "192.168.0.0/16",
        "198.18.0.0/15",
        "198.51.100.0/24",
        "203.0.113.0/24",
        "224.0.0.0/4",
        "240.0.0.0/4",
    )
)
_OPEN_6 = IPv6Network("2000::/3")
_CLOSED_6 = tuple(
    IPv6Network(each) for each in ("2001::/23", "2001:db8::/32", "3fff::/20", "2620:4f:8000::/48")
)
_METADATA = frozenset(
    map(
        ip_address,
        (
            "100.100.100.200",
            "168.63.129.16",
            "169.254.169.254",
            "169.254.170.2",
            "169.254.170.23",
            "192.0.0.192",
            "fd00:ec2::23",
            "fd00:ec2::254",
            "fd20:ce::254",
        ),
    )
)
_NAT64 = IPv6Network("64:ff9b::/96")
_TEREDO = IPv6Network("2001::/32")
_SIX_TO_FOUR = IPv6Network("2002::/16")
_ISATAP = (0x0000_5EFE, 0x0200_5EFE)


def is_public(address: Address) -> bool:
    """Whether the address, and every address it wraps, lies in the open internet."""
    if isinstance(address, IPv4Address):
        return not any(address in network for network in _CLOSED_4)
    wrapped = list(_wrapped(address))
    if not all(is_public(each) for each in wrapped):
        return False
    if address in _NAT64 or address.ipv4_mapped is not None:
        return bool(wrapped)
    if address not in _OPEN_6 or address.scope_id is not None:
        return False
    return not any(address in network for network in _CLOSED_6)


def tells_secrets(address: Address) -> bool:
    """Whether a cloud gives its machines their credentials there, also where it is wrapped."""
    if address in _METADATA:
        return True
    return isinstance(address, IPv6Address) and any(map(tells_secrets, _wrapped(address)))


def _wrapped(address: IPv6Address) -> Iterator[IPv4Address]:
    number = int(address)
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    if address in _NAT64:
        yield IPv4Address(number & 0xFFFF_FFFF)
    if address in _SIX_TO_FOUR:
        yield IPv4Address(number >> 80 & 0xFFFF_FFFF)
    if address in _TEREDO:
        yield IPv4Address(number & 0xFFFF_FFFF ^ 0xFFFF_FFFF)
    if number >> 32 & 0xFFFF_FFFF in _ISATAP:
        yield IPv4Address(number & 0xFFFF_FFFF)


def read(text: str) -> Address:
    """An address as a resolver gives it.

    Raises:
        ValueError: it is none.
    """
    return ip_address(text)


def networks(texts: tuple[str, ...]) -> tuple[Network, ...]:
    """Networks, or single addresses, as operators write them.

    Raises:
        ValueError: one of them is neither.
    """
    return tuple(ip_network(each) for each in texts)
