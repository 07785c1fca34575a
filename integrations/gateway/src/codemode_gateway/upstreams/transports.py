"""The transport that a configuration asks for."""

from __future__ import annotations

from typing import Any

from ..config.secrets import Secrets
from ..config.values import ServerConfig
from .connection import Transport
from .losses import UpstreamFailure
from .stdio import StdioServer


def transport_of(config: ServerConfig, secrets: Secrets, auth: Any) -> Transport:
    """Return how the server of this configuration is reached; ``auth`` is the `httpx.Auth` of one over HTTP."""
    if config.transport == "stdio":
        server = StdioServer(config, secrets)

        def ending() -> UpstreamFailure | None:
            reason = server.ending()
            return None if reason is None else UpstreamFailure(reason)

        return Transport(server.streams(), ending, True, server.last_words, server.is_unread)
    if config.transport == "openapi":
        from .openapi import openapi_transport

        return openapi_transport(config)
    from .http import http_transport

    return http_transport(config, secrets, auth)
