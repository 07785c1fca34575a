"""Options of an invocation and of a pool: frozen values, checked when made. Knows nothing of their use."""

from __future__ import annotations

import difflib
import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Literal, Self, TypeVar, cast

MIB = 1024 * 1024

MAX_SOURCE_BYTES = 1_000_000
"""Guest line numbers must stay below those of the kernel, which start at 2**20."""

MAX_MEMORY_LIMIT_BYTES = 768 * MIB
"""The worker's address space ends at 1 GiB; the engine must notice first."""

MAX_STACK_SIZE_BYTES = 6 * MIB
"""A worker's native stack is 8 MiB."""

Hook = Callable[[Any], Awaitable[None] | None]
Check = Callable[[Any, str], Any]
P = TypeVar("P", bound="OptionPart")

# --- what a field may hold; each check takes the value and its full path, and gives the value to store ---


def _limit(default: int, maximum: int | None = None, *, minimum: int = 1) -> int:
    return _checked(default, partial(_positive, maximum=maximum, minimum=minimum))


def _optional_limit() -> int | None:
    return _checked(None, _positive_or_none)


def _checked(default: Any, check: Check) -> Any:
    return field(default=default, metadata={"check": check})


def _flag(*, default: bool) -> bool:
    return _checked(default, _boolean)


def _positive_or_none(value: Any, path: str) -> int | None:
    return None if value is None else _positive(value, path)


def _positive(value: Any, path: str, maximum: int | None = None, minimum: int = 1) -> int:
    # bool is an int to Python, never to a reader of options.
    if type(value) is not int or value < 1:
        raise ValueError(f"{path} must be a positive integer, got {value!r}")
    if value < minimum:
        raise ValueError(f"{path} must be at least {minimum}, got {value}")
    if maximum is not None and value > maximum:
        raise ValueError(f"{path} must be at most {maximum}, got {value}")
    return value


def _not_negative(value: Any, path: str) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{path} must be an integer of at least 0, got {value!r}")
    return value


def _none_below_zero(value: Any, path: str) -> int:
    return 0 if type(value) is int and value < 0 else _not_negative(value, path)


def _boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{path} must be True or False, got {value!r}")  # noqa: TRY004 - every wrong option is one
    return value


def _callable(value: Any, path: str) -> Any:
    if value is not None and not callable(value):
        raise ValueError(f"{path} must be a function or None, got {value!r}")
    return value


_CALLABLE = {"check": _callable}


def _text(value: Any, path: str) -> str | None:
    if value is not None and (not isinstance(value, str) or not value):
        raise ValueError(f"{path} must be a non-empty string or None, got {value!r}")
    return value


def _mapping(value: Any, path: str) -> Any:
    if value is None or isinstance(value, Mapping):
        return cast("Any", value)
    raise ValueError(f"{path} must be a mapping or None, got {value!r}")


def _strings(value: Any, path: str) -> tuple[str, ...]:
    items = cast("list[Any]", [*value]) if isinstance(value, list | tuple | set | frozenset) else None
    if items is None or not all(isinstance(item, str) and item for item in items):
        raise ValueError(f"{path} must be a list of non-empty strings, got {value!r}")
    return tuple(items)


def _methods(value: Any, path: str) -> tuple[str, ...]:
    return tuple(method.upper() for method in _strings(value, path))


def _command(value: Any, path: str) -> tuple[str, ...] | None:
    if value is not None and not value:
        raise ValueError(f"{path} must not be empty")
    return None if value is None else _strings(value, path)


def _keys(value: Any, path: str) -> tuple[bytes, ...] | None:
    if value is None:
        return None
    items = cast("list[Any]", [*value]) if isinstance(value, list | tuple) else [value]
    if not items or not all(isinstance(item, str | bytes) and item for item in items):
        # The value itself is a secret and stays out of the message.
        raise ValueError(f"{path} must be a non-empty string or bytes, or a list of them")
    return tuple(item.encode() if isinstance(item, str) else item for item in items)


def _one_of(*choices: str) -> Check:
    def check(value: Any, path: str) -> Any:
        if value not in choices:
            raise ValueError(f"{path} must be one of {', '.join(map(repr, choices))}, got {value!r}")
        return value

    return check


# --- one mechanism for every part ---


