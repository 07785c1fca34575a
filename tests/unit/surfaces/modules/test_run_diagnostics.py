"""What runs come to, as diagnostics: each code of the table, errors first, with a hint, and nothing of the host."""

from __future__ import annotations

import json
from typing import Any

from suite import each_row

from codemode import (
    CodeModeAbortedError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeTimeoutError,
    CodeModeToolError,
    ExecutionPolicy,
)
from codemode.errors import (
    CallSummary,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeIllegalAccessError,
    CodeModeSerializationError,
    CodeModeSourceTooLargeError,
    CodeModeSyntaxError,
    CodeModeWorkerError,
)
from codemode.execution.outcome import RunOutcome
from codemode.surfaces.modules.diagnostics import build_diagnostics, build_response, redact_diagnostics
from codemode.surfaces.modules.response import build_refusal_response, create_diagnostic, sort_and_limit_diagnostics

LIMITS = ExecutionPolicy(memory_limit_bytes=1 << 21, max_stack_size_bytes=1 << 20)
AT = {"line": 3, "column": 7}
SENTENCES = {
    "worker": "the worker ended without a result: /srv/worker died, signal 9",
    "syntax": "line 3, column 7: unexpected token",
}


def problems(*said: dict[str, Any]) -> CodeModeSyntaxError:
    return CodeModeSyntaxError(SENTENCES["syntax"], details={"problems": [*said], **AT})


def call(error_class: str, **fields: Any) -> dict[str, Any]:
    return {"call": {"class": error_class, "code": "X", "message": "no", "hint": "Do this.", **fields}, **AT}


def of(error: CodeModeError) -> list[Any]:
    return build_diagnostics(RunOutcome("failed", "outer", error=error), LIMITS)


