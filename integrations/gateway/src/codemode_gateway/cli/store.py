"""The store that a gateway's configuration names, for one command, and who decides in it at the terminal."""

from __future__ import annotations

import argparse
import getpass
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from codemode.cli.databases import require_database, sqlite_file
from codemode.cli.exits import UsageError

from .setup import config_path, configuration

if TYPE_CHECKING:
    from codemode.stores.interrupt_store import InterruptStore

    from ..config.values import GatewayConfig

Found = TypeVar("Found")


def read_store_config(options: argparse.Namespace) -> GatewayConfig:
    """Return the configuration, with the store that --store names.

    Raises `UsageError` where that does not exist, or the one that the configuration names: that of the state folder is
    the gateway's own, and is made.
    """
    if options.store is None:
        config = configuration(options)
    else:
        config = _read_config(options)
        config = replace(config, settings=replace(config.settings, store=_to_store_url(options.store)))
    if config.settings.store is not None:
        require_database(config.settings.store, create=options.create)
    return config


def _read_config(options: argparse.Namespace) -> GatewayConfig:
    from ..config.places import state_folder
    from ..config.values import GatewayConfig, GatewaySettings

    if options.config is not None or config_path(options).is_file():
        return configuration(options)
    return GatewayConfig(settings=GatewaySettings(state_folder=state_folder()))


def _to_store_url(url: str) -> str:
    file = sqlite_file(url)
    if file is not None and file.name:
        return f"sqlite:///{file.absolute()}"
    if url.startswith(("postgresql://", "postgres://")):
        return url
    raise UsageError("--store takes the URL of a database: sqlite:///FILE, or postgresql://USER@HOST/NAME")


async def with_store(config: GatewayConfig, work: Callable[[InterruptStore], Awaitable[Found]]) -> Found:
    """Do some work with the store, and close it."""
    from ..gateway.gateway import Gateway

    store = Gateway(config).store
    try:
        return await work(store)
    finally:
        await store.aclose()


def actor() -> str:
    """Return whose decision it is, for the audit: the user of this machine."""
    return f"{getpass.getuser()}@terminal"
