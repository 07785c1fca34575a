"""A record that somebody has changed in the database runs nothing, whichever of its columns were changed together."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from codemode_pydantic_ai import CodeMode
from scripted import Script, program
from test_pydantic_ai_stored_pauses import KEYS, OK, REFUND, Desk, on

from codemode import CodeModeProtocolError
from codemode.stores import Record


def changed(record: Record) -> dict[str, Record]:
    (request,) = record.requests
    payload: Any = record.payload
    other_calls = json.loads(json.dumps(payload["messages"]).replace("refund", "refunded"))
    unsigned = {key: value for key, value in payload.items() if key != "auth"}
    shown = {**payload, "shown": {request.interrupt_id: "0" * 64}}
    return {
        "what is shown": replace(record, requests=(replace(request, input={"order": "a", "cents": 1}),)),
        "the tool": replace(record, requests=(replace(request, tool_name="stock"),)),
        "no request": replace(record, requests=()),
        "messages": replace(record, payload={**payload, "messages": other_calls}),
        "calls": replace(record, payload={**payload, "calls": {request.interrupt_id: "other"}}),
        "digests": replace(record, payload=shown),
        "signature": replace(record, payload=unsigned),
    }


def test_a_changed_record_runs_nothing_and_the_right_one_does(tmp_path: Path) -> None:
    async def scenario(desk: Desk) -> None:
        run = await desk.pauses(program(REFUND)).run("go")
        record = await desk.store.record(run.record_id or "", tenant="acme")
        answers = {record.requests[0].interrupt_id: OK}
        for name, one in changed(record).items():
            assert one != record, name
            with pytest.raises(CodeModeProtocolError, match=r"changed|not signed") as refused:
                await desk.pauses().resume(one, answers)
            assert refused.value.details["not_resumable"] is True, name
        own = CodeMode({"continuation": {"keys": f"not {KEYS}", "guard": desk.store.guard}})
        pauses = desk.pauses(agent=desk.agent(Script(), capability=own))
        with pytest.raises(CodeModeProtocolError, match="key"):
            await pauses.resume(record, answers)
        assert desk.did == [("stock", "nut")]
        await desk.pauses("done").resume(record, answers)
        assert desk.did == [("stock", "nut"), ("refund", "a", 500)]

    on(tmp_path, scenario)
