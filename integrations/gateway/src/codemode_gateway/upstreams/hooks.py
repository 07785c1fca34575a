"""Define the hooks around calls and lists of upstream servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from ..config.model import ServerConfig

NeedsApproval = bool | Callable[[Any, Any], Any]


def _get_no_approval_rule(_server: ServerConfig, _tool: types.Tool) -> NeedsApproval:
    return False


async def _keep_all_tools(_server: ServerConfig, tools: Sequence[types.Tool]) -> Sequence[types.Tool]:
    return tools


def _ignore_result(_server: ServerConfig, _tool: str, _value: Any) -> None: ...


async def _ignore_notification(_server: ServerConfig, _notification: types.ServerNotification) -> None: ...


def _get_no_notes(_server: ServerConfig) -> Sequence[str]:
    return ()


def _get_constant_revision(_server: ServerConfig) -> int:
    return 0


def _get_no_observed_output(_server: ServerConfig, _tool: types.Tool) -> Mapping[str, Any] | None:
    return None


def _get_no_log_level(_server: ServerConfig) -> types.LoggingLevel | None:
    return None


def _create_no_auth(_server: ServerConfig) -> Any:
    return None


async def _do_not_retry(_server: ServerConfig, _context: Any) -> bool:
    return False


@dataclass(frozen=True)
class UpstreamHooks:
    """Callbacks for one server, called on its event loop. An exception fails the call or listing.

    ``get_approval_rule`` returns a tool's ``needs_approval``. ``filter_tools`` returns the tools that programs see;
    ``get_filter_revision`` grows when its result changes by itself. ``on_result`` receives each unwrapped result;
    ``get_observed_output`` returns what is known of an undeclared output, and ``get_learned_revision`` grows with it.
    ``get_notes`` returns notes for programs that import the server.

    ``on_request`` answers ``elicitation/create``, ``sampling/createMessage`` and ``roots/list``; its third argument is
    the `ToolCallContext` of the call, or None. Without the hook, requests are declined. ``on_notification`` receives
    notifications; ``get_log_level`` returns the subscribed level or None. ``create_auth`` returns the ``httpx2.Auth``
    of a server, or None. ``on_signed_out`` is called for a call that needs sign-in; it may pause the program, and
    returns whether to retry.
    """

    get_approval_rule: Callable[[ServerConfig, types.Tool], NeedsApproval] = _get_no_approval_rule
    filter_tools: Callable[[ServerConfig, Sequence[types.Tool]], Awaitable[Sequence[types.Tool]]] = _keep_all_tools
    on_result: Callable[[ServerConfig, str, Any], None] = _ignore_result
    get_observed_output: Callable[[ServerConfig, types.Tool], Mapping[str, Any] | None] = _get_no_observed_output
    get_learned_revision: Callable[[ServerConfig], int] = _get_constant_revision
    get_notes: Callable[[ServerConfig], Sequence[str]] = _get_no_notes
    get_filter_revision: Callable[[ServerConfig], int] = _get_constant_revision
    on_request: Callable[[ServerConfig, str, Mapping[str, Any], Any], Awaitable[Any]] | None = None
    on_notification: Callable[[ServerConfig, types.ServerNotification], Awaitable[None]] = _ignore_notification
    get_log_level: Callable[[ServerConfig], types.LoggingLevel | None] = _get_no_log_level
    create_auth: Callable[[ServerConfig], Any] = _create_no_auth
    on_signed_out: Callable[[ServerConfig, Any], Awaitable[bool]] = _do_not_retry
