"""How much memory a process has, asked of the system by its pidfd. Linux alone tells."""

from __future__ import annotations

import os
from typing import NamedTuple

from ..host.forks import forkable_lock

_READ_BYTES = 4096
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096


class MemoryInUse(NamedTuple):
    """Bytes of a process. ``addresses`` counts too what it was given and has not touched, as its limit does."""

    resident: int
    addresses: int


class ProcessMemory:
    """Holds open where the system tells of one process; of another one nothing is ever read there.

    Whoever asks and whoever closes it may be in different threads: nothing is opened again behind its end.
    """

    def __init__(self) -> None:
        self._file = -1
        self._is_closed = False
        self._lock = forkable_lock()

    def in_use(self, pidfd: int) -> MemoryInUse | None:
        """Return what the process behind ``pidfd`` has, shared pages too; None where that is not told."""
        try:
            with self._lock:
                if self._is_closed:
                    return None
                if self._file < 0:
                    self._file = _opened(pidfd)
                addresses, resident = os.pread(self._file, _READ_BYTES, 0).split()[:2]
            return MemoryInUse(int(resident) * _PAGE_BYTES, int(addresses) * _PAGE_BYTES)
        except (OSError, ValueError):
            return None

    def close(self) -> None:
        """Give up the descriptor, for ever."""
        with self._lock:
            self._is_closed = True
            file, self._file = self._file, -1
        if file >= 0:
            os.close(file)


def _opened(pidfd: int) -> int:
    pid = _pid_of(pidfd)
    file = os.open(f"/proc/{pid}/statm", os.O_RDONLY | os.O_CLOEXEC)
    if _pid_of(pidfd) != pid:  # it has ended, and its number may have meant another process
        os.close(file)
        raise ProcessLookupError
    return file


def _pid_of(pidfd: int) -> int:
    """Return its number while it is not reaped. Raises `OSError` or `ValueError` for what is no process any more."""
    info = os.open(f"/proc/self/fdinfo/{pidfd}", os.O_RDONLY | os.O_CLOEXEC)
    try:
        text = os.read(info, _READ_BYTES).decode("ascii")
    finally:
        os.close(info)
    told = text.partition("\nPid:")[2].split(maxsplit=1)
    pid = int(told[0]) if told else 0
    if pid <= 0:
        raise ProcessLookupError
    return pid
