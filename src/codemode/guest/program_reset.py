"""Resets a reused worker between two programs. Loaded by path in such workers only.

Every program has an engine of its own. The host announces each program; frames that arrive before that were meant for
the previous one and are dropped unread.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# Kind, number of the program. The host's side is `messages.AnnounceNextProgram`.
_BEGIN_STRUCT = struct.Struct(">cI")
_BEGIN_KIND = b"N"


class ProgramReset:
    """Where ``worker`` is: in a program, or before one. ``makes_engines``: no zygote has made them."""

    def __init__(self, worker: Any, *, makes_engines: bool) -> None:
        self._worker = worker
        self._makes_engines = makes_engines
        self._finished_programs = 0
        self.is_waiting = True  # until the host begins a program

    def begin_program_if_announced(self, body: bytes | memoryview) -> None:
        """Look whether a frame begins the next program. Any other one is left over."""
        if len(body) == _BEGIN_STRUCT.size:
            kind, number = _BEGIN_STRUCT.unpack(body)
            if kind == _BEGIN_KIND and number == self._finished_programs:
                self.is_waiting = False

    def prepare_next_program_and_make_frame(self) -> bytes | None:
        """Take another engine and return the frame that reports it; None if none is left: the worker exits.

        It has no warm-up: the host, to which the last result is on its way, may wait for this very processor.
        """
        worker = self._worker
        used_engine = (worker.engine, worker.turn_runner)
        engine = worker.engine_pool.take_or_make_next_engine(used_engine, makes_more=self._makes_engines)
        if engine is None:
            return None
        worker.use_engine(engine)
        self._finished_programs += 1
        self.is_waiting = True
        return b"%c%d" % (_BEGIN_KIND, self._finished_programs)
