"""How a receiver knows a webhook: HMAC-SHA256 over the time and the body. Pure but for the clock that it is given."""

from __future__ import annotations

import hashlib
import hmac
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, cast

from codemode.plugins import WrongTypeError

ID_HEADER = "Codemode-Notice-Id"
TIME_HEADER = "Codemode-Time"
SIGNATURE_HEADER = "Codemode-Signature"
_VERSION = "v1="
_MAX_DIGITS = 15
Key: TypeAlias = str | bytes


def key_bytes(secret: Any) -> bytes:
    """Return a secret as bytes. Raises `ValueError` for what is none, and never tells it."""
    if not isinstance(secret, str | bytes):
        raise WrongTypeError(f"secret must be a text or bytes, got {type(secret).__name__}")
    if not secret:
        raise ValueError("secret must not be empty: whoever knows the URL could send notices")
    return secret.encode("utf-8", "surrogatepass") if isinstance(secret, str) else secret


def signed_headers(key: bytes, notice_id: str, now: float, body: bytes) -> dict[str, str]:
    """Return the headers of a webhook that is sent now, in Unix time."""
    said = str(int(now))
    return {ID_HEADER: notice_id, TIME_HEADER: said, SIGNATURE_HEADER: _signature(key, said, body)}


def verify_signature(
    secret: Key | Sequence[Key],
    headers: Mapping[str, str],
    body: bytes,
    *,
    tolerance_seconds: float = 300,
    clock: Callable[[], float] = time.time,
) -> bool:
    """Say whether a webhook is from the console: signed with the secret, or one of several, and not too long ago.

    ``headers`` are those that came, in any case, ``body`` the bytes that came. Raises `ValueError` for what can be no
    secret, tolerance or body.
    """
    secrets = [secret] if isinstance(secret, str | bytes) else list(secret)
    keys = [key_bytes(one) for one in secrets]
    if not keys or tolerance_seconds <= 0:
        raise ValueError("verify_signature needs a secret, and a tolerance_seconds above 0")
    if not isinstance(cast("object", body), bytes):
        raise WrongTypeError(f"body must be the bytes that came, got {type(body).__name__}")
    came = {name.lower(): value for name, value in headers.items()}
    said, signature = came.get(TIME_HEADER.lower(), ""), came.get(SIGNATURE_HEADER.lower(), "")
    if not (said.isascii() and said.isdigit() and len(said) <= _MAX_DIGITS):
        return False
    given = signature.encode("utf-8", "surrogatepass")
    # All of them: how long it takes tells nobody which one it was.
    matches = [hmac.compare_digest(_signature(key, said, body).encode(), given) for key in keys]
    return any(matches) and abs(clock() - int(said)) <= tolerance_seconds


def _signature(key: bytes, said: str, body: bytes) -> str:
    return _VERSION + hmac.new(key, said.encode() + b"." + body, hashlib.sha256).hexdigest()
