"""Whoever changes or leaves out a line of the audit is found, and with a head kept elsewhere whoever writes it anew."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import secrets
import shutil
import sqlite3
from contextlib import closing

import pytest
from hypothesis import HealthCheck, assume, example, given, settings
from hypothesis import strategies as st
from stored_pauses import NO, OK, paused, request
from suite import rounds
from test_store_audit import lines
from test_store_contract import claimed, decided, through
from waiting import within

from codemode.continuations.guard import Claim
from codemode.host.clock import now_ms
from codemode.interrupts.interrupt import APPROVAL_KIND
from codemode.stores import (
    ALL_TENANTS,
    BadLine,
    PostgresInterruptStore,
    SqliteInterruptStore,
    StoreUnavailableError,
    audit_chain,
    record_writes,
    tables,
    verify_audit,
)
from codemode.stores.audit import (
    FIELD_NAMES,
    GENESIS_HASH,
    INDEXED_COLUMNS,
    compute_line_hash,
    decode_audit_line,
    encode_line_body,
)

_TRIGGERS = ("codemode_audit_is_not_changed", "codemode_audit_is_not_deleted", "codemode_audit_is_not_replaced")
_COUNT = 8
_ROW = ("sequence", "tenant", "record_id", "previous", "hash", "body")
# Beside what is drawn: what a line could be changed into without anybody seeing it at a glance.
_TEXTS = st.one_of(st.none(), st.text(max_size=5), st.sampled_from(["acme", "other", "0" * 64, "{}", "null"]))
_TYPED = st.one_of(_TEXTS, st.integers(-1, 20), st.floats(allow_nan=False), st.binary(max_size=3))
_JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=3), st.sampled_from(["ana", "approved"])),
    lambda inner: st.one_of(st.lists(inner, max_size=2), st.dictionaries(st.text(max_size=2), inner, max_size=2)),
    max_leaves=4,
)
_NUMBERS = st.integers(1, _COUNT)
_MANY = settings(
    max_examples=rounds(25, 60),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
    derandomize=True,
)


async def filled(store):
    """Eight lines, of two tenants and of none."""
    await store.put(paused("a", request("b", given={"cents": 90_000})), tenant="acme")
    edited = {"approved": True, "input": {"cents": 9}}
    await store.decide({"a": NO, "b": edited}, actor="ana", tenant="acme", address="10.0.0.1")
    await store.settle(await claimed(store), "done")
    await store.add_audit_line("signed-in", actor="ana", tenant="acme", details={"n": 1})
    await store.add_audit_line("refused-to", actor="?", tenant=ALL_TENANTS)
    other = await store.put(paused("c"), tenant="other")
    await store.withdraw(other, actor="bob")
    return await store.audit_head()


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A file without its triggers, and its head."""
    path = tmp_path_factory.mktemp("audit") / "whole.sqlite"

    async def scenario():
        async with SqliteInterruptStore(path) as store:
            return await filled(store)

    head = within(scenario())
    with closing(sqlite3.connect(path)) as connection, connection:
        for trigger in _TRIGGERS:
            connection.execute(f"DROP TRIGGER {trigger}")
    return path, head


@pytest.fixture
def tampered(whole, tmp_path):
    """Does something to a copy, and tells what is found without and with the head."""
    path, head = whole

    def tamper(work, kept=head):
        copy = tmp_path / f"{secrets.token_hex(8)}.sqlite"
        shutil.copyfile(path, copy)
        with closing(sqlite3.connect(copy)) as connection, connection:
            work(connection)

        async def scenario():
            async with SqliteInterruptStore(copy) as store:
                return await verify_audit(store), await verify_audit(store, kept)

        return within(scenario())

    return tamper


def read(connection):
    """The lines, by their number, as they stand in the file."""
    rows = connection.execute(f"SELECT {', '.join(_ROW)} FROM codemode_audit ORDER BY sequence").fetchall()
    return {row[0]: dict(zip(_ROW, row, strict=True)) for row in rows}


def rewritten(connection, first):
    """Write all lines anew from this one on, and the store's own head: what only a head kept elsewhere shows."""
    found = list(read(connection).values())
    connection.execute("DELETE FROM codemode_audit")
    previous = GENESIS_HASH
    for number, row in enumerate(found, start=1):
        line = decode_audit_line(*row.values())
        if number >= first:
            line = dataclasses.replace(line, sequence=number, previous=previous)
            line = dataclasses.replace(line, hash=compute_line_hash(line))
        previous = line.hash
        values = (*(getattr(line, name) for name in _ROW[:-1]), encode_line_body(line))
        connection.execute("INSERT INTO codemode_audit VALUES (?, ?, ?, ?, ?, ?)", values)
    connection.execute("UPDATE codemode_store SET audit_sequence = ?, audit_hash = ?", (len(found), previous))


