"""What a zygote does to its heap, so that what its workers take lies together."""

from __future__ import annotations

import platform
import subprocess
import sys

import pytest

from codemode.guest import zygote_main

pytestmark = pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="other heaps have no holes of this kind")

PROGRAM = """
import ctypes, sys
from importlib.machinery import SourceFileLoader
from types import ModuleType
zygote = ModuleType("zygote_main")
SourceFileLoader("zygote_main", sys.argv[1]).exec_module(zygote)
library = ctypes.CDLL(None)
malloc, free = library.malloc, library.free
malloc.restype, free.argtypes = ctypes.c_size_t, (ctypes.c_size_t,)
blocks = [malloc(size) for _ in range(200) for size in (40, 300, 1500, 5000)]
for at, block in enumerate(blocks):
    if at % 3:
        free(block)
if "fill" in sys.argv:
    zygote._fill_heap_holes()
taken = [malloc(size) for _ in range(50) for size in (40, 300, 1500)]
print(max(taken) - min(taken))
"""


def spread(*arguments: str) -> int:
    command = [sys.executable, "-I", "-S", "-c", PROGRAM, zygote_main.__file__, *arguments]
    return int(subprocess.run(command, capture_output=True, check=True, text=True, timeout=60).stdout)


def test_what_is_taken_after_the_holes_are_filled_lies_together():
    size = 50 * (48 + 312 + 1512)
    assert spread("fill") < 2 * size
    assert spread() > 2 * size
