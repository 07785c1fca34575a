"""Import fetch, sealing, telemetry and journal only for options that need them."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options.parts import CodeModeOptions

if TYPE_CHECKING:
    from ..fetch.fetcher import Fetcher
    from ..profile import HostErrorRules, SurfaceSettings
    from ..tools.catalog import ToolCatalog
    from ..tools.prepared import PreparedTool
    from ..trace.events import InvocationEvent
    from .call_context import CallContext, OuterCallSettings
    from .journal_opening import RunJournaling
    from .program_state import ProgramState


_telemetry_is_loaded = False
_imported = set[str]()


def import_and_require_optional_parts(options: CodeModeOptions) -> None:
    """Raise `ValueError` for a wrong origin and for requested parts that are not installed."""
    make_fetcher(options)
    require_cipher_if_seal_requested(options)
    if options.telemetry.is_enabled:
        from ..observe.telemetry import require_opentelemetry_if_enabled

        require_opentelemetry_if_enabled(options.telemetry)
    _imported.update(_list_requested_parts(options))


def are_optional_parts_imported(options: CodeModeOptions) -> bool:
    """Return True if `import_and_require_optional_parts` would import nothing."""
    return _imported.issuperset(_list_requested_parts(options))


def _list_requested_parts(options: CodeModeOptions) -> set[str]:
    requested = {
        "fetch": options.fetch_policy is not None,
        "seal": options.continuation.seal,
        "telemetry": options.telemetry.is_enabled,
    }
    return {name for name, is_asked in requested.items() if is_asked}


def make_fetcher(options: CodeModeOptions) -> Fetcher | None:
    """Return the fetcher of one invocation; None if fetch is not allowed. See `Fetcher.from_options`."""
    if options.fetch_policy is None:
        return None
    from ..fetch.fetcher import Fetcher

    return Fetcher.from_options(options)


def describe_fetch(options: CodeModeOptions) -> str | None:
    """Return the model's description of ``fetch``; None if it is not allowed."""
    if options.fetch_policy is None:
        return None
    from ..fetch.fetcher import describe_fetch

    return describe_fetch(options.fetch_policy)


def require_cipher_if_seal_requested(options: CodeModeOptions) -> None:
    """Raise `ValueError` if continuations are to be sealed and no cipher is installed."""
    if options.continuation.seal:
        from ..continuations.sealing import require_cipher_if_sealing

        require_cipher_if_sealing(options.continuation)


def is_telemetry_imported() -> bool:
    """Return True if `make_telemetry_listeners` reads no file."""
    return _telemetry_is_loaded


def import_telemetry_if_enabled(options: CodeModeOptions) -> None:
    """Import in a thread what `make_telemetry_listeners` would import on the event loop."""
    global _telemetry_is_loaded  # noqa: PLW0603 - once for the process
    if options.telemetry.is_enabled:
        from ..observe.recorded_names import get_package_version

        get_package_version()
        _telemetry_is_loaded = True


def make_telemetry_listeners(
    options: CodeModeOptions, find_tool: Callable[[str], Any], outer_tool: str, host_errors: HostErrorRules
) -> tuple[Callable[[InvocationEvent], None], ...]:
    """Return the telemetry listeners of one invocation, if enabled. See `codemode.observe.telemetry`."""
    if not options.telemetry.is_enabled:
        return ()
    from ..observe.telemetry import create_telemetry_listeners

    return create_telemetry_listeners(options.telemetry, find_tool, outer_tool, host_errors)


class OptionalParts(NamedTuple):
    """The optional parts of one invocation."""

    fetcher: Fetcher | None = None
    state: ProgramState | None = None
    journaling: RunJournaling | None = None
    listeners: tuple[Callable[[InvocationEvent], None], ...] = ()


NO_PARTS = OptionalParts()


def make_optional_parts(
    options: CodeModeOptions,
    outer: OuterCallSettings,
    catalog: ToolCatalog[PreparedTool],
    profile: SurfaceSettings,
    *,
    is_direct: bool,
) -> OptionalParts:
    """Return the optional parts of an invocation. Raises `ValueError` for parts that are not available."""
    fetches = make_fetcher(options) if "fetch" in profile.request_kinds else None
    state = make_program_state(options, outer.call) if "state" in profile.request_kinds else None
    if "seal" not in _imported:
        require_cipher_if_seal_requested(options)
    journaling, listeners = None, ()
    if options.continuation.journal is not None:
        from .identity import require_journal_identity

        require_journal_identity(options.continuation, outer.call)
        journaling = make_journaling(options, outer, catalog, profile)
    if options.telemetry.is_enabled:
        called = profile.direct_tool if is_direct else profile.outer_tool
        listeners = make_telemetry_listeners(options, catalog.get, called, profile.host_errors)
    return OptionalParts(fetches, state, journaling, listeners)


def make_program_state(options: CodeModeOptions, call: CallContext) -> ProgramState | None:
    """Return the state of a program; None if the host has no backend for it."""
    if call.state is None and not options.has_state:
        return None
    from .call_context import make_state_backend
    from .program_state import ProgramState

    place = make_state_backend(options, call)
    return None if place is None else ProgramState(place)


def make_journaling(
    options: CodeModeOptions, outer: OuterCallSettings, catalog: ToolCatalog[PreparedTool], profile: SurfaceSettings
) -> RunJournaling | None:
    """Return the journaling of one program; None without a journal."""
    if options.continuation.journal is None:
        return None
    from .journal_opening import RunJournaling

    return RunJournaling(options.continuation, outer.call, catalog, profile)
