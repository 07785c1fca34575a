"""The servers of a configuration, connected for as long as a block lasts. Knows no server's words."""

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
from codemode.trace.visible_text import visible

from ..config.model import GatewayConfig
from ..config.patterns import needs_approval
from ..config.redaction import SecretRedactor
from ..oauth.login_manager import SignIns
from .hooks import UpstreamHooks
from .tool_listing import ListCache
from .upstream import Upstream

_LOGGERS = ("client", "mcp.client.streamable_http", "mcp.client.sse", "mcp.shared.jsonrpc_dispatcher")
_MOST, _SECONDS = 20, 10.0
_MOST_CHARACTERS = 500


class FewAndShort(logging.Filter):
    """Lets so many warnings of one logger pass in some seconds, each without its stack."""

    def __init__(self) -> None:
        super().__init__()
        self._since = 0.0
        self._count = 0

    def filter(self, record: logging.LogRecord) -> bool:
        """Shorten a record, and tell whether it is said."""
        if record.levelno < logging.WARNING:
            return True
        now = time.monotonic()
        if now - self._since > _SECONDS:
            self._since, self._count = now, 0
        self._count += 1
        if self._count > _MOST:
            return False
        error = None if record.exc_info is None else record.exc_info[0]
        said = record.getMessage() if error is None else f"{record.getMessage()} ({error.__name__})"
        record.msg = visible(said[:_MOST_CHARACTERS])
        record.args = record.exc_info = record.exc_text = None
        return True


def shorten_logs() -> None:
    """Let the loggers of the SDK that servers can make speak say no more than that."""
    for name in _LOGGERS:
        logger = logging.getLogger(name)
        if not any(isinstance(one, FewAndShort) for one in logger.filters):
            logger.addFilter(FewAndShort())


_log = logging.getLogger("codemode.mcp")


class Connected(Sequence[ModuleServer]):
    """Servers of a configuration as those of a run tool. None is started before it is needed."""

    def __init__(self, upstreams: Sequence[Upstream]) -> None:
        self.upstreams = tuple(upstreams)
        self._servers = tuple(ModuleServer(one.server_id, one) for one in self.upstreams)

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
        """Return the server of that name in the configuration. Raises `KeyError`."""
        for one in self.upstreams:
            if one.server_id == name:
                return one
        raise KeyError(name)

    async def tools(self) -> dict[str, Tool]:
        """Return the tools of all servers for `codeMode`, as ``server_tool``; what cannot be reached is left out."""
        lists = await asyncio.gather(*(one.tools() for one in self.upstreams), return_exceptions=True)
        found: dict[str, Tool] = {}
        for upstream, listed in zip(self.upstreams, lists, strict=True):
            if isinstance(listed, CodeModeToolError):
                _log.warning("server %r is left out: %s", upstream.server_id, upstream.problem or listed.message)
                continue
            if isinstance(listed, BaseException):
                raise listed
            for tool in listed:
                name = _free(f"{_word(upstream.server_id)}_{_word(tool.name)}", found)
                found[name] = tool.renamed(name)
        return found


@asynccontextmanager
async def connect(
    config: GatewayConfig,
    *,
    hooks: UpstreamHooks | None = None,
    cache_folder: Path | None = None,
    principal: str = "local",
    secrets: SecretRedactor | None = None,
) -> AsyncGenerator[Connected]:
    """Connect the servers of a configuration, each when it is first needed, and end them with the block.

    In ``cache_folder`` what servers list is kept for ``principal``: with that, `Upstream.listed` and `tools` answer
    before any server runs. All belongs to the event loop of the block. ``secrets``: more that nobody may read. Without
    ``hooks`` the policy of the configuration says which tools need an approval, and tokens are used, and renewed, that
    ``codemode mcp login`` has kept for ``principal``.
    """
    shorten_logs()
    hidden = secrets or SecretRedactor(config.secrets)
    cache = ListCache(cache_folder, principal)
    async with SignIns(config, secrets=hidden) as sign_ins:
        hooks = hooks or UpstreamHooks(approval=needs_approval, sign_in=sign_ins.hook(principal))
        upstreams = [Upstream(one, hooks, hidden, cache) for one in config.servers]
        await asyncio.gather(*(one.load() for one in upstreams))
        try:
            yield Connected(upstreams)
        finally:
            await _to_the_end([asyncio.ensure_future(one.aclose()) for one in upstreams])


async def _to_the_end(closing: list[asyncio.Future[None]]) -> None:
    """Wait until all has ended, though this task be cancelled meanwhile."""
    is_cancelled = False
    while any(not one.done() for one in closing):
        try:
            await asyncio.wait(closing)
        except asyncio.CancelledError:
            is_cancelled = True
    for one in closing:
        if not one.cancelled() and (error := one.exception()) is not None:
            _log.error("a server could not be ended: %r", error)
    if is_cancelled:
        raise asyncio.CancelledError


def _word(name: str) -> str:
    word = re.sub(r"[^A-Za-z0-9_]", "_", name)
    return f"_{word}" if word[:1].isdigit() else word or "_"


def _free(name: str, taken: dict[str, Tool]) -> str:
    name = name[:120]
    if name not in taken:
        return name
    count = 2
    while f"{name}__{count}" in taken:
        count += 1
    return f"{name}__{count}"