def test_a_chain_that_nobody_touched_holds(tampered):
    assert tampered(lambda _: None) == (None, None)


@_MANY
@given(number=_NUMBERS, column=st.sampled_from([*INDEXED_COLUMNS, "body"]), value=_TYPED)
@example(number=3, column="tenant", value="other")
@example(number=6, column="tenant", value="")
@example(number=_COUNT, column="hash", value="0" * 64)
@example(number=1, column="previous", value="1" + "0" * 63)
@example(number=4, column="sequence", value=20)
@example(number=4, column="sequence", value=None)
@example(number=4, column="body", value=b"{}")
def test_no_column_of_a_line_is_changed_unseen(tampered, number, column, value):
    def work(connection):
        before = connection.execute("SELECT * FROM codemode_audit ORDER BY rowid").fetchall()
        try:
            connection.execute(f"UPDATE codemode_audit SET {column} = ? WHERE sequence = ?", (value, number))
        except sqlite3.IntegrityError:
            assume(False)
        assume(connection.execute("SELECT * FROM codemode_audit ORDER BY rowid").fetchall() != before)

    found = tampered(work)
    assert [one.sequence for one in found] == [number, number]


@_MANY
@given(number=_NUMBERS, name=st.sampled_from(sorted(set(FIELD_NAMES) - set(INDEXED_COLUMNS))), value=_JSON)
@example(number=2, name="actor", value="bob")
@example(number=2, name="decision", value="approved")
@example(number=3, name="diff", value=[])
@example(number=1, name="diff", value={})
@example(number=1, name="diff", value="")
@example(number=2, name="details", value=[])
@example(number=5, name="at_ms", value=0)
@example(number=5, name="more", value=1)
def test_nothing_that_a_line_says_is_changed_unseen(tampered, number, name, value):
    def work(connection):
        body = json.loads(read(connection)[number]["body"])
        assume(name not in body or json.dumps(body[name]) != json.dumps(value))
        text = json.dumps({**body, name: value}, sort_keys=True, separators=(",", ":"))
        connection.execute("UPDATE codemode_audit SET body = ? WHERE sequence = ?", (text, number))

    for bad in tampered(work):
        assert (bad.sequence, bad.reason) == (number, "changed")
        assert bad.line.sequence == number


@_MANY
@given(number=_NUMBERS, at=st.integers(0, 600), written=st.characters(codec="utf-8"))
def test_no_character_of_a_line_is_changed_unseen(tampered, number, at, written):
    def work(connection):
        body = read(connection)[number]["body"]
        assume(at < len(body) and body[at] != written)
        text = f"{body[:at]}{written}{body[at + 1 :]}"
        connection.execute("UPDATE codemode_audit SET body = ? WHERE sequence = ?", (text, number))

    assert [one.sequence for one in tampered(work)] == [number, number]


@_MANY
@given(gone=st.sets(_NUMBERS, min_size=1))
@example(gone={_COUNT})
@example(gone=set(range(1, _COUNT + 1)))
def test_no_line_is_left_out_unseen(tampered, gone):
    def work(connection):
        connection.executemany("DELETE FROM codemode_audit WHERE sequence = ?", [(one,) for one in gone])

    assert tampered(work) == (BadLine(min(gone), "missing", None),) * 2


@pytest.mark.parametrize("number", range(1, _COUNT + 1))
def test_a_line_whose_hash_was_made_anew_is_told_itself(tampered, number):
    """The line behind it is as it was, and names another hash."""

    def work(connection):
        rewritten(connection, _COUNT + 1)
        body = json.loads(read(connection)[number]["body"])
        text = json.dumps({**body, "actor": "mallory"}, sort_keys=True, separators=(",", ":"))
        connection.execute("UPDATE codemode_audit SET body = ? WHERE sequence = ?", (text, number))
        line = decode_audit_line(*read(connection)[number].values())
        connection.execute("UPDATE codemode_audit SET hash = ? WHERE sequence = ?", (compute_line_hash(line), number))

    for bad in tampered(work):
        assert (bad.sequence, bad.line.actor) == (number, "mallory")


