"""How much memory new processes can use: of the machine, and of the container or service that the host is in."""

from __future__ import annotations

import os
import time
from typing import NamedTuple

_INTERVAL_SECONDS = 0.25
_READ_BYTES = 1 << 14
_UNKNOWN_BYTES = 1 << 50
_PROC, _CGROUPS = "/proc", "/sys/fs/cgroup"


class _Kind(NamedTuple):
    """How a version of control groups calls what it tells. ``reclaimable`` is given back when somebody needs it."""

    folder: str
    most: str
    in_use: str
    reclaimable: tuple[str, ...]


_UNIFIED = _Kind("", "memory.max", "memory.current", ("inactive_file", "active_file", "slab_reclaimable"))
_LEGACY = _Kind(
    "/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", ("total_inactive_file", "total_active_file")
)


class AvailableMemory:
    """How many bytes new processes can use, read at most four times a second."""

    def __init__(self) -> None:
        self._read_at = float("-inf")
        self._bytes = 0

    def __call__(self) -> int:
        """Return the bytes; a large number where the platform does not say."""
        now = time.monotonic()
        if now - self._read_at > _INTERVAL_SECONDS:
            self._bytes, self._read_at = read_available_bytes(), now
        return self._bytes


def read_available_bytes(proc: str = _PROC, cgroups: str = _CGROUPS) -> int:
    """Return the least of what the machine and each limit around this process leave. ``proc``, ``cgroups``: for tests.

    The kernel answers from memory: on an event loop too there is nothing to wait for.
    """
    of_machine = _fields(_text(f"{proc}/meminfo")).get("MemAvailable:")
    left = [_UNKNOWN_BYTES if of_machine is None else of_machine * 1024]
    for line in _text(f"{proc}/self/cgroup").splitlines():
        _, controllers, path = [*line.split(":", 2), "", ""][:3]
        if not controllers or "memory" in controllers.split(","):
            kind = _LEGACY if controllers else _UNIFIED
            left += [_left(f"{cgroups}{kind.folder}{around}", kind) for around in _around(path)]
    return max(0, min(left))


def _around(path: str) -> list[str]:
    """Return a group and all that it is in: each may have a limit. In a container the last is its own."""
    parts = [part for part in path.split("/") if part not in ("", ".", "..")]
    return ["".join(f"/{part}" for part in parts[:count]) for count in range(len(parts), -1, -1)]


def _left(folder: str, kind: _Kind) -> int:
    most, in_use = _text(f"{folder}/{kind.most}").strip(), _text(f"{folder}/{kind.in_use}").strip()
    if not (most.isdecimal() and in_use.isdecimal()):
        return _UNKNOWN_BYTES  # there is no such group here, or it has no limit
    if int(most) >= _UNKNOWN_BYTES:
        return _UNKNOWN_BYTES
    told = _fields(_text(f"{folder}/memory.stat"))
    return int(most) - max(0, int(in_use) - sum(told.get(name, 0) for name in kind.reclaimable))


def _fields(text: str) -> dict[str, int]:
    rows = [line.split() for line in text.splitlines()]
    return {row[0]: int(row[1]) for row in rows if len(row) > 1 and row[1].isdecimal()}


def _text(path: str) -> str:
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return ""
    try:
        return os.pread(file, _READ_BYTES, 0).decode("utf-8", "replace")
    except OSError:
        return ""
    finally:
        os.close(file)
