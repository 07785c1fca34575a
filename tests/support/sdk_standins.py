"""Stand-ins for the OpenAI and Anthropic services: a scripted model that calls `codeMode` and then says something.

They speak just enough of the wire format for the real SDKs, and keep what they were asked.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from http_server import HttpServer, Request, response

OPENAI_PATH = "/v1/chat/completions"
RESPONSES_PATH = "/v1/responses"
ANTHROPIC_PATH = "/v1/messages"


@dataclass
class ScriptedModel:
    """Sends one program per turn, then ``closing``. ``asked`` holds the bodies of all requests."""

    programs: Sequence[str]
    closing: str = "There are 120 bolts."
    asked: list[dict[str, Any]] = field(default_factory=list)

    async def openai(self, request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = self._next_turn(request)
        message: dict[str, Any] = {"role": "assistant", "content": self.closing}
        if turn < len(self.programs):
            function = {"name": "codeMode", "arguments": json.dumps({"js": self.programs[turn]})}
            call = {"id": f"call_{turn + 1}", "type": "function", "function": function}
            message = {"role": "assistant", "content": None, "tool_calls": [call]}
        choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if "tool_calls" in message else "stop"}
        body = {"id": "c", "object": "chat.completion", "created": 0, "model": "stand-in", "choices": [choice]}
        writer.write(response(json.dumps(body).encode(), content_type="application/json"))
        await writer.drain()

    async def responses(self, request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = self._next_turn(request)
        text = {"type": "output_text", "text": self.closing, "annotations": []}
        item = {"id": "m", "type": "message", "role": "assistant", "status": "completed", "content": [text]}
        if turn < len(self.programs):
            call = {"call_id": f"call_{turn + 1}", "name": "codeMode", "input": self.programs[turn]}
            item = {"id": f"ctc_{turn + 1}", "type": "custom_tool_call", **call}
        body = {
            "id": "r", "object": "response", "created_at": 0, "model": "stand-in", "output": [item], "tools": [],
            "tool_choice": "auto", "parallel_tool_calls": True, "status": "completed",
        }  # fmt: skip
        writer.write(response(json.dumps(body).encode(), content_type="application/json"))
        await writer.drain()

    async def anthropic(self, request: Request, _reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        turn = self._next_turn(request)
        block: dict[str, Any] = {"type": "text", "text": self.closing}
        if turn < len(self.programs):
            program = {"js": self.programs[turn]}
            block = {"type": "tool_use", "id": f"call_{turn + 1}", "name": "codeMode", "input": program}
        body = {
            "id": "m", "type": "message", "role": "assistant", "model": "stand-in", "content": [block],
            "stop_reason": "tool_use" if block["type"] == "tool_use" else "end_turn", "stop_sequence": None,
            "usage": {"input_tokens": 1, "output_tokens": 1},
        }  # fmt: skip
        writer.write(response(json.dumps(body).encode(), content_type="application/json"))
        await writer.drain()

    def _next_turn(self, request: Request) -> int:
        self.asked.append(json.loads(request.body))
        return len(self.asked) - 1


def serve(server: HttpServer, model: ScriptedModel) -> dict[str, str]:
    """Let a server answer for both services. Returns the environment that points the SDKs at it."""
    server.on(OPENAI_PATH, model.openai)
    server.on(RESPONSES_PATH, model.responses)
    server.on(ANTHROPIC_PATH, model.anthropic)
    return {
        "OPENAI_BASE_URL": f"{server.origin}/v1",
        "OPENAI_API_KEY": "no-key",
        "ANTHROPIC_BASE_URL": server.origin,
        "ANTHROPIC_API_KEY": "no-key",
        "NO_PROXY": "127.0.0.1",
    }
