"""What calls of the model have come to, for frameworks that repeat a step: the same call gets the same result."""

from __future__ import annotations

import asyncio
import copy
import hashlib
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, TypeAlias

from ...data.json_shape import weigh
from ...data.json_values import encode_json
from ...data.narrowing import is_object
from ...execution.call_context import CallContext
from ...host.clock import passed_seconds
from ...host.forks import begin_anew_in_forks, forkable_lock, leave_to_the_parent
from ...host.threads import LARGE_CHARACTERS, run_check
from .results import RUNTIME_UNAVAILABLE

MAX_RECORDED = 256
_MAX_INPUT_BYTES = 4 << 20
_Key: TypeAlias = tuple[str, str, str]
_Call: TypeAlias = tuple[str, Future[Any], float]  # digest of the input, result, when it was made
_GONE = object()


class Recorded:
    """Results by conversation, tool and id of the call; without both ids nothing is recorded, for models repeat ids.

    A result is kept for ``seconds``, and at most 256 of them. One that says that nothing ran is not.
    """

    def __init__(self, seconds: int) -> None:
        self._kept_seconds = seconds
        self._calls: OrderedDict[_Key, _Call] = OrderedDict()
        self._lock = forkable_lock()
        begin_anew_in_forks(self)

    def after_fork(self) -> None:
        """In a forked child: what is under way is its parent's alone."""
        leave_to_the_parent(self._calls)
        self._calls = OrderedDict()

    async def once(
        self,
        tool: str,
        call: CallContext,
        given: Any,
        work: Callable[[], Awaitable[Any]],
        owe: Callable[[Any], None] | None = None,
    ) -> Any:
        """Return what this call has come to, or do it. ``owe`` takes what comes when its caller has been cancelled."""
        if not call.conversation_id or not call.tool_call_id or (digest := _digest(given)) is None:
            return await work()
        return await self._shared((call.conversation_id, tool, call.tool_call_id), digest, work, owe)

    async def once_for(self, scope: str, told: Callable[[], Any], work: Callable[[], Awaitable[Any]]) -> Any:
        """Return what work on exactly this, a JSON value, has come to in this scope, or do it."""
        try:
            digest = _digest(told())
        except Exception:  # noqa: BLE001 - what is none is refused by whoever reads it
            digest = None
        if digest is None:
            return await work()
        return await self._shared((scope, digest, ""), "", work)

    async def _shared(
        self, key: _Key, digest: str, work: Callable[[], Awaitable[Any]], owe: Callable[[Any], None] | None = None
    ) -> Any:
        while True:
            known, is_mine = self._begun(key, digest)
            if is_mine:
                return await self._done(key, known, work, owe)
            result = await asyncio.shield(asyncio.wrap_future(known[1]))
            if result is not _GONE:
                return await _copied(result)

    def _begun(self, key: _Key, digest: str) -> tuple[_Call, bool]:
        """Return the same call, and whether it is this one: somebody else may have made it before."""
        with self._lock:
            self._forget()
            found = self._calls.get(key)
            if found is not None and found[0] == digest:
                return found, False
            mine = self._calls[key] = (digest, Future(), passed_seconds())
            self._calls.move_to_end(key)
            return mine, True

    async def _done(
        self, key: _Key, mine: _Call, work: Callable[[], Awaitable[Any]], owe: Callable[[Any], None] | None
    ) -> Any:
        try:
            result = await work()
        except BaseException:
            self._drop(key, mine)
            mine[1].set_result(_GONE)
            raise
        if is_object(result) and result.get("code") == RUNTIME_UNAVAILABLE:
            self._drop(key, mine)
        kept = result
        try:
            kept = await _copied(result)
        except asyncio.CancelledError:
            if owe is not None:
                self._drop(key, mine)
                owe(result)
                kept = _GONE
            raise
        finally:
            mine[1].set_result(kept)  # nobody else has what its caller was cancelled for
        return result

    def _drop(self, key: _Key, mine: _Call) -> None:
        with self._lock:
            if self._calls.get(key) is mine:
                del self._calls[key]

    def _forget(self) -> None:
        before = passed_seconds() - self._kept_seconds
        for key, (_, future, at) in [*self._calls.items()]:
            if at >= before and len(self._calls) < MAX_RECORDED:
                break
            if future.done():  # one that takes long keeps nobody's result but its own
                del self._calls[key]


async def _copied(result: Any) -> Any:
    """Return a result that its caller may change: copied in a thread where that takes long."""
    if not is_object(result):
        return result
    return await run_check(weigh(result, LARGE_CHARACTERS), partial(copy.deepcopy, result))


def _digest(given: Any) -> str | None:
    """Return what an input is known by, however large it is; None for what is no JSON."""
    try:
        text = encode_json(given, max_bytes=_MAX_INPUT_BYTES, what="the input")
    except Exception:  # noqa: BLE001 - what is no JSON is refused by whoever reads it
        return None
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
