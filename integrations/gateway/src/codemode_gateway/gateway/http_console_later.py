"""For how long an approval in the console may hold, and where that is kept: in the gateway's remembered answers."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..approvals.later_calls import SCOPES, LaterCalls
from ..approvals.remembered import Remembered

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore
    from codemode.stores.records import Record, StoredRequest


class LaterAnswers:
    """What the console asks about approvals that hold for later calls: its option ``later``."""

    def __init__(self, folder: Path, store: InterruptStore) -> None:
        self._remembered, self._store = Remembered(folder), store

    def choices(self, record: Record, request: StoredRequest) -> dict[str, str]:
        """Return for how long an approval of a call may hold beside that call, in words; nothing where it may not."""
        found: dict[str, str] = {}
        for scope in SCOPES:
            with suppress(ValueError):
                found[scope] = LaterCalls.of(record, [request], scope).words
        return found

    async def keep(
        self, record: Record, request: StoredRequest, choice: Any, *, actor: str, address: str | None
    ) -> None:
        """Let one of these choices hold. Raises what `LaterCalls.of` and `LaterCalls.keep` do."""
        later = LaterCalls.of(record, [request], choice)
        await later.keep(self._remembered, self._store, record, actor=actor, address=address)
