"""Encode continuations and journal lines, sign them and optionally seal them."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import b2a_base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, cast

from ..data.json_shape import estimate_json_length
from ..data.json_values import encode_canonical_json
from ..errors import CodeModeProtocolError
from ..options.parts import MAX_LEDGER_BYTES, ContinuationOptions
from .keys import get_continuation_max_age_ms, get_or_create_process_keys
from .signing import KeyRing, SignatureInfo

# Everything is processed in chunks, so that no call into C holds the interpreter for long.

_VERSION = 2
_MAX_BODY_BYTES = 2 * MAX_LEDGER_BYTES
_ENCODINGS = ("deflate", "sealed", "sealed-deflate")
_MAX_AUTH_CHARACTERS = 2000
_NONCE_BYTES = 12
_TAG_BYTES = 16
_LENGTH_BYTES = 8
_KEY_ID_BYTES = 16
_CHUNK_BYTES = 3 << 16  # a multiple of three bytes, so that base64 has no padding


def encode_and_sign_continuation(
    texts: Iterable[str], options: ContinuationOptions, now_ms: int, binding: str | None = None
) -> dict[str, Any]:
    """Return a signed continuation with these texts. Raises `ImportError` when sealing without ``cryptography``.

    ``binding`` is a text that the signature covers in addition to the ``conversation_id`` of the options.
    """
    encoding = "-".join(["sealed"] * options.seal + ["deflate"] * options.compress) or "json"
    body = [*(texts if encoding == "json" else _encode_body(texts, encoding, options))]
    max_age_ms = options.max_age_ms if options.max_age_ms is not None else get_continuation_max_age_ms()
    head = {"version": _VERSION, "encoding": encoding}
    signed = _create_key_ring(options, "continuation", binding).sign(
        head,
        body,
        nonce=secrets.token_hex(16),
        now_ms=now_ms,
        max_age_ms=max_age_ms,
    )
    return {**head, "body": body, "auth": signed["auth"]}


def verify_and_decode_continuation(
    signed: Mapping[str, Any], options: ContinuationOptions, now_ms: int | None, binding: str | None = None
) -> tuple[list[str], SignatureInfo]:
    """Return the texts of a valid continuation and its signature; with ``now_ms`` None, expired ones are accepted.

    Raises `CodeModeProtocolError` for any other value.
    """
    if set(signed) != {"version", "encoding", "body", "auth"} or signed["version"] != _VERSION:
        raise CodeModeProtocolError("the continuation is malformed or of another version")
    body, encoding = _require_texts(signed["body"]), signed["encoding"]
    # Valid fields next to the body are short: refuse long ones before verifying.
    is_known = encoding == "json" or encoding in _ENCODINGS
    if not is_known or estimate_json_length(signed["auth"], _MAX_AUTH_CHARACTERS) >= _MAX_AUTH_CHARACTERS:
        raise CodeModeProtocolError("the continuation is malformed")
    # Nothing is parsed, decompressed or decrypted before the signature is verified.
    rest = {key: value for key, value in signed.items() if key != "body"}
    auth = _create_key_ring(options, "continuation", binding).verify(rest, body, now_ms=now_ms)
    if options.seal and not encoding.startswith("sealed"):
        raise CodeModeProtocolError("the continuation is not sealed, and this host requires sealed ones")
    if encoding == "json":
        return body, auth
    return [*_decode_body(body, encoding, options, auth.key_id)], auth


def _require_texts(body: object) -> list[str]:
    if not isinstance(body, list) or not all(isinstance(text, str) for text in cast("list[Any]", body)):
        raise CodeModeProtocolError("the continuation is malformed")
    return cast("list[str]", body)


def _encode_body(texts: Iterable[str], encoding: str, options: ContinuationOptions) -> Iterator[str]:
    data = _frame_texts(texts)
    if options.compress:
        data = _deflate(data)
    if options.seal:
        data = _encrypt(data, _create_key_ring(options, "seal").get_secret(), encoding)
    return (urlsafe_b64encode(piece).decode() for piece in _rechunk(data))


def _decode_body(body: Iterable[str], encoding: str, options: ContinuationOptions, key_id: str) -> Iterator[str]:
    try:
        data = (urlsafe_b64decode(text) for text in body)
        if encoding.startswith("sealed"):
            data = _decrypt(data, _create_key_ring(options, "seal").get_secret(key_id), encoding)
        if encoding.endswith("deflate"):
            data = _inflate(data)
        yield from _unframe_texts(data)
    except (ValueError, zlib.error) as error:
        raise CodeModeProtocolError("the continuation cannot be read") from error


def _frame_texts(texts: Iterable[str]) -> Iterator[bytes]:
    for text in texts:
        data = text.encode()
        yield len(data).to_bytes(_LENGTH_BYTES)
        for start in range(0, len(data), _CHUNK_BYTES):
            yield data[start : start + _CHUNK_BYTES]


def _unframe_texts(data: Iterable[bytes]) -> Iterator[str]:
    buffer = bytearray()
    for piece in data:
        buffer += piece
        start = 0
        while len(buffer) - start >= _LENGTH_BYTES:
            text_start = start + _LENGTH_BYTES
            end = text_start + int.from_bytes(buffer[start:text_start])
            if end > len(buffer):
                break
            yield buffer[text_start:end].decode()
            start = end
        del buffer[:start]
    if buffer:
        raise ValueError("cut off")


def _rechunk(data: Iterable[bytes]) -> Iterator[bytes]:
    buffer = bytearray()
    for piece in data:
        buffer += piece
        while len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer[:_CHUNK_BYTES])
            del buffer[:_CHUNK_BYTES]
    yield bytes(buffer)


def _deflate(data: Iterable[bytes]) -> Iterator[bytes]:
    stream = zlib.compressobj()
    for piece in data:
        yield stream.compress(piece)
    yield stream.flush()


def _inflate(data: Iterable[bytes]) -> Iterator[bytes]:
    stream, size = zlib.decompressobj(), 0
    for piece in data:
        compressed = piece
        while compressed:
            chunk = stream.decompress(compressed, _CHUNK_BYTES)
            compressed = stream.unconsumed_tail
            size += len(chunk)
            if size > _MAX_BODY_BYTES:
                raise ValueError("too large")
            yield chunk
    yield stream.flush()
    if not stream.eof or stream.unused_data:
        raise ValueError("cut off")


def _create_key_ring(options: ContinuationOptions, purpose: str, binding: str | None = None) -> KeyRing:
    keys = options.keys if options.keys is not None else get_or_create_process_keys()
    # Two separate texts: joined, one that a client chooses could imitate the other.
    bindings = [options.conversation_id, binding]
    return KeyRing(keys, purpose=purpose, binding=None if bindings == [None, None] else bindings)


def _encrypt(data: Iterable[bytes], secret: bytes, encoding: str) -> Iterator[bytes]:
    nonce = secrets.token_bytes(_NONCE_BYTES)
    encryptor = _create_cipher(secret, nonce).encryptor()
    encryptor.authenticate_additional_data(encoding.encode())
    yield nonce
    for piece in data:
        yield encryptor.update(piece)
    yield encryptor.finalize()
    yield encryptor.tag


def _decrypt(data: Iterable[bytes], secret: bytes, encoding: str) -> Iterator[bytes]:
    """Decrypt the data and yield it after the tag was verified."""
    rest, decryptor, chunks = bytearray(), None, list[bytes]()
    for piece in data:
        rest += piece
        if decryptor is None and len(rest) >= _NONCE_BYTES:
            decryptor = _create_cipher(secret, bytes(rest[:_NONCE_BYTES])).decryptor()
            decryptor.authenticate_additional_data(encoding.encode())
            del rest[:_NONCE_BYTES]
        if decryptor is not None and len(rest) > _TAG_BYTES:
            chunks.append(decryptor.update(bytes(rest[:-_TAG_BYTES])))
            del rest[:-_TAG_BYTES]
    if decryptor is None or len(rest) != _TAG_BYTES or not _finalize_and_check_tag(decryptor, bytes(rest)):
        raise CodeModeProtocolError("the sealed continuation cannot be opened")
    yield from chunks


def _finalize_and_check_tag(decryptor: Any, tag: bytes) -> bool:
    from cryptography.exceptions import InvalidTag

    try:
        decryptor.finalize_with_tag(tag)
    except InvalidTag:
        return False
    return True


def seal_text_for_continuation(text: str, options: ContinuationOptions, auth: SignatureInfo) -> str:
    """Seal a text with the key of the continuation of ``auth``, bound to that continuation."""
    return seal_with_secret(text, _create_key_ring(options, "outcome").get_secret(auth.key_id), auth.nonce)


def unseal_text_for_continuation(text: str, options: ContinuationOptions, auth: SignatureInfo) -> str:
    """Open a sealed text. Raises `ValueError` or `CodeModeProtocolError` if it was not sealed this way."""
    return unseal_with_secret(text, _create_key_ring(options, "outcome").get_secret(auth.key_id), auth.nonce)


def seal_with_secret(text: str, secret: bytes, name: str) -> str:
    """Seal a text with a secret, bound to this name."""
    pieces = (piece.encode() for piece in _split_text(text, _CHUNK_BYTES))
    return "".join(urlsafe_b64encode(piece).decode() for piece in _rechunk(_encrypt(pieces, secret, name)))


def unseal_with_secret(text: str, secret: bytes, name: str) -> str:
    """Open a sealed text. Raises `ValueError` or `CodeModeProtocolError` if it was not sealed this way."""
    pieces = (urlsafe_b64decode(piece) for piece in _split_text(text, _CHUNK_BYTES))
    return b"".join(_decrypt(pieces, secret, name)).decode()


def seal_content_part(description: str, data: bytes, options: ContinuationOptions, name: str) -> bytes:
    """Seal a part of content with a key of the options, bound to this name."""
    ring, text = _create_key_ring(options, "content"), description.encode()
    pieces = (len(text).to_bytes(_LENGTH_BYTES), text, *_split_bytes(data))
    return ring.signing_key_id.encode() + b"".join(_encrypt(pieces, ring.get_secret(), name))


def unseal_content_part(sealed_part: bytes, options: ContinuationOptions, name: str) -> tuple[str, bytes]:
    """Return description and data. Raises `ValueError` or `CodeModeProtocolError` for any other value."""
    key_id, sealed = sealed_part[:_KEY_ID_BYTES].decode(), sealed_part[_KEY_ID_BYTES:]
    opened = b"".join(_decrypt(_split_bytes(sealed), _create_key_ring(options, "content").get_secret(key_id), name))
    end = _LENGTH_BYTES + int.from_bytes(opened[:_LENGTH_BYTES])
    return opened[_LENGTH_BYTES:end].decode(), opened[end:]


def _split_bytes(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _CHUNK_BYTES):
        yield data[start : start + _CHUNK_BYTES]


def _split_text(text: str, size: int) -> Iterator[str]:
    return (text[start : start + size] for start in range(0, len(text), size))


def compute_answers_digest(text: str, options: ContinuationOptions, auth: SignatureInfo) -> str:
    """Return a keyed digest of answers, which distinguishes answers without revealing them."""
    return hmac.new(
        _create_key_ring(options, "answers").get_secret(auth.key_id), text.encode(), hashlib.sha256
    ).hexdigest()


def require_cipher_if_sealing(options: ContinuationOptions) -> None:
    """Raise `ValueError` if continuations are to be sealed and no cipher is installed."""
    if options.seal:
        try:
            _create_cipher(bytes(32), bytes(_NONCE_BYTES))
        except ImportError as error:
            raise ValueError(str(error)) from error


def _create_cipher(secret: bytes, nonce: bytes) -> Any:
    try:
        from cryptography.hazmat.primitives.ciphers import Cipher
        from cryptography.hazmat.primitives.ciphers.algorithms import AES
        from cryptography.hazmat.primitives.ciphers.modes import GCM
    except ImportError as error:
        raise ImportError(
            "continuation.seal needs the cryptography package: pip install 'codemode-toolkit[sealed]'"
        ) from error
    return Cipher(AES(secret), GCM(nonce))


# A text that was written for another invocation or position is refused.


def compute_journal_key(salt: str, seed: str) -> str:
    """Return the key of an invocation's journal, which does not reveal salt and seed."""
    return hashlib.sha256(f"codemode journal:{salt}{seed}".encode()).hexdigest()