TABLE: dict[str, tuple[CodeModeError, dict[str, Any]]] = {
    "syntax": (
        problems({"message": "unexpected token", **AT}),
        {"code": "SYNTAX_ERROR", "message": "unexpected token", "path": "3:7"},
    ),
    "import": (
        problems({"code": "IMPORT_FAILURE", "message": "no module", "hint": "Import x.", "error_class": None, **AT}),
        {"code": "IMPORT_FAILURE", "hint": "Import x.", "path": "3:7"},
    ),
    "tool": (
        problems({"code": "TOOL_NOT_FOUND", "message": "no", "hint": "y", "error_class": "ToolNotFoundError", **AT}),
        {"code": "TOOL_NOT_FOUND", "errorClass": "ToolNotFoundError"},
    ),
    "not analysable": (CodeModeIllegalAccessError("no", details=AT), {"code": "NOT_ANALYSABLE", "path": "3:7"}),
    "source": (
        CodeModeSourceTooLargeError("no", details={"bytes": 12, "max_bytes": 10}),
        {"code": "SANDBOX_LIMIT", "message": "code has 12 bytes; at most 10 are allowed"},
    ),
    "time": (
        CodeModeTimeoutError("no", details={"timeout_ms": 1_000}),
        {"code": "SANDBOX_LIMIT", "message": "the program did not end in time: timeoutMs is 1000"},
    ),
    "calls": (
        CodeModeBridgeLimitError("no", details={"limit": "max_bridge_requests", "max": 5, **AT}),
        {"code": "SANDBOX_LIMIT", "message": "maxToolCalls is 5, and the program made 6 calls", "path": "3:7"},
    ),
    "calls at once": (
        CodeModeBridgeLimitError("no", details={"limit": "max_in_flight_bridge_requests", "max": 5}),
        {"code": "SANDBOX_LIMIT", "message": "maxConcurrentToolCalls is 5, and the program made 6 calls at once"},
    ),
    "memory": (
        CodeModeError("out of memory", details={"name": "InternalError", **AT}),
        {"code": "SANDBOX_LIMIT", "path": "3:7", "errorClass": "SandboxLimitError"},
    ),
    "stack": (
        CodeModeError("Maximum call stack size exceeded", details={"name": "RangeError", **AT}),
        {"code": "SANDBOX_LIMIT", "message": "the program has used all of its call stack of 1048576 bytes"},
    ),
    "a limit that the program threw": (
        CodeModeError("too many timers", details={"error_class": "SandboxLimitError", "fields": {"hint": "h"}, **AT}),
        {"code": "SANDBOX_LIMIT", "message": "too many timers", "hint": "h", "errorClass": "SandboxLimitError"},
    ),
    "result too large": (
        CodeModeSerializationError("no", details={"bytes": 12, "max_bytes": 10}),
        {"code": "RESULT_TOO_LARGE", "message": "the result has 12 bytes; maxResultBytes is 10"},
    ),
    "result": (CodeModeSerializationError("the program's result is not JSON: a cycle"), {"code": "RESULT_NOT_JSON"}),
    "deadlock": (CodeModeError("waits", code="CODE_MODE_DEADLOCK"), {"code": "DEADLOCK"}),
    "cancelled": (CodeModeAbortedError("no"), {"code": "CANCELLED"}),
    "a claim that was lost": (
        CodeModeAbortedError("no", details={"origin": "continuation"}),
        {
            "code": "CANCELLED",
            "message": "this host was suspended, and another one runs the program",
            "hint": "Do not run the program again: tell the user, or send the same answers again for its outcome.",
        },
    ),
    "worker": (CodeModeWorkerError(SENTENCES["worker"]), {"code": "WORKER_FAILED"}),
    "protocol": (CodeModeProtocolError("frame at /x"), {"code": "WORKER_FAILED"}),
    "busy": (CodeModeConcurrencyError("no"), {"code": "BUSY"}),
    "thrown": (
        CodeModeError("no good", details={"name": "TypeError", "stack": "at /x", **AT}),
        {"code": "UNCAUGHT_EXCEPTION", "message": "TypeError: no good", "path": "3:7"},
    ),
    "thrown, no error": (CodeModeError("5", details={"name": ""}), {"code": "UNCAUGHT_EXCEPTION", "message": "5"}),
    "a call": (
        CodeModeToolError("host's", details=call("ToolCallError")),
        {
            "code": "UNCAUGHT_EXCEPTION",
            "message": "ToolCallError: no",
            "hint": "Do this.",
            "path": "3:7",
            "errorClass": "ToolCallError",
        },
    ),
    "a wrong input": (
        CodeModeToolError("host's", details=call("SchemaValidationError", path="/title")),
        {"code": "UNCAUGHT_EXCEPTION", "path": "/title", "errorClass": "SchemaValidationError"},
    ),
    "an import at run time": (
        CodeModeToolError("host's", details=call("ServerNotFoundError", code="IMPORT_FAILURE")),
        {"code": "IMPORT_FAILURE", "errorClass": "ServerNotFoundError"},
    ),
    "a class of ours, thrown": (
        CodeModeError("m", details={"name": "x", "error_class": "ToolCallError", "fields": {"message": "m2"}, **AT}),
        {"code": "UNCAUGHT_EXCEPTION", "message": "ToolCallError: m2", "errorClass": "ToolCallError"},
    ),
    "a class that is none of ours": (
        CodeModeError("m", details={"name": "Evil", "error_class": "Evil", "fields": {"code": "IMPORT_FAILURE"}}),
        {"code": "UNCAUGHT_EXCEPTION", "message": "Evil: m"},
    ),
    "a call that raised an error of ours": (
        CodeModeTimeoutError("no", details=call("ToolCallError")),
        {"code": "UNCAUGHT_EXCEPTION", "errorClass": "ToolCallError"},
    ),
}


@each_row("name", TABLE)
def test_each_error_has_its_code(name: str):
    error, expected = TABLE[name]
    [said] = of(error)
    assert {key: said[key] for key in expected} == expected
    assert said["severity"] == "error"
    assert said["hint"]
    if "errorClass" not in expected and expected["code"] != "SANDBOX_LIMIT":
        assert "errorClass" not in said
    assert all(hidden not in json.dumps(said) for hidden in ("/srv", "/x", "signal", "host's"))


