"""The time of one bridge request: how long it may take, and the error for taking longer. Knows no clock."""

from __future__ import annotations

from ..errors import CALL_TIMEOUT, CodeModeError, CodeModeFetchError, CodeModeToolError
from ..options.parts import ExecutionPolicy
from ..protocol.ledger import LedgerEntry
from ..protocol.settings import Settings


def call_timeout_ms(entry: LedgerEntry, settings: Settings, policy: ExecutionPolicy) -> int | None:
    """Return how long a request may take; None: as long as the invocation."""
    if entry.kind == "catalog":
        return None
    if entry.kind in ("fetch", "state") and policy.tool_timeout_ms is None and settings.limits.clock == "program":
        # The client's own limit is the program's: without one, a server or a place could hold the invocation for ever.
        return settings.limits.timeout_ms
    return policy.tool_timeout_ms


def unanswered(entry: LedgerEntry, timeout_ms: int) -> CodeModeError:
    """Return the error for a request that took longer than it may. What has begun may happen all the same."""
    message = f"did not answer within {timeout_ms} ms"
    code = None
    if entry.is_started:
        message += "; it may have happened all the same"
        code = CALL_TIMEOUT
    if entry.kind == "fetch":
        return CodeModeFetchError(f"fetch {message}", code=code, details={"timeout_ms": timeout_ms})
    details = {"tool_name": entry.name, "tool_call_id": entry.tool_call_id, "timeout_ms": timeout_ms}
    error = CodeModeToolError(f"tool {entry.name!r} {message}", code=code, details=details)
    error.reason = "timeout"
    return error
