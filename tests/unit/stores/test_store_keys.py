"""What is said of keys: a pause that nobody else can go on with, and what a host lacks that could not."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from stored_pauses import paused
from test_store_contract import through

from codemode import CodeModeProtocolError, Interrupt, set_continuation_signing_key
from codemode.continuations import keys
from codemode.continuations.keys import get_or_create_process_keys
from codemode.continuations.signing import KeyRing, compute_key_id
from codemode.stores import ALL_TENANTS

OTHER = b"a key that every process has"


@pytest.fixture(autouse=True)
def unwarned(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(keys, "_has_warned_of_random_key", False)
    set_continuation_signing_key(None)
    yield
    set_continuation_signing_key(None)


def signed(name: str, key: bytes) -> Interrupt:
    one = paused(name)
    auth = {**one.continuation["auth"], "keyId": compute_key_id(key)}
    return replace(one, continuation={**one.continuation, "auth": auth})


def warned(caplog: pytest.LogCaptureFixture) -> int:
    found = [one for one in caplog.records if "set_continuation_signing_key" in one.getMessage()]
    assert all((one.levelno, one.name) == (logging.WARNING, "codemode.continuations") for one in found)
    return len(found)


def test_a_pause_under_a_key_that_dies_with_the_process_is_warned_of_once(kind: str, make: Any, caplog: Any) -> None:
    async def scenario(store: Any) -> None:
        key = get_or_create_process_keys()[-1]
        await store.put(signed("a", OTHER))
        assert warned(caplog) == 0
        await store.put(signed("b", key))
        await store.put(signed("c", key))
        assert warned(caplog) == (0 if kind == "memory" else 1)

    through(make, scenario)


def test_one_within_the_payload_of_an_agents_record_counts(kind: str, make: Any, caplog: Any) -> None:
    async def scenario(store: Any) -> None:
        within = {"calls": {"a": {"continuation": signed("a", get_or_create_process_keys()[-1]).continuation}}}
        await store.put(paused("b"), payload=within)
        assert warned(caplog) == (0 if kind == "memory" else 1)

    through(make, scenario)


def test_nothing_is_said_where_a_key_was_set(make: Any, caplog: Any) -> None:
    async def scenario(store: Any) -> None:
        set_continuation_signing_key(OTHER)
        await store.put(signed("a", OTHER))
        assert warned(caplog) == 0

    through(make, scenario)


def test_an_unknown_key_is_told_with_what_to_do_about_it() -> None:
    with pytest.raises(CodeModeProtocolError) as caught:
        KeyRing((OTHER,), purpose="tests").get_secret("another")
    assert caught.value.message.startswith("the continuation was signed with a key that is not known here")
    for way in ("set_continuation_signing_key", "continuation={'keys': ...}", "CODEMODE_SIGNING_KEY"):
        assert way in caught.value.message


def test_an_outcome_awaited_too_long_names_why_the_program_was_not_resumed(make: Any) -> None:
    async def scenario(store: Any) -> None:
        record_id = await store.put(paused("a"))
        with pytest.raises(TimeoutError, match=r"is still pending$"):
            await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=0)
        await store.decide({"a": {"approved": True}}, actor="ana", tenant=ALL_TENANTS)
        lease = await store.claim(owner="o", tenant=ALL_TENANTS)
        assert await store.release(lease, refusals={"a": "at is missing"})
        with pytest.raises(TimeoutError, match=r"is still pending; the last answer was refused: at is missing$"):
            await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=0)
        await store.decide({"a": {"approved": True}}, actor="ana", tenant=ALL_TENANTS)
        lease = await store.claim(owner="o", tenant=ALL_TENANTS)
        assert await store.release(lease, not_resumable="another key")
        with pytest.raises(TimeoutError, match=r"is still pending; the last host could not resume it: another key$"):
            await store.outcome(record_id, tenant=ALL_TENANTS, timeout_ms=0)

    through(make, scenario)
