"""``codemode mcp list``: the servers of a configuration with their policy, and no secret."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from codemode.cli.exits import DONE
from codemode.trace.visible_text import aligned, counted, one_line

from .setup import configuration, warn

if TYPE_CHECKING:
    from ..config.values import GatewayConfig, ServerConfig

_MAX_SHOWN_CHARACTERS = 80


def run(options: argparse.Namespace) -> int:
    """Print one line for each server."""
    config = configuration(options)
    if options.json:
        print(json.dumps(_as_json(config), indent=2, ensure_ascii=False))
        return DONE
    rows = [("server", "transport", "where", "approval", "tools", "pin", "timeout")]
    rows += [_row(one) for one in config.servers]
    rows += [(one_line(name, 40), "", "disabled", "", "", "", "") for name in config.disabled]
    wrong = dict.fromkeys(one.server for one in config.problems if one.server is not None)
    rows += [(one_line(name, 40), "", "cannot be used: see above", "", "", "", "") for name in wrong]
    if rows[1:]:
        print("\n".join(aligned(rows)))
    for problem in config.problems:
        if problem.server is None:
            warn(f"{config.path}: {problem}")
    return DONE


def where(server: ServerConfig) -> str:
    """Return what a server is, without what could be a secret: of a command its name, of a URL its host."""
    if server.command is not None:
        return f"{server.command} ({counted(len(server.args), 'argument')})" if server.args else server.command
    parts = urlsplit(server.url or server.base_url or server.document or "")
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" + ("/…" if parts.path.strip("/") or parts.query else "")


def _row(server: ServerConfig) -> tuple[str, ...]:
    return (
        one_line(server.name, 40),
        server.transport,
        one_line(where(server), _MAX_SHOWN_CHARACTERS),
        _approval(server),
        _tools(server),
        server.pin,
        f"{server.timeout_ms / 1000:g} s",
    )


def _approval(server: ServerConfig) -> str:
    own = len(server.tool_approvals) + len(server.auto_approve)
    return server.approval + (f", {counted(own, 'exception')}" if own else "")


def _tools(server: ServerConfig) -> str:
    allowed = ", ".join(server.allow) or "all"
    denied = f" but {', '.join(server.deny)}" if server.deny else ""
    return one_line(allowed + denied, 40)


def _as_json(config: GatewayConfig) -> dict[str, Any]:
    return {
        "config": str(config.path),
        "servers": [
            {
                "name": one.name,
                "transport": one.transport,
                "where": where(one),
                "approval": one.approval,
                "toolApprovals": dict(one.tool_approvals),
                "autoApprove": list(one.auto_approve),
                "tools": {"allow": list(one.allow), "deny": list(one.deny)},
                "pin": one.pin,
                "timeoutMs": one.timeout_ms,
            }
            for one in config.servers
        ],
        "disabled": list(config.disabled),
        "problems": [{"server": one.server, "path": one.path, "message": one.message} for one in config.problems],
    }
