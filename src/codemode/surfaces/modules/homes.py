"""Where servers are, beyond their names: two hosts that share a journal or a store may give one name to two servers.

What was asked about a call of one is no answer for another, and what one has given is nothing that another has done: a
program goes on only where the servers are that it has called.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ...cached_property import cached_property
from ...continuations.keys import process_keys
from ...errors import CodeModeProtocolError
from ...options.parts import ContinuationOptions
from .servers import Source

_DIGITS = 32
_MAX_NAME_CHARACTERS = 100


class Homes:
    """The servers of one tool by their paths, each as a digest of its ``home`` under a key: some is secret.

    What a continuation keeps is made with the key that signs it, and known by any: both hold for as long as each other.
    Servers that have none are not in it: what they are is for their host to know.
    """

    def __init__(self, sources: Sequence[Source], options: ContinuationOptions) -> None:
        self._sources = sources
        self._options = options

    def of(self, paths: Iterable[str]) -> dict[str, str]:
        """Return the digests of these servers."""
        wanted = set(paths)
        return {path: digests[-1] for path, digests in self._digests.items() if path in wanted}

    def named_in(self, code: str) -> dict[str, str]:
        """Return the digests of the servers whose paths stand in a program, to find it by: under the first key."""
        return {path: digests[0] for path, digests in self._digests.items() if path in code}

    def all(self) -> dict[str, str]:
        """Return the digests of all."""
        return {path: digests[-1] for path, digests in self._digests.items()}

    def require(self, kept: Mapping[str, Any], paths: Iterable[str]) -> None:
        """Raise `CodeModeProtocolError` where one of these servers was another one, by what was kept, or is gone."""
        known = self._digests
        other = next((path for path in sorted(paths) if kept.get(path) not in known.get(path, (None,))), None)
        if other is not None:
            raise CodeModeProtocolError(
                f"the server {other[:_MAX_NAME_CHARACTERS]!r} of this host is not the one that the program has begun"
                " with: go on where its configuration is the same",
                details={"not_resumable": True},
            )

    @cached_property
    def _digests(self) -> dict[str, tuple[str, ...]]:
        """Of each server under each key, in the order of the keys."""
        homes = {one.path: one.home for one in self._sources}
        if not any(homes.values()):
            return {}
        from ...continuations.signing import KeyRing

        keys = self._options.keys or process_keys()
        secrets = [KeyRing((key,), purpose="home").secret() for key in keys]
        return {path: tuple(_digest(one, home) for one in secrets) for path, home in homes.items() if home}


def _digest(secret: bytes, home: str) -> str:
    return hmac.new(secret, home.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()[:_DIGITS]
