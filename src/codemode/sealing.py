"""The wire form of a continuation: packed, compressed or sealed, then signed. Knows nothing of what it says."""

from __future__ import annotations

import secrets
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Mapping
from typing import Any

from .errors import CodeModeProtocolError
from .options import ContinuationOptions
from .protocol.signing import Auth, KeyRing
from .signing_keys import process_keys, process_max_age_ms
from .values import canonical_json, decode_json

_VERSION = 1
_MAX_BODY_BYTES = 256 << 20
_ENCODINGS = ("deflate", "sealed", "sealed-deflate")
_NONCE_BYTES = 12


def pack(
    body: Mapping[str, Any], options: ContinuationOptions, now_ms: int, context_binding: str | None = None
) -> dict[str, Any]:
    """Return a signed continuation around plain JSON. Raises `ImportError` when sealing without ``cryptography``.

    ``context_binding`` is this invocation's own, beside that of the options.
    """
    encoding = "-".join(["sealed"] * options.seal + ["deflate"] * options.compress) or "json"
    packed: Any = body if encoding == "json" else _pack_bytes(canonical_json(body).encode(), encoding, options)
    max_age_ms = options.max_age_ms if options.max_age_ms is not None else process_max_age_ms()
    return _ring(options, "continuation", context_binding).sign(
        {"version": _VERSION, "encoding": encoding, "body": packed},
        nonce=secrets.token_hex(16),
        now_ms=now_ms,
        max_age_ms=max_age_ms,
    )


def _pack_bytes(data: bytes, encoding: str, options: ContinuationOptions) -> str:
    if options.compress:
        data = zlib.compress(data)
    if options.seal:
        data = _seal(data, _ring(options, "seal"), encoding)
    return urlsafe_b64encode(data).decode()


def unpack(
    signed: Mapping[str, Any], options: ContinuationOptions, now_ms: int, context_binding: str | None = None
) -> tuple[Any, Auth]:
    """Return the plain JSON in a continuation and who signed it. Raises `CodeModeProtocolError` for anything else."""
    if set(signed) != {"version", "encoding", "body", "auth"} or signed["version"] != _VERSION:
        raise CodeModeProtocolError("the continuation is malformed or of another version")
    # Nothing is parsed, decompressed or decrypted before the signature is known to be right.
    auth = _ring(options, "continuation", context_binding).verify(signed, now_ms=now_ms)
    encoding, packed = signed["encoding"], signed["body"]
    if options.seal and not str(encoding).startswith("sealed"):
        raise CodeModeProtocolError("the continuation is not sealed, and this host takes only sealed ones")
    if encoding == "json":
        return packed, auth
    if encoding not in _ENCODINGS or not isinstance(packed, str):
        raise CodeModeProtocolError("the continuation is malformed")
    return _unpack_bytes(packed, encoding, options, auth.key_id), auth


def _unpack_bytes(packed: str, encoding: str, options: ContinuationOptions, key_id: str) -> Any:
    try:
        data = urlsafe_b64decode(packed)
        if encoding.startswith("sealed"):
            data = _unseal(data, _ring(options, "seal"), key_id, encoding)
        if encoding.endswith("deflate"):
            data = zlib.decompressobj().decompress(data, _MAX_BODY_BYTES)
        return decode_json(data.decode())
    except (ValueError, zlib.error) as error:
        raise CodeModeProtocolError("the continuation cannot be read") from error


def _ring(options: ContinuationOptions, purpose: str, context_binding: str | None = None) -> KeyRing:
    keys = options.keys if options.keys is not None else process_keys()
    # Two texts, never one: that of the invocation may be chosen by a client.
    bindings = [options.context_binding, context_binding]
    return KeyRing(keys, purpose=purpose, binding=None if bindings == [None, None] else bindings)


def _seal(data: bytes, ring: KeyRing, encoding: str) -> bytes:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return nonce + _cipher(ring.secret()).encrypt(nonce, data, encoding.encode())


def _unseal(data: bytes, ring: KeyRing, key_id: str, encoding: str) -> bytes:
    cipher = _cipher(ring.secret(key_id))
    from cryptography.exceptions import InvalidTag

    try:
        return cipher.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], encoding.encode())
    except InvalidTag:
        raise CodeModeProtocolError("the sealed continuation cannot be opened") from None


def require_cipher(options: ContinuationOptions) -> None:
    """Raise `ValueError` when continuations are to be sealed and nothing here can seal them."""
    if options.seal:
        try:
            _cipher(bytes(32))
        except ImportError as error:
            raise ValueError(str(error)) from error


def _cipher(secret: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM
    except ImportError as error:
        raise ImportError(
            "continuation.seal needs the cryptography package: pip install 'codemode-toolkit[sealed]'"
        ) from error
    return AESGCM(secret)
