"""What operations cost a database: as many statements however much there is, each by an index, with many records."""

from __future__ import annotations

import contextlib
import itertools
import json
import sqlite3
from datetime import timedelta

import pytest
from stored_pauses import HOUR_MS, OK, Catalog, paused
from suite import full_only, rounds
from waiting import within

from codemode.stores import ALL_TENANTS, SqliteInterruptStore, verify_audit
from codemode.stores.tables import compute_label_key
from codemode.stores.transaction import Session

MANY = rounds(20_000, 100_000)
MOST_STEPS = 3 * MANY // 2  # of SQLite's machine, for one statement: to look at all rows takes ten for each
ROWS = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {many})"
FILLED = (
    (
        "INSERT INTO codemode_records (id, position, version, state, outer_tool, tenant, app, labels, created_at_ms,"
        " expires_at_ms, ended_at_ms, interrupt, outcome, claim, ready_at_ms)"
        " SELECT 'r' || i, i, 1, {state}, 'codeMode', 'tenant' || (i % 40), 'app' || (i % 3), '{{}}', {now}, {now} +"
        " 86400000 + i, CASE WHEN i % 10 < 6 THEN {now} + 86400000 + i END, '{interrupt}', '{{\"value\":1}}', 0,"
        " CASE WHEN {state} = 'resuming' THEN {now} + 600000 + i WHEN i % 10 = 7 THEN {now} - i END FROM n"
    ),
    (
        "INSERT INTO codemode_requests SELECT 'q' || i, 'r' || i, 0, 'approval', 'tool' || (i % 7), '{{}}', '{{}}',"
        " NULL, '\"\"', NULL, CASE WHEN i % 10 = 6 THEN 'waiting' WHEN i % 10 = 7 THEN 'decided' ELSE 'applied' END,"
        " NULL, NULL, NULL, NULL, 0, NULL, 'tenant' || (i % 40), 'app' || (i % 3), i, NULL, NULL, {now} + 86400000 + i,"
        " CASE WHEN {state} IN ('pending', 'resuming') THEN 1 ELSE 0 END FROM n WHERE i % 10 <> 9"
    ),
    (
        "INSERT INTO codemode_labels SELECT 'r' || i, '{label}', 'tenant' || (i % 40), 'app' || (i % 3), i, {state},"
        " {now} + 86400000 + i FROM n"
    ),
    "INSERT INTO codemode_versions SELECT 'n' || i, 'r' || i, 1, {now}, '[]' FROM n",
    "INSERT INTO codemode_changes SELECT i, 'r' || i, 'tenant' || (i % 40), 'put' FROM n",
    "INSERT INTO codemode_audit SELECT i, 'tenant' || (i % 40), 'r' || i, 'x', 'x', '{{}}' FROM n",
    (
        "INSERT INTO codemode_journals SELECT 'j' || i, 'tenant' || (i % 40), 'app', 'k' || i, '\"\"', i,"
        " CASE WHEN i % 9 = 0 THEN {now} END, NULL, 0, 0, {now} + 86400000, 0 FROM n"
    ),
    "INSERT INTO codemode_journal_lines SELECT 'j' || i, i, 1, '[]' FROM n",
    "INSERT INTO codemode_outboxes SELECT 'target' || i, {many} - i FROM n",
    (
        "INSERT INTO codemode_notices SELECT 'r' || i, 1, 'target' || (i % 5), 'tenant' || (i % 40), 'waiting', 0, 0,"
        " CASE WHEN i % 9 = 0 THEN {now} + 86400000 + i END, NULL, {now} FROM n"
    ),
    (
        "INSERT INTO codemode_content_holds SELECT 'tenant' || (i % 40), 'app', 'run' || i, CASE WHEN i % 2 = 0"
        " THEN 'n' || i ELSE 'journal k' || i END, CASE WHEN i % 2 = 0 THEN {now} + 86400000 + i END FROM n"
    ),
    "UPDATE codemode_store SET sequence = {many}, audit_sequence = {many}",
)
STATE = (
    "CASE WHEN i % 10 < 6 THEN 'completed' WHEN i % 10 < 8 THEN 'pending' WHEN i % 10 = 8 THEN 'resuming'"
    " ELSE 'resting' END"
)


