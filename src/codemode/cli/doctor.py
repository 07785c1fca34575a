"""``codemode doctor``: reports which isolation layers hold here, measured by a worker."""

from __future__ import annotations

import argparse
import asyncio
import json
import platform
import sys
import time
from dataclasses import dataclass
from importlib import metadata
from typing import Any

from ..errors import CodeModeError, CodeModeProtocolError, CodeModeTimeoutError, CodeModeWorkerError
from ..options.parts import PoolOptions
from ..surfaces.code_mode.program import run_code_mode
from ..trace.visible_text import align_columns, clip_to_visible_line, escape_invisible
from ..workers.image import ENGINE_DISTRIBUTION, PARSER_PACKAGES, find_engine
from ..workers.pool import WorkerPool
from ..workers.supply import REQUIRED_LAYERS, IsolationReport, find_missing_required_layers
from .exits import FAILED, SUCCEEDED, show_text_if_slow

_MAX_PROBLEM_CHARACTERS = 300
_MAX_CHECK_SECONDS = 20.0
_SHORT_TIMEOUT_MS = 300


@dataclass(frozen=True, slots=True)
class SelfTest:
    """A program and what must come of it: a JSON value, or an error of a class."""

    name: str
    js: str
    expected: Any
    timeout_ms: int = 5000


@dataclass(frozen=True, slots=True)
class SelfTestOutcome:
    """How a check ended; ``problem`` None: as it must."""

    name: str
    duration_ms: float
    problem: str | None


