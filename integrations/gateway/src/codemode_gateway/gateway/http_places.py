"""What callers hold of this process over HTTP: requests that are not over, and the bytes of their bodies.

The one rule for both. They count for a user, and for the address that they come from until it is known whose they are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from ipaddress import IPv6Address, ip_network
from typing import Any

from .http_answers import Refused
from .http_proxies import read_address
from .http_settings import HttpLimits

_BUSY = {"retry-after": "1"}
READ_AHEAD_BYTES = 1 << 18
"""What a server has read of a body by the time that somebody looks at its request."""
_MAX_CHECKS = 64
"""Of tokens that the authorization server is asked about: so few that the next one is checked within a few seconds."""
_VALUE_BYTES = 64
"""What a value is in memory, about: an empty object is two bytes on its way, and more than this here."""
_Owner = tuple[str, str]


class Places:
    """What each caller holds. Nothing is kept of those who hold nothing."""

    def __init__(self, limits: HttpLimits) -> None:
        self.limits = limits
        self.requests: Counter[_Owner] = Counter()
        self.bytes: Counter[_Owner] = Counter()
        self.checks: Counter[_Owner] = Counter()

    def of(self, scope: Mapping[str, Any]) -> Place:
        """Return the place of a request of whom nobody is known yet."""
        return Place(self, ("address", _address(scope)))


class Place:
    """What one request holds, for as long as it is `in_use`: by whoever answers it, and by the handler of its message.

    A client that leaves ends the first alone: what it has asked for in a session goes on, and counts.
    """

    def __init__(self, places: Places, owner: _Owner) -> None:
        self._places, self._owner = places, owner
        self._uses = self._size = 0

    @contextmanager
    def in_use(self) -> Generator[None]:
        """Have the place while the block runs."""
        self._uses += 1
        if self._uses == 1:
            self._count(1)
        try:
            yield
        finally:
            if self._uses == 1:
                self._count(-1)
            self._uses -= 1

    @contextmanager
    def checking(self) -> Generator[None]:
        """Have its token checked elsewhere while the block runs. Raises `Refused` where many of its address are."""
        checks, owner = self._places.checks, self._owner
        if checks[owner] >= _MAX_CHECKS:
            raise Refused(429, f"At most {_MAX_CHECKS} tokens from one address are checked at a time", _BUSY)
        checks[owner] += 1
        try:
            yield
        finally:
            checks[owner] -= 1
            if not checks[owner]:
                del checks[owner]

    def belongs_to(self, user: str) -> None:
        """Count it for a user from now on. Raises `Refused` for one who has as many requests as they may."""
        owner, most = ("user", user), self._places.limits.requests
        if self._places.requests[owner] >= most:
            raise Refused(429, f"At most {most} requests of one user are answered at a time", _BUSY)
        self._require_room(owner, self._size)
        self._count(-1)
        self._owner = owner
        self._count(1)

    def read_ahead(self, declared: int) -> None:
        """Hold what may have come of a body before anybody has asked for it. Raises `Refused`."""
        self.hold(min(declared, READ_AHEAD_BYTES))

    def hold(self, size: int, values: int = 0) -> None:
        """Hold so many bytes at least, and what becomes of so many values in them. Raises `Refused`."""
        total, most = size + values * _VALUE_BYTES, self._places.limits.held_bytes
        if total > most:
            raise Refused(413, f"A message counts at most {most} bytes, with {_VALUE_BYTES} for each value in it")
        more = total - self._size
        if more > 0:
            self._require_room(self._owner, more)
            self._places.bytes[self._owner] += more
            self._size += more

    def _require_room(self, owner: _Owner, more: int) -> None:
        most = self._places.limits.held_bytes
        if self._places.bytes[owner] + more > most:
            kind, others = ("user", "yours") if owner[0] == "user" else ("address", "its")
            words = f"At most {most} bytes of messages of one {kind} are held at a time"
            raise Refused(429, f"{words}: send this once others of {others} are answered, or less at a time", _BUSY)

    def _count(self, sign: int) -> None:
        for counter, change in ((self._places.requests, sign), (self._places.bytes, sign * self._size)):
            counter[self._owner] += change
            if not counter[self._owner]:
                del counter[self._owner]


def declared_bytes(scope: Mapping[str, Any]) -> int | None:
    """Return the length that a request says its body has, 0 where it says none; None for what is no length."""
    said = next((value for name, value in scope["headers"] if name.lower() == b"content-length"), b"0")
    return int(said) if said.isdigit() and len(said) <= 18 else None


def _address(scope: Mapping[str, Any]) -> str:
    """Return where a request comes from: of IPv6 the network, whose addresses are one caller's to choose from."""
    said = (scope.get("client") or ("",))[0]
    found = read_address(said)
    return str(ip_network((int(found), 64), strict=False)) if isinstance(found, IPv6Address) else str(found or said)
