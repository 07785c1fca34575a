"""Hooks around every call, sync and async, and what they are tried on."""

from __future__ import annotations

import asyncio

import pydantic
import pytest

from codemode import Tool

TOKEN = {"type": "object", "properties": {"token": {"type": "string", "maxLength": 8}}, "required": ["token"]}
BOTH = pytest.mark.parametrize("kind", ["sync", "async"])
CATCH = "try { return await tools.%s } catch (e) { return [e.name, e.code, e.message] }"


class Token(pydantic.BaseModel):
    token: str
    count: int = 1


def made(kind, function):
    """Return a hook of this kind that does what ``function`` does."""

    async def later(*arguments):
        await asyncio.sleep(0)
        return function(*arguments)

    return later if kind == "async" else function


def hooks(before=None, after=None, kind="sync", **options):
    given = {"before": before and made(kind, before), "after": after and made(kind, after)}
    return {"pipeline": given, **options}


def scrubbing(call):
    return {**call.input, "token": "***"}


def echo(name="echo", **settings):
    return Tool(name, execute=lambda value: value, **settings)
