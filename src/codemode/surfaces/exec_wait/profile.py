"""The profile of exec and wait: a program that may rest, over a hidden catalog."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...options.parts import LargeHeapPolicy
from ...profile import GuestFace, HostErrors, OutputRules, Profile
from .options import ExecWaitOptions

NAME = "execWait"
EXEC, WAIT = "exec", "wait"
GLOBALS = (
    *("catalogTools", "ALL_TOOLS", "MCP", "API", "namespaces"),
    *("console", "text", "json", "content", "yield_control", "setTimeout", "clearTimeout"),
)
LIMIT_NAMES = {
    "timeout_ms": "timeoutMs",
    "memory_limit_bytes": "memoryLimitBytes",
    "max_result_bytes": "maxOutputBytes",
    "max_console_bytes": "maxOutputBytes",
    "max_output_bytes": "maxOutputBytes",
    "max_bridge_requests": "maxToolCalls",
    "max_in_flight_bridge_requests": "maxPendingToolCalls",
}
"""What a model and its host know limits by, where they are options of the pair."""
_FACE = GuestFace(wrapper="sloppy", globals=GLOBALS, result="texts", limit_names=LIMIT_NAMES)
OWN_LIMITS = (
    "timeout_ms",
    "memory_limit_bytes",
    "max_result_bytes",
    "max_console_bytes",
    "max_bridge_requests",
    "max_in_flight_bridge_requests",
    "check_program",
)
"""Of the execution policy, what the options of the pair alone decide."""
_MAX_CATALOG_REQUESTS = 256


def profile_of(options: ExecWaitOptions) -> Profile:
    """Return the profile of a pair with these options, of which a program at rest keeps what it depends on."""
    parameters = {
        "timeout_ms": options.timeout_ms,
        "memory_limit_bytes": options.memory_limit_bytes,
        "max_output_bytes": options.max_output_bytes,
        "max_pending_tool_calls": options.max_pending_tool_calls,
        "max_tool_calls": options.max_tool_calls,
        "host_error_detail": options.host_error_detail,
    }
    return _made(parameters)


def _made(parameters: Mapping[str, Any]) -> Profile:
    options = ExecWaitOptions(**parameters)
    most = options.max_output_bytes
    return Profile(
        name=NAME,
        outer_tool=EXEC,
        guest=_FACE,
        request_kinds=frozenset({"tool", "catalog", "timer", "yield", "state"}),
        limits=LargeHeapPolicy(
            timeout_ms=options.timeout_ms,
            memory_limit_bytes=options.memory_limit_bytes,
            max_result_bytes=most,
            max_console_bytes=most,
            max_bridge_requests=options.max_tool_calls,
            max_in_flight_bridge_requests=options.max_pending_tool_calls,
            max_catalog_requests=_MAX_CATALOG_REQUESTS,
            check_program=False,  # `tools` has other members than there are tools
        ),
        host_errors=HostErrors(detail=options.host_error_detail, in_spans=False),
        output=OutputRules(max_bytes=most),
        has_content=True,
        unawaited="drain",
        at_deadline="rest",
        tells_of_runs=True,
        parameters=dict(parameters),
        restored=_made,
    )
