"""Programs with dates, bytes and sets that pause into a store."""

from __future__ import annotations

import subprocess
import sys
from datetime import UTC, datetime
from typing import Any

import pytest
from waiting import within

from codemode import create_code_mode_tool, tool
from codemode.stores import MemoryInterruptStore, Resumer, SqliteInterruptStore

PLAIN: dict[str, Any] = {"continuation": {"keys": "k"}}
RICH: dict[str, Any] = {**PLAIN, "execution_policy": {"values": "rich"}}
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EXPORT_JS = "return [await tools.export({ order: 'a' }), new Date(0), new Set(['a']), { $rich: 1 }]"
EXPORTED = [b"\x89PNG", EPOCH, {"a"}, {"$rich": 1}]


@pytest.fixture(params=["memory", "sqlite"])
def store(request, tmp_path):
    return MemoryInterruptStore() if request.param == "memory" else SqliteInterruptStore(tmp_path / "pauses.sqlite")


@tool(needs_approval=True)
def export(order: str) -> bytes:
    return b"\x89PNG"


@tool(needs_approval=True)
def ship(order: str) -> str:
    return order


async def put_program(store: Any, code_mode: Any, js: str) -> tuple[str, Any]:
    """Run a program until it pauses into a store; return the ids of its record and the first request."""
    interrupt = await code_mode.execute(js)
    return await store.put(interrupt, tool=code_mode), interrupt.interrupt_id


def test_outcome_is_the_value_that_resume_returns(store):
    async def scenario():
        code_mode = create_code_mode_tool([export], RICH, store=store)
        assert await code_mode.resume(await code_mode.execute(EXPORT_JS), True) == EXPORTED
        record_id, interrupt_id = await put_program(store, code_mode, EXPORT_JS)
        await store.decide({interrupt_id: {"approved": True}}, actor="ana", tenant="")
        async with Resumer(store, tenant="", resume=code_mode.resume):
            assert await store.outcome(record_id, tenant="") == EXPORTED
        assert (await store.record(record_id, tenant="")).state == "completed"

    within(scenario())


def test_outcome_after_answer_is_the_value_that_answer_returned(store):
    async def scenario():
        code_mode = create_code_mode_tool([export], RICH, store=store)
        record_id, interrupt_id = await put_program(store, code_mode, EXPORT_JS)
        assert await store.answer(interrupt_id, {"approved": True}, code_mode.resume) == EXPORTED
        for _ in range(2):
            assert await store.outcome(record_id, tenant="") == EXPORTED

    within(scenario())


def test_plain_program_whose_result_looks_like_a_tag_keeps_it(store):
    js = "await tools.ship({ order: 'a' }); return { $rich: ['Date', '1970-01-01T00:00:00.000Z'] }"

    async def scenario():
        code_mode = create_code_mode_tool([ship], PLAIN, store=store)
        record_id, interrupt_id = await put_program(store, code_mode, js)
        result = await store.answer(interrupt_id, {"approved": True}, code_mode.resume)
        assert result == {"$rich": ["Date", "1970-01-01T00:00:00.000Z"]}
        assert await store.outcome(record_id, tenant="") == result

    within(scenario())


READER = """
import asyncio, sys
from codemode.stores import SqliteInterruptStore

async def main():
    async with SqliteInterruptStore(sys.argv[1]) as store:
        print(repr(await store.outcome(sys.argv[2], tenant="")))

asyncio.run(main())
"""


def test_another_process_reads_the_same_outcome(tmp_path):
    path = tmp_path / "pauses.sqlite"

    async def scenario():
        async with SqliteInterruptStore(path) as store:
            code_mode = create_code_mode_tool([export], RICH, store=store)
            record_id, interrupt_id = await put_program(store, code_mode, EXPORT_JS)
            await store.answer(interrupt_id, {"approved": True}, code_mode.resume)
            return record_id

    command = [sys.executable, "-c", READER, str(path), within(scenario())]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout.strip() == repr(EXPORTED)
