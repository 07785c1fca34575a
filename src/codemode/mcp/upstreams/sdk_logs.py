"""What the SDK logs of what servers say: no stacks, and of a flood its beginning. Secrets are taken out elsewhere."""

from __future__ import annotations

import logging
import time

_LOGGERS = ("client", "mcp.client.streamable_http", "mcp.client.sse", "mcp.shared.jsonrpc_dispatcher")
_MOST, _SECONDS = 20, 10.0


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
        if record.exc_info is not None or record.exc_text is not None:
            error = record.exc_info[0] if record.exc_info is not None else None
            record.msg = record.getMessage() + (f" ({error.__name__})" if error is not None else "")
            record.args = record.exc_info = record.exc_text = None
        return True


def shorten_logs() -> None:
    """Let the loggers of the SDK that servers can make speak say no more than that."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, FewAndShort) for one in logger.filters):
            logger.addFilter(FewAndShort())
