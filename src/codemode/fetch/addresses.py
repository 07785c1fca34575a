"""Addresses that a fetch may connect to: name resolution and the check of what it gives. Knows no URLs and no HTTP."""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeAlias

Resolver: TypeAlias = Callable[[str, int], Awaitable[Sequence[str]]]
"""Host name and port to IP addresses."""

LOOPBACK_ADDRESSES = ("127.0.0.1", "::1")

# Own tables: what `is_global` says differs between Python's patch releases.
_REFUSED_IPV4 = tuple(
    ipaddress.IPv4Network(text)
    for text in (
        "0.0.0.0/8",
        "10.0.0.0/8",
        "100.64.0.0/10",  # shared address space; 100.100.100.200 is a metadata service
        "127.0.0.0/8",
        "168.63.129.16/32",  # a platform's host agent, reachable only from inside
        "169.254.0.0/16",  # link-local; 169.254.169.254 is the metadata service
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
_GLOBAL_IPV6 = ipaddress.IPv6Network("2000::/3")
_REFUSED_IPV6 = tuple(
    ipaddress.IPv6Network(text)
    for text in (
        "2001::/23",  # protocol assignments: Teredo, benchmarking, ORCHID
        "2001:db8::/32",
        "2002::/16",  # 6to4 carries any IPv4 address
        "3fff::/20",
    )
)
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


def is_public(address: str) -> bool:
    """True for an address of the public internet. Everything private, local, special or unreadable is not."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return False
    if isinstance(parsed, ipaddress.IPv4Address):
        return not any(parsed in network for network in _REFUSED_IPV4)
    if parsed.scope_id is not None:
        return False
    if parsed in _NAT64:
        # All that an IPv6-only network has to reach IPv4 with; what counts is the address inside.
        return is_public(str(ipaddress.IPv4Address(int(parsed) & 0xFFFFFFFF)))
    return parsed in _GLOBAL_IPV6 and not any(parsed in network for network in _REFUSED_IPV6)


async def resolve(host: str, port: int) -> tuple[str, ...]:
    """Return the addresses of a host name in the system's order. Raises `OSError`."""
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
