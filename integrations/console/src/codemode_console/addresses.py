"""Addresses of callers, and which of them are proxies that are trusted. Knows no users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, TypeAlias

from codemode.plugins import WrongTypeError

if TYPE_CHECKING:
    from ipaddress import IPv4Network

    from starlette.requests import HTTPConnection

Address: TypeAlias = IPv4Address | IPv6Address
_MOST_HOPS = 32
_UNIX = "unix"


class TrustedProxies:
    """Addresses and networks from which headers about somebody else are believed. Raises `ValueError` for others.

    ``unix`` is whoever is at the other end of a Unix socket, which has no address.
    """

    def __init__(self, proxies: Iterable[str] = ()) -> None:
        if isinstance(proxies, str):
            raise WrongTypeError(f"trusted_proxies must be a list of addresses or networks, got the text {proxies!r}")
        named = tuple(proxies)
        self._has_unix = _UNIX in named
        self._networks: tuple[IPv4Network | IPv6Network, ...] = tuple(ip_network(one) for one in named if one != _UNIX)

    def __bool__(self) -> bool:
        return self._has_unix or bool(self._networks)

    def __contains__(self, address: Address | None) -> bool:
        if address is None:
            return self._has_unix
        return any(address in network for network in self._networks)


def peer_of(connection: HTTPConnection) -> Address | None:
    """Return the address at the other end of the connection; None where there is none, as on a Unix socket."""
    return None if connection.client is None else read_address(connection.client.host)


def caller_of(connection: HTTPConnection, trusted: TrustedProxies) -> Address | None:
    """Return who calls: the other end, or behind trusted proxies the nearest one that they have told of."""
    address = peer_of(connection)
    for hop in _told(connection):
        if address not in trusted:
            break
        told = read_address(hop)
        if told is None:
            break
        address = told
    return address


def network_of(address: Address | None) -> str:
    """Return what counts as one address: of IPv6 a network of 64 bits, all of which one machine may have."""
    if isinstance(address, IPv6Address):
        return str(IPv6Network((address, 64), strict=False))
    return "" if address is None else str(address)


def address_text(address: Address | None) -> str | None:
    """Return an address as the audit has it."""
    return None if address is None else str(address)


def read_address(text: str) -> Address | None:
    """Return an address, an IPv4 one that is written as IPv6 as what it is; None for what is none."""
    try:
        address = ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _told(connection: HTTPConnection) -> Iterator[str]:
    """Give what proxies have told, the nearest first."""
    hops = ",".join(connection.headers.getlist("x-forwarded-for")).split(",")
    return iter(hops[: -_MOST_HOPS - 1 : -1])
