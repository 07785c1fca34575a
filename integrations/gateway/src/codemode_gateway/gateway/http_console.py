"""The approval console under ``/console``: who signs in there, whose records they see, where a record's page is.

Where the package ``codemode_console`` is not installed there is none, and people decide on the command line.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Any

from starlette.types import Receive, Scope, Send

from codemode.run.inspecting import inspect_interrupt
from codemode.stores.records import ALL_TENANTS

from ..config.values import ConfigError
from .http_answers import Refused
from .http_console_later import LaterAnswers
from .http_console_users import console_users
from .http_door import Door
from .http_server_pages import SERVERS_PATH, server_pages
from .http_settings import HttpSettings, token_digest
from .kept_store import APP
from .keys import keys_of
from .principals import LOCAL

CONSOLE_PATH = "/console"
_PACKAGE = "codemode_console"


class MountedConsole:
    """The console of a gateway, while it runs. ``token`` is the one made for it, where nobody has named another."""

    def __init__(
        self, package: Any, gateway: Any, settings: HttpSettings, door: Callable[[], Door], *, asks: bool
    ) -> None:
        self._package, self._sees = package, ALL_TENANTS if asks else [LOCAL.id]
        self.token = secrets.token_urlsafe(32) if settings.console is None and not settings.tokens else None
        self._auth = console_users(package, door)(self._users(settings))
        keys = keys_of(gateway.config.settings.keys, gateway.folder)
        # Of the same keys on all hosts, the last of which signs, and of no use for what else they do.
        secret = [hmac.new(key, b"codemode mcp console", hashlib.sha256).digest() for key in keys]
        base_url = None if settings.url is None else settings.url + CONSOLE_PATH
        later = LaterAnswers(gateway.folder, gateway.store)
        # The one token of this machine alone is used in browsers that other local servers can lead to their own ports.
        self._private = f"~{secrets.token_urlsafe(24)}" if self.token is not None and settings.url is None else None
        options = {"secret": secret, "inspect": _inspecting(keys), "later": later, "private_path": self._private}
        self._console = package.approval_console(gateway.store, auth=self._auth, base_url=base_url, options=options)
        self._servers = server_pages(
            _PACKAGE,
            gateway,
            auth=self._auth,
            store=gateway.store,
            secret=secret,
            base_url=base_url,
            private_path=self._private,
        )

    def take(self, settings: HttpSettings) -> None:
        """Have the users of another configuration: who is not among them is nobody at once. Raises `ConfigError`."""
        nobody = {f"sha256:{token_digest(secrets.token_urlsafe(32))}": self._package.User("nobody", [])}
        self._auth.replace(self._users(settings) or nobody)

    def _users(self, settings: HttpSettings) -> dict[str, Any]:
        user = self._package.User
        found: dict[str, Any] = {f"sha256:{digest}": user(name, [name]) for digest, name in settings.tokens.items()}
        said = settings.console or self.token
        if isinstance(said, str):
            found[f"sha256:{token_digest(said)}"] = user("operator", self._sees)
        elif said is not None:
            try:
                # Read as a file of tokens is, with its refusals.
                found |= {key.lower(): _user(self._package, key, one) for key, one in said.items()}
            except ValueError as error:
                raise ConfigError(f"codemode.auth.console: {error}") from error
        return found

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Mark what expires, while the block runs."""
        async with self._console.running():
            yield

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request for a path of the console."""
        root = f"{scope.get('root_path', '')}{CONSOLE_PATH}"
        if scope["path"] == root:
            raise Refused(307, "The console is one slash further", {"location": f"{root}/"})
        below = str(scope["path"])[len(root) :].removeprefix(f"/{self._private}")
        is_servers = below.startswith(SERVERS_PATH)
        await (self._servers if is_servers else self._console)({**scope, "root_path": root}, receive, send)


def mounted_console(
    gateway: Any, settings: HttpSettings, door: Callable[[], Door], *, asks: bool
) -> MountedConsole | None:
    """Return the console over the store of a gateway; None where it is not installed. Raises `ConfigError`.

    Users sign in with a token that ``door`` lets in, and see what is theirs. Without ``auth.tokens``, or where
    ``auth.console`` says so, an operator has a token of the console's own: without sign-in to the gateway for what is
    this machine's, else for all.
    """
    try:
        package = import_module(_PACKAGE)
    except ModuleNotFoundError:
        return None
    return MountedConsole(package, gateway, settings, door, asks=asks)


def _user(package: Any, key: str, said: Any) -> Any:
    auth = package.TokenAuth.from_json(json.dumps({key: said}))
    return auth.user_named(key.lower() if key.lower().startswith("sha256:") else f"sha256:{key.lower()}")


def _inspecting(keys: tuple[bytes, ...]) -> Any:
    """Return what reads the pauses of this gateway: each is bound to its app, and to whose it is."""

    def inspect(record: Any, interrupt: Any) -> Any:
        options = {"continuation": {"keys": keys, "conversation_id": f"{APP}:{record.tenant}"}}
        return inspect_interrupt(interrupt, options, conversation_id=record.tenant)

    return inspect
