"""The state of programs, by conversation, in this process. Knows no program, and nothing of what is kept.

A conversation is known by its history: by its id together with a call of a program that has been made in it. An id
alone may be chosen by whoever sends a history in, and must not open what others have kept.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from pydantic_ai import RunContext
from pydantic_ai.messages import ModelMessage, ModelResponse, ToolCallPart

from codemode.plugins import TextPlace, forkable_lock

_here: ContextVar[TextPlace | None] = ContextVar("codemode_pydantic_ai_state", default=None)
MAX_CONVERSATIONS = 1024
MAX_BYTES = 64 << 20
_MAX_CALLS = 64
_MAX_CHARACTERS = 1 << 20


@dataclass(eq=False)
class _Kept:
    place: TextPlace = field(default_factory=TextPlace)
    marks: set[bytes] = field(default_factory=set[bytes])


class ConversationStates:
    """What the programs of each conversation have left, of those used last: at most 1,024, of 64 MiB together.

    ``tool_name`` is that of the tool that runs them, ``arguments`` those of its arguments that may hold one.
    """

    def __init__(self, tool_name: str, *arguments: str) -> None:
        self._tool_name = tool_name
        self._arguments = arguments
        self._kept: OrderedDict[int, _Kept] = OrderedDict()
        self._by_mark: dict[bytes, _Kept | None] = {}  # None: several conversations have made this call
        self._lock = forkable_lock()

    def __call__(self, _conversation_id: str | None) -> TextPlace | None:
        """Give the place of the call that is being made; None where each call brings its own."""
        return _here.get()

    @contextmanager
    def here(self, ctx: RunContext[Any], known: dict[int, Any]) -> Generator[None]:
        """Let the place that `of` returns be given to what is asked for one while the block runs."""
        token = _here.set(self.of(ctx, known))
        try:
            yield
        finally:
            _here.reset(token)

    def of(self, ctx: RunContext[Any], known: dict[int, Any]) -> TextPlace:
        """Return the place of the conversation that a call is made in. ``known`` are those of its run of the agent."""
        conversation = ctx.conversation_id or ""
        with self._lock:
            one = known.get(id(self)) or self._found(conversation, _before(ctx)) or _Kept()
            known[id(self)] = one
            self._kept[id(one)] = one
            self._kept.move_to_end(id(one))
            for call in self._calls(ctx.messages[-1:]):
                mark = _mark(conversation, *call)
                one.marks.add(mark)
                if self._by_mark.setdefault(mark, one) is not one:
                    self._by_mark[mark] = None
            self._forget()
            return one.place

    def _found(self, conversation: str, messages: Sequence[ModelMessage]) -> _Kept | None:
        characters = 0
        for number, call in enumerate(self._calls(reversed(messages))):
            characters += len(call[1])
            if number >= _MAX_CALLS or characters > _MAX_CHARACTERS:
                return None
            if (one := self._by_mark.get(_mark(conversation, *call))) is not None:
                return one
        return None

    def _calls(self, messages: Any) -> Iterator[tuple[str, str]]:
        for message in messages:
            if isinstance(message, ModelResponse):
                for part in message.parts:
                    if isinstance(part, ToolCallPart) and part.tool_name == self._tool_name:
                        yield part.tool_call_id, self._program(part)

    def _program(self, part: ToolCallPart) -> str:
        try:
            given = part.args_as_dict()
        except (ValueError, AssertionError):  # arguments that are no JSON object are told of elsewhere
            return ""
        return next((str(given[name]) for name in self._arguments if name in given), "")

    def _forget(self) -> None:
        size = sum(one.place.size for one in self._kept.values())
        while len(self._kept) > MAX_CONVERSATIONS or (size > MAX_BYTES and len(self._kept) > 1):
            _, oldest = self._kept.popitem(last=False)
            size -= oldest.place.size
            for mark in oldest.marks:
                # What several have made says nothing to those that are still here.
                if self._by_mark.get(mark) is oldest or not any(mark in one.marks for one in self._kept.values()):
                    self._by_mark.pop(mark, None)


def _before(ctx: RunContext[Any]) -> list[ModelMessage]:
    """Return the history without what this run has added: that a model calls as another's did proves nothing."""
    return [one for one in ctx.messages if one.run_id is None or one.run_id != ctx.run_id]


def _mark(*texts: str) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.digest()
