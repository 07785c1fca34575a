"""What a browser does with a stream: the AI SDK's `useChat` and an AG-UI client, as far as these tests need them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from itertools import groupby
from typing import Any

_RANDOM = [
    (re.compile(r"interrupt-[0-9a-f]{16}"), "interrupt-RANDOM"),
    (re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"), "UUID"),
    (re.compile(r'"(nonce|keyId|signature)": ?"[^"]*"'), r'"\1":"OPAQUE"'),
    (re.compile(r'"body": ?\["[^]]*"\]'), '"body":["OPAQUE"]'),
    (re.compile(r'"bindings": ?\[null, ?"[0-9a-f]{32}"\]'), '"bindings":[null,"OPAQUE"]'),
    (re.compile(r'"(startedAtMs|completedAtMs)": ?[\d.]+'), r'"\1":0'),
    (re.compile(r'"(issuedAtMs|expiresAtMs)": ?\d+'), r'"\1":0'),
    (re.compile(r',"protocolVersion": ?"[^"]*"'), ""),  # newer versions say it
    (re.compile(r'"timestamp": ?("[^"]*"|\d+)'), r'"timestamp":"TIME"'),
]


def transcript(wire: list[str]) -> list[str]:
    """The lines of a stream without what is random in them."""
    lines = [line for chunk in wire for line in chunk.splitlines() if line]
    for pattern, replacement in _RANDOM:
        lines = [pattern.sub(replacement, line) for line in lines]
    return [line for _, group in groupby(lines, _is_of_nested_call) for line in _in_any_order(group)]


def _is_of_nested_call(line: str) -> bool:
    return "codemode.call" in line


def _in_any_order(group: Iterable[str]) -> list[str]:
    """Calls go side by side: which of them is told of first is theirs."""
    lines = list(group)
    return sorted(lines) if _is_of_nested_call(lines[0]) else lines


def events(wire: list[str]) -> list[dict[str, Any]]:
    lines = [line.removeprefix("data: ") for chunk in wire for line in chunk.splitlines() if line]
    return [json.loads(line) for line in lines if line != "[DONE]"]


def merge(into: dict[str, Any], new: dict[str, Any]) -> None:
    """The AI SDK's `mergeObjects`: what is not mentioned again stays."""
    for key, value in new.items():
        if isinstance(value, dict) and isinstance(into.get(key), dict):
            merge(into[key], value)
        else:
            into[key] = value


