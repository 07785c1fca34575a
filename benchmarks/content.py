"""A picture of 1 MiB through three tools, against the same program and tools without it.

`python -m benchmarks.content [--rounds N] [--runs N]`
"""

from __future__ import annotations

import argparse
import asyncio
from dataclasses import replace
from functools import partial
from typing import Any

from codemode import CodeModeTool, MediaContent, Tool, create_code_mode_tool

from .measure import Samples, timed
from .table import Row, machine, table

SPARE_READY_SECONDS = 0.005
_TARGET = 1.2
_JS = "const a = await tools.take({}); const b = await tools.turn({ of: a }); return await tools.mark({ of: b });"
_PICTURE = MediaContent(bytes(range(256)) * (1 << 12), "image/png")
_NOTHING = {"kind": "image", "mimeType": "image/png", "bytes": 1 << 20, "name": None}


def _code_mode(of: Any) -> CodeModeTool:
    async def take(_value: Any) -> Any:
        return replace(of) if isinstance(of, MediaContent) else of  # a new one, whose bytes nobody has looked at

    async def hand_on(value: Any) -> Any:
        return value["of"]

    return create_code_mode_tool(
        [Tool("take", execute=take), *(Tool(one, execute=hand_on) for one in ("turn", "mark"))]
    )


async def content_row(rounds: int, runs: int) -> Row:
    """Return the row: "ours" is with the picture, "floor" with a description in its place."""
    with_it, without = _code_mode(_PICTURE), _code_mode(_NOTHING)
    samples = Samples(), Samples()

    async def run(code_mode: CodeModeTool, expected: Any) -> None:
        result = await code_mode.execute({"js": _JS})
        assert result == expected, result

    both = ((with_it, _PICTURE), (without, _NOTHING))
    for code_mode, expected in both:
        await run(code_mode, expected)
    for _ in range(rounds):
        for one, (code_mode, expected) in zip(samples, both, strict=True):
            work = partial(run, code_mode, expected)
            one.add(await timed(work, runs, SPARE_READY_SECONDS))
    ours, floor = samples[0].median, samples[1].median
    row = Row("content", "a picture of 1 MiB through three tools", ours, floor=floor, ratio=ours / floor)
    row.tail, row.spread = samples[0].tail, samples[0].spread
    row.target, row.met = f"ratio <= {_TARGET}", ours / floor <= _TARGET
    return row


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--runs", type=int, default=20)
    given = parser.parse_args()
    row = asyncio.run(content_row(given.rounds, given.runs))
    print(f"{machine()}\n\n{table([row])}")


if __name__ == "__main__":
    main()
