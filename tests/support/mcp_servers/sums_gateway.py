"""A gateway over stdio whose one server has a sum and a tool that prints; its argument is the folder of its state."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from pathlib import Path

from codemode_gateway import Gateway, GatewayConfig, GatewayOptions, GatewaySettings
from codemode_gateway.gateway import stdio

from codemode import ModuleServer, tool

stdio.ANSWER_SECONDS = 600.0  # on a busy machine a first program takes long


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def shout(text: str) -> str:
    """Print in every way there is."""
    print(text)
    os.write(1, text.encode())
    subprocess.run([sys.executable, "-S", "-c", f"print({text!r})"], check=True)
    return text


async def main() -> None:
    config = GatewayConfig(settings=GatewaySettings(state_folder=Path(sys.argv[1])))
    async with Gateway(config, GatewayOptions(servers=[ModuleServer("sums", [add, shout])])) as gateway:
        await gateway.serve_stdio()


asyncio.run(main())
