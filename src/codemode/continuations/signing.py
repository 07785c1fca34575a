"""Sign and verify values; keys, clock and nonces are arguments.

A signature covers the canonical JSON of everything except itself, the purpose, a binding that is not stored, and long
texts as they are, one after the other.
"""

from __future__ import annotations

import hashlib
import hmac
from base64 import urlsafe_b64encode
from collections.abc import Iterable, Mapping
from itertools import chain
from typing import Any, cast

from ..data.json_values import encode_canonical_json
from ..errors import CodeModeProtocolError
from ..records import record

ALGORITHM = "HMAC-SHA256"
_MAX_CLOCK_SKEW_MS = 60_000
_UNKNOWN_KEY = (
    "the continuation was signed with a key that is not known here: give every process the same CODEMODE_SIGNING_KEY"
    " and the same store='sqlite:///pauses.db'; without a store, the same key by set_continuation_signing_key(...) or"
    " continuation={'keys': ...}"
)
_AUTH_FIELDS = {"alg", "keyId", "nonce", "issuedAtMs", "expiresAtMs", "signature"}
_BINDINGS = "bindings"  # present only with a binding: tags that distinguish a missing or other binding from tampering
_MISSING_BINDING = (
    "the continuation belongs to a conversation, but no conversation_id was given: pass that of the call that paused"
)
_OTHER_BINDING = (
    "the continuation belongs to another conversation, or to none: the given conversation_id does not match"
)


@record
class SignatureInfo:
    """The key and nonce of a signature, and its validity period."""

    key_id: str
    nonce: str
    issued_at_ms: int
    expires_at_ms: int


class KeyRing:
    """Secrets: the last one signs, any of them verifies. A secret may occur twice.

    ``purpose`` separates uses of one key, ``binding`` (plain JSON, or a list of such parts) values of different
    owners.
    """

    def __init__(self, keys: tuple[bytes, ...], *, purpose: str, binding: Any = None) -> None:
        self._keys = {compute_key_id(key): _derive_secret(key, purpose) for key in keys}
        self._signing_id = compute_key_id(keys[-1])
        self._binding = binding

    @property
    def signing_key_id(self) -> str:
        """The id of the key that signs."""
        return self._signing_id

    def get_secret(self, key_id: str | None = None) -> bytes:
        """Return 32 derived bytes of a key, the signing one by default. Raises `CodeModeProtocolError` if unknown."""
        secret = self._keys.get(key_id if key_id is not None else self._signing_id)
        if secret is None:
            raise CodeModeProtocolError(_UNKNOWN_KEY, details={"unknown_key": True})
        return secret

    def sign(
        self, value: Mapping[str, Any], texts: Iterable[str] = (), *, nonce: str, now_ms: int, max_age_ms: int
    ) -> dict[str, Any]:
        """Return ``value`` with an ``auth`` object, which covers ``texts`` too."""
        auth: dict[str, Any] = {
            "alg": ALGORITHM,
            "keyId": self._signing_id,
            "nonce": nonce,
            "issuedAtMs": now_ms,
            "expiresAtMs": now_ms + max_age_ms,
        }
        if self._binding is not None:
            auth[_BINDINGS] = self._compute_binding_tags(self._signing_id, nonce)
        return {**value, "auth": {**auth, "signature": self._compute_signature(value, texts, auth)}}

    def verify(self, signed: Mapping[str, Any], texts: Iterable[str] = (), *, now_ms: int | None) -> SignatureInfo:
        """Verify signature and times; without ``now_ms`` only the signature. Raises `CodeModeProtocolError`."""
        auth = signed.get("auth")
        if not isinstance(auth, dict) or set(cast("dict[str, Any]", auth)) - {_BINDINGS} != _AUTH_FIELDS:
            raise CodeModeProtocolError("the continuation is not signed")
        fields = cast("dict[str, Any]", auth)
        if fields["alg"] != ALGORITHM or not isinstance(fields["keyId"], str):
            raise CodeModeProtocolError("the continuation has an unknown signature algorithm")
        value = {key: item for key, item in signed.items() if key != "auth"}
        claimed = fields["signature"]
        unsigned = {key: item for key, item in fields.items() if key != "signature"}
        try:
            self._require_same_binding(fields)
            expected = self._compute_signature(value, texts, unsigned)
        except (TypeError, ValueError, RecursionError):
            raise CodeModeProtocolError("the continuation is not plain JSON") from None
        # Texts are compared: two base64 texts can encode the same bytes.
        if not isinstance(claimed, str) or not hmac.compare_digest(
            expected.encode(), claimed.encode("utf-8", "replace")
        ):
            raise CodeModeProtocolError(
                "the continuation's signature is wrong: it was changed, or is not for this host"
            )
        return _parse_unexpired_signature(fields, now_ms)

    def _require_same_binding(self, fields: Mapping[str, Any]) -> None:
        """Raise `CodeModeProtocolError` if the value has another binding; the signature covers the binding too."""
        self.get_secret(fields["keyId"])  # raises if the key is unknown
        expected = None if self._binding is None else self._compute_binding_tags(fields["keyId"], fields["nonce"])
        claimed = fields.get(_BINDINGS)
        if claimed == expected:
            return
        claimed_tags = cast("list[Any]", claimed) if isinstance(claimed, list) else []
        expected_tags = expected or [None] * len(claimed_tags)
        is_missing = any(
            tag is None and other is not None for tag, other in zip(expected_tags, claimed_tags, strict=False)
        )
        message, kind = (_MISSING_BINDING, "missing") if is_missing else (_OTHER_BINDING, "other")
        raise CodeModeProtocolError(message, details={"binding": kind})

    def _compute_binding_tags(self, key_id: str, nonce: object) -> list[str | None]:
        secret, binding = self.get_secret(key_id), self._binding
        parts = cast("list[Any]", binding) if isinstance(binding, list) else [binding]
        texts = [None if part is None else encode_canonical_json([nonce, part]) for part in parts]
        return [None if text is None else hmac.new(secret, text.encode(), "sha256").hexdigest()[:32] for text in texts]

    def _compute_signature(self, value: Mapping[str, Any], texts: Iterable[str], auth: Mapping[str, Any]) -> str:
        mac = hmac.new(self.get_secret(auth["keyId"]), digestmod=hashlib.sha256)
        head = encode_canonical_json({"value": value, "auth": auth, "binding": self._binding})
        for text in chain((head,), texts):
            covered = text.encode()
            # With the length in front of each, no two lists of texts have the same bytes.
            mac.update(len(covered).to_bytes(8))
            mac.update(covered)
        return urlsafe_b64encode(mac.digest()).rstrip(b"=").decode()


def _parse_unexpired_signature(fields: Mapping[str, Any], now_ms: int | None) -> SignatureInfo:
    issued, expires = fields["issuedAtMs"], fields["expiresAtMs"]
    if now_ms is not None and now_ms >= expires:
        raise CodeModeProtocolError("the continuation has expired")
    if now_ms is not None and issued > now_ms + _MAX_CLOCK_SKEW_MS:
        raise CodeModeProtocolError("the continuation was issued in the future")
    return SignatureInfo(fields["keyId"], fields["nonce"], issued, expires)


def compute_key_id(key: bytes) -> str:
    """Return the id of a key, as continuations name it."""
    return hashlib.sha256(b"codemode key id:" + key).hexdigest()[:16]


def _derive_secret(key: bytes, purpose: str) -> bytes:
    return hmac.new(key, b"codemode:" + purpose.encode(), hashlib.sha256).digest()
