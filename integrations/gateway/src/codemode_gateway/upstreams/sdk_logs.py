"""What the SDK logs of what servers say: no stacks, and of a flood its beginning. Secrets are taken out elsewhere."""

from __future__ import annotations

import logging
import time

from codemode.trace.visible_text import visible

_LOGGERS = ("client", "mcp.client.streamable_http", "mcp.client.sse", "mcp.shared.jsonrpc_dispatcher")
_MOST, _SECONDS = 20, 10.0
_MOST_CHARACTERS = 500


class FewAndShort(logging.Filter):
    """Lets so many warnings of one logger pass in some seconds, each without its stack."""

    def __init__(self) -> None:
        super().__init__()
        self._since = 0.0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record, and tell whether it is said."""
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._since > _SECONDS:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > _MOST:
            return False
        error = None if record.exc_info is None else record.exc_info[0]
        said = record.getMessage() if error is None else f"{record.getMessage()} ({error.__name__})"
        record.msg = visible(said[:_MOST_CHARACTERS])
        record.args = record.exc_info = record.exc_text = None
        return True


def shorten_logs() -> None:
    """Let the loggers of the SDK that servers can make speak say no more than that."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, FewAndShort) for one in logger.filters):
            logger.addFilter(FewAndShort())
