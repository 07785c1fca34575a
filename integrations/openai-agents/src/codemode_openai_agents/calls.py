"""A call in the shape in which a model makes one. Makes none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai.types.responses import ResponseFunctionToolCall

from codemode import Content
from codemode.plugins import LARGE_CHARACTERS, run_check, weigh

from .content import described


def call_of(
    name: str, call_id: str, arguments: Any, written: Callable[[Content], Any] = described
) -> ResponseFunctionToolCall:
    """Return a call in the shape in which a model makes one. ``written`` says what stands for content in it."""
    text = json.dumps(arguments, ensure_ascii=False, default=written)
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=text, type="function_call")


async def made_call(
    name: str, call_id: str, arguments: Any, written: Callable[[Content], Any] = described
) -> ResponseFunctionToolCall:
    """Return the same; arguments that take their time to be written do so in a thread."""
    size = LARGE_CHARACTERS if Content.exist else weigh(arguments, LARGE_CHARACTERS)
    return await run_check(size, lambda: call_of(name, call_id, arguments, written))
