"""Runs that are cut off, and what they had begun."""

from __future__ import annotations

import asyncio

import pytest
from leftovers import kill_workers
from pausing import PAUSING, start

LIMITED = {**PAUSING, "execution_policy": {"timeout_ms": 60_000}}


UNKNOWN = "code-mode/unknown-outcome"


async def forever(value, context):
    await asyncio.Event().wait()


async def killing(value, context):
    kill_workers()
    await asyncio.Event().wait()


def failing(error_class, js, tools, options=PAUSING, **settings):
    with pytest.raises(error_class) as caught:
        start(js, tools, options, **settings)
    return caught.value


def statuses(error):
    return [(call["name"], call["status"]) for call in error.calls]
