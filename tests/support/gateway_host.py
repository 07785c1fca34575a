"""One gateway over HTTP in a process of its own: `gateway_host.py CONFIGURATION FOLDER`. Says its URL on stdout."""

import asyncio
import sys
from pathlib import Path

from codemode_gateway import Gateway, GatewayOptions, load_config
from codemode_gateway.gateway.http_app import serve_http


def said(url: str) -> None:
    print(url, flush=True)


async def main(path: str, folder: str) -> None:
    config = load_config(path, state_folder=Path(folder))
    async with Gateway(config, GatewayOptions(over_http=True)) as gateway:
        await serve_http(gateway, "127.0.0.1", 0, on_listening=said)


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
