"""The programs that are measured, and their tools: async no-ops with validated inputs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from codemode import Tool, create_code_mode_tool
from codemode.code_mode_tool import CodeModeTool

_ROWS = [{"id": number, "name": f"row {number}", "group": number % 7} for number in range(22_000)]


async def noop(n: int) -> int:
    """Return what was given."""
    return n


async def rows() -> list[dict[str, Any]]:
    """Return about 1 MiB of JSON."""
    return _ROWS


# What the same tools are for the bare engine.
PLAIN_TOOLS: dict[str, Callable[[Any], Any]] = {"noop": lambda value: value["n"], "rows": lambda _: _ROWS}


@dataclass(frozen=True, slots=True)
class Workload:
    """One program. ``runs`` is how many make up one measurement."""

    name: str
    what: str
    js: str
    runs: int


_SEQUENTIAL = "let n = 0; for (let i = 0; i < COUNT; i++) n += await tools.noop({ n: i }); return n"
_COMPUTE = """
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
const numbers = Array.from({ length: 100000 }, (_, i) => (i * 7919) % 100003);
numbers.sort((x, y) => x - y);
return fib(25) + numbers[5];
"""

WORKLOADS = (
    Workload("W1", "return 1", "return 1", 40),
    Workload("W2", "3 sequential calls", _SEQUENTIAL.replace("COUNT", "3"), 40),
    Workload("W3", "256 sequential calls", _SEQUENTIAL.replace("COUNT", "256"), 3),
    Workload(
        "W4",
        "32 calls in Promise.all",
        "return (await Promise.all(Array.from({ length: 32 }, (_, i) => tools.noop({ n: i })))).length",
        10,
    ),
    Workload("W6", "1 MiB of JSON filtered", "return (await tools.rows()).filter((row) => row.group === 3).length", 3),
    Workload(
        "W7",
        "fib(25), sort 100,000",
        _COMPUTE,
        1,
    ),
)  # fmt: skip


def code_mode_tool() -> CodeModeTool:
    """Return codeMode over the tools."""
    return create_code_mode_tool([noop, Tool("rows", execute=rows)])
