"""The profile of CodeCall, made of its rules: plain JSON, of which a pause keeps what is not the default."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from ...data.narrowing import is_sequence
from ...options.parts import MAX_SOURCE_BYTES, ExecutionPolicy
from ...profile import GuestFace, HostErrors, Profile, SidecarRules, StaticRules
from .names import meta_name
from .options import PRESETS, CodeCallOptions, Sidecar, Vm

NAME = "codeCall"
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
"""What a script reads of a call that failed, by the reason of the error."""
_GLOBALS = ("callTool", "getTool", "codecallContext", "mcpLog", "mcpNotify")
# The engine has no words to take them back from a strict function; it has no such functions either.
_NEVER_DECLARED = frozenset({"eval", "arguments"})

_DEFAULTS: Mapping[str, Any] = {
    **PRESETS["secure"],
    "check_tools": True,
    "tool_errors": "hidden",
    "max_source_bytes": Sidecar.max_script_length_when_disabled,
    "sidecar": None,
}

_OF_SIDECAR: Mapping[str, str] = {
    "threshold_bytes": "extraction_threshold",
    "max_reference_bytes": "max_reference_size",
    "max_total_bytes": "max_total_size",
    "max_resolved_bytes": "max_resolved_size",
    "allow_composites": "allow_composites",
}
_OF_VM = {*PRESETS["secure"], "check_tools"}


def profile_of(options: CodeCallOptions) -> Profile:
    """Return the profile of a tool set with these options."""
    given = {
        **{name: getattr(options.vm, name) for name in _OF_VM},
        "tool_errors": options.tool_errors,
        "max_source_bytes": _most_source_bytes(options),
        "sidecar": _sidecar(options.sidecar),
    }
    return _made(given, options.names)


def _most_source_bytes(options: CodeCallOptions) -> int:
    policy = options.settings.execution_policy
    length = options.sidecar.max_script_length_when_disabled
    if options.sidecar.enabled or length is None:
        return policy.max_source_bytes
    return min(length, policy.max_source_bytes) if policy.says("max_source_bytes") else length


def _sidecar(given: Sidecar) -> dict[str, Any] | None:
    return {name: getattr(given, name) for name in _OF_SIDECAR.values()} if given.enabled else None


def _restored(parameters: Mapping[str, Any], names: str) -> Profile:
    unknown = parameters.keys() - _DEFAULTS.keys()
    if unknown:
        raise ValueError(f"unknown parameters: {', '.join(sorted(unknown))}")
    rules = {**_DEFAULTS, **parameters}
    Vm(**{name: value for name, value in rules.items() if name in _OF_VM})  # which checks them
    Sidecar.of(rules["sidecar"])
    return _made(rules, names)


def _made(rules: Mapping[str, Any], names: str) -> Profile:
    builtins, banned = tuple(rules["disabled_builtins"]), tuple(rules["disabled_globals"])
    has_console = rules["allow_console"] and "console" not in banned
    if not has_console and "console" not in banned:
        banned = (*banned, "console")
    return Profile(
        name=NAME,
        outer_tool=meta_name("execute", names),
        direct_tool=meta_name("invoke", names),
        guest=GuestFace(
            wrapper="strict",
            globals=(*_GLOBALS, "console") if has_console else _GLOBALS,
            shadowed=tuple(name for name in dict.fromkeys((*builtins, *banned)) if name not in _NEVER_DECLARED),
            result="sanitised",
            max_result_depth=rules["max_sanitize_depth"],
            max_result_properties=rules["max_sanitize_properties"],
        ),
        request_kinds=frozenset({"tool"}),
        limits=ExecutionPolicy(
            timeout_ms=rules["timeout_ms"],
            max_bridge_requests=rules["max_steps"],
            max_source_bytes=min(rules["max_source_bytes"], MAX_SOURCE_BYTES),
            clock="program",
            in_flight_limit="queue",
            max_tool_output_bytes=_most_output_bytes(rules["sidecar"]),
        ),
        static_rules=StaticRules(
            disabled_builtins=builtins,
            disabled_globals=banned,
            allow_loops=rules["allow_loops"],
            runs_unanalysed=False,
            checks_tools=rules["check_tools"],
            analysis_ms=ANALYSIS_MS,
            tool_call='callTool("{name}", input)',
        ),
        host_errors=HostErrors(codes=TOOL_ERROR_CODES, detail=rules["tool_errors"], in_spans=False),
        sidecar=_sidecar_rules(rules["sidecar"]),
        tells_of_runs=True,
        parameters={name: _plain(value) for name, value in rules.items() if _plain(value) != _plain(_DEFAULTS[name])},
        restored=partial(_restored, names=names),
    )


def _most_output_bytes(sidecar: Mapping[str, Any] | None) -> int:
    # Its sizes say how much of large strings an output may have; what else is in it has the room it always has.
    return ExecutionPolicy.max_tool_output_bytes + (0 if sidecar is None else sidecar["max_total_size"])


def _sidecar_rules(given: Mapping[str, Any] | None) -> SidecarRules | None:
    return None if given is None else SidecarRules(**{name: given[option] for name, option in _OF_SIDECAR.items()})


def _plain(value: Any) -> Any:
    return [*value] if is_sequence(value) else value