def test_all_problems_are_told():
    said = of(problems(*({"code": "IMPORT_FAILURE", "message": f"no {at}", "line": at, "column": 1} for at in (1, 2))))
    assert [one["path"] for one in said] == ["1:1", "2:1"]


def summary(name: str, status: Any, *, started: bool = True) -> CallSummary:
    return {"id": name, "name": name, "status": status, "is_started": started}


def test_calls_that_were_cut_off_are_told_of():
    error = CodeModeTimeoutError("no", details={"timeout_ms": 5})
    error.calls = (
        summary("a.done", "fulfilled"),
        summary("a.sent", "unknown"),
        summary("a.not", "unknown", started=False),
    )
    said = of(error)
    assert [one["code"] for one in said] == ["SANDBOX_LIMIT", "OUTCOME_UNKNOWN"]
    assert "a.sent" in said[1]["message"]
    assert "a.not" not in said[1]["message"]
    assert said[0]["message"].endswith("\nAlready done, do not repeat: a.done")


def test_abandoned_calls_are_a_warning_beside_the_result():
    abandoned: Any = tuple({"id": str(at), "kind": "tool", "name": f"a.t{at}", "status": "pending"} for at in range(7))
    outcome = RunOutcome("completed", "outer", value={"x": 1}, abandoned=abandoned)
    said = build_diagnostics(outcome, LIMITS)
    assert [(one["code"], one["severity"]) for one in said] == [("CALL_NOT_AWAITED", "warning")]
    assert "a.t0, a.t1, a.t2, a.t3, a.t4 and 2 more" in said[0]["message"]
    response = build_response(outcome, said)
    assert (response["result"], response.exception) == ({"x": 1}, None)


def test_an_abandoned_import_is_named_as_programs_write_it():
    abandoned: Any = ({"id": "1", "kind": "catalog", "name": "importServer", "status": "unsent"},)
    (said,) = build_diagnostics(RunOutcome("completed", "outer", abandoned=abandoned), LIMITS)
    assert said["message"].endswith(": import()")


def test_errors_stand_before_warnings_before_infos_each_once():
    given = [create_diagnostic(severity, severity, "m") for severity in ("info", "warning", "error", "info", "warning")]
    assert [one["severity"] for one in sort_and_limit_diagnostics(given)] == ["error", "warning", "info"]


def test_secrets_and_long_texts_stay_out():
    error = CodeModeError("hunter2 " + "x" * 10_000, details={"name": "hunter2"})
    [said] = sort_and_limit_diagnostics(redact_diagnostics(of(error), ("hunter2",)))
    assert "hunter2" not in json.dumps(said)
    assert len(said["message"]) <= 4_000
    for size in range(3_980, 4_005):  # nor is one cut open where the text is
        error = CodeModeError("x" * size + "hunter2", details={"name": "E"})
        [said] = sort_and_limit_diagnostics(redact_diagnostics(of(error), ("hunter2",)))
        assert "hun" not in said["message"]


def test_after_an_error_there_is_no_result_and_the_host_has_the_error():
    error = CodeModeError("no", details={"name": "Error"})
    outcome = RunOutcome("failed", "outer", value={"x": 1}, error=error)
    response = build_response(outcome, build_diagnostics(outcome, LIMITS))
    assert (response["result"], response["logs"]) == (None, [])
    assert response.exception is error
    assert json.loads(json.dumps(response)) == response
    assert "toolTrace" not in response


def test_a_refused_request_has_all_of_an_answer():
    assert build_refusal_response([create_diagnostic("error", "BAD_REQUEST", "no")]) == {
        "logs": [],
        "result": None,
        "diagnostics": [{"severity": "error", "code": "BAD_REQUEST", "message": "no"}],
    }


def test_half_a_pair_that_a_request_named_can_be_sent_on():
    said = sort_and_limit_diagnostics([create_diagnostic("warning", "X", "no \ud800", hint="\udfff", path="/\ud800")])
    assert json.dumps(said, ensure_ascii=False).encode()
    assert said[0]["message"] == "no \ufffd"
