"""``codemode doctor``: what confines programs here, told by a worker itself, and whether it holds."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ..errors import CodeModeError, CodeModeProtocolError, CodeModeTimeoutError, CodeModeWorkerError
from ..options.parts import PoolOptions
from ..surfaces.code_mode.program import run_code_mode
from ..trace.visible_text import aligned, one_line, visible
from ..workers.image import ENGINE_DISTRIBUTION, PARSER_PACKAGES, find_engine
from ..workers.pool import WorkerPool
from ..workers.supply import REQUIRED_LAYERS, IsolationReport, find_missing_layers
from .exits import DONE, FAILED

_MAX_PROBLEM_CHARACTERS = 300
_CHECK_SECONDS = 20.0
_SHORT_MS = 300


@dataclass(frozen=True, slots=True)
class Check:
    """A program and what must come of it: a JSON value, or an error of a class."""

    name: str
    js: str
    expected: Any
    timeout_ms: int = 5000


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a check ended; ``problem`` None: as it must."""

    name: str
    ms: float
    problem: str | None


_REACHES_OUT = """
const reached = [];
for (const name of ["require", "process", "std", "os", "Deno", "Bun", "eval", "Function"]) {
  try {
    const found = globalThis[name];
    if (typeof found === "function") { found("1"); reached.push(name); }
    else if (found !== undefined && found !== null) reached.push(name);
  } catch (error) {}
}
for (const made of [() => 1, async () => 1, function* () {}, async function* () {}]) {
  try { made.constructor("return 1"); reached.push("a constructor of functions"); } catch (error) {}
}
return reached;
"""

CHECKS = (
    Check("returns a value", "return 1 + 1", 2),
    Check("has its types stripped", "const n: number = 2 as number; return n satisfies number", 2),
    Check("calls tools in parallel", "return await Promise.all([1, 2].map((n) => tools.double({ n })))", [2, 4]),
    Check("sees no host error", "try { await tools.fail() } catch (e) { return e.message }", "the tool failed"),
    Check("hostile: finds no way out", _REACHES_OUT, []),
    Check("hostile: imports a module", "return await import('os')", CodeModeError),
    Check("hostile: loops for ever", "for (;;);", CodeModeTimeoutError, timeout_ms=_SHORT_MS),
    Check("hostile: takes all memory", "const a = []; for (;;) a.push(new Array(10000).fill(1));", CodeModeError),
    Check("hostile: recurses for ever", "const f = () => f() + 1; return f();", CodeModeError),
    Check(
        "hostile: changes built-ins", "try { Array.prototype.map = null } catch (e) {} globalThis.x = 1; return 1", 1
    ),
    Check("next one finds no trace", "return [typeof [].map, typeof globalThis.x]", ["function", "undefined"]),
)


async def run_checks(pool: WorkerPool) -> list[Outcome]:
    """Run every check, one after the other."""
    return [await _run(check, pool) for check in CHECKS]


async def _run(check: Check, pool: WorkerPool) -> Outcome:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_CHECK_SECONDS):
            ended = await _end(check, pool)
    except TimeoutError:
        ended = f"no end within {_CHECK_SECONDS} seconds"
    ms = (time.perf_counter() - started) * 1000
    return Outcome(check.name, ms, None if _is_expected(ended, check.expected) else _described(ended))


async def _end(check: Check, pool: WorkerPool) -> Any:
    # A failure that is meant belongs in no log: a hook that hears of results stands in for it.
    lifecycle = {"on_nested_tool_result": _ignore}
    options = {"execution_policy": {"timeout_ms": check.timeout_ms}, "lifecycle": lifecycle}
    try:
        return await run_code_mode(check.js, [double, fail], options=options, pool=pool)
    except CodeModeError as error:
        return error


def _is_expected(ended: Any, expected: Any) -> bool:
    if isinstance(expected, type):
        # A sandbox that does not start stops nothing.
        return isinstance(ended, expected) and not isinstance(ended, CodeModeWorkerError | CodeModeProtocolError)
    return ended == expected


def _described(ended: Any) -> str:
    if isinstance(ended, CodeModeError):
        return one_line(f"{type(ended).__name__}: {ended.message}", _MAX_PROBLEM_CHARACTERS)
    return one_line(f"gave {ended!r}", _MAX_PROBLEM_CHARACTERS)


def _ignore(_result: object) -> None:
    pass


async def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


async def fail() -> None:
    """A tool that never works."""
    raise RuntimeError("a host path or a secret")


def doctor(options: argparse.Namespace) -> int:
    """Print the findings; the exit code says whether all is well."""
    pool = WorkerPool(PoolOptions(start_method=options.start_method))
    try:
        outcomes = asyncio.run(run_checks(pool))
        report = pool.isolation
    finally:
        pool.close()
    print("\n".join(aligned(_facts(options.start_method))))
    print("\nIsolation of a worker, as it reports it itself")
    print("\n".join("  " + line for line in _isolation(report)))
    print("\nSelf-test")
    print("\n".join("  " + line for line in aligned(map(_row, outcomes))))
    problems = _problems(outcomes, report, required=options.required)
    print("\n" + ("All is well." if not problems else "Not well: " + "; ".join(problems)))
    return FAILED if problems else DONE


def _facts(start_method: str) -> list[tuple[str, str]]:
    return [
        ("codemode", _version("codemode-toolkit")),
        ("platform", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("engine", _engine()),
        ("parser", ", ".join(f"{_dashed(name)} {_version(_dashed(name))}" for name in PARSER_PACKAGES)),
        ("start method", _start_method(start_method)),
    ]


def _engine() -> str:
    try:
        return f"{ENGINE_DISTRIBUTION} {find_engine()[1]}"
    except CodeModeError as error:
        return error.message


def _start_method(asked: str) -> str:
    forks = asked != "exec" and sys.platform == "linux"
    return "fork, from a locked-down zygote" if forks else "exec, spare workers ahead of need"


def _isolation(report: IsolationReport | None) -> list[str]:
    if report is None:
        return ["not known: no worker started"]
    rows = [(layer.name, _needed(layer.name), str(layer.state), visible(layer.detail)) for layer in report.layers]
    return aligned(rows)


def _needed(layer: str) -> str:
    return "required" if layer in REQUIRED_LAYERS else "further"


def _row(outcome: Outcome) -> tuple[str, str, str, str]:
    return "ok" if outcome.problem is None else "FAILED", outcome.name, f"{outcome.ms:7.1f} ms", outcome.problem or ""


def _problems(outcomes: list[Outcome], report: IsolationReport | None, *, required: bool) -> list[str]:
    failed = sum(outcome.problem is not None for outcome in outcomes)
    problems = [f"{failed} of {len(outcomes)} checks failed"] if failed else []
    if required and report is not None and (missing := find_missing_layers(report)):
        problems.append("required layers missing: " + ", ".join(layer.name for layer in missing))
    return problems


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
