"""Large strings are cut out, put in and read again off the event loop, in pieces."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest
from pausing import through_json
from waiting import within

from codemode import Tool, create_code_call_tools
from codemode.protocol import invocation, references

TEXT = 'a line, "quoted", with \u00e9 and \U0001f600\n' * 20_000
JS = """const { text } = await callTool('read');
await callTool('store', { text }); const got = await callTool('hang', [text]); return [text, got]"""


@pytest.fixture
def off_loop(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Collect what works on large strings, and fail where that is the loop's thread."""
    seen: list[str] = []
    main = threading.get_ident()

    def watch(module: Any, name: str) -> None:
        real: Callable[..., Any] = getattr(module, name)

        def watched(text: str, *more: Any) -> Any:
            seen.append(name)
            assert threading.get_ident() != main, name
            return real(text, *more)

        monkeypatch.setattr(module, name, watched)

    for module, name in [
        (references, "extract_large_strings"),
        (references, "decode_json_with_large_strings"),
        (references, "decode_large_string"),
        (invocation, "extract_large_strings"),
    ]:
        watch(module, name)
    return seen


def test_loop_a_script_its_pause_its_recovery_and_its_end_work_elsewhere(off_loop: list[str]):
    taken: list[Any] = []

    async def store(value: Any) -> None:
        taken.append(value["text"])

    async def hang(value: Any) -> None:
        taken.append(value[0])
        execution.cancel()
        await asyncio.Event().wait()

    async def read(_value: Any) -> Any:
        return {"text": TEXT, "more": ["x"] * 3000}

    tools = [Tool("read", execute=read), Tool("store", execute=store, needs_approval=True), Tool("hang", execute=hang)]
    options = {"sidecar": {"enabled": True}, "settings": {"approval": {"mode": "interrupt"}}}
    code_call = create_code_call_tools(tools, options)

    async def whole() -> Any:
        nonlocal execution
        paused = await code_call.execute({"script": JS})
        execution = asyncio.ensure_future(code_call.resume(through_json(paused), {"approved": True}))
        try:
            await execution
            raise AssertionError("it was to be cancelled")
        except asyncio.CancelledError as cancelled:
            recovery = getattr(cancelled.__cause__, "recovery", None)
        assert recovery is not None
        assert recovery.input == [TEXT]
        return await code_call.resume(through_json(recovery), {"value": TEXT[:5000]})

    execution: Any = None
    assert within(whole())["result"] == [TEXT, TEXT[:5000]]
    assert taken == [TEXT, TEXT]
    assert set(off_loop) >= {"extract_large_strings", "decode_json_with_large_strings"}
