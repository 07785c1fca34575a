"""A record that somebody has changed in the database runs nothing, whichever of its columns were changed together."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest
from langgraph.checkpoint.memory import InMemorySaver
from scripted_agent import calls
from test_langchain_stored_pauses import OK, REFUND, Desk

from codemode import CodeModeProtocolError
from codemode.stores import MemoryInterruptStore, Record


def changed(record: Record) -> dict[str, Record]:
    (request,) = record.requests
    payload: Any = record.payload
    ((name, part),) = payload["parts"].items()
    return {
        "what is shown": replace(record, requests=(replace(request, input={"order": "a", "cents": 1}),)),
        "the tool": replace(record, requests=(replace(request, tool_name="stock"),)),
        "the answers allowed": replace(record, payload={**payload, "parts": {name: [*part[:2], ["approve", "edit"]]}}),
        "the thread": replace(record, payload={**payload, "thread_id": "another"}),
    }


def test_a_changed_record_runs_nothing_and_the_right_one_does() -> None:
    async def scenario() -> None:
        async with MemoryInterruptStore() as store:
            desk = Desk(store, InMemorySaver())
            run = await desk.ask(calls(REFUND))
            record = await store.record(run.record_id or "", tenant="acme")
            answers = {record.requests[0].interrupt_id: OK}
            for name, one in changed(record).items():
                assert one != record, name
                with pytest.raises(CodeModeProtocolError, match=r"changed in the database|was resumed elsewhere"):
                    await desk.pauses().resume(one, answers)
            assert desk.did == [("stock", "nut")]
            await desk.pauses().resume(record, answers)
            assert desk.did[-1] == ("refund", "a", 500)

    asyncio.run(asyncio.wait_for(scenario(), 60))