@dataclass(frozen=True, kw_only=True)
class OptionPart:
    """A group of options. Raises `ValueError` naming the full path of a wrong value when made."""

    path: ClassVar[str] = ""

    def __post_init__(self) -> None:
        """Check every field, and store what its check gives."""
        for option in fields(self):
            if check := cast("Check | None", option.metadata.get("check")):
                object.__setattr__(self, option.name, check(getattr(self, option.name), self._path_of(option.name)))

    @classmethod
    def of(cls, value: Self | Mapping[str, Any] | None) -> Self:
        """Take options, a mapping with snake_case or camelCase keys, or None for the defaults."""
        if isinstance(value, cls):
            return value
        if value is None:
            return cls()
        if not isinstance(value, Mapping):
            path = cls.path or "options"
            raise ValueError(f"{path} must be a {cls.__name__} or a mapping, got {value!r}")  # noqa: TRY004 - as above
        return cls(**cls._keywords(value))

    @classmethod
    def _keywords(cls, given: Mapping[str, Any]) -> dict[str, Any]:
        known = {option.name for option in fields(cls)}
        keywords: dict[str, Any] = {}
        for key, value in given.items():
            name = _snake_case(key)
            if name not in known:
                raise ValueError(f"{cls._path_of(str(key))} is not an option{_nearest(name, known)}")
            if name in keywords:
                raise ValueError(f"{cls._path_of(name)} is given twice")
            keywords[name] = value
        return keywords

    @classmethod
    def _path_of(cls, name: str) -> str:
        return f"{cls.path}.{name}" if cls.path else name


def _snake_case(key: Any) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda capital: "_" + capital[0].lower(), str(key))


def _nearest(name: str, known: set[str]) -> str:
    matches = difflib.get_close_matches(name, sorted(known), n=1)
    return f"; did you mean {matches[0]!r}?" if matches else f"; known are {', '.join(sorted(known))}"


# --- the parts ---


@dataclass(frozen=True, kw_only=True)
class ExecutionPolicy(OptionPart):
    """Limits of one invocation. Byte limits count UTF-8 bytes of source or JSON text."""

    path: ClassVar[str] = "execution_policy"

    timeout_ms: int = _limit(30_000)
    memory_limit_bytes: int = _limit(64 * MIB, MAX_MEMORY_LIMIT_BYTES, minimum=MIB)
    max_stack_size_bytes: int = _limit(2 * MIB, MAX_STACK_SIZE_BYTES)
    max_result_bytes: int = _limit(MIB)
    max_source_bytes: int = _limit(256 * 1024, MAX_SOURCE_BYTES)
    max_tool_input_bytes: int = _limit(MIB)
    max_tool_output_bytes: int = _limit(4 * MIB)
    max_bridge_requests: int = _limit(256)
    max_in_flight_bridge_requests: int = _limit(32)
    max_console_bytes: int = _limit(64 * 1024)
    max_catalog_requests: int = _limit(64)
    max_description_characters: int = _limit(40_000)
    check_program: bool = _flag(default=True)


@dataclass(frozen=True, kw_only=True)
class FetchPolicy(OptionPart):
    """Which requests the guest's ``fetch`` may make. Without origins and prefixes none.

    ``fetch`` is ``async (url, *, method, headers, body) -> response``; None uses httpx. Addresses are checked before
    either, but only httpx's connection is pinned to the checked one. A prefix ends on a path boundary.
    """

    path: ClassVar[str] = "fetch_policy"

    fetch: Callable[..., Awaitable[Any]] | None = field(default=None, metadata=_CALLABLE)
    allowed_origins: tuple[str, ...] = _checked((), _strings)
    allowed_url_prefixes: tuple[str, ...] = _checked((), _strings)
    allowed_methods: tuple[str, ...] = _checked(("GET", "HEAD"), _methods)
    max_response_bytes: int = _limit(MIB)
    allow_redirects: bool = _flag(default=False)
    max_redirects: int = _limit(10)
    refuse_private_addresses: bool = _flag(default=True)


@dataclass(frozen=True, kw_only=True)
class ApprovalPolicy(OptionPart):
    """How calls that need approval get it: from a callback at once, or by pausing with an `Interrupt`."""

    path: ClassVar[str] = "approval"

    mode: Literal["callback", "interrupt"] = _checked("callback", _one_of("callback", "interrupt"))
    on_approval_required: Callable[..., Any] | None = field(default=None, metadata=_CALLABLE)
    show_denial_reason: bool = _flag(default=False)


@dataclass(frozen=True, kw_only=True)
class Lifecycle(OptionPart):
    """Listeners, sync or async, each called with one event. What they raise never affects the invocation."""

    path: ClassVar[str] = "lifecycle"

    on_nested_tool_call: Hook | None = field(default=None, metadata=_CALLABLE)
    on_nested_tool_result: Hook | None = field(default=None, metadata=_CALLABLE)
    on_fetch_request: Hook | None = field(default=None, metadata=_CALLABLE)
    on_fetch_result: Hook | None = field(default=None, metadata=_CALLABLE)
    on_interrupt: Hook | None = field(default=None, metadata=_CALLABLE)
    on_console: Hook | None = field(default=None, metadata=_CALLABLE)
    on_trace: Hook | None = field(default=None, metadata=_CALLABLE)
    on_hook_error: Callable[..., Awaitable[None] | None] | None = field(default=None, metadata=_CALLABLE)


