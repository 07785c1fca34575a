"""Ports for servers that tests start later, and start again when they were killed."""

from __future__ import annotations

import random
import socket

# Below those that Linux gives to connections and to servers that name none: else somebody has one of them by then.
_PORTS = range(10_000, 32_000)
_chance = random.SystemRandom()
_given: set[int] = set()


def free_ports(count: int) -> list[int]:
    """Return ports of this machine that nobody has, and that nobody else of this process is given."""
    found: list[int] = []
    while len(found) < count:
        port = _chance.choice(_PORTS)
        if port not in _given and is_free(port):
            _given.add(port)
            found.append(port)
    return found


def is_free(port: int) -> bool:
    """Return whether no server has this port."""
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
