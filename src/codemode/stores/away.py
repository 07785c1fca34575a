"""Tells a log that a store cannot be used: once, however often it is tried again. Knows no database."""

from __future__ import annotations

import logging

from ..errors import CodeModeError

_log = logging.getLogger("codemode.stores")


class AwayLog:
    """What cannot be done meanwhile, said when a store goes away, for another reason, or comes back.

    A loop that asks twice a second would fill the log with one and the same reason.
    """

    def __init__(self, consequence: str) -> None:
        self._consequence = consequence
        self._reason: type[Exception] | None = None

    def failed(self, error: Exception) -> None:
        """Take that a try has failed."""
        if type(error) is self._reason:
            return
        self._reason = type(error)
        # An error of ours says all there is; where anything else came from only the traceback tells.
        told = None if isinstance(error, CodeModeError) else error
        _log.warning("%s until the store can be used: %s", self._consequence, _line(error), exc_info=told)

    def worked(self) -> None:
        """Take that a try has not failed."""
        if self._reason is not None:
            self._reason = None
            _log.warning("the store can be used again")


def _line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
