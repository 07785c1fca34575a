"""Hooks around calls of servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from ..config.model import ServerConfig

NeedsApproval = bool | Callable[[Any, Any], Any]


def _needs_no_approval(_server: ServerConfig, _tool: types.Tool) -> NeedsApproval:
    return False


async def _keep_all_tools(_server: ServerConfig, tools: Sequence[types.Tool]) -> Sequence[types.Tool]:
    return tools


def _ignore_result(_server: ServerConfig, _tool: str, _value: Any) -> None: ...


async def _ignore_notification(_server: ServerConfig, _notification: types.ServerNotification) -> None: ...


def _no_notes(_server: ServerConfig) -> Sequence[str]:
    return ()


def _constant_revision(_server: ServerConfig) -> int:
    return 0


def _no_observed_output(_server: ServerConfig, _tool: types.Tool) -> Mapping[str, Any] | None:
    return None


def _no_log_level(_server: ServerConfig) -> types.LoggingLevel | None:
    return None


def _no_sign_in(_server: ServerConfig) -> Any:
    return None


async def _do_not_retry(_server: ServerConfig, _context: Any) -> bool:
    return False


@dataclass(frozen=True)
class UpstreamHooks:
    """Each is called on the loop of its server. All may raise; then the call, or the listing, fails by it.

    ``approval`` says whether a person is asked about calls of a tool, as ``Tool(needs_approval=...)`` takes it.
    ``listed`` gets the tools that the configuration allows and returns those that programs see. ``returned`` sees what
    a call gave, unwrapped, before the program does; ``observed`` tells what it has seen of a tool without an output
    schema, as `observed_output` of the run tool reads it, and ``learned`` a number that grows with that. ``notes`` are
    what programs that import the server are told of its tools, and ``changes`` a number that grows whenever ``listed``
    would give other tools by itself. ``asked`` answers a request of the server, ``method`` and its
    params: ``elicitation/create``, ``sampling/createMessage``, ``roots/list``; the call in which it came is its third
    argument, the `ToolCallContext`, or None; without the hook each is declined. ``notified`` hears of what a server
    says by itself; ``log_level`` tells from which level on somebody hears what it logs, None where nobody does.
    ``sign_in`` returns the ``httpx2.Auth`` of a server, or None. ``signed_out`` is called where a call
    was not made because nobody is signed in, with the call's `ToolCallContext`: it may pause the program, and returns
    whether to send the call once more.
    """

    get_approval_rule: Callable[[ServerConfig, types.Tool], NeedsApproval] = _needs_no_approval
    filter_tools: Callable[[ServerConfig, Sequence[types.Tool]], Awaitable[Sequence[types.Tool]]] = _keep_all_tools
    on_result: Callable[[ServerConfig, str, Any], None] = _ignore_result
    get_observed_output: Callable[[ServerConfig, types.Tool], Mapping[str, Any] | None] = _no_observed_output
    get_learned_revision: Callable[[ServerConfig], int] = _constant_revision
    get_notes: Callable[[ServerConfig], Sequence[str]] = _no_notes
    get_filter_revision: Callable[[ServerConfig], int] = _constant_revision
    on_request: Callable[[ServerConfig, str, Mapping[str, Any], Any], Awaitable[Any]] | None = None
    on_notification: Callable[[ServerConfig, types.ServerNotification], Awaitable[None]] = _ignore_notification
    get_log_level: Callable[[ServerConfig], types.LoggingLevel | None] = _no_log_level
    create_auth: Callable[[ServerConfig], Any] = _no_sign_in
    on_signed_out: Callable[[ServerConfig, Any], Awaitable[bool]] = _do_not_retry
