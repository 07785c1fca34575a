"""Whoever listens to CodeCall beside its runs: a client that is notified, questions to the catalog, refused calls.

What they need imports asyncio, and is imported when something is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

from ...errors import CodeModeError
from ...profile import HostErrors
from .names import meta_name
from .options import CodeCallOptions

if TYPE_CHECKING:
    from ...observe.meta_tools import CatalogQuestion


def listeners_of_run(options: CodeCallOptions) -> tuple[Callable[[Any], Any], ...]:
    """Return what hears one run: it tells ``options.notify``, if there is one."""
    if options.notify is None:
        return ()
    from ...observe.notifications import Notifications

    return (Notifications(options.notify),)


def question(options: CodeCallOptions, operation: Literal["search", "describe"], asked: Any) -> CatalogQuestion:
    """Return what tells hooks and telemetry of a question to the catalog. ``async with`` it."""
    from ...observe.meta_tools import CatalogQuestion

    return CatalogQuestion(options.settings, meta_name(operation, options.names), operation, asked)


async def tell_refused_call(
    options: CodeCallOptions, told: HostErrors, error: CodeModeError, tool_name: str, tool_call_id: str | None
) -> None:
    """Tell whoever listens of a direct call that was refused before anything of it ran."""
    from ...observe.meta_tools import tell_refused_call as tell

    name, listeners = meta_name("invoke", options.names), listeners_of_run(options)
    await tell(options.settings, told, name, tool_name, error, tool_call_id, listeners)
