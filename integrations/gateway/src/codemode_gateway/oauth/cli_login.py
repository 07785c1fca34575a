"""``codemode mcp login`` and ``logout``: a person signs in to a server from the terminal, or is forgotten there."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO
from urllib.parse import urlsplit

from codemode.host.threads import off_loop
from codemode.trace.visible_text import one_line

from ..config.model import ConfigError, GatewayConfig, ServerConfig
from ..page_urls import page_host
from .browser import open_in_browser
from .flow import Exchange
from .login_attempt import Attempt
from .login_manager import SignIns
from .settings import SignInError, TokenRecord
from .token_store import UnsafeFileError, read_private

_MOST_BYTES = 1 << 18
_TRIES = 5
_LONGEST_LINE = 1 << 14


async def login(
    config: GatewayConfig,
    name: str,
    *,
    principal: str = "local",
    open_browser: Callable[[str], object] | None = open_in_browser,
    out: TextIO | None = None,
    read_line: Callable[[], str] | None = None,
) -> None:
    """Sign in to the server ``name`` and keep its tokens.

    The URL is printed to ``out``, standard error unless given, and opened. Without a browser on this machine the page
    is opened elsewhere, and ``read_line`` gives the address that it ended at, as a person pastes it. Raises
    `ConfigError` for a server that cannot be signed in to, `SignInError` where it does not succeed.
    """
    server, told = _server(config, name), sys.stderr if out is None else out
    async with SignIns(config, open_browser=open_browser) as sign_ins:
        auth = sign_ins.auth(server, principal)
        if auth is None:
            why = (
                "it is a command or an API"
                if server.url is None
                else "it has a header Authorization, which is sent instead"
            )
            raise ConfigError(f"mcpServers.{name}: there is nothing to sign in to: {why}")
        if auth.settings.flow == "client_credentials":
            await auth.keep(lambda record: Exchange(server, auth.settings, principal, record).authorized(None))
            return
        attempt = sign_ins.begun(server, principal, is_asked_for=True)
        sign_in = await attempt.sign_in()
        if sign_in is not None:
            _say(told, f"Sign in to {name} at {page_host(sign_in.url)}:", sign_in.start_url or sign_in.url)
        if read_line is None:
            await attempt.wait()
        else:
            await _pasted(attempt, read_line, told)


async def _pasted(attempt: Attempt, read_line: Callable[[], str], out: TextIO) -> None:
    """Take the address that a person pastes, or the browser's own coming back, whichever is first."""
    _say(out, "Open it in any browser, and paste the address at which it ends here:")
    waiting = asyncio.ensure_future(attempt.wait())
    try:
        for _ in range(_TRIES):
            reading = asyncio.ensure_future(off_loop(read_line))
            await asyncio.wait([waiting, reading], return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                reading.cancel()
                break
            if attempt.take(_query_of(reading.result())) is not None:
                break
            _say(out, "That is not the address at which this sign-in ends. Once more:")
        else:
            raise SignInError("no address of this sign-in was pasted")
        await waiting
    finally:
        waiting.cancel()


def _say(out: TextIO, *lines: str) -> None:
    out.write("".join(f"{one_line(line, _LONGEST_LINE)}\n" for line in lines))
    out.flush()


def _query_of(pasted: str) -> str:
    try:
        return urlsplit(pasted.strip()).query
    except ValueError:
        return ""


async def logout(config: GatewayConfig, name: str, *, principal: str = "local") -> bool:
    """Forget the tokens of the server ``name``, those of an earlier configuration too; whether there were any.

    They are revoked first where the server offers that; that it cannot be reached stops nothing.
    """
    server = _server(config, name)
    async with SignIns(config) as sign_ins:
        auth = sign_ins.auth(server, principal)
        if auth is None:
            return False
        record = await auth.forget()
        if record is not None:
            try:
                await Exchange(server, auth.settings, principal, record).revoked()
            except SignInError as error:
                _say(sys.stderr, f"the tokens are forgotten here, but were not revoked: {error}")
        others = _forget_others(sign_ins.folder, name, principal)
        return record is not None or others


def _forget_others(folder: Path, name: str, principal: str) -> bool:
    found = False
    for path in folder.glob("*.json"):
        try:
            record = TokenRecord.from_json(read_private(path, _MOST_BYTES) or "")
        except UnsafeFileError:
            continue
        if record is not None and (record.server, record.principal) == (name, principal):
            path.unlink(missing_ok=True)
            found = True
    return found


def _server(config: GatewayConfig, name: str) -> ServerConfig:
    found = next((one for one in config.servers if one.name == name), None)
    if found is None:
        known = ", ".join(one.name for one in config.servers) or "none"
        raise ConfigError(f"there is no server {name!r} that can be used; there are: {known}")
    return found
