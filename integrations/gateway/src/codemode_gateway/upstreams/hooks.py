"""Hooks around calls of servers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import mcp_types as types

from ..config.model import ServerConfig

NeedsApproval = bool | Callable[[Any, Any], Any]


def _never(_server: ServerConfig, _tool: types.Tool) -> NeedsApproval:
    return False


async def _as_listed(_server: ServerConfig, tools: Sequence[types.Tool]) -> Sequence[types.Tool]:
    return tools


def _unlearned(_server: ServerConfig, _tool: str, _value: Any) -> None: ...


async def _unheard(_server: ServerConfig, _notification: types.ServerNotification) -> None: ...


def _nothing_said(_server: ServerConfig) -> Sequence[str]:
    return ()


def _unchanged(_server: ServerConfig) -> int:
    return 0


def _unobserved(_server: ServerConfig, _tool: types.Tool) -> Mapping[str, Any] | None:
    return None


def _unlogged(_server: ServerConfig) -> types.LoggingLevel | None:
    return None


def _no_sign_in(_server: ServerConfig) -> Any:
    return None


async def _fails(_server: ServerConfig, _context: Any) -> bool:
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

    approval: Callable[[ServerConfig, types.Tool], NeedsApproval] = _never
    listed: Callable[[ServerConfig, Sequence[types.Tool]], Awaitable[Sequence[types.Tool]]] = _as_listed
    returned: Callable[[ServerConfig, str, Any], None] = _unlearned
    observed: Callable[[ServerConfig, types.Tool], Mapping[str, Any] | None] = _unobserved
    learned: Callable[[ServerConfig], int] = _unchanged
    notes: Callable[[ServerConfig], Sequence[str]] = _nothing_said
    changes: Callable[[ServerConfig], int] = _unchanged
    asked: Callable[[ServerConfig, str, Mapping[str, Any], Any], Awaitable[Any]] | None = None
    notified: Callable[[ServerConfig, types.ServerNotification], Awaitable[None]] = _unheard
    log_level: Callable[[ServerConfig], types.LoggingLevel | None] = _unlogged
    sign_in: Callable[[ServerConfig], Any] = _no_sign_in
    signed_out: Callable[[ServerConfig, Any], Awaitable[bool]] = _fails
