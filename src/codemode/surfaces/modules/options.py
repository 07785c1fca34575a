"""Options, limits, profile and schemas of `codemode.run`."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field, fields
from functools import partial
from typing import Any, ClassVar, cast

from ...options.checked_fields import positive_limit_field
from ...options.part import OptionGroup, option_group
from ...options.parts import MAX_MEMORY_LIMIT_BYTES, MIB, ExecutionPolicy
from ...profile import ErrorFields, GuestSettings, HostErrorRules, StaticRules, SurfaceSettings

WIRE_NAMES: Mapping[str, str] = {
    "timeout_ms": "timeoutMs",
    "max_memory_bytes": "maxMemoryBytes",
    "max_log_bytes": "maxLogBytes",
    "max_tool_calls": "maxToolCalls",
    "max_concurrent_tool_calls": "maxConcurrentToolCalls",
    "max_result_bytes": "maxResultBytes",
}
"""The name of each limit in a request, by option."""

HOST_NAMES: Mapping[str, str] = {
    "timeout_ms": "timeout_ms",
    "max_memory_bytes": "memory_limit_bytes",
    "max_log_bytes": "max_console_bytes",
    "max_tool_calls": "max_bridge_requests",
    "max_concurrent_tool_calls": "max_in_flight_bridge_requests",
    "max_result_bytes": "max_result_bytes",
}
"""The name of each limit in the execution policy, by option."""

SHOWN_NAMES: Mapping[str, str] = {HOST_NAMES[option]: name for option, name in WIRE_NAMES.items()}
"""The name of each limit in messages, by its name in the execution policy."""

MIN_VALUES: Mapping[str, int] = {option: MIB if option == "max_memory_bytes" else 1 for option in WIRE_NAMES}


@option_group
class RunLimits(OptionGroup):
    """Limits of one run. Times are in milliseconds, sizes in UTF-8 bytes."""

    path: ClassVar[str] = "limits"

    timeout_ms: int = positive_limit_field(30_000)
    max_memory_bytes: int = positive_limit_field(64 * MIB, MAX_MEMORY_LIMIT_BYTES, minimum=MIB)
    max_log_bytes: int = positive_limit_field(64 * 1024)
    max_tool_calls: int = positive_limit_field(256)
    max_concurrent_tool_calls: int = positive_limit_field(32)
    max_result_bytes: int = positive_limit_field(100_000)

    def to_policy(self) -> ExecutionPolicy:
        """Return the limits as an execution policy."""
        values = {HOST_NAMES[option]: getattr(self, option) for option in WIRE_NAMES}
        return ExecutionPolicy(**values, in_flight_limit="queue")

    def get_non_default_values(self) -> dict[str, int]:
        """Return the limits that differ from the defaults."""
        return {
            limit_field.name: getattr(self, limit_field.name)
            for limit_field in fields(self)
            if getattr(self, limit_field.name) != limit_field.default
        }


@option_group
class RunCeilings(RunLimits):
    """The highest limits that a request can ask for."""

    path: ClassVar[str] = "ceilings"

    timeout_ms: int = positive_limit_field(120_000)
    max_memory_bytes: int = positive_limit_field(256 * MIB, MAX_MEMORY_LIMIT_BYTES, minimum=MIB)
    max_log_bytes: int = positive_limit_field(MIB)
    max_tool_calls: int = positive_limit_field(1_024)
    max_concurrent_tool_calls: int = positive_limit_field(64)
    max_result_bytes: int = positive_limit_field(MIB)


def reconcile_limits(limits: RunLimits, ceilings: RunCeilings) -> tuple[RunLimits, RunCeilings]:
    """Return both with defaults applied; a limit set without a ceiling is its own ceiling.

    Raises `ValueError` for a limit above its ceiling.
    """
    defaults: dict[str, int] = {}
    maximums: dict[str, int] = {}
    for option in WIRE_NAMES:
        default, ceiling = getattr(limits, option), getattr(ceilings, option)
        if limits.is_set_explicitly(option) and ceilings.is_set_explicitly(option) and default > ceiling:
            raise ValueError(f"limits.{option} must be at most ceilings.{option} ({ceiling}), got {default}")
        sets_ceiling = limits.is_set_explicitly(option) and not ceilings.is_set_explicitly(option)
        maximums[option] = default if sets_ceiling else ceiling
        defaults[option] = min(default, maximums[option])
    return RunLimits(**defaults), RunCeilings(**maximums)


def _parse_secrets(value: Any, path: str) -> tuple[str, ...]:
    items = cast("list[Any]", [*value]) if isinstance(value, list | tuple | set | frozenset) else None
    if items is None or not all(isinstance(secret, str) and secret for secret in items):
        # The message must not contain the values, which are secrets.
        raise ValueError(f"{path} must be a list of non-empty strings")
    # Longest first, so that a secret that contains another is removed completely.
    return tuple(sorted(dict.fromkeys(items), key=len, reverse=True))


@option_group
class RunOptions(OptionGroup):
    """Options of `create_modules_tool`. ``limits`` and ``ceilings`` can be mappings with snake_case or camelCase keys.

    ``limits`` are the defaults of a request, ``ceilings`` the highest limits that it can ask for: ``timeout_ms``
    (30,000), ``max_memory_bytes`` (64 MiB), ``max_log_bytes`` (64 KiB), ``max_tool_calls`` (256),
    ``max_concurrent_tool_calls`` (32) and ``max_result_bytes`` (100,000). A limit set without a ceiling is its own
    ceiling; the default ceilings are 120,000, 256 MiB, 1 MiB, 1,024, 64 and 1 MiB. ``max_description_characters``
    limits the description, ``max_declarations_characters`` the declarations in a response. ``secrets`` are removed from
    errors that programs and models see. Raises `ValueError` naming the invalid option.
    """

    limits: RunLimits = field(default_factory=RunLimits)
    ceilings: RunCeilings = field(default_factory=RunCeilings)
    max_description_characters: int = positive_limit_field(4_000)
    max_declarations_characters: int = positive_limit_field(20_000)
    secrets: tuple[str, ...] = field(default=(), repr=False, metadata={"check": _parse_secrets})

    def __init__(
        self,
        limits: RunLimits | Mapping[str, Any] | None = None,
        ceilings: RunCeilings | Mapping[str, Any] | None = None,
        max_description_characters: int = 4_000,
        max_declarations_characters: int = 20_000,
        secrets: Iterable[str] = (),
    ) -> None:
        reconciled = reconcile_limits(RunLimits.of(limits), RunCeilings.of(ceilings))
        values = (*reconciled, max_description_characters, max_declarations_characters, secrets)
        names = ("limits", "ceilings", "max_description_characters", "max_declarations_characters", "secrets")
        for name, value in zip(names, values, strict=True):
            object.__setattr__(self, name, value)
        self.__post_init__()


OUTER_TOOL = "codemode.run"

_TEXT = {"type": "string"}
_CODE = "An ES module, JavaScript or TypeScript. It leaves its result in globalThis.__codemode_result__."
_LIMITS = "Limits of this run, if not the defaults."
_CAPABILITIES = "Ids of servers to use: they are connected, and the answer has their declarations."


def build_input_schema(options: RunOptions) -> dict[str, Any]:
    """Return the JSON Schema of a request."""
    limits = {
        name: {"type": "integer", "description": _describe_limit(options, option)}
        for option, name in WIRE_NAMES.items()
    }
    return {
        "type": "object",
        "properties": {
            "code": {**_TEXT, "description": _CODE},
            "limits": {"type": "object", "properties": limits, "description": _LIMITS},
            "requestedCapabilities": {"type": "array", "items": dict(_TEXT), "description": _CAPABILITIES},
        },
        "required": ["code"],
    }


def build_output_schema() -> dict[str, Any]:
    """Return the JSON Schema of a response."""
    log = _build_object_schema(
        level={"enum": ["debug", "log", "warn", "error"]}, message=_TEXT, timeMs={"type": "integer"}
    )
    diagnostic = _build_object_schema(
        ("severity", "code", "message"),
        severity={"enum": ["error", "warning", "info"]},
        **dict.fromkeys(("code", "message", "hint", "path", "errorClass"), _TEXT),
    )
    call = _build_object_schema(
        ("serverId", "toolName", "durationMs", "ok"),
        serverId=_TEXT,
        toolName=_TEXT,
        durationMs={"type": "integer"},
        ok={"type": "boolean"},
        error=_TEXT,
    )
    return _build_object_schema(
        ("logs", "result", "diagnostics"),
        logs={"type": "array", "items": log},
        result={},
        diagnostics={"type": "array", "items": diagnostic},
        toolTrace={"type": "array", "items": call},
        declarations=_TEXT,
    )


def _describe_limit(options: RunOptions, option: str) -> str:
    return f"{getattr(options.limits, option)} by default, at most {getattr(options.ceilings, option)}."


def _build_object_schema(required: tuple[str, ...] | None = None, **properties: Mapping[str, Any]) -> dict[str, Any]:
    members = {name: dict(schema) for name, schema in properties.items()}
    return {"type": "object", "properties": members, "required": list(properties if required is None else required)}


PROFILE_NAME = "modules"
_ANALYSIS_MS = 1000
GLOBALS = ("console", "URL", "URLSearchParams", "TextEncoder", "TextDecoder", "setTimeout", "clearTimeout")
_GUEST = GuestSettings(wrapper="module", globals=GLOBALS, console="stable", limit_names=SHOWN_NAMES, stops_itself=True)
_RULES = StaticRules(checks_tools=False, analysis_ms=_ANALYSIS_MS)


def create_surface_settings(limits: RunLimits, format_error: ErrorFields) -> SurfaceSettings:
    """Return the profile of a run with these limits; its pauses store them."""
    return SurfaceSettings(
        name=PROFILE_NAME,
        outer_tool=OUTER_TOOL,
        guest=_GUEST,
        request_kinds=frozenset({"tool", "catalog", "timer"}),
        limits=limits.to_policy(),
        static_rules=_RULES,
        host_errors=HostErrorRules(in_spans=False, error_fields=format_error),
        unawaited="abandon",
        shows_run_details=True,
        parameters=limits.get_non_default_values(),
        restored=partial(_restore_surface_settings, format_error=format_error),
    )


def _restore_surface_settings(parameters: Mapping[str, Any], format_error: ErrorFields) -> SurfaceSettings:
    return create_surface_settings(RunLimits.of(parameters), format_error)
