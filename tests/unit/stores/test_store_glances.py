"""Looks on the event loop for what waits: they find what lists find, wait for nobody, and else say nothing."""

from __future__ import annotations

import itertools
import sqlite3

import pytest
from codemode_gateway.approvals.pending_store import PendingStore
from codemode_gateway.gateway.principals import Principal
from stored_pauses import paused
from test_store_contract import decided, through
from test_store_listing import TENANTS, filled

from codemode.stores import ALL_TENANTS, SqliteInterruptStore, sqlite_file


@pytest.fixture(autouse=True)
def _unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no look be too slow: on a busy machine any may be."""
    monkeypatch.setattr(sqlite_file, "SLOW_WRITE_SECONDS", float("inf"))


OPEN = ("pending", "resuming", "resting")


class Tool:
    def compute_program_digest(self, code):
        return code


def test_a_look_finds_none_where_a_list_has_none_that_is_open(make, kind):
    async def scenario(store):
        await filled(store)
        said = set()
        for tenant in (*TENANTS, "nobody"):
            for app in ("app0", "app1", "another"):
                for labels in ({"agent": "x"}, {"agent": "y"}, {"more": "z"}, {"agent": "nobody"}):
                    listed = (await store.list(tenant=tenant, app=app, labels=labels, limit=500)).records
                    is_open = any(one.state in OPEN for one in listed)
                    found = store.can_rule_out_open_records(tenant=tenant, app=app, labels=labels)
                    assert found is (kind == "sqlite" and not is_open)
                    said.add(is_open)
        assert said == {True, False}

    through(make, scenario)


def test_a_look_sees_what_another_store_of_the_file_has_just_kept_and_ended(make, kind):
    async def scenario(store):
        asked = {"tenant": "acme", "app": "x", "labels": {"program": "p"}}
        async with make() as other:
            for name in "ab":
                await store.list(tenant=ALL_TENANTS)
                before = store.can_rule_out_open_records(**asked)
                record_id = await other.put(paused(name), **asked)
                during = store.can_rule_out_open_records(**asked)
                await other.withdraw(record_id, actor="ana")
                assert (before, during, store.can_rule_out_open_records(**asked)) == (
                    (True, False, True) if kind == "sqlite" else (False, False, False)
                )

    through(make, scenario)


def test_a_look_sees_what_rests(make):
    async def scenario(store):
        asked = {"tenant": "acme", "app": "x", "labels": {"program": "p"}}
        await store.put_suspended(paused("a"), owner="o", **asked)
        await store.list(tenant=ALL_TENANTS)
        assert not store.can_rule_out_open_records(**asked)

    through(make, scenario)


@pytest.mark.parametrize("has_waited", [True, False])
def test_after_a_look_that_waited_long_for_the_disk_nobody_looks_for_a_while(tmp_path, monkeypatch, has_waited):
    async def scenario(store):
        asked = {"tenant": "acme", "app": "x", "labels": {"program": "p"}}
        await store.list(tenant=ALL_TENANTS)
        waits = itertools.count() if has_waited else itertools.repeat(7)
        monkeypatch.setattr(sqlite_file, "count_thread_waits", lambda: next(waits))
        monkeypatch.setattr(sqlite_file, "SLOW_WRITE_SECONDS", -1.0)
        monkeypatch.setattr(sqlite_file, "BACKOFF_FACTOR", 1e9)
        assert store.can_rule_out_open_records(**asked)
        assert store.can_rule_out_open_records(**asked) is not has_waited

    through(lambda: SqliteInterruptStore(tmp_path / "pauses.sqlite"), scenario)


class Busy:
    """A connection to a file that somebody else is putting in order."""

    def __init__(self, code: int) -> None:
        self._code = code

    def execute(self, *_):
        error = sqlite3.OperationalError("database is locked")
        error.sqlite_errorcode = self._code
        raise error

    def close(self) -> None: ...


def test_where_a_look_would_wait_or_fails_the_list_is_asked(tmp_path):
    async def scenario(store):
        asked = {"tenant": "acme", "app": "x", "labels": {"program": "p"}}
        free = store._database._nowait_reader.idle
        for code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_BUSY_RECOVERY, sqlite3.SQLITE_IOERR):
            await store.list(tenant=ALL_TENANTS)
            assert store.can_rule_out_open_records(**asked)
            free[0].close()
            free[:] = [Busy(code)]
            assert not store.can_rule_out_open_records(**asked)
            assert not free  # it is made anew by whoever reads next

    path = tmp_path / "pauses.sqlite"
    assert not SqliteInterruptStore(path).can_rule_out_open_records(tenant="", app="", labels={"a": "b"})
    assert not path.exists()
    through(lambda: SqliteInterruptStore(path), scenario)


def test_a_program_that_waits_is_found_whether_or_not_a_look_can_tell(make):
    async def scenario(store):
        keeping = PendingStore(lambda: store, Principal("acme"), "x", Tool(), "", 200)
        assert await keeping.find_open_run("code") is None
        at = {"tenant": "acme", "app": "x", "labels": {"program": "code"}}
        record_id = await store.put(paused("a"), **at)
        for _ in range(2):
            found = await keeping.find_open_run("code")
            assert found is not None
            assert found.id == record_id
        assert await keeping.find_open_run("other") is None
        await decided(store, "a")
        assert (await keeping.find_open_run("code")).id == record_id
        await store.withdraw(record_id, actor="ana")
        assert await keeping.find_open_run("code") is None

    through(make, scenario)
