"""Which outcome is which status, and which is raised: decided by where an error arose, not by its words."""

from __future__ import annotations

from typing import Any

import pytest
from suite import each_row

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
)
from codemode.errors import (
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeDetachedBridgeRequestError,
    CodeModeIllegalAccessError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeWorkerError,
)
from codemode.execution.outcome import RunOutcome
from codemode.surfaces.code_call.result import to_result_or_raise_host_error

PLACE = {"line": 1, "column": 2}
VIOLATION = {"kind": "DisallowedLoop", "name": "while", "location": PLACE}
CALL = {"toolName": "t", "toolInput": 1, "message": "m", "code": "C"}
ALL = (
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeDetachedBridgeRequestError,
    CodeModeError,
    CodeModeIllegalAccessError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeTimeoutError,
    CodeModeToolError,
    CodeModeWorkerError,
)


def answer_to(error: CodeModeError) -> Any:
    return to_result_or_raise_host_error(RunOutcome("failed", "outer", error=error, warnings=("w",)), None)


@each_row(
    "error",
    [
        CodeModeAbortedError("m"),
        CodeModeConcurrencyError("m"),
        CodeModeProtocolError("m"),
        CodeModeWorkerError("no worker"),
        CodeModeWorkerError("m", details={"origin": "start"}),
    ],
)
def test_the_hosts_own_trouble_is_raised(error: CodeModeError):
    with pytest.raises(type(error)) as caught:
        answer_to(error)
    assert caught.value is error


@each_row(
    "error, status",
    [
        (CodeModeWorkerError("m", details={"origin": "worker"}), "runtime_error"),
        (CodeModeTimeoutError("m"), "timeout"),
        (CodeModeSyntaxError("m", details=PLACE), "syntax_error"),
        (CodeModeSourceTooLargeError("m", details={"bytes": 5, "max_bytes": 4}), "syntax_error"),
        (CodeModeIllegalAccessError("m", details={"violations": [VIOLATION], **PLACE}), "illegal_access"),
        (CodeModeError("m", details={"name": "TypeError", "stack": "s"}), "runtime_error"),
        (CodeModeError("m", code="CODE_MODE_DEADLOCK"), "runtime_error"),
        (CodeModeSerializationError("m"), "runtime_error"),
        (CodeModeBridgeLimitError("m"), "runtime_error"),
        (CodeModeDetachedBridgeRequestError("m"), "runtime_error"),
    ],
)
def test_all_else_that_a_script_comes_to_is_a_status(error: CodeModeError, status: str):
    answer = answer_to(error)
    assert (answer["status"], answer["warnings"]) == (status, ["w"])
    assert answer.exception is error


def test_a_name_that_no_script_has_is_answered_with_how_tools_are_called():
    missing = CodeModeError("tools is not defined", details={"name": "ReferenceError", "stack": "s"})
    assert "`await callTool(name, input)`" in answer_to(missing)["error"]["hint"]
    assert "hint" not in answer_to(CodeModeError("not a function", details={"name": "TypeError"}))["error"]


@each_row("kind", ALL)
def test_the_error_of_a_call_is_its_own_status_whatever_class_it_has(kind: type[CodeModeError]):
    answer = answer_to(kind("m", details={"call": {**CALL, "details": {"a": 1}}, "ran": object()}))
    assert answer["status"] == "tool_error"
    assert answer["error"] == {"source": "tool", **CALL, "details": {"a": 1}}


@each_row("kind", ALL)
@each_row("code", [None, "LIMIT"])
def test_a_call_that_was_one_too_many_is_known_by_class_and_code(kind: type[CodeModeError], code: str | None):
    """Of what a tool raises the face's code is another than LIMIT wherever the class has its own default."""
    answer = answer_to(kind("m", code=code, details={"call": {**CALL, "code": "LIMIT"}}))
    is_ours = kind is CodeModeBridgeLimitError and code is None
    assert answer["status"] == ("runtime_error" if is_ours else "tool_error")
