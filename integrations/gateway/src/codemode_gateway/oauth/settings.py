"""Settings, errors and token records of OAuth."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any, Literal, cast
from urllib.parse import urlsplit

from codemode.data.narrowing import is_mapping, is_object, is_sequence
from codemode.errors import CodeModeAuthenticationError

from ..config.model import ConfigError, ServerConfig


class SignInError(CodeModeAuthenticationError):
    """A sign-in failed or is required. The message names the server and the next step."""


class AuthorizationRefusedError(SignInError):
    """The authorization server rejected the credentials; retrying is useless."""


class AuthorizationUnavailableError(SignInError):
    """The authorization server is unreachable or answers invalidly; a retry may succeed."""


Flow = Literal["browser", "client_credentials"]
Storage = Literal["auto", "keyring", "files"]

_TEXT_KEYS = ("clientId", "clientSecret", "clientName", "clientMetadataUrl", "issuer", "redirectUri", "scope")
_FLOWS = {"browser": "browser", "authorization_code": "browser", "client_credentials": "client_credentials"}
_STORAGES = ("auto", "keyring", "files")
_KEYS = {*_TEXT_KEYS, "scopes", "flow", "grant", "callbackPort", "storage"}


@dataclass(frozen=True)
class AuthSettings:
    """OAuth settings of one server. ``scopes`` None requests the scopes that the server names.

    ``issuer`` is the only authorization server that may receive ``client_secret``; without it, only the server's own
    host may. ``callback_port`` is the local redirect port, 0 for any.
    """

    flow: Flow = "browser"
    client_id: str | None = None
    client_secret: str | None = None
    client_name: str = "codemode"
    client_metadata_url: str | None = None
    scopes: str | None = None
    issuer: str | None = None
    callback_port: int = 0
    redirect_uri: str | None = None
    storage: Storage = "auto"

    @classmethod
    def from_server(cls, server: ServerConfig) -> AuthSettings:
        """Parse the settings of a server. Raises `ConfigError` with the key."""
        auth = validate_auth_settings(server.auth, f"mcpServers.{server.name}.auth")
        scopes = auth.get("scopes", auth.get("scope"))
        return cls(
            flow=cast("Flow", _FLOWS[auth.get("flow", auth.get("grant", "browser"))]),
            client_id=auth.get("clientId"),
            client_secret=auth.get("clientSecret"),
            client_name=auth.get("clientName", "codemode"),
            client_metadata_url=auth.get("clientMetadataUrl"),
            scopes=scopes if scopes is None or isinstance(scopes, str) else " ".join(cast("list[str]", scopes)),
            issuer=auth.get("issuer"),
            callback_port=auth.get("callbackPort", 0),
            redirect_uri=auth.get("redirectUri"),
            storage=auth.get("storage", "auto"),
        )

    def compute_storage_key(self, server: ServerConfig, principal: str) -> str:
        """Return the storage key of the tokens, unique for each configuration and principal."""
        secret = hashlib.sha256((self.client_secret or "").encode()).hexdigest()
        parts = [principal, server.name, server.url, self.flow, self.client_id, secret, self.scopes, self.issuer]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:40]


def validate_auth_settings(auth: Mapping[str, Any], path: str) -> Mapping[str, Any]:
    """Return the validated ``auth`` of a server. Raises `ConfigError` with the key under ``path``."""

    def require_valid(is_valid: object, key: str, expected: str) -> None:
        if not is_valid:
            raise ConfigError(f"{path}.{key}: this must be {expected}")

    if not is_mapping(auth):
        raise ConfigError(f"{path}: this must be an object")
    for key, value in auth.items():
        if key not in _KEYS:
            raise ConfigError(f"{path}.{key} is not a setting; the settings are {', '.join(sorted(_KEYS))}")
        if key in _TEXT_KEYS:
            require_valid(isinstance(value, str) and value, key, "a text")
        elif key == "callbackPort":
            require_valid(type(value) is int and 0 <= value < 1 << 16, key, "a port: a whole number from 0 to 65535")
        elif key == "storage":
            require_valid(value in _STORAGES, key, "auto, keyring or files")
        elif key in ("flow", "grant"):
            require_valid(isinstance(value, str) and value in _FLOWS, key, "browser or client_credentials")
    scopes: Any = auth.get("scopes", [])
    texts: Any = [scopes] if isinstance(scopes, str) else scopes
    require_valid(is_sequence(texts) and all(isinstance(text, str) for text in texts), "scopes", "texts")
    if _FLOWS[auth.get("flow", auth.get("grant", "browser"))] == "client_credentials":
        require_valid(auth.get("clientId"), "clientId", "given for client_credentials")
        require_valid(auth.get("clientSecret"), "clientSecret", "given for client_credentials")
    for key in ("issuer", "redirectUri", "clientMetadataUrl"):
        require_valid(key not in auth or _get_url_scheme(auth[key]) in ("http", "https"), key, "an http(s) URL")
    return auth


def _get_url_scheme(url: str) -> str:
    try:
        return urlsplit(url).scheme
    except ValueError:
        return ""


# Characters of a token in a header: RFC 6750 allows fewer, but real servers use all visible ones.
_TOKEN_PATTERN = re.compile(r"[\x21-\x7e]{1,16384}")
_MAX_LIFETIME_SECONDS = 10 * 365 * 86_400
_MAX_RECORD_CHARACTERS = 1 << 18
_RENEW_EARLY_SECONDS = 30.0


@dataclass(frozen=True, kw_only=True)
class TokenRecord:
    """The tokens of a principal at a server. Times are seconds since 1970; ``expires_at`` None is unknown.

    ``client``, ``metadata`` and ``resource`` are the SDK's client, authorization server and resource data as plain
    JSON.
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

    def needs_renewal(self, now: float) -> bool:
        """Return whether the access token is missing, expired or about to expire."""
        if self.access_token is None:
            return True
        if self.expires_at is None:
            return False
        return now >= self.expires_at - min(_RENEW_EARLY_SECONDS, (self.expires_at - self.saved_at) / 10)

    def without_tokens(self) -> TokenRecord:
        """Return the client's record without its rejected tokens."""
        return replace(self, access_token=None, refresh_token=None, expires_at=None)

    @property
    def secrets(self) -> tuple[str, ...]:
        """The secret texts of the record."""
        client_secret = (self.client or {}).get("client_secret")
        candidates = (self.access_token, self.refresh_token, client_secret)
        return tuple(text for text in candidates if isinstance(text, str))

    def to_json(self) -> str:
        """Return the record as text."""
        return json.dumps({"version": 1, **asdict(self)})

    @classmethod
    def from_json(cls, text: str) -> TokenRecord | None:
        """Parse the text of a record; return None for an invalid one."""
        if len(text) > _MAX_RECORD_CHARACTERS:
            return None
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            return None
        if (
            not is_object(value)
            or value.pop("version", None) != 1
            or value.keys() != {record_field.name for record_field in fields(cls)}
        ):
            return None
        is_valid = all(_FIELD_CHECKS[record_field.name](value[record_field.name]) for record_field in fields(cls))
        return cls(**value) if is_valid else None


def is_token(value: object) -> bool:
    """Return whether a value is a safe bearer token: visible characters only, to prevent header injection."""
    return isinstance(value, str) and _TOKEN_PATTERN.fullmatch(value) is not None


def compute_expiry(now: float, expires_in: object) -> float | None:
    """Return the expiry time of a token received at ``now``, or None if unknown."""
    try:
        seconds = float(expires_in)  # pyright: ignore[reportArgumentType]
    except (TypeError, ValueError, OverflowError):
        return None
    return now + max(0.0, min(seconds, _MAX_LIFETIME_SECONDS)) if seconds == seconds else None


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_time(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _allow_none(check: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: value is None or check(value)


_FIELD_CHECKS: dict[str, Callable[[Any], bool]] = {
    "server": _is_text,
    "principal": _is_text,
    "saved_at": _is_time,
    "access_token": _allow_none(is_token),
    "refresh_token": _allow_none(is_token),
    "scope": _allow_none(_is_text),
    "expires_at": _allow_none(_is_time),
    **dict.fromkeys(("client", "metadata", "resource"), _allow_none(is_object)),
}
