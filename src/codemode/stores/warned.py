"""Warns of pauses that expire before anybody can be expected to answer."""

from __future__ import annotations

import logging

_log = logging.getLogger("codemode.stores")
_SOON_MS = 3_600_000


class ExpiryWarning:
    """Says it once for each store."""

    def __init__(self) -> None:
        self._has_warned = False

    def look(self, left_ms: int) -> None:
        """Warn when there is less than an hour left."""
        if left_ms >= _SOON_MS or self._has_warned:
            return
        self._has_warned = True
        _log.warning(
            "a pause that expires in %d minutes was put into a store: continuation={'max_age_ms': ...} of the tool's"
            " options says how long its answer may take, and the default is meant for dialogs",
            max(0, left_ms // 60_000),
        )
