"""``codemode doctor``: what confines programs here, told by a worker itself, and whether it holds."""

from __future__ import annotations

import argparse
import asyncio
import platform
import sys
from importlib import metadata

from ..errors import CodeModeError
from ..options.parts import PoolOptions
from ..trace.visible_text import aligned, visible
from ..workers.image import ENGINE_DISTRIBUTION, PARSER_PACKAGES, engine_location
from ..workers.pool import WorkerPool
from ..workers.supply import REQUIRED_LAYERS, IsolationReport, missing_required
from .exits import DONE, FAILED
from .self_test import Outcome, run_checks


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
        return f"{ENGINE_DISTRIBUTION} {engine_location()[1]}"
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
    if required and report is not None and (missing := missing_required(report)):
        problems.append("required layers missing: " + ", ".join(layer.name for layer in missing))
    return problems


def _dashed(name: str) -> str:
    return name.replace("_", "-")


def _version(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
