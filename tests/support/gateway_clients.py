"""Clients of a gateway: the SDK's own, in this process or over a real one, in both eras of the protocol."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings
from mcp import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

Era = Literal["auto", "legacy"]
ERAS: tuple[Era, ...] = ("auto", "legacy")
"""The newest revision, and the handshake."""
USUAL_ERAS = ("auto", pytest.param("legacy", marks=pytest.mark.full))
"""Where the era is no part of what a test shows."""


def config_in(folder: Path, **settings: Any) -> GatewayConfig:
    """Return a configuration without servers that keeps everything in this folder."""
    return GatewayConfig(settings=GatewaySettings(state_folder=folder, **settings))


@asynccontextmanager
async def gateway_over(
    servers: Sequence[Any], folder: Path, *, options: Mapping[str, Any] | None = None, **settings: Any
) -> AsyncIterator[Gateway]:
    """Give an open gateway over these `ModuleServer`s."""
    async with Gateway(config_in(folder, **settings), GatewayOptions(servers=servers, **(options or {}))) as gateway:
        yield gateway


@asynccontextmanager
async def client_of(gateway: Gateway, era: Era = "auto", **options: Any) -> AsyncIterator[Client]:
    """Give a client of a gateway in this process. ``options`` are those of the SDK's ``Client``."""
    async with Client(gateway.server, mode=era, **options) as client:
        yield client


@asynccontextmanager
async def client_over_stdio(
    arguments: Sequence[str],
    era: Era = "auto",
    *,
    python: Sequence[str] = (sys.executable,),
    environment: Mapping[str, str] | None = None,
    **options: Any,
) -> AsyncIterator[Client]:
    """Give a client of a gateway that it starts: ``python`` with these arguments."""
    parameters = StdioServerParameters(
        command=python[0], args=[*python[1:], *arguments], env={**os.environ, **(environment or {})}
    )
    async with Client(stdio_client(parameters), mode=era, **options) as client:
        yield client
