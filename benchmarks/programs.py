"""The programs that are measured, in JavaScript and in the Python of peers that have no JavaScript. Imports nothing."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import Any


@cache
def rows() -> list[dict[str, Any]]:
    """Return what is about 1 MiB of JSON. Made when asked for: it takes 7 ms, which are no part of a cold start."""
    return [{"id": number, "name": f"row {number}", "group": number % 7} for number in range(22_000)]


@dataclass(frozen=True, slots=True)
class Program:
    """One workload. ``runs`` make up one round; in ``python``, CALL(name, key=value) is however a peer calls a tool.

    ``unseen``: every run gets a comment of its own, so that nothing about the text can be remembered.
    """

    name: str
    what: str
    js: str
    python: str
    expected: int
    runs: int
    unseen: bool = False


_SEQUENTIAL_JS = "let n = 0; for (let i = 0; i < COUNT; i++) n += await tools.noop({ n: i }); return n"
_SEQUENTIAL_PYTHON = "total = 0\nfor i in range(COUNT):\n    total += CALL(noop, n=i)\nRESULT(total)"
_COMPUTE_JS = """
const fib = (n) => (n < 2 ? n : fib(n - 1) + fib(n - 2));
const numbers = Array.from({ length: 100000 }, (_, i) => (i * 7919) % 100003);
numbers.sort((x, y) => x - y);
return fib(25) + numbers[5];
"""
_COMPUTE_PYTHON = """
def fib(n):
    return n if n < 2 else fib(n - 1) + fib(n - 2)
numbers = [(i * 7919) % 100003 for i in range(100000)]
numbers.sort()
RESULT(fib(25) + numbers[5])
"""
_PARALLEL_JS = "return (await Promise.all(Array.from({ length: 32 }, (_, i) => tools.noop({ n: i })))).length"
_PARALLEL_PYTHON = "import asyncio\nRESULT(len(await asyncio.gather(*[START(noop, n=i) for i in range(32)])))"
_FILTER_JS = "return (await tools.rows({})).filter((row) => row.group === 3).length"
_FILTER_PYTHON = "found = CALL(rows)\nRESULT(len([row for row in found if row['group'] == 3]))"

PROGRAMS = (
    Program("W1", "return 1", "return 1", "RESULT(1)", 1, 40),
    Program(
        "W2",
        "3 sequential calls",
        _SEQUENTIAL_JS.replace("COUNT", "3"),
        _SEQUENTIAL_PYTHON.replace("COUNT", "3"),
        3,
        40,
    ),
    Program(
        "W2u",
        "the same, never seen before",
        _SEQUENTIAL_JS.replace("COUNT", "3"),
        _SEQUENTIAL_PYTHON.replace("COUNT", "3"),
        3,
        40,
        unseen=True,
    ),
    Program(
        "W3",
        "256 sequential calls",
        _SEQUENTIAL_JS.replace("COUNT", "256"),
        _SEQUENTIAL_PYTHON.replace("COUNT", "256"),
        32640,
        3,
    ),
    Program("W4", "32 calls in Promise.all", _PARALLEL_JS, _PARALLEL_PYTHON, 32, 10),
    Program("W6", "1 MiB of JSON filtered", _FILTER_JS, _FILTER_PYTHON, 3143, 3),
    Program("W7", "fib(25), sort 100,000", _COMPUTE_JS, _COMPUTE_PYTHON, 75030, 1),
)

# Held open until the tool is let go: what memory is measured with.
HOLD_JS = "return await tools.hold({ n: 1 })"
HOLD_PYTHON = "RESULT(CALL(hold, n=1))"


def by_name(name: str) -> Program:
    """Return one workload."""
    return next(program for program in PROGRAMS if program.name == name)


def text_of(text: str, comment: str, serial: int, *, unseen: bool) -> str:
    """Return the program, behind a fresh comment when it is to be unseen."""
    return f"{comment} {serial}\n{text}" if unseen else text
