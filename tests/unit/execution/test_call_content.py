"""Content on its way through calls: what stands for it is the host's own word, and no output is searched for ever."""

from __future__ import annotations

import asyncio
import json

import pytest
from suite import each_row

from codemode import CodeModeProtocolError, MediaContent, Tool
from codemode.data.content import resolve_content_references
from codemode.errors import CodeModeSerializationError
from codemode.execution.call_content import (
    InvocationContent,
    load_ledger_content,
    restore_handle_descriptions,
    using_content_registry,
)
from codemode.execution.execution import decode_and_measure_result
from codemode.execution.recovery import RecoveryLedgerBuilder
from codemode.options.parts import ContinuationOptions, ExecutionPolicy
from codemode.protocol.continuation import describe_content_part
from codemode.protocol.ledger import Fulfilled, Ledger, LedgerEntry
from codemode.protocol.references import ContentRegistry
from codemode.tools.prepared import prepare_tool

SHOWN = MediaContent(b"\x89PNG", "image/png", name="harmless.png")
OTHER = MediaContent(b"secret", "application/pdf", name="secret.pdf")


def contents(**limits):
    made = ContentRegistry().assign_to_invocation(ExecutionPolicy(**limits), "salt")
    made.register(SHOWN)
    made.register(OTHER)
    return made


def lie(made, part_id=OTHER.id):
    return {**made.register(SHOWN), made.reference_key: part_id}


def escaped(text, tag):
    return text.replace(tag, "".join(f"\\u{ord(char):04x}" for char in tag))


@each_row("depth", [0, 70, 500])
@each_row("spelled", [lambda text, _: text, escaped])
def test_what_a_person_is_shown_of_a_part_is_the_hosts_word_however_a_worker_spells_it(spelled, depth):
    made = contents()
    text = spelled("[" * depth + json.dumps(lie(made)) + "]" * depth, made.reference_key)
    with using_content_registry(made):
        shown = restore_handle_descriptions(json.loads(text), text)
    value, _ = asyncio.run(decode_and_measure_result(text, 1000, Ledger(contents=made)))
    for _ in range(depth):
        (shown,), (value,) = shown, value
    assert shown == value == made.register(OTHER)
    text = spelled(json.dumps(lie(made, "0" * 32)), made.reference_key)
    with (
        using_content_registry(made),
        pytest.raises(CodeModeSerializationError, match="that this program did not receive"),
    ):
        restore_handle_descriptions(json.loads(text), text)


def test_what_a_person_is_shown_of_a_call_of_unknown_outcome_is_the_hosts_word_too():
    made = contents()
    text = json.dumps({"of": lie(made)}, separators=(",", ":"))
    send = prepare_tool(Tool("send", execute=print, input_schema={"type": "object"}))
    begun = Ledger([LedgerEntry(1, "tool", "send", text, is_started=True)], contents=made)
    recovered = RecoveryLedgerBuilder({"send": send}, {}).build_ledger(begun, "salt")
    assert json.loads(recovered.entries[0].outcome.input_json) == {"of": made.register(OTHER)}


class Bare:
    """A journal of somebody's own, which keeps no content."""

    lease_ms, is_shared_between_processes = 1, False
    open = write = renew = end = release = staticmethod(print)


def test_a_handle_that_a_journal_has_outlived_its_part_is_no_other_parts():
    options = ContinuationOptions(journal=Bare())
    before, after = (ContentRegistry().assign_to_invocation(ExecutionPolicy(), "salt") for _ in range(2))
    lost = asyncio.run(InvocationContent(before, options).save_and_replace_parts(SHOWN))
    other = asyncio.run(InvocationContent(after, options).save_and_replace_parts(OTHER))
    assert resolve_content_references(other, after) is OTHER
    with pytest.raises(CodeModeSerializationError, match="that this program did not receive"):
        resolve_content_references(lost, after)


def test_an_output_in_a_circle_or_of_too_many_values_is_left_to_whoever_writes_it():
    taken = InvocationContent(contents(max_values=1000), ContinuationOptions()).save_and_replace_parts
    circle = [SHOWN]
    circle += [circle, circle]
    assert asyncio.run(taken(circle)) is circle
    folded = [SHOWN]
    for _ in range(60):
        folded = [folded, folded]
    assert asyncio.run(taken(folded)) is folded


class SlowStore:
    """Keeps a part once it is let."""

    def __init__(self):
        self.kept, self.go_on = set(), asyncio.Event()

    async def put_content(self, run, part_id, description, data):
        await self.go_on.wait()
        self.kept.add(part_id)

    async def get_content(self, run, part_id):
        raise NotImplementedError


def test_each_part_is_kept_before_its_call_ends_however_many_come_at_once():
    async def run():
        store, made = SlowStore(), ContentRegistry().assign_to_invocation(ExecutionPolicy(), "salt")
        content = InvocationContent(made, ContinuationOptions(content_store=store))
        parts = [MediaContent(bytes([at]), "image/png") for at in range(8)]

        async def call(part):
            await content.save_and_replace_parts(part)
            assert part.id in store.kept

        calls = [asyncio.ensure_future(call(part)) for part in (*parts[:3], parts[0])]
        for _ in range(20):  # until each has come to the store
            await asyncio.sleep(0)
        assert len(made) == 3
        store.go_on.set()
        await asyncio.gather(*calls)
        for part in parts[3:]:
            await call(part)
        assert store.kept == {part.id for part in parts}

    asyncio.run(run())


class Tampered:
    """Gives one answer, whatever it is asked for."""

    def __init__(self, found):
        self.found = found

    async def put_content(self, run, part_id, description, data):
        raise NotImplementedError

    async def get_content(self, run, part_id):
        return self.found


SAID = json.dumps(describe_content_part(SHOWN))


@each_row(
    "found",
    [
        None,
        (SAID, OTHER.data),
        (SAID.replace("harmless", "other"), SHOWN.data),
        (SAID.replace("image/png", "no type"), SHOWN.data),
        ("{}", SHOWN.data),
        ("[]", SHOWN.data),
        ("{", SHOWN.data),
        (None, SHOWN.data),
        (SAID, "text"),
    ],
)
def test_what_a_store_gives_in_place_of_a_part_is_refused(found):
    made = contents()
    text = json.dumps(made.register(SHOWN), separators=(",", ":"))
    ledger = Ledger([LedgerEntry(1, "tool", "t", "{}", outcome=Fulfilled(text))])
    genuine_store = ContinuationOptions(content_store=Tampered((SAID, SHOWN.data)))
    kept = asyncio.run(load_ledger_content(ledger, "salt", genuine_store))
    assert kept is not None
    assert kept.get(SHOWN.id) == SHOWN
    with pytest.raises(CodeModeProtocolError, match="no longer has the content"):
        asyncio.run(load_ledger_content(ledger, "salt", ContinuationOptions(content_store=Tampered(found))))
