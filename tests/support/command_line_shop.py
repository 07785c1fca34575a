"""Tools for the command line, a program over them, and how the command is started."""

from __future__ import annotations

import sys

COMMAND = [sys.executable, "-W", "error", "-m", "codemode"]


SHOP = '''
"""Tools of a shop."""
import asyncio
from os.path import exists, join
from codemode import Tool, request_interrupt, tool

refunded = []

def stock(product: str) -> int:
    """How many are in stock."""
    return {"bolt": 120}[product]

async def later(n: int = 1) -> int:
    return n

async def until_there(path: str) -> None:
    async with asyncio.timeout(60):
        while not exists(path):
            await asyncio.sleep(0.005)

@tool(needs_approval=True)
def refund(order: str, cents: int = 500) -> str:
    refunded.append(order)
    return f"refunded {order}"

def pause() -> str:
    request_interrupt({"kind": "sign-in"})

def _private() -> None: ...

class Shop: ...
'''


REFUND = "return await tools.refund({order: 'a'})"
