"""Which servers a program runs at, beyond their names: gateways that share a store may give one name to two of them.

What was asked about a call of one is no answer for another: a run that waits goes on only where its servers are.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...continuations.keys import process_keys
from ...continuations.signing import KeyRing
from ...data.json_values import canonical_json
from ...errors import CodeModeProtocolError
from ...options.parts import ContinuationOptions
from ..config.values import ServerConfig
from .remembered import server_text

_DIGITS = 32


class Homes:
    """The servers of one gateway, each by a digest of what it is, with the oldest key: some of that is secret."""

    def __init__(self, servers: Sequence[ServerConfig], options: ContinuationOptions) -> None:
        keys = options.keys or process_keys()
        secret = KeyRing(keys[:1], purpose="home").secret()
        self._of = {one.name: _digest(secret, one) for one in servers}

    def of_program(self, code: str, asked: Iterable[str] = ()) -> dict[str, str]:
        """Return the digests of those servers that a program names, and of those about whose calls is ``asked``."""
        names = set(asked)
        return {name: digest for name, digest in sorted(self._of.items()) if name in names or name in code}

    def program(self, code: str) -> str:
        """Return what tells programs apart: by their text, and by the servers that they name."""
        said = [code, self.of_program(code)]
        return hashlib.sha256(canonical_json(said).encode("utf-8", "surrogatepass")).hexdigest()

    def require(self, kept: Mapping[str, Any]) -> None:
        """Raise `CodeModeProtocolError` where a server that a run has begun with is another one here, or none."""
        other = [name for name, digest in kept.items() if self._of.get(name) != digest]
        if other:
            raise CodeModeProtocolError(
                f"the server {other[0][:100]!r} of this gateway is not the one that the run has begun with",
                details={"origin": "continuation", "not_resumable": True},
            )


def _digest(secret: bytes, server: ServerConfig) -> str:
    return hmac.new(secret, server_text(server).encode(), hashlib.sha256).hexdigest()[:_DIGITS]
