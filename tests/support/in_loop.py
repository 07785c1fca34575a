"""Lets a test be written as a coroutine function."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

WAIT_SECONDS = 30.0


def in_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run the test on a loop of its own, for a bounded time."""

    def run(*args: Any, **settings: Any) -> None:
        asyncio.run(asyncio.wait_for(test(*args, **settings), WAIT_SECONDS))

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run
