"""Connect the servers of a configuration while a block runs."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import overload

from codemode.errors import CodeModeToolError
from codemode.surfaces.modules.servers import ModuleServer
from codemode.tools.tool import Tool
from codemode.trace.visible_text import escape_invisible

from ..config.model import GatewayConfig
from ..config.patterns import needs_approval
from ..config.redaction import SecretRedactor
from ..oauth.login_manager import SignInManager
from .hooks import UpstreamHooks
from .tool_listing import ListCache
from .upstream import Upstream

_LOGGERS = ("client", "mcp.client.streamable_http", "mcp.client.sse", "mcp.shared.jsonrpc_dispatcher")
_MAX_WARNINGS, _WINDOW_SECONDS = 20, 10.0
_MAX_WARNING_CHARACTERS = 500


class WarningLimiter(logging.Filter):
    """Limits warnings of a logger per time window, and removes their stack traces."""

    def __init__(self) -> None:
        super().__init__()
        self._since = 0.0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record, and return whether to log it."""
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._since > _WINDOW_SECONDS:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > _MAX_WARNINGS:
            return False
        error = None if record.exc_info is None else record.exc_info[0]
        text = record.getMessage() if error is None else f"{record.getMessage()} ({error.__name__})"
        record.msg = escape_invisible(text[:_MAX_WARNING_CHARACTERS])
        record.args = record.exc_info = record.exc_text = None
        return True


def limit_sdk_warnings() -> None:
    """Limit the SDK's loggers, whose output servers can cause."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(log_filter, WarningLimiter) for log_filter in logger.filters):
            logger.addFilter(WarningLimiter())


_log = logging.getLogger("codemode.mcp")


class ConnectedUpstreams(Sequence[ModuleServer]):
    """The servers of a configuration for a run tool. Each starts on first use."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self.upstreams = tuple(upstreams)
        self._servers = tuple(ModuleServer(upstream.server_id, upstream) for upstream in self.upstreams)

    @overload
    def __getitem__(self, index: int) -> ModuleServer: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[ModuleServer]: ...
    def __getitem__(self, index: int | slice) -> ModuleServer | Sequence[ModuleServer]:
        return self._servers[index]

    def __len__(self) -> int:
        return len(self._servers)

    def __iter__(self) -> Iterator[ModuleServer]:
        return iter(self._servers)

    def upstream(self, name: str) -> Upstream:
        """Return a server by its configured name. Raises `KeyError`."""
        for upstream in self.upstreams:
            if upstream.server_id == name:
                return upstream
        raise KeyError(name)

    async def tools(self) -> dict[str, Tool]:
        """Return all tools for `codeMode` as ``server_tool``; unreachable servers are left out."""
        results = await asyncio.gather(*(upstream.tools() for upstream in self.upstreams), return_exceptions=True)
        tools: dict[str, Tool] = {}
        for upstream, result in zip(self.upstreams, results, strict=True):
            if isinstance(result, CodeModeToolError):
                _log.warning("server %r is skipped: %s", upstream.server_id, upstream.problem or result.message)
                continue
            if isinstance(result, BaseException):
                raise result
            for tool in result:
                name = _to_unique_name(f"{_to_identifier(upstream.server_id)}_{_to_identifier(tool.name)}", tools)
                tools[name] = tool.with_name(name)
        return tools


@asynccontextmanager
async def connect(
    config: GatewayConfig,
    *,
    hooks: UpstreamHooks | None = None,
    cache_folder: Path | None = None,
    principal: str = "local",
    secrets: SecretRedactor | None = None,
) -> AsyncGenerator[ConnectedUpstreams]:
    """Connect the servers of a configuration, each on first use, and end them with the block.

    ``cache_folder`` stores tool lists of ``principal``, so that `Upstream.listed_tools` and `tools` answer before a
    server runs. ``secrets`` are redacted in addition. Without ``hooks`` the configuration's approval policy applies,
    with tokens of ``codemode mcp login``. Use everything on the event loop of the block.
    """
    limit_sdk_warnings()
    all_secrets = secrets or SecretRedactor(config.secrets)
    cache = ListCache(cache_folder, principal)
    async with SignInManager(config, secrets=all_secrets) as sign_ins:
        hooks = hooks or UpstreamHooks(
            get_approval_rule=needs_approval, create_auth=sign_ins.create_auth_hook(principal)
        )
        upstreams = [Upstream(upstream, hooks, all_secrets, cache) for upstream in config.servers]
        await asyncio.gather(*(upstream.load() for upstream in upstreams))
        try:
            yield ConnectedUpstreams(upstreams)
        finally:
            await _wait_despite_cancellation([asyncio.ensure_future(upstream.aclose()) for upstream in upstreams])


async def _wait_despite_cancellation(closing: list[asyncio.Future[None]]) -> None:
    """Wait until all servers have ended, also if this task is cancelled."""
    is_cancelled = False
    while any(not future.done() for future in closing):
        try:
            await asyncio.wait(closing)
        except asyncio.CancelledError:
            is_cancelled = True
    for future in closing:
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("a server could not be stopped: %r", error)
    if is_cancelled:
        raise asyncio.CancelledError


def _to_identifier(name: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{word}" if word[:1].isdigit() else word or "_"


def _to_unique_name(name: str, taken: dict[str, Tool]) -> str:
    name = name[:120]
    if name not in taken:
        return name
    count = 2
    while f"{name}__{count}" in taken:
        count += 1
    return f"{name}__{count}"
