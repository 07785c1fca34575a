"""Convert the outcome of a CodeCall run to one of six statuses; raise host errors."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from ...data.narrowing import is_object, is_sequence, list_or_empty, mapping_or_empty, string_or_empty
from ...errors import (
    CALL_TIMEOUT,
    CodeModeAbortedError,
    CodeModeBridgeLimitError,
    CodeModeConcurrencyError,
    CodeModeError,
    CodeModeProtocolError,
    CodeModeSerializationError,
    CodeModeWorkerError,
    Resumable,
    to_guest_error_fields,
)
from ...execution.large_results import replace_if_too_large
from ...execution.outcome_texts import (
    CODE_CALL_WORDING,
    describe_calls,
    describe_missing_result,
    describe_unhandled_failures,
    exclude_last_failed_call,
    find_nearest_error_kind,
    format_phrase_message,
)
from ...options.parts import MAX_SOURCE_BYTES, ExecutionPolicy
from ...profile import GuestSettings, HostErrorRules, LargeStringRules, StaticRules, SurfaceSettings
from ...source.program_input import make_language_hint_for_error
from ...trace.trace import Trace
from .names import format_meta_tool_name
from .options import PRESETS, CodeCallOptions, SidecarOptions, VmOptions

if TYPE_CHECKING:
    from ...execution.outcome import RunOutcome


PROFILE_NAME = "codeCall"
ANALYSIS_MS = 1000
TOOL_ERROR_CODES: Mapping[str, str] = {
    "unknown_tool": "UnknownTool",
    "access_denied": "ACCESS_DENIED",
    "self_reference": "SELF_REFERENCE",
    "validation": "VALIDATION",
    "output": "EXECUTION",
    "timeout": "TIMEOUT",
    "approval_denied": "APPROVAL_DENIED",
    "approval_required": "APPROVAL_REQUIRED",
    "limit": "LIMIT",
    "execution": "EXECUTION",
}
"""The error code that a script reads for a failed call, by the reason of the error."""
_GLOBALS = ("callTool", "getTool", "codecallContext", "mcpLog", "mcpNotify")
# Strict functions cannot declare these names.
_UNSHADOWABLE_NAMES = frozenset({"eval", "arguments"})

_DEFAULT_RULES: Mapping[str, Any] = {
    **PRESETS["secure"],
    "check_tools": True,
    "tool_errors": "hidden",
    "max_source_bytes": SidecarOptions.max_script_length_when_disabled,
    "sidecar": None,
}

_SIDECAR_OPTIONS: Mapping[str, str] = {
    "threshold_bytes": "extraction_threshold",
    "max_reference_bytes": "max_reference_size",
    "max_total_bytes": "max_total_size",
    "max_resolved_bytes": "max_resolved_size",
    "allow_composites": "allow_composites",
}
_VM_OPTIONS = {*PRESETS["secure"], "check_tools"}


def create_surface_settings(options: CodeCallOptions) -> SurfaceSettings:
    """Return the profile of a tool set with these options."""
    rules = {
        **{name: getattr(options.vm, name) for name in _VM_OPTIONS},
        "tool_errors": options.tool_errors,
        "max_source_bytes": _compute_max_source_bytes(options),
        "sidecar": _build_sidecar_parameters(options.sidecar),
    }
    return _build_surface_settings(rules, options.names)


def _compute_max_source_bytes(options: CodeCallOptions) -> int:
    policy = options.settings.execution_policy
    length = options.sidecar.max_script_length_when_disabled
    if options.sidecar.enabled or length is None:
        return policy.max_source_bytes
    return min(length, policy.max_source_bytes) if policy.is_set_explicitly("max_source_bytes") else length


def _build_sidecar_parameters(sidecar: SidecarOptions) -> dict[str, Any] | None:
    return {name: getattr(sidecar, name) for name in _SIDECAR_OPTIONS.values()} if sidecar.enabled else None


def _restore_surface_settings(parameters: Mapping[str, Any], names: str) -> SurfaceSettings:
    unknown = parameters.keys() - _DEFAULT_RULES.keys()
    if unknown:
        raise ValueError(f"unknown parameters: {', '.join(sorted(unknown))}")
    rules = {**_DEFAULT_RULES, **parameters}
    VmOptions(**{name: value for name, value in rules.items() if name in _VM_OPTIONS})  # validates them
    SidecarOptions.of(rules["sidecar"])
    return _build_surface_settings(rules, names)


def _build_surface_settings(rules: Mapping[str, Any], names: str) -> SurfaceSettings:
    disabled_builtins, disabled_globals = tuple(rules["disabled_builtins"]), tuple(rules["disabled_globals"])
    has_console = rules["allow_console"] and "console" not in disabled_globals
    if not has_console and "console" not in disabled_globals:
        disabled_globals = (*disabled_globals, "console")
    return SurfaceSettings(
        name=PROFILE_NAME,
        outer_tool=format_meta_tool_name("execute", names),
        direct_tool=format_meta_tool_name("invoke", names),
        guest=GuestSettings(
            wrapper="strict",
            globals=(*_GLOBALS, "console") if has_console else _GLOBALS,
            shadowed=tuple(
                name
                for name in dict.fromkeys((*disabled_builtins, *disabled_globals))
                if name not in _UNSHADOWABLE_NAMES
            ),
            result="sanitised",
            max_result_depth=rules["max_sanitize_depth"],
            max_result_properties=rules["max_sanitize_properties"],
        ),
        request_kinds=frozenset({"tool"}),
        limits=ExecutionPolicy(
            timeout_ms=rules["timeout_ms"],
            max_bridge_requests=rules["max_steps"],
            max_source_bytes=min(rules["max_source_bytes"], MAX_SOURCE_BYTES),
            timeout_includes_tools=False,
            in_flight_limit="queue",
            max_tool_output_bytes=_compute_max_output_bytes(rules["sidecar"]),
        ),
        static_rules=StaticRules(
            disabled_builtins=disabled_builtins,
            disabled_globals=disabled_globals,
            allow_loops=rules["allow_loops"],
            runs_unanalysed=False,
            checks_tools=rules["check_tools"],
            analysis_ms=ANALYSIS_MS,
            tool_call='callTool("{name}", input)',
        ),
        host_errors=HostErrorRules(codes=TOOL_ERROR_CODES, detail=rules["tool_errors"], in_spans=False),
        sidecar=_build_large_string_rules(rules["sidecar"]),
        shows_run_details=True,
        parameters={
            name: _to_list_if_sequence(value)
            for name, value in rules.items()
            if _to_list_if_sequence(value) != _to_list_if_sequence(_DEFAULT_RULES[name])
        },
        restored=partial(_restore_surface_settings, names=names),
    )


def _compute_max_output_bytes(sidecar: Mapping[str, Any] | None) -> int:
    # The sidecar limits large strings; the usual limit applies to the rest of an output.
    return ExecutionPolicy.max_tool_output_bytes + (0 if sidecar is None else sidecar["max_total_size"])


def _build_large_string_rules(sidecar: Mapping[str, Any] | None) -> LargeStringRules | None:
    return (
        None
        if sidecar is None
        else LargeStringRules(**{name: sidecar[option] for name, option in _SIDECAR_OPTIONS.items()})
    )


def _to_list_if_sequence(value: Any) -> Any:
    return [*value] if is_sequence(value) else value


WORKER_ENDED = "worker"
"""``details["origin"]`` of an error if the worker of the program ended without a result."""
_HOST_ERRORS = (CodeModeAbortedError, CodeModeConcurrencyError, CodeModeProtocolError)
_GUEST_ERRORS = (CodeModeError, CodeModeSerializationError)  # thrown by a script, or caused by its return value


class CodeCallResult(dict[str, Any]):
    """The answer to the model: plain JSON with a ``status``. The attributes are for the host only.

    ``exception``: the error behind a status other than ok. ``trace``: the `Trace` of the run, if any. ``recovery``:
    after a timeout or a dead worker, the `Interrupt` from which the script can resume.
    """

    exception: CodeModeError | None = None
    trace: Trace | None = None
    recovery: Resumable | None = None


def to_result_or_raise_host_error(outcome: RunOutcome, max_characters: int | None, script: str = "") -> Any:
    """Return the result or the interrupt of a run; raise host errors.

    A value of more than ``max_characters`` characters is replaced by a description.
    """
    if outcome.interrupt is not None:
        return outcome.interrupt
    error = outcome.error
    if error is not None and _is_host_error(error):
        try:
            raise error
        finally:
            del error, outcome  # the traceback references this frame: avoid a reference cycle
    if error is not None:
        result = error_to_result(error)
        name = str(result["error"].get("name"))
        if not getattr(error, "calls", ()) and (hint := make_language_hint_for_error(name, script)) is not None:
            result["error"]["hint"] = hint
    else:
        result = CodeCallResult(
            status="ok", result=replace_if_too_large(outcome.value, max_characters, outcome.result_bytes)
        )
    result.trace = outcome.trace
    if outcome.console:
        result["logs"] = [{"level": line.level, "message": line.text} for line in outcome.console]
    warnings = [*outcome.warnings, *outcome.output_warnings, *([] if error is None else _describe_earlier_calls(error))]
    warnings += describe_unhandled_failures(outcome.unhandled_failures)
    if outcome.returned_nothing and (text := describe_missing_result(outcome, script, shows_console=False)):
        warnings.append(text)
    if warnings:
        result["warnings"] = warnings
    return result


def _describe_earlier_calls(error: CodeModeError) -> list[str]:
    """Return lines about the calls of a failed script, except the one that its error describes."""
    last_call = mapping_or_empty(error.details.get("call"))
    is_late = error.code == CALL_TIMEOUT
    return describe_calls(
        exclude_last_failed_call(error.calls, string_or_empty(last_call.get("toolName")), is_late=is_late)
    )


def _is_host_error(error: CodeModeError) -> bool:
    if "call" in error.details:  # raised by a tool
        return False
    if isinstance(error, CodeModeWorkerError):
        return error.details.get("origin") != WORKER_ENDED
    return isinstance(error, _HOST_ERRORS)


def error_to_result(error: CodeModeError) -> CodeCallResult:
    """Return the result for an error."""
    status, description = _build_status_and_error(error)
    result = CodeCallResult(status=status, error=description)
    result.exception, result.recovery, result.trace = error, error.recovery, error.trace
    return result


def _build_status_and_error(error: CodeModeError) -> tuple[str, dict[str, Any]]:
    call = error.details.get("call")
    if is_object(call) and not _is_refused_by_limit(error, call):
        return "tool_error", _build_tool_error(call)
    kind = find_nearest_error_kind(CODE_CALL_WORDING, error)
    status, message = CODE_CALL_WORDING[kind].code, format_phrase_message(CODE_CALL_WORDING[kind], error)
    if kind == "source_too_large":
        return status, {"name": "ScriptTooLargeError", "message": message}
    if kind == "syntax":
        return status, {"message": message, **_build_location_field(error), "name": "SyntaxError"}
    if kind == "illegal_access":
        return status, _build_illegal_access_error(error)
    return status, {"message": message} if kind == "timeout" else _build_runtime_error(error, kind, message)


def _is_refused_by_limit(error: CodeModeError, call: Mapping[str, Any]) -> bool:
    """Return True if a call was refused because of earlier calls; an error raised by a tool never has both marks."""
    is_package_limit = isinstance(error, CodeModeBridgeLimitError) and error.code == error.default_code
    return is_package_limit and call.get("code") == TOOL_ERROR_CODES["limit"]


def _build_tool_error(call: Mapping[str, Any]) -> dict[str, Any]:
    fields = ("toolName", "toolInput", "message", "code", "details")
    return {"source": "tool", **{key: call[key] for key in fields if key in call}}


def _build_illegal_access_error(error: CodeModeError) -> dict[str, Any]:
    violations = list_or_empty(error.details.get("violations"))
    first = mapping_or_empty(violations[0] if violations else None)
    description: dict[str, Any] = {"message": error.message, "kind": first.get("kind")}
    return {**description, "location": first.get("location"), "violations": violations}


def _build_location_field(error: CodeModeError) -> dict[str, Any]:
    position = {key: error.details.get(key) for key in ("line", "column")}
    return {} if None in position.values() else {"location": position}


def _build_runtime_error(error: CodeModeError, kind: str, message: str) -> dict[str, Any]:
    if kind == "worker":
        return {"source": "script", "name": type(error).__name__, "message": message}
    name, shown, _ = to_guest_error_fields(error)
    thrown = string_or_empty(error.details.get("name")) if type(error) in _GUEST_ERRORS else ""
    description = {
        "source": "script",
        "name": thrown or name,
        "message": message if kind == "max_bridge_requests" else shown,
    }
    if thrown == "ReferenceError":
        description["hint"] = CODE_CALL_WORDING["undefined_name"].hint
    stack = string_or_empty(error.details.get("stack"))
    return {**description, "stack": stack} if stack else description
