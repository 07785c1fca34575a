"""Options of the CodeCall tools."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import field, fields, replace
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeAlias, TypedDict

from ...options.checked_fields import (
    CALLABLE,
    Check,
    flag_field,
    make_choice_check,
    make_methods_or_none_check,
    option_field,
    positive_limit_field,
    require_positive,
    require_strings,
)
from ...options.part import OptionGroup, option_group
from ...options.parts import MAX_SOURCE_BYTES, MIB, CodeModeOptions
from .names import looks_like_meta_tool

Mode: TypeAlias = Literal["codecall_only", "codecall_opt_in", "metadata_driven"]
NameStyle: TypeAlias = Literal["dotted", "colon", "underscore"]
MODES = ("codecall_only", "codecall_opt_in", "metadata_driven")

MAX_LISTED = 50
"""Maximum number of tools in one answer of search or describe."""
MAX_SANITIZE_DEPTH = 100
ALWAYS_BANNED = ("eval", "Function")
RESERVED_PREFIXES = ("system:", "internal:", "__")
_DISABLED_BUILTINS = (*ALWAYS_BANNED, "AsyncFunction")
_STRICT_GLOBALS = (
    "require", "process", "fetch", "setTimeout", "setInterval", "setImmediate", "global", "globalThis",
)  # fmt: skip
_RESERVED_TEXT = """
    arguments await break case catch class const continue debugger default delete do else enum export extends false
    finally for function if implements import in instanceof interface let new null package private protected public
    return static super switch this throw true try typeof var void while with yield
