"""Ends what is left of a pool that nobody has any more and nobody has closed. Knows nothing of slots."""

from __future__ import annotations

import _thread
import logging
import weakref
from contextlib import suppress
from typing import Any

from .supply import Supply


def end_when_dropped(pool: object, supply: Supply) -> weakref.finalize[[Supply], Any]:
    """Let the processes of a pool end with it. Nothing of the ``supply`` may know the pool."""
    ending = weakref.finalize(pool, _begin, supply)
    ending.atexit = False  # pools that are there at the end of the interpreter are closed then
    return ending


def _begin(supply: Supply) -> None:
    """Begin to end them, and wait for nothing: this comes in the middle of any code, in any thread.

    Not with `threading`: that takes a lock which the code in whose middle it is may have.
    """
    if supply.stock.has_processes:
        with suppress(RuntimeError):  # there is no thread: those that hear that the channel is closed end by themselves
            _thread.start_new_thread(_end, (supply,))


def _end(supply: Supply) -> None:
    try:
        supply.stock.end()
    except BaseException:
        logging.getLogger("codemode.workers").exception("what was left of a worker pool could not be ended")
