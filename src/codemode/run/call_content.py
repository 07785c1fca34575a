"""Content on its way through the calls of one invocation: taken out of outputs, put into inputs.

Knows no order of calls and nobody who approves them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..cached_property import cached_property
from ..data.content import Content, Distinct, current, places_for, with_parts
from ..data.json_shape import SCALARS, UNLIMITED
from ..host import steps
from ..host.steps import TooMuchWork
from ..host.threads import run_check
from ..options.parts import ContinuationOptions
from ..protocol.references import Contents
from .content_keeping import content_store_of, is_named_by_ids, keep_new

if TYPE_CHECKING:
    from ..schemas.compiled import ValidatedInput


class CallContent:
    """The content of one invocation, as its calls give and take it. Without ``contents`` its program has none."""

    def __init__(
        self,
        contents: Contents | None,
        options: ContinuationOptions,
        journal_key: Callable[[], str | None] | None = None,
    ) -> None:
        self._contents = contents
        self._options = options
        self._store = content_store_of(options)
        self._journal_key = journal_key if self._store is options.journal else None
        if contents is not None:
            contents.by_digest = is_named_by_ids(options)

    @cached_property
    def _turn(self) -> asyncio.Lock:
        return asyncio.Lock()

    def enter(self) -> None:
        """Let schemas know the handles of this program, in the task that performs one call."""
        current.set(self._contents)

    async def given(self, validated: ValidatedInput) -> Any:
        """Return what a tool is given: parts in place of their handles, but for those that its schema has read."""
        contents = self._contents
        if contents is None or not len(contents):
            return validated.value
        return await run_check(0, lambda: with_parts(validated.value, contents))

    async def taken(self, output: Any) -> Any:
        """Return an output as JSON can say it, its parts kept. Raises `CodeModeSerializationError` for too many."""
        contents = self._contents
        if contents is None or not Content.exist:
            return output
        if type(output) not in SCALARS:
            output = await self._without_parts(output, contents)
        if self._store is not None and len(contents) > len(contents.kept):  # a plugin may have taken some itself
            await self._keep(contents)
        return output

    async def _without_parts(self, output: Any, contents: Contents) -> Any:
        parts = await run_check(0, lambda: _new_parts(output, contents))
        if not parts:
            return output
        for part in parts:
            contents.take(part)
        return await run_check(0, lambda: places_for(output, contents))

    async def _keep(self, contents: Contents) -> None:
        async with self._turn:  # calls come at once, and what one has begun to keep is not kept yet
            await keep_new(contents, contents.tag, self._options)
            key = None if self._journal_key is None else self._journal_key()
            if key is not None and hasattr(self._store, "hold_content"):
                await self._store.hold_content(contents.tag, journal=key)
                self._journal_key = None


class _Search:
    """Takes every part that it meets, and keeps no run's count."""

    tag = ""

    def __init__(self, most: int) -> None:
        self.found: dict[int, Content] = {}  # by their identity: one may stand in a hundred thousand places
        self._left = most

    def look(self, _one: Any) -> None:
        """Count what is no part. Raises `TooMuchWork`."""
        self._left -= 1
        if self._left < 0:
            raise TooMuchWork

    def at(self, part_id: object) -> Content:
        raise NotImplementedError(part_id)

    def told(self, text: str | None) -> str | None:
        return text

    def take(self, part: Content) -> dict[str, Any]:
        self.found[id(part)] = part
        return {}


def _new_parts(output: Any, contents: Contents) -> list[Content]:
    """Return the parts, each once, ready to be taken; of more than there may be one more, which is then refused.

    None of an output that is too large, or in a circle, which whoever writes it then refuses.
    """
    limits = contents.limits
    search = _Search(UNLIMITED if limits is None else limits.max_values)
    try:
        places_for(output, search, search.look)
    except TooMuchWork:
        return []
    distinct, new = Distinct[int](), list[Content]()
    for part in search.found.values():
        steps.take()
        if distinct.name_of(part) is None:
            distinct.add(part, len(new))
            new.append(part)
            for one in contents.looked_at(part):
                _ = one.id  # a digest takes its time
            if limits is not None and len(new) > limits.max_content_parts:
                break
    return new


@contextmanager
def knowing(contents: Contents | None) -> Generator[None, None, None]:
    """Let schemas know these handles meanwhile."""
    token = current.set(contents)
    try:
        yield
    finally:
        current.reset(token)


def with_ids(text: str) -> str:
    """Return JSON text of this host in which parts have their ids, whatever they are called in this run."""
    parts = current.get()
    return text if parts is None else parts.told(text) or text


def genuine(value: Any, text: str | None) -> Any:
    """Return plain JSON of a program, of this ``text``, in which what stands for content is the host's own word.

    Raises `CodeModeSerializationError` for content that the program was not given.
    """
    parts = current.get()
    if parts is None or text is None or (parts.tag not in text and "\\u" not in text):  # a worker may write it escaped
        return value
    return with_parts(value, parts, parts.take)
