"""Options, profile and call metadata of exec and wait."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, ClassVar, Literal, Self, cast

from ...data.narrowing import is_mapping
from ...options.checked_fields import Check
from ...options.part import OptionGroup, option_group
from ...options.parts import MAX_HEAP_BYTES, MIB, LargeHeapPolicy
from ...profile import GuestSettings, HostErrorRules, OutputRules, SurfaceSettings

INVALID_CONFIG = "invalid_config"
LANGUAGES = ("javascript", "typescript")
CONFIG_PATH = "tools.codeMode"
_KIB = 1024


class InvalidConfigError(ValueError):
    """An invalid configuration: a wrong type, an unknown key or value. The message has the full path."""

    code = INVALID_CONFIG


def _clamp_integer(value: Any, path: str, minimum: int, maximum: int) -> int:
    if type(value) is not int:
        raise InvalidConfigError(f"{path} must be an integer, got {value!r}")
    return min(max(value, minimum), maximum)


def _integer_field(default: int, minimum: int, maximum: int) -> Any:
    return field(default=default, metadata={"check": partial(_clamp_integer, minimum=minimum, maximum=maximum)})


def _choice_field(default: str, *choices: str) -> Any:
    def require_choice(value: Any, path: str) -> str:
        if not isinstance(value, str) or value not in choices:
            raise InvalidConfigError(f"{path} must be {' or '.join(map(repr, choices))}, got {value!r}")
        return value

    return field(default=default, metadata={"check": require_choice})


def _require_boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfigError(f"{path} must be True or False, got {value!r}")
    return value


def _parse_languages(value: Any, path: str) -> tuple[str, ...]:
    languages = cast("list[Any]", [*value]) if isinstance(value, list | tuple | set | frozenset) else None
    if not languages or not all(isinstance(language, str) and language in LANGUAGES for language in languages):
        raise InvalidConfigError(f"{path} must be a list of {' and '.join(map(repr, LANGUAGES))}, got {value!r}")
    return tuple(language for language in LANGUAGES if language in languages)


def _clamp_wait_timeout(value: Any, path: str) -> int | None:
    return None if value is None else _clamp_integer(value, path, 100, 600_000)


def _clamp_run_limit(value: Any, path: str) -> int | None:
    return None if value is None else _clamp_integer(value, path, 1, 10_000)


def _optional_field(check: Check) -> Any:
    return field(default=None, metadata={"check": check})


@option_group
class ExecWaitOptions(OptionGroup):
    """All options of exec and wait, or a mapping in camelCase. Times are in milliseconds, sizes in UTF-8 bytes.

    Numbers are clamped to their range. ``enabled`` is for `plan_surface`: only True activates exec and wait.
    ``timeout_ms`` limits computation per call of the model, ``wait_timeout_ms`` how long a call waits for tools (None:
    as long as ``timeout_ms``). ``max_snapshot_bytes`` limits program, ledger and output of a suspended program, which
    is kept for ``snapshot_ttl_seconds``. At most ``max_waiting_runs`` programs run or wait, of these
    ``max_waiting_runs_per_conversation`` in one conversation (None: half of all, if it has an id); ``max_warm_runs``
    suspended programs keep their worker. ``approvals`` "park": the model, too, waits for a person's decision.
    ``host_error_detail`` "message" shows programs the first line of a tool's error, without paths and credentials.
    Raises `InvalidConfigError`, a `ValueError`, with the full path of the invalid option.
    """

    path: ClassVar[str] = CONFIG_PATH

    enabled: bool = field(default=False, metadata={"check": _require_boolean})
    runtime: str = _choice_field("quickjs", "quickjs", "quickjs-wasi")
    mode: str = _choice_field("only", "only")
    languages: tuple[str, ...] = field(default=LANGUAGES, metadata={"check": _parse_languages})
    timeout_ms: int = _integer_field(10_000, 100, 60_000)
    memory_limit_bytes: int = _integer_field(64 * MIB, MIB, MAX_HEAP_BYTES)
    max_output_bytes: int = _integer_field(64 * _KIB, _KIB, 10 * MIB)
    max_snapshot_bytes: int = _integer_field(10 * MIB, _KIB, 256 * MIB)
    max_pending_tool_calls: int = _integer_field(16, 1, 128)
    snapshot_ttl_seconds: int = _integer_field(900, 1, 86_400)
    search_default_limit: int = _integer_field(8, 1, 50)
    max_search_limit: int = _integer_field(50, 1, 50)
    wait_timeout_ms: int | None = _optional_field(_clamp_wait_timeout)
    max_tool_calls: int = _integer_field(4_096, 1, 100_000)
    max_waiting_runs: int = _integer_field(64, 1, 10_000)
    max_waiting_runs_per_conversation: int | None = _optional_field(_clamp_run_limit)
    max_warm_runs: int = _integer_field(4, 0, 64)
    approvals: Literal["interrupt", "park"] = _choice_field("interrupt", "interrupt", "park")
    host_error_detail: Literal["hidden", "message"] = _choice_field("hidden", "hidden", "message")

    def __post_init__(self) -> None:
        """Check every field; the default search limit never exceeds the maximum."""
        super().__post_init__()
        object.__setattr__(self, "search_default_limit", min(self.search_default_limit, self.max_search_limit))

    @classmethod
    def of(cls, value: Any) -> Self:
        """Convert options, a mapping in either spelling, or None for the defaults."""
        return cls._call_translating_errors(lambda: super(ExecWaitOptions, cls).of(value))

    @classmethod
    def from_config(cls, config: Any, agent: Any = None) -> ExecWaitOptions:
        """Return the options of a configuration, with the fields of an agent's own overriding them.

        ``config``: a whole configuration with ``tools.codeMode``, or that value: a mapping, True, False or None.
        ``agent`` False disables. Raises `InvalidConfigError`.
        """
        base, own = _extract_code_mode_config(config), _extract_code_mode_config(agent)
        if own is False:
            return replace(_parse_config(base), enabled=False)
        options = _parse_config(base)
        return options if own is None else _parse_config(own).with_fallback(options)

    @classmethod
    def _call_translating_errors(cls, make: Callable[[], Self]) -> Self:
        try:
            return make()
        except InvalidConfigError:
            raise
        except ValueError as error:  # an unknown or duplicate key, or not a mapping
            raise InvalidConfigError(str(error)) from None

    def get_max_waiting_runs(self, scope: str) -> int:
        """Return how many programs of a conversation can run or wait."""
        if self.max_waiting_runs_per_conversation is not None:
            return min(self.max_waiting_runs_per_conversation, self.max_waiting_runs)
        return max(1, self.max_waiting_runs // 2) if scope else self.max_waiting_runs

    @property
    def effective_wait_timeout_ms(self) -> int:
        """How long one call of the model waits for the tools of a program."""
        return self.timeout_ms if self.wait_timeout_ms is None else self.wait_timeout_ms


def _extract_code_mode_config(config: Any) -> Any:
    if isinstance(config, Mapping) and "tools" in config:
        tools = cast("Mapping[str, Any]", config)["tools"]
        if tools is None:
            return None
        if not isinstance(tools, Mapping):
            raise InvalidConfigError(f"tools must be a mapping, got {tools!r}")
        code_mode_section = cast("Mapping[str, Any]", tools)
        return code_mode_section.get("codeMode", code_mode_section.get("code_mode"))
    return cast("Any", config)


def _parse_config(value: Any) -> ExecWaitOptions:
    if isinstance(value, bool):
        return ExecWaitOptions(enabled=value)
    if value is not None and not isinstance(value, ExecWaitOptions | Mapping):
        raise InvalidConfigError(f"{CONFIG_PATH} must be True, False or a mapping, got {value!r}")
    return ExecWaitOptions.of(cast("Any", value))


EXEC_KIND, WAIT_KIND = "code_mode_exec", "code_mode_wait"
TOOL_KIND, TOOL_INPUT_KIND = "toolKind", "toolInputKind"


@dataclass(frozen=True)
class ToolKindMetadata:
    """The kind of a tool and the languages of its input; none if it takes no program."""

    tool_kind: str
    languages: tuple[str, ...] = ()

    def build_static_metadata(self) -> dict[str, str]:
        """Return the metadata of the tool, with the default language."""
        if not self.languages:
            return {TOOL_KIND: self.tool_kind}
        return {TOOL_KIND: self.tool_kind, TOOL_INPUT_KIND: choose_default_language(self.languages)}

    def build_call_metadata(self, value: Any) -> dict[str, str]:
        """Return the metadata of a call; it has no input kind if the language is unknown."""
        language = value.get("language") if is_mapping(value) else None
        if not self.languages or language is None:
            return self.build_static_metadata()
        input_kind = {TOOL_INPUT_KIND: language} if isinstance(language, str) and language in self.languages else {}
        return {TOOL_KIND: self.tool_kind, **input_kind}


def choose_default_language(languages: tuple[str, ...]) -> str:
    """Return the language of an input that names none."""
    return LANGUAGES[0] if LANGUAGES[0] in languages else languages[0]


PROFILE_NAME = "execWait"
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
"""The names of limits in messages, where they are options of exec and wait."""
_GUEST = GuestSettings(wrapper="sloppy", globals=GLOBALS, result="texts", limit_names=LIMIT_NAMES)
PAIR_LIMITS = (
    "timeout_ms",
    "memory_limit_bytes",
    "max_result_bytes",
    "max_console_bytes",
    "max_bridge_requests",
    "max_in_flight_bridge_requests",
    "check_program",
)
"""Fields of the execution policy that only the options of exec and wait set."""
_MAX_CATALOG_REQUESTS = 256


def create_surface_settings(options: ExecWaitOptions) -> SurfaceSettings:
    """Return the profile for these options; a suspended program stores its parameters."""
    parameters = {
        "timeout_ms": options.timeout_ms,
        "memory_limit_bytes": options.memory_limit_bytes,
        "max_output_bytes": options.max_output_bytes,
        "max_pending_tool_calls": options.max_pending_tool_calls,
        "max_tool_calls": options.max_tool_calls,
        "host_error_detail": options.host_error_detail,
    }
    return _build_surface_settings(parameters)


def _build_surface_settings(parameters: Mapping[str, Any]) -> SurfaceSettings:
    options = ExecWaitOptions(**parameters)
    max_output_bytes = options.max_output_bytes
    return SurfaceSettings(
        name=PROFILE_NAME,
        outer_tool=EXEC,
        guest=_GUEST,
        request_kinds=frozenset({"tool", "catalog", "timer", "yield", "state"}),
        limits=LargeHeapPolicy(
            timeout_ms=options.timeout_ms,
            memory_limit_bytes=options.memory_limit_bytes,
            max_result_bytes=max_output_bytes,
            max_console_bytes=max_output_bytes,
            max_bridge_requests=options.max_tool_calls,
            max_in_flight_bridge_requests=options.max_pending_tool_calls,
            max_catalog_requests=_MAX_CATALOG_REQUESTS,
            check_program=False,  # `tools` has members that are not tools
        ),
        host_errors=HostErrorRules(detail=options.host_error_detail, in_spans=False),
        output=OutputRules(max_bytes=max_output_bytes),
        has_content=True,
        unawaited="drain",
        at_deadline="rest",
        shows_run_details=True,
        parameters=dict(parameters),
        restored=_build_surface_settings,
    )
