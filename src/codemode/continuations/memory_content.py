"""Images, audio and files of programs in the memory of this process, beside its journals. Knows no program."""

from __future__ import annotations

from collections.abc import Iterable

from .guard import GuardClock

_RUNNING, _RUNNING_MS = "run", 24 * 3_600_000
_JOURNAL = "journal "


class MemoryContent:
    """What `codemode.stores.journal.SqlContent` is in a database: parts stay while something holds their run."""

    def __init__(self, clock: GuardClock) -> None:
        self._clock = clock
        self._parts: dict[str, dict[str, tuple[str, bytes]]] = {}
        self._holds: dict[str, dict[str, int | None]] = {}

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Keep a part for a run. One that is there stays as it is."""
        self._holds.setdefault(run, {})[_RUNNING] = self._clock.now_ms() + _RUNNING_MS
        self._parts.setdefault(run, {}).setdefault(part_id, (description, data))

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        """Return description and data of a part of a run, or None."""
        return self._parts.get(run, {}).get(part_id)

    async def hold_content(
        self, run: str, *, nonce: str | None = None, until_ms: int | None = None, journal: str | None = None
    ) -> None:
        """Keep the content of a run for the pause with this ``nonce`` until then, or for the journal of this key."""
        self._holds.setdefault(run, {})[(nonce or "") if journal is None else _JOURNAL + journal] = until_ms

    def purge_content(self, journals: Iterable[str]) -> None:
        """Forget what these journals alone have held, and what nothing holds any more."""
        gone, now_ms = {_JOURNAL + key for key in journals}, self._clock.now_ms()
        for run, holds in list(self._holds.items()):
            if gone & holds.keys():
                holds.pop(_RUNNING, None)
            left = {
                name: until for name, until in holds.items() if name not in gone and (until is None or until > now_ms)
            }
            self._holds[run] = left
            if not left:
                del self._holds[run]
                self._parts.pop(run, None)
