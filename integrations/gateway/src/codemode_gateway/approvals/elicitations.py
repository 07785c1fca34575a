"""Questions as elicitations of the protocol, sent in a session or carried by a result. Reads no answers."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from typing import Any

import mcp_types as types
from pydantic import ValidationError

from codemode.data.narrowing import string_or_empty
from codemode.host.cancellation import alongside, is_ended_from_outside

from ..gateway.callers import left_of
from ..page_urls import is_page, page_host
from ..passthrough.worded import told_by
from .legs import Leg
from .questions import Question, form_of, message_of

DECLINED = types.ElicitResult(action="decline")
_PAGE_SECONDS = 3600.0
_NOBODY = frozenset({types.CONNECTION_CLOSED, types.METHOD_NOT_FOUND, types.INVALID_REQUEST})
_log = logging.getLogger("codemode.mcp")


def can_be_shown(question: Question, *, url: bool) -> bool:
    """Tell whether anybody can be asked this: a page to sign in on needs a client that opens pages."""
    if question.kind == "sign-in":
        return url and is_page(question.payload.get("url"))
    return question.kind in ("approval", "unknown")


def elicitation(question: Question, leg: Leg) -> types.ElicitRequest:
    """Return what asks one question."""
    if question.kind != "sign-in":
        schema = form_of(question, has_session=leg.facts.has_session)
        form = types.ElicitRequestFormParams(message=message_of(question, leg.code), requested_schema=schema)
        return types.ElicitRequest(params=form)
    url = string_or_empty(question.payload.get("url"))
    if question.payload.get("askedByServer"):
        # A page of the server's choice: the gateway does not vouch for it, and no client may accept for a person.
        message = told_by(question.server, f"wants this page to be opened before it takes the call: {page_host(url)}")
    else:
        message = f"Sign in to {question.server} at {page_host(url)}, and then say that it is done."
    return types.ElicitRequest(
        params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=question.interrupt_id)
    )


def to_page(url: str, record_id: str) -> types.ElicitRequest:
    """Return what shows a person the page on which to decide about a run."""
    message = "A program waits for somebody to decide about its calls, on this page."
    return types.ElicitRequest(params=types.ElicitRequestURLParams(message=message, url=url, elicitation_id=record_id))


@asynccontextmanager
async def shown_in_session(leg: Leg, url: str | None, record_id: str) -> AsyncGenerator[None]:
    """Let the client show the page while the block runs, where it can. Whatever it answers decides nothing."""
    if not url or not leg.facts.url or not leg.facts.has_channel or leg.facts.is_modern:
        yield
        return
    async with alongside(_sent(leg, to_page(url, record_id), _PAGE_SECONDS)):
        yield


async def asked_in_session(leg: Leg, questions: Sequence[Question], seconds: float) -> dict[str, Any]:
    """Ask all of it at once, and return the responses by request id, without those that nobody could be asked.

    A client that takes longer, or answers what is no answer, has declined; one that has left could not be asked.
    """
    told = await asyncio.gather(*(_one(leg, one, seconds) for one in questions))
    by_id = dict(zip((one.interrupt_id for one in questions), told, strict=True))
    return {key: one for key, one in by_id.items() if one is not None}


async def _one(leg: Leg, question: Question, seconds: float) -> types.ElicitResult | None:
    asked = asyncio.ensure_future(_sent(leg, elicitation(question, leg), seconds))
    left = left_of(leg.ctx)
    if left is None:
        return await asked
    try:
        async with alongside(_ended_by(left, asked)):
            return await asked
    except asyncio.CancelledError:
        if is_ended_from_outside(asyncio.current_task()):
            raise
        return None


async def _ended_by(left: asyncio.Event, asked: asyncio.Future[Any]) -> None:
    await left.wait()
    asked.cancel()


async def _sent(leg: Leg, request: types.ElicitRequest, seconds: float) -> types.ElicitResult | None:
    from mcp.shared.exceptions import MCPError
    from mcp.shared.message import ServerMessageMetadata

    try:
        return await leg.ctx.session.send_request(
            request,
            types.ElicitResult,
            request_read_timeout_seconds=seconds,
            metadata=ServerMessageMetadata(related_request_id=leg.ctx.request_id),
        )
    except MCPError as error:
        if error.code in _NOBODY:
            return None
        _log.info("a question to the client failed: %s", error.code)
        return DECLINED
    except ValidationError:
        return DECLINED
