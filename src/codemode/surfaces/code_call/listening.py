"""Whoever listens to CodeCall beside its runs: a client that is notified, questions to the catalog.

What they need imports asyncio, and is imported when something is asked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Literal

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


def question(
    options: CodeCallOptions, operation: Literal["search", "describe"], asked: Any, tool_call_id: str | None
) -> CatalogQuestion:
    """Return what tells hooks and telemetry of a question to the catalog. ``async with`` it."""
    from ...observe.meta_tools import CatalogQuestion

    return CatalogQuestion(options.settings, meta_name(operation, options.names), operation, asked, tool_call_id)
