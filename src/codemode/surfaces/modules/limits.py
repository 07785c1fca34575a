"""The limits of a run: what a model calls them, what the core calls them, and which values there are."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import ClassVar

from ...options.checked_fields import limit
from ...options.part import OptionPart
from ...options.parts import MAX_MEMORY_LIMIT_BYTES, MIB, ExecutionPolicy

WIRE_NAMES: Mapping[str, str] = {
    "timeout_ms": "timeoutMs",
    "max_memory_bytes": "maxMemoryBytes",
    "max_log_bytes": "maxLogBytes",
    "max_tool_calls": "maxToolCalls",
    "max_concurrent_tool_calls": "maxConcurrentToolCalls",
    "max_result_bytes": "maxResultBytes",
}
"""What a request calls each limit, by its option."""

HOST_NAMES: Mapping[str, str] = {
    "timeout_ms": "timeout_ms",
    "max_memory_bytes": "memory_limit_bytes",
    "max_log_bytes": "max_console_bytes",
    "max_tool_calls": "max_bridge_requests",
    "max_concurrent_tool_calls": "max_in_flight_bridge_requests",
    "max_result_bytes": "max_result_bytes",
}
"""What the execution policy calls each limit, by its option."""

SHOWN_NAMES: Mapping[str, str] = {HOST_NAMES[option]: name for option, name in WIRE_NAMES.items()}
"""What a program reads of each limit of the execution policy."""

LEAST: Mapping[str, int] = {option: MIB if option == "max_memory_bytes" else 1 for option in WIRE_NAMES}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunLimits(OptionPart):
    """The limits of one run, or the most that a request may ask for. Times are milliseconds, sizes UTF-8 bytes."""

    path: ClassVar[str] = "limits"

    timeout_ms: int = limit(30_000)
    max_memory_bytes: int = limit(64 * MIB, MAX_MEMORY_LIMIT_BYTES, minimum=MIB)
    max_log_bytes: int = limit(64 * 1024)
    max_tool_calls: int = limit(256)
    max_concurrent_tool_calls: int = limit(32)
    max_result_bytes: int = limit(100_000)

    def policy(self) -> ExecutionPolicy:
        """Return them as the core has them."""
        given = {HOST_NAMES[option]: getattr(self, option) for option in WIRE_NAMES}
        return ExecutionPolicy(**given, in_flight_limit="queue")

    def differing(self) -> dict[str, int]:
        """Return those that are not the default of this surface."""
        return {one.name: getattr(self, one.name) for one in fields(self) if getattr(self, one.name) != one.default}


@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class RunCeilings(RunLimits):
    """The most that a request may ask for."""

    path: ClassVar[str] = "ceilings"

    timeout_ms: int = limit(120_000)
    max_memory_bytes: int = limit(256 * MIB, MAX_MEMORY_LIMIT_BYTES, minimum=MIB)
    max_log_bytes: int = limit(MIB)
    max_tool_calls: int = limit(1_024)
    max_concurrent_tool_calls: int = limit(64)
    max_result_bytes: int = limit(MIB)


def settled(limits: RunLimits, ceilings: RunCeilings) -> tuple[RunLimits, RunCeilings]:
    """Return both as they hold together: who names a limit and no ceiling for it has named the ceiling too.

    Raises `ValueError` for a limit above its ceiling.
    """
    defaults: dict[str, int] = {}
    most: dict[str, int] = {}
    for option in WIRE_NAMES:
        default, ceiling = getattr(limits, option), getattr(ceilings, option)
        if limits.says(option) and ceilings.says(option) and default > ceiling:
            raise ValueError(f"limits.{option} must be at most ceilings.{option} ({ceiling}), got {default}")
        is_alone = limits.says(option) and not ceilings.says(option)
        most[option] = default if is_alone else ceiling
        defaults[option] = min(default, most[option])
    return RunLimits(**defaults), RunCeilings(**most)
