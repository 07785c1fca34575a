"""Requests of clients of 2026-07-28 that go on while their client is asked: such a client is asked by a result only.

The question of a server is the result of the request in which it came; the client's next request brings the answer.
What runs meanwhile stays in this process, for a server holds a call open while it asks.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import mcp_types as types
from mcp.shared.exceptions import MCPError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from ..gateway.callers import in_place
from ..upstreams.origins import CallOrigin
from .worded import Declined

STATE = "codemode-held:"
"""What a ``request_state`` of ours begins with."""

ANSWER_SECONDS = 600.0
MAX_HELD = 256
MAX_ROUNDS = 6
_GONE = "what this request waited for is no longer here: send the request again without requestState"

ResultT = TypeVar("ResultT")
_answers_of: dict[type[Any], tuple[type[Any], ...]] = {
    types.ElicitRequest: (types.ElicitResult,),
    types.CreateMessageRequest: (types.CreateMessageResult, types.CreateMessageResultWithTools),
    types.ListRootsRequest: (types.ListRootsResult,),
}


class Held:
    """One request that goes on in rounds. ``id`` is that of the round which the client has not answered yet."""

    def __init__(self, task: asyncio.Task[Any]) -> None:
        self.task = task
        self.id = ""
        self.rounds = 0
        self.expiry: asyncio.TimerHandle | None = None
        self.has_question = asyncio.Event()
        self._open: dict[str, tuple[types.InputRequest, asyncio.Future[types.InputResponse]]] = {}
        self._count = 0

    async def ask(self, request: types.InputRequest) -> types.InputResponse:
        """Ask the client in the next round. Raises `Declined` when there is none, or no answer in time."""
        if self.rounds >= MAX_ROUNDS:
            raise Declined("the client has been asked too often in this call")
        self._count += 1
        key = f"question-{self._count}"
        answer: asyncio.Future[types.InputResponse] = asyncio.get_running_loop().create_future()
        self._open[key] = request, answer
        self.has_question.set()
        try:
            return await answer
        finally:
            self._open.pop(key, None)
            if not self._open:
                self.has_question.clear()

    def questions(self) -> types.InputRequests:
        """Return what is to be answered."""
        return {key: request for key, (request, answer) in self._open.items() if not answer.done()}

    def take(self, responses: types.InputResponses | None) -> None:
        """Let those go on who asked what is answered here. Unanswered questions are asked again."""
        for key, response in (responses or {}).items():
            request, answer = self._open.get(key, (None, None))
            if answer is None or answer.done():
                continue
            if isinstance(response, _answers_of[type(request)]):
                answer.set_result(response)
            else:
                answer.set_exception(Declined("the client's answer is not valid"))
            del self._open[key]
        if not self._open:
            self.has_question.clear()

    def give_up(self) -> None:
        """Decline all that is open: nobody answers any more."""
        self.rounds = MAX_ROUNDS
        for _, answer in self._open.values():
            if not answer.done():
                answer.set_exception(Declined("the client did not answer in time"))


HELD: dict[CallOrigin, Held] = {}
"""The request of each origin that is served in rounds: servers that several users share ask by its origin alone.

Each is taken out when its task ends: the task's context knows its origin, so that neither would ever go by itself.
"""


class HeldRequests:
    """The requests of one principal that go on in rounds."""

    def __init__(self) -> None:
        self._waiting: dict[str, Held] = {}
        self._running: set[asyncio.Task[Any]] = set()

    async def answered(
        self, origin: CallOrigin, params: types.InputResponseRequestParams, run: Callable[[], Awaitable[ResultT]]
    ) -> ResultT | types.InputRequiredResult:
        """Return what ``run`` gives, or a question that a server asks in it, as an ``InputRequiredResult``.

        The client's next request with the answer goes on with the same run. Raises `MCPError` for one that is gone.
        """
        state = params.request_state
        if state is not None and state.startswith(STATE):
            held = self._waiting.pop(state[len(STATE) :], None)
            if held is None:
                raise MCPError(types.INVALID_PARAMS, _GONE)
            held.take(params.input_responses)
        elif not _is_asked_in_rounds(origin.session) or len(self._running) >= MAX_HELD:
            return await run()
        else:
            held = Held(asyncio.ensure_future(_counted(run)))
            self._running.add(held.task)
            held.task.add_done_callback(partial(self._ended, origin))
            HELD[origin] = held
        return await self._round(held)

    async def aclose(self) -> None:
        """End all that goes on."""
        running = [*self._running]
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)

    async def _round(self, held: Held) -> Any:
        if held.expiry is not None:
            held.expiry.cancel()
        question = asyncio.ensure_future(held.has_question.wait())
        try:
            await asyncio.wait({held.task, question}, return_when=asyncio.FIRST_COMPLETED)
        except asyncio.CancelledError:
            held.task.cancel()
            raise
        finally:
            question.cancel()
        if held.task.done():
            return held.task.result()
        held.rounds += 1
        held.id = secrets.token_urlsafe(24)
        self._waiting[held.id] = held
        held.expiry = asyncio.get_running_loop().call_later(ANSWER_SECONDS, self._expire, held)
        return types.InputRequiredResult(input_requests=held.questions(), request_state=STATE + held.id)

    def _expire(self, held: Held) -> None:
        self._waiting.pop(held.id, None)
        held.give_up()

    def _ended(self, origin: CallOrigin, task: asyncio.Task[Any]) -> None:
        HELD.pop(origin, None)
        self._running.discard(task)
        for held in [one for one in self._waiting.values() if one.task is task]:
            if held.expiry is not None:
                held.expiry.cancel()
            del self._waiting[held.id]
        if not task.cancelled():
            task.exception()  # there may be nobody to hear how it ended


async def _counted(run: Callable[[], Awaitable[ResultT]]) -> ResultT:
    """Run what goes on behind the answer that asks the client: its request counts until then."""
    with in_place():
        return await run()


def _is_asked_in_rounds(session: Any) -> bool:
    able = getattr(session, "client_capabilities", None)
    if able is None or session.can_send_request or session.protocol_version not in MODERN_PROTOCOL_VERSIONS:
        return False
    return any(one is not None for one in (able.elicitation, able.sampling, able.roots))