@pytest.mark.parametrize("first", [1, 4, _COUNT])
def test_a_chain_that_was_written_anew_shows_with_a_head(tampered, first):
    def work(connection):
        body = json.loads(read(connection)[first]["body"])
        text = json.dumps({**body, "actor": "mallory"}, sort_keys=True, separators=(",", ":"))
        connection.execute("UPDATE codemode_audit SET body = ? WHERE sequence = ?", (text, first))
        rewritten(connection, first)

    without, with_head = tampered(work)
    assert without is None
    assert (with_head.sequence, with_head.reason, with_head.line.sequence) == (_COUNT, "rewritten", _COUNT)


@pytest.mark.parametrize("left", [0, 1, _COUNT - 1])
def test_a_tail_that_was_cut_shows_with_a_head(tampered, left):
    def work(connection):
        connection.execute("DELETE FROM codemode_audit WHERE sequence > ?", (left,))
        rewritten(connection, _COUNT + 1)

    assert tampered(work) == (None, BadLine(left + 1, "missing", None))


def test_lines_that_were_put_in_or_swapped_show(tampered):
    def put_in(connection):
        connection.execute("UPDATE codemode_audit SET sequence = sequence + 100 WHERE sequence > 4")
        connection.execute("UPDATE codemode_audit SET sequence = sequence - 99 WHERE sequence > 100")
        connection.execute(
            "INSERT INTO codemode_audit SELECT 5, tenant, record_id, previous, hash, body FROM codemode_audit"
            " WHERE sequence = 4"
        )

    def swapped(connection):
        for old, new in ((3, 100), (5, 3), (100, 5)):
            connection.execute("UPDATE codemode_audit SET sequence = ? WHERE sequence = ?", (new, old))

    def added(connection):
        connection.execute(
            "INSERT INTO codemode_audit SELECT 9, tenant, record_id, hash, hash, body FROM codemode_audit"
            " WHERE sequence = 8"
        )

    assert [one.sequence for one in tampered(put_in)] == [5, 5]
    assert [one.sequence for one in tampered(swapped)] == [3, 3]
    assert [one.sequence for one in tampered(added)] == [9, 9]


@pytest.mark.parametrize("value", ["(0, 'x')", "(8, 'x')", "(9, hex(zeroblob(32)))"])
def test_what_the_store_says_of_its_head_is_no_way_around(tampered, value):
    def work(connection):
        connection.execute(f"UPDATE codemode_store SET (audit_sequence, audit_hash) = {value}")

    assert None not in tampered(work)


def test_a_head_of_before_holds_while_the_chain_grows(make):
    async def scenario(store):
        heads = [await store.audit_head()]
        for number in range(3):
            await store.add_audit_line(f"k{number}", actor="ana", tenant="t")
            heads.append(await store.audit_head())
        assert len(set(heads)) == 4
        assert [await verify_audit(store, head) for head in heads] == [None] * 4
        for head in (
            "",
            "x",
            "4",
            f"4:{'0' * 63}",
            f"-1:{'0' * 64}",
            f"²:{'0' * 64}",
            4,
            b"4",
            f"{'9' * 30}:{'0' * 64}",
        ):
            with pytest.raises(ValueError, match="audit_head"):
                await verify_audit(store, head)
        assert (await verify_audit(store, f"4:{'0' * 64}")).sequence == 4
        assert (await verify_audit(store, f"2:{'0' * 64}")).reason == "rewritten"

    through(make, scenario)


def test_two_stores_write_one_chain_at_once(make):
    async def scenario(store):
        other = make()
        await asyncio.gather(*((store, other)[number % 2].put(paused(str(number))) for number in range(4)))
        await decided(other, "0", "1")
        await decided(store, "2", "3", answer=NO)
        more = [(store, other)[number % 2].add_audit_line(f"k{number}", actor="a", tenant="t") for number in range(20)]
        await asyncio.gather(*more)
        assert [one.sequence for one in await lines(store)] == list(range(1, 29))
        assert await verify_audit(other, await store.audit_head()) is None
        await other.aclose()

    through(make, scenario)


