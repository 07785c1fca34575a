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
_FOREIGN = "Строка, которую инструмент читает из файла: 一行文字。\n"
_SIZE = 1 << 20
_TEXTS = {
    f"1 MiB {what}from tool to tool and returned": line * (_SIZE // len(line.encode()))
    for what, line in (("", _LINE), ("not ASCII ", _FOREIGN))
}
_SCHEMA = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
# What is without a sidecar has the text in its inputs and its result.
_ROOM = {"max_result_bytes": 4 << 20, "max_tool_input_bytes": 4 << 20}


async def _store(value: Mapping[str, Any]) -> int:
    return len(value["text"])


def _code_call(text: str, *, enabled: bool) -> CodeCallToolset:
    async def read(_value: Any) -> str:
        return text

    tools = [Tool("read", execute=read), Tool("store", execute=_store, input_schema=_SCHEMA)]
    options = {"sidecar": {"enabled": enabled}, "settings": {"execution_policy": _ROOM}}
    return create_code_call_tools(tools, options)


async def large_string_rows(rounds: int, runs: int) -> list[Row]:
    """Return a row for each text: "ours" is with the sidecar, "floor" without it."""
    return [await _row(what, text, rounds, runs) for what, text in _TEXTS.items()]


async def _row(what: str, text: str, rounds: int, runs: int) -> Row:
    with_it, without = _code_call(text, enabled=True), _code_call(text, enabled=False)
    samples = Samples(), Samples()

    async def run(code_call: CodeCallToolset) -> None:
        answer = await code_call.execute({"script": SCRIPT})
        assert answer.get("result") == text, answer

    for code_call in (with_it, without):
        await run(code_call)
    for _ in range(rounds):
        for one, code_call in zip(samples, (with_it, without), strict=True):
            one.add(await timed(lambda code_call=code_call: run(code_call), runs, SPARE_READY_SECONDS))
    ours, floor = samples[0].median, samples[1].median
    note = f"the floor is the same script without the sidecar, which takes {floor / ours:.1f} times as long"
    row = Row("W13", what, ours, floor=floor, ratio=ours / floor, note=note)
    row.tail, row.spread = samples[0].tail, samples[0].spread
    row.target, row.met = f"ratio <= {_TARGET}", ours / floor <= _TARGET
    return row
