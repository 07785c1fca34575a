"""Tinyloop, an agent framework that does not exist: as small as one can be that asks people about calls of tools."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Call:
    """A call of a tool, which waits for a person or is told of."""

    id: str
    name: str
    arguments: Any


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What a person said of a call that waits. ``arguments`` are edited ones."""

    approved: bool
    arguments: Mapping[str, Any] | None = None
    message: str = ""


class Asks(Exception):  # noqa: N818 - it is no error
    """Raised by a tool that waits for people. It is run again, with what it ``kept`` (JSON), once they have decided."""

    def __init__(self, calls: list[Call], kept: Any) -> None:
        super().__init__("waits for a person")
        self.calls, self.kept = calls, kept


class Failure(Exception):  # noqa: N818 - of a tool, for a model
    """Raised by a tool whose failure the model shall read."""


@dataclass(kw_only=True)
class Context:
    """What a tool is run with: its call, what it kept, what was decided since, and who follows the run."""

    call_id: str
    kept: Any = None
    decisions: Mapping[str, Decision] = field(default_factory=dict[str, Decision])
    follow: Callable[[str, Call], None] = lambda _what, _call: None


@dataclass(frozen=True, kw_only=True)
class Tool:
    """A tool of a function, sync or async, that takes keyword arguments. ``parameters``, ``returns``: JSON Schemas."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    function: Callable[..., Any]
    needs_approval: bool = False
    returns: Mapping[str, Any] | None = None

    async def run(self, arguments: Mapping[str, Any], _context: Context) -> Any:
        """Run it."""
        answer = self.function(**arguments)
        return await answer if inspect.isawaitable(answer) else answer


@dataclass(frozen=True, kw_only=True)
class Result:
    """What a run came to: its messages, and what waits. All of it is JSON but the calls."""

    messages: list[dict[str, Any]]
    waiting: list[Call]
    kept: dict[str, Any]


@dataclass(frozen=True, kw_only=True)
class Agent:
    """A model, ``(messages, tools) -> message``, that calls tools until its message has no calls."""

    model: Callable[[list[dict[str, Any]], list[Tool]], dict[str, Any]]
    tools: list[Tool]
    follow: Callable[[str, Call], None] = lambda _what, _call: None

    async def run(
        self, messages: list[dict[str, Any]], kept: Mapping[str, Any] | None = None, decisions: Any = None
    ) -> Result:
        """Go on from these messages, with what waited and what was decided about it."""
        messages = [*messages]
        while True:
            done = {one["id"] for one in messages if one["role"] == "tool"}
            last = next((one for one in reversed(messages) if one["role"] == "model"), dict[str, Any]())
            calls = [one for one in last.get("calls", []) if one["id"] not in done]
            if not calls:
                calls = [*self._asked(messages)]
                if not calls:
                    return Result(messages=messages, waiting=[], kept={})
            waiting: list[Call] = []
            left: dict[str, Any] = {}
            for one in calls:
                context = Context(
                    call_id=one["id"],
                    kept=(kept or {}).get(one["id"]),
                    decisions=decisions or {},
                    follow=self.follow,
                )
                try:
                    messages.append({"role": "tool", "id": one["id"], **await self._ran(one, context)})
                except Asks as asks:
                    waiting += asks.calls
                    left[one["id"]] = asks.kept
            if waiting:
                return Result(messages=messages, waiting=waiting, kept=left)

    def _asked(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        messages.append(self.model(messages, self.tools))
        return messages[-1].get("calls", [])

    async def _ran(self, call: dict[str, Any], context: Context) -> dict[str, Any]:
        tool = next((one for one in self.tools if one.name == call["name"]), None)
        if tool is None:
            return {"text": f"there is no tool {call['name']!r}", "failed": True}
        try:
            return {"text": await tool.run(call["arguments"], context), "failed": False}
        except Failure as failure:
            return {"text": str(failure), "failed": True}
