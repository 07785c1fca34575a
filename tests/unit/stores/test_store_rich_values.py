"""Stores return dates, bytes and sets of programs as they were."""

from __future__ import annotations

import json
import secrets
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

import pytest
from stored_pauses import paused
from test_store_contract import claimed, decided, through

from codemode.stores import ALL_TENANTS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
TAG = {"$rich": ["Date", "1970-01-01T00:00:00.000Z"]}


@dataclass
class Booking:
    day: date


async def settled(store: Any, value: Any) -> str:
    """Store the outcome of a program, and return the id of its record."""
    interrupt = paused(secrets.token_hex(4))
    record_id = await store.put(interrupt)
    await decided(store, interrupt.interrupt_id)
    assert await store.settle(await claimed(store), value)
    return record_id


@pytest.mark.parametrize(
    ("value", "displayed"),
    [
        (b"\x89PNG", "iVBORw=="),
        (b"text", "dGV4dA=="),
        (EPOCH, "1970-01-01T00:00:00.000Z"),
        ({1}, [1]),
        ([{"at": EPOCH, "like": TAG}, {"$$rich": 1}], [{"at": TAG["$rich"][1], "like": TAG}, {"$$rich": 1}]),
    ],
)
def test_outcome_has_the_types_that_the_program_returned(make, value, displayed):
    async def scenario(store):
        record_id = await settled(store, value)
        other = make()
        for reader in (store, other):
            outcome = await reader.outcome(record_id, tenant=ALL_TENANTS)
            assert (type(outcome), outcome) == (type(value), value)
            record = await reader.record(record_id, tenant=ALL_TENANTS)
            assert (record.state, record.outcome.value, record.outcome.error) == ("completed", displayed, None)
        await other.aclose()

    through(make, scenario)


def test_plain_outcome_that_looks_like_a_tag_stays_as_it_is(make):
    async def scenario(store):
        for value in (TAG, {"$rich": ["Set", [1]]}, {"$$rich": 1}, {"value": TAG, "tagged": True}, [TAG, 1e300]):
            record_id = await settled(store, value)
            assert await store.outcome(record_id, tenant=ALL_TENANTS) == value
            assert (await store.record(record_id, tenant=ALL_TENANTS)).outcome.value == value

    through(make, scenario)


def test_outcome_that_tags_would_change_is_stored_as_json(make):
    async def scenario(store):
        rows = [
            (EPOCH.replace(tzinfo=None), "1970-01-01T00:00:00"),
            (datetime(2026, 1, 2, 0, 0, 0, 1, UTC), "2026-01-02T00:00:00.000001Z"),
            (date(2026, 1, 2), "2026-01-02"),
            (Booking(date(2026, 1, 2)), {"day": "2026-01-02"}),
        ]
        for value, expected in rows:
            record_id = await settled(store, value)
            assert await store.outcome(record_id, tenant=ALL_TENANTS) == expected, value

    through(make, scenario)


def test_outcome_of_an_earlier_release_is_read_as_it_was_written(make):
    async def scenario(store):
        record_id = await settled(store, 1)
        with store._database.journal_transaction() as session:
            session.run("UPDATE codemode_records SET outcome = ?", json.dumps({"value": {"at": TAG}}))
        assert await store.outcome(record_id, tenant=ALL_TENANTS) == {"at": TAG}
        assert (await store.record(record_id, tenant=ALL_TENANTS)).outcome.value == {"at": TAG}

    through(make, scenario)
