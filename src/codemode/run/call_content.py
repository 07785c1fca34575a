"""Content on its way through the calls of one invocation: taken out of outputs, put into inputs, kept in a store.

Knows no order of calls and nobody who approves them.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ..data.content import Content, current, places_for, with_parts
from ..data.json_shape import SCALARS, UNLIMITED
from ..errors import CodeModeProtocolError
from ..host.steps import TooMuchWork
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ContinuationOptions
from ..protocol.contents import Contents, tag_of
from ..protocol.kept_contents import described, part_of
from ..protocol.ledger import Fulfilled, Ledger

if TYPE_CHECKING:
    from ..schemas.compiled import ValidatedInput


class CallContent:
    """The content of one invocation, as its calls give and take it. Without ``contents`` its program has none."""

    def __init__(self, contents: Contents | None, options: ContinuationOptions) -> None:
        self._contents = contents
        self._store = content_store_of(options)
        self._kept = 0
        self._turn = asyncio.Lock()

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
        if self._store is not None and len(contents) > self._kept:  # a plugin may have taken some itself
            await self._keep(contents)
        return output

    async def _without_parts(self, output: Any, contents: Contents) -> Any:
        most = UNLIMITED if contents.limits is None else contents.limits.max_values
        parts = await run_check(0, lambda: _parts_in(output, most))
        if not parts:
            return output
        for part in parts:
            if not part.is_known:  # a digest takes its time
                await run_check(len(part.data), lambda part=part: part.id)
            contents.take(part)
        return await run_check(0, lambda: places_for(output, contents))

    async def _keep(self, contents: Contents) -> None:
        async with self._turn:  # calls come at once, and what one has begun to keep is not kept yet
            for part in list(contents)[self._kept :]:
                await self._store.put_content(contents.tag, part.id, json.dumps(described(part)), part.data)
                self._kept += 1


class _Search:
    """Takes every part that it meets, and keeps no run's count."""

    tag = ""

    def __init__(self, most: int) -> None:
        self.found: list[Content] = []
        self._left = most

    def look(self, _one: Any) -> None:
        """Count what is no part. Raises `TooMuchWork`."""
        self._left -= 1
        if self._left < 0:
            raise TooMuchWork

    def at(self, part_id: object) -> Content:
        raise NotImplementedError(part_id)

    def take(self, part: Content) -> dict[str, Any]:
        self.found.append(part)
        return {}


def _parts_in(output: Any, most: int) -> list[Content]:
    """Return the parts; none of an output that is too large, or in a circle, which whoever writes it then refuses."""
    search = _Search(most)
    try:
        places_for(output, search, search.look)
    except TooMuchWork:
        return []
    return search.found


def content_store_of(options: ContinuationOptions) -> Any:
    """Return where content is kept, beside the records; None for in the continuation."""
    if options.content_store is not None:
        return options.content_store
    journal = options.journal
    return journal if hasattr(journal, "put_content") else None


async def kept_contents(ledger: Ledger, salt: str, options: ContinuationOptions) -> Contents | None:
    """Return the content that a recorded ledger names, of the store that has it.

    Raises `CodeModeProtocolError` for what the store has not got, or in another form.
    """
    store, contents = content_store_of(options), ledger.contents
    if store is None:
        return contents
    contents, tag = contents or Contents(), tag_of(salt)
    for part_id in await run_check(LARGE_CHARACTERS, lambda: _named(ledger, tag)):
        if part_id in contents:
            continue
        found = await store.get_content(tag, part_id)
        part = None if found is None else _as_kept(*found)
        if part is None or await run_check(LARGE_CHARACTERS, _id_of(part)) != part_id:
            raise CodeModeProtocolError("the store no longer has the content that this program was given")
        contents.put(part)
    return contents


def _as_kept(description: str, data: bytes) -> Content | None:
    """Return a part of a store; None for what is none, for others may write there."""
    try:
        return part_of(json.loads(description), bytes(data))
    except (CodeModeProtocolError, ValueError, KeyError, TypeError):
        return None


def _id_of(part: Content) -> Callable[[], str]:
    return lambda: part.id


def _named(ledger: Ledger, tag: str) -> list[str]:
    pattern = re.compile(re.escape(json.dumps(tag)) + r':"([0-9a-f]{32})"')
    texts = (entry.outcome.value_json for entry in ledger.entries if isinstance(entry.outcome, Fulfilled))
    return list(dict.fromkeys(found for text in texts if text and tag in text for found in pattern.findall(text)))


@contextmanager
def knowing(contents: Contents | None) -> Generator[None, None, None]:
    """Let schemas know these handles meanwhile."""
    token = current.set(contents)
    try:
        yield
    finally:
        current.reset(token)


def genuine(value: Any, text: str | None) -> Any:
    """Return plain JSON of a program, of this ``text``, in which what stands for content is the host's own word.

    Raises `CodeModeSerializationError` for content that the program was not given.
    """
    parts = current.get()
    if parts is None or text is None or (parts.tag not in text and "\\u" not in text):  # a worker may write it escaped
        return value
    return with_parts(value, parts, parts.take)
