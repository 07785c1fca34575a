"""Pauses in the store: kept for people who decide elsewhere, followed until they come to something. Asks nobody."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from codemode.data.narrowing import is_object
from codemode.errors import Resumable
from codemode.stores.errors import RecordExpired, StoreError, StoreUnavailable, UnknownRequest
from codemode.stores.interrupt_store import InterruptStore
from codemode.stores.records import Record, StoredRequest
from codemode.surfaces.modules.response import RunResponse
from codemode.trace.visible_text import one_line

from ..gateway.principals import Principal
from .known_tools import known_tools
from .questions import Question
from .responses import ended_otherwise

_MAX_LABEL_CHARACTERS = 200
_LOOK_SECONDS = 0.5
_LIVE = ("pending", "resuming", "resting")
_MOST_OF_ONE_PROGRAM = 20


class Keeping:
    """The pauses of one principal in the store, of which ``most`` may wait. ``store`` is opened when first needed.

    ``session`` names theirs to those who answer for it elsewhere.
    """

    def __init__(
        self,
        store: Callable[[], InterruptStore],
        principal: Principal,
        app: str,
        tool: Any,
        session: str,
        most: int,
    ) -> None:
        self._store = store
        self._tenant = principal.id
        self._app = app
        self._tool = tool
        self._session = session
        self._most = most
        self._room = 0  # for how many more pauses there certainly is room; the store is asked again when it is used up

    @property
    def store(self) -> InterruptStore:
        """The store itself."""
        return self._store()

    async def keep(
        self,
        interrupt: Resumable,
        questions: Iterable[Question],
        code: str,
        *,
        has_session: bool = True,
        is_new: bool = False,
    ) -> str:
        """Keep a pause for people; return the id of its record. Raises `StoreUnavailable`, `StoreError`.

        ``has_session``: an answer can hold for the session of whoever has sent it. ``is_new``: nobody was asked about
        it yet. Then that of the same program which waits already is as good.
        """
        asked = list(questions)
        self._room -= 1
        labels = {
            "principal": _label([self._tenant]),
            "server": _label(one.server for one in asked),
            "tool": _label(one.tool for one in asked),
            "program": self._tool.program(code),
        }
        return await self.store.put(
            interrupt,
            tool=self._tool,
            tenant=self._tenant,
            app=self._app,
            labels=labels,
            source=code,
            payload=known_tools(asked, self._session if has_session else None),
            alone="program" if is_new else None,
        )

    async def record(self, record_id: Any) -> Record | None:
        """Return a record of this principal; None where there is none."""
        if not isinstance(record_id, str) or not record_id.isalnum() or not record_id.isascii():
            return None
        try:
            found = await self.store.record(record_id, tenant=self._tenant)
        except UnknownRequest:
            return None
        return found if found.app == self._app else None

    async def waits(self, code: str) -> Record | None:
        """Return the run of the same program that has not ended, the newest; None where there is none."""
        labels = {"program": self._tool.program(code)}
        # Before every run: a look on the loop spares the way through a thread, where the store has such a look.
        look: Any = getattr(self.store, "has_surely_none_open", None)
        if look is not None and look(tenant=self._tenant, app=self._app, labels=labels):
            return None
        page = await self.store.list(tenant=self._tenant, app=self._app, labels=labels, limit=_MOST_OF_ONE_PROGRAM)
        return next((one for one in page.records if one.state in _LIVE), None)

    async def is_full(self) -> bool:
        """Tell whether as many of their programs wait in the store as may.

        Asked before a program runs: what runs already is kept all the same, so that nothing it has done is lost.
        """
        if self._room <= 0:
            count: Any = getattr(self.store, "count_open", None)  # a store of the host's own may lack it
            if count is None:
                return False
            found = await count(tenant=self._tenant, app=self._app, most=self._most)
            # Other gateways keep pauses of theirs too: half of the room, so that this one looks again in time.
            self._room = 0 if found >= self._most else (self._most - found + 1) // 2
        return self._room <= 0

    async def decide(self, resolutions: Mapping[str, Any]) -> None:
        """Record what a person has answered to their client. Raises `StoreError`."""
        await self.store.decide(resolutions, actor=self._tenant, tenant=self._tenant)

    async def ended(self, record: Record) -> RunResponse | None:
        """Return what a record has come to; None while it has not ended."""
        if record.state in _LIVE:
            return None
        try:
            value = await self.store.outcome(record.id, tenant=self._tenant, timeout_ms=0)
        except TimeoutError:
            return None
        except StoreUnavailable:
            raise
        except RecordExpired:
            return ended_otherwise("nobody has decided in time")
        except StoreError as error:
            return ended_otherwise(error.message)
        except Exception as error:  # noqa: BLE001 - whatever the run ended with is its end
            return ended_otherwise(getattr(error, "message", type(error).__name__))
        return RunResponse(value) if is_object(value) else ended_otherwise("its outcome cannot be read")

    async def followed(self, record_id: str, wait_ms: float, version: int | None = None) -> Record | RunResponse | None:
        """Wait for the end of a record and return its response, or the record as it is once the time is over.

        With ``version`` it waits no longer than for a later pause that asks. None: there is no such record.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_ms / 1000
        with self.store.watch() as watch:
            while True:
                record = await self.record(record_id)
                if record is None:
                    return None
                response = await self.ended(record)
                if response is not None:
                    return response
                asks_anew = version is not None and record.version > version and waiting_in(record)
                left = until - loop.time()
                if asks_anew or left <= 0:
                    return record
                await watch.wait(min(left, _LOOK_SECONDS))


def waiting_in(record: Record) -> list[StoredRequest]:
    """Return the requests of a record about which a person may decide."""
    return [one for one in record.requests if one.state == "waiting"]


def _label(texts: Iterable[str]) -> str:
    return one_line(", ".join(dict.fromkeys(texts)), _MAX_LABEL_CHARACTERS)
