"""Pauses of every surface are recognised and read, as objects and from a message log, by the context they belong to."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from codemode import (
    CallContext,
    CodeModeProtocolError,
    Interrupt,
    ModuleServer,
    Tool,
    create_code_call_tools,
    create_code_mode_tool,
    create_exec_wait_tools,
    create_modules_tool,
    get_interrupt,
    inspect_interrupt,
    is_approval_interrupt,
    is_interrupt,
    to_approval_messages,
)
from codemode.stores import MemoryInterruptStore

KEYS = {"continuation": {"keys": "a key"}}
SETTINGS = {**KEYS, "approval": {"mode": "interrupt"}}
TOOLS = [Tool("pay", execute=lambda value: value, needs_approval=True)]
MODULE = 'import { pay } from "@codemode/servers/shop";\nglobalThis.__codemode_result__ = await pay({ n: 1 });'


def pauses(conversation_id: str | None = None) -> dict[str, Any]:
    """Return a pause of each surface, which belong to a conversation where one is given."""
    call = CallContext(conversation_id=conversation_id)
    js, script = "return await tools.pay({ n: 1 })", "return await callTool('pay', { n: 1 })"
    pair = create_exec_wait_tools(TOOLS, settings=SETTINGS)
    run = create_modules_tool([ModuleServer("shop", TOOLS)], settings=SETTINGS)
    found: dict[str, Any] = {
        "codeMode": create_code_mode_tool(TOOLS, SETTINGS).execute_sync({"js": js}, call),
        "CodeCall": create_code_call_tools(TOOLS, {"settings": SETTINGS}).execute_sync({"script": script}, call),
        "modules": run.execute_sync({"code": MODULE}, call),
        "exec": pair.exec.execute_sync({"code": js}, call),
    }
    assert all(isinstance(one, Interrupt) for one in found.values()), found
    return found


def forms(paused: Interrupt) -> list[Any]:
    return [paused, json.loads(json.dumps(paused.to_dict()))]


def logged(paused: Interrupt) -> list[Any]:
    """Return what a message log may have of a pause."""
    plain = json.loads(json.dumps(paused.to_dict()))
    return [plain, {"type": "json", "value": plain}, {"type": "text", "value": json.dumps(plain)}, json.dumps(plain)]


def test_a_pause_without_a_context_is_recognised_on_every_surface():
    for surface, paused in pauses().items():
        for form in forms(paused):
            assert is_interrupt(form, options=KEYS), surface
            assert is_approval_interrupt(form, options=KEYS), surface
            assert inspect_interrupt(form, KEYS).unreadable is None, surface
        for form in logged(paused):
            assert get_interrupt(form, options=KEYS) == paused, surface
        assert len(to_approval_messages(forms(paused)[1], options=KEYS)) == 1, surface
        assert not is_interrupt(paused, options={"continuation": {"keys": "another"}}), surface
        forged = {**paused.to_dict(), "outerToolCallId": "another"}
        assert not is_interrupt(forged, options=KEYS), surface


def test_a_pause_with_a_context_is_recognised_with_it_alone():
    own, other = {"conversation_id": "thread 1"}, {"conversation_id": "thread 2"}
    for surface, paused in pauses("thread 1").items():
        for form in forms(paused):
            assert is_approval_interrupt(form, options=KEYS, **own), surface
            assert inspect_interrupt(form, KEYS, **own).js, surface
            for wrong in ({}, other):
                assert not is_interrupt(form, options=KEYS, **wrong), surface
        plain = forms(paused)[1]
        assert get_interrupt(plain, options=KEYS, **own) == paused, surface
        assert get_interrupt(plain, options=KEYS) is None, surface


def test_a_missing_context_is_reported_as_missing_and_another_one_never_as_tampering():
    for surface, paused in pauses("thread 1").items():
        view = inspect_interrupt(paused, KEYS)
        assert (view.js, view.requests) == (None, paused.requests), surface
        assert "no conversation_id was given" in (view.unreadable or ""), surface
        with pytest.raises(CodeModeProtocolError, match="another conversation") as refused:
            inspect_interrupt(paused, KEYS, conversation_id="thread 2")
        assert "changed" not in refused.value.message, surface
    changed = pauses()["exec"].to_dict()
    changed["continuation"] = {**changed["continuation"], "body": [*changed["continuation"]["body"], "x"]}
    with pytest.raises(CodeModeProtocolError, match="it was changed"):
        inspect_interrupt(changed, KEYS)


def test_a_parked_pause_of_no_scope_needs_none():
    async def parked() -> Any:
        store = MemoryInterruptStore()
        settings = {**SETTINGS, "continuation": {"keys": "a key", "guard": store.guard}}
        pair = create_exec_wait_tools(TOOLS, {"approvals": "park"}, settings=settings, store=store, tenant="acme")
        await pair.exec.execute({"code": "return await tools.pay({ n: 1 })"})
        (record,) = (await store.list(tenant="acme", state="pending")).records
        return await store.get(record.requests[0].interrupt_id, tenant="acme")

    paused = asyncio.run(parked())
    assert is_approval_interrupt(paused, options=KEYS)
    assert inspect_interrupt(paused.to_dict(), KEYS).unreadable is None


def test_a_conversation_id_of_a_wrong_kind_is_refused():
    paused = pauses()["codeMode"]
    for ask in (is_interrupt, is_approval_interrupt, get_interrupt):
        for wrong in (5, ""):
            with pytest.raises(ValueError, match="conversation_id"):
                ask(paused, options=KEYS, conversation_id=wrong)  # pyright: ignore[reportArgumentType]