class UseChat:
    """The AI SDK's client: one assistant message that every stream of the turn goes on with."""

    def __init__(self, text: str) -> None:
        self.user = {"id": "u1", "role": "user", "parts": [{"type": "text", "text": text}]}
        self.parts: list[dict[str, Any]] = []
        self.metadata: dict[str, Any] = {}

    def read(self, wire: list[str]) -> None:
        for event in events(wire):
            self._read_file(event)

    def _read_file(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "error":
            raise AssertionError(event["errorText"])
        if kind == "start-step":
            self.parts.append({"type": "step-start"})
        elif kind == "tool-input-start":
            self._in_step(event).update(state="input-streaming")
        elif kind == "tool-input-available":
            self._in_step(event).update(state="input-available", input=event["input"])
        elif kind == "tool-approval-request":
            self.call(event["toolCallId"]).update(state="approval-requested", approval={"id": event["approvalId"]})
        elif kind == "tool-output-available":
            self.call(event["toolCallId"]).update(state="output-available", output=event["output"])
        elif kind == "tool-output-denied":
            self.call(event["toolCallId"]).update(state="output-denied")
        elif kind == "text-delta":
            self.parts.append({"type": "text", "text": event["delta"]})
        elif kind == "message-metadata":
            merge(self.metadata, event["messageMetadata"])
        elif kind.startswith("data-"):
            self._data(event)

    def _in_step(self, event: dict[str, Any]) -> dict[str, Any]:
        """The part of a call in the step that streams: the real client makes another one in each."""
        last = max(at for at, part in enumerate(self.parts) if part["type"] == "step-start")
        for part in self.parts[last:]:
            if part.get("toolCallId") == event["toolCallId"]:
                return part
        self.parts.append({"type": f"tool-{event['toolName']}", "toolCallId": event["toolCallId"]})
        return self.parts[-1]

    def _data(self, event: dict[str, Any]) -> None:
        known = (part for part in self.parts if part["type"] == event["type"] and part["id"] == event["id"])
        part = next(known, None)
        if part is None:
            self.parts.append(event)
        else:
            part["data"] = event["data"]

    @property
    def nested(self) -> dict[str, dict[str, Any]]:
        """The cards of the calls of programs, by their ids."""
        return {part["id"]: part["data"] for part in self.parts if part["type"] == "data-codemode.call"}

    def call(self, call_id: str) -> dict[str, Any]:
        """The part of a call; the real client fails for one that it has not been told of."""
        (part,) = (part for part in self.parts if part.get("toolCallId") == call_id)
        return part

    @property
    def requested(self) -> list[dict[str, Any]]:
        return [part for part in self.parts if part.get("state") == "approval-requested"]

    def respond(self, part: dict[str, Any], approved: bool, **reason: str) -> None:
        part.update(state="approval-responded", approval={**part["approval"], "approved": approved, **reason})

    @property
    def sends_by_itself(self) -> bool:
        """`lastAssistantMessageIsCompleteWithApprovalResponses`: looks at the tool parts of the last step."""
        last = max(at for at, part in enumerate(self.parts) if part["type"] == "step-start")
        states = [part["state"] for part in self.parts[last:] if "toolCallId" in part]
        done = {"output-available", "output-error", "output-denied", "approval-responded"}
        return "approval-responded" in states and set(states) <= done

    def request(self) -> bytes:
        messages: list[dict[str, Any]] = [self.user]
        if self.parts:
            messages.append({"id": "a1", "role": "assistant", "parts": self.parts, "metadata": self.metadata})
        return json.dumps({"trigger": "submit-message", "id": "chat", "messages": messages}).encode()


class AGUIClient:
    """An AG-UI client that keeps the messages and answers interrupts."""

    def __init__(self, text: str) -> None:
        self.messages: list[dict[str, Any]] = [{"id": "u1", "role": "user", "content": text}]
        self.interrupts: list[dict[str, Any]] = []
        self.runs = 0

    def read(self, wire: list[str]) -> None:
        for event in events(wire):
            self._read_file(event)

    def _read_file(self, event: dict[str, Any]) -> None:
        kind = event["type"]
        if kind == "RUN_ERROR":
            raise AssertionError(event["message"])
        if kind == "TEXT_MESSAGE_START":
            self.messages.append({"id": event["messageId"], "role": "assistant", "content": ""})
        elif kind == "TEXT_MESSAGE_CONTENT":
            self._message(event["messageId"])["content"] += event["delta"]
        elif kind == "TOOL_CALL_START":
            call = {"id": event["toolCallId"], "type": "function", "function": {"name": event["toolCallName"]}}
            self._message(event["parentMessageId"]).setdefault("toolCalls", []).append(call)
        elif kind == "TOOL_CALL_ARGS":
            function = self.call(event["toolCallId"])["function"]
            function["arguments"] = function.get("arguments", "") + event["delta"]
        elif kind == "TOOL_CALL_RESULT":
            self.call(event["toolCallId"])
            tool = {"id": event["messageId"], "role": "tool", "toolCallId": event["toolCallId"]}
            self.messages.append({**tool, "content": event["content"]})
        elif kind == "RUN_FINISHED":
            self.interrupts = event.get("outcome", {}).get("interrupts", [])

    def _message(self, message_id: str) -> dict[str, Any]:
        return next(message for message in self.messages if message["id"] == message_id)

    def call(self, call_id: str) -> dict[str, Any]:
        calls = (call for message in self.messages for call in message.get("toolCalls", []))
        return next(call for call in calls if call["id"] == call_id)

    def request(self, resume: list[dict[str, Any]] | None = None) -> bytes:
        self.runs += 1
        body = {"threadId": "t", "runId": f"r{self.runs}", "state": {}, "messages": self.messages, "tools": []}
        answered = {} if resume is None else {"resume": resume}
        return json.dumps({**body, "context": [], "forwardedProps": {}, **answered}).encode()
