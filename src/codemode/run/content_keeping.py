"""Where the content of invocations is kept beside their records and journals, and how it comes back from there."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from ..continuations.sealing import open_part, seal_part
from ..data.content import Content
from ..errors import CodeModeProtocolError
from ..host.threads import LARGE_CHARACTERS, run_check
from ..options.parts import ContinuationOptions
from ..protocol.continuation import described, part_of
from ..protocol.ledger import Fulfilled, Ledger
from ..protocol.references import Contents, tag_of

if TYPE_CHECKING:
    from ..interrupts.interrupt import Interrupt
    from .outcome import RunOutcome

SEALED = "sealed"
"""The description of what is kept sealed: its own is inside."""


def content_store_of(options: ContinuationOptions) -> Any:
    """Return where content is kept, beside the records; None for in the continuation."""
    if options.content_store is not None:
        return options.content_store
    if options.journal is None and options.guard is None:
        return None
    beside = (options.journal, getattr(options.guard, "content_store", None))
    return next((one for one in beside if hasattr(one, "put_content")), None)


def is_named_by_ids(options: ContinuationOptions) -> bool:
    """Whether a part is known by its id: a store is asked for it so, and a journal may lose parts, but not their names.

    A number that is left of one would be another's in the run that goes on.
    """
    return options.journal is not None or content_store_of(options) is not None


async def keep_new(contents: Contents, tag: str, options: ContinuationOptions) -> None:
    """Keep what the store has not got yet, under this tag; sealed where continuations are."""
    store = content_store_of(options)
    for part in [one for one in contents if one.id not in contents.kept]:
        description, data = json.dumps(described(part)), part.data
        if options.seal:
            sealing = partial(seal_part, description, data, options, _name(tag, part.id))
            description, data = SEALED, await run_check(len(data), sealing)
        await store.put_content(tag, part.id, description, data)
        contents.kept.add(part.id)


async def hold_for(interrupt: Interrupt, ledger: Ledger, salt: str, options: ContinuationOptions) -> None:
    """Let the store keep the content of a program for as long as its pause holds, which does not carry it."""
    store = content_store_of(options)
    if store is None or ledger.contents is None or not len(ledger.contents):
        return
    await keep_new(ledger.contents, tag_of(salt), options)  # what another continuation has carried
    if hasattr(store, "hold_content"):
        auth = interrupt.continuation["auth"]
        await store.hold_content(tag_of(salt), nonce=auth["nonce"], until_ms=auth["expiresAtMs"])


async def complete(outcome: RunOutcome, options: ContinuationOptions) -> RunOutcome:
    """Return a recorded outcome with its content, as far as the store still has it."""
    contents, store = None if outcome.ledger is None else outcome.ledger.contents, content_store_of(options)
    if contents is not None and store is not None:
        for part_id in contents.left:
            part = await _fetched(contents.tag, part_id, options)
            if part is not None:
                contents.put(part)
        contents.left = ()
    return outcome


def with_ids(ledger: Ledger) -> Ledger:
    """Return a ledger whose parts a store is asked for by their ids, where a continuation carried them with numbers."""
    contents = ledger.contents
    if contents is None or all(name == part.id for name, part in contents.items()):
        return ledger
    renamed = Contents()
    for part in contents:
        renamed.put(part)
    renamed.tag = contents.tag
    entries = [
        entry._replace(
            input_json=contents.told(entry.input_json),
            executed_input_json=contents.told(entry.executed_input_json),
            outcome=Fulfilled(contents.told(outcome.value_json), outcome.large)
            if isinstance(outcome := entry.outcome, Fulfilled)
            else outcome,
        )
        for entry in ledger.entries
    ]
    return replace(ledger, entries=entries, contents=renamed)


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
        part = await _fetched(tag, part_id, options)
        if part is None:
            raise CodeModeProtocolError("the store no longer has the content that this program was given")
        contents.put(part)
        contents.kept.add(part_id)
    return contents


async def _fetched(tag: str, part_id: str, options: ContinuationOptions) -> Content | None:
    """Return a part; None for what the store has not got, or in another form."""
    found = await content_store_of(options).get_content(tag, part_id)
    if found is None:
        return None
    description, data = found
    return await run_check(LARGE_CHARACTERS, lambda: _as_kept(description, data, tag, part_id, options))


def _as_kept(description: str, data: bytes, tag: str, part_id: str, options: ContinuationOptions) -> Content | None:
    """Return a part of a store; None for what is none, for others may write there."""
    try:
        if description == SEALED:
            description, data = open_part(bytes(data), options, _name(tag, part_id))
        part = part_of(json.loads(description), bytes(data))
    except (CodeModeProtocolError, ValueError, KeyError, TypeError):
        return None
    return part if part.id == part_id else None


def _name(tag: str, part_id: str) -> str:
    return f"{tag} {part_id}"


def _named(ledger: Ledger, tag: str) -> list[str]:
    pattern = re.compile(re.escape(json.dumps(tag)) + r':"([0-9a-f]{32})"')
    texts = (entry.outcome.value_json for entry in ledger.entries if isinstance(entry.outcome, Fulfilled))
    return list(dict.fromkeys(found for text in texts if text and tag in text for found in pattern.findall(text)))
