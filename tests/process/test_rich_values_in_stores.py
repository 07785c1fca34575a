"""Programs with dates, bytes and sets that pause into a store."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import UTC, datetime
from typing import Annotated, Any

import pytest
from pydantic import Field
from waiting import within

from codemode import CodeModeProtocolError, Tool, create_code_mode_tool, tool
from codemode.stores import AnswerRefusedError, MemoryInterruptStore, Resumer, SqliteInterruptStore

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


BOOK_JS = "return await tools.book({ room: 'a', at: new Date(0), key: new Uint8Array([1, 2, 3, 4]), tags: new Set() })"
NOON_TAG = {"$rich": ["Date", "2026-01-02T12:00:00.000Z"]}


@tool(needs_approval=True)
def book(
    room: str,
    at: datetime,
    key: Annotated[bytes, Field(max_length=4)],
    tags: set[str],
    until: datetime | None = None,
) -> list[Any]:
    return [room, at, key, tags, until]


def test_displayed_input_with_changes_is_accepted_and_runs(store):
    noon = datetime(2026, 1, 2, 12, tzinfo=UTC)
    rows: list[tuple[dict[str, Any], list[Any]]] = [
        ({"room": "b"}, ["b", EPOCH, b"\1\2\3\4", set(), None]),
        ({"at": NOON_TAG}, ["a", noon, b"\1\2\3\4", set(), None]),
        ({"at": "2026-01-02T12:00:00Z"}, ["a", noon, b"\1\2\3\4", set(), None]),
        ({"key": {"$rich": ["Uint8Array", "/////w=="]}}, ["a", EPOCH, b"\xff" * 4, set(), None]),
        ({"tags": {"$rich": ["Set", ["x"]]}}, ["a", EPOCH, b"\1\2\3\4", {"x"}, None]),
        ({"until": NOON_TAG}, ["a", EPOCH, b"\1\2\3\4", set(), noon]),
    ]

    async def scenario():
        code_mode = create_code_mode_tool([book], RICH, store=store)
        for changes, expected in rows:
            record_id, interrupt_id = await put_program(store, code_mode, BOOK_JS)
            (request,) = (await store.record(record_id, tenant="")).requests
            edit = {"approved": True, "input": {**request.input, **changes}}
            await store.decide({interrupt_id: edit}, actor="ana", tenant="")
            async with Resumer(store, tenant="", resume=code_mode.resume):
                assert await store.outcome(record_id, tenant="") == expected, changes

    within(scenario())


def test_wrong_edit_is_refused_with_the_field(store):
    rows: list[tuple[dict[str, Any], list[str]]] = [
        ({"room": 5}, ["room: expected string, got number"]),
        ({"at": 5}, ["at: expected string, got number"]),
        ({"at": {"$rich": ["Date", "never"]}}, ["at: expected string, got object"]),
        ({"key": {"$rich": ["Uint8Array", "?"]}}, ["key: expected string, got object"]),
        ({"tags": {"$rich": ["Set", [1]]}}, ["tags[0]: expected string, got number"]),
        ({"room": 5, "until": NOON_TAG}, ["room: expected string, got number"]),
    ]

    async def scenario():
        code_mode = create_code_mode_tool([book], RICH, store=store)
        record_id, interrupt_id = await put_program(store, code_mode, BOOK_JS)
        (request,) = (await store.record(record_id, tenant="")).requests
        for changes, problems in rows:
            edit = {"approved": True, "input": {**request.input, **changes}}
            with pytest.raises(AnswerRefusedError) as raised:
                await store.decide({interrupt_id: edit}, actor="ana", tenant="")
            assert raised.value.details["problems"] == {interrupt_id: problems}

    within(scenario())


def test_tag_in_an_edit_of_a_plain_program_is_refused_by_the_tool(store):
    async def scenario():
        code_mode = create_code_mode_tool([ship], PLAIN, store=store)
        record_id, interrupt_id = await put_program(store, code_mode, "return await tools.ship({ order: 'a' })")
        edit = {"approved": True, "input": {"order": NOON_TAG}}
        with pytest.raises(CodeModeProtocolError, match="order"):
            await store.answer(interrupt_id, edit, code_mode.resume)
        (request,) = (await store.record(record_id, tenant="")).requests
        assert request.state == "waiting"

    within(scenario())


def test_plain_data_that_look_like_a_tag_are_checked_as_data(store):
    schema = {
        "type": "object",
        "properties": {"like": {"type": "object"}, "sum": {"type": "integer"}},
        "required": ["like"],
    }
    save = Tool("save", execute=lambda given: given, input_schema=schema, needs_approval=True)

    async def scenario():
        code_mode = create_code_mode_tool([save], PLAIN, store=store)
        js = f"return await tools.save({{ like: {json.dumps(NOON_TAG)}, sum: 1 }})"
        _, interrupt_id = await put_program(store, code_mode, js)
        wrong = {"approved": True, "input": {"like": NOON_TAG, "sum": "x"}}
        with pytest.raises(AnswerRefusedError) as raised:
            await store.decide({interrupt_id: wrong}, actor="ana", tenant="")
        assert raised.value.details["problems"] == {interrupt_id: ["sum: expected integer, got string"]}
        edit = {"approved": True, "input": {"like": NOON_TAG, "sum": 2}}
        assert await store.answer(interrupt_id, edit, code_mode.resume) == {"like": NOON_TAG, "sum": 2}

    within(scenario())