class Asked:
    """The statements that a store sends, with the first values of each."""

    def __init__(self, monkeypatch, database=None):
        self.statements = []
        execute, each = Session._execute, Session.execute_many

        def executed(session, statement, values):
            self.statements.append((statement, values))
            return execute(session, statement, values)

        def done_for_each(session, statement, values):
            every = list(values)
            self.statements.append((statement, every[0] if every else None))
            return each(session, statement, every)

        monkeypatch.setattr(Session, "_execute", executed)
        monkeypatch.setattr(Session, "execute_many", done_for_each)
        for name in ("run_statement_nowait", "run_statement"):
            monkeypatch.setattr(type(database), name, self._alone(getattr(type(database), name)))

    def _alone(self, run):
        def ran(database, statement, values):
            done = run(database, statement, values)
            if done is not None:
                self.statements.append((statement, values))
            return done

        return ran

    async def count(self, work):
        before = len(self.statements)
        await work
        return len(self.statements) - before


async def operations(store, size, counted=None):
    """Do everything that a store does, with so many requests in each pause; return what it counted."""
    counts = {}

    async def does(name, work):
        before = 0 if counted is None else len(counted.statements)
        done = await work
        counts[name] = 0 if counted is None else len(counted.statements) - before
        return done

    names = [f"{size}-{number}" for number in range(size)]
    at = {"tenant": "tenant1", "app": "app1"}
    one = await does("put", store.put(paused(*names), tool=Catalog({}), **at))
    await does("put again", store.put(paused(*names), **at))
    for tenant in ("tenant1", ALL_TENANTS):
        for app in (None, "app1"):
            for tool in (None, "tool1"):
                for state in (None, "pending", "resting", "completed"):
                    for after in (None, "90000"):
                        asked = {"tenant": tenant, "app": app, "tool": tool, "state": state, "after": after}
                        await does(f"list {asked}", store.list(**asked, limit=20))
        await does(f"get {tenant}", store.get(names[0], tenant=tenant))
        await does(f"record {tenant}", store.record(one, tenant=tenant))
        await does(f"changes {tenant}", _first(store.changes(tenant=tenant)))
        for which in ({}, {"after": 1}, {"newest_first": True, "after": 9}, {"record_id": one}):
            await does(f"audit {tenant} {[*which]}", _first(store.audit(tenant=tenant, **which)))
    await does("decide", store.decide(dict.fromkeys(names, OK), actor="a", tenant="tenant1"))
    claims = [({"tenant": tenant, **app}) for tenant in ("tenant1", ALL_TENANTS) for app in ({}, {"app": "app1"})]
    leases = [await _claim(does, store, number, claim) for number, claim in enumerate(claims)]
    lease = next(found for found in leases if found is not None)
    await does("last resumed", store.last_resumed(tenant="tenant1", app="app1"))
    await does("renew", store.renew(lease))
    await does("release", store.release(lease, refusals=dict.fromkeys(lease.resolutions, "no")))
    await store.decide(dict.fromkeys(names, OK), actor="a", tenant="tenant1")
    await does("settle", store.settle(await _claim_of(store, one), paused(*names)))
    await does("withdraw", store.withdraw(one, actor="ana"))
    await _rests(does, store, names)
    await does("outcome", _outcome(store, one))
    await does("note", store.add_audit_line("signed-in", actor="ana", tenant="t"))
    await does("head", store.audit_head())
    await _journals(does, store, size)
    await _notices(does, store, names)
    return counts


async def _notices(does, store, names):
    outbox = store.outbox("target1")
    while await outbox.fill():
        pass
    ids = [await store.put(paused(f"n{one}")) for one in names[:20]]
    await does("fill", outbox.fill())
    await does("fill nothing", outbox.fill())
    await does("claim notices", _taken(outbox, ids, len(ids)))
    for one in ids:
        await store.withdraw(one, actor="ana")
    await outbox.fill()
    (ids,) = [[await store.put(paused(f"m{one}"))] for one in names[:1]]
    await outbox.fill()
    (notice,) = await _taken(outbox, ids, 100)
    await does("retry", outbox.record_delivery(notice, error="no", retry_ms=0))
    (notice,) = await _taken(outbox, ids, 100)
    await does("fail", outbox.record_delivery(notice, error="no"))
    await does("failed notices", store.failed_notices([*ids, "x"], tenant="tenant1"))
    await store.withdraw(ids[0], actor="ana")


