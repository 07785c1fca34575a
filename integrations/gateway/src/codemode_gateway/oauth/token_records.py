"""What is kept of one sign-in: its tokens, the client that they were given to, and where they are renewed. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

from codemode.data.narrowing import is_object

# What may stand in a header as a token: RFC 6750 allows fewer characters, real servers use all that are visible.
_TOKEN = re.compile(r"[\x21-\x7e]{1,16384}")
_LONGEST_LIFE_S = 10 * 365 * 86_400
_MOST_CHARACTERS = 1 << 18
_EARLY_S = 30.0


@dataclass(frozen=True, kw_only=True)
class TokenRecord:
    """The tokens of a principal at a server. Times are seconds since 1970; ``expires_at`` None is not known.

    ``client``, ``metadata`` and ``resource`` are what the SDK knows of the client, its authorization server and the
    resource, as plain JSON.
    """

    server: str
    principal: str
    saved_at: float
    access_token: str | None = None
    refresh_token: str | None = None
    scope: str | None = None
    expires_at: float | None = None
    client: dict[str, Any] | None = None
    metadata: dict[str, Any] | None = None
    resource: dict[str, Any] | None = None

    def __repr__(self) -> str:
        return f"<TokenRecord of {self.server!r}>"

    def is_due(self, now: float) -> bool:
        """Whether the access token is missing, has expired, or is about to."""
        if self.access_token is None:
            return True
        if self.expires_at is None:
            return False
        return now >= self.expires_at - min(_EARLY_S, (self.expires_at - self.saved_at) / 10)

    def without_tokens(self) -> TokenRecord:
        """Return the record of a client whose tokens nobody takes any more."""
        return replace(self, access_token=None, refresh_token=None, expires_at=None)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The texts of it that nobody may read."""
        client_secret = (self.client or {}).get("client_secret")
        found = (self.access_token, self.refresh_token, client_secret)
        return tuple(one for one in found if isinstance(one, str))

    def to_json(self) -> str:
        """Return it as text."""
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> TokenRecord | None:
        """Read it back; None for what is no record."""
        if len(text) > _MOST_CHARACTERS:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if not is_object(value) or value.pop("version", None) != 1 or value.keys() != {one.name for one in fields(cls)}:
            return None
        is_right = all(_FITS[one.name](value[one.name]) for one in fields(cls))
        return cls(**value) if is_right else None


def is_token(value: object) -> bool:
    """Whether this may be sent as a token: visible characters alone, for a line break would begin another header."""
    return isinstance(value, str) and _TOKEN.fullmatch(value) is not None


def expiry(now: float, expires_in: object) -> float | None:
    """Return when a token ends that was given ``now``, whatever the server says; None where it says nothing."""
    try:
        seconds = float(expires_in)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return None
    return now + max(0.0, min(seconds, _LONGEST_LIFE_S)) if seconds == seconds else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _or_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_FITS: dict[str, Callable[[Any], bool]] = {
    "server": _is_text,
    "principal": _is_text,
    "saved_at": _is_time,
    "access_token": _or_none(is_token),
    "refresh_token": _or_none(is_token),
    "scope": _or_none(_is_text),
    "expires_at": _or_none(_is_time),
    **dict.fromkeys(("client", "metadata", "resource"), _or_none(is_object)),
}
