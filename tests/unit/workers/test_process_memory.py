"""The memory of a process, as the system tells it of a pidfd."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from codemode.workers.process import ProcessMemoryReader

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="Linux alone tells")


def descriptors() -> set[str]:
    return {one.name for one in Path("/proc/self/fd").iterdir()}


def test_nothing_is_opened_again_behind_its_end():
    pidfd, memory = os.pidfd_open(os.getpid()), ProcessMemoryReader()
    try:
        found = memory.read(pidfd)
        assert found is not None
        assert 0 < found.resident_bytes <= found.address_space_bytes
        memory.close()
        before = descriptors()
        assert memory.read(pidfd) is None
        assert descriptors() == before
        memory.close()
    finally:
        os.close(pidfd)


def test_what_is_no_process_has_none():
    reading, writing = os.pipe()
    try:
        assert ProcessMemoryReader().read(reading) is None
    finally:
        os.close(reading)
        os.close(writing)
