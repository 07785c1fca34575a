"""A call in the shape in which a model makes one. Makes none."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from openai.types.responses import ResponseFunctionToolCall

from codemode import Content

from .content import described


def call_of(
    name: str, call_id: str, arguments: Any, written: Callable[[Content], Any] = described
) -> ResponseFunctionToolCall:
    """Return a call in the shape in which a model makes one. ``written`` says what stands for content in it."""
    text = json.dumps(arguments, ensure_ascii=False, default=written)
    return ResponseFunctionToolCall(call_id=call_id, name=name, arguments=text, type="function_call")
