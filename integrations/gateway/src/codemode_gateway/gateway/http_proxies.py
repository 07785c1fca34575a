"""Who calls through proxies: of those that are named, what they tell of is believed. Knows no users."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TypeAlias

from starlette.types import Scope

PEER_KEY = "codemode.peer"
"""Where the other end of the connection is, of a request that came through a proxy: ``(host, port)``."""
_Address: TypeAlias = IPv4Address | IPv6Address
_HEADER = b"x-forwarded-for"
_MOST_HOPS = 32


class Proxies:
    """Addresses and networks of proxies that say for whom they call. Raises `ValueError` for what is neither."""

    def __init__(self, named: Iterable[str] = ()) -> None:
        self._networks = tuple(ip_network(one) for one in named)

    def told(self, scope: Scope) -> Scope:
        """Return a request with the caller as its client: the nearest one that is no such proxy.

        What a caller writes into the header itself stands farther away than what the first proxy adds.
        """
        peer = scope.get("client")
        caller = address = None if peer is None else read_address(peer[0])
        hops = _hops(scope)
        while self._has(address) and (address := read_address(next(hops, ""))) is not None:
            caller = address
        if caller is None or peer is None or caller == read_address(peer[0]):
            return scope
        return {**scope, "client": (str(caller), 0), PEER_KEY: peer}

    def _has(self, address: _Address | None) -> bool:
        return address is not None and any(address in network for network in self._networks)


def read_address(text: str) -> _Address | None:
    """Return an address, an IPv4 one that is written as IPv6 as what it is; None for what is none."""
    try:
        address = ip_address(text.strip().partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
    return address if mapped is None else mapped


def _hops(scope: Scope) -> Iterator[str]:
    """Give what proxies have told, the nearest first."""
    said = b",".join(value for name, value in scope["headers"] if name.lower() == _HEADER).decode("latin-1")
    return iter(said.rsplit(",", _MOST_HOPS)[: -_MOST_HOPS - 1 : -1])
