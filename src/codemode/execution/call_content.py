"""Replace media in outputs and inputs of calls by handles and store it with records."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..cached_property import cached_property
from ..continuations.sealing import seal_content_part, unseal_content_part
from ..data.content import (
    DistinctContents,
    MediaContent,
    current_registry,
    may_hold_content,
    replace_content_with_references,
    resolve_content_references,
)
from ..data.json_shape import SCALARS, UNLIMITED, estimate_json_length, run_off_loop_if_large
from ..data.rich_values import using_rich_values
from ..errors import CodeModeProtocolError
from ..host.steps import WorkLimitError
from ..host.threads import LARGE_CHARACTERS, run_in_thread_if_large_or_slow
from ..options.parts import ContinuationOptions
from ..protocol.continuation import describe_content_part, make_content_part
from ..protocol.ledger import Fulfilled, Ledger
from ..protocol.references import ContentRegistry, get_content_tag

if TYPE_CHECKING:
    from ..interrupts.interrupt import Interrupt
    from ..schemas.compiled import ValidatedInput
    from .outcome import RunOutcome


SEALED_DESCRIPTION = "sealed"
"""The description of a sealed part, whose own description is inside."""


def get_content_store(options: ContinuationOptions) -> Any:
    """Return the store of content; None if continuations carry it."""
    if options.content_store is not None:
        return options.content_store
    if options.journal is None and options.guard is None:
        return None
    if hasattr(options.journal, "put_content"):
        return options.journal
    guard_store = getattr(options.guard, "content_store", None)
    return guard_store if hasattr(guard_store, "put_content") else None


def should_name_parts_by_id(options: ContinuationOptions) -> bool:
    """Return True if parts are named by their ids.

    Stores look them up by id, and a journal may lose parts but not names. A number of a lost part could name another
    one in the continued run.
    """
    return options.journal is not None or get_content_store(options) is not None


async def store_new_media_parts(contents: ContentRegistry, tag: str, options: ContinuationOptions) -> None:
    """Store new parts under this tag, sealed if continuations are."""
    store = get_content_store(options)
    for part in [candidate for candidate in contents if candidate.id not in contents.stored_names]:
        description, data = json.dumps(describe_content_part(part)), part.data
        if options.seal:
            sealing = partial(seal_content_part, description, data, options, _make_seal_binding(tag, part.id))
            description, data = SEALED_DESCRIPTION, await run_in_thread_if_large_or_slow(len(data), sealing)
        await store.put_content(tag, part.id, description, data)
        contents.stored_names.add(part.id)


async def store_and_retain_content_until_expiry(
    interrupt: Interrupt, ledger: Ledger, salt: str, options: ContinuationOptions
) -> None:
    """Keep the content of a program in the store for as long as its pause is valid."""
    store = get_content_store(options)
    if store is None or ledger.contents is None or not len(ledger.contents):
        return
    await store_new_media_parts(
        ledger.contents, get_content_tag(salt), options
    )  # carried by another continuation before
    if hasattr(store, "hold_content"):
        auth = interrupt.continuation["auth"]
        await store.hold_content(get_content_tag(salt), nonce=auth["nonce"], until_ms=auth["expiresAtMs"])


async def load_outcome_content(outcome: RunOutcome, options: ContinuationOptions) -> RunOutcome:
    """Return a recorded outcome with the content that the store still has."""
    contents, store = None if outcome.ledger is None else outcome.ledger.contents, get_content_store(options)
    if contents is not None and store is not None:
        for part_id in contents.unloaded_ids:
            part = await _fetch_part(contents.reference_key, part_id, options)
            if part is not None:
                contents.add_admitted_part(part)
        contents.unloaded_ids = ()
    return outcome


def replace_part_names_in_ledger(ledger: Ledger) -> Ledger:
    """Return a ledger with ids in place of the numbers that a continuation carried."""
    contents = ledger.contents
    if contents is None or all(name == part.id for name, part in contents.items()):
        return ledger
    renamed = ContentRegistry()
    for part in contents:
        renamed.add_admitted_part(part)
    renamed.reference_key = contents.reference_key
    entries = [
        entry._replace(
            input_json=contents.replace_names_with_ids(entry.input_json),
            executed_input_json=contents.replace_names_with_ids(entry.executed_input_json),
            outcome=Fulfilled(contents.replace_names_with_ids(outcome.value_json), outcome.large)
            if isinstance(outcome := entry.outcome, Fulfilled)
            else outcome,
        )
        for entry in ledger.entries
    ]
    return replace(ledger, entries=entries, contents=renamed)


async def load_ledger_content(ledger: Ledger, salt: str, options: ContinuationOptions) -> ContentRegistry | None:
    """Return the content that a recorded ledger names, from its store.

    Raises `CodeModeProtocolError` for a part that is missing or changed.
    """
    store, contents = get_content_store(options), ledger.contents
    if store is None:
        return contents
    contents, tag = contents or ContentRegistry(), get_content_tag(salt)
    for part_id in await run_in_thread_if_large_or_slow(LARGE_CHARACTERS, lambda: _find_part_ids(ledger, tag)):
        if part_id in contents:
            continue
        part = await _fetch_part(tag, part_id, options)
        if part is None:
            raise CodeModeProtocolError("the store no longer has the content that this program was given")
        contents.add_admitted_part(part)
        contents.stored_names.add(part_id)
    return contents


async def _fetch_part(tag: str, part_id: str, options: ContinuationOptions) -> MediaContent | None:
    """Return a part; None if it is missing or changed."""
    stored = await get_content_store(options).get_content(tag, part_id)
    if stored is None:
        return None
    description, data = stored
    return await run_in_thread_if_large_or_slow(
        LARGE_CHARACTERS, lambda: _decode_part(description, data, tag, part_id, options)
    )


def _decode_part(
    description: str, data: bytes, tag: str, part_id: str, options: ContinuationOptions
) -> MediaContent | None:
    """Decode a stored part; None if it is not valid, because others may write to the store."""
    try:
        if description == SEALED_DESCRIPTION:
            description, data = unseal_content_part(bytes(data), options, _make_seal_binding(tag, part_id))
        part = make_content_part(json.loads(description), bytes(data))
    except (CodeModeProtocolError, ValueError, KeyError, TypeError):
        return None
    return part if part.id == part_id else None


def _make_seal_binding(tag: str, part_id: str) -> str:
    return f"{tag} {part_id}"


def _find_part_ids(ledger: Ledger, tag: str) -> list[str]:
    pattern = re.compile(re.escape(json.dumps(tag)) + r':"([0-9a-f]{32})"')
    texts = (entry.outcome.value_json for entry in ledger.entries if isinstance(entry.outcome, Fulfilled))
    return list(dict.fromkeys(part_id for text in texts if text and tag in text for part_id in pattern.findall(text)))


class InvocationContent:
    """The content of one invocation. ``contents`` is None for programs without content."""

    def __init__(
        self,
        contents: ContentRegistry | None,
        options: ContinuationOptions,
        journal_key: Callable[[], str | None] | None = None,
    ) -> None:
        self.contents = contents
        self._options = options
        keeps = options.content_store is not None or options.journal is not None or options.guard is not None
        self._store: Any = get_content_store(options) if keeps else None
        self._journal_key = journal_key if self._store is options.journal else None
        if contents is not None:
            contents.uses_ids = options.journal is not None or self._store is not None

    @cached_property
    def _lock(self) -> asyncio.Lock:
        return asyncio.Lock()

    async def replace_handles_with_parts(self, validated: ValidatedInput) -> Any:
        """Return the input of a tool with parts in place of handles."""
        contents = self.contents
        if contents is None or not len(contents):
            return validated.value
        return await run_off_loop_if_large(
            validated.value, lambda: resolve_content_references(validated.value, contents)
        )

    async def save_and_replace_parts(self, output: Any, max_values: int = UNLIMITED) -> Any:
        """Return an output with handles in place of parts, which are stored.

        For programs without handles it contains the bytes in base64. Raises `CodeModeSerializationError` for too many
        parts.
        """
        contents = self.contents
        if not MediaContent.has_instances:
            return output
        if contents is None:
            size = estimate_json_length(output, LARGE_CHARACTERS)
            return await run_in_thread_if_large_or_slow(size, lambda: _replace_parts_with_base64(output, max_values))
        if type(output) not in SCALARS:
            output = await self._register_and_replace_parts(output, contents)
        if self._store is not None and len(contents) > len(
            contents.stored_names
        ):  # a plugin may have registered parts itself
            await self._store_parts(contents)
        return output

    async def _register_and_replace_parts(self, output: Any, contents: ContentRegistry) -> Any:
        size = estimate_json_length(output, LARGE_CHARACTERS)
        parts = await run_in_thread_if_large_or_slow(size, lambda: _find_and_hash_distinct_parts(output, contents))
        if not parts:
            return output
        for part in parts:
            contents.register(part)
        return await run_in_thread_if_large_or_slow(size, lambda: replace_content_with_references(output, contents))

    async def _store_parts(self, contents: ContentRegistry) -> None:
        async with self._lock:  # calls run concurrently, and a part may be half stored
            await store_new_media_parts(contents, contents.reference_key, self._options)
            key = None if self._journal_key is None else self._journal_key()
            if key is not None and hasattr(self._store, "hold_content"):
                await self._store.hold_content(contents.reference_key, journal=key)
                self._journal_key = None


class _PartCollector:
    """Collects every part of a value without counting against limits."""

    reference_key = ""

    def __init__(self, max_values: int) -> None:
        self.parts_by_identity: dict[int, MediaContent] = {}  # by identity: a part may occur a hundred thousand times
        self._remaining = max_values

    def count_value_or_raise(self, _value: Any) -> None:
        """Count a value. Raises `WorkLimitError`."""
        self._remaining -= 1
        if self._remaining < 0:
            raise WorkLimitError

    def get(self, part_id: object) -> MediaContent:
        raise NotImplementedError(part_id)

    def replace_names_with_ids(self, text: str | None) -> str | None:
        return text

    def register(self, part: MediaContent) -> dict[str, Any]:
        self.parts_by_identity[id(part)] = part
        return {}


class _Base64Writer(_PartCollector):
    """Replaces every part by its description with base64."""

    def register(self, part: MediaContent) -> dict[str, Any]:
        return part.description_with_base64


def _replace_parts_with_base64(output: Any, max_values: int) -> Any:
    """Return an output that is too large or circular unchanged: encoding it fails later."""
    if not may_hold_content(output):
        return output
    writer = _Base64Writer(max_values)
    try:
        return replace_content_with_references(output, writer, writer.count_value_or_raise)
    except WorkLimitError:
        return output


def _find_and_hash_distinct_parts(output: Any, contents: ContentRegistry) -> list[MediaContent]:
    """Return new parts, each once; beyond the limit one more, which is then refused.

    Returns none for an output that is too large or circular: encoding it fails later.
    """
    limits = contents.limits
    search = _PartCollector(UNLIMITED if limits is None else limits.max_values)
    try:
        replace_content_with_references(output, search, search.count_value_or_raise)
    except WorkLimitError:
        return []
    distinct, new = DistinctContents[int](), list[MediaContent]()
    for part in search.parts_by_identity.values():
        if distinct.find_name(part) is None:
            distinct.add(part, len(new))
            new.append(part)
            for hashed in contents.list_parts_to_hash(part):
                _ = hashed.id  # compute the digest here
            if limits is not None and len(new) > limits.max_content_parts:
                break
    return new


@contextmanager
def using_content_registry(
    contents: ContentRegistry | None, *, has_rich_values: bool = False
) -> Generator[None, None, None]:
    """Make handles and the form of values known to schemas in the block."""
    token = current_registry.set(contents)
    try:
        with using_rich_values(has_rich_values):
            yield
    finally:
        current_registry.reset(token)


def replace_part_names_in_json(text: str) -> str:
    """Return JSON text of this host with ids in place of run-specific names of parts."""
    parts = current_registry.get()
    return text if parts is None else parts.replace_names_with_ids(text) or text


def restore_handle_descriptions(value: Any, text: str | None) -> Any:
    """Return plain JSON of a program with the host's own descriptions of its handles.

    Raises `CodeModeSerializationError` for content that the program did not receive.
    """
    parts = current_registry.get()
    if (
        parts is None or text is None or (parts.reference_key not in text and "\\u" not in text)
    ):  # a worker may escape it
        return value
    return resolve_content_references(value, parts, parts.register)
