"""A gateway in this process with a client of its own: what a command sees is what any client would."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Collection, Generator
from contextlib import asynccontextmanager, contextmanager
from typing import TYPE_CHECKING, Any

from codemode.errors import CodeModeToolError

from ..gateway.gateway import Gateway
from ..gateway.options import GatewayOptions
from .setup import warn

if TYPE_CHECKING:
    from ..config.values import GatewayConfig

_LATE = "it does not answer in time: a larger connectTimeoutMs gives it more"
_MOST_TEXTS = 200


@asynccontextmanager
async def opened(config: GatewayConfig, command: str) -> AsyncGenerator[tuple[Gateway, Any]]:
    """Give a gateway that runs, and the seat of its one local user, who reaches it by ``command``."""
    async with Gateway(config, GatewayOptions(command=command)) as gateway:
        yield gateway, await gateway.seat()


@contextmanager
def told_once(known: Collection[str]) -> Generator[None]:
    """Keep back what the gateway logs, and say at the end what is not among the ``known`` reasons by then, once."""
    kept = _Kept(logging.WARNING)
    log = logging.getLogger("codemode")
    log.addHandler(kept)
    try:
        yield
    finally:
        log.removeHandler(kept)
        for text in kept.texts:
            if not any(reason in text for reason in known):
                warn(text)


class _Kept(logging.Handler):
    """Keeps the first of each text; a number of them that a person would read."""

    def __init__(self, level: int) -> None:
        super().__init__(level)
        self.texts: dict[str, None] = {}

    def emit(self, record: logging.LogRecord) -> None:
        if len(self.texts) < _MOST_TEXTS:
            self.texts[record.getMessage()] = None


async def listed(upstream: Any, *, anew: bool) -> str | None:
    """List a server's tools, no longer than it may take. Returns what is wrong, None where all is well.

    It is started for that where ``anew``, or where no list is kept from before. One that has failed is given up: what
    the command lists afterwards would start it again, and wait as long.
    """
    try:
        async with asyncio.timeout(upstream.listing_seconds):
            if anew:
                await upstream.refresh()
            await upstream.tools()
    except TimeoutError:
        return _given_up(upstream, CodeModeToolError(upstream.problem or _LATE))
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told, and the others go on
        return _given_up(upstream, error)
    return None


def _given_up(upstream: Any, error: Exception) -> str:
    upstream.give_up(error)
    return upstream.problem or str(error) or type(error).__name__
