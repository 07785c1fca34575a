"""From which level on a server is asked to log: once in the handshake revisions, in each request since 2026-07-28."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, get_args

import mcp_types as types
from mcp.client.session import ClientSession
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from codemode.data.narrowing import mapping_or_empty

LEVELS: tuple[types.LoggingLevel, ...] = get_args(types.LoggingLevel)
"""From that of which there is most to that of which there is least."""

ASK_SECONDS = 10.0
_log = logging.getLogger("codemode.mcp")


def lowest(levels: Iterable[types.LoggingLevel | None]) -> types.LoggingLevel | None:
    """Return the level of which there is most; None: there is none among them."""
    wanted = {*levels}
    return next((one for one in LEVELS if one in wanted), None)


def with_level(params: Mapping[str, Any] | None, level: str | None) -> Mapping[str, Any] | None:
    """Return the params of a request with the level, where its revision has a place for it."""
    meta = mapping_or_empty(mapping_or_empty(params).get("_meta"))
    if level is None or types.PROTOCOL_VERSION_META_KEY not in meta:
        return params
    return {**(params or {}), "_meta": {**meta, types.LOG_LEVEL_META_KEY: level}}


class LogLevel:
    """The level of one server. ``wanted`` gives that from which on somebody hears now, None where nobody does."""

    def __init__(self, wanted: Callable[[], types.LoggingLevel | None]) -> None:
        self.wanted = wanted
        self._told: tuple[ClientSession, str] | None = None

    async def tell(self, session: ClientSession) -> None:
        """Ask a server of the handshake revisions that has a log for this level, once. Whatever it answers, it goes on.

        No revision has a level at which a server says nothing: what nobody hears any more is dropped here.
        """
        level, said = self.wanted(), session.server_capabilities
        if level is None or said is None or said.logging is None or self._told == (session, level):
            return
        if session.protocol_version in MODERN_PROTOCOL_VERSIONS:
            return
        self._told = session, level
        request = types.SetLevelRequest(params=types.SetLevelRequestParams(level=level))
        try:
            await session.send_request(request, types.EmptyResult, request_read_timeout_seconds=ASK_SECONDS)
        except Exception as error:  # noqa: BLE001 - without its log it is as good as with it
            _log.debug("a server was not told from which level on to log: %s", type(error).__name__)
