"""Each error has a kind, which every surface words itself or as a broader one."""

from __future__ import annotations

from typing import Any

from codemode import errors
from codemode.execution import outcome_texts
from codemode.execution.outcome_texts import CODE_CALL_WORDING, MODULE_WORDING, find_error_kind, find_nearest_error_kind

CLASSES: list[type[errors.CodeModeError]] = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.CodeModeError)
]
TABLES: list[Any] = [CODE_CALL_WORDING, MODULE_WORDING, outcome_texts._EXEC_CODES, outcome_texts._HINTS]


def test_every_class_of_error_is_worded_by_every_surface():
    for kind in CLASSES:
        for table in TABLES:
            assert table[find_nearest_error_kind(table, kind("m"))], kind


def test_the_nearest_kind_counts():
    for error, kind, of_modules, code in (
        (errors.CodeModeTimeoutError("m"), "timeout", "timeout", "timeout"),
        (errors.CodeModeTimeoutError("m", details={"late_ms": 5}), "held", "timeout", "timeout"),
        (errors.CodeModeTimeoutError("m", code=errors.CALL_TIMEOUT), "call_timeout", "timeout", "nested_tool_failed"),
        (errors.CodeModeToolError("m", code=errors.CALL_TIMEOUT), "slow_tool", "error", "nested_tool_failed"),
        (errors.CodeModeToolApprovalDeniedError("m"), "denied", "error", "nested_tool_failed"),
        (errors.CodeModeBridgeLimitError("m", details={"limit": "max_timers"}), *["max_timers"] * 2, "internal_error"),
        (errors.CodeModeBridgeLimitError("m", details={"limit": "other"}), "limit", "limit", "internal_error"),
        (errors.CodeModeProtocolError("m", details={"origin": "journal"}), *["journal"] * 2, "internal_error"),
        (errors.CodeModeWorkerError("m", details={"origin": "worker"}), "worker_ended", "worker", "internal_error"),
        (errors.CodeModeError("m", details={"name": "ReferenceError"}), "undefined_name", "error", "internal_error"),
    ):
        found = (
            find_error_kind(error),
            find_nearest_error_kind(MODULE_WORDING, error),
            outcome_texts.find_exec_error_code(error),
        )
        assert found == (kind, of_modules, code), error


def test_a_message_says_none_of_a_detail_that_is_missing():
    wording = CODE_CALL_WORDING["max_bridge_requests"]
    error = errors.CodeModeBridgeLimitError("m", details={"limit": "max_bridge_requests"})
    assert outcome_texts.format_phrase_message(wording, error).endswith("(None)")