async def _taken(outbox, ids, limit):
    while taken := await outbox.claim(limit=limit):
        if found := [one for one in taken if one.record.id in ids]:
            return found
    raise AssertionError("nobody is told")


async def lists(store, counted=None):
    """List in every way that takes another question; return what each cost."""
    costs = []

    async def does(work):
        before = 0 if counted is None else len(counted.statements)
        await work
        costs.append(0 if counted is None else len(counted.statements) - before)

    cursors = {"newest": "90000", "expiring": "90000-90000"}
    tenants = ("tenant1", frozenset({"tenant1", "tenant2", "tenant3"}), ALL_TENANTS)
    labelled = (None, {"agent": "refunds"}, {"agent": "refunds", "x": "y"}, {"x": "y"})
    for tenant, order, labels in itertools.product(tenants, cursors, labelled):
        states = (None, "waiting", "pending", "lost") if order == "newest" else ("waiting",)
        for tool, state in itertools.product((None, "tool1"), states):
            for more in ({}, {"app": "app1", "after": cursors[order]}):
                asked = {"tenant": tenant, "order": order, "labels": labels, "tool": tool, "state": state, **more}
                await does(store.list(**asked, limit=20))
    for tenant in tenants:
        await does(store.records([f"r{number}" for number in range(200)], tenant=tenant))
        for app in (None, "app1"):
            await does(store.count_waiting_requests(tenant=tenant, app=app))
    return costs


async def _journals(does, store, size):
    journal = store.journal(tenant="tenant1", app="app")
    opened = await does("open", journal.open(f"new{size}", "h"))
    await does("write", journal.write(opened, ["l"] * size))
    await does("renew the journal", journal.renew(opened))
    await does("pause", journal.end(opened, "i", is_final=False))
    again = await does("open again", journal.open(f"new{size}", "h", again=True))
    await does("give up", journal.release(again))
    last = await does("open it", journal.open(f"new{size}", "h"))
    await does("end", journal.end(last, "v", is_final=True))


async def _rests(does, store, names):
    lease = await does("rest", store.put_suspended(paused(*names), owner="o", tenant="tenant1", app="app1"))
    lease = await does("rest again", store.put_suspended(paused(*names), lease=lease))
    await does("renew a rest", store.renew(lease))
    await does("release a rest", store.release(lease, not_resumable="no"))
    asked = {"owner": "p", "tenant": "tenant1", "record_id": lease.record.id}
    await does("claim it too early", store.claim(**asked))
    await store.withdraw(lease.record.id, actor="ana")
    lease = await does("rest more", store.put_suspended(paused(), owner="o"))
    await store.release(lease)
    lease = await does("claim by its id", store.claim(owner="p", tenant=ALL_TENANTS, record_id=lease.record.id))
    await does("lose", store.mark_lost(lease))
    await does("run again", store.run_again(lease.record.id, actor="ana"))
    await store.withdraw(lease.record.id, actor="ana")


async def _claim(does, store, number, asked):
    return await does(f"claim {number}", store.claim(owner="o", **asked))


async def _claim_of(store, record_id):
    while lease := await store.claim(owner="o", tenant="tenant1", app="app1"):
        if lease.record.id == record_id:
            return lease
    raise AssertionError("nobody claimed it")


async def _first(found):
    async for one in found:
        await found.aclose()
        return one
    return None


async def _outcome(store, record_id):
    with contextlib.suppress(Exception):
        await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=0)


async def ends(store, clock, size, counted=None):
    """What is done for many records at once."""
    costs = []
    for number in range(size):
        await store.put(paused(f"e{size}-{number}", age_ms=HOUR_MS + clock.moved_ms))
    for deny_ms, moved_ms in ((2 * HOUR_MS, 0), (None, 2 * HOUR_MS)):
        clock.moved_ms += moved_ms
        before = 0 if counted is None else len(counted.statements)
        await store.sweep(deny_before_expiry_ms=deny_ms)
        costs.append(0 if counted is None else len(counted.statements) - before)
    clock.moved_ms += HOUR_MS
    before = 0 if counted is None else len(counted.statements)
    await store.purge(timedelta(minutes=30))
    costs.append(0 if counted is None else len(counted.statements) - before)
    return costs


