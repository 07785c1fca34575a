"""Whoever listens to CodeCall beside its runs: a client that is notified, questions to the catalog.

What they need imports asyncio, and is imported when something is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from .names import meta_name
from .options import CodeCallOptions

if TYPE_CHECKING:
    from ...errors import CodeModeError
    from ...observe.meta_tools import CatalogQuestion
    from ...profile import Profile


def listeners_of_run(options: CodeCallOptions) -> tuple[Callable[[Any], Any], ...]:
    """Return what hears one run: it tells ``options.notify``, if there is one."""
    if options.notify is None:
        return ()
    from ...observe.notifications import Notifications

    return (Notifications(options.notify),)


def question(
    options: CodeCallOptions, operation: Literal["search", "describe"], tool_call_id: str | None
) -> CatalogQuestion:
    """Return what tells hooks and telemetry of a question to the catalog. ``async with`` it, and say what is asked."""
    from ...observe.meta_tools import CatalogQuestion

    return CatalogQuestion(options.settings, meta_name(operation, options.names), operation, None, tool_call_id)


async def tell_wrong_input(
    options: CodeCallOptions, profile: Profile, script: str | None, tool_call_id: str | None, error: CodeModeError
) -> None:
    """Tell hooks and telemetry of a run that did not begin, for its input was wrong; ``script`` None: of a direct call.

    Whoever is notified hears of calls, and there was none.
    """
    from ...execution.optional_parts import telemetry_listeners
    from ...observe.meta_tools import tell_unbegun

    called = profile.direct_tool if script is None else profile.outer_tool
    listeners = telemetry_listeners(options.settings, lambda _name: None, called, profile.host_errors)
    await tell_unbegun(options.settings, listeners, script, tool_call_id, error)
