"""Inputs of calls under way that nobody could find out again. Knows no calls."""

from __future__ import annotations

from collections.abc import Mapping

from ..host.threads import LARGE_CHARACTERS


class KeptInputs:
    """Validated inputs as JSON texts, by request id: those that a recovery is asked for and cannot validate again.

    Of a large input that would keep the loop; where a schema gives another value each time it would come out otherwise.
    """

    def __init__(self, texts: Mapping[int, str] | None = None) -> None:
        self._texts = dict(texts or {})

    def __len__(self) -> int:
        return len(self._texts)

    def keep(self, request_id: int, text: str | None, *, varies: bool) -> None:
        """Take what a call is about to run with, if it has to be kept."""
        if text is not None and (varies or len(text) >= LARGE_CHARACTERS):
            self._texts[request_id] = text

    def let_go(self, request_id: int) -> None:
        """Forget that of a call whose outcome is known."""
        self._texts.pop(request_id, None)

    def of(self, request_id: int) -> str | None:
        """Return what a call runs with; None when that was not kept."""
        return self._texts.get(request_id)