_ESCAPE_PROGRAM = """
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

SELF_TESTS = (
    SelfTest("returns a value", "return 1 + 1", 2),
    SelfTest("has its types stripped", "const n: number = 2 as number; return n satisfies number", 2),
    SelfTest("calls tools in parallel", "return await Promise.all([1, 2].map((n) => tools.double({ n })))", [2, 4]),
    SelfTest("sees no host error", "try { await tools.fail() } catch (e) { return e.message }", "the tool failed"),
    SelfTest("hostile: finds no way out", _ESCAPE_PROGRAM, []),
    SelfTest("hostile: imports a module", "return await import('os')", CodeModeError),
    SelfTest("hostile: loops for ever", "for (;;);", CodeModeTimeoutError, timeout_ms=_SHORT_TIMEOUT_MS),
    SelfTest("hostile: takes all memory", "const a = []; for (;;) a.push(new Array(10000).fill(1));", CodeModeError),
    SelfTest("hostile: recurses for ever", "const f = () => f() + 1; return f();", CodeModeError),
    SelfTest(
        "hostile: changes built-ins", "try { Array.prototype.map = null } catch (e) {} globalThis.x = 1; return 1", 1
    ),
    SelfTest("next one finds no trace", "return [typeof [].map, typeof globalThis.x]", ["function", "undefined"]),
)


async def run_self_tests(pool: WorkerPool) -> list[SelfTestOutcome]:
    """Run every check, one after the other."""
    with show_text_if_slow(f"running {len(SELF_TESTS)} self-tests ..."):
        return [await _run_self_test(check, pool) for check in SELF_TESTS]


async def _run_self_test(check: SelfTest, pool: WorkerPool) -> SelfTestOutcome:
    started = time.perf_counter()
    try:
        async with asyncio.timeout(_MAX_CHECK_SECONDS):
            result = await _run_self_test_program(check, pool)
    except TimeoutError:
        result = f"no end within {_MAX_CHECK_SECONDS} seconds"
    ms = (time.perf_counter() - started) * 1000
    return SelfTestOutcome(
        check.name, ms, None if _is_expected_result(result, check.expected) else _describe_result(result)
    )


async def _run_self_test_program(check: SelfTest, pool: WorkerPool) -> Any:
    # A failure that is meant belongs in no log: a hook that hears of results stands in for it.
    lifecycle = {"on_nested_tool_result": _ignore_result}
    options = {"execution_policy": {"timeout_ms": check.timeout_ms}, "lifecycle": lifecycle}
    try:
        return await run_code_mode(check.js, [double, fail], options=options, pool=pool)
    except CodeModeError as error:
        return error


def _is_expected_result(result: Any, expected: Any) -> bool:
    if isinstance(expected, type):
        # A sandbox that does not start stops nothing.
        return isinstance(result, expected) and not isinstance(result, CodeModeWorkerError | CodeModeProtocolError)
    return result == expected


def _describe_result(result: Any) -> str:
    if isinstance(result, CodeModeError):
        return clip_to_visible_line(f"{type(result).__name__}: {result.message}", _MAX_PROBLEM_CHARACTERS)
    return clip_to_visible_line(f"gave {result!r}", _MAX_PROBLEM_CHARACTERS)


def _ignore_result(_result: object) -> None:
    pass


async def double(n: int) -> int:
    """Twice the number."""
    return 2 * n


async def fail() -> None:
    """A tool that never works."""
    raise RuntimeError("a host path or a secret")


def run_doctor(options: argparse.Namespace) -> int:
    """Print the findings; the exit code says whether all is well."""
    pool = WorkerPool(PoolOptions(start_method=options.start_method))
    try:
        outcomes = asyncio.run(run_self_tests(pool))
        report = pool.isolation
    finally:
        pool.close()
    problems = _list_problems(outcomes, report, required=options.required)
    if options.json:
        print(json.dumps(_create_json_report(_list_platform_facts(options.start_method), report, outcomes, problems)))
        return FAILED if problems else SUCCEEDED
    print("\n".join(align_columns(_list_platform_facts(options.start_method))))
    print("\nIsolation of a worker, by its own report")
    print("\n".join("  " + line for line in _format_isolation(report)))
    print("\nSelf-test")
    print("\n".join("  " + line for line in align_columns(map(_format_outcome, outcomes))))
    print("\n" + ("All is well." if not problems else "Not well: " + "; ".join(problems)))
    return FAILED if problems else SUCCEEDED


def _create_json_report(
    facts: list[tuple[str, str]], report: IsolationReport | None, outcomes: list[SelfTestOutcome], problems: list[str]
) -> dict[str, Any]:
    layers = () if report is None else report.layers
    return {
        "facts": dict(facts),
        "layers": [
            {
                "name": layer.name,
                "required": layer.name in REQUIRED_LAYERS,
                "state": str(layer.state),
                "detail": layer.detail,
            }
            for layer in layers
        ],
        "checks": [
            {"name": outcome.name, "ok": outcome.problem is None, "ms": outcome.duration_ms, "problem": outcome.problem}
            for outcome in outcomes
        ],
        "problems": problems,
    }


def _list_platform_facts(start_method: str) -> list[tuple[str, str]]:
    return [
        ("codemode", _read_version("codemode-toolkit")),
        ("platform", f"{platform.system()} {platform.release()} {platform.machine()}"),
        ("Python", f"{platform.python_implementation()} {platform.python_version()}"),
        ("engine", _describe_engine()),
        (
            "parser",
            ", ".join(
                f"{_to_distribution_name(name)} {_read_version(_to_distribution_name(name))}"
                for name in PARSER_PACKAGES
            ),
        ),
        ("start method", _describe_start_method(start_method)),
    ]


def _describe_engine() -> str:
    try:
        return f"{ENGINE_DISTRIBUTION} {find_engine()[1]}"
    except CodeModeError as error:
        return error.message


def _describe_start_method(requested: str) -> str:
    forks = requested != "exec" and sys.platform == "linux"
    return "fork, from a locked-down zygote" if forks else "exec, spare workers ahead of need"


def _format_isolation(report: IsolationReport | None) -> list[str]:
    if report is None:
        return ["unknown: no worker started"]
    rows = [
        (layer.name, _describe_layer_need(layer.name), str(layer.state), escape_invisible(layer.detail))
        for layer in report.layers
    ]
    return align_columns(rows)


def _describe_layer_need(layer: str) -> str:
    return "required" if layer in REQUIRED_LAYERS else "further"


def _format_outcome(outcome: SelfTestOutcome) -> tuple[str, str, str, str]:
    return (
        "ok" if outcome.problem is None else "FAILED",
        outcome.name,
        f"{outcome.duration_ms:7.1f} ms",
        outcome.problem or "",
    )


def _list_problems(outcomes: list[SelfTestOutcome], report: IsolationReport | None, *, required: bool) -> list[str]:
    failed = sum(outcome.problem is not None for outcome in outcomes)
    problems = [f"{failed} of {len(outcomes)} checks failed"] if failed else []
    if required and report is not None and (missing := find_missing_required_layers(report)):
        problems.append("required layers missing: " + ", ".join(layer.name for layer in missing))
    return problems


def _to_distribution_name(name: str) -> str:
    return name.replace("_", "-")


def _read_version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
