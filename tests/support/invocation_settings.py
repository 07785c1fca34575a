"""The settings of an invocation in tests that need no host: small limits, and nothing by chance."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from codemode.options.parts import ExecutionPolicy
from codemode.protocol.settings import InvocationSettings
from codemode.surfaces.code_mode.outcome import CODE_MODE

NOW_MS = 1_700_000_000_000
SETTINGS = InvocationSettings(
    outer_tool_call_id="outer",
    salt="5a17",
    seed="5eed",
    started_ms=NOW_MS,
    limits=ExecutionPolicy(
        timeout_ms=1000,
        max_result_bytes=1000,
        max_tool_input_bytes=1000,
        max_bridge_requests=10,
        max_in_flight_bridge_requests=10,
        max_catalog_requests=10,
        max_console_bytes=1000,
        max_ledger_bytes=1 << 20,
        memory_limit_bytes=1 << 20,
        max_stack_size_bytes=1 << 18,
    ),
    profile=CODE_MODE,
)


def limited(settings: InvocationSettings, **limits: Any) -> InvocationSettings:
    """Return the same settings with other limits."""
    return replace(settings, limits=replace(settings.limits, **limits))
