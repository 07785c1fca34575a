"""A SQLite file that is removed or replaced while it is open, or whose claims cannot be kept: everybody is told."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest
from stored_pauses import HOUR_MS, OK, paused
from waiting import within

from codemode.continuations.guard import Claim
from codemode.host.clock import now_ms
from codemode.stores import SqliteInterruptStore, StoreUnavailableError

TOLD = "removed or replaced while it was open"


def claim(key):
    return Claim(key, "yes", now_ms() + HOUR_MS)


@pytest.fixture(params=["removed", "replaced"])
def take_away(request, tmp_path):
    """Takes a file away; another one may stand in its place."""

    def take(path):
        path.rename(tmp_path / "kept")
        if request.param == "replaced":
            path.touch()

    return take


def test_a_store_whose_file_is_another_one_keeps_nothing_that_nobody_else_would_see(tmp_path, take_away):
    path = tmp_path / "pauses.sqlite"

    async def scenario():
        async with SqliteInterruptStore(path) as store:
            record_id = await store.put(paused("a"), tenant="acme")
            await store.list(tenant="acme")
            journal = store.journal(tenant="acme", app="x")
            opened = await journal.open("program", "head")
            assert await journal.write(opened, ["a line"])
            assert await store.guard.claim(claim("before")) is None
            take_away(path)
            for refused in (
                lambda: store.put(paused("b"), tenant="acme"),
                lambda: store.decide({"a": OK}, actor="ana", tenant="acme"),
                lambda: store.list(tenant="acme"),
                lambda: store.claim(owner="host", tenant="acme"),
                lambda: journal.write(opened, ["another"]),
                lambda: journal.end(opened, "outcome", is_final=True),
                lambda: journal.open("other program", "head"),
                lambda: store.guard.claim(claim("other")),
                lambda: store.guard.renew("before"),
                lambda: store.guard.record("before", "outcome"),
            ):
                with pytest.raises(StoreUnavailableError, match=TOLD):
                    await refused()
            with pytest.raises(StoreUnavailableError, match=TOLD):
                journal.write_nowait(opened, ["another"])
            assert not store.can_rule_out_open_records(tenant="acme", app="x", labels={"program": "p"})
            (tmp_path / "kept").rename(path)
            assert await journal.write(opened, ["another"])
            assert (await store.record(record_id, tenant="acme")).state == "pending"

    within(scenario())


def test_claims_that_a_stores_file_does_not_take_fail_as_everything_of_the_store_does(tmp_path):
    path = tmp_path / "pauses.sqlite"

    async def scenario():
        async with SqliteInterruptStore(path) as store:
            assert await store.guard.claim(claim("a")) is None
            with closing(sqlite3.connect(path)) as database:  # stands for a disk that is full or read-only
                database.execute(
                    "CREATE TRIGGER full BEFORE INSERT ON resumes BEGIN SELECT RAISE(ABORT, 'disk is full'); END"
                )
            with pytest.raises(StoreUnavailableError, match="cannot be used: disk is full"):
                await store.guard.claim(claim("b"))

    within(scenario())