def test_what_fails_leaves_no_line(make):
    async def scenario(store):
        await store.put(paused("a"))
        head = await store.audit_head()

        def work(session):
            session.add_audit_line("put", "t")
            raise LookupError

        with pytest.raises(LookupError):
            await store._run_write(work)
        assert await store.audit_head() == head
        await decided(store, "a", answer=OK)
        assert await verify_audit(store, head) is None

    through(make, scenario)


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE codemode_audit SET body = '{}'",
        "UPDATE codemode_audit SET tenant = 'x' WHERE sequence = 2",
        "DELETE FROM codemode_audit",
        "DELETE FROM codemode_audit WHERE sequence = 8",
        "TRUNCATE codemode_audit",
        "INSERT OR REPLACE INTO codemode_audit VALUES (2, 'x', 'x', 'x', 'x', 'x')",
        "INSERT INTO codemode_audit VALUES (2, 'x', 'x', 'x', 'x', 'x') ON CONFLICT (sequence) DO UPDATE SET body = ''",
    ],
)
def test_the_database_itself_refuses_to_change_a_line(make, statement):
    async def scenario(store):
        head = await filled(store)
        with pytest.raises(StoreUnavailableError):
            await store._run_write(lambda session: session.run(statement))
        assert await verify_audit(store, head) is None
        assert len(await lines(store)) == _COUNT

    through(make, scenario)


def test_a_store_of_before_the_audit_gets_one(kind, make, monkeypatch):
    if kind == "memory":
        pytest.skip("the memory store is not persistent")

    async def scenario():
        with monkeypatch.context() as older:
            older.setattr(tables, "UPGRADES", tables.UPGRADES[:1])
            async with make() as store:
                await asyncio.to_thread(_put_as_before, store._database)
        async with make() as store:
            (old,) = (await store.record("old", tenant="acme")).requests
            await store.decide({"q": OK}, actor="ana", tenant="acme", seen={"q": store.compute_display_digest(old)})
            (line,) = await lines(store)
            assert (line.kind, line.record_id, line.shown) == ("decided", "old", store.compute_display_digest(old))
            await store.settle(await claimed(store), "done")
            assert await verify_audit(store, await store.audit_head()) is None

    within(scenario())


def _put_as_before(database):
    one = request("q", given={"n": 1})
    interrupt = paused(one)
    nonce, expires_at_ms = interrupt.continuation["auth"].values()
    with database.journal_transaction() as session:
        session.run(
            "INSERT INTO codemode_records (id, position, version, state, outer_tool, tenant, app, labels,"
            " created_at_ms, expires_at_ms, interrupt, claim)"
            " VALUES ('old', 1, 1, 'pending', '', 'acme', '', '{}', 1, ?, ?, 0)",
            *(expires_at_ms, record_writes.encode_interrupt(interrupt)),
        )
        session.run(
            "INSERT INTO codemode_requests VALUES ('q', 'old', 0, ?, 'refund', '{\"n\": 1}', ?, NULL, '\"\"', NULL,"
            " 'waiting', NULL, NULL, NULL, NULL, 0)",
            APPROVAL_KIND,
            json.dumps(dict(one.payload)),
        )
        session.run("INSERT INTO codemode_versions VALUES (?, 'old', 1, 1, '[\"q\"]')", nonce)


def test_pages_are_checked_off_the_loop_and_joined(make, monkeypatch):
    monkeypatch.setattr(audit_chain, "_LINES_PER_PAGE", 3)

    async def scenario(store):
        head = await filled(store)
        assert await verify_audit(store, head) is None
        await store.add_audit_line("one-more", actor="ana", tenant="t")
        assert await verify_audit(store, head) is None

    through(make, scenario)


def test_a_role_that_may_only_add_lines_is_enough(kind, make):
    """The role of docs/stores.md: it owns nothing, and changes no line even where nobody has made triggers."""
    if kind != "postgres":
        pytest.skip("a SQLite file has one owner")

    async def scenario():
        async with make() as owner:
            dsn = owner._database._dsn
            role = f"app_{secrets.token_hex(4)}"
            await owner._run_write(lambda session: _grant(session, role))
        store = PostgresInterruptStore(dsn.replace("user=tests", f"user={role}"))
        async with store:
            head = await filled(store)
            assert await verify_audit(store, head) is None
            assert await store.guard.claim(Claim("k", "a", now_ms() + 1000)) is None
            for statement in (
                "DELETE FROM codemode_audit",
                "UPDATE codemode_audit SET body = ''",
                "TRUNCATE codemode_audit",
            ):
                with pytest.raises(StoreUnavailableError, match="permission denied"):
                    await store._run_write(lambda session, statement=statement: session.run(statement))

    within(scenario())


def _grant(session, role):
    session.run(f"CREATE ROLE {role} LOGIN")
    session.run(f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {role}")
    session.run(f"REVOKE UPDATE, DELETE ON codemode_audit FROM {role}")
