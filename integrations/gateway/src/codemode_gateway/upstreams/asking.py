"""What a server asks of its client during a call, handed to whoever answers; without anybody it is declined."""

from __future__ import annotations

from collections.abc import Generator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import mcp_types as types
from mcp.client.session import ClientRequestContext, ClientSession

from ..config.secrets import Secrets
from ..config.values import ServerConfig
from .calling import client_info
from .clock import Clock
from .connection import Requests
from .hooks import UpstreamHooks

MAX_ASKED_AT_ONCE = 16

ASKED_IN: ContextVar[Any] = ContextVar("codemode_mcp_asked_in", default=None)
"""The `ToolCallContext` of the call that is being answered for, where that is known."""


class Asking:
    """The callbacks of a session. While somebody is asked, the time of the calls in flight stands still."""

    def __init__(self, config: ServerConfig, hooks: UpstreamHooks, secrets: Secrets) -> None:
        self._config = config
        self._hooks = hooks
        self._secrets = secrets
        self._under_way = 0
        self._calls: dict[Clock, Any] = {}

    @property
    def clocks(self) -> list[Clock]:
        """The clocks of the calls in flight."""
        return [*self._calls]

    @property
    def capabilities(self) -> dict[str, Any]:
        """What a server is told that can be asked, as JSON."""
        if self._hooks.asked is None:
            return {}
        return {"elicitation": {"form": {}, "url": {}}, "sampling": {}, "roots": {"listChanged": True}}

    def session(self, requests: Requests, heard: Any) -> ClientSession:
        """Return a session whose questions come here, and whose notifications go to ``heard``."""
        asks = self._hooks.asked is not None
        return ClientSession(
            dispatcher=requests,
            client_info=client_info(),
            message_handler=heard,
            elicitation_callback=self._elicit if asks else None,
            sampling_callback=self._sample if asks else None,
            list_roots_callback=self._roots if asks else None,
        )

    @contextmanager
    def during(self, context: Any, seconds: float) -> Generator[Clock]:
        """Know that a call is in flight; give its clock."""
        clock = Clock(seconds)
        self._calls[clock] = context
        try:
            yield clock
        finally:
            del self._calls[clock]

    async def _elicit(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - the name is the SDK's
        params: types.ElicitRequestParams,
    ) -> types.ElicitResult | types.ErrorData:
        return await self._ask("elicitation/create", params, types.ElicitResult)

    async def _sample(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - likewise
        params: types.CreateMessageRequestParams,
    ) -> Any:
        return await self._ask("sampling/createMessage", params, types.CreateMessageResult)

    async def _roots(
        self,
        context: ClientRequestContext,  # noqa: ARG002 - likewise
    ) -> types.ListRootsResult | types.ErrorData:
        return await self._ask("roots/list", None, types.ListRootsResult)

    async def _ask(self, method: str, params: Any, kind: Any) -> Any:
        if self._hooks.asked is None or self._under_way >= MAX_ASKED_AT_ONCE:
            return types.ErrorData(code=types.INVALID_REQUEST, message=f"{method} cannot be answered now")
        plain: Mapping[str, Any] = (
            {} if params is None else params.model_dump(mode="json", by_alias=True, exclude_none=True)
        )
        context = self._context()
        self._under_way += 1
        stopped = self.clocks
        for clock in stopped:
            clock.stop()
        try:
            # What is asked reaches the client's person, and what is sampled its model.
            plain = await self._secrets.off_loop(plain)
            answer = await self._hooks.asked(self._config, method, plain, context)
        finally:
            self._under_way -= 1
            for clock in stopped:
                clock.go_on()
        if isinstance(answer, Mapping):
            return kind.model_validate(answer, by_name=False)
        return answer

    def _context(self) -> Any:
        """Return the context of the call in which a question came, where there is but one it can be of."""
        known = ASKED_IN.get()
        if known is not None:
            return known
        contexts = [*self._calls.values()]
        outer = {getattr(one, "outer_tool_call_id", None) for one in contexts}
        return contexts[0] if len(outer) == 1 else None
