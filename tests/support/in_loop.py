"""Lets a test be written as a coroutine function."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import wraps
from typing import Any

from waiting import within


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on a loop of its own, for a bounded time."""

    @wraps(test)
    def run(*args: Any, **settings: Any) -> None:
        within(test(*args, **settings))

    return run
