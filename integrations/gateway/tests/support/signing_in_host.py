"""A gateway's part in a process of its own: asks a server once, with the tokens of a shared folder, and prints what.

``python signing_in_host.py FOLDER URL [hold]``: with ``hold`` it takes the lock of the tokens and waits to be killed.
"""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import httpx2
from codemode_gateway import GatewayConfig, GatewaySettings, ServerConfig, SignInManager
from codemode_gateway.oauth.token_store import try_lock_and_start_cleanup


async def main(folder: str, url: str, *how: str) -> None:
    server = ServerConfig("notes", "http", url=url, auth={"storage": "files"})
    config = GatewayConfig((server,), GatewaySettings(state_folder=Path(folder)))
    async with SignInManager(config) as sign_ins:
        auth = sign_ins.get_or_create_auth(server)
        assert auth is not None
        held = try_lock_and_start_cleanup(sign_ins.folder / f"{auth.key}.lock") if how else None
        print("held" if held else "ready", flush=True)
        sys.stdin.readline()
        async with httpx2.AsyncClient(auth=auth, timeout=60) as client:
            print((await client.post(url, json={"id": 1})).status_code, flush=True)


asyncio.run(main(*sys.argv[1:]))
