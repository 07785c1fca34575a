"""The texts of one journal, signed for their places and sealed where continuations are. Does not know what they say.

What was written for another invocation, or stands in another place than it was written for, is no text of this journal.
"""

from __future__ import annotations

import hashlib
import hmac
from binascii import b2a_base64
from collections.abc import Sequence
from typing import Any

from ..data.json_values import canonical_json
from ..errors import CodeModeProtocolError
from ..host.steps import metered
from ..options.parts import ContinuationOptions
from .sealing import open_as, seal_as
from .signing import KeyRing


def journal_key(salt: str, seed: str) -> str:
    """Return the key of the journal of an invocation, which its numbers cannot be told from."""
    return hashlib.sha256(f"codemode journal:{salt}{seed}".encode()).hexdigest()


class JournalTexts:
    """Writes and reads the texts of the journal with this key. ``place`` is where one stands: a number, or a word."""

    def __init__(self, options: ContinuationOptions, keys: tuple[bytes, ...], key: str, binding: str | None) -> None:
        self._ring = KeyRing(keys, purpose="journal")
        self._sealing = KeyRing(keys, purpose="journal seal") if options.seal else None
        self._whose = canonical_json([key, options.conversation_id, binding])
        self._key_id = self._ring.signing_id
        self._keyed: dict[str, tuple[Any, Any]] = {}  # by key: the hashes of an HMAC before any text

    def written(self, text: str, place: int | str) -> str:
        """Return what stands in the journal for a text."""
        if self._sealing is not None:
            text = seal_as(text, self._sealing.secret(), self._at(place))
        return f"{self._key_id}.{self._signature(self._key_id, text, place)}.{text}"

    def read(self, written: str, place: int | str) -> str:
        """Return the text. Raises `CodeModeProtocolError` for what was not written for this place of this journal."""
        key_id, _, rest = written.partition(".")
        signature, _, text = rest.partition(".")
        try:
            expected = self._signature(key_id, text, place)
        except (CodeModeProtocolError, UnicodeEncodeError):
            raise _refused("was signed with a key that is not known here, or by nobody") from None
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            raise _refused("was changed, is cut off, or is not of this journal or this place")
        if self._sealing is None:
            return text
        try:
            return open_as(text, self._sealing.secret(key_id), self._at(place))
        except (ValueError, CodeModeProtocolError):
            raise _refused("is not sealed, and this host takes only what is") from None

    def read_all(self, lines: Sequence[str]) -> list[str]:
        """Return the texts of lines, the first of which stands in place 0."""
        return [self.read(line, place) for place, line in enumerate(metered(lines))]

    def _at(self, place: int | str) -> str:
        return f"{self._whose}{place}"

    def _signature(self, key_id: str, text: str, place: int | str) -> str:
        keyed = self._keyed.get(key_id)
        if keyed is None:
            keyed = self._keyed[key_id] = _keyed(self._ring.secret(key_id))
        inner, outer = keyed[0].copy(), keyed[1].copy()
        at = f"{self._whose}{place}"
        # With its length in front, no two pairs of place and text are the same bytes.
        inner.update(f"{len(at)}:{at}{text}".encode())
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False).decode()


def _keyed(secret: bytes) -> tuple[Any, Any]:
    """Return both hashes of HMAC-SHA256 (RFC 2104) under a key of at most a block.

    The module's own object takes three times as long to copy, which is most of what signing a line takes.
    """
    block = secret.ljust(64, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))
    return inner, outer


def _refused(why: str) -> CodeModeProtocolError:
    return CodeModeProtocolError(
        f"the journal of this program cannot be used: what stands in it {why}", details={"origin": "journal"}
    )