@pytest.mark.full
def test_an_operation_asks_as_often_however_much_there_is(make, monkeypatch, clock):
    async def scenario():
        async with make() as store:
            counted = Asked(monkeypatch, store._database)
            first, more = [await operations(store, size, counted) for size in (1, 30)]
            assert first == more
            assert max(first.values()) < 25
            assert (first["write"], first["open"]) == (1, 1)
            listed = await lists(store, counted)
            at = {"tenant": "tenant1", "app": "app1", "labels": {"agent": "refunds", "x": "y"}}
            for number in range(30):
                await store.put(paused(f"l{number}"), **at)
            assert max(await lists(store, counted)) == 5
            assert max(listed) <= 5
            await ends(store, clock, 2)  # what is left from before goes too
            assert await ends(store, clock, 1, counted) == await ends(store, clock, 40, counted)
            assert await verify_audit(store) is None

    within(scenario())


def filled(run, now):
    for statement in FILLED:
        rows = "" if statement.startswith("UPDATE") else ROWS
        if rows:
            begun, values = statement.split(" SELECT ", 1)
            statement = f"{begun} {rows} SELECT {values}"
        run(
            statement.format(
                many=MANY,
                state=STATE,
                now=now,
                interrupt=json.dumps(paused("of many").to_dict()),
                label=compute_label_key("agent", "refunds"),
            )
        )


async def everything(store, now, run):
    async with store:
        filled(run, now)


def questions(asked):
    return {
        statement: values
        for statement, values in asked
        if values is not None
        and statement.startswith(("SELECT", "UPDATE", "DELETE"))
        and " codemode_store" not in statement
        if "FROM codemode_" in statement or "UPDATE codemode_" in statement
    }


async def asked_with_many(store, clock, monkeypatch):
    asked = Asked(monkeypatch, store._database)
    await operations(store, 3)
    await lists(store)
    await ends(store, clock, 3)
    return questions(asked.statements)


@pytest.mark.full
def test_with_very_many_records_sqlite_looks_at_few(tmp_path, clock, monkeypatch):
    path = tmp_path / "pauses.sqlite"
    store = SqliteInterruptStore(path, clock=clock)
    within(everything(store, clock.now_ms(), lambda statement: _run_in_file(path, statement)))
    plans = within(asked_with_many(store, clock, monkeypatch))
    assert len(plans) > 60
    connection = sqlite3.connect(path)
    found = []
    for statement, values in plans.items():
        steps = [row[3] for row in connection.execute(f"EXPLAIN QUERY PLAN {statement}", values)]
        found += [
            (statement, one)
            for one in steps
            if one.startswith("SCAN") and not any(word in one for word in ("INDEX", "CONST", "SCAN branch", "SCAN few"))
        ]
        if statement.startswith("SELECT") and (taken := _steps(connection, statement, values)) > MOST_STEPS:
            found.append((statement, taken))
    connection.close()
    assert found == []
    within(store.aclose())


def _run_in_file(path, statement):
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA synchronous = OFF")
    connection.execute(statement)
    connection.close()


def _steps(connection, statement, values):
    taken = 0

    def step():
        nonlocal taken
        taken += 1000

    connection.set_progress_handler(step, 1000)
    connection.execute(statement, values).fetchall()
    connection.set_progress_handler(None, 0)
    return taken


@pytest.mark.parametrize("kind", full_only("postgres"))
def test_with_very_many_records_postgres_looks_by_an_index(make, clock, monkeypatch):
    import psycopg

    store = make()
    with psycopg.connect(store._database._dsn, autocommit=True) as connection:
        within(everything(store, clock.now_ms(), connection.execute))
        connection.execute("ANALYZE")
        plans = within(asked_with_many(store, clock, monkeypatch))
        assert len(plans) > 60
        found = []
        for statement, values in plans.items():
            written = statement.replace("?", "%s")
            ((explained,),) = connection.execute(f"EXPLAIN (FORMAT JSON) {written}", values).fetchall()
            scans = [node for node in _nodes(explained[0]["Plan"]) if node["Node Type"] == "Seq Scan"]
            found += [(statement, node["Relation Name"]) for node in scans]
        assert found == []
    within(store.aclose())


def _nodes(plan):
    return [plan, *(node for one in plan.get("Plans", ()) for node in _nodes(one))]
