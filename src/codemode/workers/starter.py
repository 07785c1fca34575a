"""A thread that lives as long as the host and starts processes. Knows nothing of what they are.

On Linux a parent-death signal follows the thread that started the process: a caller's own thread may end long
before the host does.
"""

from __future__ import annotations

import os
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, TypeVar

from ..errors import CodeModeWorkerError
from ..host.forks import forkable_lock

ResultT = TypeVar("ResultT")

_lock = forkable_lock()
_requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] | None = None


def start_in_lasting_thread(start: Callable[[], ResultT]) -> ResultT:
    """Call ``start`` in that thread and return what it returns. Raises what it raises."""
    started: Future[ResultT] = Future()
    _lasting_thread().put((start, started))
    return started.result()


def _lasting_thread() -> queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]:
    global _requests  # noqa: PLW0603 - one thread for the process
    with _lock:
        if _requests is None:
            requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
            try:
                threading.Thread(target=_serve, args=(requests,), name="codemode-starter", daemon=True).start()
            except RuntimeError as error:  # the interpreter is shutting down
                raise CodeModeWorkerError(f"cannot start a worker process: {error}") from error
            _requests = requests
        return _requests


def _serve(requests: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]]) -> None:
    while True:
        start, started = requests.get()
        try:
            started.set_result(start())
        except BaseException as error:  # noqa: BLE001 - it belongs to the caller
            started.set_exception(error)
        del start, started


def _forget() -> None:
    """In a forked child of the host, where the thread does not exist."""
    global _requests  # noqa: PLW0603 - one thread for the process
    _requests = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
