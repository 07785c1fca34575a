"""Who may decide what: the user's own right, and a function of the host. Knows no pages."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeAlias

from starlette.requests import Request

from codemode import Record

from .auth import User

_log = logging.getLogger("codemode.console")
Policy: TypeAlias = Callable[[User, Record, Request], bool | str | Awaitable[bool | str]]


async def refusal(policy: Policy | None, user: User, record: Record, request: Request) -> str | None:
    """Return why a user may not decide about a record; None when they may.

    ``policy`` returns True for yes, False or a text, the reason, for no. What raises or returns anything else says no.
    """
    if not user.may_decide:
        return "you may look, and decide nothing"
    if policy is None:
        return None
    try:
        answer: Any = policy(user, record, request)
        if inspect.isawaitable(answer):
            answer = await answer
    except Exception:  # noqa: BLE001 - a function of the host's that fails allows nothing
        _log.exception("the policy failed: the decision is refused")
        return "the policy could not say whether you may"
    if answer is True:
        return None
    return answer if isinstance(answer, str) and answer else "the policy says no"
