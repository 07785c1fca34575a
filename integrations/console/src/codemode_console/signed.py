"""Texts that the console signs, each for one purpose. Knows no cookies and no forms."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, cast

from itsdangerous import BadSignature, TimestampSigner, URLSafeTimedSerializer

Clock: TypeAlias = Callable[[], float]
"""Unix time in seconds."""
Secret: TypeAlias = str | bytes | Sequence[str | bytes]
_LEAST_SECRET_BYTES = 16
_MAX_CLOCK_SKEW_SECONDS = 60  # of two consoles before one database, as continuations have it


class Signed:
    """Signs JSON values for one purpose, and reads what it has signed. ``secret``: signs with the last of several."""

    def __init__(self, secret: Sequence[bytes], purpose: str, clock: Clock) -> None:
        self._clock = clock
        self._serializer: Any = URLSafeTimedSerializer(
            list(secret),
            salt=f"codemode-console/{purpose}",
            signer=_signer(clock),
            signer_kwargs={"digest_method": hashlib.sha256, "key_derivation": "hmac"},
        )

    def text(self, value: Any) -> str:
        """Return a value with its time, signed."""
        return cast("str", self._serializer.dumps(value))

    def value(self, text: str, *, max_age_seconds: int) -> Any:
        """Return what was signed; None for what was not, was for another purpose, or is too old."""
        try:
            value, signed_at = self._serializer.loads(text, return_timestamp=True)
        except BadSignature:
            return None
        # Not by the library's own check: to that what a clock a second ahead has signed is no longer good.
        age_seconds = int(self._clock()) - signed_at.timestamp()
        return value if -_MAX_CLOCK_SKEW_SECONDS <= age_seconds <= max_age_seconds else None


def require_secret(secret: Secret | None) -> list[bytes]:
    """Return keys to sign with, random ones of this process where none is given. Raises `ValueError`."""
    if secret is None:
        return [secrets.token_bytes(32)]
    several = [secret] if isinstance(secret, str | bytes) else list(secret)
    keys = [one.encode() if isinstance(one, str) else one for one in several]
    if not keys or any(len(key) < _LEAST_SECRET_BYTES for key in keys):
        raise ValueError(f"secret must have at least {_LEAST_SECRET_BYTES} bytes")
    return keys


def _signer(clock: Clock) -> type[TimestampSigner]:
    class ByClock(TimestampSigner):
        def get_timestamp(self) -> int:
            return int(clock())

    return ByClock
