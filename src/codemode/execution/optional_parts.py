"""Parts that only some options ask for, imported only for those: fetch, sealed continuations, telemetry, journal."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from ..options.parts import CodeModeOptions

if TYPE_CHECKING:
    from ..fetch.fetches import Fetcher
    from ..profile import HostErrors, SurfaceSettings
    from ..tools.catalog import ToolCatalog
    from ..tools.prepared import PreparedTool
    from ..trace.events import Event
    from .call_context import CallContext, OuterCall
    from .journal_opening import Journaling
    from .program_state import ProgramState


_telemetry_is_loaded = False
_imported = set[str]()


def require_optional_parts(options: CodeModeOptions) -> None:
    """Raise `ValueError` for a wrong origin, and for what is asked for and not installed."""
    make_fetches(options)
    require_cipher(options)
    if options.telemetry.is_enabled:
        from ..observe.telemetry import require_opentelemetry

        require_opentelemetry(options.telemetry)
    _imported.update(_list_requested_parts(options))


def are_parts_imported(options: CodeModeOptions) -> bool:
    """True when `require_optional_parts` imports nothing."""
    return _imported.issuperset(_list_requested_parts(options))


def _list_requested_parts(options: CodeModeOptions) -> set[str]:
    asked = {
        "fetch": options.fetch_policy is not None,
        "seal": options.continuation.seal,
        "telemetry": options.telemetry.is_enabled,
    }
    return {name for name, is_asked in asked.items() if is_asked}


def make_fetches(options: CodeModeOptions) -> Fetcher | None:
    """Return what performs the fetches of one invocation; None: there is no fetch. See `Fetcher.of`."""
    if options.fetch_policy is None:
        return None
    from ..fetch.fetches import Fetcher

    return Fetcher.of(options)


def describe_fetch(options: CodeModeOptions) -> str | None:
    """Return what the model is told about ``fetch``; None when there is none."""
    if options.fetch_policy is None:
        return None
    from ..fetch.fetches import describe_fetch

    return describe_fetch(options.fetch_policy)


def require_cipher(options: CodeModeOptions) -> None:
    """Raise `ValueError` when continuations are to be sealed and nothing here can seal them."""
    if options.continuation.seal:
        from ..continuations.sealing import require_cipher

        require_cipher(options.continuation)


def optional_parts_are_loaded() -> bool:
    """True when `telemetry_listeners` reads no file."""
    return _telemetry_is_loaded


def load_optional_parts(options: CodeModeOptions) -> None:
    """Read and import what `telemetry_listeners` needs; it would do so itself, on the event loop."""
    global _telemetry_is_loaded  # noqa: PLW0603 - once for the process
    if options.telemetry.is_enabled:
        from ..observe.recorded_names import package_version

        package_version()
        _telemetry_is_loaded = True


def telemetry_listeners(
    options: CodeModeOptions, find_tool: Callable[[str], Any], outer_tool: str, host_errors: HostErrors
) -> tuple[Callable[[Event], None], ...]:
    """Return what records one invocation; nothing unless enabled. See `codemode.observe.telemetry`."""
    if not options.telemetry.is_enabled:
        return ()
    from ..observe.telemetry import create_telemetry_listeners

    return create_telemetry_listeners(options.telemetry, find_tool, outer_tool, host_errors)


class OptionalParts(NamedTuple):
    """What one invocation has of them."""

    fetches: Fetcher | None = None
    state: ProgramState | None = None
    journaling: Journaling | None = None
    listeners: tuple[Callable[[Event], None], ...] = ()


NO_PARTS = OptionalParts()


def make_optional_parts(
    options: CodeModeOptions,
    outer: OuterCall,
    catalog: ToolCatalog[PreparedTool],
    profile: SurfaceSettings,
    *,
    is_direct: bool,
) -> OptionalParts:
    """Return what an invocation has of them. Raises `ValueError` for what is asked for and cannot be."""
    fetches = make_fetches(options) if "fetch" in profile.request_kinds else None
    state = make_program_state(options, outer.call) if "state" in profile.request_kinds else None
    if "seal" not in _imported:
        require_cipher(options)
    journaling, listeners = None, ()
    if options.continuation.journal is not None:
        from .identity import require_journal_identity

        require_journal_identity(options.continuation, outer.call)
        journaling = make_journaling(options, outer, catalog, profile)
    if options.telemetry.is_enabled:
        called = profile.direct_tool if is_direct else profile.outer_tool
        listeners = telemetry_listeners(options, catalog.get, called, profile.host_errors)
    return OptionalParts(fetches, state, journaling, listeners)


def make_program_state(options: CodeModeOptions, call: CallContext) -> ProgramState | None:
    """Return the state that a program shares with others; None where the host gives no place for it."""
    if call.state is None and not options.has_state:
        return None
    from .call_context import make_state_backend
    from .program_state import ProgramState

    place = make_state_backend(options, call)
    return None if place is None else ProgramState(place)


def make_journaling(
    options: CodeModeOptions, outer: OuterCall, catalog: ToolCatalog[PreparedTool], profile: SurfaceSettings
) -> Journaling | None:
    """Return what opens the journal of one program; None where there is none."""
    if options.continuation.journal is None:
        return None
    from .journal_opening import Journaling

    return Journaling(options.continuation, outer.call, catalog, profile)
