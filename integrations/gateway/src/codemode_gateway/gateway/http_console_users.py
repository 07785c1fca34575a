"""Users of an authorization server at the console: they show the token that their client would.

It is exchanged for the console's session, whose signed cookie says whose it is and until when, so that every host
with the same keys knows it. The token itself is kept nowhere.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

from .http_answers import Refused
from .http_door import NO_MARK, Door, principal_id
from .http_settings import VERIFIED

_START = "verified"
_UNENDING_SECONDS = 3600.0


def console_users(package: Any, door: Callable[[], Door], clock: Callable[[], float] = time.time) -> Any:
    """Return the console's class of users by their tokens, which knows those whom the verifier of a door lets in too.

    Their session ends with their token, or after an hour where that says nothing of its end, and whenever tokens are
    verified in another way.
    """

    class Users(package.TokenAuth):
        async def find(self, token: str, request: Any) -> Any:
            base: Any = super()
            known: Any = await base.find(token, request)
            if known is not None or not token:
                return known
            try:
                access = await door().verified(token, request.scope, request.receive)
            except Refused as refused:
                if refused.status < 500:
                    return None
                words = "Try again in a moment."
                raise import_module("codemode_console.errors").Problem(503, refused.message, words) from None
            until = clock() + _UNENDING_SECONDS if access.expires_at is None else access.expires_at
            key = f"{_START} {door().mark} {math.floor(until)} {principal_id(access)}"
            user = self.user_named(key)
            return None if user is None else (user, key)

        @property
        def has_one_user(self) -> bool:
            base: Any = super()
            return door().mark == NO_MARK and base.has_one_user

        def user_named(self, key: str) -> Any:
            base: Any = super()
            start, _, rest = key.partition(" ")
            if start != _START:
                return base.user_named(key)
            mark, until, name = [*rest.split(" ", 2), "", "", ""][:3]
            is_known = mark == door().mark and until.isdigit() and clock() < int(until) and name.startswith(VERIFIED)
            return package.User(name, [name]) if is_known else None

    return Users
