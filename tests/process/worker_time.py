"""Loaded by path in a worker: its time is what it computes, and 350 seconds for each answer that took long.

How busy the machine is makes no difference to it then, and nobody has to wait for what takes long. Its clock runs at
half the engine's speed, as an adjusted clock may: so the engine is always the first to stop an endless program.
"""

from __future__ import annotations

import sys
import time

_LONG_SECONDS = 350
_LONG = ("took long", "APPROVAL_DENIED")  # what such an answer says


def main(_channel: int) -> None:
    """Serve as a worker does, by this time."""
    # The caller is the zygote object's own method, in the worker.
    worker = sys._getframe(1).f_locals["self"]._worker
    answer, passed = worker._answer_frame, 0

    def answer_late(body: bytes | memoryview) -> tuple[bytes, bool]:
        nonlocal passed
        if body[0] == ord("D") and any(words in str(body, "utf-8") for words in _LONG):
            passed += _LONG_SECONDS
        return answer(body)

    worker._answer_frame = answer_late
    worker.turn_runner._clock = lambda: time.process_time() / 2 + passed
    worker.serve()
