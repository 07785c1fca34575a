"""Keep program state by conversation, in this process.

A conversation is identified by its id together with a program call in its history. An id alone is not trusted: a
client may choose it, and must not read the state of others.
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

from codemode.plugins import InMemoryStateBackend, create_fork_safe_lock

_current_backend: ContextVar[InMemoryStateBackend | None] = ContextVar("codemode_pydantic_ai_state", default=None)
MAX_CONVERSATIONS = 1024
MAX_TOTAL_BYTES = 64 << 20
_MAX_SEARCHED_CALLS = 64
_MAX_SEARCHED_CHARACTERS = 1 << 20


@dataclass(eq=False)
class _ConversationEntry:
    backend: InMemoryStateBackend = field(default_factory=InMemoryStateBackend)
    call_digests: set[bytes] = field(default_factory=set[bytes])


class ConversationStates:
    """State of the most recently used conversations: at most 1,024, with 64 MiB in total.

    ``tool_name``: the tool that runs programs. ``arguments``: names of its arguments that may contain the program.
    """

    def __init__(self, tool_name: str, *arguments: str) -> None:
        self._tool_name = tool_name
        self._arguments = arguments
        self._entries: OrderedDict[int, _ConversationEntry] = OrderedDict()
        self._entry_by_digest: dict[
            bytes, _ConversationEntry | None
        ] = {}  # None: several conversations have made this call
        self._lock = create_fork_safe_lock()

    def __call__(self, _conversation_id: str | None) -> InMemoryStateBackend | None:
        """Return the state backend of the current call; None where calls pass their own."""
        return _current_backend.get()

    @contextmanager
    def use_backend_for_call(self, ctx: RunContext[Any], run_entries: dict[int, Any]) -> Generator[None]:
        """Make the conversation's state backend the current one inside the block."""
        token = _current_backend.set(self.get_or_create_backend(ctx, run_entries))
        try:
            yield
        finally:
            _current_backend.reset(token)

    def get_or_create_backend(self, ctx: RunContext[Any], run_entries: dict[int, Any]) -> InMemoryStateBackend:
        """Return the state backend of a call's conversation, a new one for an unknown conversation.

        ``run_entries`` caches those of the agent's run.
        """
        conversation = ctx.conversation_id or ""
        with self._lock:
            entry = (
                run_entries.get(id(self))
                or self._find_entry(conversation, _list_earlier_messages(ctx))
                or _ConversationEntry()
            )
            run_entries[id(self)] = entry
            self._entries[id(entry)] = entry
            self._entries.move_to_end(id(entry))
            for call in self._iter_program_calls(ctx.messages[-1:]):
                digest = _compute_digest(conversation, *call)
                entry.call_digests.add(digest)
                if self._entry_by_digest.setdefault(digest, entry) is not entry:
                    self._entry_by_digest[digest] = None
            self._evict_oldest_entries()
            return entry.backend

    def _find_entry(self, conversation: str, messages: Sequence[ModelMessage]) -> _ConversationEntry | None:
        characters = 0
        for index, call in enumerate(self._iter_program_calls(reversed(messages))):
            characters += len(call[1])
            if index >= _MAX_SEARCHED_CALLS or characters > _MAX_SEARCHED_CHARACTERS:
                return None
            if (entry := self._entry_by_digest.get(_compute_digest(conversation, *call))) is not None:
                return entry
        return None

    def _iter_program_calls(self, messages: Any) -> Iterator[tuple[str, str]]:
        for message in messages:
            if isinstance(message, ModelResponse):
                for part in message.parts:
                    if isinstance(part, ToolCallPart) and part.tool_name == self._tool_name:
                        yield part.tool_call_id, self._get_program_text(part)

    def _get_program_text(self, part: ToolCallPart) -> str:
        try:
            arguments = part.args_as_dict()
        except (ValueError, AssertionError):  # invalid arguments are reported elsewhere
            return ""
        return next((str(arguments[name]) for name in self._arguments if name in arguments), "")

    def _evict_oldest_entries(self) -> None:
        size = sum(entry.backend.size for entry in self._entries.values())
        while len(self._entries) > MAX_CONVERSATIONS or (size > MAX_TOTAL_BYTES and len(self._entries) > 1):
            _, oldest = self._entries.popitem(last=False)
            size -= oldest.backend.size
            for digest in oldest.call_digests:
                # Keep ambiguous digests while another conversation has them.
                if self._entry_by_digest.get(digest) is oldest or not any(
                    digest in entry.call_digests for entry in self._entries.values()
                ):
                    self._entry_by_digest.pop(digest, None)


def _list_earlier_messages(ctx: RunContext[Any]) -> list[ModelMessage]:
    """Return the history without this run's messages: a new call that equals another's is no evidence."""
    return [message for message in ctx.messages if message.run_id is None or message.run_id != ctx.run_id]


def _compute_digest(*texts: str) -> bytes:
    digest = hashlib.sha256()
    for text in texts:
        data = text.encode("utf-8", "surrogatepass")
        digest.update(len(data).to_bytes(8))
        digest.update(data)
    return digest.digest()
