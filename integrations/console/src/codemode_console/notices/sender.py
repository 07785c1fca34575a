"""Sends notices from the outbox of a store while a console runs: each target by itself, for one may be slow."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Awaitable, Callable, Sequence

from codemode import CodeModeError, InterruptStore, Notice, Outbox
from codemode.plugins import LARGE_CHARACTERS, run_check

from .posting import Failure, Posting
from .target import Target
from .telling import link_of

_log = logging.getLogger("codemode.console")
RETRY_SECONDS = (15, 45, 120, 420)
"""Between attempts: the fifth and last one is ten minutes after the first."""
_JITTER = 0.1
_AT_ONCE = 4
_LEASE_MS = 60_000
_LOOK_SECONDS = 1.0
_MOST_SECONDS_AWAY = 30.0
_MOST_SECONDS_HELD = 60.0


class Sender:
    """Sends to ``targets`` what waits in a store. ``base_url`` is where the console is, ``clock`` Unix time.

    ``sleep`` waits for so many seconds, ``spread`` gives a number from 0 to 1: other ones in tests.
    """

    def __init__(
        self,
        store: InterruptStore,
        targets: Sequence[Target],
        base_url: str,
        *,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        spread: Callable[[], float] = random.random,
    ) -> None:
        self._store, self._targets, self._base_url = store, targets, base_url
        self._clock, self._sleep, self._spread = clock, sleep, spread

    @property
    def has_targets(self) -> bool:
        """Whether anybody is to be told."""
        return len(self._targets) > 0

    async def run(self) -> None:
        """Send until it is cancelled. What is being sent then is sent again by the next, under the same id."""
        async with asyncio.TaskGroup() as group:
            for target in self._targets:
                group.create_task(self._serve(target))

    async def _serve(self, target: Target) -> None:
        away = 0.0
        while True:
            try:
                with self._store.watch() as watch:
                    async with Posting(target.url) as post:
                        while True:
                            has_sent = await self.round(target, post)
                            if away:
                                _log.info("notices for %s are sent again", target.name)
                            away = 0.0
                            if not has_sent:
                                await watch.wait(_LOOK_SECONDS)
            except Exception as error:  # noqa: BLE001 - the store may be host code, and may work again the next time
                if not away:
                    told = error if isinstance(error, CodeModeError) else None
                    _log.warning(
                        "notices for %s cannot be sent now: %s", target.name, type(error).__name__, exc_info=told
                    )
                away = min(max(2 * away, 1.0), _MOST_SECONDS_AWAY)
                await self._sleep(away)

    async def round(self, target: Target, post: Posting) -> bool:
        """Send some of what is to be sent now, and say whether there was anything to do."""
        outbox = self._store.outbox(target.name)
        changes = await outbox.fill()
        notices = await outbox.claim(limit=_AT_ONCE, lease_ms=_LEASE_MS)
        sent = await asyncio.gather(*(self._send(target, outbox, post, one) for one in notices), return_exceptions=True)
        held = 0.0
        for one in sent:
            if isinstance(one, BaseException):
                raise one
            held = max(held, one)
        if held:
            await self._sleep(min(held, _MOST_SECONDS_HELD))
        return bool(changes or notices)

    async def _send(self, target: Target, outbox: Outbox, post: Posting, notice: Notice) -> float:
        """Return for how many seconds the target wants no more."""
        failure = await self._posted(target, post, notice)
        if failure is None:
            await outbox.settle(notice)
            return 0.0
        if notice.attempts >= len(RETRY_SECONDS):
            if await outbox.settle(notice, error=failure.words):
                said = (notice.record.id, target.name, failure.words)
                _log.warning("the notice of record %s for %s is given up: %s", *said)
        else:
            spread = 1 + _JITTER * self._spread()
            seconds = max(RETRY_SECONDS[notice.attempts] * spread, failure.retry_after_seconds)
            await outbox.settle(notice, error=failure.words, retry_ms=int(seconds * 1000))
        return failure.retry_after_seconds

    async def _posted(self, target: Target, post: Posting, notice: Notice) -> Failure | None:
        link = link_of(self._base_url, notice.record.id)
        try:
            # In a thread: an input may be large.
            made = await run_check(LARGE_CHARACTERS, lambda: target.post(notice, link, self._clock()))
        except Exception as error:  # noqa: BLE001 - of what strangers have written, and others are to be told of theirs
            return Failure(f"it could not be written ({type(error).__name__})")
        return await post(made.headers, made.body)
