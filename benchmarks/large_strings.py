"""W13: a string of 1 MiB handed from tool to tool and returned by a CodeCall script, with the sidecar and without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from codemode import CodeCallToolset, Tool, create_code_call_tools

from .measure import Samples, timed
from .table import Row

SCRIPT = "const text = await callTool('read'); await callTool('store', { text }); return text"
SPARE_READY_SECONDS = 0.005
_TARGET = 0.25
_LINE = 'a line of text as a tool reads it from a file, with "quotes" in it\n'
_TEXT = (_LINE * (1 + (1 << 20) // len(_LINE)))[: 1 << 20]
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
# What is without a sidecar has the text in its inputs and its result.
_ROOM = {"max_result_bytes": 4 << 20, "max_tool_input_bytes": 4 << 20}


async def _read(_value: Any) -> str:
    return _TEXT


async def _store(value: Mapping[str, Any]) -> int:
    return len(value["text"])


def _code_call(*, enabled: bool) -> CodeCallToolset:
    tools = [Tool("read", execute=_read), Tool("store", execute=_store, input_schema=_SCHEMA)]
    options = {"sidecar": {"enabled": enabled}, "settings": {"execution_policy": _ROOM}}
    return create_code_call_tools(tools, options)


async def large_string_rows(rounds: int, runs: int) -> list[Row]:
    """Return the row: "ours" is with the sidecar, "floor" without it."""
    with_it, without = _code_call(enabled=True), _code_call(enabled=False)
    samples = Samples(), Samples()

    async def run(code_call: CodeCallToolset) -> None:
        answer = await code_call.execute({"script": SCRIPT})
        assert answer.get("result") == _TEXT, answer

    for code_call in (with_it, without):
        await run(code_call)
    for _ in range(rounds):
        for one, code_call in zip(samples, (with_it, without), strict=True):
            one.add(await timed(lambda code_call=code_call: run(code_call), runs, SPARE_READY_SECONDS))
    ours, floor = samples[0].median, samples[1].median
    note = f"the floor is the same script without the sidecar, which takes {floor / ours:.1f} times as long"
    row = Row("W13", "1 MiB from tool to tool and returned", ours, floor=floor, ratio=ours / floor, note=note)
    row.tail, row.spread = samples[0].tail, samples[0].spread
    row.target, row.met = f"ratio <= {_TARGET}", ours / floor <= _TARGET
    return [row]
