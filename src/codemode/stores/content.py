"""Images, audio and files of programs, in a store's database beside records and journals. Knows no program and no part.

The parts of a run stay while something holds them: the pause that can be gone on from, the record that has it, the
journal; and for a day whoever has put one. What nothing holds any more is deleted with what held it last.
"""

from __future__ import annotations

from collections.abc import Iterable

from ..host.cancellation import to_its_end
from ..host.own_thread import in_own_thread
from .keeping import require_text
from .rows import marks
from .session import Database, Row, Session

MOST_PURGED = 100
"""How many holds one transaction lets go."""
_RUNNING, _RUNNING_MS = "run", 24 * 3_600_000
_JOURNAL = "journal "
_RUN = "tenant = ? AND app = ? AND run = ?"
_PUT = "INSERT INTO codemode_content VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (tenant, app, run, id) DO NOTHING"
_GET = f"SELECT description, data FROM codemode_content WHERE {_RUN} AND id = ?"
_HOLD = (
    "INSERT INTO codemode_content_holds VALUES (?, ?, ?, ?, CAST(? AS BIGINT))"
    " ON CONFLICT (tenant, app, run, holder) DO UPDATE SET until_ms = excluded.until_ms"
)
_FORGET = (
    f"DELETE FROM codemode_content WHERE {_RUN} AND NOT EXISTS (SELECT 1 FROM codemode_content_holds h"
    " WHERE h.tenant = codemode_content.tenant AND h.app = codemode_content.app AND h.run = codemode_content.run)"
)


class SqlContent:
    """The content of the runs of one tenant and app. Its methods raise `StoreUnavailable`."""

    def __init__(self, database: Database, tenant: str, app: str) -> None:
        self._scope = (require_text(tenant, "tenant"), require_text(app, "app"))
        self._database = database

    async def put_content(self, run: str, part_id: str, description: str, data: bytes) -> None:
        """Keep a part for a run. One that is there stays as it is."""

        def work() -> None:
            with self._database.journaling() as session:
                session.run(_HOLD, *self._scope, run, _RUNNING, session.now_ms + _RUNNING_MS)
                session.run(_PUT, *self._scope, run, part_id, description, data)

        # Whoever is cancelled meanwhile has kept it nevertheless.
        await to_its_end(in_own_thread(work, "codemode-content"))

    async def get_content(self, run: str, part_id: str) -> tuple[str, bytes] | None:
        """Return description and data of a part of a run, or None."""

        def work() -> Row | None:
            with self._database.transaction(writes=False) as session:
                return session.one(_GET, *self._scope, run, part_id)

        found = await in_own_thread(work, "codemode-content")
        return None if found is None else (found[0], bytes(found[1]))

    async def hold_content(
        self, run: str, *, nonce: str | None = None, until_ms: int | None = None, journal: str | None = None
    ) -> None:
        """Keep the content of a run for the pause with this ``nonce``, or for the journal of this key.

        For the pause until then, or until its record is purged, if there is one.
        """
        holder = nonce if journal is None else _JOURNAL + journal

        def work() -> None:
            with self._database.journaling() as session:
                session.run(_HOLD, *self._scope, run, holder, until_ms)

        await to_its_end(in_own_thread(work, "codemode-content"))


def purge(session: Session) -> int:
    """Let go of at most `MOST_PURGED` holds that are over and whose pause no record has; return how many."""
    over = session.rows(
        "SELECT h.tenant, h.app, h.run, h.holder FROM codemode_content_holds h WHERE h.until_ms <= ? AND NOT EXISTS"
        " (SELECT 1 FROM codemode_versions v WHERE v.nonce = h.holder) ORDER BY h.until_ms LIMIT ?",
        *(session.now_ms, MOST_PURGED),
    )
    _let_go(session, over)
    return len(over)


def purge_of_records(session: Session, record_ids: Iterable[Row]) -> None:
    """Let go of what these records hold, whose versions are still there: no program of them runs any more."""
    ids = [row[0] for row in record_ids]
    held = session.rows(
        "SELECT h.tenant, h.app, h.run, h.holder FROM codemode_versions v JOIN codemode_content_holds h"
        f" ON h.holder = v.nonce WHERE v.record_id IN ({marks(ids)})",
        *ids,
    )
    _let_go(session, [*held, *_running(held)])


def purge_of_journals(session: Session, journals: Iterable[Row]) -> None:
    """Let go of what the journals of these tenants, apps and keys hold: nobody has them."""
    holders = {(tenant, app, _JOURNAL + key) for tenant, app, key in journals}
    if not holders:
        return
    found = session.rows(
        f"SELECT tenant, app, run, holder FROM codemode_content_holds WHERE holder IN ({marks(holders)})",
        *(holder for _, _, holder in holders),
    )
    held = [row for row in found if (*row[:2], row[3]) in holders]
    _let_go(session, [*held, *_running(held)])


def _running(held: Iterable[Row]) -> list[Row]:
    return [(*row[:3], _RUNNING) for row in held]


def _let_go(session: Session, held: list[Row]) -> None:
    session.each(f"DELETE FROM codemode_content_holds WHERE {_RUN} AND holder = ?", held)
    session.each(_FORGET, dict.fromkeys(row[:3] for row in held))