class JournalCodec:
    """Encodes and decodes the texts of one journal. ``position`` is a line number, or a name such as ``head``."""

    def __init__(self, options: ContinuationOptions, keys: tuple[bytes, ...], key: str, binding: str | None) -> None:
        self._ring = KeyRing(keys, purpose="journal")
        self._sealing = KeyRing(keys, purpose="journal seal") if options.seal else None
        self._identity = encode_canonical_json([key, options.conversation_id, binding])
        self._key_id = self._ring.signing_key_id
        self._hmacs: dict[str, tuple[Any, Any]] = {}  # by key: the hash states of an HMAC before any text

    def sign_and_seal(self, text: str, position: int | str) -> str:
        """Return the signed and optionally sealed text for the journal."""
        if self._sealing is not None:
            text = seal_with_secret(text, self._sealing.get_secret(), self._create_position_label(position))
        return f"{self._key_id}.{self._compute_signature(self._key_id, text, position)}.{text}"

    def verify_and_unseal(self, encoded: str, position: int | str) -> str:
        """Return the text. Raises `CodeModeProtocolError` for a text of another journal or position."""
        key_id, _, rest = encoded.partition(".")
        signature, _, text = rest.partition(".")
        try:
            expected = self._compute_signature(key_id, text, position)
        except (CodeModeProtocolError, UnicodeEncodeError):
            raise _create_journal_error("was signed with an unknown key, or not at all") from None
        if not hmac.compare_digest(expected.encode(), signature.encode("utf-8", "replace")):
            raise _create_journal_error("was changed, is cut off, or is not of this journal or this place")
        if self._sealing is None:
            return text
        try:
            return unseal_with_secret(text, self._sealing.get_secret(key_id), self._create_position_label(position))
        except (ValueError, CodeModeProtocolError):
            raise _create_journal_error("is not sealed, and this host requires sealed entries") from None

    def verify_and_unseal_lines(self, lines: Sequence[str]) -> list[str]:
        """Return the texts of lines, from position 0."""
        return [self.verify_and_unseal(line, position) for position, line in enumerate(lines)]

    def _create_position_label(self, position: int | str) -> str:
        return f"{self._identity}{position}"

    def _compute_signature(self, key_id: str, text: str, position: int | str) -> str:
        hashes = self._hmacs.get(key_id)
        if hashes is None:
            hashes = self._hmacs[key_id] = _prepare_hmac(self._ring.get_secret(key_id))
        inner, outer = hashes[0].copy(), hashes[1].copy()
        label = f"{self._identity}{position}"
        # With the length in front, no two pairs of position and text have the same bytes.
        inner.update(f"{len(label)}:{label}{text}".encode())
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False).decode()


def _prepare_hmac(secret: bytes) -> tuple[Any, Any]:
    """Return both hash states of HMAC-SHA256 (RFC 2104) for a key no longer than one block.

    Copying the module's own object takes three times as long, which is most of the time to sign a line.
    """
    block = secret.ljust(64, b"\0")
    inner, outer = (hashlib.sha256(bytes(byte ^ pad for byte in block)) for pad in (0x36, 0x5C))
    return inner, outer


def _create_journal_error(reason: str) -> CodeModeProtocolError:
    return CodeModeProtocolError(
        f"the journal of this program cannot be used: an entry {reason}", details={"origin": "journal"}
    )