"""
_RESERVED_WORDS = frozenset(_RESERVED_TEXT.split())


class _VmPresetValues(TypedDict):
    timeout_ms: int
    max_steps: int
    allow_loops: bool
    allow_console: bool
    disabled_builtins: tuple[str, ...]
    disabled_globals: tuple[str, ...]
    max_sanitize_depth: int
    max_sanitize_properties: int


def _build_preset(
    timeout_ms: int, max_steps: int, banned: tuple[str, ...], depth: int, properties: int, **allowed: bool
) -> _VmPresetValues:
    return {
        "timeout_ms": timeout_ms,
        "max_steps": max_steps,
        "allow_loops": allowed["loops"],
        "allow_console": allowed["console"],
        "disabled_builtins": _DISABLED_BUILTINS,
        "disabled_globals": banned,
        "max_sanitize_depth": depth,
        "max_sanitize_properties": properties,
    }


PRESETS: Mapping[str, _VmPresetValues] = MappingProxyType(
    {
        "locked_down": _build_preset(2_000, 2_000, _STRICT_GLOBALS, 10, 1_000, loops=False, console=False),
        "secure": _build_preset(3_500, 5_000, _STRICT_GLOBALS, 50, 2_000, loops=False, console=True),
        "balanced": _build_preset(5_000, 10_000, ("require", "process", "fetch"), 50, 5_000, loops=True, console=True),
        "experimental": _build_preset(10_000, 20_000, ("require", "process"), 100, 20_000, loops=True, console=True),
    }
)


def _preset_field(check: Check) -> Any:
    def check_or_none(value: Any, path: str) -> Any:
        return None if value is None else check(value, path)

    return field(default=None, metadata={"check": check_or_none})


def _create_maximum_check(maximum: int) -> Check:
    return lambda value, path: require_positive(value, path, maximum)


def _require_boolean(value: Any, path: str) -> bool:
    if not isinstance(value, bool):
        raise ValueError(f"{path} must be True or False, got {value!r}")  # noqa: TRY004 - invalid options raise ValueError
    return value


def _require_identifiers(value: Any, path: str) -> tuple[str, ...]:
    names = tuple(dict.fromkeys(require_strings(value, path)))
    for name in names:
        # They are inserted into the code around the script, so only identifiers are allowed.
        if not name.replace("$", "_").isidentifier() or name in _RESERVED_WORDS:
            raise ValueError(f"{path} must be JavaScript identifiers; {name!r} is not one")
    return names


def _require_strings_or_none(value: Any, path: str) -> tuple[str, ...] | None:
    return None if value is None else require_strings(value, path)


def _require_unique_strings(value: Any, path: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(require_strings(value, path)))


@option_group
class DirectCallOptions(OptionGroup):
    """Which tools ``codecall.invoke`` can call without a script.

    ``allowed_tools`` None means all in the index. ``filter`` takes the same argument as ``include_tools`` and can be
    async; if it raises, the call is refused.
    """

    path: ClassVar[str] = "direct_calls"

    enabled: bool = flag_field(default=False)
    allowed_tools: tuple[str, ...] | None = option_field(None, _require_strings_or_none)
    filter: Callable[..., Any] | None = field(default=None, metadata=CALLABLE)


@option_group
class VmOptions(OptionGroup):
    """Rules and limits of scripts: a preset, and fields that override it.

    ``max_steps`` limits tool calls. Lists replace those of the preset, but ``eval`` and ``Function`` stay banned.
    With ``check_tools`` False, unknown tool names fail at run time instead of before the run.
    """

    path: ClassVar[str] = "vm"

    preset: Literal["locked_down", "secure", "balanced", "experimental"] = option_field(
        "secure", make_choice_check(*PRESETS)
    )
    timeout_ms: int = _preset_field(require_positive)
    max_steps: int = _preset_field(require_positive)
    allow_loops: bool = _preset_field(_require_boolean)
    allow_console: bool = _preset_field(_require_boolean)
    disabled_builtins: tuple[str, ...] = _preset_field(_require_identifiers)
    disabled_globals: tuple[str, ...] = _preset_field(_require_identifiers)
    max_sanitize_depth: int = _preset_field(_create_maximum_check(MAX_SANITIZE_DEPTH))
    max_sanitize_properties: int = _preset_field(require_positive)
    check_tools: bool = flag_field(default=True)

    def __post_init__(self) -> None:
        """Check every field and fill unset fields from the preset."""
        super().__post_init__()
        for name, value in PRESETS[self.preset].items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        banned = tuple(dict.fromkeys((*ALWAYS_BANNED, *self.disabled_builtins)))
        object.__setattr__(self, "disabled_builtins", banned)


@option_group
class SidecarOptions(OptionGroup):
    """Pass large strings of tools to scripts as references. Sizes are in bytes.

    ``max_reference_size`` limits one string, ``max_total_size`` all strings of an invocation, ``max_resolved_size`` the
    results of conversions and joins. If disabled, ``max_script_length_when_disabled`` limits the script.
    """

    path: ClassVar[str] = "sidecar"

    enabled: bool = flag_field(default=False)
    max_total_size: int = positive_limit_field(10 * MIB)
    max_reference_size: int = positive_limit_field(MIB)
    extraction_threshold: int = positive_limit_field(1024)
    max_resolved_size: int = positive_limit_field(5 * MIB)
    allow_composites: bool = flag_field(default=False)
    max_script_length_when_disabled: int | None = option_field(
        65_536, lambda value, path: None if value is None else require_positive(value, path, MAX_SOURCE_BYTES)
    )


@option_group
class SearchOptions(OptionGroup):
    """How tools are found: by keywords and ``embed(texts) -> vectors``, sync or async; or by a ``strategy``."""

    path: ClassVar[str] = "search"

    embed: Callable[..., Any] | None = field(default=None, metadata=CALLABLE)
    strategy: Any = field(default=None, metadata={"check": make_methods_or_none_check("search")})


def _build_option_group_field_metadata(kind: type[OptionGroup]) -> dict[str, Check]:
    return {"check": lambda value, _path: kind.of(value)}


def _parse_settings(value: Any, path: str) -> CodeModeOptions:
    if value is not None and not isinstance(value, CodeModeOptions | Mapping):
        raise ValueError(f"{path} must be CodeModeOptions or a mapping, got {value!r}")
    try:
        settings = CodeModeOptions.of(value)  # pyright: ignore[reportUnknownArgumentType] - it checks each key
    except ValueError as error:
        raise ValueError(f"{path}.{error}") from error
    if settings.fetch_policy is not None:
        raise ValueError(f"{path}.fetch_policy is not supported by CodeCall: scripts have no fetch")
    return settings


@option_group
class CodeCallOptions(OptionGroup):
    """All options of `create_code_call_tools`. Parts can also be mappings with snake_case or camelCase keys.

    ``include_tools(info) -> bool``, ``app_ids``, ``mode`` and the metadata of tools decide, in this order, which tools
    are indexed; names with one of ``reserved_prefixes`` never are. ``tool_errors`` "message" shows scripts the errors
    of tools, without paths. ``notify(event)`` receives calls, logs and notifications of scripts. ``settings``:
    approvals, lifecycle, telemetry, continuations and limits, as in `create_code_mode_tool`, except that ``vm`` sets
    the timeout and the number of calls. Raises `ValueError` with the full path of an invalid option.
    """

    mode: Literal["codecall_only", "codecall_opt_in", "metadata_driven"] = option_field(
        "codecall_only", make_choice_check(*MODES)
    )
    top_k: int = positive_limit_field(8, MAX_LISTED)
    max_definitions: int = positive_limit_field(8, MAX_LISTED)
    include_tools: Callable[..., bool] | None = field(default=None, metadata=CALLABLE)
    app_ids: tuple[str, ...] | None = option_field(None, _require_strings_or_none)
    direct_calls: DirectCallOptions = field(metadata=_build_option_group_field_metadata(DirectCallOptions))
    vm: VmOptions = field(metadata=_build_option_group_field_metadata(VmOptions))
    sidecar: SidecarOptions = field(metadata=_build_option_group_field_metadata(SidecarOptions))
    search: SearchOptions = field(metadata=_build_option_group_field_metadata(SearchOptions))
    names: Literal["dotted", "colon", "underscore"] = option_field(
        "dotted", make_choice_check("dotted", "colon", "underscore")
    )
    tool_errors: Literal["hidden", "message"] = option_field("hidden", make_choice_check("hidden", "message"))
    notify: Callable[..., Any] | None = field(default=None, metadata=CALLABLE)
    settings: CodeModeOptions = field(metadata={"check": _parse_settings})
    reserved_prefixes: tuple[str, ...] = option_field(RESERVED_PREFIXES, _require_unique_strings)

    @staticmethod
    def looks_like_meta_tool_name(name: str) -> bool:
        """Return True if a reader could take a name for a meta-tool, including look-alike letters."""
        return looks_like_meta_tool(name)

    def __init__(
        self,
        *,
        mode: Mode = "codecall_only",
        top_k: int = 8,
        max_definitions: int = 8,
        include_tools: Callable[..., bool] | None = None,
        app_ids: Iterable[str] | None = None,
        direct_calls: DirectCallOptions | Mapping[str, Any] | None = None,
        vm: VmOptions | Mapping[str, Any] | None = None,
        sidecar: SidecarOptions | Mapping[str, Any] | None = None,
        search: SearchOptions | Mapping[str, Any] | None = None,
        names: NameStyle = "dotted",
        tool_errors: Literal["hidden", "message"] = "hidden",
        notify: Callable[..., Any] | None = None,
        settings: CodeModeOptions | Mapping[str, Any] | None = None,
        reserved_prefixes: Iterable[str] = RESERVED_PREFIXES,
    ) -> None:
        for name, value in locals().items():
            if name not in ("self", "__class__"):
                object.__setattr__(self, name, value)
        self.__post_init__()

    @classmethod
    def _suggest_option_path(cls, name: str, /) -> str | None:
        known = {option.name for option in fields(cls)}
        for path, part in _PARTS_WITH_OPTIONS.items():
            if name in {option.name for option in fields(part)} - known - _AMBIGUOUS_OPTIONS:
                return f"{path}.{name}"
        return _FOREIGN_OPTION_PATHS.get(name)

    def with_changes(self, **values: Any) -> CodeCallOptions:
        """Return a copy with some options replaced."""
        return replace(self, **values)


# The parts of options that users often set at the top level.
_PARTS_WITH_OPTIONS: Mapping[str, type[OptionGroup]] = {
    "settings": CodeModeOptions,
    "vm": VmOptions,
    "sidecar": SidecarOptions,
    "search": SearchOptions,
}
_AMBIGUOUS_OPTIONS = {"enabled", "fetch_policy"}
_FOREIGN_OPTION_PATHS = {"embedding": "search.embed", "audit_log": "settings.lifecycle", "hooks": "settings.pipeline"}
