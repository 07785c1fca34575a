"""A resumer whose store is away says so once, however often it asks, and says when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from codemode.stores import ALL_TENANTS, Lease, MemoryInterruptStore, Resumer, StoreUnavailableError
from codemode.stores import resumer as resumers
from codemode.stores.resume_outcome import keep_lease_renewed

TRIES = 5


class AwayStore(MemoryInterruptStore):
    """Fails as long as there are errors, at each claim and at each sweep with another one."""

    def __init__(self, *errors: Exception) -> None:
        super().__init__()
        self.left, self.is_done = {"claim": [*errors], "sweep": [*errors]}, asyncio.Event()
        self.worked = Counter[str]()

    async def claim(self, **asked: Any) -> Lease | None:
        self.tried("claim")
        return await super().claim(**asked)

    async def sweep(self, **asked: Any) -> int:
        self.tried("sweep")
        return await super().sweep(**asked)

    def tried(self, what: str) -> None:
        if self.left[what]:
            raise self.left[what].pop(0)
        self.worked[what] += 1
        if min(self.worked["claim"], self.worked["sweep"]) > 1:  # so the resumer has heard that the first one worked
            self.is_done.set()


async def resume(interrupt: Any, resolutions: Any) -> Any:
    raise AssertionError("nothing waits here")


def told(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, *errors: Exception
) -> list[tuple[str, bool]]:
    """What a resumer logs while it works through these errors."""

    async def scenario() -> None:
        store = AwayStore(*errors)
        async with Resumer(store, tenant=ALL_TENANTS, resume=resume), asyncio.timeout(60):
            await store.is_done.wait()

    monkeypatch.setattr(resumers, "_POLL_SECONDS", 0.001)
    monkeypatch.setattr(resumers, "_SWEEP_SECONDS", 0.001)
    with caplog.at_level(logging.WARNING, "codemode.stores"):
        asyncio.run(scenario())
    return sorted((record.getMessage(), record.exc_info is not None) for record in caplog.records)


def test_a_store_that_is_away_is_one_line_for_each_consequence(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    away = [StoreUnavailableError(f"Connection refused,\n\tat try {number}") for number in range(TRIES)]
    assert told(monkeypatch, caplog, *away) == [
        ("expired records are not marked until the store can be used: Connection refused, at try 0", False),
        ("nothing is resumed until the store can be used: Connection refused, at try 0", False),
        ("the store can be used again", False),
        ("the store can be used again", False),
    ]


def test_another_reason_is_told_and_what_is_no_error_of_a_store_with_its_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
):
    found = told(monkeypatch, caplog, StoreUnavailableError("away"), RuntimeError("broken"), RuntimeError("broken"))
    assert [(text, is_traced) for text, is_traced in found if text.startswith("nothing")] == [
        ("nothing is resumed until the store can be used: away", False),
        ("nothing is resumed until the store can be used: broken", True),
    ]


def test_a_lease_that_cannot_be_renewed_for_long_is_one_line(caplog: pytest.LogCaptureFixture):
    class Store:
        def __init__(self) -> None:
            self.left: list[Exception | None] = [*[StoreUnavailableError("away")] * TRIES, None]
            self.is_done = asyncio.Event()

        async def renew(self, lease: Lease) -> bool:
            if not self.left:
                self.is_done.set()
                return False
            if (error := self.left.pop(0)) is not None:
                raise error
            return True

    async def scenario() -> None:
        store, lease = Store(), SimpleNamespace(lease_ms=3)
        async with keep_lease_renewed(store.renew, lease), asyncio.timeout(60):  # type: ignore[arg-type]
            await store.is_done.wait()

    with caplog.at_level(logging.WARNING, "codemode.stores"):
        asyncio.run(scenario())
    assert [record.getMessage() for record in caplog.records] == [
        "the lease of a record is not renewed until the store can be used: away",
        "the store can be used again",
    ]