@dataclass(frozen=True, kw_only=True)
class Telemetry(OptionPart):
    """OpenTelemetry spans and metrics. Source, inputs and outputs are never recorded, only their sizes.

    ``record_inputs`` and ``record_outputs`` False leave out the sizes too, and what tools said when they failed.
    ``tracer`` and ``meter`` None are the global providers' own. ``metadata`` becomes attributes of the outer span.
    """

    path: ClassVar[str] = "telemetry"

    is_enabled: bool = _flag(default=False)
    record_inputs: bool = _flag(default=True)
    record_outputs: bool = _flag(default=True)
    function_id: str | None = _checked(None, _text)
    metadata: Mapping[str, Any] | None = _checked(None, _mapping)
    tracer: Any = None
    meter: Any = None


@dataclass(frozen=True, kw_only=True)
class ModelOutput(OptionPart):
    """What `CodeModeTool.to_model_output` shows the model beside the result."""

    path: ClassVar[str] = "model_output"

    include_nested_tool_summary: bool = _flag(default=False)
    include_nested_tool_outputs: bool = _flag(default=False)
    include_fetch_summary: bool = _flag(default=False)
    include_console: bool = _flag(default=False)
    max_summary_entries: int = _checked(32, _none_below_zero)

    @property
    def summarises(self) -> bool:
        """True when calls are listed beside the result."""
        return self.include_nested_tool_summary or self.include_nested_tool_outputs or self.include_fetch_summary


@dataclass(frozen=True, kw_only=True)
class ContinuationOptions(OptionPart):
    """How continuations are signed and resumed. None means the process-wide setting.

    ``keys`` are bytes or text; the last signs, any verifies. ``context_binding`` is signed, not stored. ``seal``
    encrypts (extra ``sealed``), and then only sealed ones are taken; ``compress`` makes them smaller.
    """

    path: ClassVar[str] = "continuation"

    keys: tuple[bytes, ...] | None = field(default=None, repr=False, metadata={"check": _keys})
    max_age_ms: int | None = _optional_limit()
    context_binding: str | None = _checked(None, _text)
    seal: bool = _flag(default=False)
    compress: bool = _flag(default=False)
    guard: Any = None


@dataclass(frozen=True, kw_only=True)
class PoolOptions(OptionPart):
    """How many workers run and how they start. ``max_workers`` None follows the available memory."""

    path: ClassVar[str] = "pool"

    max_workers: int | None = _optional_limit()
    on_saturation: Literal["fail", "wait"] = _checked("fail", _one_of("fail", "wait"))
    wait_timeout_ms: int | None = _optional_limit()
    spare_workers: int = _checked(2, _not_negative)
    isolation: Literal["auto", "required"] = _checked("auto", _one_of("auto", "required"))
    start_method: Literal["auto", "fork", "exec"] = _checked("auto", _one_of("auto", "fork", "exec"))
    worker_command: tuple[str, ...] | None = _checked(None, _command)


@dataclass(frozen=True, kw_only=True, init=False)
class CodeModeOptions(OptionPart):
    """All options of an invocation. Each part may also be a mapping with snake_case or camelCase keys.

    ``fetch_policy`` None or False leaves the guest without ``fetch``.
    Raises `ValueError` naming the full path of what is wrong.
    """

    execution_policy: ExecutionPolicy
    fetch_policy: FetchPolicy | None
    approval: ApprovalPolicy
    lifecycle: Lifecycle
    telemetry: Telemetry
    model_output: ModelOutput
    continuation: ContinuationOptions

    def __init__(
        self,
        *,
        execution_policy: ExecutionPolicy | Mapping[str, Any] | None = None,
        fetch_policy: FetchPolicy | Mapping[str, Any] | Literal[False] | None = None,
        approval: ApprovalPolicy | Mapping[str, Any] | None = None,
        lifecycle: Lifecycle | Mapping[str, Any] | None = None,
        telemetry: Telemetry | Mapping[str, Any] | None = None,
        model_output: ModelOutput | Mapping[str, Any] | None = None,
        continuation: ContinuationOptions | Mapping[str, Any] | None = None,
    ) -> None:
        parts = {
            "execution_policy": ExecutionPolicy.of(execution_policy),
            "fetch_policy": None if fetch_policy is None or fetch_policy is False else FetchPolicy.of(fetch_policy),
            "approval": ApprovalPolicy.of(approval),
            "lifecycle": Lifecycle.of(lifecycle),
            "telemetry": Telemetry.of(telemetry),
            "model_output": ModelOutput.of(model_output),
            "continuation": ContinuationOptions.of(continuation),
        }
        for name, part in parts.items():
            object.__setattr__(self, name, part)

    def having(self, **parts: Any) -> CodeModeOptions:
        """Return the same options with some parts replaced."""
        kept: dict[str, Any] = {item.name: getattr(self, item.name) for item in fields(self)}
        return CodeModeOptions(**{**kept, **parts})
